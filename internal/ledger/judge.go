package ledger

import (
	"time"

	"github.com/tollhq/toll"
)

// Judge refuses a new request of n credits at t with a [*Refusal]. The writer decides by the same rules under the lock of the
// account; of a snapshot the judgement is advice. The zero permission is an unknown one.
func Judge(a *Account, p *Permission, n toll.Credits, kind toll.PlanKind, t time.Time) error {
	if err := p.Usable(t); err != nil {
		return err
	}
	if !p.allows(n, 0) {
		return refuse(RedemptionLimit)
	}
	return a.covers(n, kind, t, p)
}

// Usable refuses a permission that cannot be used at t.
func (p *Permission) Usable(t time.Time) error {
	switch {
	case p.Hash.IsZero():
		return refuse(PermissionUnknown)
	case !p.RevokedAt.IsZero():
		return refuse(PermissionRevoked)
	case !t.Before(p.ExpiresAt):
		return refuse(PermissionExpired)
	}
	return nil
}

// allows reports whether the redemption limit leaves room for n credits, when its own hold of that many is given back.
func (p *Permission) allows(n, own toll.Credits) bool {
	if p.RedemptionLimit == nil {
		return true
	}
	used := p.Redeemed + p.Held - own
	return n <= *p.RedemptionLimit && used <= *p.RedemptionLimit-n
}

// covers refuses n credits that the account cannot give beside what is set aside. An account that never ordered covers nothing, not even 0.
func (a *Account) covers(n toll.Credits, kind toll.PlanKind, t time.Time, p *Permission) error {
	switch {
	case kind.NeedsPeriod() && !a.Subscribed(t):
		return &Refusal{Kind: PeriodOver, NeverOrdered: a.periodEnd == 0, DelegationID: p.DelegationID, APIKeyID: p.APIKeyID}
	case a.periodEnd == 0 || n > a.Available():
		return a.insufficient(n, n, p)
	}
	return nil
}

func (a *Account) insufficient(needed, uncovered toll.Credits, p *Permission) error {
	return &Refusal{
		Kind: Insufficient, Needed: needed, Available: a.Available(), Uncovered: uncovered,
		NeverOrdered: a.periodEnd == 0, DelegationID: p.DelegationID, APIKeyID: p.APIKeyID,
	}
}
