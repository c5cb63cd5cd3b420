package gateway

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/tempfile"
	"github.com/tollhq/toll/x402"
)

// Files of the key store in the data directory.
const (
	loginFile  = "login.sealed"
	masterFile = "master.key"
	maxLogin   = 32 << 10 // bytes of the login file
)

// loginUse is the associated data that binds a sealed login to its use.
const loginUse = "toll gateway login 1"

var newLogin = tempfile.Kind{Prefix: ".login-"}

type login struct {
	Key         string           `json:"key"`
	Environment toll.Environment `json:"environment"`
	BaseURL     string           `json:"baseUrl"`
	Browser     bool             `json:"browser"`        // from a browser login, so that a logout revokes the key
	Ends        *toll.Time       `json:"ends,omitempty"` // nil if unknown
}

// keyStore stores the login in dir, sealed under a master key with mode 0600 in the same directory. Several processes can share it.
type keyStore struct{ dir string }

func (k keyStore) path() string { return filepath.Join(k.dir, loginFile) }

// stamp returns file information that changes when the login file is replaced or removed. It is nil without a file.
func (k keyStore) stamp() os.FileInfo {
	info, err := os.Stat(k.path())
	if err != nil {
		return nil
	}
	return info
}

// sameStamp reports whether two stamps describe the same version of the file.
func sameStamp(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// read returns the login, or nil if no login is stored. Errors name the file but not its content.
func (k keyStore) read() (*login, error) {
	info, err := os.Stat(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stored login: %w", err)
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("stored login: %s has mode %04o; it must be a regular file with mode 0600: run chmod 600 on it",
			k.path(), mode.Perm())
	}
	f, err := os.Open(k.path())
	if err != nil {
		return nil, fmt.Errorf("stored login: %w", err)
	}
	defer f.Close()
	sealed, err := io.ReadAll(io.LimitReader(f, maxLogin))
	if err != nil {
		return nil, fmt.Errorf("stored login: %w", err)
	}
	ring, err := seal.FromFile(filepath.Join(k.dir, masterFile), false)
	if err != nil {
		return nil, fmt.Errorf("stored login: %w", err)
	}
	plain, err := ring.Open(sealed, []byte(loginUse))
	if err != nil {
		return nil, fmt.Errorf("stored login: %s: %w", k.path(), err)
	}
	defer clear(plain)
	l := new(login)
	if x402.Decode(plain, l) != nil || l.Key == "" {
		return nil, fmt.Errorf("stored login: %s has an unknown format", k.path())
	}
	return l, nil
}

func (k keyStore) write(l *login) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	ring, err := seal.FromFile(filepath.Join(k.dir, masterFile), true)
	if err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	plain, err := x402.Encode(l)
	if err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	defer clear(plain)
	sealed, err := ring.Seal(plain, []byte(loginUse))
	if err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	if err := newLogin.Write(k.path(), sealed, true); err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	return nil
}

// remove deletes the stored login, if any.
func (k keyStore) remove() error {
	if err := os.Remove(k.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the login: %w", err)
	}
	return nil
}

// ends returns the time at which the login ends, or zero if it is unknown.
func (l *login) ends() time.Time {
	if l.Ends == nil {
		return time.Time{}
	}
	return l.Ends.Time
}
