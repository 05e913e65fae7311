//! Scanner: one JSON text, read strictly and in one pass. It gives parts of the text, and
//! copies only strings with escapes.

use std::borrow::Cow;

/// What is wrong with a text, for people.
pub type Wrong = &'static str;
pub type Text<'a> = Cow<'a, str>;

const MAX_DEPTH: u32 = 128; // of the contract

pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

/// Reads one value that is the whole text.
pub fn whole<'a, T>(text: &'a [u8], value: impl FnOnce(&mut Scanner<'a>) -> Result<T, Wrong>) -> Result<T, Wrong> {
    let mut s = Scanner { text, at: 0, depth: 0 };
    let v = value(&mut s)?;
    s.next();
    if s.at < s.text.len() {
        return Err("JSON: something stands behind the value");
    }
    Ok(v)
}

impl<'a> Scanner<'a> {
    /// Passes over white space and returns the byte behind it, 0 at the end.
    fn next(&mut self) -> u8 {
        while matches!(self.peek(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.peek()
    }

    /// The byte at hand, 0 at the end.
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn expect(&mut self, c: u8, wrong: Wrong) -> Result<(), Wrong> {
        if self.next() != c {
            return Err(wrong);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads what stands between two brackets: values that `member` takes, with commas.
    fn members(&mut self, open: u8, close: u8, mut member: impl FnMut(&mut Self) -> Result<(), Wrong>) -> Result<(), Wrong> {
        self.expect(open, "JSON: wanted an object or array")?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("JSON: nested too deeply");
        }
        let mut more = self.next() != close;
        while more {
            member(self)?;
            more = self.next() == b',';
            if more {
                self.at += 1;
            }
        }
        self.expect(close, "JSON: wanted a comma or the end of an object or array")?;
        self.depth -= 1;
        Ok(())
    }

    /// Reads an object: `field` takes the value of each name.
    pub fn object(&mut self, mut field: impl FnMut(&mut Self, Text<'a>) -> Result<(), Wrong>) -> Result<(), Wrong> {
        self.members(b'{', b'}', |s| {
            let name = s.text()?;
            s.expect(b':', "JSON: wanted a colon")?;
            field(s, name)
        })
    }

    /// Reads an object of the contract, whose fields stand once.
    pub fn fields(&mut self, names: &[&str], mut field: impl FnMut(&mut Self, &str) -> Result<(), Wrong>) -> Result<(), Wrong> {
        let mut seen = 0u32;
        self.object(|s, name| {
            let i = names.iter().position(|n| **n == *name).ok_or("there is no such field")?;
            if seen & (1 << i) != 0 {
                return Err("a field stands twice");
            }
            seen |= 1 << i;
            field(s, &name)
        })
    }

    /// Reads an array.
    pub fn list(&mut self, element: impl FnMut(&mut Self) -> Result<(), Wrong>) -> Result<(), Wrong> {
        self.members(b'[', b']', element)
    }

    /// Takes any value as its bytes.
    pub fn raw(&mut self) -> Result<&'a [u8], Wrong> {
        self.next();
        let from = self.at;
        self.skip()?;
        Ok(&self.text[from..self.at])
    }

    /// Passes over any value, checking it.
    pub fn skip(&mut self) -> Result<(), Wrong> {
        match self.next() {
            b'{' => self.members(b'{', b'}', |s| {
                s.inner()?;
                s.expect(b':', "JSON: wanted a colon")?;
                s.skip()
            }),
            b'[' => self.members(b'[', b']', |s| s.skip()),
            b'"' => self.inner().map(|_| ()),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => Err("JSON: wanted a value"),
        }
    }

    fn word(&mut self, w: &str) -> Result<(), Wrong> {
        if !self.text[self.at..].starts_with(w.as_bytes()) {
            return Err("JSON: wanted true, false or null");
        }
        self.at += w.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Wrong> {
        const DIGIT: Wrong = "JSON: wanted a digit";
        if self.peek() == b'-' {
            self.at += 1;
        }
        if self.peek() == b'0' {
            self.at += 1;
        } else if self.digits() == 0 {
            return Err(DIGIT);
        }
        if self.peek() == b'.' {
            self.at += 1;
            if self.digits() == 0 {
                return Err(DIGIT);
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(DIGIT);
            }
        }
        Ok(())
    }

    /// Passes over digits and says how many there were.
    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at - from
    }

    /// Takes a string: what stands between its quotes, escapes and all.
    pub fn inner(&mut self) -> Result<&'a str, Wrong> {
        self.expect(b'"', "JSON: wanted a string")?;
        let from = self.at;
        while self.at < self.text.len() {
            match self.text[self.at] {
                b'"' => {
                    let inner = &self.text[from..self.at];
                    self.at += 1;
                    return std::str::from_utf8(inner).map_err(|_| "JSON: wanted UTF-8");
                }
                b'\\' => self.escape()?,
                0..=0x1f => return Err("JSON: a control character in a string"),
                _ => self.at += 1,
            }
        }
        Err("JSON: wanted the end of a string")
    }

    fn escape(&mut self) -> Result<(), Wrong> {
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' if hex4(&self.text[self.at + 1..]).is_some() => self.at += 5,
            _ => return Err("JSON: wanted an escape"),
        }
        Ok(())
    }

    /// Takes a string's value.
    pub fn text(&mut self) -> Result<Text<'a>, Wrong> {
        let inner = self.inner()?;
        Ok(if inner.contains('\\') { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) })
    }

    /// Takes a whole number from 0 to the largest i32.
    pub fn count(&mut self) -> Result<i32, Wrong> {
        const WANTED: Wrong = "JSON: wanted a whole number below 2147483648";
        self.next();
        let from = self.at;
        let n = self.digits();
        if n == 0 || n > 1 && self.text[from] == b'0' || matches!(self.peek(), b'.' | b'e' | b'E') {
            return Err(WANTED);
        }
        number_of(&self.text[from..self.at]).ok_or(WANTED)
    }

    /// Takes a number that is an i64 to the digit.
    pub fn integer(&mut self) -> Result<i64, Wrong> {
        match self.next() {
            b'-' | b'0'..=b'9' => number_of(self.raw()?).ok_or("wanted a whole number of 64 bits"),
            _ => Err("wanted a whole number"),
        }
    }

    /// Takes true or false.
    pub fn truth(&mut self) -> Result<bool, Wrong> {
        let v = self.next() == b't';
        self.word(if v { "true" } else { "false" })?;
        Ok(v)
    }

    /// Takes a value, or `before` where null stands.
    pub fn or<T>(&mut self, before: T, value: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        if self.null()? {
            return Ok(before);
        }
        value(self)
    }

    /// Passes over null, if it stands here.
    pub fn null(&mut self) -> Result<bool, Wrong> {
        if self.next() != b'n' {
            return Ok(false);
        }
        self.word("null")?;
        Ok(true)
    }
}

