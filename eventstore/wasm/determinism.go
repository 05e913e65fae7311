//go:build !wasm

// Looking for guests that answer differently when warmed.

package wasm

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// Request is one call, for CheckDeterminism.
type Request struct {
	Op    string
	Bytes []byte
}

// warmRounds is how often the warmed instance answers all requests.
const warmRounds = 3

// CheckDeterminism answers each request on an instance of its own, and all of them,
// several times over, on one instance that is not changed in between. Where the replies
// differ the guest decides by something it was not given: the order of a map, a clock,
// what it remembers of earlier calls. The error is then an ErrNondeterministic that names
// operation, request and first differing byte. An error of a call is returned, with the
// number of its request.
// It takes one slot for all of it, however long that is; no other call shares the
// instances.
func (m *Module) CheckDeterminism(ctx context.Context, requests []Request) error {
	for i, r := range requests {
		if err := m.check(ctx, slices.Index(ops[:], r.Op), r.Op, r.Bytes); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	v, err := m.enter(ctx, opStart)
	if err != nil {
		return err
	}
	defer m.leave(v)
	want := make([][]byte, len(requests))
	for i, r := range requests {
		if want[i], err = m.answerFresh(ctx, v, r); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return m.compareWarm(ctx, v, requests, want)
}

// answerFresh answers on an instance of its own.
func (m *Module) answerFresh(ctx context.Context, v *version, r Request) ([]byte, error) {
	in, err := m.startFor(ctx, v, r.Op)
	if err != nil {
		return nil, err
	}
	defer in.close()
	reply, _, err := in.call(ctx, slices.Index(ops[:], r.Op), r.Bytes)
	return reply, err
}

// compareWarm answers all requests on one instance and compares.
func (m *Module) compareWarm(ctx context.Context, v *version, requests []Request, want [][]byte) error {
	if len(requests) == 0 {
		return nil
	}
	in, err := m.startFor(ctx, v, requests[0].Op)
	if err != nil {
		return err
	}
	defer in.close()
	for round := range warmRounds {
		for i, r := range requests {
			reply, _, err := in.call(ctx, slices.Index(ops[:], r.Op), r.Bytes)
			if err != nil {
				return fmt.Errorf("request %d, warmed by %d calls: %w", i, round*len(requests)+i, err)
			}
			if !bytes.Equal(reply, want[i]) {
				return m.differ(v, i, r.Op, want[i], reply, round*len(requests)+i)
			}
		}
	}
	return nil
}

// startFor starts an instance for an operation that has to be there.
func (m *Module) startFor(ctx context.Context, v *version, op string) (*instance, error) {
	if err := m.has(v, slices.Index(ops[:], op)); err != nil {
		return nil, err
	}
	return v.start(ctx)
}

func (m *Module) differ(v *version, i int, op string, fresh, warm []byte, calls int) error {
	at := 0
	for at < len(fresh) && at < len(warm) && fresh[at] == warm[at] {
		at++
	}
	around := func(b []byte) string { return fmt.Sprintf("%.80q", b[max(0, at-20):min(len(b), at+40)]) }
	return &Error{Kind: ErrNondeterministic, Op: op, Name: m.o.Name, Module: v.info.SHA256,
		Wanted: fmt.Sprintf("for request %d what a fresh instance answers, %d bytes with %s", i, len(fresh), around(fresh)),
		Found:  fmt.Sprintf("another byte %d of %d, %s, after %d calls", at, len(warm), around(warm), calls),
		Hint:   "sort what comes out of maps, and use no clock, no random and no variable that outlives a call"}
}
