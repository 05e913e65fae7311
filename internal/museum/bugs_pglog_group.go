// Bugs of pglog's group commit: what an append could feel of its neighbours.

package main

var pglogGroupBugs = area{"group", "eventstore/pglog", []bug{
	{"member that did not pass told as written", "eventstore/pglog/group.go",
		"case err == nil && positions[i] > 0:",
		"case err == nil:", "TestGroup$"},
	{"written without the last ID", "eventstore/pglog/statements.go",
		"    and l.last_seqno = r.after and (l.last_id = r.after_id or r.after > 0 and r.after_id = {zero})\n  returning s.ordinal, r.ord, s.last_time),\nw as materialized (select ordinal, ord, last_time from u),",
		"    and l.last_seqno = r.after\n  returning s.ordinal, r.ord, s.last_time),\nw as materialized (select ordinal, ord, last_time from u),", "TestGroupDecidesEach"},
	{"written without the epoch", "eventstore/pglog/statements.go",
		"    and case when r.claim then l.epoch < r.epoch else l.epoch = r.epoch and l.holder = r.holder end\n    and l.last_seqno",
		"    and l.last_seqno", "TestGroupDecidesEach"},
	{"locked neighbour waited for", "eventstore/pglog/statements.go",
		" for no key update of s skip locked),",
		" for no key update of s),", "TestGroupLockedNeighbour"},
	{"one member's fault is everybody's", "eventstore/pglog/group.go",
		"	return answered && !fatal(pg)",
		"	return false && answered && fatal(pg)", "TestGroupTakenBack"},
	{"lost answer told as nothing written", "eventstore/pglog/group.go",
		`l.translate("append", m.batch.Stream, err, writing)`,
		`l.translate("append", m.batch.Stream, err, reading)`, "TestGroupCutOff"},
	{"token of the whole row", "eventstore/pglog/group.go",
		"eventstore.Position(all[taken[row]-1])",
		"eventstore.Position(all[len(all)-1])", "TestGroupPipelined"},
	{"batches of two owners taken for one", "eventstore/pglog/group.go",
		"b.Epoch == p.Epoch && b.Holder == p.Holder && b.After.Seqno == p.Last() &&",
		"b.After.Seqno == p.Last() &&", "TestGroupDecidesEach"},
	{"queue without a bound", "eventstore/pglog/group.go",
		"if len(s.queue) >= maxQueue || s.bytes+m.bytes > maxQueueBytes {",
		"if false {", "TestQueueIsBounded"},
}}
