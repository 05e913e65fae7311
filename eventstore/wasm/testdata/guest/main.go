// Command guest is a guest in Go with many moods: the first byte of a request says which.
// Tests build it once:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o guest.wasm ./eventstore/wasm/testdata/guest
package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func main() {} // never runs in a guest

func init() { wasm.Serve(serve) }

var (
	calls int
	kept  [][]byte
)

type node struct{ next *node }

func serve(op string, request []byte) []byte {
	calls++
	if op == wasm.OpDescribe {
		return []byte(`{"name":"moods"}`)
	}
	mood, rest := request[0], request[1:]
	switch mood {
	case 'e': // echo
		return rest
	case 'o': // which operation
		return []byte(op)
	case 'l':
		for calls > 0 { // without end
			calls++
		}
	case 'h': // hog
		for range 64 {
			kept = append(kept, bytes.Repeat([]byte{1}, 1<<20))
		}
	case 'g': // grow by 1 MiB
		kept = append(kept, bytes.Repeat([]byte{1}, 1<<20))
	case 'n':
		var none *node
		return []byte(fmt.Sprint(none.next))
	case 'p':
		panic("lost: " + string(rest))
	case 'd': // deadlock
		<-make(chan int)
	case 'r': // recurse without end
		return []byte{byte(recurse(0))}
	case 'x':
		os.Exit(int(int8(rest[0])))
	case 'q':
		return nil
	case 'f': // flood of stderr
		fmt.Fprintln(os.Stderr, "first words")
		for range 2000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 1000))
		}
		panic("last words")
	case 'm': // what a map's order says
		set := map[int]bool{}
		for i := range 1000 {
			set[i] = true
		}
		var b bytes.Buffer
		for i := range set {
			fmt.Fprint(&b, i, " ")
		}
		return b.Bytes()
	case 's': // some work
		n := make([]int, 300)
		for i := range n {
			n[i] = i * 7919 % 1000
		}
		slices.Sort(n)
		return fmt.Append(nil, n[:10])
	case 'c':
		return fmt.Append(nil, calls)
	case 'w': // the world
		return world()
	}
	return []byte{mood}
}

func recurse(n int) int {
	var room [64]int
	if n < 0 { // when memory is over
		return n
	}
	room[n%64] = recurse(n + 1)
	return room[(n+1)%64] + 1
}

// world says what there is of it: clock, random, sleep, variables, arguments, files, network.
func world() []byte {
	var b bytes.Buffer
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	time.Sleep(20 * time.Millisecond)
	_, file := os.ReadFile("/etc/hostname")
	_, dial := net.Dial("tcp", "127.0.0.1:80")
	fmt.Fprintf(&b, "%d %x env %d args %d file %v dial %v", time.Now().Year(), random, len(os.Environ()), len(os.Args), file != nil, dial != nil)
	return b.Bytes()
}
