// Output: tables, JSON, and entries in both.

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
)

// printList prints a list: one JSON array, or rows under a header.
func (a *app) printList(list any, rows [][]string) error {
	if a.output == outputJSON {
		return a.printJSON(list)
	}
	return a.printRows(rows)
}

// printJSON prints one value on one line.
func (a *app) printJSON(v any) error { return encoder(a.stdout).Encode(v) }

func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

func (a *app) printRows(rows [][]string) error {
	var c columns
	for _, row := range rows {
		c.fit(row)
	}
	for _, row := range rows {
		if err := c.print(a.stdout, row); err != nil {
			return err
		}
	}
	return nil
}

// columns are the widths of a table's columns. They only grow, so a table whose
// rows are not all known yet stays a table.
type columns []int

func (c *columns) fit(row []string) {
	for len(*c) < len(row) {
		*c = append(*c, 0)
	}
	for i, cell := range row {
		(*c)[i] = max((*c)[i], utf8.RuneCountInString(cell))
	}
}

// print writes a row, the last cell as long as it is.
func (c *columns) print(w io.Writer, row []string) error {
	c.fit(row[:len(row)-1])
	var b strings.Builder
	for i, cell := range row {
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", (*c)[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// entryPrinter prints entries as they come.
type entryPrinter struct {
	w       io.Writer
	json    bool
	feed    bool // of many streams: positions and streams instead of seqnos
	columns columns
	begun   bool
}

// entryJSON is an entry as -o json prints it: data as it is when it is JSON, else
// in data_base64.
type entryJSON struct {
	Stream      eventstore.Stream   `json:"stream"`
	Seqno       eventstore.Seqno    `json:"seqno"`
	Position    eventstore.Position `json:"position"`
	Epoch       eventstore.Epoch    `json:"epoch"`
	Time        time.Time           `json:"time"`
	ID          eventstore.UUID     `json:"id"`
	Batch       eventstore.UUID     `json:"batch"`
	Type        string              `json:"type"`
	Version     int                 `json:"version"`
	ContentType string              `json:"content_type"`
	Metadata    eventstore.Metadata `json:"metadata,omitempty"`
	Data        json.RawMessage     `json:"data,omitempty"`
	DataBase64  *string             `json:"data_base64,omitempty"`
}

const timeFormat = "2006-01-02T15:04:05.000000Z"

func (p *entryPrinter) print(e eventstore.Entry) error {
	if p.json {
		return encoder(p.w).Encode(toJSON(e))
	}
	if !p.begun {
		p.begun = true
		if err := p.header(); err != nil {
			return err
		}
	}
	row := []string{e.Seqno.String(), e.Time.UTC().Format(timeFormat), printable(e.Type), dataText(e.Data)}
	if p.feed {
		row = append([]string{e.Position.String(), printable(string(e.Stream))}, row...)
	}
	return p.columns.print(p.w, row)
}

// header begins the table, with columns as wide as most entries need.
func (p *entryPrinter) header() error {
	row, usual := []string{"SEQNO", "TIME", "TYPE", "DATA"}, []int{5, len(timeFormat), 20, 0}
	if p.feed {
		row, usual = append([]string{"POSITION", "STREAM"}, row...), append([]int{8, 20}, usual...)
	}
	p.columns = usual
	return p.columns.print(p.w, row)
}

func toJSON(e eventstore.Entry) entryJSON {
	j := entryJSON{Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, Epoch: e.Epoch, Time: e.Time, ID: e.ID, Batch: e.BatchID,
		Type: e.Type, Version: e.Version, ContentType: e.ContentType, Metadata: e.Metadata}
	j.Data, j.DataBase64 = dataJSON(e.Data)
	return j
}

// dataJSON is data as it is when it is JSON, else in base64.
func dataJSON(data []byte) (json.RawMessage, *string) {
	if json.Valid(data) && utf8.Valid(data) {
		return data, nil
	}
	return nil, new(base64.StdEncoding.EncodeToString(data))
}

// dataText is data in one line for a terminal: JSON as it is, text quoted, all
// else in base64.
func dataText(data []byte) string {
	switch {
	case utf8.Valid(data) && json.Valid(data):
		var one strings.Builder
		// Encoding a RawMessage writes it without blanks and line breaks; it is valid.
		_ = encoder(&one).Encode(json.RawMessage(data))
		return printable(strings.TrimSuffix(one.String(), "\n"))
	case utf8.Valid(data):
		return strconv.Quote(string(data))
	}
	return "base64:" + base64.StdEncoding.EncodeToString(data)
}

// printable escapes what a terminal could take for a command, or what turns the
// direction of writing: whoever wrote the data has no say over the screen.
func printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !unprintable(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func str[N ~int64 | ~uint64 | ~int](n N) string { return fmt.Sprint(n) }
