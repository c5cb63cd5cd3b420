package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Advisory locks of PostgreSQL. They belong to sessions, so the server releases them when a process ends.
const (
	// migrationLock is held while a schema is changed ("toll" in ASCII).
	migrationLock = 0x746f6c6c
	// workLock, together with a version, is held shared by every connection of a release that knows this version as the latest. A
	// migration holds it for all earlier versions, alone, so that no older release works meanwhile.
	workLock = 0x746f6c6d
)

// sqlWorkLock takes the lock of a release.
const sqlWorkLock = "SELECT pg_advisory_lock_shared($1, $2)"

// olderWait is how long a migration waits for connections of an older release that has just been stopped.
const (
	olderWait  = 3 * time.Second
	olderPause = 100 * time.Millisecond
)

// settleSchema makes the schema of a database usable as the rule of cfg says.
func settleSchema(
	ctx context.Context, to *pgx.ConnConfig, cfg Config, log *slog.Logger,
) (err error) {
	db := stdlib.OpenDB(*to)
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := schemaThrough(ctx, db, Postgres)
	if err != nil || cfg.Schema == AnySchema {
		return err
	}
	if s.Version < s.Known {
		// Another process may be about to make or migrate it.
		if s, err = settledSchema(ctx, db); err != nil {
			return err
		}
	}
	if unusable := s.Usable(); unusable != nil {
		if err := cfg.upgrades(unusable); err != nil {
			return err
		}
		if err := migratePostgres(ctx, db, cfg, log); err != nil {
			return err
		}
	}
	return partition(ctx, db, cfg.Partitions)
}

// settledSchema is schemaThrough after the end of a migration that is under way.
func settledSchema(ctx context.Context, db *sql.DB) (s Schema, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = conn.ExecContext(ctx, "SELECT pg_advisory_lock_shared($1)", int64(migrationLock))
	if err != nil {
		return s, err
	}
	if s, err = schemaThrough(ctx, conn, Postgres); err != nil {
		return s, err
	}
	_, err = conn.ExecContext(ctx, "SELECT pg_advisory_unlock_shared($1)", int64(migrationLock))
	return s, err
}

func migratePostgres(ctx context.Context, db *sql.DB, cfg Config, log *slog.Logger) error {
	// A migration that is online waits for tables in which a service writes, and PostgreSQL may end
	// it for another one. It is one transaction, so that nothing of it was done.
	for attempt := 1; ; attempt++ {
		session := &migrationSession{online: cfg.Online}
		err := migrate(ctx, db, Postgres, cfg, session, log)
		if !isContention(err) || attempt == txAttempts {
			return err
		}
		log.InfoContext(ctx, "a migration conflicted with a running service; retrying it",
			"attempt", attempt)
	}
}

type migrationSession struct {
	online bool
}

// SessionLock returns when no other migration runs. It fails with [ErrOlderInUse] when an older
// release is at work, unless the migrations are online and may be.
func (m *migrationSession) SessionLock(ctx context.Context, conn *sql.Conn) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, m.SessionUnlock(context.WithoutCancel(ctx), conn))
		}
	}()
	_, err = conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock))
	if err != nil {
		return err
	}
	s, err := schemaThrough(ctx, conn, Postgres)
	if err != nil || len(s.Pending()) == 0 {
		return err
	}
	if s.Version > 0 && !(m.online && len(s.Unsafe()) == 0) {
		return m.excludeOlder(ctx, conn, s)
	}
	return nil
}

// SessionUnlock releases all locks of the connection but that of this release.
func (m *migrationSession) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, sqlWorkLock, workLock, knownSchema())
	return err
}

// excludeOlder takes the locks of all earlier versions, which older releases hold while they are at
// work and need for new connections. The locks end with the session.
func (m *migrationSession) excludeOlder(ctx context.Context, conn *sql.Conn, s Schema) error {
	var earlier []int64
	for _, known := range migrationList {
		if known.version < s.Known {
			earlier = append(earlier, known.version)
		}
	}
	var older []string
	for waited := time.Duration(0); waited <= olderWait; waited += olderPause {
		var err error
		if older, err = m.olderSessions(ctx, conn, s); err != nil {
			return err
		}
		if len(older) == 0 {
			var missed int64
			row := conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM unnest($1::bigint[]) AS v (version)
				WHERE NOT pg_try_advisory_lock($2, version::int)`, earlier, workLock)
			if err := row.Scan(&missed); err != nil || missed == 0 {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(olderPause):
		}
	}
	who := strings.Join(older, ", ")
	return s.inUse(cmp.Or(who, "an unidentified session"), m.online)
}

func (m *migrationSession) olderSessions(
	ctx context.Context, conn *sql.Conn, s Schema,
) (older []string, err error) {
	rows, err := conn.QueryContext(ctx, `SELECT
			COALESCE(host(a.client_addr), 'an address that is not shown'), w.version,
			COUNT(*), array_to_string((array_agg(a.pid ORDER BY a.pid))[1:4], ', ')
		FROM pg_stat_activity a JOIN (
			SELECT l.pid, MAX(l.objid::bigint) AS version FROM pg_locks l
			WHERE l.locktype = 'advisory' AND l.classid::bigint = $1 AND l.objsubid = 2
				AND l.mode = 'ShareLock'
			GROUP BY l.pid) w ON w.pid = a.pid
		WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND w.version < $2
		GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 10`, workLock, s.Known)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var host, processes string
		var version, n int64
		if err := rows.Scan(&host, &version, &n, &processes); err != nil {
			return nil, err
		}
		older = append(older, fmt.Sprintf("a release with schema %d on %s with %d connections (PostgreSQL process %s)",
			version, host, n, processes))
	}
	return older, rows.Err()
}
