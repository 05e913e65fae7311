// Emmett, driven by a script in Node.js: commands and answers are a line of JSON each.

package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

const emmettVersion = "0.42.0"

//go:embed emmett.mjs
var emmettScript string

type emmett struct {
	node    *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	said    *strings.Builder // on stderr
	entries int
	streams int
	found   string // versions
}

// emmettStart is the first command.
type emmettStart struct {
	Host     string   `json:"host"`
	Port     uint16   `json:"port"`
	User     string   `json:"user"`
	Password string   `json:"password"`
	Database string   `json:"database"`
	TLS      bool     `json:"tls"`
	Max      int32    `json:"max"` // connections
	Category string   `json:"category"`
	Type     string   `json:"type"`
	Payloads []string `json:"payloads"`
	Streams  int      `json:"streams"`
	Entries  int      `json:"entries"`
	Page     int      `json:"page"`
}

func openEmmett(ctx context.Context, s *setup) (store, error) {
	dir, err := npmPackage(ctx, "@event-driven-io/emmett-postgresql", emmettVersion)
	if err != nil {
		return nil, err
	}
	// As a module given by --eval it finds the packages of its working directory.
	e := &emmett{node: exec.CommandContext(ctx, "node", "--input-type=module", "--eval", emmettScript), said: &strings.Builder{},
		entries: s.entries, streams: s.streams}
	e.node.Dir, e.node.Stderr, e.node.WaitDelay = dir, e.said, 5*time.Second
	out, err := e.node.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if e.in, err = e.node.StdinPipe(); err != nil {
		return nil, err
	}
	if err := e.node.Start(); err != nil {
		return nil, err
	}
	e.out = bufio.NewScanner(out)
	e.out.Buffer(nil, 64<<20) // the times of a run are one line
	c := s.config.ConnConfig
	start := emmettStart{Host: c.Host, Port: c.Port, User: c.User, Password: c.Password, Database: c.Database, TLS: c.TLSConfig != nil,
		Max: s.config.MaxConns, Category: category, Type: eventType, Streams: s.streams, Entries: s.entries, Page: page}
	for _, p := range s.payloads {
		start.Payloads = append(start.Payloads, string(p))
	}
	a, err := e.ask("start", start)
	e.found = a.Version
	return e, err
}

type emmettAnswer struct {
	Error   string  `json:"error"`
	Version string  `json:"version"`
	Events  int     `json:"events"`
	Times   []int64 `json:"times"` // µs
	Took    float64 `json:"took"`  // µs
	CPU     int64   `json:"cpu"`   // µs
}

func (e *emmett) ask(command string, args any) (a emmettAnswer, err error) {
	line, err := json.Marshal(map[string]any{"command": command, "args": args})
	if err != nil {
		return a, err
	}
	if _, err := e.in.Write(append(line, '\n')); err != nil {
		return a, fmt.Errorf("emmett: %w: %s", err, e.ended())
	}
	if !e.out.Scan() {
		return a, fmt.Errorf("emmett: %s: %w: %s", command, errors.Join(e.out.Err(), io.ErrUnexpectedEOF), e.ended())
	}
	if err := json.Unmarshal(e.out.Bytes(), &a); err != nil {
		return a, fmt.Errorf("emmett: %s: %w", command, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("emmett: %s: %s", command, a.Error)
	}
	return a, nil
}

// ended is what a process that has ended said.
func (e *emmett) ended() string {
	e.close()
	return e.said.String()
}

func (e *emmett) sample(command string, args any) (sample, error) {
	a, err := e.ask(command, args)
	s := sample{events: a.Events, took: time.Duration(a.Took * 1e3), cpu: time.Duration(a.CPU) * time.Microsecond}
	for _, t := range a.Times {
		s.times = append(s.times, time.Duration(t)*time.Microsecond)
	}
	return s, err
}

func (e *emmett) appends(_ context.Context, writers, k int, d time.Duration) (sample, error) {
	return e.sample("appends", map[string]any{"writers": writers, "k": k, "seconds": d.Seconds()})
}

func (e *emmett) fill(context.Context) error {
	_, err := e.ask("fill", nil)
	return err
}

func (e *emmett) loads(_ context.Context, d time.Duration) (sample, error) {
	return e.sample("loads", map[string]any{"seconds": d.Seconds()})
}

func (e *emmett) catchUp(context.Context) (sample, error) { return e.sample("catchUp", nil) }
func (e *emmett) scan(context.Context) (sample, error)    { return e.sample("scan", nil) }

func (e *emmett) count(context.Context) (int64, error) {
	a, err := e.ask("count", nil)
	return int64(a.Events), err
}

// rest is left to the script's pool, which gives up connections that idle for some seconds.
func (e *emmett) rest() {}

func (e *emmett) version() string { return e.found }

// close ends the script by the end of its input.
func (e *emmett) close() {
	_ = e.in.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = e.node.Process.Kill() })
	defer late.Stop()
	_ = e.node.Wait()
}
