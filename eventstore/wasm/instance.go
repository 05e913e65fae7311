//go:build !wasm

// One instance of a guest: its memory, its stderr, and a call from request to reply.

package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"
)

// instance has one caller at a time and is not used again after an error.
type instance struct {
	v      *version
	module api.Module
	alloc  api.Function
	ops    [len(ops)]api.Function // nil where there is no export
	memory linear
	stderr ends
	calls  int

	recorded int64 // memory, in the metrics
}

// start makes an instance, within Options.StartTimeout.
func (v *version) start(ctx context.Context) (*instance, error) {
	in := &instance{v: v, memory: linear{limit: uint64(v.o.memoryLimit())}, stderr: ends{most: v.o.MaxStderrBytes}}
	c := call{in: in, op: opStart, ctx: ctx, limit: v.o.StartTimeout, began: time.Now()}
	limited, cancel := context.WithTimeout(ctx, v.o.StartTimeout)
	defer cancel()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(exportInitialize).WithStderr(&in.stderr)
	module, err := v.runtime.InstantiateModule(experimental.WithMemoryAllocator(limited, &in.memory), v.code, config)
	if err != nil {
		return nil, c.failed(limited, err)
	}
	in.module, in.alloc = module, module.ExportedFunction(exportAlloc)
	for i, op := range ops {
		in.ops[i] = module.ExportedFunction(exportPrefix + op)
	}
	if module.IsClosed() || in.alloc == nil || in.ops[0] == nil {
		in.close()
		return nil, c.failed(limited, errors.New("the instance ended itself as it started"))
	}
	return in, nil
}

func (in *instance) close() {
	if in.module != nil {
		closeQuietly(in.module)
	}
}

// worn says if the instance is to be replaced, and why.
func (in *instance) worn() (why string, yes bool) {
	switch {
	case in.calls >= in.v.o.RecycleCalls:
		return "calls", true
	case in.memory.size() > in.v.o.memoryLimit()/2:
		return "memory", true
	}
	return "", false
}

// call is one call, for its errors.
type call struct {
	in    *instance
	op    string
	ctx   context.Context // the caller's
	limit time.Duration   // of the time; 0: none
	began time.Time
}

// call calls the guest. The instance is not usable after an error. The reply is a copy.
func (in *instance) call(ctx context.Context, op int, request []byte) (reply []byte, used Usage, err error) {
	c := call{in: in, op: ops[op], ctx: ctx, began: time.Now()}
	in.calls++
	in.stderr.reset()
	in.memory.refused = 0
	if in.v.o.Trusted {
		reply, err = c.run(ctx, op, request)
		return reply, c.usage(), err
	}
	c.limit = in.v.o.timeout(c.op)
	limited, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	if at, ok := limited.Deadline(); ok {
		c.limit = min(c.limit, at.Sub(c.began))
	}
	reply, err = c.run(limited, op, request)
	if err == nil && (limited.Err() != nil || time.Since(c.began) > c.limit) {
		// It was not stopped: a call tree without loops is not. Nor may anybody else get this
		// instance: what watches the context may close it a moment after the call.
		return nil, c.usage(), c.late(limited)
	}
	return reply, c.usage(), err
}

// run is the call within its time.
func (c *call) run(ctx context.Context, op int, request []byte) ([]byte, error) {
	var stack [1]uint64
	if op != 0 { // describe takes no request
		if err := c.put(ctx, request); err != nil {
			return nil, err
		}
		stack[0] = uint64(len(request))
	}
	if err := c.in.ops[op].CallWithStack(ctx, stack[:]); err != nil {
		return nil, c.failed(ctx, err)
	}
	return c.reply(stack[0])
}

// put copies the request to where the guest wants it.
func (c *call) put(ctx context.Context, request []byte) error {
	stack := [1]uint64{uint64(len(request))}
	if err := c.in.alloc.CallWithStack(ctx, stack[:]); err != nil {
		return c.failed(ctx, err)
	}
	at := api.DecodeU32(stack[0])
	if !c.in.module.Memory().Write(at, request) {
		return c.bad(fmt.Sprintf("room for %d bytes in memory from es1_alloc", len(request)), fmt.Sprintf("address %d of %d bytes", at, c.in.memory.size()))
	}
	return nil
}

