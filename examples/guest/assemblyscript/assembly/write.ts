// Writer: JSON, appended to a buffer that grows.

import { Text, sizeBy } from "./text";

export class Writer {
  at: usize = heap.alloc(1024);
  n: i32 = 0;
  private room: i32 = 1024;

  // space makes room for n bytes more and returns where they go.
  private space(n: i32): usize {
    if (this.n + n > this.room) {
      const room = max(this.room * 2, this.n + n);
      const at = heap.alloc(room);
      memory.copy(at, this.at, this.n);
      this.at = at;
      this.room = room;
    }
    const to = this.at + this.n;
    this.n += n;
    return to;
  }

  byte(c: u8): void {
    store<u8>(this.space(1), c);
  }

  // ascii appends a constant as it is.
  ascii(s: string): void {
    const to = this.space(s.length);
    for (let i = 0; i < s.length; i++) store<u8>(to + i, <u8>s.charCodeAt(i));
  }

  raw(t: Text): void {
    memory.copy(this.space(t.n), t.at, t.n);
  }

  // name begins a member of an object.
  name(s: string): void {
    const last = load<u8>(this.at + this.n - 1);
    if (last != 0x7b && last != 0x5b) this.byte(0x2c);
    this.byte(0x22);
    this.ascii(s);
    this.ascii('":');
  }

  // constant is a member whose value is a constant of ASCII.
  constant(name: string, s: string): void {
    this.name(name);
    this.byte(0x22);
    for (let i = 0; i < s.length; i++) {
      const c = <u8>s.charCodeAt(i);
      if (c < 0x20 || c == 0x22 || c == 0x5c) this.escaped(c);
      else this.byte(c);
    }
    this.byte(0x22);
  }

  // flag is a member that is left out when false, count one that is left out when 0.
  flag(name: string, v: bool): void {
    if (!v) return;
    this.name(name);
    this.ascii("true");
  }

  count(name: string, v: i64): void {
    if (v == 0) return;
    this.name(name);
    this.integer(v);
  }

  integer(v: i64): void {
    let rest = v < 0 ? ~<u64>v + 1 : <u64>v;
    let digits = 1;
    for (let r = rest; r >= 10; r /= 10) digits++;
    if (v < 0) this.byte(0x2d);
    const to = this.space(digits);
    for (let i = digits - 1; i >= 0; i--) {
      store<u8>(to + i, <u8>(0x30 + (rest % 10)));
      rest /= 10;
    }
  }

  // padded is a number of as many digits as are wanted.
  padded(v: i32, digits: i32): void {
    const to = this.space(digits);
    for (let i = digits - 1; i >= 0; i--) {
      store<u8>(to + i, <u8>(0x30 + (v % 10)));
      v /= 10;
    }
  }

  // text is a member that is left out when empty.
  text(name: string, t: Text): void {
    if (t.n == 0) return;
    this.name(name);
    this.string(t);
  }

  // string is a JSON string, with the escapes that Go's encoding/json writes.
  string(t: Text): void {
    this.byte(0x22);
    for (let i = 0; i < t.n; ) {
      const c = t.byte(i);
      const n = sizeBy(c);
      if (c < 0x20 || c == 0x22 || c == 0x5c) this.escaped(c);
      else if (c == 0xe2 && t.byte(i + 1) == 0x80 && (t.byte(i + 2) & 0xfe) == 0xa8) this.ascii(t.byte(i + 2) == 0xa8 ? "\\u2028" : "\\u2029");
      else memory.copy(this.space(n), t.at + i, n);
      i += n;
    }
    this.byte(0x22);
  }

  private escaped(c: u8): void {
    this.byte(0x5c);
    switch (c) {
      case 0x08: this.byte(0x62); break;
      case 0x0c: this.byte(0x66); break;
      case 0x0a: this.byte(0x6e); break;
      case 0x0d: this.byte(0x72); break;
      case 0x09: this.byte(0x74); break;
      case 0x22: case 0x5c: this.byte(c); break;
      default:
        this.ascii("u00");
        this.byte(0x30 + (c >> 4));
        this.byte((c & 15) < 10 ? 0x30 + (c & 15) : 0x57 + (c & 15));
    }
  }
}
