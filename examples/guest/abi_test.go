// What a host that breaks the rules of the ABI gets.

package guest_test

import (
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wattle-es/wattle/handler"
)

// A length that was not allocated, and a request that was answered, are refused: a guest
// reads what it was given, and nothing else.
func TestLength(t *testing.T) {
	request := []byte(full[2])
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			r := wazero.NewRuntime(t.Context())
			defer r.Close(t.Context())
			m, err := r.Instantiate(t.Context(), l.built(t))
			if err != nil {
				t.Fatal(err)
			}
			at := call(t, m, "es1_alloc", uint64(len(request)))
			if !m.Memory().Write(uint32(at), request) {
				t.Fatalf("es1_alloc gave %d", at)
			}
			if reply := decided(t, m, len(request)); reply.Failure != nil || len(reply.Events) != 1 {
				t.Errorf("wanted an event, found %+v", reply.Failure)
			}
			for _, n := range []int{len(request), len(request) + 1, 1 << 20, 1<<31 - 1, -1} {
				if reply := decided(t, m, n); reply.Failure == nil || reply.Failure.Code != handler.CodeInvalid || !strings.Contains(reply.Failure.Message, "allocated") {
					t.Errorf("%d bytes: wanted a failure, found %+v", n, reply)
				}
			}
			call(t, m, "es1_alloc", 0)
			if reply := decided(t, m, 0); reply.Failure == nil {
				t.Error("wanted a failure for no request, found none")
			}
		})
	}
}

func call(t *testing.T, m api.Module, name string, args ...uint64) uint64 {
	t.Helper()
	results, err := m.ExportedFunction(name).Call(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return results[0]
}

func decided(t *testing.T, m api.Module, n int) *handler.Reply {
	t.Helper()
	result := call(t, m, "es1_decide", uint64(uint32(int32(n))))
	data, ok := m.Memory().Read(uint32(result>>32), uint32(result))
	if !ok {
		t.Fatalf("the reply lies at %x", result)
	}
	reply, err := handler.ParseReply(append([]byte{}, data...))
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
