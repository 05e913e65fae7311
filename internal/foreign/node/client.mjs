// A client of wattle.v1 with generated code, on one transport after another. It prints a
// line for each case, "ok NAME" or "FAIL NAME: why"; the Go test beside it reads them. At
// "restart" the test starts the server again, and says when it has.
//
// WATTLE_URL is the server's, WATTLE_DIR has the certificates, WATTLE_TOKEN is a token.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { follow } from "./follow.mjs";
import { AdminService } from "./gen/wattle/v1/admin_pb.js";
import { BatchSchema, LogService } from "./gen/wattle/v1/log_pb.js";
import { Start, TopicService } from "./gen/wattle/v1/topic_pb.js";
import { ErrorDetailSchema, ErrorKind } from "./gen/wattle/v1/error_pb.js";

const { WATTLE_URL: baseUrl, WATTLE_DIR: dir, WATTLE_TOKEN: token } = process.env;
const file = (name) => readFileSync(`${dir}/${name}`);
const teller = { ca: file("ca.crt"), cert: file("teller.crt"), key: file("teller.key") };
const nobody = { ca: file("ca.crt") };
const stranger = { ca: file("ca.crt"), cert: file("stranger.crt"), key: file("stranger.key") };

// Every way to speak to the server that there is from Node.
const transports = {
  "connect-h2": (o, more) => createConnectTransport({ baseUrl, httpVersion: "2", nodeOptions: o, useBinaryFormat: true, ...more }),
  "connect-h1-json": (o, more) => createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions: o, useBinaryFormat: false, ...more }),
  grpc: (o, more) => createGrpcTransport({ baseUrl, nodeOptions: o, ...more }),
  "grpc-web": (o, more) => createGrpcWebTransport({ baseUrl, httpVersion: "2", nodeOptions: o, ...more }),
};

// Above 2^53: a client that keeps numbers as doubles changes them.
const epoch = 9007199254740993n;
const payload = '{"n":12345678901234567890,"r":0.1234567890123456789,"e":1e400}';
const bytes = (text) => new TextEncoder().encode(text);
const text = (data) => new TextDecoder().decode(data);
const holder = randomUUID();
const limit = { timeoutMs: 60_000 };

// refused returns the error of a call that has to fail, with its facts.
async function refused(call, code, kind) {
  const err = await call().then(
    () => assert.fail("wanted an error, found none"),
    (e) => ConnectError.from(e),
  );
  assert.equal(Code[err.code], Code[code], err.message);
  const [detail, ...more] = err.findDetails(ErrorDetailSchema);
  assert.equal(more.length, 0);
  assert.ok(detail, `wanted an ErrorDetail, found none: ${err.message}`);
  assert.equal(ErrorKind[detail.kind], ErrorKind[kind]);
  return detail;
}

// first returns the first of a stream of messages for which found says something, and
// ends the stream.
async function first(messages, found) {
  for await (const m of messages) {
    const v = await found(m);
    if (v !== undefined) return v;
  }
  assert.fail("wanted more, found the end of the stream without an error");
}

