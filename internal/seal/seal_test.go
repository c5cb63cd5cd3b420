package seal_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tollhq/toll/internal/seal"
)

var aad = []byte("sandbox/principals/0x70997970c51812dc3a010c7d01b50e0d17dc79c8")

func TestSealOpen(t *testing.T) {
	r := seal.New([32]byte{1})
	for _, plain := range []string{"", "k", strings.Repeat("long", 10_000)} {
		a, err := r.Seal([]byte(plain), aad)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Seal([]byte(plain), aad)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(a, b) {
			t.Error("two envelopes of one secret are equal")
		}
		if len(plain) > 0 && bytes.Contains(a, []byte(plain)) {
			t.Error("the secret is in its envelope")
		}
		// Another process with the same master key.
		got, err := seal.New([32]byte{1}).Open(a, aad)
		if err != nil || string(got) != plain {
			t.Errorf("open: %v", err)
		}
	}
}

// T72: a sealed key that was moved to another row or environment, or changed by one bit anywhere, does not open.
func TestT72_SealedKeyMoved(t *testing.T) {
	r := seal.New([32]byte{1})
	sealed, err := r.Seal([]byte("private key"), aad)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]string{
		"environment": strings.Replace(string(aad), "sandbox", "live", 1),
		"user":        string(aad[:len(aad)-1]) + "9",
		"longer":      string(aad) + "0",
		"none":        "",
	} {
		if _, err := r.Open(sealed, []byte(other)); !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("moved to another %s: %v", name, err)
		}
	}
	for bit := range len(sealed) * 8 {
		flipped := bytes.Clone(sealed)
		flipped[bit/8] ^= 1 << (bit % 8)
		if plain, err := r.Open(flipped, aad); err == nil || plain != nil {
			t.Fatalf("opens with bit %d flipped", bit)
		}
	}
	for n := range sealed {
		if _, err := r.Open(sealed[:n], aad); err == nil {
			t.Errorf("opens with %d of %d bytes", n, len(sealed))
		}
	}
	if _, err := r.Open(append(bytes.Clone(sealed), 0), aad); err == nil {
		t.Error("opens with a byte more")
	}
	if _, err := seal.New([32]byte{2}).Open(sealed, aad); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("another master key: %v", err)
	}
}

// The format of envelopes is permanent: one that was sealed by an older release opens.
func TestEnvelopeVector(t *testing.T) {
	const vector = "0194e6dbe477cc70b0375a9d25cf3155646b765c3873c6b6181b229c4813684caab05a6dfaec6d4ce9"
	var master [32]byte
	for i := range master {
		master[i] = byte(i)
	}
	r := seal.New(master)
	sealed, err := r.Seal([]byte("toll"), aad)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sealed[:9]); got != vector[:18] || r.KeyID() != vector[2:18] {
		t.Errorf("header %s of key %s, want %s", got, r.KeyID(), vector[:18])
	}
	old, err := hex.DecodeString(vector)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := r.Open(old, aad); err != nil || string(plain) != "toll" {
		t.Errorf("the old envelope: %q, %v", plain, err)
	}
}

func TestFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "master.key")
	if _, err := seal.FromFile(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing file: %v", err)
	}
	r, err := seal.FromFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{true, false} {
		again, err := seal.FromFile(path, create)
		if err != nil {
			t.Fatal(err)
		}
		if again.KeyID() != r.KeyID() {
			t.Errorf("create %v: another key", create)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

func TestFromFileStrict(t *testing.T) {
	key := strings.Repeat("a1", 32)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		good bool
	}{
		"plain":        {key, 0o600, true},
		"line end":     {key + "\n", 0o600, true},
		"read only":    {key + "\r\n", 0o400, true},
		"upper case":   {strings.ToUpper(key), 0o600, true},
		"group reads":  {key, 0o640, false},
		"others read":  {key, 0o644, false},
		"others write": {key, 0o602, false},
		"empty":        {"", 0o600, false},
		"short":        {key[2:], 0o600, false},
		"long":         {key + "a1", 0o600, false},
		"very long":    {strings.Repeat(key, 1000), 0o600, false},
		"not hex":      {key[:63] + "g", 0o600, false},
		"space":        {" " + key, 0o600, false},
		"two lines":    {key + "\n\n", 0o600, false},
		"zero":         {strings.Repeat("0", 64), 0o600, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "master.key")
			if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil { // whatever the umask is
				t.Fatal(err)
			}
			for _, create := range []bool{false, true} {
				_, err := seal.FromFile(path, create)
				if (err == nil) != c.good {
					t.Errorf("create %v: %v", create, err)
				}
				if err != nil && strings.Contains(err.Error(), key[:8]) {
					t.Errorf("the error shows the key: %v", err)
				}
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != c.text {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		if _, err := seal.FromFile(t.TempDir(), true); err == nil {
			t.Error("taken")
		}
	})
	t.Run("named pipe", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.FromFile(path, true); err == nil { // must not wait for a writer
			t.Error("taken")
		}
	})
}

// Starters that race to make the file end up with one key.
func TestFromFileRace(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "master.key")
		ids := make([]string, 16)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				<-start
				r, err := seal.FromFile(path, true)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = r.KeyID()
			})
		}
		close(start)
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("two keys: %s and %s", id, ids[0])
			}
		}
	}
}