/// The number that digits stand for, in decimal.
pub fn number_of<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn hex4(b: &[u8]) -> Option<u32> {
    let b = b.get(..4)?;
    b.iter().try_fold(0, |r, c| Some(r << 4 | (*c as char).to_digit(16)?))
}

/// Undoes escapes that are known to be right. Halves of a surrogate pair that stand alone
/// become U+FFFD.
fn unescape(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut rest = s;
    while let Some(i) = rest.find('\\') {
        out.push_str(&rest[..i]);
        let (c, after) = escaped(&rest[i + 1..]);
        out.push(c);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The character that an escape stands for, by what is behind its backslash, and the rest.
fn escaped(s: &str) -> (char, &str) {
    let c = match s.as_bytes()[0] {
        b'u' => {
            let r = hex4(&s.as_bytes()[1..]).unwrap_or(0);
            return pair(r, &s[5..]);
        }
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        c => c as char,
    };
    (c, &s[1..])
}

fn pair(r: u32, rest: &str) -> (char, &str) {
    if let (0xd800..=0xdbff, true) = (r, rest.starts_with("\\u")) {
        if let Some(low @ 0xdc00..=0xdfff) = hex4(&rest.as_bytes()[2..]) {
            let c = 0x10000 + ((r - 0xd800) << 10) + (low - 0xdc00);
            return (char::from_u32(c).unwrap_or('\u{fffd}'), &rest[6..]);
        }
    }
    (char::from_u32(r).unwrap_or('\u{fffd}'), rest)
}
