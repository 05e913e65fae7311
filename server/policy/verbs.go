// Verbs: what can be allowed.

package policy

// Verb is one kind of access.
type Verb string

// The verbs.
const (
	Read     Verb = "read"     // entries, heads, snapshots, the feed; follow, watch and wait
	Append   Verb = "append"   // entries, and claim the stream with them
	Fence    Verb = "fence"    // a stream: whoever holds it can write no more
	Trim     Verb = "trim"     // entries away
	Snapshot Verb = "snapshot" // save snapshots
	Hold     Verb = "hold"     // set and release floors under trimming
	Lease    Verb = "lease"    // acquire, renew, release and list leases, by their names
	Admin    Verb = "admin"    // create and delete categories, streams and topics
	Diagnose Verb = "diagnose" // verify and examine the whole store: on * only
	Publish  Verb = "publish"  // to topics
	Consume  Verb = "consume"  // topics, and commit what was consumed
)

// Verbs are all there are.
var verbs = []Verb{Read, Append, Fence, Trim, Snapshot, Hold, Lease, Admin, Diagnose, Publish, Consume}

// Verbs returns all verbs.
func Verbs() []Verb { return append([]Verb(nil), verbs...) }

// Any stands for any verb in questions: is there something that may be done?
const Any Verb = ""

// All is the name that stands for everything there is.
const All = "*"
