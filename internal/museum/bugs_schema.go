// Bugs of the registry and its codec, the one way in and out.

package main

var schemaBugs = area{"schema", "eventstore/schema", []bug{
	{"unknown type skipped", "eventstore/schema/decode.go",
		"return none, r.unknownType(e)",
		"return none, nil", "TestUnknownTypes"},
	{"any version decoded as the one that is known", "eventstore/schema/decode.go",
		"	w := r.byWire[wireKey{e.Type, e.Version}]\n",
		"	w := r.byWire[wireKey{e.Type, e.Version}]\n	for k, other := range r.byWire {\n		if w == nil && k.name == e.Type {\n			w = other\n		}\n	}\n", "TestUnknownTypes"},
	{"numbers through float64", "eventstore/schema/codec.go",
		"	dec.UseNumber()\n",
		"", "TestS1Numbers"},
	{"data behind the value ignored", "eventstore/schema/codec.go",
		"!errors.Is(err, io.EOF) {\n		return errors.New(\"something",
		"false && !errors.Is(err, io.EOF) {\n		return errors.New(\"something", "TestUndecodable"},
	{"HTML escaped in what is stored", "eventstore/schema/codec.go",
		"enc.SetEscapeHTML(false)",
		"enc.SetEscapeHTML(true)", "TestRoundTrip"},
	{"two types under one name", "eventstore/schema/registry.go",
		"if other := r.byWire[w.wireKey]; other != nil {",
		"if other := r.byWire[w.wireKey]; other != nil && false {", "TestMistakesAreToldInFull"},
	{"only the first mistake told", "eventstore/schema/registry.go",
		"Mistakes: slices.Clone(r.mistakes)}",
		"Mistakes: slices.Clone(r.mistakes[:1])}", "TestMistakesAreToldInFull"},
	{"read by the codec that writes now", "eventstore/schema/decode.go",
		"codec := r.codecs[e.ContentType]",
		"codec := r.codec", "TestCodecsByContentType"},
}}
