// Changes of files, brought into force.

package server

import (
	"context"
	"errors"
	"time"
)

// Reload looks at all files now, as it is done every DefaultReloadInterval, and ends the
// streams that what has changed forbids. An error says which are broken: those that were
// read before stay in force.
func (s *Server) Reload() error {
	changed := false
	var broken []error
	note := func(what string, c bool, err error) {
		changed = changed || c
		if err != nil {
			broken = append(broken, err)
		}
		s.tellReload(what, c, err)
	}
	c, err := s.policy.Reload()
	note("policy", c, err)
	if s.keys != nil {
		c, err = s.keys.reload()
		note("tls", c, err)
	}
	if s.tokens != nil {
		c, err = s.tokens.reload()
		note("tokens", c, err)
	}
	if changed {
		s.recheck()
	}
	return errors.Join(broken...)
}

// tellReload logs changes, and what is broken when that is new.
func (s *Server) tellReload(what string, changed bool, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	if s.broken == nil {
		s.broken = map[string]string{}
	}
	fresh := s.broken[what] != text
	s.broken[what] = text
	s.mu.Unlock()
	switch {
	case changed:
		s.logger.Info("wattle: reloaded", "what", what)
	case fresh && text != "":
		s.logger.Error("wattle: a changed file is broken; what was read before stays in force", "what", what, "error", clean(text))
	}
}

// brokenNow says for policy, tls and tokens if the files as they are now are not in force.
func (s *Server) brokenNow() map[string]bool {
	all := map[string]bool{"policy": s.policy.State().Broken != nil}
	if s.keys != nil {
		all["tls"] = s.keys.whyBroken() != nil
	}
	if s.tokens != nil {
		all["tokens"] = s.tokens.whyBroken() != nil
	}
	return all
}

func (s *Server) lookAfterFiles(ctx context.Context) {
	tick := time.NewTicker(DefaultReloadInterval)
	defer tick.Stop()
	state := s.policy.State()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.Reload() // told where it happens
		case <-state.Changed():
			state = s.policy.State()
			s.recheck()
		}
	}
}
