// Package filelog is a Log in files: one directory, one process, nothing to install.
// It is the embedded default of Wattle.
//
// # Layout
//
// The whole store is one commit log. A record is one atomic change: an append with all
// its batches, a fence, a trim, a snapshot, a lease, a hold, a category. Records stand
// one behind the other in segments; the last segment is the active one, the others are
// sealed and do not change.
//
//	DIR/                                mode 0700
//	  MANIFEST                          names the files that make up the store
//	  LOCK                              held by the owner
//	  0000000000000000001.0.log         a segment: base position, generation
//	  0000000000000000001.0.idx         its index, once it is sealed
//	  0000000000000041723.0.log         the active segment
//	  0000000000000041722.reg           the registry as of that position
//
// Files have mode 0600. Names are made of numbers alone, never of names of streams.
// Numbers in them are little endian; "varint" is an unsigned one as of encoding/binary.
//
// A segment:
//
//	+--------------------------------------------------------------+ 0
//	| "wattleSG" | u32 format | u32 generation | incarnation (16)  |
//	| u64 base | u32 salt | u32 0 | u64 created µs | u32 0 | u32 crc|
//	+--------------------------------------------------------------+ 64
//	| u32 crc | u32 length of the body | u32 salt | u32 kind       |  a record
//	| u64 position | u32 synced | u32 check                        |
//	| body …                                     | zeros to 8 bytes|
//	+--------------------------------------------------------------+
//	| … more records …                                             |
//	+--------------------------------------------------------------+
//	| zeros: allocated, not yet written (active segment only)      |
//	+--------------------------------------------------------------+
//
// The low byte of kind is the kind; the rest is 0, or three bytes that the body is masked
// with over and over: see format.go. crc is CRC-32C. That of a record covers the record's offset in the file, its head and
// its body, so a record is valid where it was written and nowhere else; the salt is
// another one in every file, so what the disk held before is never taken for a record.
// Position is the record's first; every record has at least one of its own, so positions
// are a total order over everything that happened. Synced is how far the file was durable
// when the record was written. Check is CRC-32 (IEEE) of the body, for tail.go.
//
// The body of an append, per batch: stream (ordinal, category, name), epoch, holder,
// batch ID, time, first seqno, first position, and the events, in which what is usual is
// left out (version 1, application/json, no metadata). See record.go for the other
// kinds, indexfile.go, registryfile.go and manifest.go for the other files.
//
// # Writing
//
// One goroutine decides, writes and syncs. Requests that come while it is at it go
// together as the next group: one write, one fdatasync, then the answers. Each is decided
// for itself on the registry, which holds the head of every stream in memory, some 220
// bytes each. Readers see a record when it is durable. Files are made longer ahead of
// the writes, so that a sync need not write the file's size as well, and so that a full
// disk is met before anything was written.
//
// After a write or a sync that failed nothing is acked any more (ErrReadOnly): what the
// system did with earlier writes is not known. Reads go on. Only where there was no room,
// and what was written can be taken back for sure, the log goes on by itself.
//
// # Crashes
//
// A new file is written and synced under its own name, the directory is synced, and then
// a new manifest is written beside the old one, synced, renamed over it, and the
// directory synced again. Until then the new file is none of the store's; after that the
// old one is not. Opening removes what the manifest does not name. The active segment is
// read to its first record that is not valid. Whatever stands there was never acked and
// is cut off, unless it can be told that it was acked: see tail.go. That, and any other
// damage, is ErrCorrupt.
//
// # Reading
//
// A sealed segment's index finds entries by (stream, seqno) and records by (category,
// position); a Bloom filter in it says which segments have nothing of a stream. Index
// files are mapped into memory where the platform can, after they were checked once;
// records are read with pread and their checksum is checked every time. Checked is also
// that no entry is missing: seqnos have no gaps.
//
// # Space
//
// A trim is a record; its space comes back when a segment is half dead: see reclaim.go.
//
// What was learned from others: the format drawing and the list of crash cases of
// hashicorp/raft-wal; segments named by their base offset of Apache Kafka; a directory
// sync around every create and rename of the papers on crash consistency (Pillai et al.,
// All File Systems Are Not Created Equal, OSDI 2014) and on failing fsyncs (Rebello et
// al., Can Applications Recover from fsync Failures?, USENIX ATC 2020).
package filelog
