// Repair: the new files, and what is put aside.

package filelog

import (
	"encoding/json"

	"github.com/wattle-es/wattle/eventstore"
)

// write puts the new files in the place of the old ones.
func (r *repairer) write() error {
	if err := r.putAside(); err != nil {
		return unavailable("repair", "", err)
	}
	m := &manifest{incarnation: r.log.incarnation, edition: r.log.manifest.edition + 1}
	var replaced []string
	for _, p := range r.parts {
		e := segmentEntry{p.base, p.generation, p.salt, p.size, p.end}
		if p.holes || p == r.parts[len(r.parts)-1] {
			replaced = append(replaced, p.name())
			next, err := r.rewrite(p)
			if err != nil {
				return unavailable("repair", "", err)
			}
			if next == nil {
				continue
			}
			e = *next
		}
		m.segments = append(m.segments, e)
	}
	h := r.log.newHeader(m.incarnation, r.reg.position+1)
	if err := r.log.createSegment(h); err != nil {
		return unavailable("repair", "", err)
	}
	m.segments = append(m.segments, segmentEntry{base: h.base, salt: h.salt, size: segmentHeader})
	if err := r.writeRegistry(m); err != nil {
		return unavailable("repair", "", err)
	}
	if err := replaceManifest(r.log.fs, m); err != nil {
		return unavailable("repair", "", err)
	}
	wanted := m.wanted() // the new segment may have the name of one that was empty
	for _, name := range replaced {
		if !wanted[name] {
			r.log.fs.Remove(name) // a copy of it was put aside
		}
	}
	return nil
}

// writeRegistry writes the registry under a position of its own, so that no file of that
// name is in its way.
func (r *repairer) writeRegistry(m *manifest) error {
	m.registry = r.reg.position
	name := registryName(m.registry)
	if m.registry == 0 {
		return nil
	}
	if err := r.log.fs.Remove(name); err != nil && !absent(err) {
		return err
	}
	b := encodeRegistry(r.reg, m.incarnation)
	m.registrySum = registryChecksum(b)
	if err := writeFile(r.log.fs, name, b); err != nil {
		return err
	}
	return r.log.fs.SyncDir()
}

// rewrite copies the sound records of a segment into the next generation.
func (r *repairer) rewrite(p *part) (*segmentEntry, error) {
	h := r.log.newHeader(r.log.incarnation, p.base)
	h.generation = p.generation + 1
	out := &rewriter{log: r.log, header: h, index: newMemIndex()}
	f, err := p.use()
	if err != nil {
		return nil, err
	}
	defer p.release()
	last := p.base - 1
	for piece, err := range salvage(p.segment, f, p.size) {
		if err == nil && piece.body != nil && piece.head.position > last {
			last = piece.head.position + spanOf(piece.body) - 1
			err = out.add(piece.head, piece.body)
		}
		if err != nil {
			out.discard()
			return nil, err
		}
	}
	kept, err := out.finish()
	if err != nil || !kept {
		return nil, err
	}
	return &segmentEntry{h.base, h.generation, h.salt, out.size, p.end}, nil
}

// putAside copies damaged files, and writes down entries that can no longer be reached.
func (r *repairer) putAside() error {
	for _, p := range r.parts {
		if p.holes {
			if err := r.copyAside(p.name()); err != nil {
				return err
			}
		}
	}
	if r.old == nil {
		if err := r.copyAside(manifestName); err != nil && !absent(err) {
			return err
		}
	}
	if r.rebuilt {
		if err := r.copyAside(registryName(r.log.manifest.registry)); err != nil && !absent(err) {
			return err
		}
	}
	lines, err := r.unreachable()
	if err != nil || len(lines) == 0 {
		return err
	}
	return r.aside(r.asideName(), lines)
}

func (r *repairer) copyAside(name string) error {
	b, err := readFile(r.log.fs, name)
	if err != nil {
		return err
	}
	return r.aside(name+damagedSuffix, b)
}

// aside writes a file that is none of the store's, in place of one that a repair which
// was interrupted has left.
func (r *repairer) aside(name string, b []byte) error {
	if err := r.log.fs.Remove(name); err != nil && !absent(err) {
		return err
	}
	if err := writeFile(r.log.fs, name, b); err != nil {
		return err
	}
	r.note(eventstore.SeverityNote, eventstore.Finding{Check: "aside", Wanted: "nothing lost in silence", Found: name,
		Hint: "remove it when you do not need it any more"})
	return r.log.fs.SyncDir()
}

// unreachable returns, as lines of JSON, the sound entries that stand before a hole.
func (r *repairer) unreachable() (lines []byte, err error) {
	for _, p := range r.parts {
		f, err := p.use()
		if err != nil {
			return nil, err
		}
		for piece, err := range salvage(p.segment, f, p.size) {
			a, ok := piece.body.(appendBody)
			if err != nil {
				p.release()
				return nil, err
			}
			for i := 0; ok && i < len(a.batches); i++ {
				lines = r.unreachableOf(lines, &a.batches[i])
			}
		}
		p.release()
	}
	return lines, nil
}

func (r *repairer) unreachableOf(lines []byte, b *batch) []byte {
	before, ok := r.trimmedBefore[b.ordinal]
	if !ok {
		return lines
	}
	st := r.reg.at(b.ordinal)
	for j := range b.events {
		e := b.entry(j, b.events[j])
		if e.Seqno > st.head.Trimmed || e.Seqno <= before {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil {
			continue // an entry is always JSON
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines
}
