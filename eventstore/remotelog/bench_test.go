// What a call costs beside the one in the same process.

package remotelog_test

import (
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
)

func BenchmarkHead(b *testing.B) {
	url := serve(b, memory(b), nil)
	log := open(b, url, nil)
	if err := log.CreateCategory(b.Context(), eventstore.CategorySpec{Name: "loan"}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := log.Head(b.Context(), "loan-a"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLog(b *testing.B) { logtest.Bench(b, behind(memory, usual)) }
