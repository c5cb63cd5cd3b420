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
	maxDelegations  = 64 // recorded per account
)

// delegated records the ids of the delegations that this core created. The core uses only recorded delegations, because their
// limits were confirmed here. It is safe for concurrent use.
type delegated struct{ mu sync.Mutex }

// read returns the ids by account, oldest first, or an empty map after an error.
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

// change replaces the recorded ids of an account with the result of f.
func (d *delegated) change(dir, account string, f func(ids []string) []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, _ := d.read(dir) // replace an unreadable file
	all[account] = f(all[account])
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	kind := tempfile.Kind{Prefix: ".delegations-", Suffix: ".json"}
	return kind.Write(filepath.Join(dir, delegationsFile), b, true)
}

func (d *delegated) of(dir, account string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.read(dir)
	ids := all[account]
	slices.Reverse(ids)
	return ids, err
}

// recordKey returns the key of the account of a call in the record.
func recordKey(c *call) string { return string(c.account.environment) + " " + c.address.Lower() }

// delegation returns the id of a delegation for a budget: a recorded delegation that covers it, with known true, or a new one,
// created with an Idempotency-Key derived from key.
func (c *call) delegation(ctx context.Context, d *budget, key string) (id string, known bool, err error) {
	if id, err := c.covering(ctx, d); id != "" || err != nil {
		return id, true, err
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
		return "", false, err
	}
	c.record(ctx, func(ids []string) []string {
		if slices.Contains(ids, made.DelegationID) {
			return ids
		}
		return append(ids, made.DelegationID)[max(0, len(ids)+1-maxDelegations):] // keep only the newest
	})
	return made.DelegationID, false, nil
}

// forget removes a delegation from the record and reports whether it succeeded.
func (c *call) forget(ctx context.Context, id string) bool {
	return c.record(ctx, func(ids []string) []string {
		return slices.DeleteFunc(ids, func(known string) bool { return known == id })
	})
}

// record changes the recorded ids of the account and reports whether it succeeded. An unrecorded delegation is not reused.
func (c *call) record(ctx context.Context, f func(ids []string) []string) bool {
	err := c.core.delegated.change(c.core.opts.Dir, recordKey(c), f)
	if err != nil {
		c.core.log.WarnContext(ctx, "the file with the delegations cannot be written", "err", err)
	}
	return err == nil
}

// covering returns the newest recorded delegation that covers a budget, or "". It removes ended delegations from the record.
func (c *call) covering(ctx context.Context, d *budget) (string, error) {
	ids, err := c.core.delegated.of(c.core.opts.Dir, recordKey(c))
	if err != nil {
		c.core.log.WarnContext(ctx, "the file with the delegations cannot be read", "err", err)
	}
	for _, id := range ids {
		known, err := c.account.service.Delegation(ctx, id)
		switch {
		case undecided(err):
			return "", err
		case errors.Is(err, toll.NewError(toll.CodeUnknownDelegation)), err == nil && (known.Status == toll.StatusRevoked || known.Status == toll.StatusExpired):
			c.forget(ctx, id)
		case err == nil && d.coveredBy(known, c.core.now()):
			return id, nil
		}
	}
	return "", nil
}

// coveredBy reports whether an existing delegation can serve a budget. For pay-as-you-go plans the remaining money must be
// equal, because the number of orders does not bound it.
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
	}
	return known.RemainingBudgetCents == d.limit || known.RemainingBudgetCents > d.limit && d.plan.Kind().Prepaid()
}
