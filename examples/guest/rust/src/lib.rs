//! The loan process as a WebAssembly guest, ABI "es1".

mod happening;
mod loan;
mod moment;
mod request;
mod scan;
mod state;
mod write;

use happening::{Happening, Kind, WIRES};
use request::{Request, Typed};
use state::{State, STATE_VERSION};
use std::cell::UnsafeCell;
use write::Writer;

const CATEGORY: &str = "application";

/// Bytes that the host looks at between two calls.
struct Buffer(UnsafeCell<Vec<u8>>);

// A module has one thread, and the host makes one call at a time.
unsafe impl Sync for Buffer {}

static REQUEST: Buffer = Buffer(UnsafeCell::new(Vec::new()));
static REPLY: Buffer = Buffer(UnsafeCell::new(Vec::new()));

impl Buffer {
    fn set(&self, bytes: Vec<u8>) -> &mut Vec<u8> {
        let b = unsafe { &mut *self.0.get() };
        *b = bytes;
        b
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(unsafe { &mut *self.0.get() })
    }
}

#[no_mangle]
pub extern "C" fn es1_alloc(len: i32) -> i32 {
    REQUEST.set(vec![0; len as u32 as usize]).as_mut_ptr() as i32
}

#[no_mangle]
pub extern "C" fn es1_describe() -> i64 {
    result(describe())
}

#[no_mangle]
pub extern "C" fn es1_decide(len: i32) -> i64 {
    answer(len, true)
}

#[no_mangle]
pub extern "C" fn es1_evolve(len: i32) -> i64 {
    answer(len, false)
}

fn result(w: Writer) -> i64 {
    let reply = REPLY.set(w.0);
    (reply.as_ptr() as i64) << 32 | reply.len() as i64
}

fn describe() -> Writer {
    let mut w = Writer::default();
    w.plain("{\"v\":1,\"description\":{\"name\":\"loan\",\"release\":\"1\"");
    w.text("category", CATEGORY);
    w.plain(",\"capabilities\":[\"decide\",\"evolve\"]");
    let lists = [("events", WIRES.map(|(_, _, event)| event)), ("commands", WIRES.map(|(_, command, _)| command))];
    for (name, names) in lists {
        w.name(name);
        w.byte(b'[');
        for name in names {
            w.comma();
            w.byte(b'{');
            w.text("name", name);
            w.count("version", 1);
            w.byte(b'}');
        }
        w.byte(b']');
    }
    w.count("stateVersion", STATE_VERSION.into());
    w.plain("}}");
    w
}

/// What a request ends in that has no events and no state.
struct Coded {
    field: &'static str,
    code: &'static str,
    message: String,
}

fn failed(code: &'static str, message: &str) -> Coded {
    Coded { field: "error", code, message: message.into() }
}

fn invalid(message: &str) -> Coded {
    failed("invalid", message)
}

/// The reply to the request that lies in memory.
fn answer(len: i32, deciding: bool) -> i64 {
    let buffer = REQUEST.take(); // one call for each
    let mut r = Request::default();
    let end = match buffer.get(..len as u32 as usize) {
        Some(text) => request::read(text, &mut r).map_err(invalid),
        None => Err(invalid("wanted the length of what was allocated")),
    };
    let key = r.key.clone();
    let mut w = Writer::default();
    w.plain("{\"v\":1");
    w.text("key", &key);
    if let Err(c) = end.and_then(|_| answered(r, deciding, &mut w)) {
        w.name(c.field);
        w.byte(b'{');
        w.text("code", c.code);
        w.text("message", &c.message);
        w.byte(b'}');
    }
    w.byte(b'}');
    result(w)
}

/// Writes state and events.
fn answered(mut r: Request, deciding: bool, w: &mut Writer) -> Result<(), Coded> {
    if r.op != if deciding { "decide" } else { "evolve" } {
        return Err(invalid("wanted a request of this operation"));
    }
    let command = r.command.take().filter(|_| deciding);
    if deciding && command.is_none() {
        return Err(invalid("wanted a command, found none"));
    }
    let mut state = fold(&r)?;
    let mut events = Writer::default();
    if let Some(c) = command {
        decide(&mut state, c, &mut events)?;
    }
    if !state.last.can_write() {
        return Err(invalid("a time that JSON cannot hold"));
    }
    w.name("state");
    state.write(w);
    w.0.extend(events.0);
    Ok(())
}

/// Writes the event that answers a command, and folds it in.
fn decide<'a>(state: &mut State<'a>, mut c: Typed<'a>, events: &mut Writer) -> Result<(), Coded> {
    if c.version == 0 {
        c.version = 1; // whoever names none means the newest
    }
    let mut h = happening(&c, |wire| wire.1)?;
    loan::decide(state, &h).map_err(|refusal| Coded {
        field: "rejected",
        code: refusal.rule,
        message: ["loan: refused by rule ", refusal.rule, ": wanted ", refusal.wanted].concat(),
    })?;
    h.at = h.at.utc(); // whatever the zone of the command was
    events.plain(",\"events\":[{");
    events.text("type", h.kind.event());
    events.count("version", 1);
    events.name("data");
    h.write(events);
    events.plain("}]");
    loan::evolve(state, h);
    Ok(())
}

/// The state that a request describes.
fn fold<'a>(r: &Request<'a>) -> Result<State<'a>, Coded> {
    if r.stream.split('-').next() != Some(CATEGORY) {
        return Err(invalid("wanted a stream of category application"));
    }
    let mut state = State::default();
    if let Some(before) = r.state {
        if r.state_version != STATE_VERSION {
            return Err(failed("state", "wanted a state of version 1: fold the events anew"));
        }
        state = State::read(before).map_err(invalid)?;
    }
    for e in &r.events {
        loan::evolve(&mut state, happening(e, |wire| wire.2)?);
    }
    Ok(state)
}

/// Reads an event or command.
fn happening<'a>(t: &Typed<'a>, name: impl Fn(&(Kind, &'static str, &'static str)) -> &'static str) -> Result<Happening<'a>, Coded> {
    let wire = WIRES.iter().find(|wire| name(wire) == t.name && t.version == 1).ok_or_else(|| invalid("unknown type or version"))?;
    if !t.content_type.is_empty() && t.content_type != "application/json" {
        return Err(invalid("wanted data of type application/json"));
    }
    let data = t.data.ok_or_else(|| invalid("wanted data, which is not in base64"))?;
    Happening::read(wire.0, data).map_err(invalid)
}
