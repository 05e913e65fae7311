// State: what the rules need to know of one application, and its form in JSON, which is
// that of the handler in Go: the same names, the same order, the same fields left out. So
// is the reading: names in any case, null changes nothing, what is unknown is passed over.

import { Moment, parseMoment } from "./moment";
import { Scanner } from "./scan";
import { Text } from "./text";
import { Writer } from "./write";

export const STATE_VERSION = 1;

export const enum Outcome {
  open,
  approved,
  declined,
  cancelled,
}

const outcomes: StaticArray<string> = ["open", "approved", "declined", "cancelled"];

export class Work {
  scheduled: i64 = 0;
  started: i64 = 0;
  completed: i64 = 0;
  constructor(public item: Text) {}
}

export class State {
  amount: i64 = 0;
  last: Moment = new Moment();

  submitted: bool = false;
  partlySubmitted: bool = false;
  preaccepted: bool = false;
  accepted: bool = false;
  finalized: bool = false;
  registered: bool = false;
  activated: bool = false;
  outcome: i32 = Outcome.open;

  selected: i64 = 0; // of offers, as the next six
  created: i64 = 0;
  sent: i64 = 0;
  returned: i64 = 0;
  withdrawn: i64 = 0;
  offerAccepted: bool = false;
  offerDeclined: bool = false;

  work: Array<Work> = new Array<Work>(); // by item

  // workOn is the work of an item, made if there is none yet.
  workOn(item: Text): Work {
    let i = 0;
    while (i < this.work.length && this.work[i].item.compare(item) < 0) i++;
    if (i < this.work.length && this.work[i].item.equals(item)) return this.work[i];
    const w = new Work(item);
    this.work.push(w);
    for (let k = this.work.length - 1; k > i; k--) this.work[k] = this.work[k - 1];
    this.work[i] = w;
    return w;
  }

  write(w: Writer): void {
    w.byte(0x7b);
    w.name("amount");
    w.integer(this.amount);
    if (!this.last.isZero) {
      w.name("last");
      this.last.write(w);
    }
    w.flag("submitted", this.submitted);
    w.flag("partly_submitted", this.partlySubmitted);
    w.flag("preaccepted", this.preaccepted);
    w.flag("accepted", this.accepted);
    w.flag("finalized", this.finalized);
    w.flag("registered", this.registered);
    w.flag("activated", this.activated);
    if (this.outcome != Outcome.open) w.constant("outcome", outcomes[this.outcome]);
    this.writeOffers(w);
    this.writeWork(w);
    w.byte(0x7d);
  }

  private writeOffers(w: Writer): void {
    w.name("offers");
    w.byte(0x7b);
    w.count("selected", this.selected);
    w.count("created", this.created);
    w.count("sent", this.sent);
    w.count("returned", this.returned);
    w.count("cancelled", this.withdrawn);
    w.flag("accepted", this.offerAccepted);
    w.flag("declined", this.offerDeclined);
    w.byte(0x7d);
  }

  private writeWork(w: Writer): void {
    if (this.work.length == 0) return;
    w.name("work");
    w.byte(0x7b);
    for (let i = 0; i < this.work.length; i++) {
      const work = this.work[i];
      if (i > 0) w.byte(0x2c);
      w.string(work.item);
      w.byte(0x3a);
      w.byte(0x7b);
      w.count("scheduled", work.scheduled);
      w.count("started", work.started);
      w.count("completed", work.completed);
      w.byte(0x7d);
    }
    w.byte(0x7d);
  }
}

// readState returns what is wrong with a state, or "".
export function readState(text: Text, into: State): string {
  const s = new Scanner(text);
  stateFields(s, into);
  s.done();
  return s.error;
}

