package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tollhq/toll/internal/tempfile"
)

// Destination stores finished backups in a folder or below a prefix of a bucket. A backup appears whole or not at all.
type Destination interface {
	// Files returns all files there, sorted by name.
	Files(ctx context.Context) ([]File, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	Remove(ctx context.Context, name string) error

	// create makes the temporary file of a new backup. data is a folder for it that is as protected as the database.
	create(data, name string) (*tempfile.File, error)
	// publish gives the content of a file its name. It refuses a name that is taken.
	publish(ctx context.Context, f *tempfile.File, name string) error
	// tidy removes what killed processes left of scheduled backups.
	tidy(ctx context.Context, now time.Time) error
}

// File is a file at a destination.
type File struct {
	Name  string
	Bytes int64
}

type folder string

func (d folder) Files(context.Context) (files []File, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() { // it may have gone meanwhile
			files = append(files, File{e.Name(), info.Size()})
		}
	}
	return files, err
}

func (d folder) path(name string) string { return filepath.Join(string(d), name) }

func (d folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(d.path(name))
}

func (d folder) Remove(_ context.Context, name string) error { return os.Remove(d.path(name)) }

// create makes the file in the folder itself, so that it can get its name in one step.
func (d folder) create(_, name string) (*tempfile.File, error) {
	return tempfile.Kind{Prefix: "." + name + "."}.Create(cmp.Or(string(d), "."))
}

func (d folder) publish(_ context.Context, f *tempfile.File, name string) error {
	err := f.Publish(d.path(name), false)
	if errors.Is(err, os.ErrExist) {
		return taken(d.path(name))
	}
	return err
}

// tidy does nothing: create has done it.
func (d folder) tidy(context.Context, time.Time) error { return nil }

func taken(name string) error { return fmt.Errorf("%s already exists", name) }
