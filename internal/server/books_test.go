package server_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// The service written down in the simplest way: what plans, subscribers, access tokens and delegations are worth after a
// sequence of calls, one after the other. Reasons are those of the wire; "" means that the call succeeds.

type modelPlan struct {
	grants, min, max toll.Credits
	life             time.Duration // 0: credits never end
	isTime, isTrial  bool
	payAsYouGo       bool
	cents            int64 // price of an order, or of a credit of a pay-as-you-go plan
	maxOrders        int   // 0: no limit
	orders           int
	unlisted         bool
	accounts         []*modelAccount // by subscriber
}

func (p *modelPlan) effective(n toll.Credits) toll.Credits {
	if p.isTime || n == 0 {
		return 0
	}
	return min(max(n, p.min), p.max)
}

// tooLow reports whether less is asked for than a request burns.
func (p *modelPlan) tooLow(asked *toll.Credits) bool {
	return !p.isTime && asked != nil && *asked > 0 && *asked < p.min
}

type modelLot struct {
	granted, left toll.Credits
	ends          time.Time // zero: never
}

func (l *modelLot) ended(now time.Time) bool { return !l.ends.IsZero() && !now.Before(l.ends) }

type modelAccount struct {
	lots                    []*modelLot // in the order in which they burn
	orders                  int
	minted, burned, expired toll.Credits
	requests                map[string]*modelUse
}

func (a *modelAccount) balance() (n toll.Credits) {
	for _, l := range a.lots {
		n += l.left
	}
	return n
}

func (a *modelAccount) held(t *modelToken) (n toll.Credits, holds int) {
	for _, r := range a.requests {
		if r.state == "held" && (t == nil || r.token == t) {
			n += r.held
			holds++
		}
	}
	return n, holds
}

func (a *modelAccount) available() toll.Credits {
	held, _ := a.held(nil)
	return a.balance() - held
}

func (a *modelAccount) subscribed(now time.Time) bool {
	return slices.ContainsFunc(a.lots, func(l *modelLot) bool { return !l.ended(now) })
}

// tick does what time does, one hold end after the other: holds lapse, and lots end, but for what holds still need.
func (a *modelAccount) tick(now time.Time) {
	for {
		at := now.Add(1)
		for _, r := range a.requests {
			if r.state == "held" && r.until.Before(at) {
				at = r.until
			}
		}
		if at.After(now) {
			break
		}
		a.end(at)
		balance, ended := a.balance(), map[*modelToken]bool{}
		for _, r := range a.requests {
			if r.state == "held" && r.until.Equal(at) {
				r.state = "lapsed"
				ended[r.token] = true
			}
		}
		for t := range ended {
			a.capClaims(t, balance)
		}
	}
	a.end(now)
}

// capClaims gives up the oldest lapsed holds of a token until the others are what it could hold at a time.
func (a *modelAccount) capClaims(t *modelToken, most toll.Credits) {
	if t.limit >= 0 {
		most = min(most, t.limit-t.redeemed)
	}
	var ids []string
	sum := toll.Credits(0)
	for id, r := range a.requests {
		if r.token == t && r.state == "lapsed" {
			ids = append(ids, id)
			sum += r.held
		}
	}
	slices.SortFunc(ids, func(x, y string) int {
		return cmp.Or(a.requests[x].until.Compare(a.requests[y].until), cmp.Compare(x, y))
	})
	for ; sum > most; ids = ids[1:] {
		a.requests[ids[0]].state = "given up"
		sum -= a.requests[ids[0]].held
	}
}

func (a *modelAccount) end(now time.Time) {
	for _, l := range a.lots {
		if l.ended(now) {
			lost := min(l.left, a.available())
			l.left -= lost
			a.expired += lost
		}
	}
}

// mint adds a lot. Ended lots that holds kept lose what the new one can stand in for.
func (a *modelAccount) mint(n toll.Credits, ends, now time.Time) {
	l := &modelLot{granted: n, left: n, ends: ends}
	i := len(a.lots)
	for i > 0 && laterThan(a.lots[i-1].ends, ends) {
		i--
	}
	a.lots = slices.Insert(a.lots, i, l)
	a.minted += n
	a.end(now)
}

func laterThan(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && !b.IsZero()
	}
	return a.After(b)
}

func (a *modelAccount) burn(n, underHold toll.Credits, now time.Time) {
	a.burned += n
	for _, l := range a.lots {
		take := min(l.left, n)
		if l.ended(now) {
			take = min(take, underHold)
		}
		l.left -= take
		n -= take
		underHold -= min(take, underHold)
	}
	if n != 0 {
		panic("the model burned what is not there")
	}
}

