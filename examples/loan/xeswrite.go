// Writing cases as an XES log, for tests and for generated data.

package loan

import (
	"bufio"
	"encoding/xml"
	"io"
	"iter"
	"strconv"
	"time"
)

// WriteXES writes the cases as a plain XES log that ReadXES reads back equal,
// but for CaseEvent.Line. Empty values are left out. It writes as the sequence
// goes; wrap w for gzip. The error is the first of w.
func WriteXES(w io.Writer, cases iter.Seq[Case]) error {
	x := &xesWriter{w: bufio.NewWriter(w)}
	x.raw(xml.Header + "<log xes.version=\"1.0\" xmlns=\"http://www.xes-standard.org/\">\n")
	for c := range cases {
		x.writeCase(c)
		if x.err != nil {
			return x.err
		}
	}
	x.raw("</log>\n")
	if x.err != nil {
		return x.err
	}
	return x.w.Flush()
}

// xesWriter keeps the first error, so that the callers need not ask each time.
type xesWriter struct {
	w   *bufio.Writer
	err error
}

func (x *xesWriter) writeCase(c Case) {
	x.raw("\t<trace>\n")
	x.attribute("\t\t", "date", keyRegDate, timeText(c.RegDate))
	x.attribute("\t\t", "string", keyAmount, strconv.FormatInt(c.AmountRequested, 10))
	x.attribute("\t\t", "string", keyCustomer, c.Customer)
	x.attribute("\t\t", "string", keyName, c.Key)
	for _, e := range c.Events {
		x.raw("\t\t<event>\n")
		x.attribute("\t\t\t", "string", keyResource, e.Resource)
		x.attribute("\t\t\t", "string", keyTransition, e.Transition)
		x.attribute("\t\t\t", "string", keyName, e.Name)
		x.attribute("\t\t\t", "date", keyTime, timeText(e.Time))
		x.raw("\t\t</event>\n")
	}
	x.raw("\t</trace>\n")
}

func (x *xesWriter) attribute(indent, kind, key, value string) {
	if value == "" {
		return
	}
	x.raw(indent + "<" + kind + ` key="` + key + `" value="`)
	if x.err == nil {
		x.err = xml.EscapeText(x.w, []byte(value))
	}
	x.raw("\"/>\n")
}

func (x *xesWriter) raw(s string) {
	if x.err == nil {
		_, x.err = x.w.WriteString(s)
	}
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}
