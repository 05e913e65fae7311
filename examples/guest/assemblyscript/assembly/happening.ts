// Happening: a command and the event that answers it, which have the same fields. Both
// have a row in the tables of names, at the place of their kind.

import { Moment } from "./moment";
import { Scanner } from "./scan";
import { folded, integer, moment, text } from "./state";
import { Text, empty } from "./text";
import { Writer } from "./write";

export const enum Kind {
  submit, partlySubmit, preaccept, accept, finalize, approve, register, activate, decline, cancel,
  selectOffer, createOffer, sendOffer, returnOffer, acceptOffer, declineOffer, cancelOffer,
  scheduleWork, startWork, completeWork,
}

export const commandNames: StaticArray<string> = [
  "loan.submit", "loan.partly_submit", "loan.preaccept", "loan.accept", "loan.finalize",
  "loan.approve", "loan.register", "loan.activate", "loan.decline", "loan.cancel",
  "loan.select_offer", "loan.create_offer", "loan.send_offer", "loan.return_offer",
  "loan.accept_offer", "loan.decline_offer", "loan.cancel_offer",
  "loan.schedule_work", "loan.start_work", "loan.complete_work",
];

export const eventNames: StaticArray<string> = [
  "loan.submitted", "loan.partly_submitted", "loan.preaccepted", "loan.accepted", "loan.finalized",
  "loan.approved", "loan.registered", "loan.activated", "loan.declined", "loan.cancelled",
  "loan.offer_selected", "loan.offer_created", "loan.offer_sent", "loan.offer_returned",
  "loan.offer_accepted", "loan.offer_declined", "loan.offer_cancelled",
  "loan.work_scheduled", "loan.work_started", "loan.work_completed",
];

export class Happening {
  kind: i32 = 0;
  at: Moment = new Moment();
  resource: Text = empty();
  amount: i64 = 0; // of a submission, in whole euros
  customer: Text = empty(); // of a submission
  item: Text = empty(); // of work

  // write is the event's data.
  write(w: Writer): void {
    w.byte(0x7b);
    w.name("at");
    this.at.write(w);
    w.text("resource", this.resource);
    if (this.kind == Kind.submit) {
      w.name("amount");
      w.integer(this.amount);
      w.text("customer", this.customer);
    }
    if (this.kind >= Kind.scheduleWork) {
      w.name("item");
      w.string(this.item);
    }
    w.byte(0x7d);
  }
}

// kindOf is the place of a wire name, -1 if there is none.
export function kindOf(name: Text, names: StaticArray<string>): i32 {
  for (let i = 0; i < names.length; i++) {
    if (name.is(names[i])) return i;
  }
  return -1;
}

// readHappening fills in what stands in the data, and returns what is wrong with it, or "".
export function readHappening(data: Text, h: Happening): string {
  const s = new Scanner(data);
  const submission = h.kind == Kind.submit;
  const work = h.kind >= Kind.scheduleWork;
  if (s.isNull()) return s.error;
  if (!s.enter(0x7b)) return s.error;
  for (let first = true; s.more(0x7d, first); first = false) {
    const name = folded(s.name());
    if (name.is("at")) h.at = moment(s, h.at);
    else if (name.is("resource")) h.resource = text(s, h.resource);
    else if (submission && name.is("amount")) h.amount = integer(s, h.amount);
    else if (submission && name.is("customer")) h.customer = text(s, h.customer);
    else if (work && name.is("item")) h.item = text(s, h.item);
    else s.skip();
  }
  return s.error;
}