// modelToken is an access token with its permission.
type modelToken struct {
	plan, subscriber int
	limit            toll.Credits // -1: none
	orderLimit       int          // -1: none
	orders           int
	redeemed         toll.Credits
	expires          time.Time
	revoked          bool
	delegation       *modelDelegation // nil: none

	text string
	hash toll.Hash
}

func (t *modelToken) GoString() string {
	return fmt.Sprintf("token of plan %d, subscriber %d, limit %d, orders %d", t.plan, t.subscriber, t.limit, t.orderLimit)
}

type modelUse struct {
	state  string // held, settled, released, lapsed or given up
	token  *modelToken
	held   toll.Credits
	until  time.Time
	asked  string
	orders bool // an order was made for it
	answer []byte
}

type modelDelegation struct {
	subscriber   int
	id           string
	limit, spent int64 // cents
	orders, most int   // most 0: no limit
	plan         int   // -1: any
	expires      time.Time
	revoked      bool
}

func (d *modelDelegation) GoString() string {
	return fmt.Sprintf("delegation of subscriber %d, %d cents, plan %d, orders %d", d.subscriber, d.limit, d.plan, d.most)
}

// refusal is why the delegation does not pay this many cents at once, for orders orders.
func (d *modelDelegation) refusal(now time.Time, plan int, cents int64, orders int) toll.Code {
	switch {
	case d.revoked:
		return toll.CodeDelegationRevoked
	case !now.Before(d.expires):
		return toll.CodeDelegationExpired
	case d.plan >= 0 && d.plan != plan:
		return toll.CodeDelegationPlanMismatch
	case d.spent == d.limit, d.most > 0 && d.orders >= d.most:
		return toll.CodeDelegationExhausted
	case cents > d.limit-d.spent:
		return toll.CodeDelegationInsufficient
	case cents > 0 && int64(orders) > (d.limit-d.spent)/cents:
		return toll.CodeDelegationInsufficient
	case d.most > 0 && orders > d.most-d.orders:
		return toll.CodeDelegationExhausted
	}
	return ""
}

// status is the word of the record.
func (d *modelDelegation) status(now time.Time) string {
	switch {
	case d.revoked:
		return "Revoked"
	case !now.Before(d.expires):
		return "Expired"
	case d.spent == d.limit, d.most > 0 && d.orders >= d.most:
		return "Exhausted"
	}
	return "Active"
}

type modelService struct {
	now         time.Time
	plans       []*modelPlan
	tokens      []*modelToken
	delegations []*modelDelegation
}

func (m *modelService) account(t *modelToken) (*modelPlan, *modelAccount) {
	p := m.plans[t.plan]
	return p, p.accounts[t.subscriber]
}

func (m *modelService) advance(d time.Duration) {
	m.now = m.now.Add(d)
	for _, p := range m.plans {
		for _, a := range p.accounts {
			a.tick(m.now)
		}
	}
}

func (m *modelService) lotEnd(p *modelPlan) time.Time {
	if p.life == 0 {
		return time.Time{}
	}
	return m.now.Add(p.life)
}

// place takes a place of the plan, or says why there is none.
func (p *modelPlan) place() toll.Code {
	switch {
	case p.unlisted:
		return toll.CodePlanUnlisted
	case p.maxOrders > 0 && p.orders >= p.maxOrders:
		return toll.CodePlanSoldOut
	}
	p.orders++
	return ""
}

// order is a call of the order route.
func (m *modelService) order(plan, subscriber int, d *modelDelegation) toll.Code {
	p := m.plans[plan]
	a := p.accounts[subscriber]
	if p.unlisted {
		return toll.CodePlanUnlisted
	}
	if p.isTrial && a.orders > 0 {
		return toll.CodeTrialUsed
	}
	if p.payAsYouGo {
		if code := p.place(); code != "" {
			return code
		}
		a.orders++
		a.mint(0, time.Time{}, m.now)
		return ""
	}
	return m.buy(plan, subscriber, p.grants, p.cents, d)
}

// buy makes one order that succeeds or changes nothing.
func (m *modelService) buy(plan, subscriber int, grants toll.Credits, cents int64, d *modelDelegation) toll.Code {
	p := m.plans[plan]
	if code := p.place(); code != "" {
		return code
	}
	if d != nil && cents > 0 {
		if code := d.refusal(m.now, plan, cents, 1); code != "" {
			p.orders--
			return code
		}
		d.spent += cents
		d.orders++
	}
	a := p.accounts[subscriber]
	a.orders++
	a.mint(grants, m.lotEnd(p), m.now)
	return ""
}

// tokenRefusal is what is wrong with an access token by itself.
func (m *modelService) tokenRefusal(t *modelToken) string {
	switch {
	case t.revoked:
		return x402.Default.ReasonRevoked()
	case !m.now.Before(t.expires):
		return x402.Default.ReasonExpired()
	}
	return ""
}

