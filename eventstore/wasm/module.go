//go:build !wasm

// What a program holds of a guest: a pool of instances of a module that can be changed
// while it is called.

package wasm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Module is a guest that can be called: a compiled module and a pool of instances, each
// with one caller at a time, replaced after any error and when worn. All methods may be
// called from several goroutines at once. No goroutine of a Module outlives a call.
type Module struct {
	o       Options
	metrics *metrics
	slots   chan struct{} // one for each call that runs
	closing chan struct{} // closed by Close: nobody waits for a slot any more

	mu      sync.Mutex
	current *version
	closed  bool
	live    int           // versions that are not let go
	gone    chan struct{} // closed when closed and none is
}

// Open compiles a module and starts one instance of it, to see that it does. It takes
// seconds for a guest in Go, without Options.CacheDir: call it as a program starts, not
// in a request. Errors are *Error: ErrTooLarge, ErrComponent, ErrNotAModule,
// ErrNotAllowed, ErrImport, ErrExport, ErrMemory, ErrCache, ErrInvalid, and those of a
// call from the start of the instance.
func Open(ctx context.Context, module []byte, o *Options) (*Module, error) {
	used, err := o.orDefault()
	if err != nil {
		return nil, err
	}
	used.Allow = slices.Clone(used.Allow)
	m := &Module{o: used, slots: make(chan struct{}, used.Instances), closing: make(chan struct{}), gone: make(chan struct{}), live: 1}
	m.metrics = newMetrics(&m.o)
	if m.current, err = m.load(ctx, module); err != nil {
		return nil, err
	}
	return m, nil
}

// load makes a version with one instance.
func (m *Module) load(ctx context.Context, module []byte) (*version, error) {
	began := time.Now()
	v, err := load(ctx, module, &m.o)
	if err != nil {
		return nil, err
	}
	m.metrics.compiled(ctx, time.Since(began))
	in, err := v.start(ctx)
	if err != nil {
		v.free()
		return nil, err
	}
	m.metrics.started(ctx, in)
	v.idle = append(v.idle, in)
	return v, nil
}

// Info is what the module that is called now says of itself; GzipBytes is not counted.
func (m *Module) Info() Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.info
}

// Hash is the SHA-256, in hex, of the module that is called now.
func (m *Module) Hash() string { return m.Info().SHA256 }

// Call has the guest answer a request. It waits for an instance until ctx ends, and for
// the answer until ctx or the call's own time does. The request is not changed nor kept,
// the reply is the caller's. OpDescribe takes no request.
//
// Errors are *Error. Those of the guest are ErrBadReply, which another try would meet
// again, and ErrTrap, ErrDeadline and ErrMemory, which a try on a fresh instance may not:
// CallFresh. ErrCanceled: ctx was cancelled; ErrOverloaded: it ended while every instance
// was busy. ErrExport: the guest has no such operation. ErrTooLarge, of a request, ErrInvalid
// and ErrClosed are told before anything is called; ErrTooLarge is also a reply over
// MaxReplyBytes, which a try would meet again. After any error the next call is as if
// this one had not been.
func (m *Module) Call(ctx context.Context, op string, request []byte) (reply []byte, err error) {
	reply, _, err = m.call(ctx, op, request, false)
	return reply, err
}

// CallUsage is Call, and says what the call took, which an *Error does too.
func (m *Module) CallUsage(ctx context.Context, op string, request []byte) (reply []byte, used Usage, err error) {
	return m.call(ctx, op, request, false)
}

// CallFresh is Call on an instance that was never called before. It is for a second try
// after an error for which Error.Temporary is true: starting an instance takes
// milliseconds.
func (m *Module) CallFresh(ctx context.Context, op string, request []byte) (reply []byte, err error) {
	reply, _, err = m.call(ctx, op, request, true)
	return reply, err
}

func (m *Module) call(ctx context.Context, op string, request []byte, fresh bool) (reply []byte, used Usage, err error) {
	which := slices.Index(ops[:], op)
	if err := m.check(ctx, which, op, request); err != nil {
		return nil, used, err
	}
	v, err := m.enter(ctx, op)
	if err != nil {
		return nil, used, err
	}
	defer m.leave(v)
	if err := m.has(v, which); err != nil {
		return nil, used, err
	}
	in, err := m.take(ctx, v, fresh)
	if err != nil {
		return nil, used, err
	}
	usable := false
	defer func() { m.give(ctx, in, usable) }() // after a panic too
	reply, used, err = in.call(ctx, which, request)
	usable = err == nil
	m.metrics.called(ctx, op, used.TimeUsed, err)
	return reply, used, err
}

// check is what can be told before a call.
func (m *Module) check(ctx context.Context, which int, op string, request []byte) error {
	switch {
	case which < 0:
		return m.refuse(op, ErrInvalid, fmt.Sprintf("an operation of %q", ops), fmt.Sprintf("%.100q", op), nil)
	case len(request) > m.o.MaxRequestBytes:
		return m.refuse(op, ErrTooLarge, fmt.Sprintf("a request of at most %d bytes", m.o.MaxRequestBytes), fmt.Sprint(len(request)), nil)
	case which == 0 && len(request) > 0:
		return m.refuse(op, ErrInvalid, "no request, describe takes none", fmt.Sprintf("%d bytes", len(request)), nil)
	case ctx.Err() != nil:
		return m.refuse(op, ended(ctx), "a context that goes on", "", ctx.Err())
	}
	return nil
}

