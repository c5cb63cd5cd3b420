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

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
)

var aad = []byte("sandbox/principals/0x70997970c51812dc3a010c7d01b50e0d17dc79c8")

func TestSealOpen(t *testing.T) {
	r := seal.New([32]byte{1})
	for _, plain := range []string{"", "short", strings.Repeat("long", 10_000)} {
		a := must.Get(r.Seal([]byte(plain), aad))(t)
		b := must.Get(r.Seal([]byte(plain), aad))(t)
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
// T72
func TestSealedKeyMoved(t *testing.T) {
	r := seal.New([32]byte{1})
	sealed := must.Get(r.Seal([]byte("private key"), aad))(t)
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
	const vector = "0294e6dbe477cc70b0003c8614789074f56f227d5ab4698819fe2b26b46b7ed1e382560397a0ae50b72c21eb139c434ef95e79df5370bc1296c064a9d3cb5b851277aa8f0dd4e38a64a850ae9e87a4cabcd3f5ceeeb95187147b2350e88bafde627e4dfcd7309a"
	var master [32]byte
	for i := range master {
		master[i] = byte(i)
	}
	r := seal.New(master)
	sealed := must.Get(r.Seal([]byte("toll"), aad))(t)
	if got := hex.EncodeToString(sealed[:11]); got != vector[:22] || r.KeyID() != vector[2:18] {
		t.Errorf("header %s of key %s, want %s", got, r.KeyID(), vector[:22])
	}
	old := must.Get(hex.DecodeString(vector))(t)
	if plain, err := r.Open(old, aad); err != nil || string(plain) != "toll" {
		t.Errorf("the envelope holds %q, %v", plain, err)
	}
	if _, err := seal.New([32]byte{9}).Open(old, aad); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("under another key: %v", err)
	}
	if seal.SealedBy(old) != r.KeyID() {
		t.Errorf("it is sealed by %q", seal.SealedBy(old))
	}
	for bit := range len(old) * 8 {
		old[bit/8] ^= 1 << (bit % 8)
		if _, err := r.Open(old, aad); err == nil {
			t.Fatalf("it opens with bit %d flipped", bit)
		}
		old[bit/8] ^= 1 << (bit % 8)
	}
}

// service is a key management service: it wraps under its own key, and counts.
type service struct {
	inner *seal.Ring
	id    string
	calls int
	fail  error
	short bool // it returns 17 bytes of the key
}

func (s *service) KeyID() string { return s.id }
func (s *service) Wrap(key, aad []byte) ([]byte, error) {
	s.calls++
	if s.fail != nil {
		return nil, s.fail
	}
	return s.inner.Seal(key, aad)
}
func (s *service) Unwrap(wrapped, aad []byte) ([]byte, error) {
	s.calls++
	if s.fail != nil {
		return nil, s.fail
	}
	key, err := s.inner.Open(wrapped, aad)
	if s.short {
		key = key[:17]
	}
	return key, err
}

// Any provider of the master key does: what it refuses is not sealed, and does not open.
func TestKeyProvider(t *testing.T) {
	kms := &service{inner: seal.New([32]byte{7}), id: "00112233aabbccdd"}
	r := must.Get(seal.NewRing(kms))(t)
	sealed := must.Get(r.Seal([]byte("private key"), aad))(t)
	if plain, err := r.Open(sealed, aad); err != nil || string(plain) != "private key" || kms.calls != 2 {
		t.Errorf("%q %v after %d calls", plain, err, kms.calls)
	}
	if _, err := r.Open(sealed, append(bytes.Clone(aad), 0)); !errors.Is(err, seal.ErrDamaged) {
		t.Errorf("elsewhere: %v", err)
	}
	// Only what another key sealed goes to the other ring, and the error of a damaged envelope stays.
	other := seal.New([32]byte{9})
	theirs := must.Get(other.Seal([]byte("x"), aad))(t)
	both := r.With(other)
	if plain, err := both.Open(theirs, aad); err != nil || string(plain) != "x" {
		t.Errorf("of the other ring: %q, %v", plain, err)
	}
	if _, err := both.Open(sealed, append(bytes.Clone(aad), 0)); !errors.Is(err, seal.ErrDamaged) {
		t.Errorf("damaged, with another ring: %v", err)
	}
	kms.short = true
	if _, err := r.Open(sealed, aad); !errors.Is(err, seal.ErrDamaged) {
		t.Errorf("a data key of 17 bytes: %v", err)
	}
	kms.short = false
	kms.fail = errors.New("the service is away")
	if _, err := r.Seal([]byte("x"), aad); !errors.Is(err, kms.fail) {
		t.Errorf("seal: %v", err)
	}
	if _, err := r.Open(sealed, aad); !errors.Is(err, kms.fail) {
		t.Errorf("open: %v", err)
	}
	// What a master key in memory sealed is not of this provider.
	old := must.Get(seal.New([32]byte{1}).Seal([]byte("x"), aad))(t)
	if _, err := r.Open(old, aad); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("another key: %v", err)
	}
	for _, id := range []string{"", "0011", "00112233AABBCCDD", "00112233aabbccddee", "zz112233aabbccdd"} {
		if _, err := seal.NewRing(&service{id: id}); err == nil {
			t.Errorf("the key id %q is taken", id)
		}
	}
}

func TestFromText(t *testing.T) {
	const canary = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"
	a := must.Get(seal.FromText(canary, "TOLL_MASTER_KEY"))(t)
	path := filepath.Join(t.TempDir(), "master.key")
	must.Do(t, os.WriteFile(path, []byte(canary+"\n"), 0o600))
	b, err := seal.FromFile(path, false)
	if err != nil || a.KeyID() != b.KeyID() {
		t.Errorf("the same key in a file: %v", err)
	}
	for _, bad := range []string{"", canary[1:], canary + "0", strings.Replace(canary, "c", "x", 1), strings.Repeat("0", 64), canary + "\n"} {
		if _, err := seal.FromText(bad, "TOLL_MASTER_KEY"); err == nil || !strings.Contains(err.Error(), "TOLL_MASTER_KEY") || len(bad) > 9 && strings.Contains(err.Error(), bad[:10]) {
			t.Errorf("%d characters: %v", len(bad), err)
		}
	}
}

func TestFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "master.key")
	if _, err := seal.FromFile(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing file: %v", err)
	}
	r := must.Get(seal.FromFile(path, true))(t)
	for _, create := range []bool{true, false} {
		again := must.Get(seal.FromFile(path, create))(t)
		if again.KeyID() != r.KeyID() {
			t.Errorf("create %v: another key", create)
		}
	}
	info := must.Get(os.Stat(path))(t)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	entries := must.Get(os.ReadDir(filepath.Dir(path)))(t)
	if len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

// TestFromFileOfAnotherUser: systemd and Kubernetes give a service a file of root that its group may read.
func TestFromFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	for mode, good := range map[os.FileMode]bool{0o400: true, 0o440: true, 0o460: false, 0o444: false, 0o450: false} {
		path := filepath.Join(t.TempDir(), "master.key")
		must.Do(t, os.WriteFile(path, []byte(strings.Repeat("a1", 32)), mode))
		must.Do(t, errors.Join(os.Chmod(path, mode), os.Chown(path, 65532, 65532)))
		if _, err := seal.FromFile(path, false); (err == nil) != good {
			t.Errorf("mode %04o: %v", mode, err)
		}
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
			must.Do(t, os.WriteFile(path, []byte(c.text), c.mode))
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
		must.Do(t, syscall.Mkfifo(path, 0o600))
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
