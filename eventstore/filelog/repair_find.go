// Repair: finding what there is, with and without a manifest.

package filelog

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// findSegments reads the manifest, or finds the segments by their names.
func (r *repairer) findSegments() error {
	m, err := r.log.readManifest()
	switch {
	case err == nil && m != nil:
		r.old = m
	case err == nil, errors.Is(err, eventstore.ErrCorrupt):
		r.note(eventstore.SeverityWarning, eventstore.Finding{Check: "manifest", Wanted: "a manifest", Found: "none, or a damaged one", Hint: "it was made from the segments"})
		if m, err = r.guessManifest(); err != nil {
			return err
		}
	default:
		return err
	}
	r.log.manifest, r.log.incarnation = m, m.incarnation
	for i, e := range m.segments {
		p := &part{segment: r.log.segmentOf(e), end: e.end}
		f, err := p.use()
		if absent(err) {
			r.lost(eventstore.Finding{Check: "segment", Position: eventstore.Position(e.base), Wanted: "file " + e.name(), Found: "none"})
			continue
		}
		if err != nil {
			return unavailable("repair", "", err)
		}
		if i == len(m.segments)-1 || r.old == nil {
			p.size, err = f.Size()
		}
		p.release()
		if err != nil {
			return unavailable("repair", "", err)
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

// guessManifest makes a manifest of the segments that are there. Of several generations
// the newest that is whole counts, with all that it covers.
func (r *repairer) guessManifest() (*manifest, error) {
	names, err := r.log.fs.List()
	if err != nil {
		return nil, unavailable("repair", "", err)
	}
	m := &manifest{}
	for _, name := range names {
		e, h, ok := r.guessSegment(name)
		if !ok {
			continue
		}
		if m.incarnation.IsZero() {
			m.incarnation = h.incarnation
		}
		m.segments = append(m.segments, e)
	}
	if len(m.segments) == 0 {
		return nil, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "repair", Wanted: "at least one segment with a head", Found: "none", Hint: "restore a backup"}
	}
	slices.SortFunc(m.segments, func(a, b segmentEntry) int {
		if a.base != b.base {
			return int(int64(a.base) - int64(b.base))
		}
		return int(b.generation) - int(a.generation)
	})
	m.segments = withoutCovered(m.segments)
	for _, name := range names {
		n, isRegistry := strings.CutSuffix(name, ".reg")
		if p, err := strconv.ParseUint(n, 10, 64); isRegistry && err == nil {
			m.registry = max(m.registry, p)
		}
	}
	if b, err := readFile(r.log.fs, registryName(m.registry)); err == nil && len(b) >= registryHeader {
		m.registrySum = registryChecksum(b)
	}
	return m, nil
}

// guessSegment reads what a segment's file says of itself.
func (r *repairer) guessSegment(name string) (e segmentEntry, h header, ok bool) {
	if !strings.HasSuffix(name, ".log") {
		return e, h, false
	}
	f, err := r.log.fs.Open(name)
	if err != nil {
		return e, h, false
	}
	defer f.Close()
	b := make([]byte, segmentHeader)
	if _, err := f.ReadAt(b, 0); err != nil {
		return e, h, false
	}
	h, err = decodeHeader(b)
	size, serr := f.Size()
	if err != nil || serr != nil || segmentName(h.base, h.generation) != name {
		r.lost(eventstore.Finding{Check: "segment", Wanted: "the head of " + name, Found: "a damaged one, and no manifest that knows its salt"})
		return e, h, false
	}
	s := r.log.segmentOf(segmentEntry{base: h.base, generation: h.generation, salt: h.salt, size: size})
	e = segmentEntry{base: h.base, generation: h.generation, salt: h.salt, size: size, end: h.base}
	for p, err := range salvage(s, f, size) {
		if err == nil && p.body != nil {
			e.end = p.head.position + spanOf(p.body) - 1
		}
	}
	return e, h, true
}

// withoutCovered leaves out older generations of what a newer one holds.
func withoutCovered(all []segmentEntry) (out []segmentEntry) {
	for _, e := range all {
		covered := slices.ContainsFunc(all, func(o segmentEntry) bool {
			return o.generation > e.generation && o.base <= e.base && o.end >= e.end
		})
		if !covered {
			out = append(out, e)
		}
	}
	return out
}

// findRegistry reads the registry file; without it the registry is made of records.
func (r *repairer) findRegistry() error {
	position := r.log.manifest.registry
	if position == 0 {
		r.reg = newRegistry()
		return nil
	}
	reg, err := r.log.readRegistry(r.log.manifest)
	if err == nil {
		r.reg = reg
		return nil
	}
	if !errors.Is(err, eventstore.ErrCorrupt) && !absent(err) {
		return err
	}
	r.reg, r.rebuilt = newRegistry(), true
	r.lost(eventstore.Finding{Check: "registry", Position: eventstore.Position(position), Wanted: "file " + registryName(position), Found: "none, or a damaged one",
		Hint: "it was made from the records; holds, leases and grants whose records had been reclaimed are lost, so every epoch was raised by 2^32"})
	return nil
}
