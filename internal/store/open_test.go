package store_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestDataDirectory(t *testing.T) {
	for _, name := range []string{"data", "a b", "q?m=1#f%20%", "ünï'\"", "deep/er"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			st := storetest.OpenConfig(t, store.Config{Data: dir})
			write(t, st, func(tx *store.Tx) error { return store.PutSetting(t.Context(), tx, "a", []byte("b")) })
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("directory: %v, %v", info.Mode(), err)
			}
			files := must.Get(os.ReadDir(dir))(t)
			found := false
			for _, f := range files {
				info := must.Get(f.Info())(t)
				if info.Mode().Perm() != 0o600 {
					t.Errorf("%s has mode %v", f.Name(), info.Mode())
				}
				found = found || f.Name() == "toll.db"
			}
			if !found {
				t.Errorf("no toll.db: %v", files)
			}
		})
	}
	if _, err := store.Open(t.Context(), store.Config{}); err == nil {
		t.Error("opened nothing")
	}
}

// The settings that make a commit durable, as the open connections have them.
func TestSQLiteIsDurable(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	write(t, st, func(tx *store.Tx) error {
		var journal string
		var synchronous, keys int64
		err := errors.Join(
			tx.QueryRow(t.Context(), "PRAGMA journal_mode").Scan(&journal),
			tx.QueryRow(t.Context(), "PRAGMA synchronous").Scan(&synchronous),
			tx.QueryRow(t.Context(), "PRAGMA foreign_keys").Scan(&keys))
		if journal != "wal" || synchronous != 2 || keys != 1 {
			t.Errorf("journal_mode %s, synchronous %d, foreign_keys %d", journal, synchronous, keys)
		}
		return err
	})
	if _, err := st.Query(t.Context(), "DELETE FROM settings RETURNING name"); err == nil {
		t.Error("a reader may write")
	}
	for journal, want := range map[string]bool{"wal": true, "WAL": true, "delete": false, "memory": false, "off": false} {
		if err := store.CheckSQLite(journal, 2); (err == nil) != want {
			t.Errorf("journal_mode %s: %v", journal, err)
		}
	}
	for synchronous, want := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		if err := store.CheckSQLite("wal", synchronous); (err == nil) != want {
			t.Errorf("synchronous %d: %v", synchronous, err)
		}
	}
}

func TestPostgresSettings(t *testing.T) {
	good := func() map[string]string {
		return map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "server_encoding": "UTF8"}
	}
	for _, c := range []struct {
		name, value string
		good        bool
	}{
		{"fsync", "on", true}, {"fsync", "off", false}, {"fsync", "", false}, {"synchronous_commit", "off", false},
		{"synchronous_commit", "local", true}, {"synchronous_commit", "remote_write", true}, {"synchronous_commit", "remote_apply", true},
		{"full_page_writes", "off", false}, {"server_encoding", "SQL_ASCII", false},
	} {
		s := good()
		s[c.name] = c.value
		if err := store.CheckPostgres(s); (err == nil) != c.good {
			t.Errorf("%s = %q: %v", c.name, c.value, err)
		}
	}
}

