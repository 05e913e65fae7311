// Files that are read again when they change.

package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// watched is a value made of files. Looking at them costs a stat of each; they are read
// when one has changed, or was changed so lately that its time may not tell. What cannot
// be read or made leaves the value as it is.
type watched[T any] struct {
	files []string
	parse func(texts [][]byte) (T, error)
	value atomic.Pointer[T]

	mu     sync.Mutex
	stamps []stamp
	sum    [sha256.Size]byte
	broken atomic.Pointer[error]
}

// stamp is what a stat tells.
type stamp struct {
	mod  time.Time
	size int64
	id   fs.FileInfo
}

// settled is how old a change must be for its time to tell it from a later one.
const settled = 3 * time.Second

func watch[T any](files []string, parse func(texts [][]byte) (T, error)) (*watched[T], error) {
	w := &watched[T]{files: files, parse: parse}
	_, err := w.reload()
	if err != nil {
		return nil, err
	}
	return w, nil
}

// reload says if the value has changed, and why the files as they are now are not in force.
func (w *watched[T]) reload() (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		w.broken.Store(nil)
		if err != nil {
			w.broken.Store(&err)
		}
	}()
	stamps, same, err := w.look()
	if err != nil {
		w.stamps = nil // when it is there again it is read again
		return false, err
	}
	if same {
		if e := w.broken.Load(); e != nil {
			return false, *e
		}
		return false, nil
	}
	texts, err := readAll(w.files)
	if err != nil {
		w.stamps = nil
		return false, err
	}
	sum := sumOf(texts)
	if w.value.Load() != nil && sum == w.sum {
		w.stamps = stamps
		return false, nil
	}
	value, err := w.parse(texts)
	if err != nil {
		w.stamps = stamps
		return false, err
	}
	w.value.Store(&value)
	w.stamps, w.sum = stamps, sum
	return true, nil
}

// look says if the files are as they were when they were read, as far as a stat can tell.
func (w *watched[T]) look() (stamps []stamp, same bool, err error) {
	same = len(w.stamps) == len(w.files) && w.value.Load() != nil
	for i, file := range w.files {
		info, err := os.Stat(file)
		if err != nil {
			return nil, false, err
		}
		s := stamp{info.ModTime(), info.Size(), info}
		stamps = append(stamps, s)
		if same {
			old := w.stamps[i]
			same = old.mod.Equal(s.mod) && old.size == s.size && os.SameFile(old.id, s.id) && time.Since(s.mod) > settled
		}
	}
	return stamps, same, nil
}

func readAll(files []string) (texts [][]byte, err error) {
	for _, file := range files {
		text, err := readBounded(file)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxListBytes+1))
	if err == nil && len(text) > maxListBytes {
		err = fmt.Errorf("%s: wanted at most %d bytes, found more", file, maxListBytes)
	}
	return text, err
}

func sumOf(texts [][]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, text := range texts {
		part := sha256.Sum256(text)
		_, _ = h.Write(part[:]) // never fails
	}
	h.Sum(sum[:0])
	return sum
}

// whyBroken is why the files as they were last seen are not in force.
func (w *watched[T]) whyBroken() error {
	if e := w.broken.Load(); e != nil {
		return *e
	}
	return nil
}

// tokenFile are the bearer tokens; nil: there are none.
type tokenFile struct{ *watched[[]token] }

// openTokens refuses a file that others may read.
func openTokens(file string) (*tokenFile, error) {
	if file == "" {
		return nil, nil
	}
	w, err := watch([]string{file}, func(texts [][]byte) ([]token, error) {
		if info, err := os.Stat(file); err != nil {
			return nil, err
		} else if info.Mode().Perm()&0o007 != 0 {
			return nil, errors.New(file + ": wanted a file that not everybody may read (chmod 600), found " + info.Mode().Perm().String())
		}
		all, err := parseTokens(texts[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return all, nil
	})
	if err != nil {
		return nil, fmt.Errorf("server: tokens: %w", err)
	}
	return &tokenFile{w}, nil
}

// find returns the identity of a token, "" if there is none.
func (f *tokenFile) find(digest [sha256.Size]byte) string {
	if f == nil {
		return ""
	}
	return findToken(*f.value.Load(), digest)
}
