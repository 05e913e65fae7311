// JSON values, for carriers whose encoding is another one.

package handler

// JSON returns the one JSON value that b is, without the white space around it, or says
// why the contract takes it for none. It refers to b.
func JSON(b []byte) (value []byte, err error) {
	s := &scanner{b: b}
	err = s.whole(func() (err error) {
		value, err = s.raw()
		return err
	})
	return value, err
}
