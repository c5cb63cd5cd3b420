package tokens

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/recent"
)

const (
	// snapshotTTL is how old an account or a permission may be where a stale "yes" is harmless.
	snapshotTTL = time.Second
	// agentsTTL is how long the agents of a permission are kept. They never change.
	agentsTTL     = time.Hour
	snapshotBound = 1 << 16
)

// Key names a permission and the account that it spends from.
type Key struct {
	Account ledger.AccountID
	Hash    toll.Hash
}

// Snapshots keeps accounts and permissions as the ledger had them a moment ago. What this process writes shows at once. Accounts
// and permissions are kept apart, because what one access token burns shows to all tokens of the account.
type Snapshots struct {
	ledger      *ledger.Ledger
	clock       func() time.Time
	accounts    *recent.Reader[ledger.AccountID, ledger.Account]
	permissions *recent.Reader[Key, ledger.Permission]
	agents      *recent.Reader[Key, []toll.AgentID]
}

func newSnapshots(l *ledger.Ledger, clock func() time.Time) *Snapshots {
	s := &Snapshots{ledger: l, clock: clock}
	s.accounts = recent.New(clock, snapshotTTL, snapshotBound, s.readAccount)
	s.permissions = recent.New(clock, snapshotTTL, snapshotBound, func(ctx context.Context, k Key) (ledger.Permission, error) {
		_, p, err := l.Snapshot(ctx, k.Account, k.Hash)
		return p, err
	})
	s.agents = recent.New(clock, agentsTTL, snapshotBound, func(ctx context.Context, k Key) ([]toll.AgentID, error) {
		_, p, err := l.Snapshot(ctx, k.Account, k.Hash)
		return p.AllowedAgents, err
	})
	l.OnCommit(s.committed)
	return s
}

// Permission returns a permission of at most a second ago. cached reports that it was not read for this call.
func (s *Snapshots) Permission(ctx context.Context, k Key) (p ledger.Permission, cached bool, err error) {
	return s.permissions.Get(ctx, k)
}

// Agents returns the agents that a permission allows, nil for any.
func (s *Snapshots) Agents(ctx context.Context, k Key) ([]toll.AgentID, error) {
	ids, _, err := s.agents.Get(ctx, k)
	return ids, err
}

// Account returns an account of at most a second ago. cached reports that it was not read for this call.
func (s *Snapshots) Account(ctx context.Context, id ledger.AccountID) (a ledger.Account, cached bool, err error) {
	return s.accounts.Get(ctx, id)
}

// Read returns an account and a permission from reads that began after the call.
func (s *Snapshots) Read(ctx context.Context, k Key) (a ledger.Account, p ledger.Permission, err error) {
	if a, err = s.accounts.Read(ctx, k.Account); err == nil {
		p, err = s.permissions.Read(ctx, k)
	}
	return a, p, err
}

// readAccount first writes what time has done to the account, so that expired credits do not count and those of lapsed holds do.
func (s *Snapshots) readAccount(ctx context.Context, id ledger.AccountID) (ledger.Account, error) {
	a, err := s.ledger.Account(ctx, id)
	if err != nil || !a.Stale(s.clock()) || a.Seq == 0 {
		return a, err
	}
	if err := s.ledger.Touch(ctx, id); err != nil {
		return a, err
	}
	return s.ledger.Account(ctx, id)
}

// committed keeps what the writer of this process has just written, unless time has changed the account since.
func (s *Snapshots) committed(a ledger.Account, permissions []ledger.Permission) {
	if a.Stale(s.clock()) {
		s.accounts.Forget(a.ID)
	} else {
		s.accounts.Put(a.ID, a)
	}
	for _, p := range permissions {
		s.permissions.Put(Key{a.ID, p.Hash}, p)
	}
}

// Forget drops what this process has just changed without the writer of the ledger.
func (s *Snapshots) Forget(k Key) {
	s.accounts.Forget(k.Account)
	s.permissions.Forget(k)
}

// ForgetPermissions drops all permissions after a change of this process to many: the end of a delegation ends those that use it.
func (s *Snapshots) ForgetPermissions() { s.permissions.ForgetAll() }
