// Which subjects a stream takes.

package natssink

import "testing"

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"events.account", "events.account", true}, {"events.account", "events.other", false},
		{"events.*", "events.account", true}, {"events.*", "events.account.x", false}, {"events.*", "events", false},
		{"*.account", "events.account", true}, {"*.account", "a.events.account", false},
		{"events.>", "events.account", true}, {"events.>", "a.b.c", false}, {"events.>", "events", false}, {">", "events.account", true},
		{"prod.*.>", "prod.events.account", true}, {"events.account.>", "events.account", false}, {"events.acc*", "events.account", false},
	} {
		if got := matches(c.pattern, c.subject); got != c.want {
			t.Errorf("%q takes %q: %v", c.pattern, c.subject, got)
		}
	}
}
