//! Moment: a time with nanoseconds and the zone that it was written in, read and written
//! as Go's time.Time does in JSON.

use crate::scan::number_of;
use crate::write::Writer;

const DAY: i64 = 86_400;

#[derive(Clone, Copy)]
pub struct Moment {
    seconds: i64, // since 1970, in UTC
    nanos: u32,
    zone: i64, // seconds east of UTC
}

/// Go's zero time, 0001-01-01T00:00:00Z.
impl Default for Moment {
    fn default() -> Self {
        Moment { seconds: -62_135_596_800, nanos: 0, zone: 0 }
    }
}

impl Moment {
    pub fn is_zero(&self) -> bool {
        !self.before(&Moment::default()) && !Moment::default().before(self)
    }

    pub fn before(&self, other: &Moment) -> bool {
        (self.seconds, self.nanos) < (other.seconds, other.nanos)
    }

    pub fn utc(self) -> Moment {
        Moment { zone: 0, ..self }
    }

    /// The year in UTC.
    pub fn year(&self) -> i64 {
        civil(self.seconds.div_euclid(DAY)).0
    }

    /// Says if RFC 3339 has a form for it.
    pub fn can_write(&self) -> bool {
        let (year, _, _) = civil((self.seconds + self.zone).div_euclid(DAY));
        (0..=9999).contains(&year) && self.zone.abs() < DAY
    }

    pub fn write(&self, w: &mut Writer) {
        let local = self.seconds + self.zone;
        let (year, month, day) = civil(local.div_euclid(DAY));
        let rest = local.rem_euclid(DAY);
        w.byte(b'"');
        w.padded(year, 4);
        for (before, v) in [(b'-', month), (b'-', day), (b'T', rest / 3600), (b':', rest / 60 % 60), (b':', rest % 60)] {
            w.byte(before);
            w.padded(v, 2);
        }
        if self.nanos != 0 {
            let (mut n, mut digits) = (self.nanos, 9);
            while n % 10 == 0 {
                n /= 10;
                digits -= 1;
            }
            w.byte(b'.');
            w.padded(n.into(), digits);
        }
        if self.zone == 0 {
            w.byte(b'Z');
        } else {
            let minutes = self.zone.abs() / 60;
            w.byte(if self.zone < 0 { b'-' } else { b'+' });
            w.padded(minutes / 60, 2);
            w.byte(b':');
            w.padded(minutes % 60, 2);
        }
        w.byte(b'"');
    }

    /// Reads a text as Go's time.Parse does for RFC 3339, which takes an hour of one digit
    /// and a comma too.
    pub fn parse(text: &str) -> Option<Moment> {
        let s = &mut text.as_bytes();
        let year = number(s, 4)?;
        let month = after(s, b'-', 2)?;
        let day = after(s, b'-', 2)?;
        byte(s, b'T')?;
        let one = s.get(1).map_or(false, |c| !c.is_ascii_digit());
        let hour = number(s, if one { 1 } else { 2 })?;
        let minute = after(s, b':', 2)?;
        let second = after(s, b':', 2)?;
        let nanos = fraction(s);
        let zone = zone(s)?;
        let right = (1..=12).contains(&month) && day >= 1 && day <= days_in(month, year) && hour < 24 && minute < 60 && second < 60;
        if !right || !s.is_empty() {
            return None;
        }
        let seconds = days_from(year, month, day) * DAY + hour * 3600 + minute * 60 + second - zone;
        Some(Moment { seconds, nanos, zone })
    }
}

fn byte(s: &mut &[u8], c: u8) -> Option<()> {
    let (first, rest) = s.split_first()?;
    *s = rest;
    (*first == c).then(|| ())
}

/// Takes a number of as many digits.
fn number(s: &mut &[u8], digits: usize) -> Option<i64> {
    let part = s.get(..digits)?;
    *s = &s[digits..];
    part.iter().all(u8::is_ascii_digit).then(|| ())?;
    number_of(part)
}

/// Takes a byte and the number behind it.
fn after(s: &mut &[u8], c: u8, digits: usize) -> Option<i64> {
    byte(s, c)?;
    number(s, digits)
}

/// Takes what stands behind the second, of which nine digits count.
fn fraction(s: &mut &[u8]) -> u32 {
    if !matches!(s, [b'.' | b',', b'0'..=b'9', ..]) {
        return 0;
    }
    *s = &s[1..];
    let (mut nanos, mut digits) = (0, 0);
    while let [c @ b'0'..=b'9', rest @ ..] = *s {
        if digits < 9 {
            nanos = nanos * 10 + u32::from(c - b'0');
            digits += 1;
        }
        *s = rest;
    }
    nanos * 10u32.pow(9 - digits)
}

fn zone(s: &mut &[u8]) -> Option<i64> {
    let (sign, rest) = s.split_first()?;
    *s = rest;
    let east = match sign {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = number(s, 2)?;
    let minutes = after(s, b':', 2)?;
    (hours <= 24 && minutes <= 60).then(|| (hours * 60 + minutes) * 60 * east)
}

fn days_in(month: i64, year: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The number of days from 1970-01-01. Years are counted from March, so that the leap day
/// is the last of one.
fn days_from(year: i64, month: i64, day: i64) -> i64 {
    let y = if month > 2 { year } else { year - 1 };
    let era = y.div_euclid(400);
    let of_era = y - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of days_from.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z - era * 146_097;
    let y = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * y + y / 4 - y / 100);
    let m = (5 * of_year + 2) / 153;
    let month = if m < 10 { m + 3 } else { m - 9 };
    let year = y + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * m + 2) / 5 + 1)
}
