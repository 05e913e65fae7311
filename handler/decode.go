// Decoding requests and replies. Both are read strictly: a field that the contract does
// not have, a wrong type or a missing version is an error, and nothing is guessed.

package handler

import (
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// ParseRequest decodes a request. It refers to parts of data.
func ParseRequest(data []byte) (*Request, error) {
	r, s, v := &Request{}, &scanner{b: data}, 0
	err := s.whole(func() error { return s.fields(func(name []byte) error { return s.requestField(r, &v, name) }) })
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if v != Version {
		return nil, fmt.Errorf("request: wanted version %d of the contract, found %d", Version, v)
	}
	return r, nil
}

// take puts what a scanner function gives into a field.
func take[T any](into *T, value func() (T, error)) (err error) {
	*into, err = value()
	return err
}

func (s *scanner) requestField(r *Request, v *int, name []byte) error {
	switch string(name) {
	case "v":
		return take(v, s.count)
	case "op":
		return takeText(s, &r.Op)
	case "key":
		return s.uuid(&r.Key)
	case "deadline":
		return take(&r.Deadline, s.time)
	case "traceparent":
		return take(&r.Traceparent, s.text)
	case "tracestate":
		return take(&r.Tracestate, s.text)
	case "now":
		return take(&r.Now, s.time)
	case "id":
		return s.uuid(&r.ID)
	case "stream":
		return s.stream(&r.Stream)
	case "after":
		return s.mark(&r.After)
	case "stateVersion":
		return take(&r.StateVersion, s.count)
	case "state":
		return take(&r.State, s.raw)
	case "projector":
		return take(&r.Projector, s.text)
	case "projectorVersion":
		return take(&r.ProjectorVersion, s.count)
	case "events":
		return takeList(s, &r.Events, s.entryField)
	case "command":
		r.Command = &Command{}
		return s.fields(func(name []byte) error { return s.commandField(r.Command, name) })
	case "docs":
		return s.documents(&r.Docs)
	}
	return errNoField
}

func (s *scanner) entryField(e *Entry, name []byte) error {
	switch string(name) {
	case "stream":
		return s.stream(&e.Stream)
	case "seqno":
		return takeDigits(s, &e.Seqno, eventstore.ParseSeqno)
	case "position":
		return takeDigits(s, &e.Position, eventstore.ParsePosition)
	case "id":
		return s.uuid(&e.ID)
	case "time":
		return take(&e.Time, s.time)
	case "meta":
		return s.metadata(&e.Metadata)
	case "quiet":
		return take(&e.Quiet, s.truth)
	}
	return s.eventField(&e.Event, name)
}

func (s *scanner) eventField(e *Event, name []byte) error {
	switch string(name) {
	case "type":
		return take(&e.Type, s.text)
	case "version":
		return take(&e.Version, s.count)
	case "contentType":
		return take(&e.ContentType, s.text)
	case "data":
		return s.data(&e.Data, s.raw)
	case "data64":
		return s.data(&e.Data, s.base64)
	}
	return errNoField
}

// data takes one of two forms of the same.
func (s *scanner) data(into *[]byte, value func() ([]byte, error)) error {
	if *into != nil {
		return fmt.Errorf("wanted data or data64, found both")
	}
	return take(into, value)
}

func (s *scanner) commandField(c *Command, name []byte) error {
	if string(name) == "meta" {
		return s.metadata(&c.Metadata)
	}
	e := Event{Type: c.Type, Version: c.Version, ContentType: c.ContentType, Data: c.Data}
	err := s.eventField(&e, name)
	c.Type, c.Version, c.ContentType, c.Data = e.Type, e.Version, e.ContentType, e.Data
	return err
}

// ParseReply decodes a reply. It refers to parts of data. Whether it may be believed is
// another question: see [Check].
func ParseReply(data []byte) (*Reply, error) {
	r, s, v := &Reply{}, &scanner{b: data}, 0
	err := s.whole(func() error { return s.fields(func(name []byte) error { return s.replyField(r, &v, name) }) })
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	if v != Version {
		return nil, fmt.Errorf("reply: wanted version %d of the contract, found %d", Version, v)
	}
	return r, nil
}

func (s *scanner) replyField(r *Reply, v *int, name []byte) error {
	switch string(name) {
	case "v":
		return take(v, s.count)
	case "key":
		return s.uuid(&r.Key)
	case "error":
		r.Failure = &Failure{}
		return s.coded(&r.Failure.Code, &r.Failure.Message)
	case "rejected":
		r.Rejected = &Rejected{}
		return s.coded(&r.Rejected.Code, &r.Rejected.Message)
	case "description":
		r.Description = &Description{}
		return s.fields(func(name []byte) error { return s.descriptionField(r.Description, name) })
	case "stream":
		return s.stream(&r.Stream)
	case "state":
		return take(&r.State, s.raw)
	case "events":
		return takeList(s, &r.Events, s.eventField)
	case "mark":
		return s.mark(&r.Mark)
	case "token":
		return s.token(&r.Token)
	case "replayed":
		return take(&r.Replayed, s.truth)
	case "more":
		return take(&r.More, s.truth)
	}
	return s.projectedField(r, name)
}

func (s *scanner) projectedField(r *Reply, name []byte) error {
	switch string(name) {
	case "keys":
		return takeTexts(s, &r.Keys)
	case "put":
		return s.documents(&r.Put)
	case "delete":
		return takeTexts(s, &r.Delete)
	case "commands":
		return takeList(s, &r.Commands, func(c *Issue, name []byte) error {
			switch string(name) {
			case "position":
				return takeDigits(s, &c.Position, eventstore.ParsePosition)
			case "stream":
				return s.stream(&c.Stream)
			}
			return s.commandField(&c.Command, name)
		})
	case "timers":
		return takeList(s, &r.Timers, s.timerField)
	case "failed":
		return takeList(s, &r.Failed, func(f *EntryFailure, name []byte) error {
			switch string(name) {
			case "position":
				return takeDigits(s, &f.Position, eventstore.ParsePosition)
			case "message":
				return take(&f.Message, s.text)
			}
			return errNoField
		})
	}
	return errNoField
}

func (s *scanner) timerField(t *Timer, name []byte) error {
	switch string(name) {
	case "position":
		return takeDigits(s, &t.Position, eventstore.ParsePosition)
	case "name":
		return take(&t.Name, s.text)
	case "due":
		return take(&t.Due, s.time)
	case "data":
		return take(&t.Data, s.raw)
	case "cancel":
		return take(&t.Cancel, s.truth)
	}
	return errNoField
}

func (s *scanner) descriptionField(d *Description, name []byte) error {
	switch string(name) {
	case "name":
		return take(&d.Name, s.text)
	case "release":
		return take(&d.Release, s.text)
	case "category":
		return s.category(&d.Category)
	case "capabilities":
		return takeTexts(s, &d.Capabilities)
	case "events":
		return takeList(s, &d.Events, s.wireField)
	case "commands":
		return takeList(s, &d.Commands, s.wireField)
	case "stateVersion":
		return take(&d.StateVersion, s.count)
	}
	return errNoField
}

func (s *scanner) wireField(w *Wire, name []byte) error {
	switch string(name) {
	case "name":
		return take(&w.Name, s.text)
	case "version":
		return take(&w.Version, s.count)
	}
	return errNoField
}

func (s *scanner) coded(code, message *string) error {
	return s.fields(func(name []byte) error {
		switch string(name) {
		case "code":
			return take(code, s.text)
		case "message":
			return take(message, s.text)
		}
		return errNoField
	})
}

// takeList reads an array of objects of the contract.
func takeList[T any](s *scanner, into *[]T, field func(*T, []byte) error) error {
	list := []T{}
	err := s.list(func() error {
		var one T
		if err := s.fields(func(name []byte) error { return field(&one, name) }); err != nil {
			return fmt.Errorf("%d: %w", len(list), err)
		}
		list = append(list, one)
		return nil
	})
	*into = list
	return err
}

func takeText[T ~string](s *scanner, into *T) error {
	text, err := s.text()
	*into = T(text)
	return err
}

func takeTexts(s *scanner, into *[]string) error {
	list := []string{}
	err := s.list(func() error {
		text, err := s.text()
		list = append(list, text)
		return err
	})
	*into = list
	return err
}

// takeDigits takes a number that is a string.
func takeDigits[T any](s *scanner, into *T, parse func(string) (T, error)) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	*into, err = parse(text)
	return err
}

