// A file system that is really full.

package filelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// TestFull fills a file system of 512 KiB, in a mount namespace of a child. Reads go on,
// and writes do when there is room again, without opening the log anew and after it.
func TestFull(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), childFull+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: …%s (it takes root, or user namespaces, to mount a small file system)", err, out[max(0, len(out)-600):])
	}
	acks := bytes.Count(out, []byte("\na "))
	t.Logf("%d acks; %s", acks, out[max(0, len(out)-200):])
}

// fillDisk runs in the child.
func fillDisk(dir string) error {
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k")); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	ballast := func(name string) error { return os.WriteFile(filepath.Join(dir, name), make([]byte, 96<<10), 0o600) }
	if err := errors.Join(ballast("first"), ballast("second")); err != nil {
		return err
	}
	f := &filler{dir: filepath.Join(dir, "store")}
	if err := f.open(); err != nil {
		return err
	}
	for _, name := range []string{"first", "second"} {
		before := f.head.Last.Seqno
		if err := f.fill(); err != nil {
			return err
		}
		fmt.Printf("full at %d\n", f.head.Last.Seqno)
		if f.head.Last.Seqno == before {
			return errors.New("there was room, and nothing was written")
		}
		if name == "second" {
			f.log.Close() // it may not have room to write what makes the next opening quick
			if err := f.open(); err != nil && !errors.Is(err, eventstore.ErrUnavailable) {
				return err
			} else if err == nil {
				f.log.Close()
			}
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := f.open(); err != nil {
		return err
	}
	return errors.Join(f.append(context.Background(), 1), f.log.Close())
}

// filler appends until there is no room.
type filler struct {
	client
	dir string
}

func (f *filler) open() (err error) {
	if f.log, err = filelog.Open(f.dir, childOptions()); err != nil {
		return err
	}
	f.store, f.stream = eventstore.New(f.log, nil), "free-full"
	ctx := context.Background()
	if f.head.Epoch > 0 {
		return f.all()
	}
	if err := f.store.CreateCategory(ctx, free); err != nil {
		return err
	}
	f.head, err = f.store.Fence(ctx, f.stream, eventstore.NewUUID())
	return err
}

// fill appends until it is refused, twice, and then reads everything.
func (f *filler) fill() error {
	for refused := 0; refused < 2; {
		switch err := f.append(context.Background(), 3); {
		case err == nil:
		case errors.Is(err, eventstore.ErrReadOnly) && !f.log.Failed():
			refused++
		default:
			return fmt.Errorf("append on a full disk: %w", err)
		}
	}
	return f.all()
}

// all reads everything that was acked.
func (f *filler) all() error {
	next := eventstore.Seqno(1)
	for e, err := range f.store.Read(context.Background(), f.stream, 0) {
		if err != nil || e.Seqno != next || string(e.Data) != content(f.stream, next) {
			return fmt.Errorf("entry %d is %d %.40q, %w", next, e.Seqno, e.Data, err)
		}
		next++
	}
	if next != f.head.Last.Seqno+1 {
		return fmt.Errorf("%d entries, %d were acked", next-1, f.head.Last.Seqno)
	}
	return nil
}
