// The loan process as a WebAssembly guest, ABI "es1". Everything that a call needs lives in
// memory until the next call and is then forgotten at once: there is no collector.

import "./abort";
import { Happening, commandNames, eventNames, kindOf, readHappening } from "./happening";
import { Refusal, decide, evolve } from "./loan";
import { Request, Typed, categoryLength, read } from "./request";
import { STATE_VERSION, State, readState } from "./state";
import { Text } from "./text";
import { Writer } from "./write";

const CATEGORY = "application";

let at: usize = 0; // of the request
let room: i32 = 0;

export function es1_alloc(len: i32): i32 {
  heap.reset();
  at = heap.alloc(max(len, 1));
  room = len;
  return <i32>at;
}

export function es1_describe(): i64 {
  heap.reset();
  room = 0;
  const w = new Writer();
  w.ascii('{"v":1,"description":{"name":"loan","release":"1"');
  w.constant("category", CATEGORY);
  w.ascii(',"capabilities":["decide","evolve"]');
  wires(w, "events", eventNames);
  wires(w, "commands", commandNames);
  w.count("stateVersion", STATE_VERSION);
  w.ascii("}}");
  return result(w);
}

export function es1_decide(len: i32): i64 {
  return answer(len, true);
}

export function es1_evolve(len: i32): i64 {
  return answer(len, false);
}

function wires(w: Writer, name: string, names: StaticArray<string>): void {
  w.name(name);
  w.byte(0x5b);
  for (let i = 0; i < names.length; i++) {
    if (i > 0) w.byte(0x2c);
    w.byte(0x7b);
    w.constant("name", names[i]);
    w.count("version", 1);
    w.byte(0x7d);
  }
  w.byte(0x5d);
}

function result(w: Writer): i64 {
  return ((<i64>w.at) << 32) | <i64>w.n;
}

// answer is the reply to the request that lies in memory.
function answer(len: i32, deciding: bool): i64 {
  const r = new Request();
  if (len < 0 || len > room) return failed(r, "invalid", "wanted the length of what was allocated");
  room = 0; // one call for each
  const wrong = read(new Text(at, len), r);
  if (wrong.length > 0) return failed(r, "invalid", wrong);
  if (!r.op.is(deciding ? "decide" : "evolve")) return failed(r, "invalid", "wanted a request of this operation");
  const c = r.command;
  if (deciding && c == null) return failed(r, "invalid", "wanted a command, found none");

  const state = new State();
  const unfit = fold(r, state);
  if (unfit != 0) return unfit;
  if (!deciding || c == null) return folded(r, state, null);
  return decided(r, state, c);
}

// fold makes the state that a request describes; if it cannot, it returns the reply.
function fold(r: Request, state: State): i64 {
  const dash = categoryLength(r.stream);
  if (dash < 0 || !new Text(r.stream.at, dash).is(CATEGORY)) return failed(r, "invalid", "wanted a stream of category " + CATEGORY);
  const before = r.state;
  if (before != null) {
    if (r.stateVersion != STATE_VERSION) return failed(r, "state", "wanted a state of version 1: fold the events anew");
    const wrong = readState(before, state);
    if (wrong.length > 0) return failed(r, "invalid", "state: " + wrong);
  }
  for (let i = 0; i < r.events.length; i++) {
    const h = new Happening();
    const wrong = typed(r.events[i], eventNames, h);
    if (wrong.length > 0) return failed(r, "invalid", "event: " + wrong);
    evolve(state, h);
  }
  return 0;
}

// typed reads an event or command, and returns what is wrong with it, or "".
function typed(t: Typed, names: StaticArray<string>, h: Happening): string {
  h.kind = kindOf(t.type, names);
  if (h.kind < 0 || t.version != 1) return "unknown type or version";
  if (t.contentType.n > 0 && !t.contentType.is("application/json")) return "wanted data of type application/json";
  const data = t.data;
  if (data == null) return t.base64 ? "wanted data, found data64" : "wanted data";
  return readHappening(data, h);
}

function decided(r: Request, state: State, command: Typed): i64 {
  const h = new Happening();
  if (command.version == 0) command.version = 1; // whoever names none means the newest
  const wrong = typed(command, commandNames, h);
  if (wrong.length > 0) return failed(r, "invalid", "command: " + wrong);
  const refusal = decide(state, h);
  if (refusal != null) return refused(r, refusal);
  h.at = h.at.utc(); // whatever the zone of the command was
  evolve(state, h);
  return folded(r, state, h);
}

// begin is what all replies have in common.
function begin(r: Request): Writer {
  const w = new Writer();
  w.ascii('{"v":1');
  w.text("key", r.key);
  return w;
}

function folded(r: Request, state: State, event: Happening | null): i64 {
  if (!state.last.canWrite) return failed(r, "invalid", "a time that JSON cannot hold");
  const w = begin(r);
  w.name("state");
  state.write(w);
  if (event != null) {
    w.ascii(',"events":[{');
    w.constant("type", eventNames[event.kind]);
    w.ascii(',"version":1,"data":');
    event.write(w);
    w.ascii("}]");
  }
  w.byte(0x7d);
  return result(w);
}

function refused(r: Request, refusal: Refusal): i64 {
  return coded(r, "rejected", refusal.rule, "loan: refused by rule " + refusal.rule + ": wanted " + refusal.wanted);
}

function failed(r: Request, code: string, message: string): i64 {
  return coded(r, "error", code, message);
}

function coded(r: Request, what: string, code: string, message: string): i64 {
  const w = begin(r);
  w.name(what);
  w.byte(0x7b);
  w.constant("code", code);
  w.constant("message", message);
  w.ascii("}}");
  return result(w);
}
