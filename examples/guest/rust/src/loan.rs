//! The loan process: decide and evolve, rule by rule as in package loan.

use crate::happening::{Happening, Kind};
use crate::state::{Offers, Outcome, State, Work};

const MAX_AMOUNT: i64 = 1_000_000_000_000;
const MAX_TEXT: usize = 1024; // bytes of a resource or customer
const MAX_YEAR: i64 = 9998;

/// The rule that a command breaks, and what the rule wants.
pub struct Refusal {
    pub rule: &'static str,
    pub wanted: &'static str,
}

type Allowed = Result<(), Refusal>;

fn require(ok: bool, rule: &'static str, wanted: &'static str) -> Allowed {
    if ok {
        Ok(())
    } else {
        Err(Refusal { rule, wanted })
    }
}

/// Says if a command is allowed: its event follows.
pub fn decide(s: &State, c: &Happening) -> Allowed {
    let year = c.at.year();
    require(!c.at.is_zero() && (1..=MAX_YEAR).contains(&year), "well-formed", "a time within the years 1 to 9998")?;
    require(c.resource.len() <= MAX_TEXT, "well-formed", "a resource within 1024 bytes")?;
    require(!c.at.before(&s.last), "time-never-falls", "a time not before that of the last event")?;
    next(s, c.kind)?;
    match c.kind {
        Kind::Submit => {
            require((0..=MAX_AMOUNT).contains(&c.amount), "amount", "an amount of 0 to 1000000000000 euros")?;
            require(c.customer.len() <= MAX_TEXT, "well-formed", "a customer within 1024 bytes")
        }
        Kind::ScheduleWork | Kind::StartWork | Kind::CompleteWork => of_work(s, c),
        Kind::SelectOffer | Kind::CreateOffer | Kind::SendOffer | Kind::ReturnOffer => of_offer(s, c.kind),
        Kind::AcceptOffer | Kind::DeclineOffer | Kind::CancelOffer => of_offer(s, c.kind),
        _ => of_application(s, c.kind),
    }
}

/// Checks the two places where the process allows one next command only.
fn next(s: &State, kind: Kind) -> Allowed {
    let submit = kind == Kind::Submit;
    require(!submit || !s.submitted, "submitted-once", "an application not yet submitted")?;
    require(submit || s.submitted, "submission-first", "a submission as the first command")?;
    let partly = !s.submitted || s.partly_submitted || kind == Kind::PartlySubmit;
    require(partly, "submission-next", "the partial submission directly after the submission")?;
    require(s.offers.created <= s.offers.sent || kind == Kind::SendOffer, "offer-sent-next", "a created offer sent directly")
}

fn of_application(s: &State, kind: Kind) -> Allowed {
    match kind {
        Kind::PartlySubmit => once(s.partly_submitted),
        Kind::Preaccept => once(s.preaccepted).and_then(|_| assessable(s)),
        Kind::Accept => {
            once(s.accepted)?;
            after(s.preaccepted, "preacceptance before acceptance")?;
            assessable(s)
        }
        Kind::Finalize => {
            once(s.finalized)?;
            after(s.accepted, "acceptance before finalization")?;
            assessable(s)
        }
        Kind::Approve => undecided(s).and_then(|_| grantable(s)),
        Kind::Register => {
            once(s.registered)?;
            not_refused(s)?;
            grantable(s)
        }
        Kind::Activate => {
            once(s.activated)?;
            not_refused(s)?;
            grantable(s)
        }
        _ => {
            undecided(s)?;
            require(!s.offers.accepted && !s.registered && !s.activated, "binding", "an application the bank is not bound to")?;
            if kind == Kind::Cancel {
                offer_not_declined(s)?;
            }
            no_offer_in_making(s)
        }
    }
}

fn of_offer(s: &State, kind: Kind) -> Allowed {
    let o = &s.offers;
    if kind == Kind::SendOffer {
        return require(o.created > o.sent, "offer-order", "a created offer not yet sent");
    }
    match kind {
        Kind::SelectOffer => after(s.accepted, "acceptance before selecting an offer")?,
        Kind::CreateOffer => after(s.finalized, "finalization before creating an offer")?,
        _ => (),
    }
    require(!o.accepted && !o.declined, "offer-answered", "offers not yet answered")?;
    let follows = match kind {
        Kind::AcceptOffer => matches!(s.outcome, Outcome::Open | Outcome::Approved),
        Kind::DeclineOffer => s.outcome == Outcome::Declined,
        Kind::CancelOffer => s.outcome == Outcome::Cancelled,
        _ => false,
    };
    require(!closed(s) || follows, "offer-closed", "an application open for a change of offers")?;
    match kind {
        Kind::SelectOffer => no_offer_in_making(s),
        Kind::CreateOffer => require(o.selected > o.created, "offer-order", "a selected offer not yet created"),
        Kind::ReturnOffer => live_offer(o).and_then(|_| no_offer_in_making(s)),
        Kind::AcceptOffer => no_offer_in_making(s).and_then(|_| grant_offer(o)),
        Kind::DeclineOffer => require(live(o) == 1, "offer-live", "exactly one offer sent and not cancelled"),
        _ => live_offer(o),
    }
}

fn of_work(s: &State, c: &Happening) -> Allowed {
    require(ITEMS.contains(&&*c.item), "well-formed", "a known work item")?;
    let w = work(s, &c.item);
    match c.kind {
        Kind::ScheduleWork => {
            let refused = matches!(s.outcome, Outcome::Declined | Outcome::Cancelled);
            require(!closed(s) || c.item == NEW_CONTRACT && !refused, "work-closed", "an open application")?;
            require(schedule_gate(s, &c.item), "work-gate", "an application where the work may be scheduled")
        }
        Kind::StartWork => {
            scheduled(w)?;
            require(s.outcome != Outcome::Declined, "work-closed", "an application not declined")?;
            require(start_gate(s, &c.item), "work-gate", "an application where the work may be started")
        }
        _ => {
            scheduled(w)?;
            require(w.completed < w.scheduled.wrapping_add(w.started), "work-units", "work completed less often than scheduled and started")
        }
    }
}

