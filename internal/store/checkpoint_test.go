package store_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

const walPage = 4096

// fill writes about n pages in one transaction. SQLite writes only pages that change.
func fill(t *testing.T, st *store.Store, n int) {
	t.Helper()
	value := make([]byte, n*walPage)
	for at := 0; at < len(value); at += walPage / 4 {
		binary.LittleEndian.PutUint64(value[at:], rand.Uint64())
	}
	write(t, st, func(tx *store.Tx) error { return store.PutSetting(t.Context(), tx, "large", value) })
}

func logSize(t *testing.T, cfg store.Config) int64 {
	t.Helper()
	info := must.Get(os.Stat(filepath.Join(cfg.Data, "toll.db-wal")))(t)
	return info.Size() / walPage
}

func checkpoint(t *testing.T, st *store.Store) store.Log {
	t.Helper()
	must.Do(t, st.Checkpoint(t.Context()))
	return st.Log()
}

// A long log is copied into the file and starts anew; a short one is left alone.
func TestCheckpoint(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	fill(t, st, 100)
	if log := checkpoint(t, st); log.Waiting < 100 || log.Checkpoints != 0 {
		t.Errorf("a short log was copied: %+v", log)
	}
	for range 3 {
		fill(t, st, 4100)
		if log := checkpoint(t, st); log.Waiting != 0 || log.Pages < 4100 || log.Checkpoints == 0 {
			t.Fatalf("a long log was not copied: %+v", log)
		}
	}
	if size := logSize(t, cfg); size > 6000 {
		t.Errorf("the log did not start anew: %d pages", size)
	}
	must.Do(t, st.CutLog(t.Context()))
	if size := logSize(t, cfg); size != 0 {
		t.Errorf("the log was not cut: %d pages", size)
	}
	fill(t, st, 3)
	if err := st.CutLog(t.Context()); err != nil || logSize(t, cfg) == 0 {
		t.Errorf("a short log was cut: %v", err)
	}
}

// A reader sees what it began with, for as long as it reads, and the log grows meanwhile.
func TestCheckpointWaitsForReaders(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	write(t, st, func(tx *store.Tx) error { return put(t.Context(), tx, "a", "old") })
	rows := must.Get(st.Query(t.Context(), "SELECT value FROM settings WHERE name = 'a'"))(t)
	defer rows.Close()
	if !rows.Next() { // the snapshot is taken
		t.Fatal(rows.Err())
	}
	write(t, st, func(tx *store.Tx) error { return put(t.Context(), tx, "a", "new") })
	for range 2 {
		fill(t, st, 4100)
		if log := checkpoint(t, st); log.Waiting < 4100 {
			t.Fatalf("pages that a reader must not see were copied: %+v", log)
		}
	}
	if err := st.CutLog(t.Context()); err != nil || logSize(t, cfg) < 8200 {
		t.Errorf("the log was cut below a reader: %v, %d pages, %+v", err, logSize(t, cfg), st.Log())
	}
	var value []byte
	if err := rows.Scan(&value); err != nil || string(value) != "old" {
		t.Errorf("the reader has %q, %v", value, err)
	}
	rows.Close()
	if log := checkpoint(t, st); log.Waiting != 0 {
		t.Errorf("after the reader: %+v", log)
	}
	if got := setting(t, st, "a"); got != "new" {
		t.Errorf("a new reader has %q", got)
	}
}

// Without anybody who calls Checkpoint, the writer keeps the log short.
func TestWriterCheckpointsItself(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	for range 8 {
		fill(t, st, 4000)
	}
	if size := logSize(t, cfg); size > 21000 {
		t.Errorf("%d pages in the log", size)
	}
}

// A writer that never pauses does not keep the log from starting anew.
func TestCheckpointBesideWriter(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	fill(t, st, 1)
	salt := func() uint64 { // another one whenever the log starts anew
		file := must.Get(os.Open(filepath.Join(cfg.Data, "toll.db-wal")))(t)
		defer file.Close()
		header := make([]byte, 32)
		must.Get(file.ReadAt(header, 0))(t)
		return binary.BigEndian.Uint64(header[16:])
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			err := st.Tx(t.Context(), func(tx *store.Tx) error {
				value := make([]byte, 32*walPage)
				for at := 0; at < len(value); at += walPage / 4 {
					binary.LittleEndian.PutUint64(value[at:], n)
				}
				return store.PutSetting(t.Context(), tx, "large", value)
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for anew, before := 0, salt(); anew < 3; {
		if checkpoint(t, st); logSize(t, cfg) > 15000 {
			t.Error("the log grows and grows")
			break
		}
		if now := salt(); now != before {
			before = now
			anew++
		}
	}
	close(stop)
	writer.Wait()
}

// Writers, readers and checkpoints go on beside each other, and what was written is in the file in the end.
func TestCheckpointAndClose(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	for _, turn := range []func() error{
		func() error { return st.Checkpoint(t.Context()) },
		func() error { return st.CutLog(t.Context()) },
		func() error { return st.Ping(t.Context()) },
	} {
		beside.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := turn(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		fill(t, st, 1000)
	}
	close(stop)
	beside.Wait()
	must.Do(t, st.Close())
	if _, err := os.Stat(filepath.Join(cfg.Data, "toll.db-wal")); !os.IsNotExist(err) {
		t.Errorf("the log was not moved into the file at the end: %v", err)
	}
	again := storetest.OpenConfig(t, cfg)
	if got := setting(t, again, "large"); len(got) != 1000*walPage {
		t.Errorf("%d bytes were left", len(got))
	}
}
