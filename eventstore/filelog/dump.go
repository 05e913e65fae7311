// Dump: what stands in the files, for people.

package filelog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// DumpOptions say what of a store is printed.
type DumpOptions struct {
	Segment uint64 // base position of the only segment to print; 0: all
	JSON    bool   // one JSON object a line instead of text
	Data    bool   // payloads too
}

// Dump prints manifest, registry, segments with their records, and indexes of the store
// in a directory, damaged or not. It reads only, and may run beside the owner: it shows
// what stands there, whether it was acked or not.
func Dump(ctx context.Context, w io.Writer, dir string, o *DumpOptions) error {
	files, err := vfs.OS(dir, &vfs.OSOptions{ReadOnly: true})
	if err != nil {
		return unavailable("dump", "", err)
	}
	defer files.Close()
	d := &dumper{ctx: ctx, w: w, log: newLog(files, dir, &Options{ReadOnly: true})}
	if o != nil {
		d.o = *o
	}
	return d.run()
}

type dumper struct {
	ctx context.Context
	w   io.Writer
	o   DumpOptions
	log *Log
}

// line is one thing in a store.
type line struct {
	File     string `json:"file"`
	Offset   int64  `json:"offset"`
	Bytes    int64  `json:"bytes"`
	What     string `json:"what"`
	Position uint64 `json:"position,omitempty"`
	Synced   uint64 `json:"synced,omitempty"`
	Detail   any    `json:"detail,omitempty"`
	Damage   string `json:"damage,omitempty"`
	text     string
}

func (d *dumper) print(l line) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if d.o.JSON {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(d.w, "%s\n", b)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %8d +%-6d %-16s", l.File, l.Offset, l.Bytes, l.What)
	if l.Position > 0 {
		fmt.Fprintf(&b, " position %d", l.Position)
	}
	if l.text != "" {
		b.WriteString(" " + l.text)
	}
	if l.Damage != "" {
		b.WriteString(" DAMAGED: " + l.Damage)
	}
	_, err := fmt.Fprintln(d.w, b.String())
	return err
}

