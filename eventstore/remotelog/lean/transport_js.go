// Calls by the host's fetch. What it says of a failure does not tell whether the request
// was sent, so nothing is ErrNotSent.

package lean

import (
	"context"
	"errors"
	"fmt"
	"syscall/js"
)

type defaultTransport struct{}

// Post sends a body and returns the answer; see [Transport].
func (defaultTransport) Post(ctx context.Context, url string, header map[string]string, body []byte, most int) (int, []byte, error) {
	fetch := js.Global().Get("fetch")
	if fetch.Type() != js.TypeFunction {
		return 0, nil, errors.Join(ErrNotSent, errors.New("there is no fetch here"))
	}
	data := js.Global().Get("Uint8Array").New(len(body))
	js.CopyBytesToJS(data, body)
	headers := map[string]any{}
	for k, v := range header {
		headers[k] = v
	}
	abort := js.Global().Get("AbortController").New()
	defer context.AfterFunc(ctx, func() { abort.Call("abort") })()
	res, err := await(fetch.Invoke(url, map[string]any{"method": "POST", "headers": headers, "body": data, "signal": abort.Get("signal"), "redirect": "manual"}))
	if err != nil {
		return 0, nil, err
	}
	buffer, err := await(res.Call("arrayBuffer"))
	if err != nil {
		return 0, nil, err
	}
	if n := buffer.Get("byteLength").Int(); n > most {
		return 0, nil, fmt.Errorf("an answer of %d bytes, more than %d", n, most)
	}
	view := js.Global().Get("Uint8Array").New(buffer)
	reply := make([]byte, view.Length())
	js.CopyBytesToGo(reply, view)
	return res.Get("status").Int(), reply, nil
}

// await waits for a promise. An abort settles it, so it needs no context.
func await(promise js.Value) (value js.Value, err error) {
	done := make(chan struct{})
	settle := func(f func(js.Value)) js.Func {
		return js.FuncOf(func(_ js.Value, args []js.Value) any {
			if len(args) > 0 {
				f(args[0])
			}
			close(done)
			return nil
		})
	}
	kept := settle(func(v js.Value) { value = v })
	broken := settle(func(v js.Value) { err = errors.New(js.Global().Get("String").Invoke(v).String()) })
	defer kept.Release()
	defer broken.Release()
	promise.Call("then", kept, broken)
	<-done
	return value, err
}
