package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SchemaRule says what [Open] does about the schema of a database.
type SchemaRule int

const (
	// MakeSchema makes the schema of an empty database, and refuses an older schema.
	MakeSchema SchemaRule = iota
	// UpgradeSchema also brings an older schema up to date, unless an older release is at work on the database.
	UpgradeSchema
	// NeedSchema refuses an empty database and an older schema.
	NeedSchema
	// AnySchema takes the schema as it is. It is for [Config.ReadOnly].
	AnySchema
)

// Reasons why [Open] refuses a database. Their texts say what to do.
var (
	ErrNoSchema = errors.New("store: the database is empty")
	// ErrUnreleased is for the schemas before that of 1.1.0, the first release.
	ErrUnreleased  = errors.New("store: the database was created before 1.1.0 and cannot be upgraded")
	ErrOlderSchema = errors.New("store: the schema of the database is older than this release")
	ErrNewerSchema = errors.New("store: the schema of the database is newer than this release")
	ErrOlderInUse  = errors.New("store: an older release is using this database")
)

// Names of settings about the schema. Later releases read them, so they are permanent.
const (
	// settingFloor is the version of the last migration that earlier releases cannot work with, in decimal digits.
	settingFloor = "schema_floor"
	// settingMigratedBy is the release that changed the schema last.
	settingMigratedBy = "schema_release"
)

type Schema struct {
	Version int64 // of the database; 0 when it has no schema
	Known   int64 // of this release
	// Floor is the version from which on releases can work with this database.
	Floor   int64
	Release string // that changed the schema last, "" when it is not known
}

// Pending returns the versions of the migrations that the database lacks.
func (s Schema) Pending() []int64 { return s.pending(false) }

// Unsafe returns the pending migrations that a release of the present schema cannot work with.
func (s Schema) Unsafe() []int64 { return s.pending(true) }

func (s Schema) pending(unsafe bool) (versions []int64) {
	for _, m := range migrationList {
		if m.version > s.Version && !(unsafe && m.online) {
			versions = append(versions, m.version)
		}
	}
	return versions
}

// Usable returns nil when this release can read and write a database of this schema, else
// [ErrNoSchema], [ErrUnreleased], [ErrOlderSchema] or [ErrNewerSchema] with what to do.
func (s Schema) Usable() error {
	switch {
	case s.Version == 0:
		return refused(ErrNoSchema, "start toll serve, or create the schema with toll migrate")
	case s.Version < migrationList[0].version:
		return refused(ErrUnreleased, "the schema version is %d. Start with an empty directory or database", s.Version)
	case s.Version < s.Known:
		return refused(ErrOlderSchema, "the database has schema %d, but this release needs %d. Stop the service, run toll "+
			"migrate, and start this release, or use the release that serves the database now",
			s.Version, s.Known)
	case s.Version > s.Known && (s.Floor == 0 || s.Floor > s.Known): // 0 if the setting was deleted
		by := "a newer release"
		if s.Release != "" {
			by = "release " + s.Release
		}
		return refused(ErrNewerSchema, "%s migrated the database to schema %d, but this release supports only %d. Start the newer "+
			"release, or restore a backup from before its migration: with toll restore, or on PostgreSQL "+
			"from your dump", by, s.Version, s.Known)
	}
	return nil
}

// inUse is the error for a migration beside an older release, which is at work as who says.
func (s Schema) inUse(who string, online bool) error {
	unsafe := s.Unsafe()
	switch {
	case len(unsafe) == 0:
		return refused(ErrOlderInUse, "%s. The older release can keep running while the pending migrations are applied: run toll "+
			"migrate --online. Otherwise, stop the older release first", who)
	case online:
		return refused(ErrOlderInUse, "%s, and migration %d is not safe while the older release runs. Stop the older release first",
			who, unsafe[0])
	}
	return refused(ErrOlderInUse, "%s. Stop the older release first, then start this release or run toll migrate", who)
}

// refusedSchema is one of the reasons of [Open] with what to do.
type refusedSchema struct {
	reason error
	detail string
}

func refused(reason error, format string, args ...any) error {
	return refusedSchema{reason, fmt.Sprintf(format, args...)}
}

func (r refusedSchema) Error() string { return r.reason.Error() + ": " + r.detail }

// Is makes the reason known to [errors.Is]. It is not unwrapped, as logs show the innermost error.
func (r refusedSchema) Is(err error) bool { return err == r.reason }

type migration struct {
	version int64
	// online says that a release of the schema before can work with the database afterwards, so
	// that it may be at work meanwhile. The comment "-- online: reason" in the file says so.
	online bool
}

// migrationList holds the migrations of this release in order.
var migrationList = listMigrations()

var onlineMark = regexp.MustCompile(`(?m)^-- online: \S`)

func listMigrations() []migration {
	files, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		panic(err) // the directory is embedded
	}
	var list []migration
	for _, f := range files {
		text, err := fs.ReadFile(migrations, "migrations/"+f.Name())
		number, _, _ := strings.Cut(f.Name(), "_")
		version, e := strconv.ParseInt(number, 10, 64)
		if err := errors.Join(err, e); err != nil {
			panic(err) // files are embedded, and their names start with a number
		}
		list = append(list, migration{version, onlineMark.Match(text)})
	}
	slices.SortFunc(list, func(a, b migration) int { return int(a.version - b.version) })
	return list
}

// knownSchema is the version that this release makes.
func knownSchema() int64 { return migrationList[len(migrationList)-1].version }

// floorStatement is what a migration that is not online ends with: releases before it cannot use the database any more.
func floorStatement(version int64) string {
	return strings.NewReplacer("{{FLOOR}}", settingFloor, "{{VERSION}}", strconv.FormatInt(version, 10)).
		Replace(`INSERT INTO settings (name, value) VALUES ('{{FLOOR}}', CAST('{{VERSION}}' AS {{BYTES}}))
			ON CONFLICT (name) DO UPDATE SET value = excluded.value;
`)
}

type rowReader func(ctx context.Context, query string, dest ...any) error

// readSchema reads the state of the schema. It changes nothing.
func readSchema(ctx context.Context, e Engine, read rowReader) (Schema, error) {
	s := Schema{Known: knownSchema()}
	tables := "SELECT COUNT(*) FROM sqlite_master WHERE name = 'goose_db_version'"
	text := "CAST(value AS TEXT)"
	if e == Postgres {
		tables, text = "SELECT COUNT(to_regclass('goose_db_version'))", "encode(value, 'escape')"
	}
	var n int64
	if err := read(ctx, tables, &n); err != nil || n == 0 {
		return s, err
	}
	versions := "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied"
	if err := read(ctx, versions, &s.Version); err != nil || s.Version == 0 {
		return s, err
	}
	var floor string
	for name, into := range map[string]*string{settingFloor: &floor, settingMigratedBy: &s.Release} {
		setting := "SELECT COALESCE(MAX(" + text + "), '') FROM settings WHERE name = '" + name + "'"
		if err := read(ctx, setting, into); err != nil {
			return s, err
		}
	}
	if floor == "" {
		return s, nil
	}
	var err error
	if s.Floor, err = strconv.ParseInt(floor, 10, 64); err != nil {
		return s, fmt.Errorf("store: the setting %s is not a number: %q", settingFloor, floor)
	}
	return s, nil
}

func (s *Store) Schema(ctx context.Context) (Schema, error) {
	return readSchema(ctx, s.engine, func(ctx context.Context, query string, dest ...any) error {
		return s.QueryRow(ctx, query).Scan(dest...)
	})
}
