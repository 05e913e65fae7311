// Bugs of the example's workers, versions, deadlines and customers.

package main

var bankWorkersBugs = area{"bank workers", "examples/loan/bank", []bug{
	{"documents kept before the checkpoint", "examples/loan/bank/memory.go",
		"	if err := h.Save(ctx, s); err != nil {\n		return err\n	}\n	maps.Copy(model, changed)\n",
		"	maps.Copy(model, changed)\n	if err := h.Save(ctx, s); err != nil {\n		return err\n	}\n", "TestMemoryViewFenced"},
	{"versions in one model", "examples/loan/bank/memory.go",
		"	model := h.view.model(h.version)\n",
		"	model := h.view.model(1)\n", "TestChangedReport"},
	{"deadline counted from the first offer's day", "examples/loan/bank/deadlines.go",
		"event.At.Add(loan.OfferDeadline)",
		"event.At.Truncate(24 * time.Hour).Add(loan.OfferDeadline)", "TestDeadlineMeetsAnswer"},
	{"timers not cancelled by an answer", "examples/loan/bank/deadlines.go",
		"	case loan.OfferReturned, loan.OfferAccepted,",
		"	case loan.OfferAccepted,", "TestDeadlineMeetsAnswer"},
	{"expired before the log's end", "examples/loan/bank/deadlines.go",
		"	if to.After(d.now) {\n		d.now = to",
		"	if to.After(d.now) {\n		d.now = to.AddDate(1, 0, 0)", "TestDeadlines|TestDeadlineMeetsAnswer"},
	{"deadlines settled before the timers are set", "examples/loan/bank/deadlines.go",
		"if err := d.watching.Wait(ctx, token); err != nil {",
		"if err := ctx.Err(); token.Position > 0 && err != nil {", "TestDeadline"},
}}

var deadlineBugs = area{"loan deadlines", "examples/loan", []bug{
	{"expired in spite of an answer", "examples/loan/deadline.go",
		"s.Offers.Live() > 0 && s.Offers.Returned == 0 &&",
		"s.Offers.Live() > 0 &&", "TestExpire"},
	{"expired before the last event", "examples/loan/deadline.go",
		"	if due.Before(s.Last) {",
		"	if false {", "TestExpire"},
}}

var bankpgBugs = area{"bankpg", "examples/loan/bankpg", []bug{
	{"any customer may apply again", "examples/loan/bankpg/customers.go",
		"	case open != application:\n",
		"	case open != application && false:\n", "TestOneOpenApplication"},
	{"customers never free", "examples/loan/bankpg/customers.go",
		"\"loan.declined\": true, \"loan.cancelled\": true}",
		"\"loan.cancelled\": true}", "TestOneOpenApplication|TestCustomersOfAReplay"},
	{"all versions in one table", "examples/loan/bankpg/build.go",
		"fmt.Sprintf(\"applications_%d\", version)",
		"\"applications_\" + fmt.Sprint(min(version, 1))", "TestChangedReport|TestChangedByMistake"},
	{"readers keep to the version they began with", "examples/loan/bankpg/bankpg.go",
		"		version, failed := v.reader.Live(ctx)\n",
		"		version, failed := v.build, ctx.Err()\n", "TestChangedReport"},
	{"versions of another store stay", "examples/loan/bankpg/build.go",
		"	old := func(r projector.Version) bool { return r.Key.Version < v.build }\n	if !",
		"	old := func(r projector.Version) bool { return r.Key.Version < v.build }\n	if true || !", "TestRebuild"},
}}
