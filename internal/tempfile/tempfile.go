// Package tempfile creates temporary files that are removed even if their process was killed. A process locks each of its temporary files.
// [Kind.Create] removes unlocked files of the same kind. Names contain 32 random hexadecimal digits, so that no other file matches.
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

// Kind is a kind of temporary files, by the start and end of their names.
type Kind struct{ Prefix, Suffix string }

// sideFiles are the suffixes of files that SQLite adds to a database.
var sideFiles = []string{"", "-journal", "-wal", "-shm"}

var digits = regexp.MustCompile(`^[0-9a-f]{32}$`)

// File is an open and locked temporary file.
type File struct{ *os.File }

// Create creates an empty file of a kind in a directory, readable only by its owner, and removes files of killed processes.
// Call Remove or Publish.
func (k Kind) Create(dir string) (*File, error) {
	_, _ = k.Clean(dir) // best effort: it fails for files of another user
	for {
		id := make([]byte, 16)
		_, _ = rand.Read(id) // never fails since Go 1.24
		path := filepath.Join(dir, k.Prefix+hex.EncodeToString(id)+k.Suffix)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Between the two calls another process may remove the file as abandoned.
		if held(f) {
			return &File{f}, nil
		}
		_ = f.Close() // the process that holds its lock removes it
	}
}

// Write writes a file atomically, through a temporary file in the same directory. If the file exists, it replaces the file with
// replace, and returns [fs.ErrExist] without.
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

// Remove closes and removes the file with its SQLite side files. It does nothing for a removed or published file, so it can be deferred.
func (f *File) Remove() error {
	err := f.Close() // first, because Windows cannot remove an open file
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, remove(f.Name()))
}

// Publish flushes the file and gives it the name path. If that file exists, it replaces the file with replace, and returns
// [fs.ErrExist] without. The caller must still call Remove.
func (f *File) Publish(path string, replace bool) error {
	if err := f.Sync(); err != nil {
		return err
	}
	give := os.Link
	if replace {
		give = os.Rename
	}
	if replace && runtime.GOOS == "windows" {
		_ = f.Close() // Windows cannot rename an open file
	}
	err := give(f.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// The caller will rely on the existing file, which may not be on disk yet.
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return err
}

// Left returns the names of abandoned files of a kind in a directory.
func (k Kind) Left(dir string) (names []string, err error) {
	err = k.each(dir, func(name string, f *os.File) error {
		names = append(names, name)
		return nil
	})
	return names, err
}

// Clean removes abandoned files of a kind in a directory, and returns their names.
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

// each calls do for the abandoned files of a kind, under their lock.
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

// held locks an open file. It reports whether this process has the lock and the file still has its name.
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
	for i := len(sideFiles) - 1; i >= 0; i-- { // the main file last: Clean finds its side files by it
		if err := os.Remove(path + sideFiles[i]); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync a directory
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
