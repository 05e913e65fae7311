// Bugs of what is seen of a version now and then: its hold, its lanes, its being there.

package main

var beatBugs = area{"beats", "projector", []bug{
	{"hold of all lanes moved to that of one", "projector/run.go",
		"	s.moveHold(ctx)\n	return more, p.tidy(ctx)",
		"	s.p.moveHold(ctx, s.kept)\n	return more, p.tidy(ctx)", "TestCatchUpHoldsForTheLowestLane"},
	{"hold not moved by CatchUp", "projector/run.go",
		"	p.moveLowest(ctx)\n",
		"", "TestCatchUpMovesTheHold"},
	{"idle lane does not miss a step that was lost", "projector/crew.go",
		"seen.saved.Before(began) && t.p.setBack(seen.kept, v.Lanes[lane]):",
		"seen.saved.Before(began) && false:", "TestIdleLaneMissesItsLastStep"},
	{"idle lane misses its claim alone", "projector/crew.go",
		"		found.Epoch == kept.Epoch && (found.Holder",
		"		found.Epoch == kept.Epoch && false && (found.Holder", "TestIdleLaneMissesItsLastStep"},
	{"idle lane loaded anew for each step of its own", "projector/crew.go",
		"seen.saved.Before(began) && t.p.setBack(seen.kept, v.Lanes[lane]):",
		"seen.saved.Before(began) && !seen.kept.Same(v.Lanes[lane]):", "TestOwnStepsAreNoChange"},
	{"step that came after the look taken for a loss", "projector/crew.go",
		"seen.saved.Before(began) && t.p.setBack(seen.kept, v.Lanes[lane]):",
		"t.p.setBack(seen.kept, v.Lanes[lane]):", "TestOwnStepsAreNoChange"},
	{"idle projector does not look at its checkpoint", "projector/run.go",
		"	if err == nil && !kept.Same(s.kept) {\n		err = errChanged",
		"	if err == nil && kept.Epoch == 0 {\n		err = errChanged", "TestIdleProjector"},
}}
