package server

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

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

// Audit proves the books, account by account, beside a running service or not: conservation of credits, holds, one burn a
// request, limits, the chain of commitments, orders against credits, payments by card against orders and changes of the operator's
// balance, events, usage and revenue against the journal, the chains of the audit log, and records against its last lines.
func Audit(ctx context.Context, cfg Config) ([]Finding, error) {
	a, err := AuditFrom(ctx, cfg, false)
	return a.Findings, err
}

// errNoSeal says that there is nothing to begin from.
var errNoSeal = errors.New("no audit has sealed the journal: run toll audit --record once")

// AuditFrom is [Audit], but for entries of the journal up to the last seal, with their events and usage, when since is set. It stops at
// the first error.
func AuditFrom(ctx context.Context, cfg Config, since bool) (out Audited, err error) {
	err = administer(ctx, cfg, reading, func(cfg Config, f *foundation) (err error) {
		last, err := store.NotedAudit(ctx, f.store)
		if err != nil {
			return err
		}
		if since && last.Seal == nil {
			return errNoSeal
		}
		books := ledger.New(f.store, ledger.Config{Clock: cfg.Clock, Log: cfg.Log, MACKey: f.auth.MACKey()})
		defer func() { err = errors.Join(err, books.Close(context.WithoutCancel(ctx))) }()
		a, err := books.AuditFrom(ctx, last.Seal, since)
		if err != nil {
			return err
		}
		out.Findings, out.Seal = findingsOf(a.Findings), a.Seal
		for _, step := range []struct {
			invariant string
			all       bool // reads what the journal says of all entries
			find      func() ([]string, error)
		}{
			{"orders", false, func() ([]string, error) { return store.AuditOrders(ctx, f.store) }},
			{"cards", false, func() ([]string, error) { return store.AuditCards(ctx, f.store, f.clock.now()) }},
			{"events", true, func() ([]string, error) { return store.AuditEvents(ctx, f.store, a.Burns) }},
			{"usage", true, func() ([]string, error) { return store.AuditUsage(ctx, f.store) }},
			{"audit log", false, func() ([]string, error) { return store.AuditChains(ctx, f.store) }},
			{"records", false, func() ([]string, error) { return store.AuditLogged(ctx, f.store) }},
		} {
			if since && step.all {
				continue
			}
			found, err := step.find()
			if err != nil {
				return err
			}
			for _, detail := range found {
				out.Findings = append(out.Findings, Finding{Invariant: step.invariant, Detail: detail})
			}
		}
		return nil
	})
	return out, err
}

// NoteAudit notes in the database when an audit was made and how many faults it found, for the metrics of the service, and the seal of
// the journal when it found none. An audit of new entries only moves the seal.
func NoteAudit(ctx context.Context, cfg Config, a Audited, since bool) error {
	return administer(ctx, cfg, writing, func(cfg Config, f *foundation) error {
		return f.store.Tx(ctx, func(tx *store.Tx) error {
			noted, err := store.NotedAudit(ctx, tx)
			if err != nil {
				return err
			}
			if !since {
				noted.At, noted.Findings = f.clock.now(), len(a.Findings)
			}
			if len(a.Findings) == 0 {
				noted.Seal = &a.Seal
			}
			return store.NoteAudit(ctx, tx, noted)
		})
	})
}

// AuditArchives proves archives that [Export] wrote against the database. Each begins where the one before it ended.
func AuditArchives(ctx context.Context, cfg Config, paths []string) (findings []Finding, err error) {
	err = administer(ctx, cfg, reading, func(cfg Config, f *foundation) (err error) {
		books := ledger.New(f.store, ledger.Config{Clock: cfg.Clock, Log: cfg.Log, MACKey: f.auth.MACKey()})
		defer func() { err = errors.Join(err, books.Close(context.WithoutCancel(ctx))) }()
		last := int64(0)
		for i, path := range paths {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			found, a, err := books.AuditArchive(ctx, file)
			if err = errors.Join(err, file.Close()); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			findings = append(findings, findingsOf(found)...)
			if i > 0 && a.First != last+1 {
				findings = append(findings, Finding{Invariant: "archive", Detail: fmt.Sprintf("%s begins at entry %d, the one before it ends at %d", path, a.First, last)})
			}
			last = a.Last
		}
		return nil
	})
	return findings, err
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