function stateFields(s: Scanner, a: State): void {
  if (s.isNull() || !s.enter(0x7b)) return;
  for (let first = true; s.more(0x7d, first); first = false) {
    const name = folded(s.name());
    if (name.is("amount")) a.amount = integer(s, a.amount);
    else if (name.is("last")) a.last = moment(s, a.last);
    else if (name.is("submitted")) a.submitted = truth(s, a.submitted);
    else if (name.is("partly_submitted")) a.partlySubmitted = truth(s, a.partlySubmitted);
    else if (name.is("preaccepted")) a.preaccepted = truth(s, a.preaccepted);
    else if (name.is("accepted")) a.accepted = truth(s, a.accepted);
    else if (name.is("finalized")) a.finalized = truth(s, a.finalized);
    else if (name.is("registered")) a.registered = truth(s, a.registered);
    else if (name.is("activated")) a.activated = truth(s, a.activated);
    else if (name.is("outcome")) a.outcome = outcome(s, a.outcome);
    else if (name.is("offers")) offerFields(s, a);
    else if (name.is("work")) workItems(s, a);
    else s.skip();
  }
}

function offerFields(s: Scanner, a: State): void {
  if (s.isNull() || !s.enter(0x7b)) return;
  for (let first = true; s.more(0x7d, first); first = false) {
    const name = folded(s.name());
    if (name.is("selected")) a.selected = integer(s, a.selected);
    else if (name.is("created")) a.created = integer(s, a.created);
    else if (name.is("sent")) a.sent = integer(s, a.sent);
    else if (name.is("returned")) a.returned = integer(s, a.returned);
    else if (name.is("cancelled")) a.withdrawn = integer(s, a.withdrawn);
    else if (name.is("accepted")) a.offerAccepted = truth(s, a.offerAccepted);
    else if (name.is("declined")) a.offerDeclined = truth(s, a.offerDeclined);
    else s.skip();
  }
}

function workItems(s: Scanner, a: State): void {
  if (s.isNull()) {
    a.work = new Array<Work>();
    return;
  }
  if (!s.enter(0x7b)) return;
  for (let first = true; s.more(0x7d, first); first = false) {
    const w = a.workOn(s.name());
    w.scheduled = w.started = w.completed = 0;
    workFields(s, w);
  }
}

function workFields(s: Scanner, w: Work): void {
  if (s.isNull() || !s.enter(0x7b)) return;
  for (let first = true; s.more(0x7d, first); first = false) {
    const name = folded(s.name());
    if (name.is("scheduled")) w.scheduled = integer(s, w.scheduled);
    else if (name.is("started")) w.started = integer(s, w.started);
    else if (name.is("completed")) w.completed = integer(s, w.completed);
    else s.skip();
  }
}

// The values of fields: what was there stays where null stands.

export function integer(s: Scanner, before: i64): i64 {
  return s.isNull() ? before : s.integer();
}

export function text(s: Scanner, before: Text): Text {
  return s.isNull() ? before : s.text();
}

// moment reads a time. Escapes are not undone: none is needed in a time.
export function moment(s: Scanner, before: Moment): Moment {
  if (s.isNull()) return before;
  const m = parseMoment(s.inner());
  if (m != null) return m;
  s.fail("wanted a time");
  return before;
}

function truth(s: Scanner, before: bool): bool {
  return s.isNull() ? before : s.truth();
}

function outcome(s: Scanner, before: i32): i32 {
  if (s.isNull()) return before;
  const t = s.text();
  for (let i = 0; i < outcomes.length; i++) {
    if (t.is(outcomes[i])) return i;
  }
  s.fail("wanted an outcome");
  return before;
}

// folded is a name in lower case, with the two letters beyond ASCII that fold to it.
export function folded(t: Text): Text {
  let i = 0;
  while (i < t.n && t.byte(i) < 0x80 && (t.byte(i) < 0x41 || t.byte(i) > 0x5a)) i++;
  if (i == t.n) return t;
  const at = heap.alloc(t.n);
  let n = 0;
  for (i = 0; i < t.n; i++) {
    let c = t.byte(i);
    if (c >= 0x41 && c <= 0x5a) c |= 0x20;
    if (c == 0xc5 && t.byte(i + 1) == 0xbf) {
      c = 0x73; // long s
      i++;
    } else if (c == 0xe2 && t.byte(i + 1) == 0x84 && t.byte(i + 2) == 0xaa) {
      c = 0x6b; // the sign for Kelvin
      i += 2;
    }
    store<u8>(at + n++, c);
  }
  return new Text(at, n);
}
