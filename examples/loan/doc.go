// What this package is and how its parts hang together.

// Package loan is the loan application process of a bank, written as an
// event-sourced aggregate: the example that carries Wattle's main job.
//
// It is the pure part, standard library only, without a clock, a store or a
// goroutine, so that the same code runs in a process and in a WebAssembly guest:
//
//	ReadXES  ──Case──▶  CommandFor  ──Command──▶  Decide  ──Event──▶  Evolve   (the write side)
//	Generate ──Case──▶                                    ──Event──▶  Apply ──Application──▶ Summarize ──▶ Report
//
// One loan application is one stream. Every event of a log is one command, and
// Decide answers it with exactly one event or with a *Refusal that names the
// rule. The rules were mined from the BPI Challenge 2012 log (13,087
// applications, 262,200 events of a Dutch bank): each holds for every event
// there, so none refuses what the bank really did. What looks like a rule and is
// not (an approval needs an accepted offer, a completed work item was started,
// nothing follows a decline) is deliberately absent.
package loan
