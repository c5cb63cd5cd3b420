package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/tempfile"
	"github.com/tollhq/toll/x402"
)

const (
	delegationsFile = "delegations.json"
	maxDelegations  = 64 // that are remembered of one account
)

// delegated is the record of the delegations that this core made: others are never used, as nobody
// agreed here to what they may spend. It holds ids only. Safe for concurrent use.
type delegated struct{ mu sync.Mutex }

// read returns the ids by account, none after an error.
func (d *delegated) read(dir string) (map[string][]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, delegationsFile))
	all := map[string][]string{}
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = x402.Decode(b, &all)
	}
	if err != nil || all == nil {
		return map[string][]string{}, err
	}
	return all, nil
}

// add records a delegation; the oldest one of many is forgotten.
func (d *delegated) add(dir, account, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, _ := d.read(dir) // one that cannot be read is replaced
	if slices.Contains(all[account], id) {
		return nil
	}
	ids := append(all[account], id)
	all[account] = ids[max(0, len(ids)-maxDelegations):]
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	f, err := tempfile.Kind{Prefix: ".delegations-", Suffix: ".json"}.Create(dir)
	if err != nil {
		return err
	}
	defer f.Remove()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Publish(filepath.Join(dir, delegationsFile), true)
}

// of returns the ids of an account, the newest first.
func (d *delegated) of(dir, account string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.read(dir)
	ids := all[account]
	slices.Reverse(ids)
	return ids, err
}

// delegation returns the id of a delegation for a budget: one that this core made and that covers
// it, else a new one under this Idempotency-Key.
func (c *call) delegation(ctx context.Context, d *budget, key string) (string, error) {
	account := string(c.account.environment) + " " + c.account.address.Lower()
	ids, err := c.core.delegated.of(c.core.opts.Dir, account)
	if err != nil {
		c.core.log.WarnContext(ctx, "the record of delegations cannot be read", "err", err)
	}
	for _, id := range ids {
		known, err := c.account.service.Delegation(ctx, id)
		switch {
		case undecided(err):
			return "", err
		case err == nil && d.coveredBy(known, c.core.now()):
			return id, nil
		}
	}
	params := client.DelegationParams{
		Provider:      d.provider,
		SpendingLimit: d.limit,
		Lifetime:      d.lasts,
		Currency:      d.currency,
		PlanID:        d.plan.ID,
	}
	if d.card != nil {
		params.PaymentMethodID = d.card.ID
	}
	made, err := c.account.service.CreateDelegation(client.WithIdempotencyKey(ctx, digest("delegation", key)), params)
	if err != nil {
		return "", err
	}
	if err := c.core.delegated.add(c.core.opts.Dir, account, made.DelegationID); err != nil {
		c.core.log.WarnContext(ctx, "a delegation was not recorded, so it is not used again", "err", err)
	}
	return made.DelegationID, nil
}

// coveredBy reports whether an existing delegation serves a budget. Where orders cannot bound what is
// spent, as the credits of a pay-as-you-go plan are bought one by one, the money left must be equal.
func (d *budget) coveredBy(known *toll.Delegation, now time.Time) bool {
	switch {
	case known.Status != toll.StatusActive, known.Provider != d.provider, known.Currency != d.currency:
		return false
	case known.PlanID == nil || *known.PlanID != d.plan.ID:
		return false
	case d.card != nil && known.ProviderPaymentMethodID != d.card.ID:
		return false
	case known.ExpiresAt.Before(now.Add(d.needed)), known.ExpiresAt.After(now.Add(d.lasts)):
		return false
	case d.plan.IsPayAsYouGo():
		return known.RemainingBudgetCents == d.limit
	}
	return known.RemainingBudgetCents >= d.limit
}
