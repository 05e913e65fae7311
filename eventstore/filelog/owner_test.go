// One owner of a directory, and readers beside him.

package filelog_test

import (
	"errors"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// TestOneOwner: a directory that is open for writing cannot be opened so again, until it
// is closed.
func TestOneOwner(t *testing.T) {
	dir := t.TempDir()
	first, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := filelog.Open(dir, nil); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("opened twice: %v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestTrimDuringRead: what a trim has removed when it returns is not in a page that was
// being read then.
func TestTrimDuringRead(t *testing.T) {
	for name, read := range map[string]func(*player) (int, error){
		"stream": func(p *player) (int, error) {
			page, err := p.store.ReadFrom(p.ctx, "free-a", 0, 10)
			return len(page.Entries), err
		},
		"feed": func(p *player) (int, error) {
			page, err := p.store.ReadFeed(p.ctx, 0, eventstore.Filter{}, 10)
			return len(page.Entries), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			arm, reached, resume := make(chan bool, 1), make(chan bool), make(chan bool)
			p, err := openPlayer(vfs.NewFaulty(vfs.NewMem(), func(o vfs.Op) error {
				if o.Kind == vfs.OpRead {
					select {
					case <-arm:
						reached <- true
						<-resume
					default:
					}
				}
				return nil
			}), filelog.Options{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.log.Close()
			for i, s := range []step{createStep(free), appendStep(3, 9, "free-a")} {
				if err := p.play(i, s); err != nil {
					t.Fatal(err)
				}
			}
			arm <- true
			done := make(chan error, 1)
			go func() {
				n, err := read(p)
				if err == nil {
					t.Errorf("%d entries of a trimmed stream", n)
				}
				done <- err
			}()
			<-reached
			if err := p.play(2, trimStep("free-a", 1)); err != nil {
				t.Error(err)
			}
			resume <- true
			if err := <-done; !errors.Is(err, eventstore.ErrTrimmed) {
				t.Errorf("read = %v, want ErrTrimmed", err)
			}
		})
	}
}
