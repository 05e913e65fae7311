// Names of consumers.

package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/wattle-es/wattle/eventstore"
)

// Names that would be taken for others', or for a part of a name, if they were not kept
// apart: each is a consumer of its own, and none disturbs another one.
func TestHostileConsumerNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 2)
		e.publish("t", 0, 3, false)
		e.publish("t", 1, 3, false)
		p := e.proc()
		long := strings.Repeat("/", MaxConsumerBytes)
		names := []string{"a", "a/", "a/b", "a/member", "a/member/0000", "a/partition/000", "~h", "~1", "/", "~", "0-a", "1-a", "-", "--", "t", "t-0-a",
			"..", "../../etc", "'; drop table entries; --", "*", ">", "a.b", "%", "\\", "é", "e\u0301", " ", strings.Repeat("x", MaxConsumerBytes), long, long[1:],
			strings.Repeat("~", 65), "\u202e", "🧶", "A", "{\"names\":[]}"}
		leases, streams := map[string]string{}, map[eventstore.Stream]string{}
		var runs []*run
		var ledgers []*ledger
		for _, name := range names {
			l := newLedger(false)
			ledgers, runs = append(ledgers, l), append(runs, p.join(name, l, nil))
			prefix := consumerPrefix("t", name)
			for other, whose := range leases {
				if strings.HasPrefix(other, prefix) || strings.HasPrefix(prefix, other) {
					t.Errorf("the leases of %q and %q are mixed up: %q, %q", name, whose, prefix, other)
				}
			}
			leases[prefix] = name
			for part := range 2 {
				if whose, is := streams[positionStream("t", part, name)]; is {
					t.Errorf("%q and %q have one position", name, whose)
				}
				streams[positionStream("t", part, name)] = name
			}
		}
		if longest := consumerPrefix(eventstore.Category(strings.Repeat("t", eventstore.MaxCategoryBytes)), long) + partitionItem(255); len(longest) > eventstore.MaxNameBytes {
			t.Errorf("a lease's name of %d bytes", len(longest))
		}
		if longest := positionStream(eventstore.Category(strings.Repeat("t", eventstore.MaxCategoryBytes)), 255, long); len(longest.Key()) > eventstore.MaxKeyBytes {
			t.Errorf("a key of %d bytes", len(longest.Key()))
		}
		for i, r := range runs {
			eventually(t, settled, fmt.Sprintf("all to %q", names[i]), func() bool { return ledgers[i].reached(e, "t", 2) })
			r.kill()
			ledgers[i].check(t)
		}
		got, _, err := p.c.names(t.Context(), "t")
		e.ok(err)
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Errorf("the consumers are %q", got)
		}
	})
}