// Cases share a stream of their transport and run in this order.
function casesOf(name, transport) {
  const log = createClient(LogService, transport);
  const admin = createClient(AdminService, transport);
  const topics = createClient(TopicService, transport);
  const stream = `account-${name}`;
  const topic = `orders_${name.replaceAll("-", "_")}`;
  const opened = create(BatchSchema, {
    id: randomUUID(), stream, epoch, holder, claim: true,
    events: [{ type: "account.opened", data: bytes(payload), metadata: { by: "node" } }],
  });
  let last; // the mark of the last entry
  const append = async (data) => {
    const { receipts } = await log.append({
      batches: [{ id: randomUUID(), stream, epoch, holder, after: last, events: [{ type: "money.paid-in", data: bytes(data) }] }],
    }, limit);
    last = receipts[0].last;
  };
  return {
    async category() {
      await admin.createCategory({ spec: { name: "account" } }, limit);
      await admin.createCategory({ spec: { name: "account" } }, limit);
      const { categories } = await admin.listCategories({}, limit);
      assert.ok(categories.some((c) => c.name === "account"));
    },
    async append() {
      const { receipts, token: at } = await log.append({ batches: [opened] }, limit);
      assert.equal(receipts.length, 1);
      assert.equal(receipts[0].first, 1n);
      assert.equal(receipts[0].last.seqno, 1n);
      assert.equal(receipts[0].replays, false);
      assert.match(at.incarnation, /^[0-9a-f-]{36}$/);
      last = receipts[0].last;
    },
    async replays() {
      const { receipts } = await log.append({ batches: [opened] }, limit);
      assert.equal(receipts[0].replays, true);
      assert.deepEqual(receipts[0].last, last);
    },
    async stale() {
      const d = await refused(() => log.append({
        batches: [{ id: randomUUID(), stream, epoch: epoch - 1n, holder: randomUUID(), after: last, events: [{ type: "account.closed", data: bytes("{}") }] }],
      }, limit), Code.Aborted, ErrorKind.FENCED);
      assert.equal(d.stream, stream);
      assert.equal(d.head.epoch, epoch);
      assert.equal(d.head.holder, holder);
      assert.deepEqual(d.head.last, last);
    },
    async exact() {
      const { entries, end } = await log.read({ stream }, limit);
      assert.equal(end, true);
      assert.equal(entries.length, 1);
      const [e] = entries;
      assert.equal(text(e.event.data), payload);
      assert.equal(e.epoch, epoch);
      assert.equal(typeof e.position, "bigint");
      assert.ok(e.position > 0n);
      assert.equal(e.event.metadata.by, "node");
      assert.equal(e.batchId, opened.id);
    },
    async follow() {
      const next = '{"cents":1}';
      const seen = [];
      const mark = await first(log.follow({ stream, heartbeat: { seconds: 1n } }, limit), async (m) => {
        seen.push(...m.entries);
        if (seen.length === 1 && m.end && last.seqno === 1n) await append(next); // it is live now
        return seen.length === 2 ? { seqno: seen[1].seqno, id: seen[1].event.id } : undefined;
      });
      assert.deepEqual(seen.map((e) => text(e.event.data)), [payload, next]);
      // Going on behind the last mark: nothing comes twice, nothing is left out.
      await append('{"cents":2}');
      const data = await first(log.follow({ stream, after: mark }, limit), (m) => m.entries.length > 0 ? m.entries.map((e) => text(e.event.data)) : undefined);
      assert.deepEqual(data, ['{"cents":2}']);
    },
    async diverged() {
      await refused(() => first(log.follow({ stream, after: { seqno: 1n, id: randomUUID() } }, limit), () => undefined),
        Code.DataLoss, ErrorKind.DIVERGED);
    },
    async topic() {
      await topics.createTopic({ topic: { name: topic, partitions: 1 } }, limit);
      const publication = { topic, key: "alice", id: randomUUID(), firstTried: { seconds: BigInt(Math.floor(Date.now() / 1000)) }, events: [{ type: "order.placed", data: bytes(payload) }] };
      const answer = await topics.publish(publication, limit);
      assert.equal(answer.first, answer.last);
      assert.equal(answer.replays, false);
      const again = await topics.publish(publication, limit);
      assert.equal(again.replays, true);
      assert.equal(again.last, answer.last);
      const m = await first(topics.consume({ topic, start: Start.FIRST }, limit), (r) => r.messages[0]);
      assert.equal(text(m.event.data), payload);
      assert.equal(m.key, "alice");
      assert.equal(m.offset, answer.last);
    },
    async consumer() {
      const member = randomUUID();
      const got = await first(topics.consume({ topic, consumer: "mailer", member, start: Start.FIRST }, limit), keepGeneration((r, generation) =>
        r.messages.length > 0 ? { partition: r.partition, offset: r.messages.at(-1).offset, generation } : undefined));
      const { lost } = await topics.commit({ topic, consumer: "mailer", member, generation: got.generation, places: [{ partition: got.partition, offset: got.offset }], leave: true }, limit);
      assert.deepEqual(lost, []);
      const { consumers } = await topics.describeTopic({ name: topic }, limit);
      assert.equal(consumers.find((c) => c.name === "mailer").positions[0].offset, got.offset);
    },
    async denied() {
      await refused(() => log.read({ stream: "vault-1" }, limit), Code.PermissionDenied, ErrorKind.DENIED);
      await refused(() => first(log.follow({ stream: "vault-1" }, limit), () => undefined), Code.PermissionDenied, ErrorKind.DENIED);
    },
    async unauthenticated() {
      const unknown = createClient(LogService, transports[name](nobody));
      await refused(() => unknown.read({ stream }, limit), Code.Unauthenticated, ErrorKind.UNAUTHENTICATED);
      await refused(() => first(unknown.follow({ stream }, limit), () => undefined), Code.Unauthenticated, ErrorKind.UNAUTHENTICATED);
    },
    async token() {
      const bearer = (next) => (r) => { r.header.set("Authorization", `Bearer ${token}`); return next(r); };
      const clerk = createClient(LogService, transports[name](nobody, { interceptors: [bearer] }));
      assert.equal((await clerk.read({ stream }, limit)).entries.length, 3);
    },
    async stranger() {
      const other = createClient(LogService, transports[name](stranger));
      await assert.rejects(() => other.read({ stream }, limit), (e) => e instanceof ConnectError && e.findDetails(ErrorDetailSchema).length === 0);
    },
  };
}

