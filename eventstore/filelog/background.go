// What is done beside calls: index and registry files of sealed segments, and the space
// of what was trimmed.

package filelog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// maxTasks is how many tasks may wait before the writer waits for them: what a sealed
// segment keeps in memory is bounded.
const maxTasks = 4

// background runs tasks one behind the other.
type background struct {
	off     bool // everything is done in the call that asks for it
	tasks   chan func()
	stop    context.CancelFunc
	running sync.WaitGroup
	logged  int64 // bytes sealed since the last registry file; the writer's
	written int64 // size of that file
}

func (b *background) start(l *Log) {
	b.off = l.o.ReclaimEvery < 0
	if b.off {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.tasks = stop, make(chan func(), maxTasks)
	b.running.Go(func() {
		ticker := time.NewTicker(l.o.ReclaimEvery)
		defer ticker.Stop()
		for {
			select {
			case task, ok := <-b.tasks:
				if !ok {
					return
				}
				task()
			case <-ticker.C:
				l.reclaimRound(ctx)
			}
		}
	})
}

// end lets what waits come to its end; nobody may add a task any more.
func (b *background) end() {
	if b.tasks == nil {
		return
	}
	b.stop()
	close(b.tasks)
	b.running.Wait()
}

// do has a task done. While too many wait the writer runs errands: the goroutine that
// is to take the next task may be waiting for one.
func (b *background) do(w *writer, task func()) {
	if b.off {
		task()
		return
	}
	for {
		select {
		case b.tasks <- task:
			return
		case f := <-w.errands:
			f(w)
		}
	}
}

// sealed sees to the files that a sealed segment calls for. The writer calls it. A
// registry file is written when as much was logged as it takes itself: writing it costs
// no more than the records did, and opening replays no more than twice of what it reads.
func (b *background) sealed(w *writer, s *segment, x *memIndex) {
	b.logged += s.size
	var registry []byte
	position := w.reg.position
	if b.logged >= b.written {
		registry = encodeRegistry(w.reg, w.incarnation)
		b.logged, b.written = 0, int64(len(registry))
	}
	b.do(w, func() {
		w.report("index file not written; it is made again when it is needed", w.writeIndex(s, x))
		if registry != nil {
			w.report("registry file not written; opening takes longer", w.writeRegistry(position, registry))
		}
	})
}

// report deals with an error of something that was done beside calls: no room may pass,
// and what cannot be read may be read later; anything else means that writes can no longer be trusted.
func (l *Log) report(what string, err error) {
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(err, context.Canceled):
	case noSpace(err), errors.Is(err, eventstore.ErrUnavailable):
		l.logger.Warn(what, "directory", l.dir, "error", err)
	default:
		l.logger.Warn(what, "directory", l.dir, "error", err)
		l.fail(err)
	}
}
