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
	if pc.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		pc.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "30s"
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
		if refused, ok := errors.AsType[refusedSettings](err); ok {
			return nil, refused
		}
		return nil, fmt.Errorf("store: %s port %d: %w (%s)", pc.ConnConfig.Host, pc.ConnConfig.Port, MapError(err), cause(err))
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

// refusedSettings says which setting of a database may lose what was committed, or mangle it.
type refusedSettings string

func (r refusedSettings) Error() string { return "store: the database is refused: " + string(r) }

// checkPostgres refuses settings under which a committed transaction may be lost. synchronous_commit may be on, local,
// remote_write or remote_apply: all of them flush the commit to the disk of the server.
func checkPostgres(settings map[string]string) error {
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		switch settings[name] {
		case "", "off":
			return refusedSettings(name + " is off, so that committed credits could be lost; switch it on")
		}
	}
	if e := settings["server_encoding"]; e != "UTF8" {
		return refusedSettings("its encoding is " + e + ", not UTF8")
	}
	return nil
}
