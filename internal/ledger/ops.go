package ledger

import (
	"math"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

func refuse(kind Refused) error { return &Refusal{Kind: kind} }

// orderKnown refuses an operation on a new request for which an order may have been made that nobody looked up. Who names a
// request may have come with it before; an id that was issued for this call is new.
func (p *permissionRow) orderKnown(tx *string, issued bool, keys []string, amount toll.Credits) error {
	if tx != nil || p.DelegationID == "" || issued && len(keys) == 0 {
		return nil
	}
	return &Refusal{Kind: OrderUnknown, Uncovered: amount, DelegationID: p.DelegationID, APIKeyID: p.APIKeyID}
}

func noted(tx *string) string {
	if tx == nil {
		return ""
	}
	return *tx
}

type mint struct{ MintOp }

func (o mint) accountID() AccountID { return NewAccountID(o.Plan, o.Subscriber) }

func (o mint) needs(n *needs) {
	n.plan, n.subscriber = o.Plan, o.Subscriber
	n.refs = append(n.refs, o.Ref)
	n.permission(o.Permission)
}

func (o mint) apply(s *state, _ bool) (any, error) {
	if known := s.refs[o.Ref]; known != nil {
		if known.granted != o.Amount {
			return nil, refuse(Conflict)
		}
		return Minted{Balance: s.account.Balance, Replayed: true, seq: known.id}, nil
	}
	a := &s.account
	if o.FirstOnly && a.Orders > 0 {
		return nil, refuse(NotFirst)
	}
	if o.Amount > toll.MaxCredits-a.Balance || o.Amount > toll.MaxCredits-a.Minted-a.Returned {
		return nil, refuse(Overflow)
	}
	e := s.enter(KindMint, o.Amount, o.Ref)
	l := &lotRow{id: e.Seq, ref: o.Ref, granted: o.Amount, remaining: o.Amount, endsAt: micros(o.EndsAt, never), changed: true}
	s.refs[o.Ref] = l
	s.addLot(l)
	a.periodEnd = max(a.periodEnd, l.endsAt)
	if s.ends != nil {
		s.ends[l.id] = l.endsAt
	}
	if o.Order {
		a.Orders++
	}
	s.countOrder(o.Permission, 1)
	a.nextLotEnd = min(a.nextLotEnd, l.endsAt)
	err := s.endLots() // ended lots that holds kept lose what the new one can stand in for
	return Minted{Transaction: e.Commitment, Balance: a.Balance, seq: e.Seq}, err
}

type hold struct {
	HoldOp
	life   time.Duration // how long the caller meant it to live
	issued bool          // the id was made for this call
}

// until is the end of a hold that begins at now, the time of the account: a slow clock or a wait for the writer must not shorten it.
func (o *hold) until(now int64) time.Time {
	return micro(max(o.Until.UnixMicro(), now+o.life.Microseconds()))
}

func (o *hold) accountID() AccountID { return NewAccountID(o.Plan, o.Subscriber) }

func (o *hold) needs(n *needs) {
	n.request(o.RequestID, o.issued, o.Keys, o.Permission)
}

func (o *hold) apply(s *state, retried bool) (any, error) {
	r, id, ok := s.find(o.RequestID, o.issued, o.Keys)
	a := &s.account
	switch {
	case !ok:
		return nil, refuse(Conflict)
	case r == nil:
	case retried && r.ID == o.RequestID && o.sameAs(r):
		return Held{RequestID: r.ID, Amount: r.Held, Until: r.HoldEndsAt, Account: *a}, nil
	case s.byIdentifier(r, o.Keys) && o.differs(r):
		return nil, refuse(IdentifierConflict)
	case r.State == StateHeld:
		return nil, refuse(InFlight)
	default:
		return nil, refuse(Duplicate)
	}
	p, err := s.usable(o.Permission)
	if err != nil {
		return nil, err
	}
	if !p.allows(o.Amount, 0) {
		return nil, refuse(RedemptionLimit)
	}
	if err := p.orderKnown(o.OrderTx, o.issued, o.Keys, o.Amount); err != nil {
		return nil, err
	}
	if err := a.covers(o.Amount, o.Kind, micro(s.now), &p.Permission); err != nil {
		return nil, err
	}
	if p.OpenHolds >= MaxHoldsPerPermission || a.OpenHolds >= MaxHoldsPerAccount {
		return nil, refuse(TooManyHolds)
	}
	until := o.until(s.now)
	a.Held += o.Amount
	a.OpenHolds++
	a.nextHoldEnd = min(a.nextHoldEnd, until.UnixMicro())
	s.accountChanged = true
	p.Held += o.Amount
	p.OpenHolds++
	p.changed = true
	s.file(&requestRow{changed: true, Request: Request{
		Account: a.ID, ID: id, State: StateHeld, Permission: o.Permission, Agent: o.Agent, Resource: o.Resource,
		Held: o.Amount, HoldEndsAt: until, CreatedAt: micro(s.now), OrderTx: noted(o.OrderTx),
	}}, o.Keys)
	return Held{RequestID: id, Amount: o.Amount, Until: until, Account: *a}, nil
}

// sameAs reports whether the stored hold is the one that an earlier attempt of this very call wrote.
func (o *hold) sameAs(r *requestRow) bool {
	return r.State == StateHeld && r.Permission == o.Permission && r.Held == o.Amount && r.Resource == o.Resource &&
		r.HoldEndsAt.Equal(o.until(r.CreatedAt.UnixMicro()))
}

// differs reports whether the stored request is for something else than this hold.
func (o *hold) differs(r *requestRow) bool {
	amount := r.Held
	if r.HoldEndsAt.IsZero() {
		amount = r.Amount // settled without a hold
	}
	return r.Permission != o.Permission || r.Agent != o.Agent || r.Resource != o.Resource || amount != o.Amount
}

// usable returns the permission when it may be used now.
func (s *state) usable(h toll.Hash) (*permissionRow, error) {
	p := s.perms[h]
	if p == nil {
		return nil, refuse(PermissionUnknown)
	}
	if err := p.Usable(micro(s.now)); err != nil {
		return nil, err
	}
	return p, nil
}

type settle struct {
	SettleOp
	issued bool // the id was made for this call
}

func (o *settle) accountID() AccountID { return NewAccountID(o.Plan, o.Subscriber) }

func (o *settle) needs(n *needs) {
	n.request(o.RequestID, o.issued, o.Keys, o.Permission)
}

func (o *settle) apply(s *state, _ bool) (any, error) {
	r, id, ok := s.find(o.RequestID, o.issued, o.Keys)
	if !ok {
		return nil, refuse(Conflict)
	}
	if r == nil {
		return o.notHeld(s, id)
	}
	switch r.State {
	case StateSettled:
		if r.Removed || r.Content != o.Content {
			return nil, o.conflict(s, r)
		}
		// A server that settles before it works would work for every repeat. An id that was issued for this very call says
		// that an earlier attempt of it was committed.
		if o.HoldBounds && r.HoldEndsAt.IsZero() && !(o.issued && r.ID == o.RequestID) {
			return nil, &Refusal{Kind: Replay, Transaction: r.Transaction}
		}
		return Settled{Receipt: r.Receipt(), Answer: r.Answer, Replayed: true}, nil
	case StateHeld, StateLapsed, StateGivenUp:
		if r.Permission != o.Permission || r.Agent != o.Agent || r.Resource != o.Resource {
			return nil, o.conflict(s, r)
		}
		return o.held(s, r)
	}
	return nil, o.conflict(s, r)
}

func (o *settle) conflict(s *state, r *requestRow) error {
	if o.issued && s.byIdentifier(r, o.Keys) {
		return refuse(IdentifierConflict)
	}
	return refuse(Conflict)
}

// byIdentifier reports whether a payment identifier among the keys names the request.
func (s *state) byIdentifier(r *requestRow, keys []string) bool {
	for _, k := range keys {
		if strings.HasPrefix(k, identifierKey) && s.keys[k] == r.ID {
			return true
		}
	}
	return false
}

const identifierKey = "p:"

// notHeld settles a request without a hold.
func (o *settle) notHeld(s *state, id string) (any, error) {
	p, err := s.usable(o.Permission)
	if err != nil {
		return nil, err
	}
	if !p.allows(o.Amount, 0) {
		return nil, refuse(RedemptionLimit)
	}
	if err := p.orderKnown(o.OrderTx, o.issued, o.Keys, o.Amount); err != nil {
		return nil, err
	}
	if err := s.account.covers(o.Amount, o.Kind, micro(s.now), &p.Permission); err != nil {
		return nil, err
	}
	if err := s.canBurn(o.Amount, 0); err != nil {
		return nil, err
	}
	r := &requestRow{Request: Request{
		Account: s.account.ID, ID: id, Permission: o.Permission, Agent: o.Agent, Resource: o.Resource, CreatedAt: micro(s.now),
		OrderTx: noted(o.OrderTx),
	}}
	s.file(r, o.Keys)
	return o.finish(s, r, p, o.Amount, 0)
}

// held settles a request whose hold is open or has lapsed. Expiry and revocation of the access token do not stop an open hold, but a
// revoked one pays no more than it holds. A claim is honoured while its credits are there, until it is given up, the token is revoked, or
// an hour after the end of the token; after that end it pays no more than it held.
func (o *settle) held(s *state, r *requestRow) (any, error) {
	p := s.perms[r.Permission]
	if p == nil {
		return nil, refuse(PermissionUnknown)
	}
	amount := o.Amount
	if o.UseHeld {
		amount = r.Held
	}
	if o.HoldBounds && amount > r.Held {
		return nil, &Refusal{Kind: ExceedsHold, Needed: amount, Available: r.Held}
	}
	own := r.Held
	switch claim := r.State != StateHeld; {
	case !p.RevokedAt.IsZero() && (claim || amount > own):
		return nil, refuse(PermissionRevoked)
	case !claim:
	case r.State == StateGivenUp || s.now > p.ExpiresAt.Add(lateSettle).UnixMicro():
		return nil, refuse(HoldExpired)
	case amount > own && s.now >= p.ExpiresAt.UnixMicro():
		return nil, refuse(PermissionExpired)
	default:
		own = 0
	}
	if !p.allows(amount, own) {
		return nil, refuse(RedemptionLimit)
	}
	if extra := amount - own; extra > 0 && extra > s.account.Available() {
		return nil, s.account.insufficient(amount, extra, &p.Permission)
	}
	if err := s.canBurn(amount, own); err != nil {
		return nil, err
	}
	if tx := noted(o.OrderTx); tx != "" {
		r.OrderTx = tx
	}
	if r.State == StateHeld {
		s.endHold(r, StateSettled)
	}
	s.file(r, o.Keys) // keys that the hold did not have name this request from now on
	return o.finish(s, r, p, amount, own)
}

func (o *settle) finish(s *state, r *requestRow, p *permissionRow, amount, underHold toll.Credits) (any, error) {
	s.burn(amount, underHold)
	e := s.enter(KindBurn, amount, r.ID)
	p.Redeemed += amount
	r.previousBurn, p.lastBurn = p.lastBurn, e.Seq
	p.changed = true
	if amount > 0 && p.RedemptionLimit != nil && p.Redeemed >= *p.RedemptionLimit {
		s.entries[len(s.entries)-1].usedUp = true
	}
	// What the hold kept of ended lots and did not burn ends now.
	if err := s.endLots(); err != nil {
		return nil, err
	}
	r.State, r.Content, r.Amount, r.EndedAt, r.Labels = StateSettled, o.Content, amount, micro(s.now), o.Labels
	r.EntrySeq, r.Transaction, r.Balance = e.Seq, e.Commitment, e.BalanceAfter
	rec := r.Receipt()
	rec.Ended, rec.OrderTx = e.BalanceAfter-s.account.Balance, r.OrderTx
	r.Answer = o.Render(rec)
	r.changed = true
	return Settled{Receipt: rec, Answer: r.Answer, Held: !r.HoldEndsAt.IsZero()}, nil
}

type release struct {
	account   AccountID
	requestID string
}

func (o release) accountID() AccountID { return o.account }

func (o release) needs(n *needs) {
	n.requests = append(n.requests, o.requestID)
	n.releases = append(n.releases, o.requestID)
}

func (o release) apply(s *state, _ bool) (any, error) {
	r := s.requests[o.requestID]
	if r == nil {
		return nil, refuse(UnknownRequest)
	}
	switch r.State {
	case StateSettled:
		return nil, refuse(SettledAlready)
	case StateHeld:
		s.endHold(r, StateReleased)
		if err := s.endLots(); err != nil {
			return nil, err
		}
	}
	return Released{RequestID: r.ID, Status: r.State, Amount: r.Held}, nil
}

// renew moves the end of an open hold; it moves no credits.
type renew struct {
	release
	life time.Duration
}

func (o renew) apply(s *state, _ bool) (any, error) {
	r := s.requests[o.requestID]
	if r == nil {
		return nil, refuse(UnknownRequest)
	}
	if r.State != StateHeld {
		return nil, refuse(HoldOver)
	}
	until := min(s.now+o.life.Microseconds(), r.CreatedAt.Add(MaxHoldLife).UnixMicro())
	if until > r.HoldEndsAt.UnixMicro() {
		r.HoldEndsAt, r.changed, s.accountChanged = micro(until), true, true
	}
	return Held{RequestID: r.ID, Amount: r.Held, Until: r.HoldEndsAt, Account: s.account}, nil
}

type revoke struct {
	account    AccountID
	plan       toll.PlanID // "": the account is made already
	subscriber toll.Address
	permission toll.Hash
	at         time.Time // whole microseconds
}

func (o revoke) accountID() AccountID { return o.account }

// needs makes the account of a subscriber who never ordered: its row is the lock of its permissions.
func (o revoke) needs(n *needs) {
	n.plan, n.subscriber = o.plan, o.subscriber
	n.permission(o.permission)
}

func (o revoke) apply(s *state, retried bool) (any, error) {
	p := s.perms[o.permission]
	if p == nil {
		return nil, refuse(PermissionUnknown)
	}
	if !p.RevokedAt.IsZero() {
		if retried && p.RevokedAt.Equal(o.at) {
			return revoked{Permission: p.Permission, replayed: true}, nil
		}
		return nil, refuse(PermissionRevoked)
	}
	p.RevokedAt = o.at
	p.changed, p.cold = true, true
	return revoked{Permission: p.Permission}, nil
}

// revoked is the answer to a revocation.
type revoked struct {
	Permission
	replayed bool // an earlier attempt was committed
}

// lotMove names the lot of an order whose payment was reversed, or paid after all.
type lotMove struct {
	account    AccountID
	ref        string
	permission toll.Hash // on which the order counts; zero for none
}

func (o lotMove) accountID() AccountID { return o.account }

func (o lotMove) needs(n *needs) {
	n.refs, n.ends = append(n.refs, o.ref), true
	n.permission(o.permission)
}

// takeBack takes the lot of an order back, as its payment was reversed. What open holds need follows when they end.
type takeBack struct{ lotMove }

func (o takeBack) apply(s *state, _ bool) (any, error) {
	l := s.refs[o.ref]
	if l == nil {
		return nil, refuse(NotMinted)
	}
	if l.oldEnd != 0 {
		return s.moved(l, 0), nil
	}
	s.dropLot(l)
	l.oldEnd, l.endsAt, l.changed, l.cold = l.endsAt, min(l.endsAt, s.now), true, true
	s.movePeriod(l)
	before := s.account.TakenBack
	if l.remaining > 0 {
		s.addLot(l)
		s.account.nextLotEnd = min(s.account.nextLotEnd, l.endsAt)
	}
	s.countOrder(o.permission, -1)
	if s.account.Orders > 0 {
		s.account.Orders--
	}
	if err := s.endLots(); err != nil {
		return nil, err
	}
	return s.moved(l, s.account.TakenBack-before), nil
}

// giveBack undoes a takeBack: what was taken back returns, until the end that the lot had.
type giveBack struct{ lotMove }

func (o giveBack) apply(s *state, _ bool) (any, error) {
	l := s.refs[o.ref]
	if l == nil {
		return nil, refuse(NotMinted)
	}
	if l.oldEnd == 0 {
		return s.moved(l, 0), nil
	}
	back := l.taken
	if back > math.MaxInt64-s.account.Balance || back > toll.MaxCredits-s.account.Minted-s.account.Returned {
		return nil, refuse(Overflow)
	}
	s.dropLot(l)
	l.endsAt, l.oldEnd, l.taken, l.changed, l.cold = l.oldEnd, 0, 0, true, true
	l.remaining += back
	s.movePeriod(l)
	if back > 0 {
		s.enter(KindReturn, back, l.ref)
	}
	if l.remaining > 0 {
		s.addLot(l)
		s.account.nextLotEnd = min(s.account.nextLotEnd, l.endsAt)
	}
	s.countOrder(o.permission, 1)
	s.account.Orders++
	answer := s.moved(l, back)
	return answer, s.endLots()
}

// backRef begins the ref of a lot that holds the credits which money took out of use while their order stays paid. The rest of the ref is
// that of the lot that they came from. Such a lot has ended, so what open holds need of it is taken when they end, as of every ended lot.
// Its number is that of the other lot, negative, granted is what it can ever hold, and oldEnd is the end of the other lot.
const backRef = "back:"

// takeBackTo sets how many credits of an order are out of use.
type takeBackTo struct {
	account AccountID
	ref     string
	total   toll.Credits
}

func (o takeBackTo) accountID() AccountID { return o.account }

func (o takeBackTo) needs(n *needs) {
	n.refs, n.ends = append(n.refs, o.ref, backRef+o.ref), true
}

func (o takeBackTo) apply(s *state, _ bool) (any, error) {
	l, b := s.refs[o.ref], s.refs[backRef+o.ref]
	if l == nil || l.oldEnd != 0 {
		return nil, refuse(NotMinted)
	}
	total := min(max(o.total, 0), l.granted)
	whole := total > 0 && total == l.granted
	if b == nil {
		b = &lotRow{id: -l.id, ref: backRef + l.ref, granted: l.granted, endsAt: min(l.endsAt, s.now), oldEnd: l.endsAt}
	}
	// What was burned out of b is out of use no more: it was used.
	out, taken := b.taken+b.remaining, b.taken
	more := min(max(total-out, 0), l.remaining)
	fewer := max(out-total, 0)
	back := max(fewer-b.remaining, 0)
	if back > math.MaxInt64-s.account.Balance || back > toll.MaxCredits-s.account.Minted-s.account.Returned {
		return nil, refuse(Overflow)
	}
	end := b.oldEnd
	if whole {
		end = min(l.endsAt, s.now)
	}
	if more > 0 || fewer > 0 || end != l.endsAt {
		s.refs[b.ref], l.changed, l.cold, b.changed, s.accountChanged = b, true, true, true, true
		s.dropLot(l)
		s.dropLot(b)
		l.remaining += fewer - more
		b.remaining += more - (fewer - back)
		b.taken -= back
		if end != l.endsAt {
			l.endsAt = end
			s.movePeriod(l)
		}
		if back > 0 {
			s.enter(KindReturn, back, l.ref)
		}
		for _, lot := range []*lotRow{l, b} {
			if lot.remaining > 0 {
				s.addLot(lot)
			}
		}
		if err := s.endLots(); err != nil {
			return nil, err
		}
	}
	t := TakenBack{Amount: b.taken - taken, Balance: s.account.Balance, Granted: l.granted, Taken: b.taken, Left: b.remaining}
	if t.Amount != 0 {
		t.Transaction = s.account.Commitment
	}
	return t, nil
}

// MintRef begins the ref of a lot that the owner of a plan minted by hand, without an order.
const MintRef = "mint:"

// withdrawRef begins the ref of an entry that the owner of a plan made by hand. It names no lot, as the credits may come from several.
const withdrawRef = "withdraw:"

// withdraw takes credits that are neither spent nor on hold, from lots for which no money was paid.
type withdraw struct {
	account AccountID
	ref     string
	amount  toll.Credits
}

func (o withdraw) accountID() AccountID { return o.account }
func (o withdraw) needs(n *needs)       { n.unpaid = true }

func (o withdraw) apply(s *state, _ bool) (any, error) {
	if !s.lotsAll {
		return nil, errNeedLots
	}
	free := toll.Credits(0)
	for _, l := range s.lots {
		if s.mayWithdraw(l) {
			free += l.remaining
		}
	}
	if free = min(free, s.account.Available()); o.amount > free {
		return nil, &Refusal{Kind: Insufficient, Needed: o.amount, Available: free}
	}
	done := Withdrawn{Of: map[string]toll.Credits{}}
	for left, i := o.amount, 0; left > 0; i++ {
		l := s.lots[i]
		take := min(l.remaining, left)
		if !s.mayWithdraw(l) || take == 0 {
			continue
		}
		l.remaining, l.changed, left = l.remaining-take, true, left-take
		done.Of[l.ref] = take
	}
	e := s.enter(KindTakeBack, o.amount, o.ref)
	done.Transaction, done.Balance, done.Available = e.Commitment, e.BalanceAfter, s.account.Available()
	return done, nil
}

// mayWithdraw reports whether the owner of the plan may take credits of a lot back by hand. What open holds keep of an ended lot stays.
func (s *state) mayWithdraw(l *lotRow) bool { return s.unpaid[l.id] && l.endsAt > s.now }

// movePeriod sets the end of the period anew after the end of a lot was moved.
func (s *state) movePeriod(l *lotRow) {
	s.ends[l.id] = l.endsAt
	s.account.periodEnd = 0
	for _, end := range s.ends {
		s.account.periodEnd = max(s.account.periodEnd, end)
	}
	s.accountChanged = true
}

func (s *state) moved(l *lotRow, n toll.Credits) TakenBack {
	t := TakenBack{Amount: n, Balance: s.account.Balance, Granted: l.granted, Taken: l.taken, Left: l.remaining}
	if n > 0 {
		t.Transaction = s.account.Commitment
	}
	return t
}

// touch only makes the writer tidy the account up.
type touch struct{ account AccountID }

func (o touch) accountID() AccountID                { return o.account }
func (o touch) needs(*needs)                        {}
func (o touch) apply(s *state, _ bool) (any, error) { return nil, nil }
