package backup

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"
)

// Stalling returns a store whose connections end when nothing moves for d.
func (o ObjectStore) Stalling(d time.Duration) ObjectStore {
	o.stall = d
	return o
}

// Put puts a file at a place, as a backup is put there.
func Put(ctx context.Context, p Destination, data, name string, content []byte) error {
	f, err := p.create(data, name)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = p.publish(ctx, f, name)
	}
	return errors.Join(err, f.Remove())
}

// Tidy is a part of a turn.
func Tidy(ctx context.Context, p Destination, now time.Time) error { return p.tidy(ctx, now) }

// Uploads returns the names of uploads to a bucket that are not complete.
func Uploads(ctx context.Context, p Destination) (names []string, err error) {
	b := p.(*bucket)
	for u := range b.client.ListIncompleteUploads(ctx, b.name, b.under(), false) {
		if u.Err != nil && code(u.Err) != minio.NoSuchUpload {
			return nil, u.Err
		}
		if u.Err != nil {
			continue // there is none
		}
		names = append(names, path.Base(u.Key))
	}
	slices.Sort(names)
	return names, nil
}
