// The operations of FS and File as data: what Mem shows before it changes something
// and what Faulty decides on.

package vfs

import "fmt"

// Kind is which method an operation is of.
type Kind uint8

// The kinds of operations. Size and Close are not among them: they do not fail.
const (
	OpCreate Kind = iota + 1
	OpOpen
	OpRead
	OpWrite
	OpTruncate
	OpAllocate
	OpSync
	OpRename
	OpRemove
	OpList
	OpSyncDir
	OpMap
	OpLock
)

var kindNames = [...]string{
	OpCreate: "create", OpOpen: "open", OpRead: "read", OpWrite: "write", OpTruncate: "truncate", OpAllocate: "allocate", OpSync: "sync",
	OpRename: "rename", OpRemove: "remove", OpList: "list", OpSyncDir: "syncdir", OpMap: "map", OpLock: "lock",
}

func (k Kind) String() string { return kindNames[k] }

// Op is one operation.
type Op struct {
	N    int // its running number, from 1
	Nth  int // its number among those of its kind, from 1
	Kind Kind
	Name string // a file's is the one it was opened by; "" if it is about the directory
	To   string // the new name in a rename
	// Off and Len are the range of a read, write or allocation; Off is the size given to
	// Truncate, Len that given to Map.
	Off, Len int64
}

func (o Op) String() string {
	s := fmt.Sprintf("%d:%v %s", o.N, o.Kind, o.Name)
	switch o.Kind {
	case OpRename:
		s += " to " + o.To
	case OpRead, OpWrite, OpAllocate:
		s += fmt.Sprintf(" %d+%d", o.Off, o.Len)
	case OpTruncate:
		s += fmt.Sprintf(" at %d", o.Off)
	}
	return s
}

// counter numbers operations.
type counter struct {
	all  int
	kind [OpLock + 1]int
}

func (c *counter) number(o *Op) {
	c.all++
	c.kind[o.Kind]++
	o.N, o.Nth = c.all, c.kind[o.Kind]
}
