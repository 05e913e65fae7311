// Node with generated code, on each protocol.

package foreign

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/foreign/servetest"
)

// nodeCases is how many cases the client has, of all transports: none is to be left out.
const nodeCases = 4*13 + 1

func TestNode(t *testing.T) {
	installNode(t)
	generateNode(t)
	s := servetest.Start(t, program)
	c := command(t, "node", "client.mjs")
	c.Dir = "node"
	c.Env = append(os.Environ(), "WATTLE_URL="+s.URL, "WATTLE_DIR="+s.Dir, "WATTLE_TOKEN="+servetest.Token)
	var warnings bytes.Buffer
	c.Stderr = &warnings
	tell, err := c.StdinPipe()
	must(t, err)
	said, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	n := 0
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if lines.Text() == "restart" {
			s.Restart(t)
			_, err := io.WriteString(tell, "done\n")
			must(t, err)
			continue
		}
		n++
		reportCase(t, lines.Text())
	}
	if err := c.Wait(); n != nodeCases || err != nil {
		t.Errorf("wanted %d cases and a good end, found %d and %v\n%s", nodeCases, n, err, &warnings)
	}
}

// reportCase makes a test of a line that the client says.
func reportCase(t *testing.T, line string) {
	verdict, rest, _ := strings.Cut(line, " ")
	name, why, _ := strings.Cut(rest, ": ")
	t.Run(name, func(t *testing.T) {
		if verdict != "ok" {
			t.Error(strings.ReplaceAll(why, " | ", "\n"))
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// installNode installs what package-lock.json names, if that has not been done.
func installNode(t *testing.T) {
	lock, err := os.Stat("node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.Stat("node/node_modules/.package-lock.json")
	if err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	c := command(t, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
	c.Dir = "node"
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("the client in Node needs Node.js 20 or newer with npm: %v\n%s", err, out)
	}
	now := time.Now()
	if err := os.Chtimes("node/node_modules/.package-lock.json", now, now); err != nil {
		t.Fatal(err)
	}
}

// generateNode makes node/gen with protoc-gen-es, which buf generate would run in the same
// way, from the descriptors that the Go code has.
func generateNode(t *testing.T) {
	r := &pluginpb.CodeGeneratorRequest{Parameter: proto.String("target=js,import_extension=js")}
	for _, f := range []protoreflect.FileDescriptor{wattlev1.File_wattle_v1_log_proto, wattlev1.File_wattle_v1_admin_proto, wattlev1.File_wattle_v1_topic_proto, wattlev1.File_wattle_v1_error_proto} {
		addFile(r, f)
	}
	for _, f := range r.ProtoFile {
		if strings.HasPrefix(f.GetName(), "wattle/") {
			r.FileToGenerate = append(r.FileToGenerate, f.GetName())
		}
	}
	in, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	c := command(t, "node", "node_modules/@bufbuild/protoc-gen-es/bin/protoc-gen-es")
	c.Dir, c.Stdin, c.Stderr = "node", bytes.NewReader(in), os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	answer := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(out, answer); err != nil || answer.Error != nil || len(answer.File) == 0 {
		t.Fatalf("wanted files, found %d, %v, %q", len(answer.File), err, answer.GetError())
	}
	for _, f := range answer.File {
		path := filepath.Join("node", "gen", filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// addFile adds a file behind those that it imports, once.
func addFile(r *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor) {
	if slices.ContainsFunc(r.ProtoFile, func(has *descriptorpb.FileDescriptorProto) bool { return has.GetName() == f.Path() }) {
		return
	}
	for i := range f.Imports().Len() {
		addFile(r, f.Imports().Get(i).FileDescriptor)
	}
	r.ProtoFile = append(r.ProtoFile, protodesc.ToFileDescriptorProto(f))
}
