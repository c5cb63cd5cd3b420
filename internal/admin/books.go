// Package admin works on a database from the shell, beside a running service or without one: it proves and exports the books, ends and
// rotates keys, resolves payments without an order, marks payouts, and keeps persons and workspaces out. Each function opens the database
// through [server.Administer].
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tempfile"
)

// withBooks calls work with an open database and its ledger.
func withBooks[T any](
	ctx context.Context, cfg server.Config, as server.Access, work func(*server.Database, *ledger.Ledger) (T, error),
) (T, error) {
	return server.Administer(ctx, cfg, as, func(db *server.Database) (out T, err error) {
		books := ledger.New(db.Store, ledger.Config{Clock: db.Now, Log: db.Log, MACKey: db.Auth.MACKey()})
		defer func() { err = errors.Join(err, books.Close(context.WithoutCancel(ctx))) }()
		return work(db, books)
	})
}

// inTx calls work in one transaction of an open database.
func inTx(ctx context.Context, cfg server.Config, work func(*server.Database, *store.Tx) error) error {
	_, err := server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (struct{}, error) {
		return struct{}{}, db.Store.Tx(ctx, func(tx *store.Tx) error { return work(db, tx) })
	})
	return err
}

// Finding is a promise of the books that does not hold.
type Finding struct {
	Invariant string `json:"invariant"`
	Account   string `json:"account"` // empty when it is about none
	Detail    string `json:"detail"`
}

// Audited is what an audit found, and the seal of the journal up to the last entry that it read.
type Audited struct {
	Findings []Finding
	Seal     store.Seal
}

// errNoSeal says that there is nothing to begin from.
var errNoSeal = errors.New("no audit has sealed the journal yet: run toll audit --record first")

// AuditFrom proves the books, account by account, beside a running service or not: conservation of credits, holds, one burn a
// request, limits, the chain of commitments, orders against credits, payments by card against orders and changes of the operator's
// balance, events, usage and revenue against the journal, the chains of the audit log, and records against its last lines. With since it
// skips entries of the journal up to the last seal, with their events and usage. It stops at the first error.
func AuditFrom(ctx context.Context, cfg server.Config, since bool) (Audited, error) {
	return withBooks(ctx, cfg, server.Reading, func(db *server.Database, books *ledger.Ledger) (out Audited, err error) {
		last, err := store.NotedAudit(ctx, db.Store)
		if err != nil {
			return out, err
		}
		if since && last.Seal == nil {
			return out, errNoSeal
		}
		a, err := books.AuditFrom(ctx, last.Seal, since)
		if err != nil {
			return out, err
		}
		out = Audited{Findings: findingsOf(a.Findings), Seal: a.Seal}
		for _, step := range []struct {
			invariant string
			all       bool // reads what the journal says of all entries
			find      func() ([]string, error)
		}{
			{"orders", false, func() ([]string, error) { return store.AuditOrders(ctx, db.Store) }},
			{"cards", false, func() ([]string, error) { return store.AuditCards(ctx, db.Store, db.Now()) }},
			{"events", true, func() ([]string, error) { return store.AuditEvents(ctx, db.Store, a.Burns) }},
			{"usage", true, func() ([]string, error) { return store.AuditUsage(ctx, db.Store) }},
			{"audit log", false, func() ([]string, error) { return store.AuditChains(ctx, db.Store) }},
			{"records", false, func() ([]string, error) { return store.AuditLogged(ctx, db.Store) }},
		} {
			if since && step.all {
				continue
			}
			found, err := step.find()
			if err != nil {
				return out, err
			}
			for _, detail := range found {
				out.Findings = append(out.Findings, Finding{Invariant: step.invariant, Detail: detail})
			}
		}
		return out, nil
	})
}

// NoteAudit notes in the database when an audit was made and how many faults it found, for the metrics of the service, and the seal of
// the journal when it found none. An audit of new entries only moves the seal.
func NoteAudit(ctx context.Context, cfg server.Config, a Audited, since bool) error {
	return inTx(ctx, cfg, func(db *server.Database, tx *store.Tx) error {
		noted, err := store.NotedAudit(ctx, tx)
		if err != nil {
			return err
		}
		if !since {
			noted.At, noted.Findings = db.Now(), len(a.Findings)
		}
		if len(a.Findings) == 0 {
			noted.Seal = &a.Seal
		}
		return store.NoteAudit(ctx, tx, noted)
	})
}

// AuditArchives proves archives that [Export] wrote against the database. Each begins where the one before it ended.
func AuditArchives(ctx context.Context, cfg server.Config, paths []string) ([]Finding, error) {
	return withBooks(ctx, cfg, server.Reading, func(db *server.Database, books *ledger.Ledger) (findings []Finding, err error) {
		last := int64(0)
		for i, path := range paths {
			file, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			found, a, err := books.AuditArchive(ctx, file)
			if err = errors.Join(err, file.Close()); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			findings = append(findings, findingsOf(found)...)
			if i > 0 && a.First != last+1 {
				findings = append(findings, Finding{Invariant: "archive", Detail: fmt.Sprintf("%s begins at entry %d, but the previous archive ends at %d", path, a.First, last)})
			}
			last = a.Last
		}
		return findings, nil
	})
}

func findingsOf(found []ledger.Finding) (findings []Finding) {
	for _, x := range found {
		finding := Finding{Invariant: x.Invariant, Detail: x.Detail}
		if x.Account != (ledger.AccountID{}) {
			finding.Account = x.Account.String()
		}
		findings = append(findings, finding)
	}
	return findings
}

// Export writes the entries of the journal from a position on, up to the first that was not made before a time, to the new file path,
// which is there in whole or not at all. It works beside a running service.
func Export(ctx context.Context, cfg server.Config, path string, first int64, before time.Time) (ledger.Archived, error) {
	return withBooks(ctx, cfg, server.Reading, func(_ *server.Database, books *ledger.Ledger) (a ledger.Archived, err error) {
		dir, name := filepath.Split(path)
		out, err := tempfile.Kind{Prefix: "." + name + "."}.Create(cmp.Or(dir, "."))
		if err != nil {
			return a, err
		}
		defer func() { err = errors.Join(err, out.Remove()) }()
		if a, err = books.Export(ctx, out, first, before); err != nil {
			return a, err
		}
		if err := out.Sync(); err != nil {
			return a, err
		}
		err = out.Publish(path, false)
		if errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("%s already exists", path)
		}
		return a, err
	})
}

// NoteBackup notes in the database that a backup was made with other tools, for the metrics of the service.
func NoteBackup(ctx context.Context, cfg server.Config) error {
	return inTx(ctx, cfg, func(db *server.Database, tx *store.Tx) error { return store.NoteBackup(ctx, tx, db.Machine()) })
}

// Recount counts usage and revenue anew from the journal, and returns when it has counted all entries that there are.
func Recount(ctx context.Context, cfg server.Config) error {
	_, err := withBooks(ctx, cfg, server.Writing, func(_ *server.Database, books *ledger.Ledger) (_ struct{}, err error) {
		err = books.RecountUsage(ctx)
		for more := true; more && err == nil; {
			more, err = books.CountUsage(ctx)
		}
		return struct{}{}, err
	})
	return err
}
