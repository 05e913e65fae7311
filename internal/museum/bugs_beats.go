// Bugs of what is seen of a version now and then: its hold, its lanes, its being there.

package main

var beatBugs = area{"beats", "projector", []bug{
	{"hold of all lanes moved to that of one", "projector/run.go",
		"	s.moveHold(ctx)\n	return more, p.tidy(ctx)",
		"	s.p.moveHold(ctx, s.kept)\n	return more, p.tidy(ctx)", "TestCatchUpHoldsForTheLowestLane"},
	{"hold not moved by CatchUp", "projector/run.go",
		"	p.moveLowest(ctx)\n",
		"", "TestCatchUpMovesTheHold"},
}}
