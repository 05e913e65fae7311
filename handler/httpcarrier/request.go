// What a POST asks for: its body is read, its signature checked, and then it is
// understood, in this order.

package httpcarrier

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// errMediaType is a body of a kind that no request has.
var errMediaType = errors.New("media type")

func invalid(c *call, wanted, found string) error {
	e := &handler.Error{Kind: handler.ErrBadRequest, Wanted: wanted, Found: found}
	if c.r != nil {
		e.Op, e.Stream = c.r.Op, c.r.Stream
	}
	return e
}

// read takes the body in, as far as it may be long, checks who signed it and decompresses
// it.
func (s *server) read(w http.ResponseWriter, c *call) (status int, err error) {
	tooLong := func(found string) error {
		w.Header().Set("Connection", "close") // the rest is not read
		return &handler.Error{Kind: eventstore.ErrTooLarge, Wanted: fmt.Sprintf("a request of at most %d bytes", s.o.RequestBytes), Found: found}
	}
	if c.q.ContentLength > int64(s.o.RequestBytes) {
		return http.StatusRequestEntityTooLarge, tooLong(strconv.FormatInt(c.q.ContentLength, 10))
	}
	until := http.NewResponseController(w)
	if s.o.ReadTimeout > 0 {
		_ = until.SetReadDeadline(time.Now().Add(s.o.ReadTimeout)) // not everywhere is there one
	}
	c.raw, err = io.ReadAll(io.LimitReader(c.q.Body, int64(s.o.RequestBytes)+1))
	if s.o.ReadTimeout > 0 {
		_ = until.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
		w.Header().Set("Connection", "close")
		return http.StatusRequestTimeout, &handler.Error{Kind: handler.ErrFailed, Wanted: "a whole body", Found: strconv.Itoa(len(c.raw)) + " bytes of one"}
	case len(c.raw) > s.o.RequestBytes:
		return http.StatusRequestEntityTooLarge, tooLong("more")
	}
	if s.o.Verifier != nil {
		if c.signed, err = s.o.Verifier.Verify(c.q.Header, c.raw); err != nil {
			return http.StatusUnauthorized, &handler.Error{Kind: handler.ErrDenied, Err: err}
		}
	}
	return s.decompress(c)
}

func (s *server) decompress(c *call) (status int, err error) {
	switch coding := c.q.Header.Get("Content-Encoding"); strings.ToLower(coding) {
	case "", "identity":
		c.body = c.raw
		return 0, nil
	case "gzip":
		c.body, err = inflate(c.raw, s.o.RequestBytes)
	default:
		return http.StatusUnsupportedMediaType, &handler.Error{Kind: handler.ErrBadRequest, Wanted: "the encoding gzip, or none", Found: short(coding)}
	}
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, eventstore.ErrTooLarge), errors.Is(err, errBomb):
		return http.StatusRequestEntityTooLarge, &handler.Error{Kind: eventstore.ErrTooLarge, Err: err}
	}
	return http.StatusBadRequest, &handler.Error{Kind: handler.ErrBadRequest, Err: err}
}

// understand makes the Request.
func (s *server) understand(c *call) error {
	event, err := c.event()
	switch {
	case c.hint:
		s.hinted(c, event)
		err = nil
	case err != nil:
		return err
	case event == nil, strings.HasPrefix(event.Type, "wattle."):
		err = s.contract(c, event)
	default:
		err = s.command(c, event)
	}
	if err == nil {
		err = s.agree(c, event)
	}
	if err == nil && s.o.Replay != nil && !c.hint {
		if reused := s.o.Replay.check(c.r); reused != nil {
			err = &handler.Error{Kind: handler.ErrDenied, Op: c.r.Op, Stream: c.r.Stream, Err: reused}
		}
	}
	if err != nil {
		return err
	}
	c.unsigned(event)
	return nil
}

// event is the CloudEvent that the request is; nil of a plain one.
func (c *call) event() (*CloudEvent, error) {
	contentType := c.q.Header.Get("Content-Type")
	t, parameters, err := mime.ParseMediaType(contentType)
	if err == nil && parameters["charset"] != "" && !strings.EqualFold(parameters["charset"], "utf-8") {
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Wanted: "the charset utf-8", Found: short(parameters["charset"]), Err: errMediaType}
	}
	var e *CloudEvent
	switch {
	case t == StructuredType:
		c.came = structured
		e, err = ParseStructured(c.body)
	case strings.HasPrefix(t, batchType):
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Wanted: "one event a request", Found: "a batch of CloudEvents", Err: errMediaType}
	case strings.HasPrefix(t, eventsType):
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Wanted: "CloudEvents as " + StructuredType, Found: short(t), Err: errMediaType}
	case IsBinary(c.q.Header):
		c.came = binary
		e, err = ParseBinary(c.q.Header, c.body)
	case t == JSONType, contentType == "":
		err = nil
	case !c.hint:
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Wanted: JSONType + " or " + StructuredType, Found: short(contentType), Err: errMediaType}
	}
	if err != nil {
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Err: err}
	}
	c.goes = c.came
	if accepted, _, err := mime.ParseMediaType(c.q.Header.Get("Accept")); err == nil && accepted == StructuredType {
		c.goes = structured
	}
	return e, nil
}

