package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollhq/toll"
)

const postgresConns = 16 // unless the address has pool_max_conns

func openPostgres(ctx context.Context, cfg Config, log *slog.Logger) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.Database)
	if err != nil {
		// The error of the driver may quote the address with its password.
		return nil, errors.New("store: the database address is invalid; it must look like postgres://user:password@host:5432/name")
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
	pc.ConnConfig.AfterConnect = restrict(cfg, admit)
	if err := settleSchema(ctx, pc.ConnConfig, cfg, log); err != nil {
		return nil, connectError(pc.ConnConfig, err)
	}
	if cfg.Schema != AnySchema {
		// The schema may be migrated while this process has no connection.
		pc.ConnConfig.AfterConnect = restrict(cfg, admitUsable)
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, MapError(err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, connectError(pc.ConnConfig, err)
	}
	return pool, nil
}

// restrict returns admit, after which a connection of a read-only store cannot write. The setting must not be a parameter of the
// connection: the driver reads it for target_session_attrs=read-write, and would refuse the primary server.
func restrict(cfg Config, admit pgconn.AfterConnectFunc) pgconn.AfterConnectFunc {
	if !cfg.ReadOnly {
		return admit
	}
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := admit(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SET default_transaction_read_only = on").ReadAll()
		return err
	}
}

// connectError returns the error of a connection as an operator needs it, without the password that the driver knows.
func connectError(to *pgx.ConnConfig, err error) error {
	if refused, ok := errors.AsType[refusedSettings](err); ok {
		return refused
	}
	if mapped := MapError(err); errors.Is(mapped, toll.NewError(toll.CodeDatabaseUnavailable)) {
		return fmt.Errorf("store: %s port %d: %w (%s)", to.Host, to.Port, mapped, cause(err))
	}
	return err
}

// admit checks the settings of a new connection, and takes the shared lock of the schema that this
// release works with. Each connection is checked, as the settings can be changed for a database or
// a role while the service runs. The view pg_settings is not read: it makes 350 rows in milliseconds.
func admit(ctx context.Context, conn *pgconn.PgConn) error {
	if err := assertPostgres(ctx, conn); err != nil {
		return err
	}
	var args [][]byte
	for _, n := range []int64{workLock, knownSchema()} {
		args = append(args, strconv.AppendInt(nil, n, 10))
	}
	return conn.ExecParams(ctx, sqlWorkLock, args, nil, nil, nil).Read().Err
}

// admitUsable is admit for a connection to a schema that this release must be able to use.
func admitUsable(ctx context.Context, conn *pgconn.PgConn) error {
	if err := admit(ctx, conn); err != nil {
		return err
	}
	s, err := readSchema(ctx, Postgres, func(ctx context.Context, query string, dest ...any) error {
		results, err := conn.Exec(ctx, query).ReadAll()
		if err != nil {
			return err
		}
		for i, into := range dest {
			text := string(results[0].Rows[0][i])
			if _, err := fmt.Sscan(text, into); err != nil && text != "" {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.Usable()
}

func assertPostgres(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, `SELECT n, current_setting(n)
		FROM unnest('{fsync,synchronous_commit,full_page_writes,server_encoding}'::text[]) AS n`).ReadAll()
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

func (r refusedSettings) Error() string { return "store: the database cannot be used: " + string(r) }

// checkPostgres refuses settings under which a committed transaction may be lost. synchronous_commit may be on, local,
// remote_write or remote_apply: all of them flush the commit to the disk of the server.
func checkPostgres(settings map[string]string) error {
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		switch settings[name] {
		case "", "off":
			return refusedSettings(name + " is off, so committed credits could be lost: turn it on")
		}
	}
	if e := settings["server_encoding"]; e != "UTF8" {
		return refusedSettings("the encoding is " + e + ", not UTF8")
	}
	return nil
}
