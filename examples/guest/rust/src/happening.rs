//! Happening: a command and the event that answers it, which have the same fields.

use crate::moment::Moment;
use crate::scan::{whole, Scanner, Text, Wrong};
use crate::state::{loose, moment};
use crate::write::Writer;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Submit,
    PartlySubmit,
    Preaccept,
    Accept,
    Finalize,
    Approve,
    Register,
    Activate,
    Decline,
    Cancel,
    SelectOffer,
    CreateOffer,
    SendOffer,
    ReturnOffer,
    AcceptOffer,
    DeclineOffer,
    CancelOffer,
    ScheduleWork,
    StartWork,
    CompleteWork,
}

/// A line for each kind: the wire names of its command and event.
pub const WIRES: [(Kind, &str, &str); 20] = [
    (Kind::Submit, "loan.submit", "loan.submitted"),
    (Kind::PartlySubmit, "loan.partly_submit", "loan.partly_submitted"),
    (Kind::Preaccept, "loan.preaccept", "loan.preaccepted"),
    (Kind::Accept, "loan.accept", "loan.accepted"),
    (Kind::Finalize, "loan.finalize", "loan.finalized"),
    (Kind::Approve, "loan.approve", "loan.approved"),
    (Kind::Register, "loan.register", "loan.registered"),
    (Kind::Activate, "loan.activate", "loan.activated"),
    (Kind::Decline, "loan.decline", "loan.declined"),
    (Kind::Cancel, "loan.cancel", "loan.cancelled"),
    (Kind::SelectOffer, "loan.select_offer", "loan.offer_selected"),
    (Kind::CreateOffer, "loan.create_offer", "loan.offer_created"),
    (Kind::SendOffer, "loan.send_offer", "loan.offer_sent"),
    (Kind::ReturnOffer, "loan.return_offer", "loan.offer_returned"),
    (Kind::AcceptOffer, "loan.accept_offer", "loan.offer_accepted"),
    (Kind::DeclineOffer, "loan.decline_offer", "loan.offer_declined"),
    (Kind::CancelOffer, "loan.cancel_offer", "loan.offer_cancelled"),
    (Kind::ScheduleWork, "loan.schedule_work", "loan.work_scheduled"),
    (Kind::StartWork, "loan.start_work", "loan.work_started"),
    (Kind::CompleteWork, "loan.complete_work", "loan.work_completed"),
];

pub struct Happening<'a> {
    pub kind: Kind,
    pub at: Moment,
    pub resource: Text<'a>,
    pub amount: i64,        // of a submission, in whole euros
    pub customer: Text<'a>, // of a submission
    pub item: Text<'a>,     // of work
}

impl Kind {
    fn is_work(self) -> bool {
        matches!(self, Kind::ScheduleWork | Kind::StartWork | Kind::CompleteWork)
    }

    pub fn event(self) -> &'static str {
        WIRES[self as usize].2
    }
}

impl<'a> Happening<'a> {
    pub fn read(kind: Kind, data: &'a [u8]) -> Result<Happening<'a>, Wrong> {
        let mut h = Happening { kind, at: Moment::default(), resource: "".into(), amount: 0, customer: "".into(), item: "".into() };
        whole(data, |s| {
            loose(s, |s, name| {
                let submission = kind == Kind::Submit;
                match name {
                    "at" => h.at = moment(s, h.at)?,
                    "resource" => text(s, &mut h.resource)?,
                    "amount" if submission => h.amount = s.or(h.amount, |s| s.integer())?,
                    "customer" if submission => text(s, &mut h.customer)?,
                    "item" if kind.is_work() => text(s, &mut h.item)?,
                    _ => s.skip()?,
                }
                Ok(())
            })
        })?;
        Ok(h)
    }

    /// The event's data.
    pub fn write(&self, w: &mut Writer) {
        w.byte(b'{');
        w.name("at");
        self.at.write(w);
        w.text("resource", &self.resource);
        if self.kind == Kind::Submit {
            w.name("amount");
            w.integer(self.amount);
            w.text("customer", &self.customer);
        }
        if self.kind.is_work() {
            w.name("item");
            w.string(&self.item);
        }
        w.byte(b'}');
    }
}

fn text<'a>(s: &mut Scanner<'a>, into: &mut Text<'a>) -> Result<(), Wrong> {
    if !s.null()? {
        *into = s.text()?;
    }
    Ok(())
}
