// Bugs of switching between versions, and of what they leave behind.

package main

var switchBugs = area{"switch", "projector", []bug{
	{"lanes of a shadow brought beyond the live version", "projector/relay.go",
		"ok && s.lane.Role == Shadow && place(limit) < place(top) {", "ok && s.lane.Role > Shadow && place(limit) < place(top) {", "TestSetLanesOfAShadow"},
	{"lanes of a shadow kept from where the live version is", "projector/relay.go",
		"s.lane.Role == Shadow && place(limit) < place(top) {", "s.lane.Role == Shadow && place(limit) <= place(top) {", "TestSetLanesOfAShadow"},
	{"lanes of a shadow kept apart though none has to go on", "projector/relay.go",
		"	for place(s.cur) < place(top) {\n", "	for first := true; first || place(s.cur) < place(top); first = false {\n", "TestSetLanesOfAShadowThatIsAhead"},
	{"version made live that is ahead of the live one", "projector/admin.go",
		"		if lane, ok := next.beyond(done); ok {\n", "		if lane, ok := next.beyond(done); ok && !o.Force {\n", "TestSwitchRefusesWhatIsAhead"},
	{"lanes of other slots compared", "projector/admin.go",
		"done[LaneOf(s, len(done))] {\n			return lane", "done[lane%len(done)] {\n			return lane", "TestSetLanesOfAShadow"},
	{"rollback leaves parked keys", "projector/admin.go",
		"LeaveParked: o.LeaveParked, TakeParked", "LeaveParked: true, TakeParked", "TestSwitchRefusesParkedKeys"},
	{"rollback takes parked keys", "projector/admin.go",
		"TakeParked: o.TakeParked, Compare", "TakeParked: true, Compare", "TestSwitchRefusesParkedKeys"},
	{"version with parked keys made live", "projector/admin.go",
		"len(next.Parked) > 0 && !o.TakeParked {", "len(next.Parked) > 0 && !o.LeaveParked {", "TestSwitchRefusesParkedKeys"},
}}
