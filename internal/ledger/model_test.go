package ledger_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
)

var modelSteps = flag.Int("model-steps", rounds.Of(600, 20_000), "steps of the model test on each store")

// model is the books kept the slow and obvious way: one subscriber, lists searched from the front, sums made anew.
type model struct {
	now      time.Time
	lots     []*modelLot // in order of creation
	requests map[string]*modelRequest
	perms    map[toll.Hash]*modelPermission
}

type modelLot struct {
	id       int
	ref      string
	granted  toll.Credits
	left     toll.Credits
	end      time.Time // zero: never
	reversed bool
	oldEnd   time.Time
	taken    toll.Credits
	back     *modelLot // what money that went back took out of use; nil: nothing
}

type modelRequest struct {
	state   string
	held    toll.Credits
	until   time.Time
	created time.Time
	perm    toll.Hash
	amount  toll.Credits
	answer  string
}

type modelPermission struct {
	limit   toll.Credits // 0: none
	used    toll.Credits
	expires time.Time
	revoked bool
}

func (m *model) balance() (n toll.Credits) {
	for _, l := range m.ordered() {
		n += l.left
	}
	return n
}

func (m *model) held(perm *toll.Hash) (n toll.Credits, count int) {
	for _, r := range m.requests {
		if r.state == "held" && (perm == nil || r.perm == *perm) {
			n += r.held
			count++
		}
	}
	return n, count
}

func (m *model) available() toll.Credits { h, _ := m.held(nil); return m.balance() - h }

// ordered returns the lots soonest end first, never-ending last, ties in order of creation.
func (m *model) ordered() []*modelLot {
	ls := slices.Clone(m.lots)
	for _, l := range m.lots {
		if l.back != nil {
			ls = append(ls, l.back)
		}
	}
	slices.SortFunc(ls, func(a, b *modelLot) int {
		switch {
		case a.end.Equal(b.end):
			return a.id - b.id
		case a.end.IsZero():
			return 1
		case b.end.IsZero():
			return -1
		}
		return a.end.Compare(b.end)
	})
	return ls
}

// tick does what time does, one hold end after the other.
func (m *model) tick() {
	for {
		at := m.now.Add(1)
		for _, r := range m.requests {
			if r.state == "held" && r.until.Before(at) {
				at = r.until
			}
		}
		if at.After(m.now) {
			break
		}
		m.endLots(at)
		balance, ended := m.balance(), map[toll.Hash]bool{}
		for _, r := range m.requests {
			if r.state == "held" && r.until.Equal(at) {
				r.state = "lapsed"
				ended[r.perm] = true
			}
		}
		for h := range ended {
			m.capClaims(h, balance)
		}
	}
	m.endLots(m.now)
}

// capClaims gives up the oldest claims until the others are what the permission could hold at a time.
func (m *model) capClaims(h toll.Hash, most toll.Credits) {
	if p := m.perms[h]; p.limit > 0 {
		most = min(most, p.limit-p.used)
	}
	var ids []string
	sum := toll.Credits(0)
	for id, r := range m.requests {
		if r.perm == h && r.state == "lapsed" {
			ids = append(ids, id)
			sum += r.held
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(m.requests[a].until.Compare(m.requests[b].until), cmp.Compare(a, b))
	})
	for len(ids) > ledger.MaxHoldsPerPermission || sum > most {
		oldest := m.requests[ids[0]]
		oldest.state = "given up"
		sum -= oldest.held
		ids = ids[1:]
	}
}

func (m *model) endLots(at time.Time) {
	available := m.available()
	for _, l := range m.ordered() {
		if !l.end.IsZero() && !l.end.After(at) {
			lose := min(l.left, available)
			l.left -= lose
			available -= lose
			if l.reversed {
				l.taken += lose
			}
		}
	}
}

// takeBackTo moves one credit after the other.
func (m *model) takeBackTo(l *modelLot, total toll.Credits) ledger.Refused {
	if l.reversed {
		return ledger.NotMinted
	}
	total = min(max(total, 0), l.granted)
	whole := total == l.granted
	soonest := func(end time.Time) time.Time {
		if end.IsZero() || end.After(m.now) {
			return m.now
		}
		return end
	}
	if b := l.back; b == nil && (whole || total > 0 && l.left > 0) {
		l.back = &modelLot{id: -l.id, ref: "back:" + l.ref, end: soonest(l.end), reversed: true, oldEnd: l.end}
	} else if b == nil {
		return ""
	}
	b := l.back
	for b.taken+b.left < total && l.left > 0 {
		l.left--
		b.left++
	}
	for b.taken+b.left > total {
		if b.left > 0 {
			b.left--
		} else {
			b.taken--
		}
		l.left++
	}
	if whole {
		l.end = soonest(l.end)
	} else {
		l.end = b.oldEnd
	}
	m.tick()
	return ""
}