fn once(done: bool) -> Allowed {
    require(!done, "step-once", "an application without this step")
}

fn after(done: bool, wanted: &'static str) -> Allowed {
    require(done, "step-order", wanted)
}

/// Says that the application was decided, or that granting it has begun.
fn closed(s: &State) -> bool {
    s.outcome != Outcome::Open || s.registered || s.activated
}

fn assessable(s: &State) -> Allowed {
    require(!closed(s), "assessment-closed", "an open application")
}

fn undecided(s: &State) -> Allowed {
    require(s.outcome == Outcome::Open, "one-outcome", "an application without an outcome")
}

/// Lets registration and activation follow an approval, or precede it.
fn not_refused(s: &State) -> Allowed {
    require(matches!(s.outcome, Outcome::Open | Outcome::Approved), "assessment-closed", "an open or approved application")
}

fn offer_not_declined(s: &State) -> Allowed {
    require(!s.offers.declined, "binding", "no declined offer")
}

/// What approval, registration and activation have in common; the bank does them in any
/// order.
fn grantable(s: &State) -> Allowed {
    after(s.finalized, "finalization before the loan is granted")?;
    offer_not_declined(s)?;
    no_offer_in_making(s)?;
    grant_offer(&s.offers)
}

/// How many offers were sent and not cancelled.
fn live(o: &Offers) -> i64 {
    o.sent.wrapping_sub(o.cancelled)
}

fn live_offer(o: &Offers) -> Allowed {
    require(live(o) > 0, "offer-live", "an offer sent and not cancelled")
}

fn no_offer_in_making(s: &State) -> Allowed {
    require(s.offers.selected <= s.offers.sent, "offer-in-making", "no offer in the making")
}

/// Wants the one offer that a loan is granted on.
fn grant_offer(o: &Offers) -> Allowed {
    require(live(o) == 1 && o.returned > 0, "grant-offer", "exactly one live offer, and one that came back")
}

const LEADS: &str = "W_Afhandelen leads"; // follow up incomplete first submissions
const COMPLETION: &str = "W_Completeren aanvraag"; // complete the preaccepted application
const OFFER_CALLS: &str = "W_Nabellen offertes"; // call after sent offers
const VALIDATION: &str = "W_Valideren aanvraag"; // assess the returned application
const FILE_CALLS: &str = "W_Nabellen incomplete dossiers"; // call after missing documents
const FRAUD: &str = "W_Beoordelen fraude"; // look into suspected fraud
const NEW_CONTRACT: &str = "W_Wijzigen contractgegevens"; // change the contract's data

const ITEMS: [&str; 7] = [LEADS, COMPLETION, OFFER_CALLS, VALIDATION, FILE_CALLS, FRAUD, NEW_CONTRACT];

/// What was done of an item.
fn work(s: &State, item: &str) -> Work {
    s.work.get(item).copied().unwrap_or_default()
}

fn scheduled(w: Work) -> Allowed {
    require(w.scheduled > 0, "work-scheduled", "work that was scheduled before")
}

// The gates say where in the process each work item belongs. Completing has none: what was
// begun may always be ended.

fn schedule_gate(s: &State, item: &str) -> bool {
    match item {
        LEADS => !s.preaccepted,
        COMPLETION => !s.accepted,
        OFFER_CALLS => work(s, item).scheduled < s.offers.selected,
        VALIDATION => s.offers.returned > 0,
        FILE_CALLS => work(s, VALIDATION).scheduled > 0,
        NEW_CONTRACT => s.offers.sent > 0,
        _ => true,
    }
}

fn start_gate(s: &State, item: &str) -> bool {
    match item {
        LEADS => !s.preaccepted,
        COMPLETION => s.preaccepted,
        OFFER_CALLS => s.offers.sent > 0,
        _ => true,
    }
}

/// Folds an event in. It refuses nothing: what was decided is a fact.
pub fn evolve<'a>(s: &mut State<'a>, e: Happening<'a>) {
    s.last = e.at;
    match e.kind {
        Kind::Submit => {
            s.submitted = true;
            s.amount = e.amount;
        }
        Kind::PartlySubmit => s.partly_submitted = true,
        Kind::Preaccept => s.preaccepted = true,
        Kind::Accept => s.accepted = true,
        Kind::Finalize => s.finalized = true,
        Kind::Approve => s.outcome = Outcome::Approved,
        Kind::Register => s.registered = true,
        Kind::Activate => s.activated = true,
        Kind::Decline => s.outcome = Outcome::Declined,
        Kind::Cancel => s.outcome = Outcome::Cancelled,
        Kind::SelectOffer => more(&mut s.offers.selected),
        Kind::CreateOffer => more(&mut s.offers.created),
        Kind::SendOffer => more(&mut s.offers.sent),
        Kind::ReturnOffer => more(&mut s.offers.returned),
        Kind::AcceptOffer => s.offers.accepted = true,
        Kind::DeclineOffer => s.offers.declined = true,
        Kind::CancelOffer => more(&mut s.offers.cancelled),
        Kind::ScheduleWork => more(&mut s.work.entry(e.item).or_default().scheduled),
        Kind::StartWork => more(&mut s.work.entry(e.item).or_default().started),
        Kind::CompleteWork => more(&mut s.work.entry(e.item).or_default().completed),
    }
}

fn more(n: &mut i64) {
    *n = n.wrapping_add(1);
}
