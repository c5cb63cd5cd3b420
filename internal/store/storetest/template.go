package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll/internal/store"
)

// A schema is made once and then copied: with the race detector the migrations of SQLite take most of a second.

// sqliteTemplate is a database file with the schema.
var sqliteTemplate = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "toll-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := store.Open(context.Background(), store.Config{Data: dir})
	if err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, databaseFile))
})

const databaseFile = "toll.db"

// Dir returns a new directory of the test that holds a database file with the schema and no record.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := Fill(dir); err != nil {
		t.Fatalf("create the template database: %v", err)
	}
	return dir
}

// Fill puts a database file of SQLite, with the schema and no record, into a directory. Errors are those of the migrations and of files.
func Fill(dir string) error {
	file, err := sqliteTemplate()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, databaseFile), file, 0o600)
}

var (
	templatesMu sync.Mutex
	templates   = map[string]string{} // names, by cluster and number of partitions
)

// template returns the name of a database with the schema, for CREATE DATABASE. All processes of tests share it, so its name
// is that of its schema, and it stays when they end.
func template(t testing.TB, dsn string, partitions int) string {
	t.Helper()
	templatesMu.Lock()
	defer templatesMu.Unlock()
	key := fmt.Sprint(dsn, " ", partitions)
	if templates[key] == "" {
		name, err := makeTemplate(ConnConfig(t, dsn), dsn, partitions)
		if err != nil {
			t.Fatalf("create the template database: %v", err)
		}
		templates[key] = name
	}
	return templates[key]
}

// templateLock is an advisory lock ("tmpl" in ASCII).
const templateLock = 0x746d706c

func makeTemplate(to *pgx.ConnConfig, dsn string, partitions int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	name := fmt.Sprintf("toll_template_%s_%d", store.SchemaSum(), partitions)
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("TOLL_TEST_POSTGRES is not a valid URL")
	}
	conn, err := pgx.ConnectConfig(ctx, to)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return "", err
	}
	var ready bool
	err = conn.QueryRow(ctx, "SELECT datistemplate FROM pg_database WHERE datname = $1", name).Scan(&ready)
	if ready || err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return name, err
	}
	// One that is there and no template was left by a process that died over it.
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", err
		}
	}
	u.Path = "/" + name
	q := u.Query()
	q.Set("connect_timeout", patience)
	u.RawQuery = q.Encode()
	st, err := store.Open(ctx, store.Config{Database: u.String(), Partitions: partitions})
	if err != nil {
		return "", err
	}
	if err := st.Close(); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+name+" WITH is_template true")
	return name, err
}
