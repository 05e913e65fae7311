// wattle verify and wattle doctor: what they print and exit with.

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// damage runs SQL in a store's schema.
func damage(t *testing.T, store, sql string) {
	t.Helper()
	if _, err := pgtest.Pool(t).Exec(t.Context(), strings.ReplaceAll(sql, "{s}", schemaOf(t, store))); err != nil {
		t.Fatal(err)
	}
}

func unmarshal[T any](t *testing.T, r result) (v T) {
	t.Helper()
	if strings.Count(r.out, "\n") != 1 {
		t.Errorf("wanted one object, found %q", r.out)
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerify(t *testing.T) {
	t.Parallel()
	store, all := loaded(t)
	stream := all[0].Stream
	wattle(t, "verify", "--store", store).wants(t, 0, "10 streams, ", " entries of postgres", "0 faults, 0 warnings, 0 notes")
	whole := unmarshal[verifiedJSON](t, wattle(t, "verify", "-o", "json", "--store", store).wants(t, 0))
	if whole.Streams != 10 || whole.Entries != int64(len(all)) || whole.Faults != 0 || whole.Findings == nil || len(whole.Findings) != 0 {
		t.Errorf("of a whole store: %+v", whole)
	}

	trim(t, store, stream, 2)
	wattle(t, "verify", "--store", store).wants(t, 0, "note ", "unreclaimed", "1 note")
	wattle(t, "verify", "--fail-on", "note", "--store", store).wants(t, exitFound, "found 0 faults, 0 warnings, 1 note")

	damage(t, store, "delete from {s}.entries where stream = (select ordinal from {s}.streams where key = '"+stream.Key()+"') and seqno in (4, 6); update {s}.checkpoints set incarnation = gen_random_uuid() where lane = 0")
	r := wattle(t, "verify", "--store", store).wants(t, exitFound, "SEVERITY  CHECK", "fault ", string(stream)+" at 4", "entry 6 is missing", "wattle: found 2 faults, 1 warning, 1 note\n")
	if lines := strings.Count(r.out, "\n"); lines != 6 {
		t.Errorf("wanted a header, 4 findings and a summary, found\n%s", r.out)
	}
	torn := unmarshal[verifiedJSON](t, wattle(t, "verify", "-o", "json", "--store", store).wants(t, exitFound))
	if torn.Faults != 2 || torn.Warnings != 1 || torn.Notes != 1 || len(torn.Findings) != 4 {
		t.Fatalf("of a torn store: %+v", torn)
	}
	if f := torn.Findings[0]; f.Check != "gap" || f.Severity != eventstore.SeverityFault || f.Stream != stream || f.Category != "application" || f.Seqno != 4 ||
		f.Wanted == "" || f.Found != "entry 4 is missing" || f.Hint == "" {
		t.Errorf("the first finding: %+v", f)
	}
	few := unmarshal[verifiedJSON](t, wattle(t, "verify", "--limit", "1", "-o", "json", "--store", store).wants(t, exitFound))
	if few.Faults != 2 || len(few.Findings) != 1 {
		t.Errorf("with --limit 1: %+v", few)
	}
}

// On a terminal the progress is off the screen while a finding is printed.
func TestVerifyProgress(t *testing.T) {
	t.Parallel()
	store, _ := loaded(t)
	damage(t, store, "delete from {s}.entries where seqno = 3")
	var screen buffer // both streams lead to one
	a := newApp(strings.NewReader(""), &screen, &screen, noEnv)
	a.terminal = func(any) bool { return true }
	if code := a.run(t.Context(), []string{"verify", "--store", store}); code != exitFound {
		t.Errorf("exit code %d: %s", code, screen.String())
	}
	findings := 0
	for line := range strings.Lines(screen.String()) {
		shown := line[strings.LastIndex(line, eraseLine)+len(eraseLine):]
		if !strings.Contains(line, eraseLine) {
			shown = line
		}
		if strings.HasPrefix(shown, "fault ") && strings.Contains(shown, "application-") { // lanes that have come as far are named too
			findings++
		}
	}
	if findings != 10 || !strings.Contains(screen.String(), eraseLine+"  0%  0 streams") {
		t.Errorf("wanted progress and 10 whole lines of faults, found %q", screen.String())
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	store := storeURL(t)
	wattle(t, "doctor", "--store", store).wants(t, exitFound, "fault ", "schema", "wattle migrate up", "wattle: found 1 fault, ")
	wattle(t, "migrate", "up", "--store", store).wants(t, 0)
	wattle(t, "doctor", "--store", store).wants(t, 0, "SEVERITY  CHECK", "ok        server-version", "incarnation", "wal_compression on")
	wattle(t, "doctor", "--fail-on", "note", "--store", store).wants(t, exitFound, "0 faults, ")
	sound := unmarshal[examinedJSON](t, wattle(t, "doctor", "-o", "json", "--store", store).wants(t, 0))
	if sound.Faults != 0 || sound.Notes == 0 || len(sound.Findings) < 20 {
		t.Errorf("of a sound store: %+v", sound)
	}
	strict := unmarshal[examinedJSON](t, wattle(t, "doctor", "-o", "json", "--store", store+"&default_transaction_isolation=serializable").wants(t, exitFound))
	for _, f := range strict.Findings {
		if f.Check == "isolation" && f.Severity == eventstore.SeverityFault && f.Found == "serializable" && f.Wanted == "read committed" && f.Hint != "" {
			return
		}
	}
	t.Errorf("wanted a fault about the isolation level, found %+v", strict)
}
