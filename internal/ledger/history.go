package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// HistoryFilter selects requests: those of the plans of Seller, or those of Subscriber. With both it is
// the requests of Subscriber of Plan, which belongs to Seller.
type HistoryFilter struct {
	Seller     toll.Address
	Subscriber toll.Address
	Plan       toll.PlanID  // "": all plans
	Agent      toll.AgentID // "": all agents
	// State is one of held, settled, released and lapsed; 0: all that have ended. Lapsed stands for [StateGivenUp] as well.
	State        State
	Since, Until time.Time // from Since to before Until: the end of a request, of a held one its begin
}

const (
	// maxExamined bounds the requests that are read for one page.
	maxExamined = 2000
	// maxHeldListed bounds the open holds of a list: there is no index of them by time, because each hold would write to it.
	maxHeldListed  = 10_000
	maxHistoryStep = 512
)

var ErrManyHeld = errors.New("ledger: too many held requests to list")

const (
	listedColumns = `r.account_id, r.agent_request_id, r.state, r.permission_hash, r.agent_id, r.resource, r.held, r.hold_ends_at,
		r.created_at, r.ended_at, r.order_tx`
	sqlEndedAscending = `SELECT ` + listedColumns + ` FROM requests r WHERE %[1]s = $1 AND ended_at < $2
		AND (ended_at, account_id, agent_request_id) > ($3, $4, $5) ORDER BY ended_at, account_id, agent_request_id LIMIT $6`
	sqlEndedDescending = `SELECT ` + listedColumns + ` FROM requests r WHERE %[1]s = $1 AND ended_at >= $2
		AND (ended_at, account_id, agent_request_id) < ($3, $4, $5)
		ORDER BY ended_at DESC, account_id DESC, agent_request_id DESC LIMIT $6`
	sqlHeldOfAccount = `SELECT ` + listedColumns + ` FROM requests r WHERE r.account_id = $1 AND r.state = 1 AND r.hold_ends_at > $2
		LIMIT $3`
	sqlHeldOfSubscriber = `SELECT ` + listedColumns + ` FROM accounts a JOIN requests r ON r.account_id = a.account_id AND r.state = 1
		WHERE a.subscriber = $1 AND a.next_hold_end < $2 AND r.hold_ends_at > $3 LIMIT $4`
	sqlHeldOfSeller = `SELECT ` + listedColumns + ` FROM plans p JOIN accounts a ON a.plan_id = p.plan_id
		JOIN requests r ON r.account_id = a.account_id AND r.state = 1
		WHERE p.owner = $1 AND a.next_hold_end < $2 AND r.hold_ends_at > $3 LIMIT $4`
)

// position locates a request in one source of a history: a sequence of a stream, or a time with the key of a row.
type position struct {
	N       int64  `json:"n"`
	Account []byte `json:"a,omitempty"`
	ID      string `json:"i,omitempty"`
}

type placed struct {
	place position
	Request
}

// source has requests in order. Those up to at are done, those up to end are read.
type source struct {
	read func(after position, n int) ([]placed, error) // fewer than n only at the end
	at   position
	end  position
	kept []placed // that were read and belong to the list
	done bool
}

func (s *source) take() Request {
	r := s.kept[0]
	s.kept, s.at = s.kept[1:], r.place
	if len(s.kept) == 0 {
		s.at = s.end
	}
	return r.Request
}

// historyCursor is where a page ends: the position in each source, in their order.
type historyCursor struct {
	Ascending bool       `json:"a,omitempty"`
	Positions []position `json:"p"`
}

type history struct {
	l       *Ledger
	ctx     context.Context
	f       *HistoryFilter
	asc     bool
	sources []*source
	sides   map[[16]byte]store.Sides
}

// History lists requests by the time of their end, held ones by that of their begin. next is the cursor of the page behind, "" at the end.
// A page reads at most 2,000 requests: when few of them belong to the list, it has fewer than it may, or none, and a cursor.
//
// Settlements are there once the follower has read them. It sorts as the journal does: times of different accounts may be out of order by
// as much as their clocks differ. Errors: [toll.CodeBadPage], [ErrManyHeld].
func (l *Ledger) History(
	ctx context.Context, f HistoryFilter, p store.Page,
) (page []Request, next string, err error) {
	for range 3 { // events may be removed while the list is read
		h := &history{l: l, ctx: ctx, f: &f, asc: p.Ascending, sides: map[[16]byte]store.Sides{}}
		if page, next, err = h.page(p); !errors.Is(err, store.ErrForgotten) {
			break
		}
	}
	return page, next, err
}