// contract reads a request of the contract, out of an event or as it is.
func (s *server) contract(c *call, event *CloudEvent) error {
	body := c.body
	if event != nil {
		body = event.Data
		if !isJSONType(event.DataContentType) {
			return &handler.Error{Kind: handler.ErrBadRequest, Wanted: "data of the type " + JSONType, Found: short(event.DataContentType), Err: errMediaType}
		}
	}
	r, err := handler.ParseRequest(body)
	if err != nil {
		return &handler.Error{Kind: handler.ErrBadRequest, Err: err}
	}
	c.r = r
	if event == nil {
		return nil
	}
	switch {
	case event.Type != typeOf(r.Op):
		return invalid(c, "the type "+typeOf(r.Op), short(event.Type))
	case event.Subject != "" && event.Subject != string(r.Stream):
		return invalid(c, "the request's stream as the subject", short(event.Subject))
	case r.Key.IsZero():
		r.Key, err = eventstore.ParseUUID(event.ID)
		if err != nil {
			return invalid(c, "a UUID as the id", short(event.ID))
		}
	case event.ID != r.Key.String():
		return invalid(c, "the request's key, "+r.Key.String()+", as the id", short(event.ID))
	}
	return nil
}

// agree compares the key with what is signed, or takes it from there.
func (s *server) agree(c *call, event *CloudEvent) error {
	if c.signed != "" {
		switch {
		case event != nil && !c.hint:
			if event.ID != c.signed {
				return invalid(c, "the id that is signed, "+short(c.signed), short(event.ID))
			}
		case c.r.Key.IsZero() || c.hint:
			key, err := eventstore.ParseUUID(c.signed)
			if err != nil {
				key = eventstore.NameUUID(c.signed)
			}
			c.r.Key = key
		case c.r.Key.String() != c.signed:
			return invalid(c, "the key that is signed, "+short(c.signed), c.r.Key.String())
		}
	}
	return nil
}

// extensionVersion is the schema version of a command's event.
const extensionVersion = "wattleversion"

// command makes a request of a command that is an event of its own.
func (s *server) command(c *call, event *CloudEvent) error {
	if s.o.Commands == "" {
		return invalid(c, "an event of the type wattle.<op>.v"+strconv.Itoa(handler.Version), short(event.Type))
	}
	if s.o.Verifier != nil && c.came != structured {
		return &handler.Error{Kind: handler.ErrBadRequest, Wanted: "signed commands as " + StructuredType, Found: "attributes in headers, which no signature covers", Err: errMediaType}
	}
	stream, err := eventstore.NewStream(s.o.Commands, event.Subject)
	if err != nil {
		return &handler.Error{Kind: handler.ErrBadRequest, Op: handler.Execute, Wanted: "the key of a stream as the subject", Found: short(event.Subject), Err: err}
	}
	version := 0
	if text, given := event.Extensions[extensionVersion]; given {
		if version, err = strconv.Atoi(text); err != nil || version < 1 {
			return invalid(c, "a number from 1 as "+extensionVersion, short(text))
		}
	}
	id := CommandID(event)
	contentType := event.DataContentType
	if t, _, err := mime.ParseMediaType(contentType); err == nil && t == JSONType {
		contentType = ""
	}
	c.r = &handler.Request{Op: handler.Execute, Key: id, ID: id, Now: event.Time, Stream: stream, Traceparent: event.Extensions["traceparent"], Tracestate: event.Extensions["tracestate"],
		Command: &handler.Command{Type: event.Type, Version: version, ContentType: contentType, Data: event.Data}}
	if !strings.Contains(c.q.Header.Get("Accept"), StructuredType) {
		c.goes = plain // a broker would take a reply that is an event for a new one
	}
	return nil
}

// CommandID is the identity of a command that comes as an event: its id where that is a
// UUID, else a UUID made of source and id, which together tell events apart. A source has no
// blank in it, see [CloudEvent.Check].
func CommandID(e *CloudEvent) eventstore.UUID {
	if id, err := eventstore.ParseUUID(e.ID); err == nil && !id.IsZero() {
		return id
	}
	return eventstore.NameUUID(e.Source + " " + e.ID)
}

// hinted makes the request to catch up. What a hint holds is nobody's business; one that
// is an event has a key, so that it is traced under it.
func (s *server) hinted(c *call, event *CloudEvent) {
	c.goes = plain
	c.r = &handler.Request{Op: handler.CatchUp, Key: eventstore.NewUUID(), Projector: s.o.Projector}
	if event != nil {
		c.r.Key = CommandID(event)
		c.r.Traceparent, c.r.Tracestate = event.Extensions["traceparent"], event.Extensions["tracestate"]
	}
}

// unsigned takes from headers what no signature need cover, where the body says nothing:
// how long somebody waits, and who traces.
func (c *call) unsigned(event *CloudEvent) {
	if c.r.Traceparent == "" {
		c.r.Traceparent, c.r.Tracestate = c.q.Header.Get("Traceparent"), c.q.Header.Get("Tracestate")
	}
	until, err := time.Parse(time.RFC3339Nano, c.q.Header.Get(headerDeadline))
	if err == nil && (c.r.Deadline.IsZero() || until.Before(c.r.Deadline)) {
		c.r.Deadline = until
	}
}
