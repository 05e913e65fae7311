//! State: what the rules need to know of one application, and its form in JSON, which is
//! that of the handler in Go: the same names, the same order, the same fields left out. So
//! is the reading: names in any case, null changes nothing, what is unknown is passed over.

use crate::moment::Moment;
use crate::scan::{whole, Scanner, Text, Wrong};
use crate::write::Writer;
use std::collections::BTreeMap;

pub const STATE_VERSION: i32 = 1;

#[derive(Clone, Copy, Default, PartialEq)]
pub enum Outcome {
    #[default]
    Open,
    Approved,
    Declined,
    Cancelled,
}

const OUTCOMES: [(&str, Outcome); 4] =
    [("open", Outcome::Open), ("approved", Outcome::Approved), ("declined", Outcome::Declined), ("cancelled", Outcome::Cancelled)];

#[derive(Default)]
pub struct State<'a> {
    pub amount: i64,
    pub last: Moment,
    pub submitted: bool,
    pub partly_submitted: bool,
    pub preaccepted: bool,
    pub accepted: bool,
    pub finalized: bool,
    pub registered: bool,
    pub activated: bool,
    pub outcome: Outcome,
    pub offers: Offers,
    pub work: BTreeMap<Text<'a>, Work>,
}

#[derive(Default)]
pub struct Offers {
    pub selected: i64,
    pub created: i64,
    pub sent: i64,
    pub returned: i64,
    pub cancelled: i64,
    pub accepted: bool,
    pub declined: bool,
}

#[derive(Clone, Copy, Default)]
pub struct Work {
    pub scheduled: i64,
    pub started: i64,
    pub completed: i64,
}

impl<'a> State<'a> {
    pub fn read(text: &'a [u8]) -> Result<State<'a>, Wrong> {
        let mut a = State::default();
        whole(text, |s| loose(s, |s, name| a.field(s, name)))?;
        Ok(a)
    }

    fn field(&mut self, s: &mut Scanner<'a>, name: &str) -> Result<(), Wrong> {
        match name {
            "amount" => self.amount = s.or(self.amount, |s| s.integer())?,
            "last" => self.last = moment(s, self.last)?,
            "submitted" => truth(s, &mut self.submitted)?,
            "partly_submitted" => truth(s, &mut self.partly_submitted)?,
            "preaccepted" => truth(s, &mut self.preaccepted)?,
            "accepted" => truth(s, &mut self.accepted)?,
            "finalized" => truth(s, &mut self.finalized)?,
            "registered" => truth(s, &mut self.registered)?,
            "activated" => truth(s, &mut self.activated)?,
            "outcome" => self.outcome = s.or(self.outcome, outcome)?,
            "offers" => loose(s, |s, name| self.offers.field(s, name))?,
            "work" => self.items(s)?,
            _ => s.skip()?,
        }
        Ok(())
    }

    fn items(&mut self, s: &mut Scanner<'a>) -> Result<(), Wrong> {
        if s.null()? {
            self.work.clear();
            return Ok(());
        }
        s.object(|s, item| {
            let mut w = Work::default();
            loose(s, |s, name| w.field(s, name))?;
            self.work.insert(item, w);
            Ok(())
        })
    }

    pub fn write(&self, w: &mut Writer) {
        w.byte(b'{');
        w.name("amount");
        w.integer(self.amount);
        if !self.last.is_zero() {
            w.name("last");
            self.last.write(w);
        }
        w.flag("submitted", self.submitted);
        w.flag("partly_submitted", self.partly_submitted);
        w.flag("preaccepted", self.preaccepted);
        w.flag("accepted", self.accepted);
        w.flag("finalized", self.finalized);
        w.flag("registered", self.registered);
        w.flag("activated", self.activated);
        for (name, o) in OUTCOMES {
            if o == self.outcome && o != Outcome::Open {
                w.text("outcome", name);
            }
        }
        self.offers.write(w);
        self.write_work(w);
        w.byte(b'}');
    }

    fn write_work(&self, w: &mut Writer) {
        if self.work.is_empty() {
            return;
        }
        w.name("work");
        w.byte(b'{');
        for (item, work) in &self.work {
            w.comma();
            w.string(item);
            w.plain(":{");
            w.count("scheduled", work.scheduled);
            w.count("started", work.started);
            w.count("completed", work.completed);
            w.byte(b'}');
        }
        w.byte(b'}');
    }
}

impl Offers {
    fn field(&mut self, s: &mut Scanner, name: &str) -> Result<(), Wrong> {
        match name {
            "selected" => count(s, &mut self.selected),
            "created" => count(s, &mut self.created),
            "sent" => count(s, &mut self.sent),
            "returned" => count(s, &mut self.returned),
            "cancelled" => count(s, &mut self.cancelled),
            "accepted" => truth(s, &mut self.accepted),
            "declined" => truth(s, &mut self.declined),
            _ => s.skip(),
        }
    }

    fn write(&self, w: &mut Writer) {
        w.name("offers");
        w.byte(b'{');
        w.count("selected", self.selected);
        w.count("created", self.created);
        w.count("sent", self.sent);
        w.count("returned", self.returned);
        w.count("cancelled", self.cancelled);
        w.flag("accepted", self.accepted);
        w.flag("declined", self.declined);
        w.byte(b'}');
    }
}

impl Work {
    fn field(&mut self, s: &mut Scanner, name: &str) -> Result<(), Wrong> {
        match name {
            "scheduled" => count(s, &mut self.scheduled),
            "started" => count(s, &mut self.started),
            "completed" => count(s, &mut self.completed),
            _ => s.skip(),
        }
    }
}

/// Reads an object of the domain, or null: `field` takes the value of each name, which is in
/// lower case, with the two letters beyond ASCII that fold to it.
pub fn loose<'a>(s: &mut Scanner<'a>, mut field: impl FnMut(&mut Scanner<'a>, &str) -> Result<(), Wrong>) -> Result<(), Wrong> {
    if s.null()? {
        return Ok(());
    }
    s.object(|s, name| {
        let folded: String = name
            .chars()
            .map(|c| match c {
                '\u{17f}' => 's',
                '\u{212a}' => 'k',
                c => c.to_ascii_lowercase(),
            })
            .collect();
        field(s, &folded)
    })
}

fn count(s: &mut Scanner, into: &mut i64) -> Result<(), Wrong> {
    *into = s.or(*into, |s| s.integer())?;
    Ok(())
}

fn truth(s: &mut Scanner, into: &mut bool) -> Result<(), Wrong> {
    *into = s.or(*into, |s| s.truth())?;
    Ok(())
}

/// Reads a time. Escapes are not undone: none is needed in a time.
pub fn moment(s: &mut Scanner, before: Moment) -> Result<Moment, Wrong> {
    s.or(before, |s| Moment::parse(s.inner()?).ok_or("wanted a time"))
}

fn outcome(s: &mut Scanner) -> Result<Outcome, Wrong> {
    let text = s.text()?;
    OUTCOMES.iter().find(|(name, _)| *name == text).map(|(_, o)| *o).ok_or("wanted an outcome")
}
