// Bounds of a policy.

package policy

// Bounds of a policy file.
const (
	MaxFileBytes  = 1 << 20 // the file
	MaxRules      = 10_000  // its lines that are rules
	MaxNames      = 64      // names in one field
	MaxNameBytes  = 256     // one name
	maxShownBytes = 100     // of what an error quotes
)
