// Reading logs, whole and damaged, and writing them.

package loan

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// sample has what the real log has: attributes of the log, globals, classifiers,
// nested attributes, comments, entities, an event without a resource.
const sample = `<?xml version="1.0" encoding="UTF-8" ?>
<!-- This file -->
<log xes.version="1.0" xmlns="http://www.xes-standard.org/">
	<extension name="Time" prefix="time" uri="http://www.xes-standard.org/time.xesext"/>
	<global scope="trace">
		<string key="concept:name" value="UNKNOWN"/>
	</global>
	<classifier name="Activity classifier" keys="concept:name lifecycle:transition"/>
	<int key="total" value="2"><int key="concept:name" value="3"/></int>
	<trace>
		<date key="REG_DATE" value="2011-10-01T00:38:44.546+02:00"/>
		<string key="concept:name" value="173688"/>
		<string key="AMOUNT_REQ" value="20000"/>
		<event>
			<string key="org:resource" value="112"/>
			<string key="lifecycle:transition" value="COMPLETE"/>
			<string key="concept:name" value="A_SUBMITTED"/>
			<date key="time:timestamp" value="2011-10-01T00:38:44.546+02:00"/>
		</event>
		<event>
			<string key="lifecycle:transition" value="COMPLETE">
				<string key="concept:name" value="nested &amp; not meant"/>
			</string>
			<string key="concept:name" value="A &quot;B&quot; &#233;"/>
			<!-- <date key="time:timestamp" value="nonsense"/> -->
			<date key="time:timestamp" value="2012-01-01T01:00:00+01:00"/>
			<string key="other" value="x"/>
		</event>
	</trace>
	<trace><string key="concept:name" value="2"/><float key="AMOUNT_REQ" value="7000.0"/></trace>
</log>
`

func sampleCases() []Case {
	return []Case{
		{
			Key: "173688", RegDate: time.Date(2011, 9, 30, 22, 38, 44, 546e6, time.UTC), AmountRequested: 20000,
			Events: []CaseEvent{
				{"A_SUBMITTED", "COMPLETE", "112", time.Date(2011, 9, 30, 22, 38, 44, 546e6, time.UTC), 14},
				{`A "B" é`, "COMPLETE", "", time.Date(2012, 1, 1, 0, 0, 0, 0, time.UTC), 20},
			},
		},
		{Key: "2", AmountRequested: 7000},
	}
}

