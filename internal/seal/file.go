package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tollhq/toll/internal/tempfile"
)

// FromFile returns the ring of the master key in a file: 64 hexadecimal digits and an optional line end, in a regular
// file that neither group nor others may touch. A group may read a file of another user: systemd and Kubernetes hand
// secrets to a service like that, and it cannot change the mode. With create, a missing file is made with a fresh key; of several
// processes that do so at once, all get the key of one.
func FromFile(path string, create bool) (*Ring, error) {
	r, err := read(path)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err := write(path); err != nil {
		return nil, fmt.Errorf("seal: master key: %w", err)
	}
	return read(path)
}

func read(path string) (*Ring, error) {
	info, err := os.Stat(path) // before it is opened: a pipe would wait for its writer
	if err != nil {
		return nil, fmt.Errorf("seal: master key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("seal: master key %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("seal: master key: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("seal: master key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&others(info) != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("seal: master key %s has mode %04o, which gives other users access: run chmod 600 on it", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return nil, fmt.Errorf("seal: master key: %w", err)
	}
	defer clear(text)
	return parse(bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")), path)
}

// others are the modes that a file with secrets must not have. See [FromFile].
func others(info fs.FileInfo) fs.FileMode {
	if owned(info) {
		return 0o077
	}
	return 0o037
}

// FromText returns the ring of a master key that was given as text, such as a variable of the environment: 64 hexadecimal
// digits. name says in errors where it came from; the text is never repeated.
func FromText(text, name string) (*Ring, error) { return parse([]byte(text), name) }

func parse(text []byte, name string) (*Ring, error) {
	var master [32]byte
	defer clear(master[:])
	if len(text) != 2*len(master) {
		return nil, fmt.Errorf("seal: master key %s is not 64 hexadecimal digits", name)
	}
	if _, err := hex.Decode(master[:], text); err != nil {
		return nil, fmt.Errorf("seal: master key %s is not 64 hexadecimal digits", name)
	}
	if master == [32]byte{} {
		return nil, fmt.Errorf("seal: master key %s is all zero", name)
	}
	return New(master), nil
}

// NewKey are the files in which a process writes a new master key before it gets its name.
var NewKey = tempfile.Kind{Prefix: ".master-key-"}

// write makes the file appear at once, complete and on disk, unless it is there: a key that a crash takes away would
// take with it all that was sealed.
func write(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := NewKey.Create(dir)
	if err != nil {
		return err
	}
	var master [32]byte
	_, _ = rand.Read(master[:]) // crypto/rand.Read never fails since Go 1.24
	_, err = tmp.WriteString(hex.EncodeToString(master[:]) + "\n")
	if err == nil {
		// The key of another process is not replaced.
		if err = tmp.Publish(path, false); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, tmp.Remove())
}
