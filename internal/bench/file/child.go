// Processes of their own: what opening takes and keeps is measured where nothing else
// is, and only a process can be killed.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// childFlag, a task, a directory and a number of streams are the arguments of such a process.
const childFlag = "-child"

const (
	childOpen    = "open"    // opens the store and ends
	childDirty   = "dirty"   // appends and kills itself
	childHandles = "handles" // reads everywhere with few files allowed
)

const (
	dirtyOwners   = 64
	fewFiles      = 8
	handleReaders = 4
)

// dirtyAppends is how many appends stand behind the registry file when a process that
// appends is killed, at a number of streams.
func dirtyAppends(streams int) int { return max(streams/10, dirtyOwners) }

// opened is what a child tells.
type opened struct {
	Took         float64 `json:"took_ms"`
	Before, Heap uint64  // bytes, before opening and after, behind a collection
	Resident     int64
	Files        int // at most
}

// child runs a task. A child that was to kill itself tells nothing.
func child(task, dir string, streams int) (o opened, err error) {
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	var out, complaint bytes.Buffer
	c := exec.Command(self, childFlag, task, dir, strconv.Itoa(streams))
	c.Stdout, c.Stderr = &out, &complaint
	err = c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && task == childDirty && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("%s: %w: %s", task, err, complaint.String())
	}
	return o, json.Unmarshal(out.Bytes(), &o)
}

func runChild(args []string, stdout, stderr io.Writer) int {
	tasks := map[string]func(dir string, streams int) (opened, error){childOpen: openOnly, childDirty: dirty, childHandles: handles}
	if len(args) != 3 || tasks[args[0]] == nil {
		fmt.Fprintln(stderr, "wanted a task, a directory and how many streams there are")
		return 2
	}
	streams, err := strconv.Atoi(args[2])
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	o, err := tasks[args[0]](args[1], streams)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(o)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// openOnly does not close: the next one finds what this one found.
func openOnly(dir string, _ int) (o opened, err error) {
	o.Before = heap()
	start := time.Now()
	s, err := open(dir, nil)
	if err != nil {
		return o, err
	}
	o.Took = micros(time.Since(start)) / 1000
	o.Resident, o.Files = residentBytes(), openFiles(dir)
	o.Heap = heap()
	runtime.KeepAlive(s)
	return o, nil
}

// dirty appends as many owners do, and kills itself.
func dirty(dir string, streams int) (o opened, err error) {
	s, err := open(dir, nil)
	if err != nil {
		return o, err
	}
	if err := s.CreateCategory(context.Background(), eventstore.CategorySpec{Name: category}); err != nil {
		return o, err
	}
	step, err := owners(s, dirtyOwners, payloadOf(scaleData))
	if err != nil {
		return o, err
	}
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for w := range dirtyOwners {
		all.Go(func() {
			for range dirtyAppends(streams) / dirtyOwners {
				if err := step(w); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return o, *err
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(syscall.SIGKILL)
	}
	time.Sleep(time.Minute) // it takes its time
	return o, errors.Join(err, errors.New("still alive"))
}

// handles loads streams that are spread over all segments.
func handles(dir string, streams int) (o opened, err error) {
	s, err := open(dir, &filelog.Options{OpenFiles: fewFiles})
	if err != nil {
		return o, err
	}
	var all sync.WaitGroup
	var most atomic.Int64
	var failed atomic.Pointer[error]
	for r := range handleReaders {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(r), 3))
			for i := range 500 {
				l, err := s.Load(context.Background(), numbered(random.IntN(streams)), "")
				if err == nil {
					for _, err = range l.Tail {
						if err != nil {
							break
						}
					}
				}
				if err != nil {
					failed.Store(&err)
					return
				}
				if i%5 == 0 {
					for n := int64(openFiles(dir)); ; {
						if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
							break
						}
					}
				}
			}
		})
	}
	all.Wait()
	o.Files = int(most.Load())
	if err := failed.Load(); err != nil {
		return o, *err
	}
	return o, s.Close()
}