func (t *modelToken) allows(a *modelAccount, n, own toll.Credits) bool {
	held, _ := a.held(t)
	return t.limit < 0 || t.redeemed+held-own+n <= t.limit
}

// lacks reports whether a request of n credits needs an order.
func (m *modelService) lacks(p *modelPlan, a *modelAccount, n toll.Credits) bool {
	if p.isTime {
		return !a.subscribed(m.now)
	}
	return len(a.lots) == 0 || n > a.available()
}

func shortReason(p *modelPlan) string {
	if p.isTime {
		return x402.ReasonPlanExpired
	}
	return x402.ReasonInsufficientFunds
}

// fill makes what a request of n credits lacks: the first order of a free plan, or orders through the delegation.
func (m *modelService) fill(t *modelToken, n toll.Credits, r *modelUse) string {
	p, a := m.account(t)
	if !m.lacks(p, a, n) {
		return ""
	}
	if p.cents == 0 {
		if a.orders > 0 {
			return shortReason(p)
		}
		if code := m.buy(t.plan, t.subscriber, p.grants, 0, nil); code != "" {
			return orderReason(code)
		}
	} else if t.delegation != nil {
		for m.lacks(p, a, n) {
			if reason := m.topUp(t, n); reason != "" {
				return reason
			}
			r.orders = true
		}
	}
	if m.lacks(p, a, n) {
		return shortReason(p)
	}
	return ""
}

// topUp is one order through the delegation of an access token.
func (m *modelService) topUp(t *modelToken, n toll.Credits) string {
	p, a := m.account(t)
	grants, cents := p.grants, p.cents
	if p.payAsYouGo {
		grants = n - a.available()
		cents *= int64(grants)
	}
	if p.payAsYouGo && grants == 0 {
		if code := p.place(); code != "" {
			return orderReason(code)
		}
		a.orders++
		a.mint(0, time.Time{}, m.now)
		return ""
	}
	// A delegation that is not usable at all is told before the limits, its budget after them. An order of a pay-as-you-go
	// plan, which is for its request alone, finds out with the budget.
	if code := t.delegation.refusal(m.now, t.plan, 0, 0); code != "" && code != toll.CodeDelegationExhausted && !p.payAsYouGo {
		return orderReason(code)
	}
	if p.isTrial && a.orders > 0 {
		return orderReason(toll.CodeTrialUsed)
	}
	// A held request may come here with an access token that has ended since.
	if reason := m.tokenRefusal(t); reason != "" {
		return reason
	}
	if t.orderLimit >= 0 && t.orders >= t.orderLimit {
		return x402.ReasonOrderLimit
	}
	if code := m.buy(t.plan, t.subscriber, grants, cents, t.delegation); code != "" {
		return orderReason(code)
	}
	t.orders++
	return ""
}

// canTopUp is fill without buying: what verify without a hold says of a paid plan.
func (m *modelService) canTopUp(t *modelToken, n toll.Credits) string {
	p, a := m.account(t)
	if !m.lacks(p, a, n) {
		return ""
	}
	if p.cents == 0 || t.delegation == nil {
		return m.fill(t, n, &modelUse{})
	}
	cents, orders := p.cents, 1
	missing := n - a.available()
	switch {
	case p.payAsYouGo:
		cents *= int64(missing)
	case p.isTime:
	case missing <= 0: // an account that never ordered lacks an order even for nothing
	default:
		orders = int((missing-1)/p.grants) + 1
	}
	if code := t.delegation.refusal(m.now, t.plan, 0, 0); code != "" && code != toll.CodeDelegationExhausted {
		return orderReason(code)
	}
	if p.unlisted {
		return orderReason(toll.CodePlanUnlisted)
	}
	if p.isTrial && (a.orders > 0 || orders > 1) {
		return orderReason(toll.CodeTrialUsed)
	}
	if t.orderLimit >= 0 && orders > t.orderLimit-t.orders {
		return x402.ReasonOrderLimit
	}
	if p.maxOrders > 0 && orders > p.maxOrders-p.orders {
		return orderReason(toll.CodePlanSoldOut)
	}
	if code := t.delegation.refusal(m.now, t.plan, cents, orders); code != "" {
		return orderReason(code)
	}
	return ""
}

func orderReason(code toll.Code) string {
	switch code {
	case toll.CodePlanUnlisted:
		return x402.ReasonPlanUnlisted
	case toll.CodeTrialUsed:
		return x402.ReasonTrialUsed
	case toll.CodePlanSoldOut:
		return x402.ReasonInsufficientFunds
	}
	return x402.ReasonOf(x402.Default, toll.NewError(code), x402.ActVerify)
}