// has says if a version has an operation.
func (m *Module) has(v *version, which int) error {
	if !slices.Contains(v.has, ops[which]) {
		return &Error{Kind: ErrExport, Op: ops[which], Name: m.o.Name, Module: v.info.SHA256, Wanted: exportPrefix + ops[which], Found: fmt.Sprintf("a guest for %q", v.has)}
	}
	return nil
}

// enter waits for a slot and returns the version to call.
func (m *Module) enter(ctx context.Context, op string) (*version, error) {
	began := time.Now()
	select {
	case m.slots <- struct{}{}:
	default:
		select {
		case m.slots <- struct{}{}:
		case <-m.closing:
			return nil, m.refuse(op, ErrClosed, "", "", nil)
		case <-ctx.Done():
			return nil, m.refuse(op, ErrOverloaded, fmt.Sprintf("one of %d instances, which are all busy", m.o.Instances),
				fmt.Sprintf("none for %s", time.Since(began).Round(time.Millisecond)), ctx.Err())
		}
	}
	m.metrics.waited(ctx, time.Since(began))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		<-m.slots
		return nil, m.refuse(op, ErrClosed, "", "", nil)
	}
	m.current.calls++
	return m.current, nil
}

// leave ends what enter began. The last call of a version that was replaced closes it.
func (m *Module) leave(v *version) {
	m.mu.Lock()
	v.calls--
	last := v.retired && v.calls == 0
	m.mu.Unlock()
	if last {
		m.free(v)
	}
	<-m.slots
}

// take returns an instance: the one that was used last, or a new one.
func (m *Module) take(ctx context.Context, v *version, fresh bool) (*instance, error) {
	m.mu.Lock()
	var in *instance
	if n := len(v.idle); n > 0 && !fresh {
		in, v.idle = v.idle[n-1], v.idle[:n-1]
	}
	m.mu.Unlock()
	if in == nil {
		var err error
		if in, err = v.start(ctx); err != nil {
			m.metrics.called(ctx, opStart, 0, err)
			return nil, err
		}
		m.metrics.started(ctx, in)
	}
	return in, nil
}

// give puts an instance back, or closes it.
func (m *Module) give(ctx context.Context, in *instance, usable bool) {
	why, worn := in.worn()
	m.mu.Lock()
	v := in.v
	keep := usable && !worn && !v.retired && len(v.idle) < m.o.Instances
	if keep {
		v.idle = append(v.idle, in)
	}
	m.mu.Unlock()
	m.metrics.grown(ctx, in)
	if keep {
		return
	}
	if usable && worn {
		m.metrics.recycled(ctx, why)
	}
	in.close()
	m.metrics.ended(ctx, in)
}

// Swap replaces the module by another, with the same options: calls that run end on the
// old one, those that begin afterwards are of the new one. If the new one does not load
// and start, the error is that of Open and nothing has changed.
func (m *Module) Swap(ctx context.Context, module []byte) error {
	v, err := m.load(ctx, module)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		m.drop(v)
		return m.refuse("swap", ErrClosed, "", "", nil)
	}
	old := m.current
	m.current = v
	m.live++
	unused := m.retire(old)
	m.mu.Unlock()
	if unused {
		m.free(old)
	}
	return nil
}

// retire says that a version gets no more calls, and if it has none now; m.mu is held.
func (m *Module) retire(v *version) (unused bool) {
	v.retired = true
	return v.calls == 0
}

// free lets go of a version that is retired and has no calls.
func (m *Module) free(v *version) {
	m.drop(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live--; m.closed && m.live == 0 {
		close(m.gone)
	}
}

func (m *Module) drop(v *version) {
	for _, in := range v.idle {
		in.close()
		m.metrics.ended(context.Background(), in)
	}
	v.idle = nil
	v.free()
}

// Close has every later call fail with ErrClosed, waits until those that run have ended,
// and lets go of everything. If ctx ends before, its error is returned, and the last call
// lets go. Close may be called again.
func (m *Module) Close(ctx context.Context) error {
	m.mu.Lock()
	first := !m.closed
	unused := false
	if first {
		m.closed = true
		close(m.closing)
		unused = m.retire(m.current)
	}
	m.mu.Unlock()
	if unused {
		m.free(m.current)
	}
	select {
	case <-m.gone:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-m.gone:
		return nil
	default:
		return m.refuse("close", ended(ctx), "all calls ended", "some run", ctx.Err())
	}
}

// ended is the kind of error of a context that has ended.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ErrCanceled
	}
	return ErrDeadline
}

func (m *Module) refuse(op string, kind error, wanted, found string, cause error) error {
	return &Error{Kind: kind, Op: op, Name: m.o.Name, Module: m.Hash(), Wanted: wanted, Found: found, Cause: cause}
}