// withdraw takes credits that were minted by hand and are free, of the lots that end first.
func (m *model) withdraw(n toll.Credits) ledger.Refused {
	var unpaid []*modelLot
	free := toll.Credits(0)
	for _, l := range m.ordered() {
		if strings.HasPrefix(l.ref, "mint:") && !m.over(l) {
			unpaid = append(unpaid, l)
			free += l.left
		}
	}
	if n > min(free, m.available()) {
		return ledger.Insufficient
	}
	for _, l := range unpaid {
		take := min(l.left, n)
		l.left -= take
		n -= take
	}
	m.tick()
	return ""
}

func (m *model) over(l *modelLot) bool { return !l.end.IsZero() && !l.end.After(m.now) }

func (m *model) burn(n, under toll.Credits) {
	for _, l := range m.ordered() {
		take := min(l.left, n)
		if m.over(l) {
			take = min(take, under)
		}
		l.left -= take
		n -= take
		under -= min(take, under)
	}
	if n != 0 {
		panic("the model burned more than there is")
	}
}

func (m *model) usable(h toll.Hash, n, own toll.Credits) ledger.Refused {
	p := m.perms[h]
	switch {
	case p == nil:
		return ledger.PermissionUnknown
	case p.revoked:
		return ledger.PermissionRevoked
	case !m.now.Before(p.expires):
		return ledger.PermissionExpired
	}
	return m.limited(h, n, own)
}

func (m *model) limited(h toll.Hash, n, own toll.Credits) ledger.Refused {
	p := m.perms[h]
	held, _ := m.held(&h)
	if p.limit > 0 && p.used+held-own+n > p.limit {
		return ledger.RedemptionLimit
	}
	return ""
}

func (m *model) hold(id string, h toll.Hash, n toll.Credits, until time.Time) ledger.Refused {
	if r := m.requests[id]; r != nil {
		if r.state == "held" {
			return ledger.InFlight
		}
		return ledger.Duplicate
	}
	if no := m.usable(h, n, 0); no != "" {
		return no
	}
	if len(m.lots) == 0 || n > m.available() {
		return ledger.Insufficient
	}
	if _, open := m.held(&h); open >= ledger.MaxHoldsPerPermission {
		return ledger.TooManyHolds
	}
	if _, open := m.held(nil); open >= ledger.MaxHoldsPerAccount {
		return ledger.TooManyHolds
	}
	m.requests[id] = &modelRequest{state: "held", held: n, until: until, created: m.now, perm: h}
	return ""
}

func (m *model) settle(id string, h toll.Hash, n toll.Credits) (no ledger.Refused, replay bool) {
	r := m.requests[id]
	own := toll.Credits(0)
	switch {
	case r == nil:
		if no := m.usable(h, n, 0); no != "" {
			return no, false
		}
		if len(m.lots) == 0 || n > m.available() {
			return ledger.Insufficient, false
		}
		r = &modelRequest{perm: h}
		m.requests[id] = r
	case r.state == "settled":
		if r.perm != h || r.amount != n {
			return ledger.Conflict, false
		}
		return "", true
	case r.state == "released" || r.perm != h:
		return ledger.Conflict, false
	case m.perms[h].revoked && (r.state != "held" || n > r.held):
		return ledger.PermissionRevoked, false
	case r.state == "given up" || r.state == "lapsed" && m.now.After(m.perms[h].expires.Add(time.Hour)):
		return ledger.HoldExpired, false
	case r.state == "lapsed" && n > r.held && !m.now.Before(m.perms[h].expires):
		return ledger.PermissionExpired, false
	default:
		if r.state == "held" {
			own = r.held
		}
		if no := m.limited(h, n, own); no != "" {
			return no, false
		}
		if n-own > max(m.available(), 0) {
			return ledger.Insufficient, false
		}
	}
	m.burn(n, own)
	m.perms[h].used += n
	r.state, r.amount = "settled", n
	m.tick()
	return "", false
}

func (m *model) release(id string) (no ledger.Refused, status string) {
	r := m.requests[id]
	switch {
	case r == nil:
		return ledger.UnknownRequest, ""
	case r.state == "settled":
		return ledger.SettledAlready, ""
	case r.state == "held":
		r.state = "released"
		m.tick()
	case r.state == "given up":
		return "", "lapsed"
	}
	return "", r.state
}

func (m *model) renew(id string, life time.Duration) (no ledger.Refused, until time.Time) {
	r := m.requests[id]
	switch {
	case r == nil:
		return ledger.UnknownRequest, until
	case r.state != "held":
		return ledger.HoldOver, until
	}
	if until = m.now.Add(life); until.Before(r.until) {
		until = r.until
	}
	if last := r.created.Add(24 * time.Hour); until.After(last) {
		until = last
	}
	r.until = until
	return "", until
}

