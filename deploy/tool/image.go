package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user of the image. It is not root, and no user of the usual systems.
const nobody = 65532

// image writes an OCI layout with an index of one image for each program, such as amd64=build/toll-amd64, and
// prints the digest of the index. Nothing of this machine is in it: the certificates are those of Mozilla in
// a Go module, time zones are those of Go. The same programs make the same digest.
func image(f *flag.FlagSet, args []string) error {
	out := f.String("out", "build/image", "directory of the OCI layout, which is overwritten")
	version := f.String("version", "", "version of the programs")
	commit := f.String("commit", "", "commit of the programs")
	if err := f.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the time of the commit in seconds: %w", err)
	}
	created := time.Unix(seconds, 0).UTC()
	base, err := system(created)
	if err != nil {
		return err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    "toll",
		"org.opencontainers.image.version":  *version,
		"org.opencontainers.image.revision": *commit,
		"org.opencontainers.image.source":   "https://github.com/tollhq/toll",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  created.Format(time.RFC3339),
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range f.Args() {
		arch, file, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("argument %s must have the form ARCHITECTURE=FILE", arg)
		}
		one, err := imageOf(base, file, arch, created, labels)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	if err := os.RemoveAll(*out); err != nil {
		return err
	}
	if _, err := layout.Write(*out, index); err != nil {
		return err
	}
	digest, err := index.Digest()
	fmt.Println(digest)
	return err
}

// imageOf returns the image of one program.
func imageOf(base v1.Layer, file, arch string, created time.Time, labels map[string]string) (v1.Image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := runsAlone(text, arch); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	l := newTree(created)
	l.file("usr/bin/toll", 0o755, text)
	program, err := l.layer()
	if err != nil {
		return nil, err
	}
	one := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if one, err = mutate.AppendLayers(one, base, program); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(one, configOf(one, arch, created, labels))
}

func configOf(one v1.Image, arch string, created time.Time, labels map[string]string) *v1.ConfigFile {
	config, err := one.ConfigFile()
	if err != nil {
		panic(err) // it was made a moment ago
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
	config.History = nil
	config.Config = v1.Config{
		Entrypoint:   []string{"/usr/bin/toll"},
		Cmd:          []string{"serve"},
		User:         fmt.Sprintf("%d:%d", nobody, nobody),
		WorkingDir:   "/data",
		Env:          []string{"PATH=/usr/bin", "TOLL_LISTEN=0.0.0.0:8402"},
		ExposedPorts: map[string]struct{}{"8402/tcp": {}},
		Volumes:      map[string]struct{}{"/data": {}},
		StopSignal:   "SIGTERM",
		Labels:       labels,
	}
	return config
}

// runsAlone refuses a program that needs a loader or libraries, or is for another processor.
func runsAlone(text []byte, arch string) error {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return err
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if f.Machine != want {
		return fmt.Errorf("is built for %s, not for %s", f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return errors.New("is linked dynamically, and the image has no libraries: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// system is what a program without libraries needs of a system.
func system(created time.Time) (v1.Layer, error) {
	l := newTree(created)
	var roots bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil { // what has one is not for everything
			if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}); err != nil {
				return nil, err
			}
		}
	}
	l.directory("data", 0o700, nobody)
	l.directory("etc", 0o755, 0)
	l.file("etc/group", 0o644, []byte(fmt.Sprintf("root:x:0:\ntoll:x:%d:\n", nobody)))
	l.file("etc/passwd", 0o644, []byte(fmt.Sprintf("root:x:0:0:root:/:/none\ntoll:x:%d:%[1]d:toll:/data:/none\n", nobody)))
	l.directory("etc/ssl", 0o755, 0)
	l.directory("etc/ssl/certs", 0o755, 0)
	l.file("etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes())
	l.directory("tmp", 0o777|fs.ModeSticky, 0)
	l.directory("usr", 0o755, 0)
	l.directory("usr/bin", 0o755, 0)
	l.directory("usr/share", 0o755, 0)
	if err := errors.Join(l.timeZones(), l.licences()); err != nil {
		return nil, err
	}
	return l.layer()
}

// tree is a layer that is being written. The first error stays.
type tree struct {
	created time.Time
	text    bytes.Buffer
	w       *tar.Writer
	err     error
}

func newTree(created time.Time) *tree {
	t := &tree{created: created}
	t.w = tar.NewWriter(&t.text)
	return t
}

func (t *tree) add(h *tar.Header, text []byte) {
	h.ModTime, h.Format = t.created, tar.FormatUSTAR
	if t.err == nil {
		t.err = t.w.WriteHeader(h)
	}
	if t.err == nil {
		_, t.err = t.w.Write(text)
	}
}

func (t *tree) directory(name string, mode fs.FileMode, owner int) {
	bits := int64(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	t.add(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: bits, Uid: owner, Gid: owner}, nil)
}

func (t *tree) file(name string, mode int64, text []byte) {
	t.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text))}, text)
}

// licences adds the license of Toll and the license of every linked module and bundled file.
func (t *tree) licences() error {
	files, err := filepath.Glob("licenses/*")
	if err != nil {
		return err
	}
	for _, dir := range []string{"doc", "doc/toll", "doc/toll/licenses"} {
		t.directory("usr/share/"+dir, 0o755, 0)
	}
	for _, name := range append([]string{"LICENSE", "NOTICE"}, files...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		t.file("usr/share/doc/toll/"+name, 0o644, text)
	}
	return nil
}

// timeZones adds those of this Go.
func (t *tree) timeZones() error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	zones, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return err
	}
	defer zones.Close()
	made := map[string]bool{}
	for _, f := range zones.File {
		if f.FileInfo().IsDir() {
			continue
		}
		name := "usr/share/zoneinfo/" + f.Name
		for i, c := range name {
			if dir := name[:i]; c == '/' && i >= len("usr/share/zoneinfo") && !made[dir] {
				made[dir] = true
				t.directory(dir, 0o755, 0)
			}
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		t.file(name, 0o644, text)
	}
	return nil
}

// layer compresses what was added.
func (t *tree) layer() (v1.Layer, error) {
	if err := errors.Join(t.err, t.w.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(t.text.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
