// Bugs of wattle guest.

package main

var guestCommandBugs = area{"guest command", "cmd/wattle", []bug{
	{"trap on what is no request is no finding", "cmd/wattle/guest_check.go",
		"			case !errors.Is(err, wasm.ErrBadReply) && !errors.Is(err, wasm.ErrTooLarge):",
		"			case !errors.Is(err, wasm.ErrBadReply) && !errors.Is(err, wasm.ErrTrap):", "TestGuestTest"},
	{"replies of a warmed guest not compared", "cmd/wattle/guest_check.go",
		"	if err := t.m.CheckDeterminism(ctx, requests); err != nil {",
		"	if err := t.m.CheckDeterminism(ctx, requests[:1]); err != nil {", "TestGuestTest"},
	{"refused module inspected with success", "cmd/wattle/guest.go",
		"			return refused\n",
		"			return nil\n", "TestGuestInspect"},
	{"what a guest wrote to stderr rules the terminal", "cmd/wattle/guest.go",
		"printable(strings.TrimRight(strings.ReplaceAll(line",
		"(strings.TrimRight(strings.ReplaceAll(line", "TestGuestsLastWords"},
	{"precompiled for another setting than asked for", "cmd/wattle/guest.go",
		"wasm.Precompile(c.Context(), module, g.o.CacheDir, &g.o)",
		"wasm.Precompile(c.Context(), module, g.o.CacheDir, &wasm.Options{})", "TestGuestPrecompile"},
}}
