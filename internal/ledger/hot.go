package ledger

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tollhq/toll"
)

// Bounds of what stands in the row of an account.
const (
	maxHotLots        = 8
	maxHotPermissions = 4
)

const hotVersion = 1

var errHot = errors.New("ledger: the hot counters of an account cannot be read")

// hot holds the counters that most settlements change, so that these write one row. It stands in accounts.hot. As long as it
// names a lot or a permission, the counters in the row of that are stale. What leaves it is written to its row in the same
// transaction. The one that was changed last is the last of its kind.
//
// A named lot has credits left, and its row says so (open = 1). A permission that is used up is never named, so that its row shows that.
type hot struct {
	lots        []hotLot
	permissions []hotPermission
}

type hotLot struct {
	id        int64
	remaining toll.Credits
}

type hotPermission struct {
	hash      toll.Hash
	redeemed  toll.Credits
	held      toll.Credits
	openHolds int64
	lastBurn  int64
}

func (p *hotPermission) row(account []byte) []any {
	return []any{account, p.hash[:], int64(p.redeemed), int64(p.held), p.openHolds, p.lastBurn}
}

// encode returns the stored form, empty when nothing is hot: the version (1 byte), the number of lots, each with id and remaining, the
// number of permissions, each with its hash (32 bytes), redeemed, held, open holds and last burn; numbers are varints.
func (h *hot) encode() string {
	if len(h.lots) == 0 && len(h.permissions) == 0 {
		return ""
	}
	b := append(make([]byte, 0, 128), hotVersion)
	b = binary.AppendUvarint(b, uint64(len(h.lots)))
	for _, l := range h.lots {
		b = binary.AppendUvarint(b, uint64(l.id))
		b = binary.AppendUvarint(b, uint64(l.remaining))
	}
	b = binary.AppendUvarint(b, uint64(len(h.permissions)))
	for _, p := range h.permissions {
		b = append(b, p.hash[:]...)
		for _, n := range []int64{int64(p.redeemed), int64(p.held), p.openHolds, p.lastBurn} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return string(b)
}

// parseHot reads what encode wrote. It refuses anything else.
func parseHot(text string) (h hot, err error) {
	if text == "" {
		return h, nil
	}
	b := []byte(text)
	fault := b[0] != hotVersion
	b = b[1:]
	number := func() int64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || int64(n) < 0 {
			fault = true
			return 0
		}
		b = b[size:]
		return int64(n)
	}
	count := func(most int64) int64 {
		n := number()
		fault = fault || n > most
		return min(n, most)
	}
	for n := count(maxHotLots); n > 0 && !fault; n-- {
		h.lots = append(h.lots, hotLot{number(), toll.Credits(number())})
	}
	for n := count(maxHotPermissions); n > 0 && !fault; n-- {
		var p hotPermission
		if len(b) < len(p.hash) {
			return hot{}, errHot
		}
		b = b[copy(p.hash[:], b):]
		p.redeemed, p.held, p.openHolds, p.lastBurn = toll.Credits(number()), toll.Credits(number()), number(), number()
		h.permissions = append(h.permissions, p)
	}
	if fault || len(b) > 0 {
		return hot{}, errHot
	}
	return h, nil
}

// ofLot corrects a lot that was read from its row.
func (h *hot) ofLot(l *lotRow) {
	for i := range h.lots {
		if h.lots[i].id == l.id {
			l.remaining = h.lots[i].remaining
		}
	}
}

// ofPermission corrects a permission that was read from its row.
func (h *hot) ofPermission(p *Permission) {
	for i := range h.permissions {
		if c := &h.permissions[i]; c.hash == p.Hash {
			p.Redeemed, p.Held, p.OpenHolds, p.lastBurn = c.redeemed, c.held, c.openHolds, c.lastBurn
		}
	}
}

// cold is what must be written to the rows of lots and permissions.
type cold struct {
	lots        []*lotRow
	left        []hotLot // remaining alone
	permissions []hotPermission
	terms       []*permissionRow
}

// fold moves the changed counters into the row of the account, and returns what has to stand in rows.
func (s *state) fold() (c cold) {
	h := &s.hot
	for _, l := range s.changedLots() {
		h.lots = slices.DeleteFunc(h.lots, func(o hotLot) bool { return o.id == l.id })
		if l.mayBeHot() {
			h.lots = append(h.lots, hotLot{l.id, l.remaining})
		} else {
			c.lots = append(c.lots, l)
		}
	}
	c.left, h.lots = leave(h.lots, maxHotLots)
	for hash, p := range s.perms {
		if !p.changed {
			continue
		}
		h.permissions = slices.DeleteFunc(h.permissions, func(o hotPermission) bool { return o.hash == hash })
		counters := hotPermission{hash, p.Redeemed, p.Held, p.OpenHolds, p.lastBurn}
		switch {
		case p.cold:
			c.terms = append(c.terms, p)
			fallthrough
		case p.usedUp():
			c.permissions = append(c.permissions, counters)
		default:
			h.permissions = append(h.permissions, counters)
		}
	}
	left, kept := leave(h.permissions, maxHotPermissions)
	c.permissions, h.permissions = append(c.permissions, left...), kept
	s.account.hot = h.encode()
	return c
}

// leave takes the ones away that were not changed for longest.
func leave[T any](all []T, most int) (left, kept []T) {
	n := max(len(all)-most, 0)
	return all[:n], all[n:]
}

// cool writes the counters of a permission to its row, for a statement that reads them there.
type cool struct {
	account    AccountID
	permission toll.Hash
}

func (o cool) accountID() AccountID { return o.account }

func (o cool) needs(n *needs) { n.permission(o.permission) }

func (o cool) apply(s *state, _ bool) (any, error) {
	if p := s.perms[o.permission]; p != nil {
		p.changed, p.cold = true, true
	}
	return nil, nil
}
