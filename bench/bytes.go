package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// growth is what a database has become larger by, in bytes.
type growth struct {
	tables int64 // with indexes, free pages left out
	log    int64 // written ahead, most of which is overwritten later
}

// meter begins to measure the growth of the database of a market; what it returns ends it.
func (m *market) meter(ctx context.Context) (stop func() (growth, error), err error) {
	measure := m.sizePostgres
	if m.engine == sqlite {
		measure = m.sizeSQLite
	}
	before, err := measure(ctx)
	if err != nil {
		return nil, err
	}
	count := func() int64 { return 0 }
	if m.engine == sqlite {
		count = countFrames(filepath.Join(m.role.Data, "toll.db-shm"))
	}
	return func() (growth, error) {
		frames := count()
		after, err := measure(ctx)
		return growth{after.tables - before.tables, after.log - before.log + frames}, err
	}, nil
}

func (m *market) sizePostgres(ctx context.Context) (g growth, err error) {
	c, err := pgx.Connect(ctx, m.role.Database)
	if err != nil {
		return g, err
	}
	err = c.QueryRow(ctx, `SELECT SUM(pg_total_relation_size(oid))::bigint, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
		FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`).Scan(&g.tables, &g.log)
	return g, errors.Join(err, c.Close(ctx))
}

// sizeSQLite brings the log into the database first.
func (m *market) sizeSQLite(ctx context.Context) (g growth, err error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(m.role.Data, "toll.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return g, err
	}
	var busy, inLog, moved int64
	err = db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &inLog, &moved)
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT (p.page_count - f.freelist_count) * s.page_size
			FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s`).Scan(&g.tables)
	}
	return g, errors.Join(err, db.Close())
}

// countFrames counts the bytes that go into the log of SQLite, which overwrites it again and again: it looks at the header of
// the log's index (https://www.sqlite.org/walformat.html#the_wal_index_file_format) once a millisecond.
func countFrames(index string) (stop func() int64) {
	done, total := make(chan struct{}), make(chan int64)
	go func() {
		var sum, last int64
		f, err := os.Open(index)
		if err != nil {
			<-done
			total <- 0
			return
		}
		defer func() { _ = f.Close() }()
		look := func() {
			var b [20]byte
			if _, err := f.ReadAt(b[:], 0); err != nil {
				return
			}
			now := int64(binary.NativeEndian.Uint32(b[16:]))
			if now < last { // it began again at the front
				last = 0
			}
			sum += (now - last) * (24 + int64(binary.NativeEndian.Uint16(b[14:])))
			last = now
		}
		look()
		sum = 0
		for {
			select {
			case <-done:
				look()
				total <- sum
				return
			case <-time.After(time.Millisecond):
				look()
			}
		}
	}()
	return func() int64 { close(done); return <-total }
}
