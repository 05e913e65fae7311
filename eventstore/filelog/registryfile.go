// The registry as a file: written now and then, so that opening need not replay every
// record ever written.
//
//	head, 64 bytes  magic "wattleRG" · u32 format · u32 zero · incarnation ·
//	                u64 position · u64 length of the body · zeros · u32 CRC-32C of the
//	                whole file but these four bytes
//	body            categories, streams, holds, leases, each list behind its length

package filelog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	registryMagic  = "wattleRG"
	registryHeader = 64
)

// leastStream is what the shortest stream takes: two numbers, a name of three bytes
// behind its length, epoch, holder, last mark, trimmed, time, and whether there is a
// snapshot.
const leastStream = 2 + 4 + 1 + 16 + 1 + 16 + 1 + 1 + 1

// encodeRegistry returns the file of a registry as it stands.
func encodeRegistry(r *registry, incarnation eventstore.UUID) []byte {
	e := encoder{b: make([]byte, 0, registryHeader+1024+100*len(r.streams))}
	e.b = append(e.b, registryMagic...)
	e.u32(FormatVersion)
	e.u32(0)
	e.uuid(incarnation)
	e.u64(r.position)
	e.b = append(e.b, make([]byte, registryHeader-len(e.b))...)
	e.categories(r)
	e.uint(uint64(len(r.ordinals))) // the next ordinal
	e.uint(uint64(len(r.streams)))
	for _, st := range r.ordinals {
		if st != nil {
			e.stream(st)
		}
	}
	e.uint(uint64(len(r.holds)))
	for _, k := range slices.SortedFunc(maps.Keys(r.holds), holdKey.compare) {
		e.hold(r.holds[k])
	}
	e.uint(uint64(len(r.leases)))
	for _, name := range slices.Sorted(maps.Keys(r.leases)) {
		e.lease(r.leases[name])
	}
	binary.LittleEndian.PutUint64(e.b[40:], uint64(len(e.b)-registryHeader))
	binary.LittleEndian.PutUint32(e.b[registryHeader-4:], registryChecksum(e.b))
	return e.b
}

func (e *encoder) categories(r *registry) {
	e.uint(uint64(r.lastNumber))
	e.uint(uint64(len(r.numbers)))
	for _, n := range slices.Sorted(maps.Keys(r.numbers)) {
		c := r.numbers[n]
		e.uint(uint64(n))
		e.spec(c.spec)
		e.uint(uint64(c.trimmedTo))
	}
}

func (e *encoder) stream(st *stream) {
	e.ref(st.ref())
	e.uint(uint64(st.head.Epoch))
	e.uuid(st.head.Holder)
	e.mark(st.head.Last)
	e.uint(uint64(st.head.Trimmed))
	e.int(st.time)
	e.bool(st.snapshot != nil)
	if sn := st.snapshot; sn != nil {
		e.mark(sn.at)
		e.uint(sn.position)
	}
}

func registryChecksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:registryHeader-4], castagnoli), castagnoli, b[registryHeader:])
}

// decodeRegistry reads the file of a registry.
func decodeRegistry(b []byte, incarnation eventstore.UUID) (*registry, error) {
	if len(b) < registryHeader || !bytes.HasPrefix(b, []byte(registryMagic)) {
		return nil, fmt.Errorf("%w: not a registry", errDamaged)
	}
	if registryChecksum(b) != binary.LittleEndian.Uint32(b[registryHeader-4:]) {
		return nil, fmt.Errorf("%w: checksum of the registry", errDamaged)
	}
	d := &decoder{b: b[len(registryMagic):registryHeader]}
	if v := d.u32(); v > FormatVersion {
		return nil, errNewer{v}
	}
	d.u32()
	if is := d.uuid(); is != incarnation {
		return nil, fmt.Errorf("%w: the registry of another store, %v", errDamaged, is)
	}
	r := newRegistry()
	r.position = d.u64()
	if n := d.u64(); n != uint64(len(b)-registryHeader) {
		return nil, fmt.Errorf("%w: %d bytes of a registry, %d wanted", errDamaged, len(b)-registryHeader, n)
	}
	d = &decoder{b: b[registryHeader:]}
	r.decodeCategories(d)
	r.decodeStreams(d)
	for range d.count(21) {
		h := d.hold()
		r.holds[keyOf(h)] = h
	}
	for range d.count(leastLease) {
		l := d.lease()
		r.leases[l.Name] = l
	}
	return r, d.end()
}

func (r *registry) decodeCategories(d *decoder) {
	r.lastNumber = uint32(d.uint())
	for range d.count(5) {
		c := &category{number: uint32(d.uint()), spec: d.spec(), trimmedTo: eventstore.Position(d.uint())}
		if r.categories[c.spec.Name] != nil || r.numbers[c.number] != nil {
			d.fail()
			return
		}
		r.categories[c.spec.Name], r.numbers[c.number] = c, c
	}
}

// decodeStreams reads the streams. Their names are pieces of one string: a million
// small ones would cost more than what stands in them.
func (r *registry) decodeStreams(d *decoder) {
	next := d.uint()
	if next > 1<<32 {
		d.fail()
		return
	}
	n := d.count(leastStream)
	r.streams = make(map[eventstore.Stream]*stream, n)
	r.ordinals = make([]*stream, 1, n+1)
	all := make([]stream, n)
	for i := range all {
		st := &all[i]
		ref := d.ref()
		st.ordinal, st.name, st.category = ref.ordinal, ref.name, r.numbers[ref.category]
		st.head = eventstore.Head{Epoch: eventstore.Epoch(d.uint()), Holder: d.uuid(), Last: d.mark(), Trimmed: eventstore.Seqno(d.uint())}
		st.time = d.int()
		if d.bool() {
			r.keepSnapshot(st, &snapshotRef{at: d.mark(), position: d.uint()})
		}
		if d.err != nil || st.category == nil || r.streams[st.name] != nil || uint64(st.ordinal) >= next || int(st.ordinal) < len(r.ordinals) {
			d.fail()
			return
		}
		st.slot = st.name.Slot()
		r.put(st)
	}
	for uint64(len(r.ordinals)) < next {
		r.ordinals = append(r.ordinals, nil)
	}
}