// reply copies the reply that a result points to, after looking at what it claims.
func (c *call) reply(result uint64) ([]byte, error) {
	if result == 0 {
		return nil, c.bad("a reply", "0, an internal error of the guest")
	}
	at, n := uint32(result>>32), uint32(result)
	b, ok := c.in.module.Memory().Read(at, n) // a view: nothing is copied
	if !ok {
		return nil, c.bad("a reply in memory", fmt.Sprintf("%d bytes at %d of %d", n, at, c.in.memory.size()))
	}
	if len(b) > c.in.v.o.MaxReplyBytes {
		e := c.facts()
		e.Kind, e.Hint = ErrTooLarge, "raise MaxReplyBytes, or ask for less"
		e.Wanted, e.Found = fmt.Sprintf("a reply of at most %d bytes", c.in.v.o.MaxReplyBytes), fmt.Sprintf("%d bytes", n)
		return nil, e
	}
	return bytes.Clone(b), nil
}

// failed makes an error of one that the runtime gives. What the guest can choose, as an
// exit code, is not believed: time is over only if the context says so.
func (c *call) failed(ctx context.Context, err error) error {
	e := c.facts()
	_, stopped := errors.AsType[*sys.ExitError](err)
	switch {
	case stopped && ctx.Err() != nil:
		e.Kind, e.Wanted, e.Cause = ended(ctx), inTime, c.ctx.Err()
		return e
	case c.in.memory.refused > 0:
		e.Kind, e.Hint = ErrMemory, "raise MemoryPages, or send it less"
		e.Wanted = fmt.Sprintf("at most %s", mebibytes(e.MemoryLimit))
		e.Found = fmt.Sprintf("%s asked for", mebibytes(int64(c.in.memory.refused)))
	default:
		e.Kind = ErrTrap
	}
	why, stack, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	e.Stack = head(strings.ReplaceAll(stack, "\t", ""), c.in.v.o.MaxStderrBytes)
	if e.Found == "" {
		e.Found = cut(why)
	}
	if a, ok := errors.AsType[*abortError](err); ok {
		e.Found = a.Error()
	}
	return e
}

const inTime = "an answer in time"

// late is the error of an answer that came too late.
func (c *call) late(ctx context.Context) error {
	e := c.facts()
	e.Kind, e.Wanted, e.Found, e.Cause = ended(ctx), inTime, "one that came late", c.ctx.Err()
	return e
}

func (c *call) bad(wanted, found string) error {
	e := c.facts()
	e.Kind, e.Wanted, e.Found = ErrBadReply, wanted, found
	return e
}

// facts is an error with what every error of a call tells.
func (c *call) facts() *Error {
	return &Error{Op: c.op, Name: c.in.v.o.Name, Module: c.in.v.info.SHA256, Stderr: c.in.stderr.String(), Usage: c.usage()}
}

func (c *call) usage() Usage {
	return Usage{MemoryUsed: c.in.memory.size(), MemoryLimit: c.in.v.o.memoryLimit(), TimeUsed: time.Since(c.began), TimeLimit: c.limit}
}

// linear is the memory of an instance: it grows to a limit, and tells what it refused.
type linear struct {
	limit   uint64
	b       []byte
	refused uint64 // size that was asked for in vain, last
}

// Allocate implements experimental.MemoryAllocator: an instance has one memory.
func (l *linear) Allocate(_, _ uint64) experimental.LinearMemory { return l }

// Reallocate implements experimental.LinearMemory.
func (l *linear) Reallocate(size uint64) []byte {
	if size > l.limit {
		l.refused = size
		return nil
	}
	if size > uint64(len(l.b)) {
		l.b = append(l.b, make([]byte, size-uint64(len(l.b)))...)
	}
	return l.b
}

// Free implements experimental.LinearMemory.
func (l *linear) Free() {}

func (l *linear) size() int64 { return int64(len(l.b)) }

// ends keeps both ends of what is written, within a bound: a guest's last words are
// rarely its first.
type ends struct {
	most       int
	head, tail []byte
	lost       bool
}

// Write implements io.Writer and takes everything.
func (e *ends) Write(b []byte) (int, error) {
	n := len(b)
	room := min(e.most/2-len(e.head), n)
	e.head = append(e.head, b[:room]...)
	if b = b[room:]; len(b) == 0 {
		return n, nil
	}
	keep := e.most - e.most/2
	if len(b) > keep {
		b, e.lost = b[len(b)-keep:], true
	}
	if over := len(e.tail) + len(b) - keep; over > 0 {
		e.tail = append(e.tail[:0], e.tail[over:]...)
		e.lost = true
	}
	e.tail = append(e.tail, b...)
	return n, nil
}

func (e *ends) reset() { e.head, e.tail, e.lost = e.head[:0], e.tail[:0], false }

func (e *ends) String() string {
	if e.lost {
		return string(e.head) + "\n…\n" + string(e.tail)
	}
	return string(e.head) + string(e.tail)
}
