// wattle read: the history of one stream.

package main

import (
	"bufio"
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

// reading is what the flags of read say.
type reading struct {
	from     string
	backward bool
	last     uint64
}

func (a *app) readCommand() *cobra.Command {
	var r reading
	c := &cobra.Command{
		Use:   "read STREAM",
		Short: "print the entries of a stream",
		Long: `Read prints the entries of a stream in order, from its first that is still there to its last.

With -o json each entry is one object on a line, with the keys stream, seqno, position, epoch,
time, id, batch, type, version, content_type, metadata and data. Data that is no JSON is in
data_base64 instead; in the table it is quoted, or in base64 when it is no text.`,
		Example: `  wattle read application-173688
  wattle read application-173688 --from 5 -o json
  wattle read application-173688 --last 10
  wattle read application-173688 --backward --last 1`,
		Args: arguments("STREAM"),
		RunE: func(c *cobra.Command, args []string) error {
			stream, err := eventstore.ParseStream(args[0])
			if err != nil {
				return err
			}
			from, err := r.parse()
			if err != nil {
				return err
			}
			return a.opened(c.Context(), open.Options{ReadOnly: true}, func(s *open.Store) error {
				return a.read(c.Context(), s, stream, from, r)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.from, "from", "", "seqno of the first entry to print")
	f.BoolVar(&r.backward, "backward", false, "print the newest first, down from --from")
	f.Uint64Var(&r.last, "last", 0, "print only the last `N` entries")
	return c
}

// parse returns the seqno of --from, 0 without it.
func (r *reading) parse() (eventstore.Seqno, error) {
	if r.from == "" {
		return 0, nil
	}
	from, err := eventstore.ParseSeqno(r.from)
	if err == nil && r.last > 0 && !r.backward {
		err = &usageError{"--from or --last", "both", "with --backward they go together"}
	}
	return from, err
}

func (a *app) read(ctx context.Context, s *open.Store, stream eventstore.Stream, from eventstore.Seqno, r reading) error {
	head, err := s.Head(ctx, stream)
	if err != nil {
		return err
	}
	if head == (eventstore.Head{}) {
		return &eventstore.Error{Kind: eventstore.ErrNoSuchStream, Op: "read", Stream: stream, Wanted: "a stream with entries", Found: "none",
			Hint: "see what there is: wattle tail " + string(stream.Category())}
	}
	out := bufio.NewWriter(a.stdout)
	p := &entryPrinter{w: out, json: a.output == outputJSON}
	left := r.last
	for e, err := range r.entries(ctx, s, stream, from, head) {
		if err != nil {
			return flushed(out, err)
		}
		if err := p.print(e); err != nil {
			return err
		}
		if left--; left == 0 { // without --last it never gets there
			break
		}
	}
	return out.Flush()
}

// flushed prints what there is before an error.
func flushed(out *bufio.Writer, err error) error {
	_ = out.Flush() // the error that matters is err
	return err
}

// entries are those asked for, with --last perhaps more at the end.
func (r *reading) entries(ctx context.Context, s *open.Store, stream eventstore.Stream, from eventstore.Seqno, head eventstore.Head) iter.Seq2[eventstore.Entry, error] {
	if r.backward {
		if from > 0 && from < eventstore.MaxNumber {
			from++ // ReadBackward begins below
		}
		if head.Last.Seqno == head.Trimmed && from == 0 {
			return func(func(eventstore.Entry, error) bool) {} // all trimmed: nothing is no error
		}
		return s.ReadBackward(ctx, stream, from)
	}
	after := head.Trimmed
	switch {
	case from > 0:
		after = from - 1
	case r.last > 0 && uint64(head.Last.Seqno-head.Trimmed) > r.last:
		after = head.Last.Seqno - eventstore.Seqno(r.last)
	}
	return s.Read(ctx, stream, after)
}

// checkRange is the rule of a flag that takes a bounded number.
func checkRange(flag string, n, least, most int) error {
	if n >= least && n <= most {
		return nil
	}
	return &usageError{fmt.Sprintf("%s of %d to %d", flag, least, most), fmt.Sprint(n), ""}
}
