package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollhq/toll"
)

// A claim is a hold that has lapsed and may still be settled (docs/decisions/0008-requests-and-holds.md).
const (
	sqlClaims = `SELECT ` + requestColumns + ` FROM requests WHERE account_id = $1 AND permission_hash = $2 AND state = 4
		ORDER BY hold_ends_at`
)

// lapse makes claims of the holds that are over, hold end by hold end, so that the outcome does not
// depend on when it is written. errNeedLots: more lots must be read to know the cap.
func (s *state) lapse() error {
	slices.SortFunc(s.due, byHoldEnd)
	if s.claims == nil {
		s.claims = map[toll.Hash][]*requestRow{}
	}
	for len(s.due) > 0 {
		end := s.due[0].HoldEndsAt
		most, err := s.balanceBefore(end)
		if err != nil {
			return err
		}
		n := 1
		for n < len(s.due) && s.due[n].HoldEndsAt.Equal(end) {
			n++
		}
		for _, r := range s.due[:n] {
			s.endHold(r, StateLapsed)
			s.claims[r.Permission] = append(s.claims[r.Permission], r)
		}
		for _, r := range s.due[:n] {
			s.capClaims(r.Permission, most)
		}
		s.due = s.due[n:]
	}
	return nil
}

// balanceBefore is the balance just before the holds lapse that end at end: running lots, and of ended ones what holds keep.
func (s *state) balanceBefore(end time.Time) (toll.Credits, error) {
	running := s.account.Balance
	for _, l := range s.lots {
		if l.endsAt > end.UnixMicro() {
			return max(running, s.account.Held), nil
		}
		running -= l.remaining
	}
	if !s.lotsAll && running > s.account.Held {
		return 0, errNeedLots
	}
	return max(running, s.account.Held), nil
}

// capClaims gives up the oldest claims of a permission beyond what it could hold at a time: balance,
// its redemption limit less what it burned, and [MaxHoldsPerPermission].
func (s *state) capClaims(permission toll.Hash, balance toll.Credits) {
	room, count := balance, 0
	if p := s.perms[permission]; p != nil && p.RedemptionLimit != nil {
		room = min(room, *p.RedemptionLimit-p.Redeemed)
	}
	claims := s.claims[permission]
	slices.SortFunc(claims, byHoldEnd)
	full := false
	for _, r := range slices.Backward(claims) {
		if r.State != StateLapsed {
			continue
		}
		count++
		if full = full || r.Held > room || count > MaxHoldsPerPermission; full {
			r.State, r.changed = StateGivenUp, true
			continue
		}
		room -= r.Held
	}
}

// byHoldEnd sorts by the end of the hold. The id decides among equal ones.
func byHoldEnd(a, b *requestRow) int {
	return cmp.Or(a.HoldEndsAt.Compare(b.HoldEndsAt), cmp.Compare(a.ID, b.ID))
}

// addClaim keeps one value per request, whichever query found it.
func (g *group) addClaim(r *requestRow) {
	if known := g.state.requests[r.ID]; known != nil {
		r = known
	}
	g.state.requests[r.ID] = r
	if g.state.claims == nil {
		g.state.claims = map[toll.Hash][]*requestRow{}
	}
	g.state.claims[r.Permission] = append(g.state.claims[r.Permission], r)
}

// duePermissions returns each permission with a hold at its end.
func (g *group) duePermissions() (hashes []toll.Hash) {
	for _, r := range g.state.due {
		if !slices.Contains(hashes, r.Permission) {
			hashes = append(hashes, r.Permission)
		}
	}
	return hashes
}
