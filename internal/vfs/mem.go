// A file system in memory that knows what of it is durable, so that it can be crashed
// (crash.go, images.go) or handed to the next process (Snapshot).

package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// Mem is an FS in memory. It keeps what is visible apart from what is durable, and
// between them the list of operations that no Sync or SyncDir has covered.
//
// A Mapping of it does not show later writes, and is overwritten when it is closed: who
// relies on more than the contract says finds out.
type Mem struct {
	mu      sync.Mutex
	onOp    func(Op)
	count   counter
	closed  bool
	inodes  int // ever created; the next one's id
	names   map[string]*inode
	durable map[string]*inode // names as of the last SyncDir
	dirOps  []dirOp           // since then
}

// inode is a file apart from its names.
type inode struct {
	id     int
	live   blob
	base   blob     // content as of the last Sync
	ops    []dataOp // since then
	locked bool
}

// dirOp is a creation (of ino), rename or removal.
type dirOp struct {
	Op
	ino *inode
}

// dataOp is a write (of data), truncation or allocation.
type dataOp struct {
	Op
	data []byte
}

// blob is bytes that are copied before they change if somebody else holds them too.
type blob struct {
	b      []byte
	shared bool
}

func (b *blob) share() blob { b.shared = true; return *b }

func (b *blob) own() {
	if b.shared {
		b.b, b.shared = slices.Clone(b.b), false
	}
}

func (b *blob) resize(size int) {
	switch have := len(b.b); {
	case size < have:
		b.own()
		b.b = b.b[:size]
	case size > have:
		b.own()
		b.b = append(b.b, make([]byte, size-have)...)
	}
}

func (b *blob) write(p []byte, off int) {
	b.own()
	b.resize(max(len(b.b), off+len(p)))
	copy(b.b[off:], p)
}

func (b *blob) apply(o dataOp) {
	switch o.Kind {
	case OpWrite:
		b.write(o.data, int(o.Off))
	case OpTruncate:
		b.resize(int(o.Off))
	case OpAllocate:
		b.resize(max(len(b.b), int(o.Off+o.Len)))
	}
}

// NewMem returns an empty disk.
func NewMem() *Mem { return &Mem{names: map[string]*inode{}, durable: map[string]*inode{}} }

// OnOp has a function called before each operation that changes what is visible or
// durable. It may use m, Images and Crash above all: those show the disk as the
// operation before left it. To be set before use; m's users may call it from several
// goroutines at once.
func (m *Mem) OnOp(f func(Op)) { m.onOp = f }

// begin numbers and shows an operation; m.mu is not held.
func (m *Mem) begin(o Op) Op {
	m.mu.Lock()
	m.count.number(&o)
	m.mu.Unlock()
	if m.onOp != nil {
		m.onOp(o)
	}
	return o
}

// Snapshot returns a copy of the disk as the next process finds it after this one ended
// or was killed: all that is visible stays so, what was not durable is still not, locks
// and handles are gone. Changes to one do not show in the other.
func (m *Mem) Snapshot() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Mem{inodes: m.inodes, names: map[string]*inode{}, durable: map[string]*inode{}}
	copies := map[*inode]*inode{}
	dup := func(i *inode) *inode {
		if i != nil && copies[i] == nil {
			copies[i] = &inode{id: i.id, live: i.live.share(), base: i.base.share(), ops: slices.Clip(i.ops)}
		}
		return copies[i]
	}
	for name, i := range m.names {
		c.names[name] = dup(i)
	}
	for name, i := range m.durable {
		c.durable[name] = dup(i)
	}
	for _, o := range m.dirOps {
		c.dirOps = append(c.dirOps, dirOp{o.Op, dup(o.ino)})
	}
	c.count = m.count // numbers rise over the whole life of a disk
	return c
}

// find returns the file of a name, which with want must be there. m.mu is held.
func (m *Mem) find(op, name string, want bool) (*inode, error) {
	err := checkName(op, name)
	ino := m.names[name]
	switch {
	case err != nil:
		return nil, err
	case m.closed:
		err = fs.ErrClosed
	case want && ino == nil:
		err = fs.ErrNotExist
	default:
		return ino, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: err}
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	o := m.begin(Op{Kind: OpCreate, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	switch ino, err := m.find("create", name, false); {
	case err != nil:
		return nil, err
	case ino != nil:
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	return &memFile{m: m, name: name, ino: m.create(o)}, nil
}

func (m *Mem) create(o Op) *inode {
	ino := &inode{id: m.inodes}
	m.inodes++
	m.change(dirOp{o, ino})
	return ino
}

// change carries out and remembers a directory operation.
func (m *Mem) change(o dirOp) {
	o.apply(m.names)
	m.dirOps = append(m.dirOps, o)
}

func (o dirOp) apply(names map[string]*inode) {
	switch o.Kind {
	case OpRename:
		names[o.To] = names[o.Name]
		delete(names, o.Name)
	case OpRemove:
		delete(names, o.Name)
	default:
		names[o.Name] = o.ino
	}
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ino, err := m.find("open", name, true)
	if err != nil {
		return nil, err
	}
	return &memFile{m: m, name: name, ino: ino}, nil
}

// Rename implements FS.
func (m *Mem) Rename(from, to string) error {
	o := m.begin(Op{Kind: OpRename, Name: from, To: to})
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find("rename", to, false); err != nil {
		return err
	}
	if _, err := m.find("rename", from, true); err != nil || from == to {
		return err
	}
	m.change(dirOp{o, nil})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	o := m.begin(Op{Kind: OpRemove, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find("remove", name, true); err != nil {
		return err
	}
	m.change(dirOp{o, nil})
	return nil
}

// List implements FS.
func (m *Mem) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("list: %w", fs.ErrClosed)
	}
	return slices.Sorted(maps.Keys(m.names)), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir() error {
	m.begin(Op{Kind: OpSyncDir})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("syncdir: %w", fs.ErrClosed)
	}
	m.durable, m.dirOps = maps.Clone(m.names), nil
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	o := m.begin(Op{Kind: OpLock, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	ino, err := m.find("lock", name, false)
	switch {
	case err != nil:
		return nil, err
	case ino == nil:
		ino = m.create(o)
	case ino.locked:
		return nil, &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	ino.locked = true
	return &memLock{m: m, ino: ino}, nil
}

// Close ends the use of m; Snapshot and Images still work.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fs.ErrClosed
	}
	m.closed = true
	return nil
}

type memLock struct {
	m   *Mem
	ino *inode
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.ino == nil {
		return fs.ErrClosed
	}
	l.ino.locked, l.ino = false, nil
	return nil
}