func (h *history) page(p store.Page) (out []Request, next string, err error) {
	places, err := h.resume(p)
	if err != nil {
		return nil, "", err
	}
	if err := h.open(); err != nil {
		return nil, "", err
	}
	if places != nil && len(places) != len(h.sources) {
		return nil, "", badHistoryCursor()
	}
	for i, at := range places {
		h.sources[i].at, h.sources[i].end, h.sources[i].done = at, at, at.N < 0
	}
	out = []Request{}
	left, size := maxExamined, cmp.Or(p.Size, 10)
	for len(out) < size {
		var first *source
		for _, s := range h.sources {
			if err := h.fill(s, &left, size+1); err != nil {
				return nil, "", err
			}
			switch {
			case len(s.kept) == 0 && !s.done:
				return out, h.cursor(), nil // the next one is not known without reading more
			case len(s.kept) > 0 && (first == nil || h.before(&s.kept[0].Request, &first.kept[0].Request)):
				first = s
			}
		}
		if first == nil {
			return out, "", nil
		}
		out = append(out, first.take())
	}
	if !slices.ContainsFunc(h.sources, func(s *source) bool { return len(s.kept) > 0 || !s.done }) {
		return out, "", nil
	}
	return out, h.cursor(), nil
}

// resume reads the cursor of a page; nil is the begin.
func (h *history) resume(p store.Page) ([]position, error) {
	if p.Cursor == "" {
		return nil, nil
	}
	var c historyCursor
	text, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || json.Unmarshal(text, &c) != nil || len(c.Positions) == 0 {
		return nil, badHistoryCursor()
	}
	h.asc = c.Ascending
	return c.Positions, nil
}

func badHistoryCursor() error {
	return toll.Errorf(toll.CodeBadPage, "The cursor was not issued by this service for this list.")
}

