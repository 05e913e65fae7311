// Every bound of this package, in one place.

package bankpg

import "time"

const (
	prepareTimeout = time.Minute // for making the table of a version
	maxLooks       = 10          // for the live version, when its table goes each time
	undefinedTable = "42P01"
)
