// Request: what the host asks, read as strictly as the contract demands. A field that the
// contract does not have, one that stands twice and a value of another form are errors.

import { parseMoment } from "./moment";
import { Scanner, hexDigit, isDigit } from "./scan";
import { Text, empty, rune, sizeBy } from "./text";

const MAX_CATEGORY = 64;
const MAX_KEY = 512;

// Typed is what events and commands have in common.
export class Typed {
  type: Text = empty();
  version: i32 = 0;
  contentType: Text = empty();
  data: Text | null = null;
  base64: bool = false; // data is in base64, which this guest does not read
}

export class Request {
  version: i32 = 0;
  op: Text = empty();
  key: Text = empty(); // 36 characters in lower case, or empty
  stream: Text = empty();
  stateVersion: i32 = 0;
  state: Text | null = null;
  events: Array<Typed> = new Array<Typed>();
  command: Typed | null = null;
}

const names: StaticArray<string> = [
  "v", "op", "key", "deadline", "traceparent", "tracestate", "now", "id", "stream", "after",
  "stateVersion", "state", "projector", "projectorVersion", "events", "command", "docs",
];

// read fills in what of a request there is, and returns what is wrong with it, or "".
export function read(text: Text, r: Request): string {
  const s = new Scanner(text);
  let seen = 0;
  if (!s.enter(0x7b)) return s.error;
  for (let first = true; s.more(0x7d, first); first = false) {
    const field = known(s, names, seen);
    if (field < 0) return s.error;
    seen |= 1 << field;
    switch (field) {
      case 0: r.version = s.count(); break;
      case 1: r.op = s.text(); break;
      case 2: r.key = uuid(s); break;
      case 3: case 6: time(s); break;
      case 4: case 5: case 12: s.text(); break;
      case 7: uuid(s); break;
      case 8: r.stream = stream(s); break;
      case 9: mark(s); break;
      case 10: r.stateVersion = s.count(); break;
      case 11: r.state = s.raw(); break;
      case 13: s.count(); break;
      case 14: entries(s, r.events); break;
      case 15: r.command = command(s); break;
      default: distinct(s, false);
    }
  }
  if (s.done() && r.version != 1) s.fail("wanted version 1 of the contract");
  return s.error;
}

// known is the index of the next field's name, -1 if there is no such field or it stood
// before.
function known(s: Scanner, names: StaticArray<string>, seen: i32): i32 {
  const name = s.name();
  if (s.failed) return -1;
  for (let i = 0; i < names.length; i++) {
    if (!name.is(names[i])) continue;
    if ((seen & (1 << i)) == 0) return i;
    s.fail("the field " + names[i] + " stands twice");
    return -1;
  }
  s.fail("there is no such field");
  return -1;
}

const typedNames: StaticArray<string> = [
  "type", "version", "contentType", "data", "data64", "meta", "stream", "seqno", "position", "id", "time", "quiet",
];

function entries(s: Scanner, into: Array<Typed>): void {
  if (!s.enter(0x5b)) return;
  for (let first = true; s.more(0x5d, first); first = false) into.push(typed(s, typedNames.length));
}

function command(s: Scanner): Typed {
  return typed(s, 6);
}

// typed takes an object that has the first so many fields of typedNames.
function typed(s: Scanner, fields: i32): Typed {
  const t = new Typed();
  let seen = 0;
  if (!s.enter(0x7b)) return t;
  for (let first = true; s.more(0x7d, first); first = false) {
    const field = known(s, typedNames, seen);
    if (field < 0) return t;
    seen |= 1 << field;
    if (field >= fields) s.fail("there is no such field");
    switch (field) {
      case 0: t.type = s.text(); break;
      case 1: t.version = s.count(); break;
      case 2: t.contentType = s.text(); break;
      case 3: t.data = s.raw(); break;
      case 4: s.text(); t.base64 = true; break;
      case 5: distinct(s, true); break;
      case 6: stream(s); break;
      case 7: case 8: position(s); break;
      case 9: uuid(s); break;
      case 10: time(s); break;
      default: s.truth();
    }
  }
  if (t.base64 && t.data != null) s.fail("wanted data or data64, found both");
  return t;
}

const markNames: StaticArray<string> = ["seqno", "id"];

function mark(s: Scanner): void {
  let seen = 0;
  if (!s.enter(0x7b)) return;
  for (let first = true; s.more(0x7d, first); first = false) {
    const field = known(s, markNames, seen);
    if (field < 0) return;
    seen |= 1 << field;
    if (field == 0) position(s);
    else uuid(s);
  }
}

// distinct passes over an object in which no name stands twice: of texts or of anything.
function distinct(s: Scanner, texts: bool): void {
  const seen = new Set<string>();
  if (!s.enter(0x7b)) return;
  for (let first = true; s.more(0x7d, first); first = false) {
    const name = s.name();
    const key = String.UTF8.decodeUnsafe(name.at, name.n);
    if (seen.has(key)) s.fail("a key stands twice");
    seen.add(key);
    if (texts) s.text();
    else s.skip();
  }
}

// uuid takes one as text in lower case; the zero UUID means none.
function uuid(s: Scanner): Text {
  const t = s.text();
  if (s.failed) return empty();
  const lower = heap.alloc(36);
  let zero = true;
  for (let i = 0; i < 36 && t.n == 36; i++) {
    const c = t.byte(i);
    const dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? c != 0x2d : hexDigit(c) < 0) {
      s.fail("wanted a UUID");
      return empty();
    }
    if (c != 0x2d && c != 0x30) zero = false;
    store<u8>(lower + i, dash || isDigit(c) ? c : c | 0x20);
  }
  if (t.n != 36) s.fail("wanted a UUID");
  return zero || s.failed ? empty() : new Text(lower, 36);
}

function time(s: Scanner): void {
  if (parseMoment(s.text()) == null) s.fail("wanted a time");
}

// position takes a decimal number of 0 to 2^63-1 that is a text.
function position(s: Scanner): void {
  const t = s.text();
  let v: u64 = 0;
  let ok = t.n > 0 && t.n < 20 && (t.n == 1 || t.byte(0) != 0x30);
  for (let i = 0; i < t.n && ok; i++) {
    ok = isDigit(t.byte(i));
    v = v * 10 + (t.byte(i) - 0x30);
  }
  if (!ok || v > <u64>i64.MAX_VALUE) s.fail("wanted a decimal number");
}

// stream takes a name of the form category-key.
function stream(s: Scanner): Text {
  const t = s.text();
  const dash = categoryLength(t);
  let ok = dash > 0 && dash <= MAX_CATEGORY && t.n - dash - 1 > 0 && t.n - dash - 1 <= MAX_KEY;
  for (let i = 0; i < t.n && ok; i += sizeBy(t.byte(i))) {
    const r = rune(t, i);
    ok = r >= 0x20 && (r < 0x7f || r > 0x9f) && (i >= dash || mayBeInCategory(r));
  }
  if (!ok) s.fail("wanted a stream");
  return t;
}

// categoryLength is where the first dash of a stream's name is, -1 if there is none.
export function categoryLength(t: Text): i32 {
  for (let i = 0; i < t.n; i++) {
    if (t.byte(i) == 0x2d) return i;
  }
  return -1;
}

function mayBeInCategory(r: u32): bool {
  const blank = r == 0x20 || r == 0xa0 || r == 0x1680 || (r >= 0x2000 && r <= 0x200a) || r == 0x2028 || r == 0x2029 || r == 0x202f || r == 0x205f || r == 0x3000;
  return !blank && r != 0x2e && r != 0x2a && r != 0x3e;
}
