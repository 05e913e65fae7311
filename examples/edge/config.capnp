# Three Workers for workerd: `decide` is the domain alone, `execute` the whole command side
# on PostgreSQL, `remote` the same on a log at a wattle serve.

using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "decide", worker = .decide),
    (name = "execute", worker = .execute),
    (name = "remote", worker = .remote),
    (name = "internet", network = (allow = ["public", "private"])),  # a database is often in a private one
  ],
  sockets = [
    (name = "decide", address = "127.0.0.1:8787", http = (), service = "decide"),
    (name = "execute", address = "127.0.0.1:8788", http = (), service = "execute"),
    (name = "remote", address = "127.0.0.1:8789", http = (), service = "remote"),
  ],
);

const decide :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [
    (name = "worker.mjs", esModule = embed "worker.mjs"),
    (name = "wasm_exec.js", esModule = embed "dist/wasm_exec.js"),
    (name = "app.wasm", wasm = embed "dist/decide.wasm"),
  ],
);

const execute :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [
    (name = "worker.mjs", esModule = embed "worker.mjs"),
    (name = "wasm_exec.js", esModule = embed "dist/wasm_exec.js"),
    (name = "app.wasm", wasm = embed "dist/execute.wasm"),
  ],
  bindings = [
    (name = "DATABASE_URL", fromEnvironment = "DATABASE_URL"),
    (name = "WATTLE_SCHEMA", fromEnvironment = "WATTLE_SCHEMA"),
  ],
);

const remote :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [
    (name = "worker.mjs", esModule = embed "worker.mjs"),
    (name = "wasm_exec.js", esModule = embed "dist/wasm_exec.js"),
    (name = "app.wasm", wasm = embed "dist/remote.wasm"),
  ],
  bindings = [
    (name = "WATTLE_SERVER", fromEnvironment = "WATTLE_SERVER"),
    (name = "WATTLE_TOKEN", fromEnvironment = "WATTLE_TOKEN"),
  ],
);
