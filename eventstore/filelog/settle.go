// What a process that ended without closing its log has left: records of which nobody
// knows that they are durable. Its last sync may have failed. Then the system shows what
// was written, counts it as clean, and a sync of ours would succeed without writing
// anything (Rebello et al.); appends behind it would be acked and cut off with it by a
// loss of power. Writing it again in place could tear what is durable. So it is copied:
// into a new segment, which is durable before the manifest names it.

package filelog

import "slices"

// wholeCopy is up to which size an active segment is copied whole, so that one that is
// left again and again does not become many small ones.
const wholeCopy = 1 << 20

// settle copies what the active segment holds behind its proven size. If there was
// anything, the store is to be recovered anew, from the manifest that was written.
func (l *Log) settle(proven int64) (again bool, err error) {
	s := l.activeSegment()
	if l.readOnly || proven == s.size {
		return false, nil
	}
	if s.size <= wholeCopy {
		proven = segmentHeader
	}
	f, err := s.use()
	if err != nil {
		return false, err
	}
	defer s.release()
	if err := f.Truncate(s.size); err != nil { // what is torn is in the way of nothing, but it takes space
		return false, unavailable("open", "", err)
	}
	next, b, err := l.copyTail(s, proven)
	if err != nil {
		return false, err
	}
	if err := l.createFile(next.name(), b); err != nil {
		return false, unavailable("open", "", err)
	}
	err = l.publish(func(m *manifest) {
		if proven == segmentHeader {
			m.segments = slices.Delete(m.segments, len(m.segments)-1, len(m.segments))
		} else {
			m.active().size, m.active().end = proven, next.base-1
		}
		m.segments = append(m.segments, next)
	})
	if err != nil {
		return false, unavailable("open", "", err)
	}
	return true, nil
}

// copyTail returns the file of a segment with the records behind an offset of another.
func (l *Log) copyTail(s *segment, from int64) (segmentEntry, []byte, error) {
	var b []byte
	h := l.newHeader(l.incarnation, s.base)
	err := s.scan(s.file, from, s.size, func(r recordHead, body []byte, _ int64) error {
		if b == nil {
			if from == segmentHeader {
				h.generation = s.generation + 1
			} else {
				h.base = r.position
			}
			b = h.encode()
		}
		record := append(make([]byte, recordHeader), body...)
		b = append(b, seal(record, recordHead{salt: h.salt, kind: r.kind, position: r.position, synced: segmentHeader}, int64(len(b)))...)
		return nil
	})
	return segmentEntry{base: h.base, generation: h.generation, salt: h.salt, size: int64(len(b))}, b, err
}
