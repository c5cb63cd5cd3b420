package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// What is committed is what the program makes.
func TestGeneratedFileIsCurrent(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing")
	}
	room := ".."
	want, err := generate(t.Context(), room)
	if errors.Is(err, errFetch) {
		t.Skip(err)
	}
	must.Do(t, err)
	got := must.Get(os.ReadFile(filepath.Join(room, generated)))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the program makes: run it", generated)
	}
}

func archive(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	files := tar.NewWriter(compressed)
	must.Do(t, files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	must.Get(files.Write([]byte(content)))(t)
	must.Do(t, errors.Join(files.Close(), compressed.Close()))
	return out.Bytes()
}

func TestUnpackChecksTheArchive(t *testing.T) {
	good := archive(t, "package/dist/code.cjs", "the code")
	sum := sha512.Sum512(good)
	p := pinned{"some-package@1.0.0", "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	files, err := p.unpack(good, "dist/code.cjs")
	if err != nil || string(files["dist/code.cjs"]) != "the code" {
		t.Errorf("unpack = %q, %v", files, err)
	}
	if _, err := p.unpack(good, "dist/other.cjs"); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("a file that is missing: %v", err)
	}
	if _, err := p.unpack(archive(t, "package/dist/code.cjs", "other code"), "dist/code.cjs"); err == nil || !strings.Contains(err.Error(), "integrity") {
		t.Errorf("another archive: %v", err)
	}
}

func TestExchangeTakesTheLastMetadata(t *testing.T) {
	marker, _ := hex.DecodeString("a2646970667358221220")
	old, hash := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	code := bytes.Join([][]byte{{0x60}, marker, old, {0x61}, marker, old, {0x62}}, nil)
	want := bytes.Join([][]byte{{0x60}, marker, old, {0x61}, marker, hash, {0x62}}, nil)
	if err := exchange(code, hash); err != nil || !bytes.Equal(code, want) {
		t.Errorf("exchange makes %x, %v, want %x", code, err, want)
	}
	for name, bad := range map[string]struct{ code, hash []byte }{
		"no metadata":    {[]byte{0x60}, hash},
		"cut metadata":   {append(bytes.Clone(marker), old[:31]...), hash},
		"a short hash":   {bytes.Clone(want), hash[:31]},
		"no code at all": {nil, hash},
	} {
		before := bytes.Clone(bad.code)
		if err := exchange(bad.code, bad.hash); err == nil || !bytes.Equal(before, bad.code) {
			t.Errorf("%s: %v, %x", name, err, bad.code)
		}
	}
}
