// The loan process: decide and evolve, rule by rule as in package loan.

import { Happening, Kind } from "./happening";
import { Outcome, State, Work } from "./state";
import { Text, empty } from "./text";

const MAX_AMOUNT: i64 = 1000000000000;
const MAX_TEXT = 1024; // bytes of a resource or customer
const MAX_YEAR = 9998;

// Refusal names the rule that a command breaks, and what the rule wants.
export class Refusal {
  constructor(public rule: string, public wanted: string) {}
}

// require is null when ok.
function require(ok: bool, rule: string, wanted: string): Refusal | null {
  return ok ? null : new Refusal(rule, wanted);
}

// decide says why a command is refused; null: its event follows.
export function decide(s: State, c: Happening): Refusal | null {
  return admit(s, c) || own(s, c);
}

// admit checks what holds for every command, before its own rules.
function admit(s: State, c: Happening): Refusal | null {
  const year = c.at.year;
  return require(!c.at.isZero && year >= 1 && year <= MAX_YEAR, "well-formed", "a time within the years 1 to 9998")
    || require(c.resource.n <= MAX_TEXT, "well-formed", "a resource within 1024 bytes")
    || require(!c.at.before(s.last), "time-never-falls", "a time not before that of the last event")
    || next(s, c.kind);
}

// next checks the two places where the process allows one next command only.
function next(s: State, kind: i32): Refusal | null {
  const submit = kind == Kind.submit;
  if (submit && s.submitted) return new Refusal("submitted-once", "an application not yet submitted");
  if (!submit && !s.submitted) return new Refusal("submission-first", "a submission as the first command");
  if (s.submitted && !s.partlySubmitted && kind != Kind.partlySubmit) {
    return new Refusal("submission-next", "the partial submission directly after the submission");
  }
  return require(s.created <= s.sent || kind == Kind.sendOffer, "offer-sent-next", "a created offer sent directly");
}

// own checks the rules of one command.
function own(s: State, c: Happening): Refusal | null {
  switch (c.kind) {
    case Kind.submit:
      return require(c.amount >= 0 && c.amount <= MAX_AMOUNT, "amount", "an amount of 0 to 1000000000000 euros")
        || require(c.customer.n <= MAX_TEXT, "well-formed", "a customer within 1024 bytes");
    case Kind.partlySubmit:
      return once(s.partlySubmitted);
    case Kind.preaccept:
      return once(s.preaccepted) || assessable(s);
    case Kind.accept:
      return once(s.accepted) || after(s.preaccepted, "preacceptance before acceptance") || assessable(s);
    case Kind.finalize:
      return once(s.finalized) || after(s.accepted, "acceptance before finalization") || assessable(s);
    case Kind.approve:
      return undecided(s) || grantable(s);
    case Kind.register:
      return once(s.registered) || notRefused(s) || grantable(s);
    case Kind.activate:
      return once(s.activated) || notRefused(s) || grantable(s);
    case Kind.decline:
      return undecided(s) || uncommitted(s) || noOfferInMaking(s);
    case Kind.cancel:
      return undecided(s) || uncommitted(s) || offerNotDeclined(s) || noOfferInMaking(s);
  }
  return c.kind < Kind.scheduleWork ? ofOffer(s, c.kind) : ofWork(s, c);
}

function ofOffer(s: State, kind: i32): Refusal | null {
  switch (kind) {
    case Kind.selectOffer:
      return after(s.accepted, "acceptance before selecting an offer") || unanswered(s) || offersOpen(s, -1, -1) || noOfferInMaking(s);
    case Kind.createOffer:
      return after(s.finalized, "finalization before creating an offer") || unanswered(s) || offersOpen(s, -1, -1)
        || require(s.selected > s.created, "offer-order", "a selected offer not yet created");
    case Kind.sendOffer:
      return require(s.created > s.sent, "offer-order", "a created offer not yet sent");
    case Kind.returnOffer:
      return unanswered(s) || offersOpen(s, -1, -1) || liveOffer(s) || noOfferInMaking(s);
    case Kind.acceptOffer:
      return unanswered(s) || offersOpen(s, Outcome.open, Outcome.approved) || noOfferInMaking(s) || grantOffer(s);
    case Kind.declineOffer:
      return unanswered(s) || offersOpen(s, Outcome.declined, -1)
        || require(live(s) == 1, "offer-live", "exactly one offer sent and not cancelled");
  }
  return unanswered(s) || offersOpen(s, Outcome.cancelled, -1) || liveOffer(s);
}

function ofWork(s: State, c: Happening): Refusal | null {
  const item = itemOf(c.item);
  if (item < 0) return new Refusal("well-formed", "a known work item");
  const w = workOf(s, item);
  switch (c.kind) {
    case Kind.scheduleWork:
      return schedulable(s, item) || require(scheduleGate(s, item, w), "work-gate", "an application where the work may be scheduled");
    case Kind.startWork:
      return scheduled(w) || require(s.outcome != Outcome.declined, "work-closed", "an application not declined")
        || require(startGate(s, item), "work-gate", "an application where the work may be started");
  }
  return scheduled(w) || require(w.completed < w.scheduled + w.started, "work-units", "work completed less often than scheduled and started");
}

function once(done: bool): Refusal | null {
  return require(!done, "step-once", "an application without this step");
}

function after(done: bool, wanted: string): Refusal | null {
  return require(done, "step-order", wanted);
}

// isClosed says that the application was decided, or that granting it has begun.
function isClosed(s: State): bool {
  return s.outcome != Outcome.open || s.registered || s.activated;
}

function assessable(s: State): Refusal | null {
  return require(!isClosed(s), "assessment-closed", "an open application");
}

