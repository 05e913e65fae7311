// Bugs of the example's import and its read models.

package main

var bankBugs = area{"bank", "examples/loan/bank", []bug{
	{"commands named anew by every import", "examples/loan/bank/import.go",
		`return eventstore.NameUUID("loan import " + j.Key + " " + strconv.Itoa(i))`,
		`return eventstore.NameUUID("loan import " + j.Key + " " + strconv.Itoa(i) + eventstore.NewUUID().String())`, "TestImport$"},
	{"what is recorded not compared with the log", "examples/loan/bank/import.go",
		"	if decided[0] != recorded {",
		"	if false {", "TestImportOfAnotherLog"},
	{"cases before the damage dropped", "examples/loan/bank/import.go",
		"	close(queue)\n	working.Wait()",
		"	if err != nil {\n		stop(err)\n	}\n	close(queue)\n	working.Wait()", "TestImportOfADamagedLog"},
	{"commands without an ID", "examples/loan/bank/import.go",
		"aggregate.CommandID(j.command(next)))",
		"aggregate.Metadata(nil))", "TestImportOfATrimmedStream"},
}}
