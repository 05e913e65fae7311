// Messages as the words of eventstore: what stands alone.

package wire

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wattle-es/wattle/eventstore"
)

// reader reads one message and keeps the first thing that is wrong with it.
type reader struct{ err error }

// wrong notes what is wrong with a field.
func (r *reader) wrong(field, wanted, found string) {
	if r.err == nil {
		r.err = &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: field + ": " + wanted, Found: found}
	}
}

// read returns the value of a message, or what is wrong with it and nothing.
func read[M, T any](m M, value func(*reader, M) T) (T, error) {
	var r reader
	v := value(&r, m)
	if r.err != nil {
		var none T
		return none, r.err
	}
	return v, nil
}

// each makes a list of a list of messages; none is nil.
func each[M, T any](r *reader, messages []M, value func(*reader, M) T) []T {
	if len(messages) == 0 {
		return nil
	}
	values := make([]T, len(messages))
	for i, m := range messages {
		if values[i] = value(r, m); r.err != nil {
			return nil
		}
	}
	return values
}

// there notes that a part is missing that must be there.
func there[M any](r *reader, field string, m *M) bool {
	if m == nil {
		r.wrong(field, "it to be set", "nothing")
	}
	return m != nil
}

func (r *reader) uuid(field, s string) eventstore.UUID {
	if s == "" {
		return eventstore.UUID{}
	}
	u, err := eventstore.ParseUUID(s)
	if err != nil {
		r.wrong(field, "a UUID of 8-4-4-4-12 hexadecimal digits, or none", quote(s))
	}
	return u
}

// number reads a seqno, position or epoch.
func number[N ~uint64](r *reader, field string, n uint64) N {
	if n > eventstore.MaxNumber {
		r.wrong(field, "at most 2^63-1", strconv.FormatUint(n, 10))
	}
	return N(n)
}

func (r *reader) count(field string, n uint32) int {
	if n > math.MaxInt32 {
		r.wrong(field, "at most 2^31-1", strconv.FormatUint(uint64(n), 10))
	}
	return int(n)
}

func (r *reader) time(field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if !t.IsValid() {
		r.wrong(field, "a time of the years 1 to 9999", fmt.Sprintf("%d s, %d ns", t.GetSeconds(), t.GetNanos()))
		return time.Time{}
	}
	return t.AsTime().Truncate(time.Microsecond)
}

func (r *reader) duration(field string, d *durationpb.Duration) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	switch s := d.GetSeconds(); {
	case d == nil:
		return 0
	case !d.IsValid(), s >= most, s <= -most:
		r.wrong(field, "a duration of less than 292 years", fmt.Sprintf("%d s, %d ns", s, d.GetNanos()))
		return 0
	}
	return d.AsDuration()
}

func (r *reader) slot(n uint32) eventstore.Slot {
	if n >= eventstore.Slots {
		r.wrong("slot", fmt.Sprintf("below %d", eventstore.Slots), strconv.FormatUint(uint64(n), 10))
		return 0
	}
	return eventstore.Slot(n)
}

// ToUUID reads a UUID; "" is the zero one.
func ToUUID(field, s string) (eventstore.UUID, error) {
	return read(s, func(r *reader, s string) eventstore.UUID { return r.uuid(field, s) })
}

// ToTime reads a time, in UTC to the microsecond; nil is the zero one.
func ToTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	return read(t, func(r *reader, t *timestamppb.Timestamp) time.Time { return r.time(field, t) })
}

// ToDuration reads a duration; nil is 0.
func ToDuration(field string, d *durationpb.Duration) (time.Duration, error) {
	return read(d, func(r *reader, d *durationpb.Duration) time.Duration { return r.duration(field, d) })
}

// ToNumber reads a seqno, position or epoch.
func ToNumber[N ~uint64](field string, n uint64) (N, error) {
	return read(n, func(r *reader, n uint64) N { return number[N](r, field, n) })
}

// ToCount reads a number of something, at most 2^31-1.
func ToCount(field string, n uint32) (int, error) {
	return read(n, func(r *reader, n uint32) int { return r.count(field, n) })
}

// ToStreams returns names as they were said.
func ToStreams(names []string) []eventstore.Stream {
	return all(names, func(s string) eventstore.Stream { return eventstore.Stream(s) })
}

// ToCategories returns names as they were said.
func ToCategories(names []string) []eventstore.Category {
	return all(names, func(s string) eventstore.Category { return eventstore.Category(s) })
}

// ToSlots reads slots.
func ToSlots(slots []uint32) ([]eventstore.Slot, error) {
	return read(slots, func(r *reader, slots []uint32) []eventstore.Slot { return each(r, slots, (*reader).slot) })
}
