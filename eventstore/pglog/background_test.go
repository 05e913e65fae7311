// Reclaiming in the background, and its end.

package pglog_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestReclaimsInTheBackground(t *testing.T) {
	p, schema := pgtest.Schema(t)
	l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, ReclaimEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	freely(t, s, "free")
	all := fill(t, s, "free", 5, 1, 20, 100)
	table := schema + ".entries_" + strconv.FormatInt(number(t, p, "select id from "+schema+".categories"), 10)
	left := func() int64 { return number(t, p, "select count(*) from "+table) }
	for round, through := range []eventstore.Seqno{5, 18} {
		trim(t, s, all, through)
		eventually(t, "trimmed entries are gone", func() bool { return left() == int64(len(all))*int64(20-through) })
		if round == 0 {
			if got, err := s.Trim(t.Context(), all[0], 4, false); err != nil || got.Trimmed != 5 {
				t.Errorf("Trim below the watermark = %+v, %v", got, err)
			}
		}
	}
	trim(t, s, all, 19)
	if err := s.Close(); err != nil { // ends the round that is to come
		t.Fatal(err)
	}
	after := left()
	time.Sleep(100 * time.Millisecond)
	if got := left(); got != after {
		t.Errorf("%d entries when the log was closed, %d later: something went on", after, got)
	}
}

// TestReclaimsNothingUnasked: a process that may do nothing between two calls says so.
func TestReclaimsNothingUnasked(t *testing.T) {
	p, schema, _, s := fresh(t) // ReclaimEvery -1
	freely(t, s, "free")
	trim(t, s, fill(t, s, "free", 1, 1, 20, 100), 18)
	time.Sleep(1200 * time.Millisecond) // longer than a first round waits
	table := schema + ".entries_" + strconv.FormatInt(number(t, p, "select id from "+schema+".categories where name = 'free'"), 10)
	if got := number(t, p, "select count(*) from "+table); got != 20 {
		t.Errorf("%d of 20 entries left", got)
	}
}
