// Package schema ties the wire names and versions of stored events to Go types.
//
// A Registry lists them once, at start-up:
//
//	events := schema.New[Event](
//		schema.Wire[Opened]("opened", 1),
//		schema.Wire[Deposited]("deposited", 1))
//
// and is from then on the one way in which aggregates and projectors write and
// read events: [Registry.Encode] and [Registry.Decode]. A wire name and version
// stand in the log for ever; Go types may be renamed and moved freely.
//
// New never fails. Mistakes in a list are gathered, all of them, and given by
// [Registry.Err]; whatever takes a Registry (aggregate.NewExecutor, the handlers
// of projectors) refuses one with mistakes, so that they are seen at start-up and
// not at the first event of some type.
//
// # Events are values
//
// Registered types are structs or other plain values, never pointers or
// interfaces: a JSON null would decode to a nil pointer, which no fold expects,
// and *T beside T would make two types of one.
//
// # Old versions
//
// An event whose schema changed gets a new version and keeps its name. Until
// upcasting is there, the old version stays registered under a Go type of its own:
//
//	schema.Wire[OpenedV1]("opened", 1),
//	schema.Wire[Opened]("opened", 2),
//
// Upcasting has its place in [Registry.Decode], between finding the wire and
// calling the codec: what turns the data of an old version into that of a newer
// one will be given beside Wire, and nothing that calls Decode will change.
//
// # Numbers
//
// The [JSON] codec keeps numbers exact: a typed field as far as its Go type
// reaches, a field of type any as json.Number, digit for digit.
package schema
