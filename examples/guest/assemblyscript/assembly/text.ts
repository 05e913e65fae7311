// Text: bytes of UTF-8 somewhere in memory. The guest never makes strings of JavaScript's
// kind from a request: what it does not need it copies, to the byte.

export class Text {
  constructor(public at: usize, public n: i32) {}

  byte(i: i32): u8 {
    return load<u8>(this.at + i);
  }

  // is says if the text is this constant of ASCII.
  is(s: string): bool {
    if (this.n != s.length) return false;
    for (let i = 0; i < s.length; i++) {
      if (this.byte(i) != <u8>s.charCodeAt(i)) return false;
    }
    return true;
  }

  // compare orders texts by their bytes.
  compare(other: Text): i32 {
    const order = memory.compare(this.at, other.at, min(this.n, other.n));
    return order != 0 ? order : this.n - other.n;
  }

  equals(other: Text): bool {
    return this.n == other.n && memory.compare(this.at, other.at, this.n) == 0;
  }
}

export function empty(): Text {
  return new Text(0, 0);
}

// isUTF8 is strict: no overlong forms, no halves of surrogate pairs, nothing over U+10FFFF.
export function isUTF8(t: Text): bool {
  for (let i = 0; i < t.n; ) {
    const n = runeLength(t, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

// runeLength is how many bytes the character at i has, 0 if they are not UTF-8.
function runeLength(t: Text, i: i32): i32 {
  const c = t.byte(i);
  if (c < 0x80) return 1;
  const n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
  if (c < 0xc2 || c > 0xf4 || i + n > t.n) return 0;
  const second = t.byte(i + 1);
  const least: u8 = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
  const most: u8 = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  for (let k = 2; k < n; k++) {
    if ((t.byte(i + k) & 0xc0) != 0x80) return 0;
  }
  return n;
}

// rune is the character at i of a text that is UTF-8.
export function rune(t: Text, i: i32): u32 {
  const c = <u32>t.byte(i);
  if (c < 0x80) return c;
  let r = c >= 0xf0 ? c & 7 : c >= 0xe0 ? c & 15 : c & 31;
  const n = sizeBy(<u8>c);
  for (let k = 1; k < n; k++) r = (r << 6) | (t.byte(i + k) & 63);
  return r;
}

// sizeBy is how many bytes a character has, by the first of them.
export function sizeBy(first: u8): i32 {
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0x80 ? 2 : 1;
}

// putRune writes a character and returns how many bytes it took.
export function putRune(at: usize, r: u32): i32 {
  if (r < 0x80) {
    store<u8>(at, <u8>r);
    return 1;
  }
  if (r < 0x800) {
    store<u8>(at, <u8>(0xc0 | (r >> 6)));
    store<u8>(at + 1, <u8>(0x80 | (r & 63)));
    return 2;
  }
  if (r < 0x10000) {
    store<u8>(at, <u8>(0xe0 | (r >> 12)));
    store<u8>(at + 1, <u8>(0x80 | ((r >> 6) & 63)));
    store<u8>(at + 2, <u8>(0x80 | (r & 63)));
    return 3;
  }
  store<u8>(at, <u8>(0xf0 | (r >> 18)));
  store<u8>(at + 1, <u8>(0x80 | ((r >> 12) & 63)));
  store<u8>(at + 2, <u8>(0x80 | ((r >> 6) & 63)));
  store<u8>(at + 3, <u8>(0x80 | (r & 63)));
  return 4;
}
