// Bugs of the command line: exit codes, what is printed and what never is.

package main

var cliBugs = area{"cli", "cmd/wattle", []bug{
	{"damaged file told as usage", "cmd/wattle/exit.go",
		"	{exitBadInput, []error{loan.ErrXES}},\n",
		"", "TestCodes"},
	{"outage told as a failure", "cmd/wattle/exit.go",
		"eventstore.ErrReadOnly, eventstore.ErrUnknown, context.DeadlineExceeded}},",
		"eventstore.ErrReadOnly, context.DeadlineExceeded}},", "TestCodes"},
	{"control characters of the data printed", "cmd/wattle/output.go",
		"func unprintable(r rune) bool { return !unicode.IsPrint(r) }",
		"func unprintable(r rune) bool { return r < ' ' && !unicode.IsPrint(r) }", "TestDataText"},
	{"password in the store's name", "cmd/wattle/internal/open/target.go",
		"		u.User = url.User(u.User.Username())\n",
		"", "TestPasswordIsNeverPrinted"},
	{"entry at --from left out", "cmd/wattle/read.go",
		"		after = from - 1\n",
		"		after = from\n", "TestLoaded"},
	{"tail over what was trimmed, though --from was given", "cmd/wattle/tail.go",
		`AcceptTrimmed: t.from == "" || t.from == fromEnd}`,
		`AcceptTrimmed: true}`, "TestTrimmed"},
<<<<<<< HEAD
	{"interrupted bench told as done", "cmd/wattle/bench.go",
		"			err = ctx.Err()\n",
		"			err = nil\n", "TestBenchInterrupted"},
	{"figures lost with a fence", "cmd/wattle/bench.go",
		"		if f == nil {\n",
		"		if f == nil || err != nil {\n", "TestBenchTakenOver"},
=======
	{"faults found, exit code 0", "cmd/wattle/findings.go",
		"	if c.atLeast(f.severity) == 0 {", "	if c.atLeast(f.severity) >= 0 {", "TestVerify$|TestDoctor"},
	{"findings behind --limit not counted", "cmd/wattle/verify.go",
		"		if out.add(f.Severity); shown == limit {\n			continue\n		}\n", "		if shown == limit {\n			continue\n		}\n		out.add(f.Severity)\n", "TestVerify$"},
	{"finding printed into the progress", "cmd/wattle/console.go",
		"	_, _ = io.WriteString(c.w, eraseLine)\n	defer", "	defer", "TestVerifyProgress"},
>>>>>>> cf26dab (museum: leave out one check of verify after another, and more of verify and doctor)
}}
