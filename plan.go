package toll

import "time"

// Plan is a plan for sale: a price and the credits or time that it buys. Its JSON is the union of both dialects (wire contract, section 7).
type Plan struct {
	ID          PlanID
	Owner       Address
	Metadata    Metadata
	Price       Price
	Credits     CreditsConfig
	AccessLimit AccessLimit
	MaxOrders   int64 // 0 = no limit
	IsTrial     bool
	IsListed    bool
	Suspended   bool  // the operator suspended the plan or its owner; not on the wire
	Version     int64 // 1 when registered, and 1 more after each change; 0 when unknown
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// PlanKind has the rules for charges, coverage, and orders that differ between plans. Callers use these rules, so that a
// new kind of plan changes only them. The zero value is the kind of a prepaid plan of credits.
type PlanKind struct {
	period     bool // an order buys a period, in which requests charge nothing
	payAsYouGo bool // each request buys its missing credits, at a price per credit
}

// Kind returns the kind of a prepaid plan with this access limit.
func (l AccessLimit) Kind() PlanKind { return PlanKind{period: l == LimitTime} }

// Kind returns the kind of the plan.
func (p *Plan) Kind() PlanKind {
	k := p.AccessLimit.Kind()
	k.payAsYouGo = !p.Price.TemplateAddress.IsZero()
	return k
}

// Charges reports whether requests charge credits.
func (k PlanKind) Charges() bool { return !k.period }

// NeedsPeriod reports whether a request requires a running period.
func (k PlanKind) NeedsPeriod() bool { return k.period }

// Covers reports whether a balance pays for a request of n credits now. subscribed reports whether one of its lots is running.
func (k PlanKind) Covers(available Credits, subscribed bool, n Credits) bool {
	return (subscribed || !k.NeedsPeriod()) && (available >= n || !k.Charges())
}

// Prepaid reports whether an order buys a fixed amount in advance. If not, each request buys its missing credits.
func (k PlanKind) Prepaid() bool { return !k.payAsYouGo }

// AddsUp reports whether the credits of several orders add up to cover a larger request.
func (k PlanKind) AddsUp() bool { return k.Charges() && k.Prepaid() }

// Reorders reports whether another order can be paid for when the balance runs out. A free plan is ordered again only on request.
func (p *Plan) Reorders() bool {
	k := p.Kind()
	return !k.Prepaid() || !p.Price.IsFree() && (!k.Charges() || p.Credits.Amount > 0)
}

// LimitsOrders reports whether earlier orders can keep an account from ordering the plan again. Such a plan allows one open order.
func (p *Plan) LimitsOrders() bool { return p.IsTrial }

// MayOrder returns nil when an account may order the plan now, else an error with [CodeTrialUsed]. orders is the number of
// its orders; subscribed reports whether one of its lots is running.
func (p *Plan) MayOrder(orders int64, _ bool) error {
	if p.IsTrial && orders > 0 {
		return NewError(CodeTrialUsed)
	}
	return nil
}

// Expires reports whether the credits or the period of an order expire.
func (p *Plan) Expires() bool { return !p.LotEnd(time.Time{}).IsZero() }

// PayTo returns the first receiver, else the owner.
func (p *Plan) PayTo() Address {
	if len(p.Price.Receivers) > 0 {
		return p.Price.Receivers[0]
	}
	return p.Owner
}

// Effective returns the credits burned by a request for this many: 0 for a request of 0 or a time plan, otherwise the
// request clamped to the bounds of the plan (wire contract, section 16). A fixed plan has equal bounds.
func (p *Plan) Effective(requested Credits) Credits {
	if requested == 0 || !p.Kind().Charges() {
		return 0
	}
	return min(max(requested, p.Credits.MinAmount), p.Credits.MaxAmount)
}

// LotEnd returns when a lot bought at t expires, or the zero time when it never does.
func (p *Plan) LotEnd(t time.Time) time.Time { return p.Kind().LotEnd(t, p.Credits.DurationSecs) }

// LotEnd returns when a lot bought at t expires in a plan with this duration, or the zero time when it never does.
func (k PlanKind) LotEnd(t time.Time, secs Units) time.Time { return LotEnd(t, secs) }

// LotEnd returns t plus secs seconds in UTC, or the zero time for 0 seconds. Ends after the year 9999 become its last second.
func LotEnd(t time.Time, secs Units) time.Time {
	if secs.IsZero() {
		return time.Time{}
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	n := secs.Int()
	if !n.IsInt64() || n.Int64() > last.Unix()-t.Unix() {
		return last
	}
	return time.Unix(t.Unix()+n.Int64(), int64(t.Nanosecond())).UTC()
}
