package toll

import "time"

// Plan is a purchasable bundle: a price and the credits or time that it buys. Its JSON is the union of both dialects
// (wire contract, section 7).
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

// PlanKind has the rules for charges, coverage, and orders that differ between plans. Callers ask for a rule, so that a new kind
// of plan changes the rules and not their callers. The zero value is the kind of a prepaid plan of credits.
type PlanKind struct {
	period     bool // an order buys a period, in which requests charge nothing
	payAsYouGo bool // each request buys the credits that it lacks, at a price for one credit
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

// NeedsPeriod reports whether a request needs a period that runs.
func (k PlanKind) NeedsPeriod() bool { return k.period }

// Covers reports whether a balance pays for a request of n credits now. subscribed says that one of its lots runs.
func (k PlanKind) Covers(available Credits, subscribed bool, n Credits) bool {
	return (subscribed || !k.NeedsPeriod()) && (available >= n || !k.Charges())
}

// Prepaid reports whether an order buys a fixed amount in advance. If not, each request buys the credits that it lacks.
func (k PlanKind) Prepaid() bool { return !k.payAsYouGo }

// AddsUp reports whether several orders together cover a request that one order does not.
func (k PlanKind) AddsUp() bool { return k.Charges() && k.Prepaid() }

// Reorders reports whether another order can be paid for when the balance runs out. A free plan is ordered again only on request.
func (p *Plan) Reorders() bool {
	k := p.Kind()
	return !k.Prepaid() || !p.Price.IsFree() && (!k.Charges() || p.Credits.Amount > 0)
}

// LimitsOrders reports whether orders of an account can keep it from ordering the plan again. It can then have one open order.
func (p *Plan) LimitsOrders() bool { return p.IsTrial }

// MayOrder returns nil when an account may order the plan now, else an error with [CodeTrialUsed]. orders counts its orders, and
// subscribed says that one of its lots runs.
func (p *Plan) MayOrder(orders int64, _ bool) error {
	if p.IsTrial && orders > 0 {
		return NewError(CodeTrialUsed)
	}
	return nil
}

// Expires reports whether the credits or the period of an order end.
func (p *Plan) Expires() bool { return !p.LotEnd(time.Time{}).IsZero() }

// PayTo returns the first receiver, else the owner.
func (p *Plan) PayTo() Address {
	if len(p.Price.Receivers) > 0 {
		return p.Price.Receivers[0]
	}
	return p.Owner
}

// Effective returns the credits that a request for this many burns: 0 stays 0, a time plan makes it 0, otherwise the
// bounds of the plan apply (wire contract, section 16). A fixed plan has equal bounds.
func (p *Plan) Effective(requested Credits) Credits {
	if requested == 0 || !p.Kind().Charges() {
		return 0
	}
	return min(max(requested, p.Credits.MinAmount), p.Credits.MaxAmount)
}

// LotEnd returns when a lot bought at t ends; zero when it never does.
func (p *Plan) LotEnd(t time.Time) time.Time { return p.Kind().LotEnd(t, p.Credits.DurationSecs) }

// LotEnd returns when a lot bought at t ends in a plan with this duration; zero when it never does.
func (k PlanKind) LotEnd(t time.Time, secs Units) time.Time { return LotEnd(t, secs) }

// LotEnd returns t plus this many seconds; zero for 0 seconds. An end after the year 9999 saturates at its last second.
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
