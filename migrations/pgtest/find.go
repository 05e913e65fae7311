// Where the PostgreSQL server's executables are.

package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errMissing says exactly what to do. It is a failure: a test that did not run proves nothing.
var errMissing = errors.New(`pgtest: no PostgreSQL server found: initdb and postgres are neither on PATH nor in
/usr/lib/postgresql/*/bin, /usr/pgsql-*/bin or Homebrew's postgresql. Install the server (14 or newer):
	Debian, Ubuntu:  apt-get install postgresql
	Fedora, RHEL:    dnf install postgresql-server
	Alpine:          apk add postgresql
	macOS:           brew install postgresql@18
or set ` + EnvDSN + ` to the DSN of a server whose role may create schemas`)

// places are searched in this order when PATH has none; within one the newest version is taken.
var places = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/usr/libexec/postgresql*", "/usr/local/pgsql/bin",
}

func find() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// Debian and Homebrew link single commands elsewhere; their siblings are where the link leads.
		if real, err := filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(real)) {
			return filepath.Dir(real), nil
		}
	}
	for _, place := range places {
		dirs, _ := filepath.Glob(place) // the only error is a malformed pattern
		slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
		for _, dir := range dirs {
			if complete(dir) {
				return dir, nil
			}
		}
	}
	return "", errMissing
}

// complete says whether dir has all that a server needs.
func complete(dir string) bool {
	for _, command := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, command))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// version is the last number in a path, 0 if there is none.
func version(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[len(digits)-1])
	return n
}
