//! Request: what the host asks, read as strictly as the contract demands. A field that the
//! contract does not have, one that stands twice and a value of another form are errors.

use crate::moment::Moment;
use crate::scan::{number_of, whole, Scanner, Text, Wrong};
use std::collections::BTreeSet;

const MAX_CATEGORY: usize = 64;
const MAX_KEY: usize = 512;

/// What events and commands have in common.
#[derive(Default)]
pub struct Typed<'a> {
    pub name: Text<'a>,
    pub version: i32,
    pub content_type: Text<'a>,
    pub data: Option<&'a [u8]>,
    pub base64: bool, // the data is in base64, which this guest does not read
}

#[derive(Default)]
pub struct Request<'a> {
    pub version: i32,
    pub op: Text<'a>,
    pub key: String, // in lower case, or empty
    pub stream: Text<'a>,
    pub state_version: i32,
    pub state: Option<&'a [u8]>,
    pub events: Vec<Typed<'a>>,
    pub command: Option<Typed<'a>>,
}

const NAMES: [&str; 17] = [
    "v", "op", "key", "deadline", "traceparent", "tracestate", "now", "id", "stream", "after", "stateVersion", "state",
    "projector", "projectorVersion", "events", "command", "docs",
];

/// Fills in what of a request there is. After an error r has what stood before.
pub fn read<'a>(text: &'a [u8], r: &mut Request<'a>) -> Result<(), Wrong> {
    whole(text, |s| s.fields(&NAMES, |s, name| field(s, r, name)))?;
    if r.version != 1 {
        return Err("wanted version 1 of the contract");
    }
    Ok(())
}

fn field<'a>(s: &mut Scanner<'a>, r: &mut Request<'a>, name: &str) -> Result<(), Wrong> {
    match name {
        "v" => r.version = s.count()?,
        "op" => r.op = s.text()?,
        "key" => r.key = uuid(s)?,
        "deadline" | "now" => time(s)?,
        "id" => drop(uuid(s)?),
        "stream" => r.stream = stream(s)?,
        "after" => mark(s)?,
        "stateVersion" => r.state_version = s.count()?,
        "state" => r.state = Some(s.raw()?),
        "projectorVersion" => drop(s.count()?),
        "events" => s.list(|s| {
            r.events.push(typed(s, &TYPED)?);
            Ok(())
        })?,
        "command" => r.command = Some(typed(s, &TYPED[..6])?),
        "docs" => distinct(s, |s| s.skip())?,
        _ => drop(s.text()?), // traceparent, tracestate, projector
    }
    Ok(())
}

const TYPED: [&str; 12] = ["type", "version", "contentType", "data", "data64", "meta", "stream", "seqno", "position", "id", "time", "quiet"];

fn typed<'a>(s: &mut Scanner<'a>, names: &[&str]) -> Result<Typed<'a>, Wrong> {
    let mut t = Typed::default();
    s.fields(names, |s, name| {
        match name {
            "type" => t.name = s.text()?,
            "version" => t.version = s.count()?,
            "contentType" => t.content_type = s.text()?,
            "data" => t.data = Some(s.raw()?),
            "data64" => {
                s.text()?;
                t.base64 = true;
            }
            "meta" => distinct(s, |s| s.text().map(drop))?,
            "stream" => drop(stream(s)?),
            "id" => drop(uuid(s)?),
            "time" => time(s)?,
            "quiet" => drop(s.truth()?),
            _ => position(s)?,
        }
        Ok(())
    })?;
    if t.base64 && t.data.is_some() {
        return Err("wanted data or data64, found both");
    }
    Ok(t)
}

fn mark(s: &mut Scanner) -> Result<(), Wrong> {
    s.fields(&["seqno", "id"], |s, name| if name == "id" { uuid(s).map(drop) } else { position(s) })
}

/// Passes over an object in which no name stands twice.
fn distinct(s: &mut Scanner, mut value: impl FnMut(&mut Scanner) -> Result<(), Wrong>) -> Result<(), Wrong> {
    let mut seen = BTreeSet::new();
    s.object(|s, name| {
        if !seen.insert(name) {
            return Err("a key stands twice");
        }
        value(s)
    })
}

/// Takes a UUID as text in lower case; the zero UUID means none.
fn uuid(s: &mut Scanner) -> Result<String, Wrong> {
    let t = s.text()?;
    let right = t.len() == 36 && t.bytes().enumerate().all(|(i, c)| if matches!(i, 8 | 13 | 18 | 23) { c == b'-' } else { c.is_ascii_hexdigit() });
    if !right {
        return Err("wanted a UUID");
    }
    let none = t.bytes().all(|c| matches!(c, b'0' | b'-'));
    Ok(if none { String::new() } else { t.to_ascii_lowercase() })
}

fn time(s: &mut Scanner) -> Result<(), Wrong> {
    Moment::parse(&s.text()?).map(drop).ok_or("wanted a time")
}

/// Takes a decimal number of 0 to 2^63-1 that is a text.
fn position(s: &mut Scanner) -> Result<(), Wrong> {
    let t = s.text()?;
    let canonical = t.bytes().all(|c| c.is_ascii_digit()) && (t.len() == 1 || !t.starts_with('0'));
    match number_of::<i64>(t.as_bytes()) {
        Some(_) if canonical => Ok(()),
        _ => Err("wanted a decimal number"),
    }
}

/// Takes a name of the form category-key.
fn stream<'a>(s: &mut Scanner<'a>) -> Result<Text<'a>, Wrong> {
    let t = s.text()?;
    let right = t.split_once('-').map_or(false, |(category, key)| {
        (1..=MAX_CATEGORY).contains(&category.len())
            && (1..=MAX_KEY).contains(&key.len())
            && !t.chars().any(char::is_control)
            && !category.chars().any(|c| c.is_whitespace() || matches!(c, '.' | '*' | '>'))
    });
    if !right {
        return Err("wanted a stream");
    }
    Ok(t)
}
