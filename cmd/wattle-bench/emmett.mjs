// Drives Emmett's PostgreSQL event store for wattle-bench: a command is a line of JSON on
// stdin, its answer a line on stdout. See emmett.go for the fields.

import readline from 'node:readline';
import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';
import pg from 'pg';
import { dumbo } from '@event-driven-io/dumbo';
import { getPostgreSQLEventStore, readMessagesBatch } from '@event-driven-io/emmett-postgresql';

console.log = console.error; // stdout is for answers

const table = 'emt_messages';
let the; // the start command's arguments
let pool, executor, store, data;
const versions = []; // of each stream

const name = (stream) => `${the.category}-${stream}`;

async function start(args) {
	the = args;
	data = the.payloads.map((p) => JSON.parse(p));
	const { host, port, user, password, database, max } = the;
	const config = { host, port, user, password, database, max, idleTimeoutMillis: 3000 };
	if (the.tls) config.ssl = { rejectUnauthorized: false };
	pool = new pg.Pool(config);
	const connectionString =
		`postgresql://${encodeURIComponent(the.user)}@${encodeURIComponent(the.host)}:${the.port}/${encodeURIComponent(the.database)}`;
	store = getPostgreSQLEventStore(connectionString, { connectionOptions: { pooled: true, pool } });
	executor = dumbo({ connectionString, pooled: true, pool }).execute;
	await store.schema.migrate();
	for (let s = 0; s < the.streams; s++) versions.push(0n); // 0: it does not exist yet
	const require = createRequire(process.cwd() + '/');
	const of = (p) => JSON.parse(require('node:fs').readFileSync(`node_modules/${p}/package.json`)).version;
	return { version: `emmett-postgresql ${of('@event-driven-io/emmett-postgresql')}, pg ${of('pg')}, Node.js ${process.versions.node}` };
}

async function append(stream, events) {
	const list = [];
	for (let i = 0; i < events; i++) list.push({ type: the.type, data: data[(Number(versions[stream]) + i) % data.length] });
	const done = await store.appendToStream(name(stream), list, { expectedStreamVersion: versions[stream] });
	versions[stream] = done.nextExpectedStreamVersion;
}

// drive calls work from n concurrent loops for some seconds and takes each call's time.
async function drive(n, k, seconds, work) {
	const times = [];
	const began = performance.now();
	const loop = async (w) => {
		for (let i = 0; performance.now() - began < seconds * 1e3; i++) {
			const t = performance.now();
			await work(w * k + (i % k));
			times.push(Math.round((performance.now() - t) * 1e3));
		}
	};
	return timed(async () => {
		await Promise.all(Array.from({ length: n }, (_, w) => loop(w)));
		return { times, events: times.length };
	});
}

async function timed(work) {
	const cpu = process.cpuUsage();
	const began = performance.now();
	const answer = await work();
	const used = process.cpuUsage(cpu);
	return { ...answer, took: (performance.now() - began) * 1e3, cpu: used.user + used.system };
}

async function catchUp() {
	let events = 0;
	for (let after = 0n; ; ) {
		const batch = await readMessagesBatch(executor, { after, batchSize: the.page });
		events += batch.messages.length;
		if (!batch.areMessagesLeft) return { events };
		after = batch.currentGlobalPosition;
	}
}

const commands = {
	start,
	appends: ({ writers, k, seconds }) => drive(writers, k, seconds, (stream) => append(stream, 1)),
	fill: async () => {
		for (let s = 0; s < the.streams; s++) await append(s, the.entries);
		return {};
	},
	loads: ({ seconds }) =>
		drive(1, the.streams, seconds, async (stream) => {
			const { events } = await store.readStream(name(stream));
			if (events.length !== the.entries) throw new Error(`${name(stream)}: wanted ${the.entries} events, found ${events.length}`);
		}),
	catchUp: () => timed(catchUp),
	scan: () => timed(async () => ({ events: (await pool.query(`SELECT * FROM ${table}`)).rowCount })),
	count: async () => ({ events: Number((await pool.query(`SELECT count(*) FROM ${table}`)).rows[0].count) }),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
	const { command, args } = JSON.parse(line);
	let answer;
	try {
		answer = await commands[command](args);
	} catch (error) {
		answer = { error: String(error?.stack ?? error) };
	}
	process.stdout.write(JSON.stringify(answer) + '\n');
}
process.exit(0);
