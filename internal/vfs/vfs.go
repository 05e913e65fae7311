// Package vfs is the little of a file system that a log in files stands on: one flat
// directory, files written and read at offsets, and the three calls that make things
// durable. It is an interface so that tests can crash it (Mem) and make it fail
// (Faulty); OS is the real one.
//
// What durable means here is what POSIX leaves one to rely on:
//
//   - what was written to a file, and its size, is durable after File.Sync;
//   - that a name exists, was renamed or is gone is durable after FS.SyncDir;
//   - before that a crash may keep any part of it, in any order.
package vfs

import (
	"errors"
	"io"
)

// FS is one directory. Names are plain file names without separators. Methods may be
// called from several goroutines at once; two calls about one name must not overlap.
// Errors wrap those of package io/fs (fs.ErrNotExist, fs.ErrExist, fs.ErrPermission)
// and syscall (ENOSPC, EIO).
type FS interface {
	// Create creates a file, mode 0600, for reading and writing; fs.ErrExist if there
	// is one.
	Create(name string) (File, error)
	// Open opens a file that exists for reading and, unless the FS is read-only,
	// writing; fs.ErrNotExist.
	Open(name string) (File, error)
	// Rename gives a file another name, in one step and in place of a file that has it.
	Rename(from, to string) error
	// Remove removes a name. Files that are open stay readable.
	Remove(name string) error
	// List returns the names of all files, sorted.
	List() ([]string, error)
	// SyncDir makes creations, renames and removals durable.
	SyncDir() error
	// Lock takes the exclusive lock of a name, which it creates: ErrLocked if another
	// process, or another Lock in this one, has it. Close gives it back, and so does
	// the end of the process. Where the platform has no locks (wasip1) it always succeeds.
	Lock(name string) (io.Closer, error)
	// Close releases the directory; open files stay open.
	Close() error
}

// File is an open file. Reads and writes may go on at once; what a read sees of an
// overlapping write is undefined. After an error of WriteAt, Truncate or Allocate any
// part of it may have been done, whatever count came with it.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate cuts the file to a size, or lengthens it by zeros.
	Truncate(size int64) error
	// Allocate makes the bytes from…to exist, so that writing them later takes no new
	// space: ENOSPC comes now. Bytes that were not there are zero; those that were keep
	// their content.
	Allocate(from, to int64) error
	// Sync makes the content and the size durable, as fdatasync does.
	Sync() error
	// Map maps the first size bytes (at least 1, at most the file's) into memory, for
	// reading; whether later writes show in it is undefined. The file may be closed while
	// it is mapped. errors.ErrUnsupported where the platform cannot; then use ReadAt.
	Map(size int64) (Mapping, error)
}

// Mapping is a part of a file in memory. Bytes must not be touched after Close. If the
// file was cut or cannot be read, touching them ends the program, or panics under
// debug.SetPanicOnFault.
type Mapping interface {
	Bytes() []byte
	io.Closer
}

// ErrLocked: the lock is held by somebody else.
var ErrLocked = errors.New("locked by another process")
