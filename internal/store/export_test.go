package store

import "errors"

// Doors for the tests, which live outside of the package because they use storetest.
var (
	CheckSQLite     = checkSQLite
	CheckPostgres   = checkPostgres
	ParsePositional = func(q string, args ...any) (string, []any, error) {
		p := parsePositional(q)
		args, err := p.args(args)
		return p.text, args, err
	}
	MigrateFrom    = migrateFrom
	ErrNewerSchema = errNewerSchema
)

// IsRefused reports whether the settings of the database were refused.
func IsRefused(err error) bool {
	_, ok := errors.AsType[refusedSettings](err)
	return ok
}
