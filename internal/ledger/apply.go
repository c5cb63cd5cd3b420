package ledger

import (
	"errors"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// state is all that the operations on one account may look at and change. It is filled under the lock of the account's
// row, so that read-then-write is exact, and holds what must be written afterwards.
type state struct {
	now      int64 // microseconds UTC, never before the last entry of the account
	account  Account
	hot      hot       // as it stands in the account
	lots     []*lotRow // with credits left, in burn order: soonest end first, then creation
	lotsAll  bool      // lots holds every such lot, not just the first ones
	requests map[string]*requestRow
	keys     map[string]string // payload nonce or payment identifier -> request id
	perms    map[toll.Hash]*permissionRow
	ends     map[int64]int64             // end of every lot by its id, when a reversal moves the end of the period
	unpaid   map[int64]bool              // lots with credits left for which no money was paid, when a withdrawal asks for them
	refs     map[string]*lotRow          // lots by ref, for the refs that the operations name; nil value: there is none
	due      []*requestRow               // open holds at their end
	claims   map[toll.Hash][]*requestRow // of the permissions of due, those that lapsed before
	nextDue  int64                       // earliest end of the other open holds

	accountChanged bool
	entries        []Entry
	newKeys        []keyRow
}

type lotRow struct {
	id        int64
	ref       string
	granted   toll.Credits
	remaining toll.Credits
	endsAt    int64
	taken     toll.Credits // taken back so far, when the order of the lot was reversed
	oldEnd    int64        // end before the order was reversed, 0 = not reversed
	changed   bool
	open      bool // it has a row, which says that credits are left
	cold      bool // more than what remains was changed
}

type requestRow struct {
	Request
	stored  bool // it has a row already
	changed bool
}

type permissionRow struct {
	Permission
	changed bool
	cold    bool // more than the counters of settlements was changed
}

type keyRow struct{ key, requestID string }

func (s *state) changed() bool {
	if s.accountChanged {
		return true
	}
	for _, p := range s.perms {
		if p.changed {
			return true
		}
	}
	return false
}

// errNeedLots says that the lots that were read do not reach far enough. The batch is read again with more of them.
var errNeedLots = errors.New("ledger: the batch needs more lots")

type operation interface {
	accountID() AccountID
	// needs adds what apply will look at.
	needs(n *needs)
	// apply decides and changes the state, or refuses and changes nothing. retried says that an earlier attempt may have been committed.
	apply(s *state, retried bool) (any, error)
}

// needs names what must be read for the operations on one account.
type needs struct {
	retried    bool        // an earlier attempt may have been committed, so that fresh ids must be looked up as well
	plan       toll.PlanID // set when the account may have to be made
	subscriber toll.Address
	requests   []string
	releases   []string // requests whose permission is not named by the operation
	keys       []string
	perms      []toll.Hash
	refs       []string
	ends       bool // the ends of all lots
	unpaid     bool // which lots no money was paid for
}

// request adds the request of a hold or a settle. An id that was issued for this call is looked up only when an earlier
// attempt may have filed it.
func (n *needs) request(id string, issued bool, keys []string, permission toll.Hash) {
	if !issued || n.retried {
		n.requests = append(n.requests, id)
	}
	n.keys = append(n.keys, keys...)
	n.permission(permission)
}

// permission adds a permission once; the zero hash is none.
func (n *needs) permission(h toll.Hash) {
	if !h.IsZero() && !slices.Contains(n.perms, h) {
		n.perms = append(n.perms, h)
	}
}

type outcome struct {
	answer any
	err    error
}

// apply decides all operations on one account, in their order. It is the only place where credits change; it reads no
// clock and does no input or output. It fails only with errNeedLots, and then the state must be read again.
func apply(s *state, ops []operation, retried bool) ([]outcome, error) {
	if err := s.tidy(); err != nil {
		return nil, err
	}
	out := make([]outcome, len(ops))
	for i, op := range ops {
		answer, err := op.apply(s, retried)
		if errors.Is(err, errNeedLots) {
			return nil, err
		}
		out[i] = outcome{answer, err}
	}
	if !s.accountChanged {
		return out, nil
	}
	s.account.UpdatedAt = micro(s.now)
	return out, s.setNextLotEnd()
}

// tidy lapses holds and ends lots that are over, before anything is decided.
func (s *state) tidy() error {
	if s.account.ID == (AccountID{}) {
		return nil
	}
	s.now = max(s.now, micros(s.account.UpdatedAt, 0))
	if s.account.nextHoldEnd <= s.now {
		if err := s.lapse(); err != nil {
			return err
		}
		if s.account.nextHoldEnd != s.nextDue {
			s.account.nextHoldEnd = s.nextDue
			s.accountChanged = true
		}
	}
	return s.endLots()
}

// endLots takes what is left of ended and reversed lots, but for what open holds need.
func (s *state) endLots() error {
	for _, l := range s.lots {
		if l.endsAt > s.now {
			return nil
		}
		lose := min(l.remaining, s.account.Available())
		if lose == 0 {
			continue
		}
		l.remaining -= lose
		l.changed = true
		if l.oldEnd != 0 {
			l.taken += lose
			s.enter(KindTakeBack, lose, strings.TrimPrefix(l.ref, backRef))
		} else {
			s.enter(KindExpire, lose, l.ref)
		}
	}
	if !s.lotsAll && s.account.Available() > 0 {
		return errNeedLots
	}
	return nil
}

func (s *state) setNextLotEnd() error {
	for _, l := range s.lots {
		if l.remaining > 0 {
			s.account.nextLotEnd = l.endsAt
			if l.endsAt <= s.now {
				// What holds keep of an ended lot cannot end before one of them does.
				s.account.nextLotEnd = s.account.nextHoldEnd
			}
			return nil
		}
	}
	if !s.lotsAll {
		return errNeedLots
	}
	s.account.nextLotEnd = never
	return nil
}

// enter writes an entry and moves the balance and the counters of the account.
func (s *state) enter(kind Kind, amount toll.Credits, ref string) Entry {
	a := &s.account
	before := a.Balance
	switch kind {
	case KindMint:
		a.Minted += amount
		a.lowMark = amount / lowShare
	case KindBurn:
		a.Burned += amount
	case KindExpire:
		a.Expired += amount
	case KindTakeBack:
		a.TakenBack += amount
	case KindReturn:
		a.Returned += amount
	}
	a.Balance += toll.Credits(kind.sign()) * amount
	a.Seq++
	e := Entry{Account: a.ID, Seq: a.Seq, Kind: kind, Amount: amount, BalanceAfter: a.Balance, Ref: ref, AtMicros: s.now}
	e.low = before >= a.lowMark && a.Balance < a.lowMark
	e.Commitment = e.commit(a.Commitment)
	a.Commitment = e.Commitment
	s.entries = append(s.entries, e)
	s.accountChanged = true
	return e
}

// lowShare is the share of the last grant below which an account is low. A grant that is smaller than this never is.
const lowShare = 10

// endHold gives the credits of an open hold back.
func (s *state) endHold(r *requestRow, to State) {
	r.State = to
	r.EndedAt = micro(s.now)
	r.changed = true
	s.account.Held -= r.Held
	s.account.OpenHolds--
	s.accountChanged = true
	if p := s.perms[r.Permission]; p != nil {
		p.Held -= r.Held
		p.OpenHolds--
		p.changed = true
	}
}

// canBurn reports whether the lots that were read cover a burn of n credits of which underHold were held: those may come
// from ended lots, which are kept for holds alone.
func (s *state) canBurn(n, underHold toll.Credits) error {
	if s.lotsAll {
		return nil
	}
	var ended, running toll.Credits
	for _, l := range s.lots {
		if l.endsAt <= s.now {
			ended += l.remaining
		} else {
			running += l.remaining
		}
		if min(ended, underHold)+running >= n {
			return nil
		}
	}
	return errNeedLots
}

// burn takes n credits from the lots, soonest end first. canBurn said that they are there.
func (s *state) burn(n, underHold toll.Credits) {
	for _, l := range s.lots {
		if n == 0 {
			return
		}
		take := min(l.remaining, n)
		if l.endsAt <= s.now {
			take = min(take, underHold)
		}
		if take == 0 {
			continue
		}
		l.remaining -= take
		l.changed = true
		n -= take
		underHold -= min(take, underHold)
	}
}

func byBurnOrder(a, b *lotRow) int {
	if a.endsAt != b.endsAt {
		if a.endsAt < b.endsAt {
			return -1
		}
		return 1
	}
	return int(a.id - b.id)
}

// addLot puts a lot into its place, unless that lies behind lots that were not read.
func (s *state) addLot(l *lotRow) {
	if !s.lotsAll && (len(s.lots) == 0 || byBurnOrder(l, s.lots[len(s.lots)-1]) > 0) {
		return
	}
	i, _ := slices.BinarySearchFunc(s.lots, l, byBurnOrder)
	s.lots = slices.Insert(s.lots, i, l)
}

func (s *state) dropLot(l *lotRow) {
	s.lots = slices.DeleteFunc(s.lots, func(o *lotRow) bool { return o == l })
}

// find returns the request that the id and the keys name, nil when it is new, and the id under which it is filed. An id that was issued for
// this call gives way to the one that a key names. ok is false when the keys name another request than an id that the caller gave.
func (s *state) find(given string, issued bool, keys []string) (r *requestRow, id string, ok bool) {
	if !issued {
		id = given
	}
	for _, k := range keys {
		known, found := s.keys[k]
		if !found {
			continue
		}
		if id != "" && id != known {
			return nil, id, false
		}
		id = known
	}
	if id == "" {
		id = given
	}
	return s.requests[id], id, true
}

func (s *state) file(r *requestRow, keys []string) {
	s.requests[r.ID] = r
	for _, k := range keys {
		if _, found := s.keys[k]; !found {
			s.keys[k] = r.ID
			s.newKeys = append(s.newKeys, keyRow{k, r.ID})
		}
	}
}
