// Bugs of workers that share lanes: leases, claims, hints, waits. More are in bugs_lanes.go.

package main

// leaseBugs are caught in memory, on a clock that tests move.
var leaseBugs = area{"leases", "projector", []bug{
	{"lane acquired under the epoch it had", "projector/session.go",
		"		st.To.Epoch = s.kept.Epoch + 1\n",
		"		st.To.Epoch = max(1, s.kept.Epoch)\n", "TestRebalancingStopsNobody"},
	{"expired lease worked on without bound", "projector/crew.go",
		"			if c.p.leased && c.leases.expired() {",
		"			if false {", "TestExpiredLeasesAreNotWorkedOn"},
	{"lanes above the share kept", "internal/sharing/sharing.go",
		"	if len(stay) > most {\n",
		"	if false {\n", "TestWorkersShareTheLanes"},
	{"wait for the lane that has nothing to do", "projector/wait.go",
		"lanes[w.left.lane].Position < w.left.last",
		"w.kept.Position < w.left.last", "TestWaitForOneLaneOfMany"},
	{"backend without a name named", "projector/parts.go",
		"	if err == nil || p.backend.Name == \"\" {",
		"	if err == nil {", "TestErrorsOfTheOnlyBackend"},
}}

// workerBugs take processes, PostgreSQL and NATS.
var workerBugs = area{"workers", "internal/workers", []bug{
	{"lease trusted as a fence", "projector/pgcheckpoint/checkpoints.go",
		"\" AND epoch = $13 AND holder = $14 AND position = $15 AND seqno = $16\"",
		"\" AND $13::bigint + $15::bigint + $16::bigint >= 0 AND $14::uuid IS NOT NULL\"", "TestL1FrozenProcess"},
	{"frozen transaction holds its lane without end", "projector/pgcheckpoint/pgcheckpoint.go",
		"	b.Queue(setTimeout, fmt.Sprint(c.ttl.Milliseconds()))\n",
		"	b.Queue(setTimeout, \"0\")\n", "TestL1FrozenProcess"},
	{"lease of a dead worker never runs out", "eventstore/pglog/statements.go",
		"l.holder is null or l.holder = $1::uuid or l.until <= clock_timestamp()\n      else",
		"l.holder is null or l.holder = $1::uuid\n      else", "TestL1FrozenProcess"},
	{"lanes divided anew begin at the first epoch", "projector/relay.go",
		"		c.Epoch, c.Holder = epoch+1, eventstore.UUID{}\n",
		"		c.Epoch, c.Holder = 1, eventstore.UUID{}\n", "TestSetLanesWhileWorkersRun"},
	{"everybody looks at once when NATS is back", "projector/listen.go",
		"	pause := rand.N(min(e.p.o.PollInterval, herdInterval))\n",
		"	pause := time.Duration(rand.N(1))\n", "TestNatsIsBack"},
	{"nobody looks when NATS is back", "projector/listen.go",
		"		e.soon()\n",
		"", "TestNatsIsBack"},
	{"every one of a thousand lanes reads the feed for itself", "projector/puller.go",
		"		if b != leader && b.open() &&",
		"		if false && b.open() &&", "TestIdleLanesCostNothing"},
	{"effects of a call committed after it returned", "projector/pgcheckpoint/pgcheckpoint.go",
		"	return drop(ctx, conn.Conn(), c.commit(ctx, tx, s.Batch))\n",
		"	time.Sleep(time.Millisecond)\n	return nil\n", "TestFunctionFrozenInsideItsTransaction"},
}}