function undecided(s: State): Refusal | null {
  return require(s.outcome == Outcome.open, "one-outcome", "an application without an outcome");
}

// notRefused lets registration and activation follow an approval, or precede it.
function notRefused(s: State): Refusal | null {
  return require(s.outcome == Outcome.open || s.outcome == Outcome.approved, "assessment-closed", "an open or approved application");
}

// uncommitted wants a bank that has not yet bound itself to the loan.
function uncommitted(s: State): Refusal | null {
  return require(!s.offerAccepted && !s.registered && !s.activated, "binding", "an application the bank is not bound to");
}

function offerNotDeclined(s: State): Refusal | null {
  return require(!s.offerDeclined, "binding", "no declined offer");
}

// grantable is what approval, registration and activation have in common; the bank does
// them in any order.
function grantable(s: State): Refusal | null {
  return after(s.finalized, "finalization before the loan is granted") || offerNotDeclined(s) || noOfferInMaking(s) || grantOffer(s);
}

// live is how many offers were sent and not cancelled.
function live(s: State): i64 {
  return s.sent - s.withdrawn;
}

function noOfferInMaking(s: State): Refusal | null {
  return require(s.selected <= s.sent, "offer-in-making", "no offer in the making");
}

// grantOffer wants the one offer that a loan is granted on.
function grantOffer(s: State): Refusal | null {
  return require(live(s) == 1 && s.returned > 0, "grant-offer", "exactly one live offer, and one that came back");
}

function unanswered(s: State): Refusal | null {
  return require(!s.offerAccepted && !s.offerDeclined, "offer-answered", "offers not yet answered");
}

// offersOpen wants an application that is not closed, or one with an outcome that the
// change may follow; -1 is none.
function offersOpen(s: State, follows: i32, orFollows: i32): Refusal | null {
  return require(!isClosed(s) || s.outcome == follows || s.outcome == orFollows, "offer-closed", "an application open for a change of offers");
}

function liveOffer(s: State): Refusal | null {
  return require(live(s) > 0, "offer-live", "an offer sent and not cancelled");
}

const enum Item {
  leads, // follow up incomplete first submissions
  completion, // complete the preaccepted application
  offerCalls, // call after sent offers
  validation, // assess the returned application
  fileCalls, // call after missing documents
  fraud, // look into suspected fraud
  newContract, // change the contract's data
}

const items: StaticArray<string> = [
  "W_Afhandelen leads", "W_Completeren aanvraag", "W_Nabellen offertes", "W_Valideren aanvraag",
  "W_Nabellen incomplete dossiers", "W_Beoordelen fraude", "W_Wijzigen contractgegevens",
];

function itemOf(name: Text): i32 {
  for (let i = 0; i < items.length; i++) {
    if (name.is(items[i])) return i;
  }
  return -1;
}

// workOf is what was done of an item.
function workOf(s: State, item: i32): Work {
  for (let i = 0; i < s.work.length; i++) {
    if (s.work[i].item.is(items[item])) return s.work[i];
  }
  return new Work(empty());
}

// schedulable wants an open application, or one that a contract change may follow.
function schedulable(s: State, item: i32): Refusal | null {
  const refused = s.outcome == Outcome.declined || s.outcome == Outcome.cancelled;
  return require(!isClosed(s) || (item == Item.newContract && !refused), "work-closed", "an open application");
}

function scheduled(w: Work): Refusal | null {
  return require(w.scheduled > 0, "work-scheduled", "work that was scheduled before");
}

// The gates say where in the process each work item belongs. Completing has none: what was
// begun may always be ended.

function scheduleGate(s: State, item: i32, w: Work): bool {
  switch (item) {
    case Item.leads: return !s.preaccepted;
    case Item.completion: return !s.accepted;
    case Item.offerCalls: return w.scheduled < s.selected;
    case Item.validation: return s.returned > 0;
    case Item.fileCalls: return workOf(s, Item.validation).scheduled > 0;
    case Item.newContract: return s.sent > 0;
  }
  return true;
}

function startGate(s: State, item: i32): bool {
  switch (item) {
    case Item.leads: return !s.preaccepted;
    case Item.completion: return s.preaccepted;
    case Item.offerCalls: return s.sent > 0;
  }
  return true;
}

// evolve folds an event in. It refuses nothing: what was decided is a fact.
export function evolve(s: State, e: Happening): void {
  s.last = e.at;
  switch (e.kind) {
    case Kind.submit:
      s.submitted = true;
      s.amount = e.amount;
      break;
    case Kind.partlySubmit: s.partlySubmitted = true; break;
    case Kind.preaccept: s.preaccepted = true; break;
    case Kind.accept: s.accepted = true; break;
    case Kind.finalize: s.finalized = true; break;
    case Kind.approve: s.outcome = Outcome.approved; break;
    case Kind.register: s.registered = true; break;
    case Kind.activate: s.activated = true; break;
    case Kind.decline: s.outcome = Outcome.declined; break;
    case Kind.cancel: s.outcome = Outcome.cancelled; break;
    case Kind.selectOffer: s.selected++; break;
    case Kind.createOffer: s.created++; break;
    case Kind.sendOffer: s.sent++; break;
    case Kind.returnOffer: s.returned++; break;
    case Kind.acceptOffer: s.offerAccepted = true; break;
    case Kind.declineOffer: s.offerDeclined = true; break;
    case Kind.cancelOffer: s.withdrawn++; break;
    case Kind.scheduleWork: s.workOn(e.item).scheduled++; break;
    case Kind.startWork: s.workOn(e.item).started++; break;
    case Kind.completeWork: s.workOn(e.item).completed++; break;
  }
}
