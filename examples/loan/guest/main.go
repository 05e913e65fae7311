// Command guest is the loan Decider alone, as a program for WebAssembly: it reads
// commands from stdin and writes what was decided to stdout, a JSON object a line.
//
//	GOOS=wasip1 GOARCH=wasm go build -o guest.wasm ./examples/loan/guest
//
//	{"case":"173688","type":"loan.submit","data":{"at":"2011-10-01T00:38:44.546+02:00","amount":20000}}
//	{"events":[{"type":"loan.submitted","data":{"at":"2011-09-30T22:38:44.546Z","amount":20000}}]}
//
// A refusal is {"refused":"…"}. The guest keeps the state of each case for as long as
// it runs; it needs no clock, network or files. A test runs it under wazero and
// holds its answers against those of native code.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/wattle-es/wattle/examples/loan"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// request is a line of stdin.
type request struct {
	Case string          `json:"case"`
	Type string          `json:"type"` // wire name of a command
	Data json.RawMessage `json:"data"`
}

// answer is a line of stdout.
type answer struct {
	Events  []event `json:"events,omitempty"`
	Refused string  `json:"refused,omitempty"`
}

type event struct {
	Type string     `json:"type"` // wire name
	Data loan.Event `json:"data"`
}

// run answers requests until there are no more. A line that is no request is an
// error.
func run(stdin io.Reader, stdout io.Writer) error {
	in, buffered := json.NewDecoder(stdin), bufio.NewWriter(stdout)
	out := json.NewEncoder(buffered)
	states := map[string]loan.State{}
	for {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return buffered.Flush()
		} else if err != nil {
			return err
		}
		c, err := command(r)
		if err != nil {
			return err
		}
		events, err := loan.Decide(states[r.Case], c)
		for _, e := range events {
			states[r.Case] = loan.Evolve(states[r.Case], e)
		}
		if err := out.Encode(answerOf(events, err)); err != nil {
			return err
		}
	}
}

// command decodes the command of a request.
func command(r request) (loan.Command, error) {
	for _, t := range loan.CommandTypes() {
		if t.Name != r.Type {
			continue
		}
		c := reflect.New(reflect.TypeOf(t.Zero))
		if err := json.Unmarshal(r.Data, c.Interface()); err != nil {
			return nil, fmt.Errorf("case %q: %w", r.Case, err)
		}
		return c.Elem().Interface().(loan.Command), nil
	}
	return nil, fmt.Errorf("case %q: wanted the type of a command, found %q", r.Case, r.Type)
}

func answerOf(events []loan.Event, refused error) answer {
	if refused != nil {
		return answer{Refused: refused.Error()}
	}
	a := answer{Events: make([]event, len(events))}
	for i, e := range events {
		a.Events[i] = event{typeOf(e), e}
	}
	return a
}

func typeOf(e loan.Event) string {
	for _, t := range loan.EventTypes() {
		if reflect.TypeOf(t.Zero) == reflect.TypeOf(e) {
			return t.Name
		}
	}
	return ""
}
