// console: stderr, with one line of progress that never mixes with others.

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// console writes to stderr. When that is a terminal it can keep one line of
// progress at the end, which other lines push on. It may be used from several
// goroutines at once.
type console struct {
	live bool // it is a terminal

	mu   sync.Mutex
	w    io.Writer
	line string // of progress, on the screen now
}

const (
	eraseLine     = "\r\x1b[K"
	progressEvery = 200 * time.Millisecond
)

// Write writes whole lines around the progress.
func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line == "" {
		return c.w.Write(b)
	}
	_, err := io.WriteString(c.w, eraseLine+string(b)+c.line)
	return len(b), err
}

func (c *console) say(line string) { fmt.Fprintln(c, line) }

// show replaces the line of progress; empty removes it.
func (c *console) show(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line = line
	_, _ = io.WriteString(c.w, eraseLine+line) // progress that cannot be shown is none
}

// beside lets f write to another stream, which may be the same terminal, while the
// progress is off the screen.
func (c *console) beside(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line == "" {
		return f()
	}
	_, _ = io.WriteString(c.w, eraseLine)
	defer func() { _, _ = io.WriteString(c.w, c.line) }()
	return f()
}

// progress shows what line returns until stop is called. Where there is no
// terminal it does nothing.
func (c *console) progress(line func() string) (stop func()) {
	if !c.live {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			c.show(line())
			select {
			case <-ctx.Done():
				c.show("")
				return
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// confirm asks on the terminal for a word, so that nothing is destroyed by a
// habit of pressing y. yes skips the question.
func (a *app) confirm(yes bool, what, word string) error {
	if yes {
		return nil
	}
	if !a.terminal(a.stdin) || !a.console.live {
		return &refusal{"a yes to: " + what, "no terminal to ask on", "give --yes to do it without a question"}
	}
	fmt.Fprintf(a.console, "%s.\nType %s to go on: ", what, word)
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer = strings.TrimSpace(answer); answer == word {
		return nil
	}
	if err != nil {
		fmt.Fprintln(a.console)
	}
	return &refusal{word, fmt.Sprintf("%q", answer), "nothing was done"}
}

// warnings puts our name before what the logger writes, a line at a time.
type warnings struct{ console *console }

func (w warnings) Write(b []byte) (int, error) {
	if _, err := w.console.Write(append([]byte("wattle: warning: "), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}
