// The registry file, by what stores hold in the extreme.

package filelog_test

import (
	"fmt"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// TestManySmallStreams: streams that take as little as can be are read back.
func TestManySmallStreams(t *testing.T) {
	disk := vfs.NewMem()
	p, err := openPlayer(disk, filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.store.CreateCategory(p.ctx, eventstore.CategorySpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err := p.store.Fence(p.ctx, eventstore.Stream(fmt.Sprintf("a-%d", i)), id("holder")); err != nil {
			t.Fatal(err)
		}
	}
	want, err := p.dump()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	p, err = openPlayer(disk.Snapshot(), filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.log.Close()
	if got, err := p.dump(); err != nil || got != want {
		t.Errorf("after opening again: %v, %s", err, difference(got, want))
	}
}