// TestWrongBooks drives random operations against the model and compares every answer and the whole state.
// T43
func TestWrongBooks(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		b := open(t, st)
		runModel(b, rand.New(rand.NewPCG(seed, 1)), *modelSteps)
	})
}

// The same with a writer that remembers nothing, with one that soon forgets, and with another instance that writes in between.
// T43
func TestWrongBooks_Memory(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(b *bench, st *store.Store){
		"off":      func(b *bench, _ *store.Store) { ledger.SetMemory(b.Ledger, 0) },
		"small":    func(b *bench, _ *store.Store) { ledger.SetMemory(b.Ledger, 4000) },
		"instance": func(b *bench, st *store.Store) { b.other = open2(b, st) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, func(t *testing.T, st *store.Store) {
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed %d", seed)
				b := open(t, st)
				prepare(b, st)
				runModel(b, rand.New(rand.NewPCG(seed, 1)), *modelSteps)
			})
		})
	}
}

func runModel(b *bench, rnd *rand.Rand, steps int) {
	m := &model{now: b.clock.now(), requests: map[string]*modelRequest{}, perms: map[toll.Hash]*modelPermission{}}
	var perms []toll.Hash
	account := ledger.NewAccountID(plan, subscriber)
	newPermission := func() {
		limit := toll.Credits(0)
		if rnd.IntN(2) == 0 {
			limit = toll.Credits(1 + rnd.IntN(200))
		}
		h := b.permission(limit)
		perms = append(perms, h)
		m.perms[h] = &modelPermission{limit: limit, expires: b.clock.now().Add(24 * time.Hour)}
	}
	newPermission()
	ids := func() string { return fmt.Sprint("r", max(0, len(m.requests)-8+rnd.IntN(10))) }
	anyPerm := func() toll.Hash {
		if rnd.IntN(50) == 0 {
			return toll.Hash{1}
		}
		return perms[max(0, len(perms)-4)+rnd.IntN(min(4, len(perms)))]
	}
	for step := range steps {
		if d := time.Duration(rnd.IntN(30)) * time.Second; rnd.IntN(3) == 0 {
			b.clock.add(d)
		} else if rnd.IntN(200) == 0 {
			b.clock.add(time.Duration(rnd.IntN(30)) * time.Hour)
		}
		m.now = b.clock.now()
		m.tick()
		if b.other != nil && rnd.IntN(2) == 0 {
			b.Ledger, b.other = b.other, b.Ledger
		}
		var what string
		var err error
		var want ledger.Refused
		switch k := rnd.IntN(108); {
		case k >= 105 && len(m.lots) > 0:
			n := toll.Credits(1 + rnd.IntN(40))
			what = fmt.Sprintf("withdraw %d", n)
			want = m.withdraw(n)
			_, err = b.withdraw(fmt.Sprint("w", step), n)
		case k >= 100 && len(m.lots) > 0:
			l := m.lots[max(0, len(m.lots)-1-rnd.IntN(6))]
			total := toll.Credits(rnd.IntN(int(l.granted) + 1))
			if rnd.IntN(3) == 0 {
				total = []toll.Credits{-1, 0, l.granted, l.granted + 1}[rnd.IntN(4)]
			}
			what = fmt.Sprintf("take back %s to %d", l.ref, total)
			want = m.takeBackTo(l, total)
			var moved ledger.TakenBack
			moved, err = b.takeBackTo(l.ref, total)
			for range rnd.IntN(2) { // a repeat moves nothing
				if moved, err = b.takeBackTo(l.ref, total); err == nil && moved.Amount != 0 {
					b.Fatalf("step %d: %s: moved %d again", step, what, moved.Amount)
				}
			}
			if back := l.back; err == nil && back != nil && (moved.Taken != back.taken || moved.Left != back.left || moved.Granted != l.granted) {
				b.Fatalf("step %d: %s: %+v, want %+v", step, what, moved, back)
			}
		case k < 10:
			n, ref := toll.Credits(1+rnd.IntN(60)), fmt.Sprint([]string{"o", "mint:", "mint:"}[rnd.IntN(3)], len(m.lots))
			l := &modelLot{id: len(m.lots) + 1, ref: ref, granted: n, left: n}
			if rnd.IntN(3) > 0 {
				l.end = m.now.Add(time.Duration(1+rnd.IntN(4)) * 20 * time.Second)
			}
			what = fmt.Sprintf("mint %d until %v", n, l.end)
			_, err = b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: n, EndsAt: l.end, Ref: ref, Order: true})
			m.lots = append(m.lots, l)
			m.tick() // the fresh credits cover what an ended lot was kept for
		case k < 40:
			id, h, n := ids(), anyPerm(), toll.Credits(rnd.IntN(12))
			until := m.now.Add(time.Duration(1+rnd.IntN(60)) * time.Second)
			what = fmt.Sprintf("hold %s %d", id, n)
			op := b.holdOp(h, n)
			op.RequestID, op.Until = id, until
			_, err = b.Hold(b.ctx, op)
			want = m.hold(id, h, n, until)
		case k < 75:
			id, h, n := ids(), anyPerm(), toll.Credits(rnd.IntN(15))
			if r := m.requests[id]; r != nil && rnd.IntN(10) > 0 {
				h = r.perm
				if r.state == "settled" && rnd.IntN(2) == 0 {
					n = r.amount
				}
			}
			what = fmt.Sprintf("settle %s %d", id, n)
			var s ledger.Settled
			s, err = b.Settle(b.ctx, contentOf(settleOp(h, id, n)))
			var replay bool
			want, replay = m.settle(id, h, n)
			if err == nil && want == "" {
				r := m.requests[id]
				if s.Replayed != replay || (replay && string(s.Answer) != r.answer) {
					b.Fatalf("step %d: %s: replayed %v, want %v: %s", step, what, s.Replayed, replay, s.Answer)
				}
				r.answer = string(s.Answer)
			}
		case k < 81:
			id, life := ids(), time.Duration(1+rnd.IntN(60))*time.Second
			what = fmt.Sprintf("renew %s for %v", id, life)
			var h ledger.Held
			h, err = b.Renew(b.ctx, account, id, life)
			var until time.Time
			want, until = m.renew(id, life)
			if err == nil && !h.Until.Equal(until) {
				b.Fatalf("step %d: %s: until %v, want %v", step, what, h.Until, until)
			}
		case k < 86:
			id := ids()
			what = "release " + id
			var r ledger.Released
			r, err = b.Release(b.ctx, account, id)
			var status string
			want, status = m.release(id)
			if err == nil && r.Status.String() != status {
				b.Fatalf("step %d: %s: %s, want %s", step, what, r.Status, status)
			}
		case k < 88:
			newPermission()
		case k < 90:
			h := anyPerm()
			what = "revoke"
			err = b.RevokePermission(b.ctx, plan, subscriber, h, m.now)
			switch p := m.perms[h]; {
			case p == nil:
				want = ledger.PermissionUnknown
			case p.revoked:
				want = ledger.PermissionRevoked
			default:
				p.revoked = true
			}
		case k < 95 && len(m.lots) > 0:
			l := m.lots[rnd.IntN(len(m.lots))]
			what = "reverse " + l.ref
			_, err = b.takeBack(l.ref)
			if !l.reversed {
				l.reversed, l.oldEnd = true, l.end
				if !m.over(l) {
					l.end = m.now
				}
				m.tick()
			}
		case len(m.lots) > 0:
			l := m.lots[rnd.IntN(len(m.lots))]
			what = "restore " + l.ref
			_, err = b.giveBack(l.ref)
			if l.reversed {
				l.reversed, l.end = false, l.oldEnd
				l.left += l.taken
				l.taken = 0
				m.tick()
			}
		}
		if (want == "" && err != nil) || (want != "" && !ledger.IsRefused(err, want)) {
			b.Fatalf("step %d: %s: got %v, want %q", step, what, err, want)
		}
		m.compare(b, step, what)
	}
}

