// What the tests of other files may look at and hold up.

package filelog

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// State is the registry as bytes: the same for the same state, whatever the files are.
func (l *Log) State() []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return encodeRegistry(l.reg, eventstore.UUID{})
}

// StreamNames returns the streams there are, sorted.
func (l *Log) StreamNames() []eventstore.Stream {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Sorted(maps.Keys(l.reg.streams))
}

// LeaseList returns the leases as they stand, ordered by name.
func (l *Log) LeaseList() (all []eventstore.Lease) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(l.reg.leases)) {
		all = append(all, l.reg.leases[name])
	}
	return all
}

// Park keeps the writer from taking requests until release is called.
func (l *Log) Park() (release func()) {
	parked, resume, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		l.errand(func(*writer) { close(parked); <-resume })
	}()
	<-parked
	return func() { close(resume); <-done }
}

// Queued says how many requests wait for the writer.
func (l *Log) Queued() int { return l.queue.length() }

// Roll seals the active segment.
func (l *Log) Roll() (err error) {
	l.errand(func(w *writer) { err = w.roll() })
	return err
}

// Segments says how many there are.
func (l *Log) Segments() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.segments)
}

// Failed says if the log acks nothing any more.
func (l *Log) Failed() bool { return l.failure() != nil }

// OfVersion returns a file of the store, by its name, as if it were of another format.
func OfVersion(name string, b []byte, version uint32) []byte {
	b = slices.Clone(b)
	le := binary.LittleEndian
	le.PutUint32(b[8:], version)
	switch {
	case name == manifestName:
		le.PutUint32(b[manifestHeader-4:], manifestChecksum(b))
	case strings.HasSuffix(name, ".reg"):
		le.PutUint32(b[registryHeader-4:], registryChecksum(b))
	case strings.HasSuffix(name, ".idx"):
		le.PutUint32(b[indexHeader-4:], indexChecksum(b))
	default:
		le.PutUint32(b[segmentHeader-4:], crc32.Checksum(b[:segmentHeader-4], castagnoli))
	}
	return b
}

// ActiveSize returns the bytes of the active segment's records, its head included.
func (l *Log) ActiveSize() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.current.size
}
