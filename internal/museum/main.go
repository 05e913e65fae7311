// Command museum shows that the tests can fail: it plants one bug after another
// with go test -overlay (the tree is not touched) and runs the tests that are to
// catch it. A bug that is not caught, or that no longer applies to the code, fails
// the run; so does one whose tests fail without it, or that is "caught" only because
// the tests ran out of time.
//
//	go run ./internal/museum            # all, from the root of the module
//	go run ./internal/museum -bug TEXT  # those that match TEXT, as "area: name"
//	go run ./internal/museum -list      # the bugs, nothing is run
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"time"
)

// area is a group of bugs that the tests of one package are to catch.
type area struct {
	name string
	pkg  string // from the root of the module
	bugs []bug
}

// bug is one planted bug: in file the text old, which stands there once, becomes now.
type bug struct {
	name     string
	file     string // from the root of the module
	old, now string
	run      string // which tests of the area's package are to catch it, for go test -run
}

var areas = []area{
	contractBugs, inputBugs, storeBugs, schemaBugs,
	pglogStatementBugs, pglogFeedBugs, pglogGroupBugs, pglogWithinBugs,
	logBugs,
	linearMemlogBugs, linearPglogBugs, hammerBugs,
	aggregateBugs, aggregateUnknownBugs,
	projectorBugs, lanesBugs, beatBugs, pgbeatBugs, projectorStoreBugs, pgcheckpointBugs, reactorBugs, timerBugs, controlBugs, pgcontrolBugs, beginBugs,
	natsannounceBugs, followBugs, migrationBugs,
	loanBugs, deadlineBugs, bankBugs, bankWorkersBugs, bankpgBugs,
	cliBugs, loadBugs, costBugs,
	peersBugs,
	switchBugs, switchCommandBugs,
	pglogWireBugs,
	clusterBugs,
	pglogVerifyBugs,
	routeBugs, routeProjectorBugs,
	concurrentSinkBugs, natssinkBugs, inlineBugs, appendOptionBugs, logcheckpointBugs,
	guestprojBugs, pgdocumentsBugs,
	healthBugs, leasesBesideBugs, projectorCommandBugs,
	leaseBugs, workerBugs,
	handlerBugs, guestBugs, edgeBugs,
	natscarrierBugs, connectcarrierBugs, carriersBugs, conformanceBugs,
	streamingBugs, wireBugs, remotelogBugs,
	remotetopicBugs,
	httpBugs, functionBugs,
	filelogCrashBugs, filelogFaultBugs, filelogDamageBugs,
	wasmBugs, guestCommandBugs,
	guestsBugs,
	consumeBugs,
	topicBugs,
	foreignBugs, grpcurlBugs,
	serverBugs, policyBugs,
}

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout)) }

func run(ctx context.Context, args []string, out io.Writer) int {
	flags := flag.NewFlagSet("museum", flag.ContinueOnError)
	only := flags.String("bug", "", "only bugs that match this regular expression, as \"area: name\"")
	list := flags.Bool("list", false, "list the bugs, and say which no longer apply; run nothing")
	why := flags.Bool("why", false, "show what the tests said of each bug")
	bare := flags.Bool("bare", false, "do not run the tests without the bugs first")
	side := flags.Int("j", min(2, runtime.NumCPU()), "how many bugs are tried side by side")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "museum: -bug:", err)
		return 2
	}
	chosen := choose(pattern)
	if *list {
		return catalogue(out, chosen)
	}
	m := &museum{out: out, why: *why, total: count(chosen), began: time.Now(), slots: make(chan struct{}, max(*side, 1))}
	for _, a := range chosen {
		m.show(ctx, a, *bare)
	}
	fmt.Fprintf(out, "museum: %d passed, %d failed (a bug passes when the suite catches it), %.0f s\n", m.passed, m.failed, time.Since(m.began).Seconds())
	if m.failed > 0 || m.total == 0 {
		return 1
	}
	return 0
}

// choose returns the areas with the bugs that match.
func choose(pattern *regexp.Regexp) []area {
	var chosen []area
	for _, a := range areas {
		all := a.bugs
		a.bugs = nil
		for _, b := range all {
			if pattern.MatchString(a.name + ": " + b.name) {
				a.bugs = append(a.bugs, b)
			}
		}
		if len(a.bugs) > 0 {
			chosen = append(chosen, a)
		}
	}
	return chosen
}

func count(areas []area) (n int) {
	for _, a := range areas {
		n += len(a.bugs)
	}
	return n
}

// catalogue lists bugs, and says of those that no longer apply what is the matter.
func catalogue(out io.Writer, areas []area) (status int) {
	for _, a := range areas {
		for _, b := range a.bugs {
			fmt.Fprintf(out, "%s: %s: %s\n", a.name, b.name, b.file)
			if _, err := b.changed(); err != nil {
				status = 1
				fmt.Fprintf(out, "    BROKEN: %v\n", err)
			}
		}
	}
	return status
}

// museum is one run.
type museum struct {
	out            io.Writer
	why            bool
	total          int
	passed, failed int
	began          time.Time
	slots          chan struct{} // as many as are tried side by side
}

// show tries the bugs of an area, after its tests without any bug: tests that fail
// by themselves catch nothing.
func (m *museum) show(ctx context.Context, a area, bare bool) {
	if !bare {
		v := timed(func() verdict { return a.control(ctx) })
		if v.kind != missed {
			m.failed += len(a.bugs)
			m.line("BROKEN", a.name+" without a bug: "+v.text, v)
			return
		}
		m.line("control", a.name, v)
	}
	tried := make([]chan verdict, len(a.bugs))
	for i := range a.bugs {
		tried[i] = make(chan verdict, 1)
	}
	go func() { // in their order, which is that of the lines
		for i, b := range a.bugs {
			m.slots <- struct{}{}
			go func() {
				defer func() { <-m.slots }()
				tried[i] <- timed(func() verdict { return b.try(ctx, a.pkg) })
			}()
		}
	}()
	for i, b := range a.bugs {
		v := <-tried[i]
		if v.kind == caught {
			m.passed++
		} else {
			m.failed++
		}
		m.line(string(v.kind), a.name+": "+b.name+": "+v.text, v)
	}
}

func timed(f func() verdict) verdict {
	began := time.Now()
	v := f()
	v.took = time.Since(began)
	return v
}

// line prints a verdict, how many there are, and the time it took, alone and in all.
func (m *museum) line(word, text string, v verdict) {
	fmt.Fprintf(m.out, "%-8s %3d/%d %6.1f s %6.0f s  %s\n", word, m.passed+m.failed, m.total, v.took.Seconds(), time.Since(m.began).Seconds(), text)
	if m.why && word != "control" || word == string(broken) {
		fmt.Fprintln(m.out, v.output)
	}
}
