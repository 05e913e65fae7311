// Building the guests from their sources, once for each state of them. The sources are
// embedded, so that what is built is what this test was built with.

package guest_test

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed assemblyscript/assembly assemblyscript/package.json rust/build.sh rust/src
var sources embed.FS

// language is one in which the guest is written.
type language struct {
	name string
	most int                                 // bytes of the module, compressed
	tool func() (*tool, error)               // or an error that says what to install
	make func(t *tool, out string) *exec.Cmd // builds the sources in its directory

	once   sync.Once
	module []byte
	err    error
}

// tool is a compiler.
type tool struct {
	path    string
	version string
	flags   string
}

// languages are built as their own folders say: by the script of package.json, and build.sh.
var languages = []*language{
	{name: "assemblyscript", most: 64 << 10, tool: assemblyScript, make: func(t *tool, out string) *exec.Cmd {
		return exec.Command("node", append([]string{t.path}, strings.Fields(strings.ReplaceAll(t.flags, "guest.wasm", out))...)...)
	}},
	{name: "rust", most: 64 << 10, tool: rust, make: func(t *tool, out string) *exec.Cmd {
		cmd := exec.Command("sh", "build.sh", out)
		cmd.Env = append(os.Environ(), "RUSTC="+t.path)
		return cmd
	}},
}

const hint = "run `make guests`, which installs it where it may"

// assemblyScript finds the compiler that package.json names.
func assemblyScript() (*tool, error) {
	var wanted struct{ DevDependencies, Scripts map[string]string }
	if data, err := sources.ReadFile("assemblyscript/package.json"); err != nil {
		return nil, err
	} else if err := json.Unmarshal(data, &wanted); err != nil {
		return nil, err
	}
	at, err := filepath.Abs("assemblyscript/node_modules/assemblyscript")
	if err != nil {
		return nil, err
	}
	var found struct{ Version string }
	data, err := os.ReadFile(filepath.Join(at, "package.json"))
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	version := wanted.DevDependencies["assemblyscript"]
	if err != nil || found.Version != version {
		return nil, fmt.Errorf("wanted AssemblyScript %s in %s, found %q (%v): %s, or install Node.js 20 and run `npm ci` in examples/guest/assemblyscript", version, at, found.Version, err, hint)
	}
	return &tool{filepath.Join(at, "bin", "asc.js"), version, strings.TrimPrefix(wanted.Scripts["build"], "asc ")}, nil
}

const rustTarget = "wasm32-unknown-unknown"

// rust finds a compiler that has the library of the target: Debian's, or the one on PATH.
func rust() (*tool, error) {
	var tried []string
	for _, path := range []string{"/usr/bin/rustc", "rustc"} {
		out, err := exec.Command(path, "--print", "target-libdir", "--target", rustTarget).Output()
		if err == nil {
			_, err = os.Stat(strings.TrimSpace(string(out)))
		}
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %v", path, err))
			continue
		}
		version, err := exec.Command(path, "--version").Output()
		if err != nil {
			return nil, err
		}
		return &tool{path: path, version: strings.TrimSpace(string(version))}, nil
	}
	return nil, fmt.Errorf("wanted rustc with the target %s, found %s: %s, or `apt-get install rustc libstd-rust-dev-wasm32 lld`, or `rustup target add %s`",
		rustTarget, strings.Join(tried, "; "), hint, rustTarget)
}

// built returns the module of a language.
func (l *language) built(t testing.TB) []byte {
	t.Helper()
	l.once.Do(func() { l.module, l.err = l.build() })
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.module
}

// build returns the module of these sources, from where an earlier build has left it or by
// the compiler.
func (l *language) build() (module []byte, err error) {
	t, err := l.tool()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wattle-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	cmd := l.make(t, out)
	cmd.Dir = dir
	key := sha256.New()
	fmt.Fprintln(key, t.version, strings.ReplaceAll(strings.Join(cmd.Args, " "), dir, "DIR"))
	if err := unpack(l.name, dir, func(name string, data []byte) { fmt.Fprintf(key, "%s %d\n%s", name, len(data), data) }); err != nil {
		return nil, err
	}
	kept := filepath.Join(cacheDir(), l.name+"-"+hex.EncodeToString(key.Sum(nil)[:16])+".wasm")
	if module, err := os.ReadFile(kept); err == nil {
		return module, nil
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	if module, err = os.ReadFile(out); err != nil {
		return nil, err
	}
	return module, keep(kept, module)
}

// unpack writes a language's sources to dir.
func unpack(name, dir string, each func(name string, data []byte)) error {
	return fs.WalkDir(sources, name, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		each(path, data)
		to := filepath.Join(dir, strings.TrimPrefix(path, name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}

// cacheDir is where modules are kept from one run to the next.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "wattle-guests")
}

// keep puts a module into the cache, whole or not at all.
func keep(path string, module []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(module)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
