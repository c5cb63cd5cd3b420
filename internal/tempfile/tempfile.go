// Package tempfile makes temporary files that a killed process does not leave for ever.
//
// A process holds a lock on each of its temporary files. The next process that makes one of the
// same kind removes those whose lock is free. Names have 32 random hexadecimal digits, so that no
// file of a person is taken for one.
package tempfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Kind is a kind of temporary files: what their names start and end with.
type Kind struct{ Prefix, Suffix string }

// sideFiles are what SQLite adds to the name of a database.
var sideFiles = []string{"", "-journal", "-wal", "-shm"}

var digits = regexp.MustCompile(`^[0-9a-f]{32}$`)

// File is a temporary file that is open and locked.
type File struct{ *os.File }

// Create makes an empty file of a kind in a directory, which only its owner can read, and removes
// those that killed processes left there. The caller calls Remove or Publish.
func (k Kind) Create(dir string) (*File, error) {
	_, _ = k.Clean(dir) // a file that belongs to another user does not stand in the way
	for {
		id := make([]byte, 16)
		_, _ = rand.Read(id) // never fails since Go 1.24
		path := filepath.Join(dir, k.Prefix+hex.EncodeToString(id)+k.Suffix)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Between the two calls another process may take the file for one that was left.
		if held(f) {
			return &File{f}, nil
		}
		_ = f.Close() // it is removed by whoever has its lock
	}
}

// Write puts a file with this content under a name: readers see the whole file or none of it. With
// replace it takes the place of a file of that name; without, the error is [fs.ErrExist] when there
// is one. The temporary file lies in the same directory.
func (k Kind) Write(path string, content []byte, replace bool) error {
	f, err := k.Create(filepath.Dir(path))
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Publish(path, replace)
	}
	return errors.Join(err, f.Remove())
}

// Remove closes the file and removes it, with the side files of a database. It is for a deferred
// call: a file that has been removed or published is passed over.
func (f *File) Remove() error {
	err := f.Close() // first, as an open file cannot be removed on Windows
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, remove(f.Name()))
}

// Publish flushes the file and gives it a name. With replace it takes the place of a file of that
// name; without, the error is [fs.ErrExist] when there is one. The caller still calls Remove.
func (f *File) Publish(path string, replace bool) error {
	if err := f.Sync(); err != nil {
		return err
	}
	give := os.Link
	if replace {
		give = os.Rename
	}
	if replace && runtime.GOOS == "windows" {
		_ = f.Close() // an open file cannot be renamed there
	}
	err := give(f.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// The file of another process may not be on disk yet, and the caller is going to rely on it.
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return err
}

// Left returns the names of the files of a kind that killed processes left in a directory.
func (k Kind) Left(dir string) (names []string, err error) {
	err = k.each(dir, func(name string, f *os.File) error {
		names = append(names, name)
		return nil
	})
	return names, err
}

// Clean removes the files of a kind that killed processes left in a directory, and returns their
// names.
func (k Kind) Clean(dir string) (names []string, err error) {
	err = k.each(dir, func(name string, f *os.File) error {
		if err := remove(filepath.Join(dir, name)); err != nil {
			return err
		}
		names = append(names, name)
		return nil
	})
	return names, err
}

// each calls do for the files of a kind that no living process holds, under their lock.
func (k Kind) each(dir string, do func(name string, f *os.File) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !k.matches(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if held(f) {
			err = do(e.Name(), f)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
	}
	return nil
}

func (k Kind) matches(name string) bool {
	rest, ok := strings.CutPrefix(name, k.Prefix)
	middle, also := strings.CutSuffix(rest, k.Suffix)
	return ok && also && digits.MatchString(middle)
}

// held takes the lock of an open file, and reports whether this process has it and the file still
// has its name.
func held(f *os.File) bool {
	if !lock(f) {
		return false
	}
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(open, named)
}

func remove(path string) error {
	var errs []error
	for i := len(sideFiles) - 1; i >= 0; i-- { // the file itself last, as it is what is looked for
		if err := os.Remove(path + sideFiles[i]); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be opened for this there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
