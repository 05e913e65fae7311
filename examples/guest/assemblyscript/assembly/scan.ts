// Scanner: one JSON text, read strictly and in one pass. It gives parts of the text, and
// copies only strings with escapes.
//
// There are no exceptions: the first thing that is wrong is kept in `error`, and from then
// on every method says no.

import { Text, empty, isUTF8, putRune } from "./text";

const MAX_DEPTH = 128; // of the contract

export class Scanner {
  error: string = "";
  i: usize;
  end: usize;
  depth: i32 = 0;

  constructor(text: Text) {
    this.i = text.at;
    this.end = text.at + text.n;
  }

  get failed(): bool {
    return this.error.length > 0;
  }

  fail(why: string): bool {
    if (!this.failed) this.error = why;
    return false;
  }

  // next passes over white space and returns the byte behind it, 0 at the end.
  next(): u8 {
    while (this.i < this.end) {
      const c = load<u8>(this.i);
      if (c != 0x20 && c != 0x0a && c != 0x09 && c != 0x0d) return c;
      this.i++;
    }
    return 0;
  }

  // peek is the byte at hand, 0 at the end.
  peek(): u8 {
    return this.i < this.end ? load<u8>(this.i) : 0;
  }

  expect(c: u8): bool {
    if (this.failed) return false;
    if (this.i >= this.end || this.next() != c) return this.fail("JSON: wanted " + String.fromCharCode(c));
    this.i++;
    return true;
  }

  // done says that nothing stands behind the value that was read.
  done(): bool {
    this.next();
    if (this.i < this.end) this.fail("JSON: something stands behind the value");
    return !this.failed;
  }

  // enter begins an object or array.
  enter(open: u8): bool {
    if (!this.expect(open)) return false;
    this.depth++;
    return this.depth <= MAX_DEPTH || this.fail("JSON: nested too deeply");
  }

  // more says if another member follows in the object or array that was entered.
  more(close: u8, first: bool): bool {
    if (this.failed) return false;
    const c = this.next();
    if (c == close) {
      this.i++;
      this.depth--;
      return false;
    }
    if (first) return true;
    if (c != 0x2c) return this.fail("JSON: wanted a comma or the end of an object or array");
    this.i++;
    return true;
  }

  // name takes the name of an object's member and the colon behind it.
  name(): Text {
    const name = this.text();
    this.expect(0x3a);
    return name;
  }

  // raw takes any value as its bytes.
  raw(): Text {
    this.next();
    const from = this.i;
    this.skip();
    return new Text(from, <i32>(this.i - from));
  }

  // skip passes over any value, checking it.
  skip(): bool {
    if (this.failed) return false;
    const c = this.next();
    if (c == 0x7b) {
      if (!this.enter(c)) return false;
      for (let first = true; this.more(0x7d, first); first = false) {
        this.inner();
        this.expect(0x3a);
        this.skip();
      }
      return !this.failed;
    }
    if (c == 0x5b) {
      if (!this.enter(c)) return false;
      for (let first = true; this.more(0x5d, first); first = false) this.skip();
      return !this.failed;
    }
    if (c == 0x22) {
      this.inner();
      return !this.failed;
    }
    if (c == 0x2d || isDigit(c)) return this.number();
    if (c == 0x74) return this.word("true");
    if (c == 0x66) return this.word("false");
    if (c == 0x6e) return this.word("null");
    return this.fail("JSON: wanted a value");
  }

  word(w: string): bool {
    if (this.failed) return false;
    if (this.end - this.i < <usize>w.length || !new Text(this.i, w.length).is(w)) return this.fail("JSON: wanted " + w);
    this.i += w.length;
    return true;
  }

  number(): bool {
    if (this.peek() == 0x2d) this.i++;
    if (this.peek() == 0x30) this.i++;
    else if (this.digits() == 0) return this.fail("JSON: wanted a digit");
    if (this.peek() == 0x2e) {
      this.i++;
      if (this.digits() == 0) return this.fail("JSON: wanted a digit");
    }
    if ((this.peek() | 0x20) == 0x65) {
      this.i++;
      if (this.peek() == 0x2b || this.peek() == 0x2d) this.i++;
      if (this.digits() == 0) return this.fail("JSON: wanted a digit");
    }
    return true;
  }

  // digits passes over digits and says how many there were.
  digits(): i32 {
    const from = this.i;
    while (isDigit(this.peek())) this.i++;
    return <i32>(this.i - from);
  }

