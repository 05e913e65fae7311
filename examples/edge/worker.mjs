// A Go program as a Worker. Each request has a program of its own: timers and streams
// belong to the request in which they began, so one that is shared would hang.

import "./wasm_exec.js";
import app from "./app.wasm";
import { connect } from "cloudflare:sockets";

// Go programs see one globalThis. Each finds its own request here, by its first argument.
const calls = (globalThis.wattleCalls = new Map());
let last = 0;

export default {
  async fetch(request, env, ctx) {
    const id = String(++last);
    const go = new Go();
    go.argv = ["worker", id];
    go.env = Object.fromEntries(Object.entries(env).filter(([, v]) => typeof v === "string"));
    const instance = await WebAssembly.instantiate(app, go.importObject);
    const answered = new Promise((respond) => {
      calls.set(id, {
        method: request.method,
        url: request.url,
        headers: [...request.headers],
        body: request.body?.getReader(),
        connect: (hostname, port) => connect({ hostname, port }),
        respond: (status, headers, body) => respond(new Response(body, { status, headers })),
      });
    });
    const ended = go.run(instance).finally(() => calls.delete(id));
    ctx.waitUntil(ended); // it closes its connections after the answer
    return Promise.race([answered, ended.then(() => new Response("the program ended without an answer\n", { status: 500 }))]);
  },
};
