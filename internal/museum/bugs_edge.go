// Bugs of what joins Go programs to the Workers' runtime.

package main

var edgeBugs = area{"edge", "examples/edge/worker", []bug{
	{"rest of a chunk dropped", "examples/edge/worker/conn_js.go",
		"	c.rest = c.rest[n:]\n", "	c.rest = nil\n", "TestConnEcho"},
	{"deadline of a Read that waits not seen", "examples/edge/worker/deadline_js.go",
		"	if d.changed != nil {\n		close(d.changed)\n	}\n", "", "TestConnDeadline"},
	{"deadline never taken back", "examples/edge/worker/deadline_js.go",
		"d.timer, d.past, d.changed = nil, nil, nil", "d.timer, d.changed = nil, nil", "TestConnDeadline"},
	{"socket left open", "examples/edge/worker/conn_js.go",
		"		err = (<-await(c.socket.Call(\"close\"))).err\n", "		err = nil\n", "TestConnClose"},
	{"end of the connection told once", "examples/edge/worker/conn_js.go",
		"		return 0, c.err\n	}\n	n := copy(p, c.rest)", "		err := c.err\n		c.err = nil\n		return 0, err\n	}\n	n := copy(p, c.rest)", "TestConnEnd"},
	{"connection that came too late kept", "examples/edge/worker/conn_js.go",
		"		socket.Call(\"close\")\n		return failed(ctx.Err())", "		return failed(ctx.Err())", "TestDialFails"},
	{"first value of a header only", "examples/edge/worker/serve_js.go",
		"for _, v := range values {", "for _, v := range values[:1] {", "TestServe"},
	{"header sent twice arrives once", "examples/edge/worker/serve_js.go",
		"q.Header.Add(", "q.Header.Set(", "TestServe"},
	{"last status counts", "examples/edge/worker/serve_js.go",
		"if w.status == 0 && status >= 200 {", "if status >= 200 {", "TestServe"},
	{"request of whoever comes first", "examples/edge/worker/serve_js.go",
		".Call(\"get\", os.Args[1])", ".Call(\"values\").Call(\"next\").Get(\"value\")", "TestServeAlone"},
}}