// verify returns the verdict; a held request is in the books afterwards. For nothing, nothing is ordered.
func (m *modelService) verify(t *modelToken, id string, asked *toll.Credits, hold bool, life time.Duration) (reason string, r *modelUse) {
	p, a := m.account(t)
	if !m.now.Before(t.expires) {
		return x402.Default.ReasonExpired(), nil
	}
	n, nothing := p.effective(p.max), false
	if asked != nil {
		n, nothing = p.effective(*asked), *asked == 0
	}
	if p.tooLow(asked) {
		if t.revoked {
			return x402.Default.ReasonRevoked(), nil
		}
		return x402.ReasonAmountOutOfRange, nil
	}
	if r := a.requests[id]; r != nil {
		if r.state == "held" {
			return x402.ReasonInFlight, nil
		}
		return x402.ReasonDuplicate, nil
	}
	if reason := m.tokenRefusal(t); reason != "" {
		return reason, nil
	}
	if !t.allows(a, n, 0) {
		return x402.ReasonRedemptionLimit, nil
	}
	if !hold && nothing && p.cents == 0 && a.orders == 0 && m.lacks(p, a, n) {
		if p.unlisted {
			return orderReason(toll.CodePlanUnlisted), nil
		}
		return "", nil
	}
	if !hold {
		return m.canTopUp(t, n), nil
	}
	r = &modelUse{state: "held", token: t, held: n, until: m.now.Add(life)}
	if reason := m.fill(t, n, r); reason != "" {
		return reason, nil
	}
	_ = p
	return "", r
}

// settle returns the outcome: a reason, "replay", or "" after a burn of n.
func (m *modelService) settle(t *modelToken, id string, asked *toll.Credits) (n toll.Credits, outcome string) {
	p, a := m.account(t)
	r := a.requests[id]
	if r == nil {
		if reason := m.tokenRefusal(t); reason != "" {
			if !m.now.Before(t.expires) {
				reason = x402.Default.ReasonExpired()
			}
			return 0, reason
		}
		if p.tooLow(asked) {
			return 0, x402.ReasonAmountOutOfRange
		}
		n = p.effective(p.max)
		if asked != nil {
			n = p.effective(*asked)
		}
		if !t.allows(a, n, 0) {
			return 0, x402.ReasonRedemptionLimit
		}
		r = &modelUse{token: t}
		if reason := m.fill(t, n, r); reason != "" {
			return 0, reason
		}
		a.requests[id] = r
		m.finish(t, a, r, asked, n, 0)
		return n, ""
	}
	switch {
	case r.state == "settled" && r.token == t && r.asked == askedText(asked):
		return 0, "replay"
	case r.state == "settled", r.state == "released", r.token != t:
		return 0, x402.ReasonConflict
	case r.state != "given up" && p.tooLow(asked):
		return 0, x402.ReasonAmountOutOfRange
	}
	n = r.held
	if asked != nil {
		n = p.effective(*asked)
	}
	own := r.held
	switch {
	case t.revoked && (r.state != "held" || n > r.held): // a revoked permission pays what open holds hold
		return 0, x402.Default.ReasonRevoked()
	case r.state == "given up", r.state == "lapsed" && m.now.After(t.expires.Add(time.Hour)):
		return 0, x402.ReasonHoldExpired
	case r.state == "lapsed" && n > r.held && !m.now.Before(t.expires): // an ended one pays what it held
		return 0, x402.Default.ReasonExpired()
	case r.state == "lapsed":
		own = 0
	}
	if !t.allows(a, n, own) {
		return 0, x402.ReasonRedemptionLimit
	}
	if extra := n - own; extra > 0 && extra > a.available() {
		if p.cents > 0 && t.delegation == nil {
			return 0, x402.ReasonInsufficientFunds
		}
		if reason := m.fill(t, extra, r); reason != "" {
			return 0, reason
		}
	}
	m.finish(t, a, r, asked, n, own)
	return n, ""
}

func (m *modelService) finish(t *modelToken, a *modelAccount, r *modelUse, asked *toll.Credits, n, own toll.Credits) {
	r.state, r.asked = "settled", askedText(asked)
	a.burn(n, own, m.now)
	t.redeemed += n
	a.end(m.now)
}

func askedText(n *toll.Credits) string {
	if n == nil {
		return "none"
	}
	return n.String()
}

// release returns the word of the answer, or a code.
func (m *modelService) release(a *modelAccount, id string) (state string, n toll.Credits, code toll.Code) {
	r := a.requests[id]
	switch {
	case r == nil:
		return "", 0, toll.CodeSettlementNotFound
	case r.state == "settled":
		return "", 0, toll.CodeReleaseOfSettled
	case r.state == "held":
		r.state = "released"
		a.end(m.now)
	case r.state == "given up":
		return "lapsed", r.held, ""
	}
	return r.state, r.held, ""
}