// contentOf makes the content depend on permission and amount, as the facilitator does.
func contentOf(op ledger.SettleOp) ledger.SettleOp {
	copy(op.Content[2:], op.Permission[:16])
	return op
}

func (m *model) compare(b *bench, step int, what string) {
	b.Helper()
	id := ledger.NewAccountID(plan, subscriber)
	if a, err := b.Account(context.Background(), id); err != nil {
		b.Fatal(err)
	} else if a.Stale(m.now) {
		must.Do(b, b.Touch(b.ctx, id))
	}
	a := must.Get(b.Account(context.Background(), id))(b)
	held, open := m.held(nil)
	if a.Balance != m.balance() || a.Held != held || a.OpenHolds != int64(open) {
		b.Fatalf("step %d: %s: balance %d held %d in %d, want %d, %d in %d", step, what, a.Balance, a.Held, a.OpenHolds, m.balance(), held, open)
	}
	lots := must.Get(b.Lots(context.Background(), id))(b)
	var want []*modelLot
	for _, l := range m.ordered() {
		if l.left > 0 && l.id > 0 {
			want = append(want, l)
		}
	}
	if len(lots) != len(want) {
		b.Fatalf("step %d: %s: %d lots, want %d", step, what, len(lots), len(want))
	}
	for i, l := range lots {
		if l.Ref != want[i].ref || l.Remaining != want[i].left {
			b.Fatalf("step %d: %s: lot %d is %s with %d, want %s with %d", step, what, i, l.Ref, l.Remaining, want[i].ref, want[i].left)
		}
	}
}