// keepGeneration hands on the generation of the last assignment.
function keepGeneration(found) {
  let generation = 0n;
  return (r) => {
    if (r.assignment) generation = r.assignment.generation;
    return found(r, generation);
  };
}

// goesOn follows one stream on every transport while the server is started again: each
// sees every entry once. An append is sent again, unchanged, until it is answered.
async function goesOn() {
  const stream = "account-restarted";
  const logs = Object.values(transports).map((transport) => createClient(LogService, transport(teller)));
  const resend = async (batch) => {
    for (let tries = 1; ; tries++) {
      try {
        return (await logs[0].append({ batches: [batch] }, limit)).receipts[0].last;
      } catch (err) {
        if (tries === 100) throw err;
        await new Promise((done) => setTimeout(done, 100));
      }
    }
  };
  const batch = (more) => create(BatchSchema, { id: randomUUID(), stream, epoch: 1n, holder, events: [{ type: "money.paid-in", data: bytes("{}") }], ...more });
  const last = await resend(batch({ claim: true }));
  const ending = new AbortController();
  const stop = setTimeout(() => ending.abort(), limit.timeoutMs);
  const followers = logs.map((log) => follow(log, stream, {}, ending.signal));
  const next = () => Promise.all(followers.map(async (f) => (await f.next()).value?.seqno));
  assert.deepEqual(await next(), logs.map(() => 1n));
  console.log("restart");
  await once(process.stdin, "data");
  await resend(batch({ after: last }));
  assert.deepEqual(await next(), logs.map(() => 2n));
  clearTimeout(stop);
}

let failed = false;
async function report(name, run) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (e) {
    failed = true;
    console.log(`FAIL ${name}: ${String(e?.stack ?? e).replaceAll("\n", " | ")}`);
  }
}

for (const [name, transport] of Object.entries(transports)) {
  for (const [what, run] of Object.entries(casesOf(name, transport(teller)))) await report(`${name}/${what}`, run);
}
await report("restart", goesOn);
process.exit(failed ? 1 : 0); // sessions of HTTP/2 would keep the process
