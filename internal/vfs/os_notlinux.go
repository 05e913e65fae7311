// Everywhere but Linux: a full sync (on macOS to the platter), zeros for allocation.

//go:build !linux

package vfs

func (f *osFile) Sync() error { return f.File.Sync() }

func (f *osFile) allocate(from, to int64) error { return f.writeZeros(from, to) }
