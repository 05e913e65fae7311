// What the compiler calls where there is no way on: memory that cannot grow. A trap needs no
// import, which the abort that it would call otherwise does.

export function onAbort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}
