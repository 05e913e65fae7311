//! Writer: JSON, appended to bytes.

#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn byte(&mut self, c: u8) {
        self.0.push(c);
    }

    /// Appends a text as it is.
    pub fn plain(&mut self, s: &str) {
        self.0.extend_from_slice(s.as_bytes());
    }

    /// Begins a member of an object.
    pub fn name(&mut self, name: &str) {
        self.comma();
        self.byte(b'"');
        self.plain(name);
        self.plain("\":");
    }

    /// Stands before all but the first in an object or array.
    pub fn comma(&mut self) {
        if !matches!(self.0.last(), Some(b'{' | b'[')) {
            self.byte(b',');
        }
    }

    /// A member that is left out when empty.
    pub fn text(&mut self, name: &str, s: &str) {
        if !s.is_empty() {
            self.name(name);
            self.string(s);
        }
    }

    /// A member that is left out when false.
    pub fn flag(&mut self, name: &str, v: bool) {
        if v {
            self.name(name);
            self.plain("true");
        }
    }

    /// A member that is left out when 0.
    pub fn count(&mut self, name: &str, v: i64) {
        if v != 0 {
            self.name(name);
            self.integer(v);
        }
    }

    pub fn integer(&mut self, v: i64) {
        if v < 0 {
            self.byte(b'-');
        }
        let from = self.0.len();
        let mut rest = v.unsigned_abs();
        loop {
            self.byte(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.0[from..].reverse();
    }

    /// A number of as many digits as are wanted.
    pub fn padded(&mut self, v: i64, digits: u32) {
        for i in (0..digits).rev() {
            self.byte(b'0' + (v / 10i64.pow(i) % 10) as u8);
        }
    }

    /// A JSON string, with the escapes that Go's encoding/json writes.
    pub fn string(&mut self, s: &str) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        self.byte(b'"');
        for c in s.chars() {
            match c {
                '"' => self.plain("\\\""),
                '\\' => self.plain("\\\\"),
                '\u{8}' => self.plain("\\b"),
                '\u{c}' => self.plain("\\f"),
                '\n' => self.plain("\\n"),
                '\r' => self.plain("\\r"),
                '\t' => self.plain("\\t"),
                '\u{2028}' => self.plain("\\u2028"),
                '\u{2029}' => self.plain("\\u2029"),
                '\0'..='\u{1f}' => {
                    self.plain("\\u00");
                    self.byte(HEX[c as usize >> 4]);
                    self.byte(HEX[c as usize & 15]);
                }
                _ => self.plain(c.encode_utf8(&mut [0; 4])),
            }
        }
        self.byte(b'"');
    }
}
