// Moment: a time with nanoseconds and the zone that it was written in, read and written
// as Go's time.Time does in JSON.

import { Scanner, isDigit } from "./scan";
import { Text } from "./text";
import { Writer } from "./write";

const ZERO: i64 = -62135596800; // 0001-01-01T00:00:00Z, Go's zero time

export class Moment {
  seconds: i64 = ZERO; // since 1970, in UTC
  nanos: i32 = 0;
  zone: i32 = 0; // seconds east of UTC

  get isZero(): bool {
    return this.seconds == ZERO && this.nanos == 0;
  }

  before(other: Moment): bool {
    return this.seconds < other.seconds || (this.seconds == other.seconds && this.nanos < other.nanos);
  }

  utc(): Moment {
    const m = new Moment();
    m.seconds = this.seconds;
    m.nanos = this.nanos;
    return m;
  }

  // year is that of UTC.
  get year(): i32 {
    return civil(floorDiv(this.seconds, 86400)).year;
  }

  // canWrite says if RFC 3339 has a form for it.
  get canWrite(): bool {
    const year = civil(floorDiv(this.seconds + this.zone, 86400)).year;
    return year >= 0 && year <= 9999 && abs(this.zone) < 86400;
  }

  write(w: Writer): void {
    const local = this.seconds + this.zone;
    const days = floorDiv(local, 86400);
    const rest = <i32>(local - days * 86400);
    const d = civil(days);
    w.byte(0x22);
    w.padded(d.year, 4);
    part(w, 0x2d, d.month);
    part(w, 0x2d, d.day);
    part(w, 0x54, rest / 3600);
    part(w, 0x3a, (rest / 60) % 60);
    part(w, 0x3a, rest % 60);
    if (this.nanos != 0) {
      let digits = 9;
      let n = this.nanos;
      for (; n % 10 == 0; n /= 10) digits--;
      w.byte(0x2e);
      w.padded(n, digits);
    }
    if (this.zone == 0) {
      w.byte(0x5a);
    } else {
      const minutes = abs(this.zone) / 60;
      part(w, this.zone < 0 ? 0x2d : 0x2b, minutes / 60);
      part(w, 0x3a, minutes % 60);
    }
    w.byte(0x22);
  }
}

function part(w: Writer, before: u8, v: i32): void {
  w.byte(before);
  w.padded(v, 2);
}

// parseMoment reads a text as Go's time.Parse does for RFC 3339, which takes an hour of one
// digit and a comma too. Null: it is none.
export function parseMoment(t: Text): Moment | null {
  const s = new Scanner(t);
  const year = fixed(s, 4);
  const month = after(s, 0x2d, 2);
  const day = after(s, 0x2d, 2);
  if (s.peek() != 0x54) return null;
  s.i++;
  const hour = isDigit(s.peek()) && s.i + 1 < s.end && !isDigit(load<u8>(s.i + 1)) ? fixed(s, 1) : fixed(s, 2);
  const minute = after(s, 0x3a, 2);
  const second = after(s, 0x3a, 2);
  if (s.failed || month < 1 || month > 12 || day < 1 || day > daysIn(month, year) || hour > 23 || minute > 59 || second > 59) return null;
  const m = new Moment();
  m.nanos = fraction(s);
  if (s.peek() == 0x5a) {
    s.i++;
  } else {
    const sign = s.peek();
    s.i++;
    const hours = fixed(s, 2);
    const minutes = after(s, 0x3a, 2);
    if (s.failed || (sign != 0x2b && sign != 0x2d) || hours > 24 || minutes > 60) return null;
    m.zone = (hours * 60 + minutes) * 60 * (sign == 0x2d ? -1 : 1);
  }
  if (s.failed || s.i != s.end) return null;
  m.seconds = daysFrom(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - m.zone;
  return m;
}

// fixed takes a number of as many digits.
function fixed(s: Scanner, digits: i32): i32 {
  let v = 0;
  for (; digits > 0; digits--) {
    if (!isDigit(s.peek())) {
      s.fail("wanted a time");
      return 0;
    }
    v = v * 10 + (s.peek() - 0x30);
    s.i++;
  }
  return v;
}

// after takes a byte and the number behind it.
function after(s: Scanner, c: u8, digits: i32): i32 {
  if (s.peek() != c) s.fail("wanted a time");
  s.i++;
  return fixed(s, digits);
}

// fraction takes what stands behind the second, of which nine digits count.
function fraction(s: Scanner): i32 {
  if ((s.peek() != 0x2e && s.peek() != 0x2c) || s.i + 1 >= s.end || !isDigit(load<u8>(s.i + 1))) return 0;
  s.i++;
  let nanos = 0;
  let digits = 0;
  for (; isDigit(s.peek()); s.i++, digits++) {
    if (digits < 9) nanos = nanos * 10 + (s.peek() - 0x30);
  }
  for (; digits < 9; digits++) nanos *= 10;
  return nanos;
}

function daysIn(month: i32, year: i32): i32 {
  if (month == 2) return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

function floorDiv(a: i64, b: i64): i64 {
  const q = a / b;
  return a % b < 0 ? q - 1 : q;
}

// daysFrom is the number of days from 1970-01-01. Years are counted from March, so that
// the leap day is the last of one.
function daysFrom(year: i32, month: i32, day: i32): i64 {
  const y = <i64>(month > 2 ? year : year - 1);
  const era = floorDiv(y, 400);
  const ofEra = y - era * 400;
  const ofYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + ofEra * 365 + ofEra / 4 - ofEra / 100 + ofYear - 719468;
}

class Civil {
  constructor(public year: i32, public month: i32, public day: i32) {}
}

// civil is the inverse of daysFrom.
function civil(days: i64): Civil {
  const z = days + 719468;
  const era = floorDiv(z, 146097);
  const ofEra = z - era * 146097;
  const y = (ofEra - ofEra / 1460 + ofEra / 36524 - ofEra / 146096) / 365;
  const ofYear = <i32>(ofEra - (365 * y + y / 4 - y / 100));
  const m = (5 * ofYear + 2) / 153;
  const month = m < 10 ? m + 3 : m - 9;
  return new Civil(<i32>(y + era * 400) + (month <= 2 ? 1 : 0), month, ofYear - (153 * m + 2) / 5 + 1);
}