// readAll is the cases before the first fault, and the fault.
func readAll(r io.Reader) ([]Case, error) {
	var cases []Case
	for c, err := range ReadXES(r) {
		if err != nil {
			return cases, err
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func zipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestReadXES(t *testing.T) {
	half := len(sample) / 2
	members := append(zipped([]byte(sample[:half])), zipped([]byte(sample[half:]))...)
	for name, r := range map[string]io.Reader{
		"plain":               strings.NewReader(sample),
		"gzip":                bytes.NewReader(zipped([]byte(sample))),
		"gzip of two members": bytes.NewReader(members),
		"byte order mark":     strings.NewReader("\ufeff" + sample),
		"Windows lines":       strings.NewReader(strings.ReplaceAll(sample, "\n", "\r\n")),
		"one byte a time":     iotest.OneByteReader(bytes.NewReader(zipped([]byte(sample)))),
		"end with data":       iotest.DataErrReader(strings.NewReader(sample)),
		"without end of line": strings.NewReader(strings.TrimSpace(sample)),
	} {
		t.Run(name, func(t *testing.T) {
			cases, err := readAll(r)
			if err != nil || !reflect.DeepEqual(cases, sampleCases()) {
				t.Errorf("wanted %v, found %v (%v)", sampleCases(), cases, err)
			}
		})
	}
}

func TestReadXESStopsWithTheLoop(t *testing.T) {
	for c, err := range ReadXES(strings.NewReader(sample)) {
		if err != nil || c.Key != "173688" {
			t.Errorf("wanted the first case, found %v (%v)", c, err)
		}
		break
	}
}

func TestDamageIsNamed(t *testing.T) {
	for _, d := range []struct {
		name, old, new string
		line, cases    int
		wanted, found  string
	}{
		{"no name of the trace", `<string key="concept:name" value="173688"/>`, "", 10, 0, "concept:name in the trace", "none"},
		{"empty name of the trace", `value="173688"`, `value=""`, 12, 0, "concept:name", "empty"},
		{"no amount", `<string key="AMOUNT_REQ" value="20000"/>`, "", 10, 0, "AMOUNT_REQ in the trace", "none"},
		{"bad amount", `value="20000"`, `value="20,000"`, 13, 0, "whole number of euros", `"20,000"`},
		{"amount with cents", `value="20000"`, `value="20000.50"`, 13, 0, "whole number of euros", `"20000.50"`},
		{"huge amount", `value="20000"`, `value="99999999999999999999"`, 13, 0, "whole number of euros", "9999"},
		{"bad REG_DATE", `2011-10-01T00:38:44.546+02:00"/>` + "\n\t\t<string", `soon"/><string`, 11, 0, "REG_DATE", `"soon"`},
		{"no name of an event", `<string key="concept:name" value="A_SUBMITTED"/>`, "", 14, 0, "concept:name in the event", "none"},
		{"no time", `<date key="time:timestamp" value="2012-01-01T01:00:00+01:00"/>`, "", 20, 0, "time:timestamp in the event", "none"},
		{"bad time", "2012-01-01T01:00:00+01:00", "2012-13-01T01:00:00+01:00", 26, 0, "time:timestamp", "2012-13-01"},
		{"time without zone", "2012-01-01T01:00:00+01:00", "2012-01-01T01:00:00", 26, 0, "time:timestamp", "01:00:00\""},
		{"time out of range", "2012-01-01T01:00:00+01:00", "0001-01-01T00:30:00+01:00", 26, 0, "time:timestamp", "0001"},
		{"two names", `<string key="other" value="x"/>`, `<string key="concept:name" value="x"/>`, 27, 0, "one attribute concept:name", "second"},
		{"wrong end tag", "</event>\n\t</trace>", "</trace>", 28, 0, "well-formed XML", "closed by"},
		{"unknown entity", "&amp;", "&nbsp;", 22, 0, "well-formed XML", "entity"},
		{"broken tag", `<float key=`, `<float key`, 30, 1, "well-formed XML", "attribute"},
		{"invalid UTF-8", `value="x"`, "value=\"\xff\"", 27, 0, "well-formed XML", "UTF-8"},
		{"no end", "</log>", "", 32, 2, "well-formed XML", "EOF"},
		{"text behind the end", "</log>", "</log>\nand more", 31, 2, "no text outside", "and more"},
		{"a second log", "</log>", "</log>\n<log/>", 32, 2, "one element <log>", "log"},
		{"another document", `<log xes.version="1.0" xmlns="http://www.xes-standard.org/">`, "<html>", 3, 0, "one element <log>", "html"},
		{"another encoding", "UTF-8", "ISO-8859-1", 1, 0, "readable", "encoding"},
		{"long name", `value="173688"`, `value="` + strings.Repeat("1", MaxValueBytes+1) + `"`, 12, 0, "within 1024 bytes", "1025 bytes"},
		{"huge token", `value="x"`, `value="` + strings.Repeat("x", MaxTokenBytes) + `"`, 27, 0, "within 65536 bytes", "larger"},
	} {
		t.Run(d.name, func(t *testing.T) {
			log := strings.Replace(sample, d.old, d.new, 1)
			if log == sample {
				t.Fatalf("the sample does not contain %q", d.old)
			}
			for form, data := range map[string][]byte{"plain": []byte(log), "gzip": zipped([]byte(log))} {
				cases, err := readAll(bytes.NewReader(data))
				wantDamage(t, form, err, d.line, d.wanted, d.found)
				if len(cases) != d.cases {
					t.Errorf("%s: wanted %d cases before the damage, found %d", form, d.cases, len(cases))
				}
			}
		})
	}
}

func wantDamage(t *testing.T, form string, err error, line int, wanted, found string) {
	t.Helper()
	damage, ok := errors.AsType[*XESError](err)
	if !ok || !errors.Is(err, ErrXES) {
		t.Fatalf("%s: wanted an *XESError, found %v", form, err)
	}
	if damage.Line != line || !strings.Contains(damage.Wanted, wanted) || !strings.Contains(damage.Found, found) {
		t.Errorf("%s: wanted line %d, %q and %q, found %v", form, line, wanted, found, err)
	}
}

func TestNotALog(t *testing.T) {
	for name, d := range map[string]struct{ data, wanted string }{
		"empty":                {"", "<log>"},
		"comment only":         {"<!-- nothing -->", "<log>"},
		"text":                 {"case,event\n1,A_SUBMITTED\n", "<log>"},
		"gzip of nothing":      {string(zipped(nil)), "<log>"},
		"magic only":           {"\x1f\x8b", "gzip"},
		"gzip garbage":         {"\x1f\x8b" + strings.Repeat("garbage", 20), "gzip"},
		"garbage after gzip":   {string(zipped([]byte(sample))) + "garbage", "gzip"},
		"gzip with a bad sum":  {string(damagedSum(zipped([]byte(sample)))), "gzip"},
		"binary":               {"\x00\x01\x02", "XML"},
		"opened and not named": {"<", "XML"},
	} {
		_, err := readAll(strings.NewReader(d.data))
		damage, ok := errors.AsType[*XESError](err)
		if !ok || damage.Line < 1 || !strings.Contains(damage.Wanted, d.wanted) {
			t.Errorf("%s: wanted an *XESError about %s, found %v", name, d.wanted, err)
		}
	}
}

func damagedSum(gz []byte) []byte {
	gz[len(gz)-8] ^= 1
	return gz
}

func TestFailingReader(t *testing.T) {
	broken := errors.New("disk on fire")
	r := io.MultiReader(strings.NewReader(sample[:strings.Index(sample, "<float")]), iotest.ErrReader(broken))
	cases, err := readAll(r)
	if !errors.Is(err, broken) || len(cases) != 1 {
		t.Errorf("wanted one case and the cause, found %d and %v", len(cases), err)
	}
	wantDamage(t, "plain", err, 30, "readable", "disk on fire")
}

// Wherever a file ends too early, its whole cases come first and then an error.
func TestTruncatedAnywhere(t *testing.T) {
	whole := slices.Collect(Generate(5, 15))
	var b bytes.Buffer
	if err := WriteXES(&b, slices.Values(whole)); err != nil {
		t.Fatal(err)
	}
	plain := bytes.TrimSpace(b.Bytes())
	packed := zipped(plain)
	for cut := 0; cut < len(plain); cut += 997 {
		checkCut(t, "plain", plain[:cut], whole)
	}
	for cut := 0; cut < len(packed); cut += 101 {
		checkCut(t, "gzip", packed[:cut], whole)
	}
	for cut := 1; cut < 20; cut++ {
		checkCut(t, "plain", plain[:len(plain)-cut], whole)
		checkCut(t, "gzip", packed[:len(packed)-cut], whole)
	}
}

func checkCut(t *testing.T, form string, data []byte, whole []Case) {
	t.Helper()
	cases, err := readAll(bytes.NewReader(data))
	damage, ok := errors.AsType[*XESError](err)
	if !ok || damage.Line < 1 {
		t.Fatalf("%s cut at %d: wanted an *XESError, found %v", form, len(data), err)
	}
	if len(cases) > len(whole) || !equalCases(cases, whole[:len(cases)]) {
		t.Fatalf("%s cut at %d: the %d cases before the damage are not those of the file", form, len(data), len(cases))
	}
	if form == "plain" && damage.Line != 1+bytes.Count(data, []byte("\n")) {
		t.Fatalf("%s cut at %d: wanted the line of the cut, found %v", form, len(data), err)
	}
}

// equalCases compares all but the lines.
func equalCases(a, b []Case) bool {
	return slices.EqualFunc(a, b, func(a, b Case) bool { return reflect.DeepEqual(withoutLines(a), withoutLines(b)) })
}

func withoutLines(c Case) Case {
	c.Events = slices.Clone(c.Events)
	for i := range c.Events {
		c.Events[i].Line = 0
	}
	return c
}

// A file without an end, in each way it can be, is refused within bounds.
func TestEndlessFiles(t *testing.T) {
	event := `<event><string key="concept:name" value="A"/><date key="time:timestamp" value="2012-01-01T01:00:00Z"/></event>`
	for name, d := range map[string]struct {
		head, again string
		most        int
	}{
		"value":   {`<log><trace><string key="concept:name" value="`, "x", 4 * MaxTokenBytes},
		"text":    {`<log>`, "text ", 4 * MaxTokenBytes},
		"comment": {`<log><!--`, "text ", 4 * MaxTokenBytes},
		"nesting": {`<log>`, "<a>", 4 * MaxTokenBytes},
		"tag":     {`<log><a `, `b="c" `, 4 * MaxTokenBytes},
		"events":  {`<log><trace>`, event, 2 * MaxEventsPerCase * len(event)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &endless{rest: d.head, again: d.again}
			cases, err := readAll(r)
			if !errors.Is(err, ErrXES) || len(cases) != 0 {
				t.Errorf("wanted an *XESError and no case, found %v and %d", err, len(cases))
			}
			if r.read > d.most {
				t.Errorf("wanted at most %d bytes read, found %d", d.most, r.read)
			}
		})
	}
}

// Exactly at the bounds a log is still read.
func TestBoundedFiles(t *testing.T) {
	deep := strings.Repeat("<a>", MaxDepth-1) + strings.Repeat("</a>", MaxDepth-1)
	name := strings.Repeat("n", MaxValueBytes)
	trace := `<trace><int key="AMOUNT_REQ" value="1"/><string key="concept:name" value="` + name + `"/></trace>`
	cases, err := readAll(strings.NewReader("<log>" + deep + trace + "</log>"))
	if err != nil || len(cases) != 1 || cases[0].Key != name {
		t.Errorf("wanted one case, found %v (%v)", cases, err)
	}
}

// endless is a head and then the same again and again.
type endless struct {
	rest, again string
	read        int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = e.again
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	e.read += n
	return n, nil
}

func TestWriteXESRoundTrip(t *testing.T) {
	odd := Case{Key: "<&\"'\n\t\r é>", AmountRequested: -3, Events: []CaseEvent{
		{Name: "x ", Time: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)},
		{Name: "y", Transition: "z", Resource: "]]>", Time: time.Date(MaxYear, 12, 31, 23, 59, 59, 999999999, time.UTC)},
	}}
	want := append(slices.Collect(Generate(6, 20)), odd)
	var b bytes.Buffer
	if err := WriteXES(&b, slices.Values(want)); err != nil {
		t.Fatal(err)
	}
	cases, err := readAll(&b)
	if err != nil || !equalCases(cases, want) {
		t.Errorf("wanted what was written, found %d cases (%v)", len(cases), err)
	}
}

func TestWriteXESReportsTheWriter(t *testing.T) {
	for _, n := range []int{0, 10, 10_000} {
		if err := WriteXES(&fullWriter{left: n}, Generate(1, 100)); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: wanted %v, found %v", n, errFull, err)
		}
	}
}