  // inner takes a string: what stands between its quotes, escapes and all.
  inner(): Text {
    if (!this.expect(0x22)) return empty();
    const from = this.i;
    let ascii = true;
    for (; this.i < this.end; this.i++) {
      const c = load<u8>(this.i);
      if (c == 0x22) {
        const t = new Text(from, <i32>(this.i - from));
        this.i++;
        if (ascii || isUTF8(t)) return t;
        this.fail("JSON: wanted UTF-8");
        return empty();
      }
      if (c < 0x20) {
        this.fail("JSON: a control character in a string");
        return empty();
      }
      if (c >= 0x80) ascii = false;
      if (c == 0x5c && !this.escape()) return empty();
    }
    this.fail("JSON: wanted the end of a string");
    return empty();
  }

  // escape passes over an escape but for its last byte.
  private escape(): bool {
    this.i++;
    const c = this.peek();
    if (c == 0x75) {
      if (this.end - this.i < 5 || hex4(this.i + 1) < 0) return this.fail("JSON: wanted four hex digits");
      this.i += 4;
      return true;
    }
    if (c == 0x22 || c == 0x5c || c == 0x2f || c == 0x62 || c == 0x66 || c == 0x6e || c == 0x72 || c == 0x74) return true;
    return this.fail("JSON: wanted an escape");
  }

  // text takes a string's value.
  text(): Text {
    return unescape(this.inner());
  }

  // count takes a whole number from 0 to the largest i32.
  count(): i32 {
    this.next();
    const from = this.i;
    const n = this.digits();
    const c = this.peek();
    if (n == 0 || n > 10 || (load<u8>(from) == 0x30 && n > 1) || c == 0x2e || (c | 0x20) == 0x65) {
      this.fail("JSON: wanted a whole number below 2147483648");
      return 0;
    }
    let v: i64 = 0;
    for (let i = 0; i < n; i++) v = v * 10 + (load<u8>(from + i) - 0x30);
    if (v > <i64>i32.MAX_VALUE) this.fail("JSON: wanted a whole number below 2147483648");
    return <i32>v;
  }

  // truth takes true or false.
  truth(): bool {
    if (this.next() == 0x74) return this.word("true");
    this.word("false");
    return false;
  }

  // isNull passes over null, if it stands here.
  isNull(): bool {
    return this.next() == 0x6e && this.word("null");
  }

  // integer takes a number that is an i64 to the digit.
  integer(): i64 {
    const t = this.raw();
    if (this.failed) return 0;
    let i = 0;
    const negative = t.byte(0) == 0x2d;
    if (negative) i++;
    if (i == t.n) this.fail("wanted a whole number");
    let v: u64 = 0;
    for (; i < t.n; i++) {
      const c = t.byte(i);
      if (!isDigit(c) || v > 922337203685477580) {
        this.fail("wanted a whole number of 64 bits");
        return 0;
      }
      v = v * 10 + (c - 0x30);
    }
    if (v > <u64>i64.MAX_VALUE + (negative ? 1 : 0)) this.fail("wanted a whole number of 64 bits");
    return negative ? -(<i64>v) : <i64>v;
  }
}

export function isDigit(c: u8): bool {
  return c >= 0x30 && c <= 0x39;
}

// hex4 is the value of four hex digits, -1 if they are not.
function hex4(at: usize): i32 {
  let r = 0;
  for (let i: usize = 0; i < 4; i++) {
    const d = hexDigit(load<u8>(at + i));
    if (d < 0) return -1;
    r = (r << 4) | d;
  }
  return r;
}

export function hexDigit(c: u8): i32 {
  if (isDigit(c)) return c - 0x30;
  const lower = c | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

// unescape undoes escapes that are known to be right. Halves of a surrogate pair that
// stand alone become U+FFFD.
function unescape(t: Text): Text {
  let i = 0;
  while (i < t.n && t.byte(i) != 0x5c) i++;
  if (i == t.n) return t;
  const out = heap.alloc(t.n); // no escape is shorter than what it stands for
  let n: usize = 0;
  for (i = 0; i < t.n; i++) {
    let c = t.byte(i);
    if (c != 0x5c) {
      store<u8>(out + n++, c);
      continue;
    }
    c = t.byte(++i);
    if (c != 0x75) {
      store<u8>(out + n++, meant(c));
      continue;
    }
    let r = <u32>hex4(t.at + i + 1);
    i += 4;
    if (r >= 0xd800 && r < 0xe000) {
      const low = i + 6 < t.n && t.byte(i + 1) == 0x5c && t.byte(i + 2) == 0x75 ? hex4(t.at + i + 3) : 0;
      if (r < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
        r = 0x10000 + ((r - 0xd800) << 10) + (low - 0xdc00);
        i += 6;
      } else {
        r = 0xfffd;
      }
    }
    n += putRune(out + n, r);
  }
  return new Text(out, <i32>n);
}

// meant is the byte that an escape of one letter stands for.
function meant(c: u8): u8 {
  switch (c) {
    case 0x62: return 0x08;
    case 0x66: return 0x0c;
    case 0x6e: return 0x0a;
    case 0x72: return 0x0d;
    case 0x74: return 0x09;
  }
  return c;
}