func (s *scanner) uuid(into *eventstore.UUID) error {
	return takeDigits(s, into, eventstore.ParseUUID)
}

func (s *scanner) token(into *eventstore.Token) error {
	return takeDigits(s, into, eventstore.ParseToken)
}

func (s *scanner) stream(into *eventstore.Stream) error {
	return takeDigits(s, into, eventstore.ParseStream)
}

func (s *scanner) category(into *eventstore.Category) error {
	return takeDigits(s, into, eventstore.ParseCategory)
}

func (s *scanner) time() (time.Time, error) {
	text, err := s.text()
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, text)
}

func (s *scanner) mark(into *eventstore.Mark) error {
	return s.fields(func(name []byte) error {
		switch string(name) {
		case "seqno":
			return takeDigits(s, &into.Seqno, eventstore.ParseSeqno)
		case "id":
			return s.uuid(&into.ID)
		}
		return errNoField
	})
}

func (s *scanner) metadata(into *eventstore.Metadata) error {
	m := eventstore.Metadata{}
	*into = m
	return s.object(func(name []byte) error {
		if _, twice := m[string(name)]; twice {
			return fmt.Errorf("the key %q stands twice", cut(string(name), MaxCodeBytes))
		}
		value, err := s.text()
		m[string(name)] = value
		return err
	})
}

// documents takes an object of any JSON values.
func (s *scanner) documents(into *map[string][]byte) error {
	docs := map[string][]byte{}
	*into = docs
	return s.object(func(name []byte) error {
		if _, twice := docs[string(name)]; twice {
			return fmt.Errorf("the key %q stands twice", cut(string(name), MaxCodeBytes))
		}
		doc, err := s.raw()
		docs[string(name)] = doc
		return err
	})
}
