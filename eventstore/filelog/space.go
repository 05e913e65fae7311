// What the files of a store take, and how much of that could be given back.

package filelog

import (
	"context"
	"errors"
)

// Space is what the segments of a store take. Index and registry files come on top, some
// hundredths of it, and what the active segment has allocated ahead.
type Space struct {
	Segments int
	Bytes    int64 // of records, the heads of files included
	Dead     int64 // of these, what can no longer be read, as far as it is sealed
	// Reclaimable is what of Dead lies in segments that are mostly dead: Reclaim, or the
	// owner's background work, gives back about as much.
	Reclaimable int64
}

// Space measures the store as it is. It looks at the index of every segment, which is
// made from the records where the file of it is missing.
func (l *Log) Space(ctx context.Context) (out Space, err error) {
	if err := l.begin(ctx, "measure", ""); err != nil {
		return out, err
	}
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	for {
		// A read-only log goes over to other segments when its owner has.
		if err = l.countLive(ctx); !errors.Is(err, errGone) {
			break
		}
	}
	if err != nil {
		return out, unavailable("measure", "", err)
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segments {
		out.Segments++
		out.Bytes += s.size
		if s.end == 0 || s.live == unknownLive {
			continue
		}
		dead := max(s.size-segmentHeader-s.live, 0)
		out.Dead += dead
		if s.mostlyDead() {
			out.Reclaimable += dead
		}
	}
	return out, nil
}