var errFull = errors.New("disk full")

type fullWriter struct{ left int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func FuzzReadXES(f *testing.F) {
	f.Add([]byte(sample))
	f.Add(zipped([]byte(sample)))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Add([]byte(`<log><trace><string key="concept:name" value="1"/><int key="AMOUNT_REQ" value="0"/></trace></log>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, err := readAll(bytes.NewReader(data))
		if damage, ok := errors.AsType[*XESError](err); err != nil && (!ok || damage.Line < 1 || damage.Wanted == "") {
			t.Fatalf("wanted an *XESError with a line, found %#v", err)
		}
		var b bytes.Buffer
		if err := WriteXES(&b, slices.Values(cases)); err != nil {
			t.Fatal(err)
		}
		again, err := readAll(&b)
		if err != nil || !equalCases(again, cases) {
			t.Fatalf("wanted %v, found %v (%v)", cases, again, err)
		}
	})
}

func BenchmarkReadXES(b *testing.B) {
	var data bytes.Buffer
	if err := WriteXES(&data, Generate(1, 500)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(data.Len()))
	for b.Loop() {
		if _, err := readAll(bytes.NewReader(data.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// oneCase is a sequence for short examples.
func oneCase(c Case) iter.Seq[Case] { return slices.Values([]Case{c}) }

func ExampleWriteXES() {
	at := time.Date(2011, 9, 30, 22, 38, 44, 546e6, time.UTC)
	var b strings.Builder
	err := WriteXES(&b, oneCase(Case{Key: "173688", AmountRequested: 20000, Events: []CaseEvent{
		{Name: "A_SUBMITTED", Transition: "COMPLETE", Resource: "112", Time: at},
	}}))
	fmt.Println(strings.ReplaceAll(b.String(), "\t", "  "), err)
	// Output:
	// <?xml version="1.0" encoding="UTF-8"?>
	// <log xes.version="1.0" xmlns="http://www.xes-standard.org/">
	//   <trace>
	//     <string key="AMOUNT_REQ" value="20000"/>
	//     <string key="concept:name" value="173688"/>
	//     <event>
	//       <string key="org:resource" value="112"/>
	//       <string key="lifecycle:transition" value="COMPLETE"/>
	//       <string key="concept:name" value="A_SUBMITTED"/>
	//       <date key="time:timestamp" value="2011-09-30T22:38:44.546Z"/>
	//     </event>
	//   </trace>
	// </log>
	//  <nil>
}
