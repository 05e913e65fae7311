package filelog

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// Defaults and bounds of Options.
const (
	DefaultSegmentBytes = 64 << 20
	MinSegmentBytes     = 1 << 10
	MaxSegmentBytes     = 1 << 30
	DefaultOpenFiles    = 128
	DefaultReclaimEvery = 10 * time.Second
)

// Options of a Log; nil and the zero value are the defaults.
type Options struct {
	// ReadOnly opens the directory beside its owner, if it has one: nothing is locked,
	// changed or created. The log sees what the owner had written when it was opened,
	// and what it writes later; every change is refused with ErrReadOnly. It may see
	// what its owner takes back at once because the write failed: no room, say.
	ReadOnly bool
	// MayLose, if above 0, acks appends before they are durable: a crash of the machine,
	// not of the process, may lose what was acked within that time, never anything
	// earlier, and never a part of an append. 0: an ack means durable.
	MayLose time.Duration
	// SegmentBytes is about how large a segment grows. 0: 64 MiB. Space is given back in
	// pieces of this size; a smaller one costs more files.
	SegmentBytes int64
	// OpenFiles bounds how many segments are open for reading at a time. 0: 128.
	OpenFiles int
	// ReclaimEvery is how long the log rests between two looks at what trims have left.
	// 0: 10 s. Below 0 nothing is done in the background, index and registry files
	// included: for processes that may do nothing between two calls. Call Reclaim.
	ReclaimEvery time.Duration
	// Now is the store's clock, for the times of entries and for leases. Nil: time.Now.
	Now func() time.Time
	// Logger hears of what happens beside a call: damage that could be mended, space
	// given back, writes that failed. Nil: nothing.
	Logger *slog.Logger
}

// Log implements eventstore.Log, Categories, Streams, Snapshots, Holds, Leases and
// Verifier.
type Log struct {
	o           Options
	dir         string
	fs          vfs.FS
	files       *files
	now         func() time.Time
	logger      *slog.Logger
	incarnation eventstore.UUID
	readOnly    bool
	lock        io.Closer

	// mu is for what readers look at. Only the writer changes it, so the writer reads
	// without it, but for segments, which the reclaimer replaces too.
	mu       sync.RWMutex
	closed   bool // calls are refused
	released bool // files are closed
	reg      *registry
	segments []*segment // in order, the active one last; replaced, never changed
	current  *segment   // the active one
	active   *memIndex  // its index

	registryMu sync.Mutex // one registry file is written at a time
	manifestMu sync.Mutex
	manifest   *manifest // as it stands on disk

	queue    queue
	closing  chan struct{}
	finished chan struct{} // the writer has ended
	errands  chan func(*writer)
	synced   atomic.Int64          // bytes of the active file that are durable
	cause    atomic.Pointer[error] // of a failed write: nothing is acked any more

	file      vfs.File // the active one, for writing
	allocated int64    // its size

	background background
	reclaiming sync.Mutex
	dirtied    atomic.Bool // something can no longer be read since the last round
	follower   follower
}

// Open opens the store in a directory, which is created if it does not exist, with mode
// 0700. One process owns a directory: a second one gets ErrUnavailable. What a crash
// left at the end of the newest segment and nobody was told of is cut off; any other
// damage that it meets is ErrCorrupt, which names the file and the place, and a newer
// format is ErrNotMigrated. It takes time for what the registry file holds (some 100
// bytes a stream) and for the records behind it, a segment's as a rule.
func Open(dir string, o *Options) (*Log, error) {
	if o == nil {
		o = &Options{}
	}
	fs, err := vfs.OS(dir, &vfs.OSOptions{ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, locked(dir, err)
	}
	l, err := OpenFS(fs, dir, o)
	if err != nil {
		fs.Close()
	}
	return l, err
}

// OpenFS is Open on a file system of one's own; dir is its name in messages. Close
// closes it.
func OpenFS(fs vfs.FS, dir string, o *Options) (*Log, error) {
	if o != nil && o.ReadOnly {
		return recoverReadOnly(fs, dir, o)
	}
	l := newLog(fs, dir, o)
	lock, err := fs.Lock(lockName)
	if err != nil {
		return nil, locked(dir, err)
	}
	l.lock = lock
	if err := l.recover(); err != nil {
		l.release()
		return nil, err
	}
	l.start()
	return l, nil
}

const lockName = "LOCK"

func newLog(fs vfs.FS, dir string, o *Options) *Log {
	l := &Log{dir: dir, fs: fs, now: time.Now, logger: slog.New(slog.DiscardHandler),
		queue: queue{filled: make(chan struct{}, 1)}, closing: make(chan struct{}), finished: make(chan struct{}), errands: make(chan func(*writer))}
	if o != nil {
		l.o = *o
	}
	if l.o.Now != nil {
		l.now = l.o.Now
	}
	if l.o.Logger != nil {
		l.logger = l.o.Logger
	}
	if l.o.SegmentBytes <= 0 {
		l.o.SegmentBytes = DefaultSegmentBytes
	}
	l.o.SegmentBytes = min(max(l.o.SegmentBytes, MinSegmentBytes), MaxSegmentBytes)
	if l.o.OpenFiles <= 0 {
		l.o.OpenFiles = DefaultOpenFiles
	}
	if l.o.ReclaimEvery == 0 {
		l.o.ReclaimEvery = DefaultReclaimEvery
	}
	l.readOnly = l.o.ReadOnly
	l.files = &files{fs: fs, max: l.o.OpenFiles, follows: l.readOnly, open: map[*segment]bool{}}
	return l
}

// start lets the writer begin.
func (l *Log) start() {
	w := &writer{Log: l, group: newGroup(l), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	l.dirtied.Store(true) // before it was opened, perhaps
	go w.run()
	l.background.start(l)
}

// Close ends what is under way, writes what makes the next opening quick, and closes
// the files. An error of that is reported; what was acked is durable without it, unless
// Options.MayLose is set.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	var err error
	if !l.readOnly {
		l.queue.close()
		close(l.closing)
		<-l.finished
		l.background.end() // the writer may have given it work to the last
		l.reclaiming.Lock()
		defer l.reclaiming.Unlock()
		err = l.conclude()
	}
	l.release()
	l.fs.Close()
	return err
}

// release closes all files and gives the directory back.
func (l *Log) release() {
	l.mu.Lock()
	l.released = true // who reads would look for the files of replaced segments for ever
	l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	for _, s := range l.segments {
		s.retire()
	}
	if l.lock != nil {
		l.lock.Close()
	}
}

// enter refuses a call whose context has ended or whose log is closed.
func (l *Log) enter(ctx context.Context, op string, s eventstore.Stream) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return closedError(op, s)
	}
	return nil
}

func closedError(op string, s eventstore.Stream) error {
	return &eventstore.Error{Kind: eventstore.ErrClosed, Op: op, Stream: s}
}

// activeSegment is the segment that is written to. The writer may ask without the lock.
func (l *Log) activeSegment() *segment { return l.current }

// Incarnation returns the store's.
func (l *Log) Incarnation() eventstore.UUID { return l.incarnation }
