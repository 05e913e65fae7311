// Cases in files: a line of JSON each.

package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// MaxCaseBytes bounds a line of a file of cases: 8 MiB.
const MaxCaseBytes = 8 << 20

type caseLine struct {
	Name     string     `json:"name,omitempty"`
	Stream   string     `json:"stream"`
	Given    []wireLine `json:"given"`
	When     wireLine   `json:"when"`
	Then     []wireLine `json:"then,omitempty"`
	Rejected string     `json:"rejected,omitempty"`
}

type wireLine struct {
	Type    string          `json:"type"`
	Version int             `json:"version,omitempty"`
	Data    json.RawMessage `json:"data"`
}

// ReadCases reads cases, each a line of JSON; empty lines are passed over. An error names
// the line. A case without a name is called by its line.
func ReadCases(r io.Reader) (cases []Case, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxCaseBytes)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		c, err := readCase(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if c.Name == "" {
			c.Name = fmt.Sprint("line ", n)
		}
		cases = append(cases, c)
	}
	return cases, lines.Err()
}

// ReadEntries reads entries for a handler that projects: a line of JSON each, as
// {"stream":"account-a","type":"deposited","version":1,"data":{"amount":5}}. They get
// seqnos and positions in the order of the lines.
func ReadEntries(r io.Reader) (entries []handler.Entry, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxCaseBytes)
	last := map[eventstore.Stream]eventstore.Seqno{}
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := readEntry(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		last[e.Stream]++
		e.Seqno, e.Position = last[e.Stream], eventstore.Position(len(entries)+1)
		e.ID, e.Time = eventstore.NameUUID(fmt.Sprint("position ", e.Position)), moment.Add(time.Duration(n)*time.Second)
		entries = append(entries, e)
	}
	return entries, lines.Err()
}

func readEntry(line []byte) (e handler.Entry, err error) {
	var l struct {
		Stream string `json:"stream"`
		wireLine
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return e, err
	}
	if e.Stream, err = eventstore.ParseStream(l.Stream); err != nil {
		return e, err
	}
	if l.Type == "" || l.Data == nil {
		return e, fmt.Errorf("wanted type and data")
	}
	e.Event = handler.Event{Type: l.Type, Version: max(1, l.Version), Data: l.Data}
	return e, nil
}

func readCase(line []byte) (c Case, err error) {
	var l caseLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return c, err
	}
	if c.Stream, err = eventstore.ParseStream(l.Stream); err != nil {
		return c, err
	}
	if l.When.Type == "" || l.When.Data == nil {
		return c, fmt.Errorf("when: wanted a command with type and data")
	}
	if l.Rejected != "" && len(l.Then) > 0 {
		return c, fmt.Errorf("wanted then or rejected, found both")
	}
	c.Name, c.Rejected = l.Name, l.Rejected
	c.When = handler.Command{Type: l.When.Type, Version: l.When.Version, Data: l.When.Data}
	for _, e := range l.Given {
		if e.Version == 0 {
			e.Version = 1
		}
		c.Given = append(c.Given, handler.Event{Type: e.Type, Version: e.Version, Data: e.Data})
	}
	for _, e := range l.Then {
		c.Then = append(c.Then, handler.Event{Type: e.Type, Version: e.Version, Data: e.Data})
	}
	return c, nil
}

// WriteCases writes what ReadCases reads.
func WriteCases(w io.Writer, cases []Case) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	lines := func(events []handler.Event) []wireLine {
		all := make([]wireLine, len(events))
		for i, e := range events {
			all[i] = wireLine{e.Type, e.Version, e.Data}
		}
		return all
	}
	for _, c := range cases {
		l := caseLine{Name: c.Name, Stream: string(c.Stream), Given: lines(c.Given), Then: lines(c.Then), Rejected: c.Rejected,
			When: wireLine{c.When.Type, c.When.Version, c.When.Data}}
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	return out.Flush()
}
