// Package logtest is the conformance suite of [eventstore.Log]: every backend
// passes all of it, and no option excuses a weaker promise.
//
//   - [Run] goes through the cases, each of which states the rule it proves;
//   - [Random] runs random histories on a log, on a simple model and, if there is
//     one, on a second log side by side;
//   - [Linear] runs histories of many clients at once and demands that they are
//     linearizable;
//   - [Probe] looks for feed readers that skip, repeat or reorder;
//   - [Check] holds a history against the invariants; the others call it after
//     every history, and a backend's own fault tests may;
//   - [Bench] measures.
//
// The test of a backend is a few lines:
//
//	func TestLog(t *testing.T) {
//		h := logtest.Harness{Open: func(t testing.TB) eventstore.Log { return memlog.New(nil) }}
//		logtest.Run(t, h)
//		logtest.Random(t, h, nil)
//		logtest.Linear(t, h, logtest.LinearOptions{})
//		logtest.Probe(t, h, logtest.ProbeOptions{})
//	}
//
// Counts are small by default, smaller with -short and large when the environment
// variable WATTLE_SOAK is set.
package logtest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Harness is what the suite needs of a backend.
type Harness struct {
	// Open returns a log on a fresh, empty store; it registers what must be cleaned
	// up with t. The log also implements Categories, Streams, Snapshots, Holds and Leases.
	Open func(t testing.TB) eventstore.Log

	// Reopen returns a second log on the same store, as another process would open
	// it, while the first stays open. Nil for a store that lives in one process only:
	// then the first log stands in.
	Reopen func(t testing.TB, log eventstore.Log) eventstore.Log

	// LongTx appends inside a transaction, calls meanwhile when the append has been
	// carried out but not committed, and then commits or rolls back. If the append is
	// refused it returns the error without calling meanwhile. Nil for a backend
	// without transactions: there meanwhile comes before the append.
	LongTx func(ctx context.Context, log eventstore.Log, a eventstore.Append, meanwhile func(), commit bool) error
}

// Run proves that a log keeps the promises that one log can show. The cases run
// alone and in any order; most share one store, in categories of their own and in
// parallel, so that they disturb one another as strangers in one database do.
func Run(t *testing.T, h Harness) {
	shared := h.Open(t)
	for _, area := range areas {
		t.Run(area.name, func(t *testing.T) {
			for _, c := range area.cases {
				if c.feed && !inFeed(shared) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					runCase(t, h, c, shared)
				})
			}
		})
	}
}

// testCase is one case and the rule that it proves.
type testCase struct {
	name  string
	rule  string
	alone bool // needs a store of its own
	feed  bool // is about positions or the feed, which dedicated streams do not have
	run   func(*env)
}

// areas are all cases, by what they are about.
var areas = []struct {
	name  string
	cases []testCase
}{
	{"append", appendCases},
	{"refusal", refusalCases},
	{"resend", resendCases},
	{"fence", fenceCases},
	{"read", readCases},
	{"feed", feedCases},
	{"load", loadCases},
	{"trim", trimCases},
	{"lease", leaseCases},
	{"category", categoryCases},
	{"dedicated", dedicatedCases},
	{"input", inputCases},
	{"race", raceCases},
}

// caseTimeout ends a case that hangs.
const caseTimeout = 2 * time.Minute

// runCase runs one case and then holds what it did against the invariants.
func runCase(t testing.TB, h Harness, c testCase, shared eventstore.Log) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("rule: %s", c.rule)
		}
	})
	log := shared
	if c.alone || log == nil {
		log = h.Open(t)
	}
	e := newEnv(t, h, log, strings.ReplaceAll(c.name, " ", "_"))
	c.run(e)
	if !e.closed {
		Check(t, e.store, e.history)
	}
}

// soak says that counts are to be large.
func soak() bool { return os.Getenv("WATTLE_SOAK") != "" }

// rounds is n in a normal run, a tenth of it with -short and ten times it in a soak.
func rounds(n int) int {
	switch {
	case soak():
		return 10 * n
	case testing.Short():
		return max(1, n/10)
	}
	return n
}
