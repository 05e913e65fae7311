// Bugs of the guests that are not Go. Their tests embed the sources, so what is planted is
// what is built.

package main

const (
	guestAS   = "examples/guest/assemblyscript/assembly/"
	guestRust = "examples/guest/rust/src/"
)

var guestsBugs = area{"guests", "examples/guest", []bug{
	{"zone of a time left out", guestAS + "moment.ts",
		" + second - m.zone;", " + second;", "TestOddRequests/assemblyscript"},
	{"surrogate pair read as two characters", guestAS + "scan.ts",
		"if (r < 0xdc00 && low >= 0xdc00 && low < 0xe000) {", "if (r < 0) {", "TestOddRequests/assemblyscript"},
	{"strings that are not UTF-8 passed on", guestAS + "scan.ts",
		"if (ascii || isUTF8(t)) return t;", "return t;", "TestOddRequests/assemblyscript"},
	{"fields that stand twice", guestAS + "request.ts",
		"if ((seen & (1 << i)) == 0) return i;", "if (i >= 0) return i;", "TestOddRequests/assemblyscript"},
	{"state of another version read", guestAS + "index.ts",
		"if (r.stateVersion != STATE_VERSION)", "if (r.stateVersion == 0)", "TestConforms/assemblyscript"},
	{"what a call needed kept for ever", guestAS + "index.ts",
		"export function es1_alloc(len: i32): i32 {\n  heap.reset();", "export function es1_alloc(len: i32): i32 {", "TestWarmIsFresh/assemblyscript"},
	{"work in the order of its arrival", guestAS + "state.ts",
		"this.work[i].item.compare(item) < 0", "!this.work[i].item.equals(item)", "TestEqualsNative/assemblyscript"},
	{"application cancelled after a declined offer", guestAS + "loan.ts",
		"uncommitted(s) || offerNotDeclined(s) || noOfferInMaking(s)", "uncommitted(s) || noOfferInMaking(s)", "TestEqualsNative/assemblyscript"},
	{"work completed once too often", guestRust + "loan.rs",
		"w.completed < w.scheduled.wrapping_add(w.started)", "w.completed <= w.scheduled.wrapping_add(w.started)", "TestEqualsNative/rust"},
	{"times cut to microseconds", guestRust + "moment.rs",
		"    nanos * 10u32.pow(9 - digits)", "    nanos * 10u32.pow(9 - digits) / 1000 * 1000", "TestOddRequests/rust"},
	{"events in the zone of their command", guestRust + "lib.rs",
		"h.at = h.at.utc();", "", "TestOddRequests/rust"},
	{"length of a request trusted", guestRust + "lib.rs",
		"match buffer.get(..len as u32 as usize) {", "match Some(&buffer[..len as u32 as usize]) {", "TestLength/rust"},
	{"nesting without end", guestRust + "scan.rs",
		"if self.depth > MAX_DEPTH {", "if self.depth > 100 * MAX_DEPTH {", "TestOddRequests/rust"},
}}
