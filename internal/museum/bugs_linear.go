// Bugs that only calls at the same time, or processes that die, bring to light.

package main

var linearMemlogBugs = area{"linear memory", "eventstore/memlog", []bug{
	{"append decided, then written a moment later", "eventstore/memlog/memlog.go",
		"	write, err := l.decide(ctx, a)\n",
		"	write, err := l.decide(ctx, a)\n	l.mu.Unlock()\n	time.Sleep(1)\n	l.mu.Lock()\n", "TestLinear"},
	{"fence granted, then kept a moment later", "eventstore/memlog/memlog.go",
		"	granted, err := h.Grant(s, holder, at)\n",
		"	granted, err := h.Grant(s, holder, at)\n	l.mu.Unlock()\n	time.Sleep(1)\n	l.mu.Lock()\n", "TestLinear"},
}}

var linearPglogBugs = area{"linear", "eventstore/pglog", []bug{
	{"epoch looked up in the statement's snapshot", "eventstore/pglog/statements.go",
		"and case when $6::bool then s.epoch < $4::bigint else s.epoch = $4::bigint and s.holder = $5::uuid end",
		"and exists (select from {s}.streams o where o.ordinal = s.ordinal and case when $6::bool then o.epoch < $4::bigint else o.epoch = $4::bigint and o.holder = $5::uuid end)", "TestLinear$"},
	{"group decided by rows that are not locked", "eventstore/pglog/statements.go",
		" for no key update of s skip locked),",
		"),", "TestLinear$"},
	{"fence that lost a race told as granted", "eventstore/pglog/read.go",
		"			if _, err := r.head().Grant(s, holder, at); err != nil {\n				return err\n			}\n",
		"			if _, err := r.head().Grant(s, holder, at); err != nil {\n				return err\n			}\n			h = r.head()\n			return nil\n", "TestLinear$"},
	{"lost race told as a refusal", "eventstore/pglog/append.go",
		"	if write {\n		return eventstore.Appended{}, l.passesNow(a)\n	}\n",
		"	if write {\n		return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrAlreadyWritten, Op: \"append\", Stream: a.Batches[0].Stream, Wanted: \"room\", Found: \"none\", Head: &seen[0].Head}\n	}\n", "TestLinear$"},
	{"lost answer told as nothing written", "eventstore/pglog/errors.go",
		"case ph == writing && !pgconn.SafeToRetry(err):",
		"case false:", "TestLinearFaults"},
}}

var hammerBugs = area{"hammer", "eventstore/pglog", []bug{
	{"streams locked in the caller's order", "eventstore/pglog/statements.go",
		"order by s.category, s.key for no key update of s),\np as",
		"order by r.ord for no key update of s),\np as", "TestLockOrder"},
	{"streams of one append not locked", "eventstore/pglog/statements.go",
		"order by s.category, s.key for no key update of s),\np as",
		"order by s.category, s.key),\np as", "TestHammer"},
	{"lost race for a first append not noticed", "eventstore/pglog/statements.go",
		"select 1 / case when (select count(*) from n) = d.absent then 1 else 0 end as created",
		"select 1 as created", "TestHammer"},
	{"reader takes the sequence's value for the horizon", "eventstore/pglog/statements.go",
		"select min(m.v + (((l.objid::bigint - m.v) << 32) >> 32)) from m, pg_locks l",
		"select min(m.v + (((l.objid::bigint - m.v) << 32) >> 32)) + 1000 from m, pg_locks l", "TestHammer"},
	{"trim does not move the watermark", "eventstore/pglog/statements.go",
		"u as (update {s}.streams set trimmed = $3::bigint where ordinal = $2::bigint and (select ok from g))\n",
		"u as (update {s}.streams set last_seqno = $3::bigint where ordinal = $2::bigint and (select ok from g))\n", "TestLog/trim"},
	{"deadlock told to the caller", "eventstore/pglog/append.go",
		"if pgCode(err) == codeDeadlock || pgCode(err) == codeDivisionByZero {",
		"if pgCode(err) == codeDivisionByZero {", "TestDeadlock"},
}}
