// Schema names: which are allowed, how they are quoted, how they get into the SQL files.

package migrations

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// maxName is PostgreSQL's limit for identifiers, in bytes; it would cut a longer one silently.
const maxName = 63

// ErrPoolTooSmall is returned for a pool of one connection: the migrator works on one and keeps its lease on another.
var ErrPoolTooSmall = errors.New("migrations: the pool must allow at least two connections")

// SchemaNameError says why a name cannot be that of a store's schema.
type SchemaNameError struct {
	Name   string
	Reason string
}

func (e *SchemaNameError) Error() string {
	return fmt.Sprintf("migrations: schema name %q %s", e.Name, e.Reason)
}

// name is a schema name that has been checked, unquoted.
type name string

func parseName(s string) (name, error) {
	if s == "" {
		return DefaultSchema, nil
	}
	if reason := badName(s); reason != "" {
		return "", &SchemaNameError{Name: s, Reason: reason}
	}
	return name(s), nil
}

// badName gives the reason why PostgreSQL or goose could not take s, or "". goose splits a file into statements by
// lines, and takes "--" for a comment inside quotes too.
func badName(s string) string {
	switch {
	case len(s) > maxName:
		return fmt.Sprintf("has %d bytes, %d are allowed", len(s), maxName)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "contains a control character"
	case strings.Contains(s, "--"):
		return `contains "--"`
	}
	return ""
}

func (n name) quoted() string { return pgx.Identifier{string(n)}.Sanitize() }

// table qualifies one of this package's own table names.
func (n name) table(t string) string { return n.quoted() + "." + pgx.Identifier{t}.Sanitize() }

// literal is s as an SQL string; names hold no control characters, so doubling quotes is enough with
// standard_conforming_strings, PostgreSQL's default.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// named is fsys with the placeholder of the schema replaced and goose's substitution switched off, so that a "$" in the
// name means itself.
func named(fsys fs.FS, n name) fs.FS {
	return namedFS{fsys, strings.NewReplacer(
		"${WATTLE_SCHEMA:-"+DefaultSchema+"}", n.quoted(),
		"-- +goose ENVSUB ON", "-- +goose ENVSUB OFF",
	)}
}

type namedFS struct {
	fs.FS
	schema *strings.Replacer
}

// Open implements fs.FS. Directories pass through.
func (f namedFS) Open(path string) (fs.File, error) {
	file, err := f.FS.Open(path)
	if err != nil || !strings.HasSuffix(path, ".sql") {
		return file, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	body := []byte(f.schema.Replace(string(text)))
	return &textFile{Reader: bytes.NewReader(body), info: sized{info, int64(len(body))}}, nil
}

// textFile is a replaced file, in memory.
type textFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *textFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *textFile) Close() error               { return nil }

// sized corrects the size for the replaced text.
type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }
