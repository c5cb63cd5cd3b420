package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const postgresConns = 16 // unless the address has pool_max_conns

func openPostgres(ctx context.Context, cfg Config, log *slog.Logger) (_ *pgxpool.Pool, err error) {
	pc, err := pgxpool.ParseConfig(cfg.Database)
	if err != nil {
		// The error of the driver may quote the address with its password.
		return nil, errors.New("store: the address of the database cannot be read; it looks like postgres://user:password@host:5432/name")
	}
	if !strings.Contains(cfg.Database, "pool_max_conns") {
		pc.MaxConns = postgresConns
	}
	if !strings.Contains(cfg.Database, "connect_timeout") {
		pc.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = "toll"
	}
	// Each connection is asked, as the settings can be changed for a database or a role while the service runs.
	pc.ConnConfig.AfterConnect = assertPostgres
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, MapError(err)
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	if err := pool.Ping(ctx); err != nil {
		return nil, MapError(err)
	}
	if err := migratePostgres(ctx, pool, cfg.Partitions, log); err != nil {
		return nil, err
	}
	return pool, nil
}

func assertPostgres(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, `SELECT name, setting FROM pg_settings
		WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'server_encoding')`).ReadAll()
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, row := range results[0].Rows {
		settings[string(row[0])] = string(row[1])
	}
	return checkPostgres(settings)
}

// errNotDurable is a database that may lose what it has committed, or mangle it.
var errNotDurable = errors.New("store: the settings of the database are refused")

// checkPostgres refuses settings under which a committed transaction may be lost. synchronous_commit may be on, local,
// remote_write or remote_apply: all of them flush the commit to the disk of the server.
func checkPostgres(settings map[string]string) error {
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		switch settings[name] {
		case "", "off":
			return fmt.Errorf("%w: %s is off, so that committed credits could be lost; switch it on", errNotDurable, name)
		}
	}
	if e := settings["server_encoding"]; e != "UTF8" {
		return fmt.Errorf("%w: its encoding is %s, not UTF8", errNotDurable, e)
	}
	return nil
}