func (d *dumper) run() error {
	m, err := d.manifest()
	if err != nil || m == nil {
		return err
	}
	if m.registry > 0 && d.o.Segment == 0 {
		if err := d.registry(m); err != nil {
			return err
		}
	}
	for _, e := range m.segments {
		if d.o.Segment != 0 && d.o.Segment != e.base {
			continue
		}
		if err := d.segment(d.log.segmentOf(e)); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) manifest() (*manifest, error) {
	b, err := readFile(d.log.fs, manifestName)
	if err != nil {
		return nil, unavailable("dump", "", err)
	}
	l := line{File: manifestName, Bytes: int64(len(b)), What: "manifest"}
	m, err := decodeManifest(b)
	if err != nil {
		l.Damage = err.Error()
		return nil, d.print(l)
	}
	d.log.incarnation = m.incarnation
	l.text = fmt.Sprintf("store %v, edition %d, registry at position %d, %d segments", m.incarnation, m.edition, m.registry, len(m.segments))
	type entry struct {
		File string `json:"file"`
		Size int64  `json:"size"`
		End  uint64 `json:"last_position"`
	}
	var all []entry
	for _, s := range m.segments {
		all = append(all, entry{s.name(), s.size, s.end})
		l.text += fmt.Sprintf("\n    %s  %d bytes, last position %d", s.name(), s.size, s.end)
	}
	l.Detail = map[string]any{"incarnation": m.incarnation, "edition": m.edition, "registry": m.registry, "segments": all}
	return m, d.print(l)
}

func (d *dumper) registry(m *manifest) error {
	l := line{File: registryName(m.registry), What: "registry", Position: m.registry}
	b, err := readFile(d.log.fs, l.File)
	if err != nil {
		l.Damage = err.Error()
		return d.print(l)
	}
	l.Bytes = int64(len(b))
	r, err := decodeRegistry(b, m.incarnation)
	if err != nil {
		l.Damage = err.Error()
		return d.print(l)
	}
	l.text = fmt.Sprintf("%d categories, %d streams, %d holds, %d leases", len(r.categories), len(r.streams), len(r.holds), len(r.leases))
	l.Detail = map[string]int{"categories": len(r.categories), "streams": len(r.streams), "holds": len(r.holds), "leases": len(r.leases)}
	if err := d.print(l); err != nil {
		return err
	}
	for _, st := range r.ordinals {
		if st == nil {
			continue
		}
		err := d.print(line{File: l.File, What: "stream", Detail: map[string]any{"stream": st.name, "ordinal": st.ordinal, "head": st.head},
			text: fmt.Sprintf("%d %q epoch %d last %v trimmed %d", st.ordinal, st.name, st.head.Epoch, st.head.Last, st.head.Trimmed)})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) segment(s *segment) error {
	f, err := s.use()
	if err != nil {
		return d.print(line{File: s.name(), What: "segment", Damage: err.Error()})
	}
	defer s.retire()
	defer s.release()
	size := s.size
	if s.end == 0 {
		if size, err = f.Size(); err != nil {
			return unavailable("dump", "", err)
		}
	}
	l := line{File: s.name(), Bytes: segmentHeader, What: "segment", text: fmt.Sprintf("base %d, generation %d, salt %08x", s.base, s.generation, s.salt)}
	if err := d.log.checkHeader(s); err != nil {
		l.Damage = err.Error()
	}
	if err := d.print(l); err != nil {
		return err
	}
	for p, err := range salvage(s, f, size) {
		if err != nil {
			return err
		}
		if err := d.print(d.piece(s, f, p)); err != nil {
			return err
		}
	}
	return d.index(s)
}

func (d *dumper) piece(s *segment, f vfs.File, p piece) line {
	l := line{File: s.name(), Offset: p.offset, Bytes: p.size}
	if p.body == nil {
		l.What = "hole"
		if b := make([]byte, min(p.size, scanChunk)); s.end == 0 {
			if n, _ := f.ReadAt(b, p.offset); !slices.ContainsFunc(b[:n], func(c byte) bool { return c != 0 }) {
				l.What, l.text = "free", "allocated, not written"
				return l
			}
		}
		l.Damage = "no record"
		return l
	}
	l.What, l.Position, l.Synced = p.head.kind.String(), p.head.position, uint64(p.head.synced)
	l.text, l.Detail = d.body(p.body)
	return l
}

// body describes the content of a record.
func (d *dumper) body(b body) (text string, detail any) {
	switch b := b.(type) {
	case appendBody:
		var parts []string
		var all []map[string]any
		for i := range b.batches {
			t, m := d.batch(&b.batches[i])
			parts, all = append(parts, t), append(all, m)
		}
		return strings.Join(parts, ""), all
	case fenceBody:
		return fmt.Sprintf("%q epoch %d holder %v", b.name, b.epoch, b.holder), map[string]any{"stream": b.name, "epoch": b.epoch, "holder": b.holder}
	case trimBody:
		return fmt.Sprintf("%q through %d", b.name, b.through), map[string]any{"stream": b.name, "through": b.through}
	case snapshotBody:
		return fmt.Sprintf("%q at %v, %d bytes", b.name, b.snapshot.At, len(b.snapshot.Data)), map[string]any{"stream": b.name, "at": b.snapshot.At, "bytes": len(b.snapshot.Data)}
	case createCategoryBody:
		return fmt.Sprintf("number %d, %v", b.number, b.spec), map[string]any{"number": b.number, "category": b.spec.String()}
	case deleteCategoryBody:
		return fmt.Sprintf("number %d", b.number), map[string]any{"number": b.number}
	case createStreamsBody:
		var names []eventstore.Stream
		for _, r := range b.streams {
			names = append(names, r.name)
		}
		return fmt.Sprintf("%q", names), names
	case dropStreamBody:
		return fmt.Sprintf("%q", b.name), b.name
	case setHoldBody:
		return fmt.Sprintf("%q on %q %q at %d, position %d", b.hold.Name, b.hold.Category, b.hold.Stream, b.hold.Seqno, b.hold.Position), b.hold
	case releaseHoldBody:
		return fmt.Sprintf("%q on %q %q", b.name, b.category, b.stream), map[string]any{"hold": b.name, "category": b.category, "stream": b.stream}
	case leaseBody:
		text := ""
		for _, l := range b.leases {
			text += fmt.Sprintf(" %q epoch %d holder %v until %s", l.Name, l.Epoch, l.Holder, l.Until.Format(time.RFC3339Nano))
		}
		return strings.TrimPrefix(text, " "), b.leases
	}
	return "", nil
}

func (d *dumper) batch(b *batch) (string, map[string]any) {
	text := fmt.Sprintf("\n    %q (%d) %d…%d, epoch %d, batch %v, %s", b.name, b.ordinal, b.first, b.last(), b.epoch, b.id, time.UnixMicro(b.time).UTC().Format(time.RFC3339Nano))
	var events []map[string]any
	for j := range b.events {
		ev := &b.events[j]
		text += fmt.Sprintf("\n        %d %s %v, version %d, %s, %d bytes", b.first+eventstore.Seqno(j), ev.Type, ev.ID, ev.Version, ev.ContentType, len(ev.Data))
		m := map[string]any{"seqno": b.first + eventstore.Seqno(j), "id": ev.ID, "type": ev.Type, "version": ev.Version,
			"content_type": ev.ContentType, "bytes": len(ev.Data), "metadata": ev.Metadata}
		if d.o.Data {
			text += " " + shown(ev.Data)
			m["data"] = ev.Data
		}
		events = append(events, m)
	}
	return text, map[string]any{"stream": b.name, "ordinal": b.ordinal, "epoch": b.epoch, "holder": b.holder, "batch": b.id,
		"time": time.UnixMicro(b.time).UTC(), "position": b.position, "events": events}
}

// shown is a payload on one line.
func shown(b []byte) string {
	if utf8.Valid(b) && !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' }) {
		return string(b)
	}
	return "hex " + hex.EncodeToString(b)
}

func (d *dumper) index(s *segment) error {
	if s.end == 0 {
		return nil
	}
	l := line{File: indexName(s.base, s.generation), What: "index"}
	b, err := readFile(d.log.fs, l.File)
	if err != nil {
		if absent(err) {
			l.text = "none: it is made again when it is needed"
		} else {
			l.Damage = err.Error()
		}
		return d.print(l)
	}
	l.Bytes = int64(len(b))
	x, err := decodeIndex(b, s.header, s.size)
	if err != nil {
		l.Damage = err.Error()
		return d.print(l)
	}
	streams := map[uint32]bool{}
	x.each(func(r row) { streams[r.ordinal] = true })
	l.text = fmt.Sprintf("%d rows of %d streams, %d categories, %d places, filter of %d bytes", len(x.rowTable)/rowSize, len(streams),
		len(x.categoryTable)/categorySize, len(x.placeTable)/placeSize, len(x.filter))
	l.Detail = map[string]int{"rows": len(x.rowTable) / rowSize, "streams": len(streams), "categories": len(x.categoryTable) / categorySize,
		"places": len(x.placeTable) / placeSize, "filter_bytes": len(x.filter)}
	return d.print(l)
}

// IsStore says if a directory holds a store: if it has a manifest. What else is there,
// or a directory that is not, is no error.
func IsStore(dir string) (bool, error) {
	files, err := vfs.OS(dir, &vfs.OSOptions{ReadOnly: true})
	if err == nil {
		defer files.Close()
		var f vfs.File
		if f, err = files.Open(manifestName); err == nil {
			return true, f.Close()
		}
	}
	if absent(err) {
		return false, nil
	}
	return false, unavailable("open", "", err)
}
