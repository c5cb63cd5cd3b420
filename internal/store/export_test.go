package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tollhq/toll/internal/must"
)

// Doors for the tests, which live outside of the package because they use storetest.
var (
	CheckSQLite     = checkSQLite
	CheckPostgres   = checkPostgres
	ParsePositional = func(q string, args ...any) (string, []any, error) {
		p := parsePositional(q)
		args, err := p.args(args)
		return p.text, args, err
	}
	MigrateFrom = migrateFrom
	OpenStates  = (*Store).openStates
	KnownSchema = knownSchema
	Words       = words

	CardRefundByStripeID = by[string](cardRefunds, "stripe_id = $1")
)

// AddMigrations makes this release a later one, with further migrations by the names of their files, until the test ends.
func AddMigrations(t *testing.T, texts map[string]string) {
	t.Helper()
	all := fstest.MapFS{}
	for name, text := range texts {
		all["migrations/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	must.Do(t, fs.WalkDir(migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var text []byte
			text, err = fs.ReadFile(migrations, path)
			all[path] = &fstest.MapFile{Data: text}
		}
		return err
	}))
	before := migrations
	set := func(files fs.FS) { migrations = files; migrationList = listMigrations() }
	t.Cleanup(func() { set(before) })
	set(all)
}

// SetBusyTimeout has the writer of SQLite wait so many milliseconds for another process.
func SetBusyTimeout(s *Store, millis int) error { return pragma(s, "busy_timeout", millis) }

// SetMaxPages bounds the file of SQLite, which keeps what it has.
func SetMaxPages(s *Store, pages int) error { return pragma(s, "max_page_count", pages) }

func pragma(s *Store, name string, value int) error {
	_, err := s.lite.writer.exec(fmt.Sprintf("PRAGMA %s(%d)", name, value), nil)
	return err
}

// IsRefused reports whether the settings of the database were refused.
func IsRefused(err error) bool {
	_, ok := errors.AsType[refusedSettings](err)
	return ok
}

var (
	anyMark   = regexp.MustCompile(`(?im)^--\s*online\b`)
	lineNotes = regexp.MustCompile(`(?m)--.*$`)
	newTable  = regexp.MustCompile(`^CREATE TABLE (\w+)`)
	newIndex  = regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX \w+ ON (\w+)`)
	newColumn = regexp.MustCompile(`^ALTER TABLE \w+ ADD COLUMN \w+ [\w{}]+$`)
)

// MemberSessions is the condition of [MemberSessionList].
const MemberSessions = memberSessions

// OnlineFault says why a migration may not be marked as online, or that its mark is wrong, "" when
// there is no fault.
func OnlineFault(text string) string {
	if !anyMark.MatchString(text) {
		return ""
	}
	if !onlineMark.MatchString(text) {
		return "the mark is a line that starts with \"-- online: \" and says why"
	}
	made := map[string]bool{}
	for statement := range strings.SplitSeq(lineNotes.ReplaceAllString(text, ""), ";") {
		statement = strings.TrimSpace(statement)
		table, index := newTable.FindStringSubmatch(statement), newIndex.FindStringSubmatch(statement)
		switch {
		case statement == "", newColumn.MatchString(statement), index != nil && made[index[1]]:
		case table != nil:
			made[table[1]] = true
		default:
			return "earlier releases may not get along with: " + statement
		}
	}
	return ""
}

// AddJournal adds rows to the journal, as the writer of the ledger does.
func AddJournal(ctx context.Context, tx *Tx, rows []JournalRow) error {
	if tx.Engine() == SQLite {
		for i := range rows {
			if _, err := tx.Exec(ctx, SQLJournalAdd, rows[i].Values()...); err != nil {
				return err
			}
		}
		return nil
	}
	if err := tx.Run(ctx, JournalLock); err != nil {
		return err
	}
	all := make([][]any, len(rows))
	for i := range rows {
		all[i] = rows[i].Values()
	}
	_, err := tx.Exec(ctx, SQLJournalAddMany, turned(all)...)
	return err
}

// RunStatements are the statements that read runs, and what belongs to their events.
var RunStatements = map[string]string{
	"sqlStream": sqlStream, "sqlRunsBetween": sqlRunsBetween, "sqlRunsByNumber": sqlRunsByNumber, "sqlRunsSince": sqlRunsSince,
	"sqlRunsAround": sqlRunsAround, "sqlRunsBehind": sqlRunsBehind,
	"JournalAt": "SELECT " + JournalColumns + " FROM journal WHERE pos IN " + tuples(1, 64),
	"sqlPayers": sqlPayers + tuples(1, 64),
}

// UnpackRun reads a packed run, and the same as a tail.
func UnpackRun(packed []byte, first int64) {
	r := run{first: first}
	_ = r.unpack(packed)
	_ = r.unpackTail(packed, first)
}
