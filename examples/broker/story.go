// The story: who publishes, who consumes, who is killed, and what must be so in the end.

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
	"github.com/wattle-es/wattle/topic/remotetopic"
)

const (
	orders     = "orders" // the topic
	partitions = 8
	publishers = 4
	members    = 3
	keys       = 10 // of each publisher
)

// story is what it is told with.
type story struct {
	store, schema string
	messages      int // of each publisher
	ttl           time.Duration
}

func (s *story) tell(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var nodes [2]*exec.Cmd
	var urls []string
	for i := range nodes {
		cmd, url, err := s.start(ctx)
		if err != nil {
			return err
		}
		defer end(cmd)
		nodes[i], urls = cmd, append(urls, url)
	}
	c, err := remotetopic.Open(ctx, urls, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Create(ctx, topic.Spec{Name: orders, Partitions: partitions}); err != nil {
		return err
	}
	began := time.Now()
	l := newLedger(publishers * s.messages)
	var work []func(context.Context) error
	for i := range members {
		work = append(work, func(ctx context.Context) error { return consume(ctx, []string{urls[i%2], urls[(i+1)%2]}, l) })
	}
	half := sync.OnceFunc(func() {
		_ = nodes[0].Process.Kill()
		fmt.Fprintf(out, "after %v one server was killed\n", time.Since(began).Round(time.Millisecond))
	})
	for i := range publishers {
		work = append(work, func(ctx context.Context) error { return s.publish(ctx, []string{urls[i%2], urls[(i+1)%2]}, i, half) })
	}
	if err := together(ctx, work); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d messages handled by %d members in %v, %d delivered again\n", l.handled, members, time.Since(began).Round(time.Millisecond), l.again)
	return stored(ctx, c, out)
}

// together does all of it side by side; the first error ends the rest.
func together(ctx context.Context, work []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, f := range work {
		all.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// start starts a server as a process of its own.
func (s *story) start(ctx context.Context) (*exec.Cmd, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, program, "-node", "-schema", s.schema, "-ttl", s.ttl.String())
	cmd.Env = append(os.Environ(), "BROKER_STORE="+s.store, asProgram+"=yes")
	cmd.Stderr = os.Stderr
	told, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	lines := bufio.NewScanner(told)
	if !lines.Scan() {
		end(cmd)
		return nil, "", errors.New("a server did not start")
	}
	return cmd, lines.Text(), nil
}

// asProgram is for the test, whose binary is not the program.
const asProgram = "BROKER_PROGRAM"

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed: that is no news
}

// publish publishes the messages of one publisher, one after another. Each is sent again
// under its ID until it is answered, whichever server is there.
func (s *story) publish(ctx context.Context, urls []string, who int, half func()) error {
	c, err := remotetopic.Open(ctx, urls, &remotetopic.Options{Timeout: time.Minute, Lazy: true})
	if err != nil {
		return err
	}
	defer c.Close()
	for n := range s.messages {
		if who == 0 && n == s.messages/2 {
			half()
		}
		key := fmt.Sprintf("%d/%d", who, n%keys)
		_, err := c.Publish(ctx, topic.Publication{Topic: orders, Key: key, Events: []eventstore.Event{{Type: "order", Data: fmt.Appendf(nil, `{"n":%d}`, n/keys)}}})
		if err != nil {
			return fmt.Errorf("publisher %d, message %d: %w", who, n, err)
		}
	}
	return nil
}

// consume is one member of the consumer: it handles messages until all are.
func consume(ctx context.Context, urls []string, l *ledger) error {
	c, err := remotetopic.Open(ctx, urls, &remotetopic.Options{Lazy: true})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.done, cancel)()
	member := eventstore.NewUUID()
	for d, err := range c.Consume(ctx, topic.Consumption{Topic: orders, Consumer: "billing", Member: member}) {
		if l.done.Err() != nil {
			return nil
		}
		if err == nil && len(d.Messages) > 0 {
			if err = l.take(d.Messages); err == nil {
				last := d.Messages[len(d.Messages)-1]
				_, err = c.Commit(ctx, topic.Commit{Topic: orders, Consumer: "billing", Member: member, Places: []topic.Place{{Partition: d.Partition, Offset: last.Offset}}})
			}
		}
		if err != nil && l.done.Err() == nil {
			return fmt.Errorf("consumer: %w", err)
		}
	}
	return nil
}

// ledger is the consumer's read model. It keeps how far it is in each partition, so a
// message that is delivered again changes nothing.
type ledger struct {
	done context.Context // ends when all messages are handled
	end  context.CancelFunc

	mu      sync.Mutex
	want    int
	handled int
	again   int
	at      map[int]eventstore.Seqno // by partition
	next    map[string]int           // by key: the number of its next message
}

func newLedger(want int) *ledger {
	l := &ledger{want: want, at: map[int]eventstore.Seqno{}, next: map[string]int{}}
	l.done, l.end = context.WithCancel(context.Background())
	return l
}

func (l *ledger) take(messages []topic.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		if m.Offset <= l.at[m.Partition] {
			l.again++
			continue
		}
		if err := ordered(l.next, m); err != nil {
			return err
		}
		l.at[m.Partition] = m.Offset
		l.handled++
	}
	if l.handled == l.want {
		l.end()
	}
	return nil
}

// ordered holds a message against the one before it of its key.
func ordered(next map[string]int, m topic.Message) error {
	var n int
	if _, err := fmt.Sscanf(string(m.Data), `{"n":%d}`, &n); err != nil {
		return fmt.Errorf("message %d of partition %d: %w", m.Offset, m.Partition, err)
	}
	if n != next[m.Key] {
		return fmt.Errorf("key %s: message %d where %d was to come", m.Key, n, next[m.Key])
	}
	next[m.Key]++
	return nil
}

// stored reads the topic from its beginning: every message is there once, in order.
func stored(ctx context.Context, c topic.Service, out io.Writer) error {
	d, err := c.Describe(ctx, orders)
	if err != nil {
		return err
	}
	left := 0
	for _, p := range d.Partitions {
		left += int(p.Head.Last.Seqno)
	}
	next, read := map[string]int{}, 0
	for d, err := range c.Consume(ctx, topic.Consumption{Topic: orders}) {
		if err != nil {
			return err
		}
		for _, m := range d.Messages {
			if err := ordered(next, m); err != nil {
				return err
			}
			read++
		}
		if read >= left {
			break
		}
	}
	_, err = fmt.Fprintf(out, "%d messages stored, each once, in order for each of %d keys\n", read, len(next))
	return err
}
