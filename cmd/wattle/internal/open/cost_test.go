// Counting round trips.

package open

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Writes that are followed by a read are one round trip; a read that was not asked
// for, and a farewell that is not answered, are none.
func TestTrips(t *testing.T) {
	trips := &Trips{}
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	c, err := trips.around(func(context.Context, string, string) (net.Conn, error) { return here, nil })(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	write := func(from, to net.Conn) {
		t.Helper()
		done := make(chan error, 1)
		go func() { _, err := from.Write([]byte("x")); done <- err }()
		if _, err := to.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		steps string // w: we write, r: we read
		want  int64
	}{{"r", 0}, {"ww", 0}, {"rr", 1}, {"wr", 2}, {"wrw", 3}} {
		for _, s := range step.steps {
			if s == 'w' {
				write(c, there)
			} else {
				write(there, c)
			}
		}
		if got := trips.Count(); got != step.want {
			t.Errorf("after %q: wanted %d round trips, found %d", step.steps, step.want, got)
		}
	}
}

// What is done aside and asked of the pool is not counted; what the store does is.
func TestAside(t *testing.T) {
	_, schema := pgtest.Schema(t)
	target, err := Parse(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	target.schema = schema
	trips := &Trips{}
	s, err := target.Open(t.Context(), &Options{Trips: trips})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := trips.Count()
	if _, err := s.Aside.ListCategories(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Reclaim(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if wal, err := s.WAL(t.Context()); err != nil || wal <= 0 {
		t.Errorf("wanted a place in the write-ahead log, found %d (%v)", wal, err)
	}
	if got := trips.Count() - before; got != 0 {
		t.Errorf("wanted nothing counted, found %d round trips", got)
	}
	if _, err := s.ListCategories(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := trips.Count() - before; got < 1 || got > 2 { // the statement may have to be prepared
		t.Errorf("wanted one or two round trips, found %d", got)
	}
}

func TestMemoryCostsNothing(t *testing.T) {
	target, err := Parse("mem:")
	if err != nil {
		t.Fatal(err)
	}
	s, err := target.Open(t.Context(), &Options{Trips: &Trips{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Aside != s.Store || s.Reclaim(t.Context(), 0) != nil {
		t.Error("memory is one store, with nothing to reclaim")
	}
	if _, err := s.WAL(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("wanted no write-ahead log, found %v", err)
	}
}
