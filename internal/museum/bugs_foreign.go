// Bugs that clients see which others wrote.

package main

var foreignBugs = area{"foreign", "internal/foreign", []bug{
	{"epochs through a double", "internal/wire/encode.go",
		"Seqno: uint64(e.Seqno), Epoch: uint64(e.Epoch),", "Seqno: uint64(e.Seqno), Epoch: uint64(float64(e.Epoch)),", "TestNode"},
	{"payload not to the byte", "internal/wire/encode.go",
		"ContentType: e.ContentType, Data: e.Data, Metadata: e.Metadata}",
		"ContentType: e.ContentType, Data: append(e.Data[:len(e.Data):len(e.Data)], '\\n'), Metadata: e.Metadata}", "TestCurl"},
	{"replay not said to be one", "internal/wire/encode.go",
		"Fenced: r.Fenced, Replays: r.Replays}", "Fenced: r.Fenced}", "TestClientsDocument"},
	{"replayed publication not said to be one", "topic/remotetopic/encode.go",
		"Last: uint64(p.Last), Replays: p.Replays}", "Last: uint64(p.Last)}", "TestCurl"},
	{"refusals without facts", "server/refuse.go",
		"		e.AddDetail(detail)\n", "		_ = detail\n", "TestCurl"},
	{"head left out of the facts", "internal/wire/encode.go",
		"	return &wattlev1.Head{Epoch: uint64(h.Epoch), Holder: FromUUID(h.Holder), Last: FromMark(h.Last), Trimmed: uint64(h.Trimmed)}",
		"	return &wattlev1.Head{Epoch: uint64(h.Epoch), Holder: FromUUID(h.Holder), Trimmed: uint64(h.Trimmed)}", "TestClientsDocument"},
	{"code of a fenced writer changed", "internal/wire/kinds.go",
		"ERROR_KIND_FENCED, Code: connect.CodeAborted}", "ERROR_KIND_FENCED, Code: connect.CodeFailedPrecondition}", "TestCurl"},
	{"certificate of any authority let in", "server/tls.go",
		"ring.config.ClientAuth = tls.VerifyClientCertIfGiven", "ring.config.ClientAuth = tls.RequestClientCert", "TestCurl"},
}}

var grpcurlBugs = area{"grpcurl", "internal/foreign/grpcurl", []bug{
	{"reflection not asked for", "cmd/wattle/serve.go",
		"	o.Logger = logger\n", "	o.Logger, o.Reflection = logger, true\n", "TestReflection"},
	{"facts of a fenced writer left out", "internal/wire/errors.go",
		"		d.Head = FromHead(*e.Head)\n", "		_ = FromHead(*e.Head)\n", "TestFiles"},
}}