// A database that was told not to wait for the disk is refused at the start, and by connections of a running service.
func TestPostgresNotDurable(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	st := storetest.OpenConfig(t, cfg)
	name := strings.SplitN(cfg.Database[strings.LastIndex(cfg.Database, "/")+1:], "?", 2)[0]
	storetest.Exec(t, cfg.Database, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	_, err := store.Open(t.Context(), cfg)
	if !store.IsRefused(err) || !strings.Contains(err.Error(), "synchronous_commit") {
		t.Errorf("open: %v", err)
	}
	st.Pool().Reset() // new connections from here on
	if err := st.Ping(t.Context()); !store.IsRefused(err) {
		t.Errorf("running: %v", err)
	}
}

// A whole cluster without fsync is refused.
func TestPostgresWithoutFsync(t *testing.T) {
	if os.Getenv("TOLL_TEST_POSTGRES") == "" {
		t.Skip("TOLL_TEST_POSTGRES is not set")
	}
	const script = "../../scripts/postgres.sh"
	dir := must.Get(os.MkdirTemp("", "toll-pg"))(t) // the directories of a test are closed to the user that runs PostgreSQL
	start := exec.Command(script, "start", dir)
	start.Env = append(os.Environ(), "TOLL_PG_ARGS=fsync=off shared_buffers=8MB max_connections=10")
	start.Stderr = os.Stderr
	dsn, err := start.Output()
	must.Do(t, err, "start")
	defer func() {
		if out, err := exec.Command(script, "stop", dir).CombinedOutput(); err != nil {
			t.Errorf("stop: %v: %s", err, out)
		}
	}()
	_, err = store.Open(t.Context(), store.Config{Database: strings.TrimSpace(string(dsn))})
	if !store.IsRefused(err) || !strings.Contains(err.Error(), "fsync") {
		t.Errorf("open: %v", err)
	}
}

func TestUnavailable(t *testing.T) {
	const secret = "canary-7d3f"
	var log strings.Builder
	for _, dsn := range []string{
		"postgres://toll:" + secret + "@127.0.0.1:1/postgres",
		"postgres://toll:" + secret + "@127.0.0.1:bad/postgres",
		"postgres://toll:" + secret + "%zz@127.0.0.1/postgres",
		"host=127.0.0.1 port=1 password=" + secret,
	} {
		_, err := store.Open(t.Context(), store.Config{Database: dsn, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err == nil {
			t.Fatal("opened nothing")
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), secret) {
				t.Errorf("the error shows the password: %v", e)
			}
		}
		if strings.Contains(dsn, ":1/") && (!errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || !store.IsRetryable(err)) {
			t.Errorf("nobody listens: %v", err)
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log shows the password: %s", log.String())
	}
}

// A server that lets nobody in is unavailable like one that refuses, but not worth eight attempts in a row.
func TestNobodyGetsIn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the system connects, and nobody answers
	must.Do(t, err)
	defer ln.Close()
	_, err = store.Open(t.Context(), store.Config{Database: "postgres://toll:x@" + ln.Addr().String() + "/postgres?sslmode=disable&connect_timeout=1"})
	if !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || store.IsRetryable(err) {
		t.Errorf("nobody answers: %v", err)
	}
}

// One service on a directory; local administration beside it.
func TestSecondService(t *testing.T) {
	cfg := storetest.Config(t, storetest.SQLite)
	admin := cfg
	admin.Admin = true
	before := must.Get(store.Open(t.Context(), admin))(t) // makes the schema; a service may start meanwhile
	service, err := store.Open(t.Context(), cfg)
	must.Do(t, err, "beside an administrator")
	if _, err := store.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another service is using") {
		t.Fatalf("second service: %v", err)
	}
	beside := storetest.OpenConfig(t, admin)
	for i, st := range []*store.Store{before, service, beside} {
		write(t, st, func(tx *store.Tx) error {
			return store.InsertPrincipal(t.Context(), tx, store.Principal{Address: toll.Address{byte(i)}})
		})
	}
	var n int64
	if err := service.QueryRow(t.Context(), "SELECT COUNT(*) FROM principals").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d principals, %v", n, err)
	}
	must.Do(t, errors.Join(service.Close(), before.Close()))
	after, err := store.Open(t.Context(), cfg)
	must.Do(t, err, "after the first service")
	must.Check(t, after.Close())
	if err := after.Tx(t.Context(), func(*store.Tx) error { return nil }); err == nil {
		t.Error("a closed store takes writes")
	}
}

// Local administration gets its turn soon while the service writes without a pause.
func TestAdminGetsIn(t *testing.T) {
	service, cfg := storetest.Open(t, store.SQLite)
	cfg.Admin = true
	admin := storetest.OpenConfig(t, cfg)
	ctx := t.Context()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var writes atomic.Int64
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := service.Tx(ctx, func(tx *store.Tx) error {
				time.Sleep(2 * time.Millisecond) // a batch
				return store.PutSetting(ctx, tx, "service", []byte("x"))
			})
			if err != nil {
				t.Error(err)
				return
			}
			writes.Add(1)
		}
	})
	var waited []int64 // writes of the service that each turn waited for
	// A machine that is busy may let the administrator itself stand still, now and then, so it has three tries.
	for try, good := 0, false; try < 3 && !good; try++ {
		waited = nil
		first := writes.Load()
		for end := time.Now().Add(2 * time.Minute); len(waited) < 40 || writes.Load()-first < 40 && time.Now().Before(end); {
			before := writes.Load()
			write(t, admin, func(tx *store.Tx) error { return store.PutSetting(ctx, tx, "admin", []byte("x")) })
			waited = append(waited, writes.Load()-before)
		}
		if writes.Load()-first < 40 {
			t.Errorf("the service wrote %d times only, beside %d turns", writes.Load()-first, len(waited))
		}
		slices.Sort(waited)
		good = waited[len(waited)/2] <= 20 && waited[len(waited)-1] <= 200
	}
	close(stop)
	wg.Wait()
	if half, longest := waited[len(waited)/2], waited[len(waited)-1]; half > 20 || longest > 200 {
		t.Errorf("half of %d turns waited for %d writes at most, the longest for %d", len(waited), half, longest)
	}
}
