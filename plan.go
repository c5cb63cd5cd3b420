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

// IsTime reports whether the plan sells time: requests burn nothing while a period runs.
func (p *Plan) IsTime() bool { return p.AccessLimit == LimitTime }

// IsPayAsYouGo reports whether credits are bought request by request.
func (p *Plan) IsPayAsYouGo() bool { return !p.Price.TemplateAddress.IsZero() }

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
	if requested == 0 || p.IsTime() {
		return 0
	}
	return min(max(requested, p.Credits.MinAmount), p.Credits.MaxAmount)
}

// LotEnd returns when a lot bought at t ends; zero when it never does. An end after the year 9999 saturates at its last second.
func (p *Plan) LotEnd(t time.Time) time.Time { return LotEnd(t, p.Credits.DurationSecs) }

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
