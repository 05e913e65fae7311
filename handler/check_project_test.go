// What a host believes of the reply to Project.

package handler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

func TestCheckProject(t *testing.T) {
	d := &Description{Name: "p", Capabilities: []string{"project"}}
	three := &Request{Op: Project, Events: []Entry{{Position: 3}, {Position: 5, Quiet: true}, {Position: 9}}}
	one := &Request{Op: Project, Events: []Entry{{Position: 7}}}
	issue := func(p eventstore.Position) Reply {
		return Reply{Commands: []Issue{{Position: p, Stream: "a-1", Command: Command{Type: "x", Data: []byte("1")}}}}
	}
	timer := func(p eventstore.Position) Reply {
		return Reply{Timers: []Timer{{Position: p, Name: "x", Due: time.Unix(1, 0)}}}
	}
	for name, c := range map[string]struct {
		r     *Request
		reply Reply
		want  string // in the error; empty: none
	}{
		"command of an entry":            {three, issue(3), ""},
		"command of the only entry":      {one, issue(0), ""},
		"command of nothing":             {three, issue(0), "position of an entry"},
		"command of another entry":       {three, issue(4), "position of an entry"},
		"command of a quiet entry":       {three, issue(5), "quiet"},
		"timer of an entry":              {three, timer(9), ""},
		"timer of a quiet entry":         {three, timer(5), "quiet"},
		"timer of nothing":               {three, timer(0), "position of an entry"},
		"command of a failed entry":      {three, Reply{Commands: issue(3).Commands, Failed: []EntryFailure{{3, "no"}}}, "failed"},
		"command beside a failed entry":  {three, Reply{Commands: issue(3).Commands, Failed: []EntryFailure{{9, "no"}}}, ""},
		"failure of another entry":       {three, Reply{Failed: []EntryFailure{{4, "no"}}}, "positions of the request"},
		"document both written and gone": {three, Reply{Put: map[string][]byte{"a": []byte("1")}, Delete: []string{"a"}}, "both"},
	} {
		err := Check(d, c.r, &c.reply, Limits{})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrBadReply) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "command of the only entry" && c.reply.Commands[0].Position != 7 {
			t.Errorf("%s: position %v", name, c.reply.Commands[0].Position)
		}
	}
}