func (h *history) cursor() string {
	c := historyCursor{Ascending: h.asc}
	for _, s := range h.sources {
		if s.done && len(s.kept) == 0 && s.at.N == 0 && !h.asc {
			s.at.N = -1 // what comes now stands before the pages that were read
		}
		c.Positions = append(c.Positions, s.at)
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // numbers, bytes and texts
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func (h *history) before(a, b *Request) bool {
	if h.asc {
		return a.listedAt().Before(b.listedAt())
	}
	return b.listedAt().Before(a.listedAt())
}

// listedAt is the time by which a request is listed.
func (r *Request) listedAt() time.Time {
	if r.State == StateHeld {
		return r.CreatedAt
	}
	return r.EndedAt
}

// open sets the sources of the states that are asked for.
func (h *history) open() error {
	switch h.f.State {
	case StateHeld:
		h.sources = []*source{{read: h.held()}}
		return nil
	case StateReleased, StateLapsed:
		h.sources = []*source{{read: h.ended}}
		return nil
	}
	whose := h.f.Subscriber // whose stream is the shorter one
	if whose.IsZero() {
		whose = h.f.Seller
	}
	settled, err := store.SettledBetween(h.ctx, h.l.st, whose, h.f.Since, h.f.Until)
	if err != nil {
		return err
	}
	h.sources = []*source{{read: func(after position, n int) ([]placed, error) {
		rows, err := settled.After(after.N, h.asc, n)
		out := make([]placed, len(rows))
		for i := range rows {
			out[i] = placed{position{N: rows[i].Sequence}, RequestOf(&rows[i].Row)}
		}
		return out, err
	}}}
	if h.f.State == 0 {
		h.sources = append(h.sources, &source{read: h.ended})
	}
	return nil
}

// fill reads a source until it has a request of the list, is at its end, or nothing is left to examine.
func (h *history) fill(s *source, left *int, step int) error {
	for ; len(s.kept) == 0 && !s.done && *left > 0; step *= 2 {
		n := min(step, *left, maxHistoryStep)
		rows, err := s.read(s.end, n)
		if err != nil {
			return err
		}
		*left -= len(rows)
		s.done = len(rows) < n
		if len(rows) > 0 {
			s.end = rows[len(rows)-1].place
		}
		if s.kept, err = h.keep(rows); err != nil {
			return err
		}
		if len(s.kept) == 0 {
			s.at = s.end
		}
	}
	return nil
}

// keep returns the requests that belong to the list.
func (h *history) keep(rows []placed) ([]placed, error) {
	f := h.f
	var account AccountID // of all requests, when it is known
	if f.Plan != "" && !f.Subscriber.IsZero() {
		account = NewAccountID(f.Plan, f.Subscriber)
	}
	kept := slices.DeleteFunc(rows, func(r placed) bool {
		at := r.listedAt()
		return at.Before(f.Since) || !at.Before(f.Until) || f.Agent != "" && r.Agent != f.Agent ||
			account != AccountID{} && r.Account != account || f.State == StateReleased && r.State != f.State ||
			f.State == StateLapsed && r.State == StateReleased
	})
	if (account != AccountID{}) || len(kept) == 0 {
		return kept, nil
	}
	if err := h.readSides(kept); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kept, func(r placed) bool {
		s := h.sides[r.Account]
		if f.Seller.IsZero() {
			return s.Subscriber != f.Subscriber
		}
		return s.Owner != f.Seller || f.Plan != "" && s.Plan != f.Plan
	}), nil
}

func (h *history) readSides(rows []placed) error {
	var unknown [][16]byte
	for i := range rows {
		id := rows[i].Account
		if _, ok := h.sides[id]; !ok {
			h.sides[id] = store.Sides{}
			unknown = append(unknown, id)
		}
	}
	read, err := store.SidesOf(h.ctx, h.l.st, unknown)
	for id, s := range read {
		h.sides[id] = s
	}
	return err
}

// ended reads requests that were released or lapsed.
func (h *history) ended(after position, n int) ([]placed, error) {
	column, whose := "subscriber", h.f.Subscriber
	if whose.IsZero() {
		column, whose = "seller", h.f.Seller
	}
	statement, bound, begin := sqlEndedDescending, h.f.Since, h.f.Until
	if h.asc {
		statement, bound, begin = sqlEndedAscending, h.f.Until, h.f.Since
	}
	if after.N == 0 {
		after = position{N: begin.UnixMicro()}
	}
	if len(after.Account) == 0 {
		after.Account = []byte{0} // before every account
	}
	return h.rows(fmt.Sprintf(statement, column),
		whose.Lower(), bound.UnixMicro(), after.N, after.Account, after.ID, int64(n))
}

func (h *history) rows(statement string, args ...any) ([]placed, error) {
	return store.All(h.ctx, h.l.st, func(scan func(dest ...any) error) (p placed, err error) {
		err = scanRequest(scan, &p.Request)
		p.place = position{p.listedAt().UnixMicro(), p.Account[:], p.ID}
		return p, err
	}, statement, args...)
}

// held returns what reads open holds, which are all in memory. One that is over lapses within seconds, and is not listed meanwhile.
func (h *history) held() func(after position, n int) ([]placed, error) {
	var all []placed
	read := false
	return func(after position, n int) (out []placed, err error) {
		if !read {
			if all, err = h.openHolds(); err != nil {
				return nil, err
			}
			read = true
		}
		for _, r := range all {
			if len(out) < n && (after.N == 0 || h.order(after, r.place) < 0) {
				out = append(out, r)
			}
		}
		return out, nil
	}
}

func (h *history) openHolds() (all []placed, err error) {
	now, limit := h.l.clock().UnixMicro(), int64(maxHeldListed+1)
	switch f := h.f; {
	case f.Plan != "" && !f.Subscriber.IsZero():
		id := NewAccountID(f.Plan, f.Subscriber)
		all, err = h.rows(sqlHeldOfAccount, id[:], now, limit)
	case f.Seller.IsZero():
		all, err = h.rows(sqlHeldOfSubscriber, f.Subscriber.Lower(), int64(never), now, limit)
	default:
		all, err = h.rows(sqlHeldOfSeller, f.Seller.Lower(), int64(never), now, limit)
	}
	if err == nil && len(all) > maxHeldListed {
		err = ErrManyHeld
	}
	slices.SortFunc(all, func(a, b placed) int { return h.order(a.place, b.place) })
	return all, err
}

func (h *history) order(a, b position) int {
	c := cmp.Or(cmp.Compare(a.N, b.N), bytes.Compare(a.Account, b.Account), cmp.Compare(a.ID, b.ID))
	if !h.asc {
		return -c
	}
	return c
}
