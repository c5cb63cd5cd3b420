//go:build !nodevchain

package devchain

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Crash ends the chain as the end of its process by kill -9 would: what is on disk at this moment stays, what is in memory is
// gone, and the last blocks may be among it. For tests. A chain in memory is gone.
func (c *Chain) Crash() error {
	if c.cfg.Dir == "" {
		return c.Close()
	}
	live := filepath.Join(c.cfg.Dir, nodeName)
	kept := filepath.Join(c.cfg.Dir, nodeName+".crash")
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	err := copyTree(live, kept)
	c.mu.Unlock()
	return errors.Join(err, c.Close(), replaceTree(live, kept, err))
}

// copyTree copies a directory whose files may come and go. It starts again when one went.
func copyTree(from, to string) error {
	for range 5 {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			if entry.IsDir() {
				return os.MkdirAll(filepath.Join(to, relative), 0o700)
			}
			return copyFile(path, filepath.Join(to, relative))
		})
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.New("the files of the chain change too fast to be copied")
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func replaceTree(live, kept string, failed error) error {
	if failed != nil {
		return nil
	}
	if err := os.RemoveAll(live); err != nil {
		return err
	}
	return os.Rename(kept, live)
}
