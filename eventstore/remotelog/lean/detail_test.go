// The detail of errors: all kinds, and what is none.

package lean

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// theirs are kinds that no call of this client is answered with.
var theirs = map[wattlev1.ErrorKind]bool{wattlev1.ErrorKind_ERROR_KIND_UNSPECIFIED: true, wattlev1.ErrorKind_ERROR_KIND_SLOW_CONSUMER: true,
	wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_TOPIC: true, wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_PROJECTOR: true, wattlev1.ErrorKind_ERROR_KIND_NOT_OWNER: true}

func TestEveryKind(t *testing.T) {
	for n, name := range wattlev1.ErrorKind_name {
		if known := kinds[uint64(n)] != nil; known == theirs[wattlev1.ErrorKind(n)] {
			t.Errorf("%s: known is %v", name, known)
		}
	}
}

func TestDetail(t *testing.T) {
	id, holder := eventstore.NewUUID(), eventstore.NewUUID()
	b, err := proto.Marshal(&wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_TRIMMED, Op: "read", Stream: "a-b", Category: "a", Wanted: "w", Found: "f", Hint: "h",
		Head: &wattlev1.Head{Epoch: 3, Holder: holder.String(), Last: &wattlev1.Mark{Seqno: 1 << 40, Id: id.String()}, Trimmed: 5}, First: 6, FirstPosition: 7, Unprovable: true, Owner: "x"})
	if err != nil {
		t.Fatal(err)
	}
	got, ok := action{op: "other"}.detail(b)
	want := &eventstore.Error{Kind: eventstore.ErrTrimmed, Op: "read", Stream: "a-b", Category: "a", Wanted: "w", Found: "f", Hint: "h",
		Head: &eventstore.Head{Epoch: 3, Holder: holder, Last: eventstore.Mark{Seqno: 1 << 40, ID: id}, Trimmed: 5}, First: 6, FirstPosition: 7, Unprovable: true}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, ok, want)
	}
}

func FuzzDetail(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Add([]byte{0x42, 2, 8, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		err, ok := action{op: "x"}.detail(b)
		if ok != (err != nil) {
			t.Fatalf("%v, %v", err, ok)
		}
		if ok && err.Error() == "" {
			t.Fatal("says nothing")
		}
	})
}
