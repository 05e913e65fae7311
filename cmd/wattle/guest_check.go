// wattle guest test: whether a module is fit to be called.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
)

// The rules of a guest beside those of every handler.
const (
	ruleTraps   = "what is no request is answered, not trapped on"
	ruleWarm    = "equal requests have equal replies, of a fresh instance and of a warmed one"
	ruleHandler = "it describes itself as a handler"
)

const guestTestLong = `Test runs a guest through what can be known of every guest, and then through the conformance suite
of handlers (see wattle handler test):

  - bytes that are no request must not trap it, nor cost it its time or memory
  - its replies must be the same from a fresh instance and from one that has answered before

--requests are requests of its domain for the second, a line of JSON each:

  {"op":"decide","request":{…}}

--cases and --entries are those of wattle handler test. Exit code 8 says that a rule is broken.`

// guestTest is one run.
type guestTest struct {
	m     *wasm.Module
	file  string
	found conformance.Result
}

func (g *guests) testCommand() *cobra.Command {
	var requests, cases, entries string
	c := &cobra.Command{
		Use: "test FILE.wasm", Short: "test a guest: traps, determinism, the contract", Long: guestTestLong, Args: arguments("FILE.wasm"),
		Example: "  wattle guest test loan.wasm\n  wattle guest test loan.wasm --requests requests.jsonl --cases cases.jsonl",
		RunE: func(c *cobra.Command, args []string) error {
			o := &conformance.Options{Caller: &handler.Options{Target: args[0], Timeout: g.o.Timeout}}
			var asked []wasm.Request
			for _, err := range []error{
				readLines(requests, readRequests, &asked),
				readLines(cases, conformance.ReadCases, &o.Cases),
				readLines(entries, conformance.ReadEntries, &o.Entries),
			} {
				if err != nil {
					return err
				}
			}
			return g.opened(c.Context(), args[0], func(m *wasm.Module) error {
				t := &guestTest{m: m, file: args[0]}
				if err := t.run(c.Context(), asked, o); err != nil {
					return err
				}
				return (&handling{app: g.app}).report(args[0], len(o.Cases), t.found)
			})
		},
		ValidArgsFunction: completeModules,
	}
	c.Flags().StringVar(&requests, "requests", "", "`FILE` with requests of its domain")
	c.Flags().StringVar(&cases, "cases", "", "`FILE` with decisions of its domain")
	c.Flags().StringVar(&entries, "entries", "", "`FILE` with entries for it to project")
	return c
}

// readRequests reads requests, a line each.
func readRequests(r io.Reader) (all []wasm.Request, err error) {
	for d := json.NewDecoder(r); ; {
		var line struct {
			Op      string          `json:"op"`
			Request json.RawMessage `json:"request"`
		}
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("request %d: %w", len(all), err)
		}
		all = append(all, wasm.Request{Op: line.Op, Bytes: line.Request})
	}
}

// run tries all rules. An error is of what stands in their way.
func (t *guestTest) run(ctx context.Context, requests []wasm.Request, o *conformance.Options) error {
	answered, err := t.traps(ctx)
	if err != nil {
		return err
	}
	if err := t.warm(ctx, append(requests, answered...)); err != nil {
		return err
	}
	own := t.found
	own.Description.Name = t.file // until it says another
	if t.found, err = conformance.Run(ctx, handler.Over(t.m, t.file), o); err != nil {
		if ctx.Err() != nil {
			return err
		}
		own.Rules = append(own.Rules, ruleHandler)
		own.Findings = append(own.Findings, conformance.Finding{Rule: ruleHandler, Err: errors.New(strings.TrimPrefix(message(err), "wattle: "))})
		t.found.Description = own.Description
	}
	t.found.Rules = append(own.Rules, t.found.Rules...)
	t.found.Findings = append(own.Findings, t.found.Findings...)
	t.found.Calls += own.Calls
	return nil
}

type named struct {
	name    string
	request []byte
}

// noRequests are bytes that no host sends.
func noRequests() []named {
	return []named{
		{"nothing", []byte{}},
		{"no JSON", []byte("hello")},
		{"half an object", []byte(`{"stream":"a-b","comm`)},
		{"no object", []byte(`[1,2,3]`)},
		{"an empty object", []byte(`{}`)},
		{"bytes", []byte{0xff, 0xfe, 0x00, 0x80}},
		{"fields of no type", []byte(`{"stream":1,"seqno":"x","events":{},"command":[],"state":0}`)},
		{"deep", bytes.Repeat([]byte("["), 10_000)},
		{"long", bytes.Repeat([]byte(" "), wasm.DefaultRequestBytes)},
	}
}

// traps sends what is no request. What is answered, with whatever, can be asked again.
func (t *guestTest) traps(ctx context.Context) (answered []wasm.Request, err error) {
	t.found.Rules = append(t.found.Rules, ruleTraps)
	i := t.m.Info()
	for _, op := range i.Ops() {
		for _, n := range noRequests() {
			if op == wasm.OpDescribe {
				n = named{"its only request", nil}
			}
			t.found.Calls++
			_, err := t.m.Call(ctx, op, n.request)
			switch {
			case ctx.Err() != nil:
				return nil, err
			case err == nil:
				answered = append(answered, wasm.Request{Op: op, Bytes: n.request})
			case !errors.Is(err, wasm.ErrBadReply) && !errors.Is(err, wasm.ErrTooLarge):
				t.finding(ruleTraps, op+", "+n.name, err)
			}
			if op == wasm.OpDescribe {
				break
			}
		}
	}
	return answered, nil
}

// warm looks for replies that change.
func (t *guestTest) warm(ctx context.Context, requests []wasm.Request) error {
	t.found.Rules = append(t.found.Rules, ruleWarm)
	t.found.Calls += len(requests) * 4
	if err := t.m.CheckDeterminism(ctx, requests); err != nil {
		if ctx.Err() != nil {
			return err
		}
		t.finding(ruleWarm, "", err)
	}
	return nil
}

// finding notes a broken rule; what a guest says is one line.
func (t *guestTest) finding(rule, which string, err error) {
	t.found.Findings = append(t.found.Findings, conformance.Finding{Rule: rule, Case: which, Err: errors.New(strings.TrimPrefix(message(err), "wattle: "))})
}
