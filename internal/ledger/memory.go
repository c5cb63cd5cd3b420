package ledger

import (
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
)

const (
	// memoryBytes bounds what a writer remembers of accounts, estimated.
	memoryBytes = 64 << 20
	// maxKnownPermissions bounds the permissions that are remembered of one account.
	maxKnownPermissions = 64
	// maxEnded bounds the ids of ended requests that are remembered, in each of two generations.
	maxEnded   = 1 << 16
	maxShunned = 1 << 14
	// An account about which the memory was wrong is read from the store for firstShun, and longer after each further time.
	firstShun, maxShun = time.Second, time.Minute
)

// memory is what the writer of this process last read or wrote of accounts, so that it can decide without reading them. It is
// never trusted: a decision from memory is committed only if the row of its account still has the version that is remembered
// (docs/decisions/0059-hot-counters.md).
//
// Only the writer uses it, but for forget and held, which anybody may call.
type memory struct {
	limit int // bytes; 0 remembers nothing

	mu       sync.Mutex
	accounts map[AccountID]*list.Element // of *remembered
	order    *list.List                  // the one used last is the first
	bytes    int

	seed    maphash.Seed
	ended   [2]map[uint64]struct{} // hashes of requests that are no open holds; the second is the older generation
	shunned map[AccountID]shun
}

// remembered is the state of one account after the last commit.
type remembered struct {
	id      AccountID
	account Account
	hot     hot
	lots    []*lotRow
	lotsAll bool
	perms   map[toll.Hash]*permissionRow
	holds   map[string]*requestRow // the open holds that are known
	size    int
}

type shun struct {
	until time.Time
	last  time.Duration
}

func newMemory() *memory {
	m := &memory{limit: memoryBytes, accounts: map[AccountID]*list.Element{}, order: list.New(), seed: maphash.MakeSeed(), shunned: map[AccountID]shun{}}
	m.ended[0] = map[uint64]struct{}{}
	return m
}

// held returns how many bytes are remembered, estimated.
func (m *memory) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// of returns what is remembered of an account, nil when nothing is.
func (m *memory) of(id AccountID) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.accounts[id]
	if at == nil {
		return nil
	}
	m.order.MoveToFront(at)
	return at.Value.(*remembered)
}

func (m *memory) forget(id AccountID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.accounts[id]; at != nil {
		m.drop(at)
	}
}

func (m *memory) drop(at *list.Element) {
	e := m.order.Remove(at).(*remembered)
	m.bytes -= e.size
	delete(m.accounts, e.id)
}

// recall fills the state of a group from memory. It reports whether everything is there that its operations look at; if not, the
// state must be reset. A request of which nothing is known is taken for a new one and added to g.fresh.
//
// The state shares what is remembered, so the account must be forgotten before the state changes; remember brings it back.
func (m *memory) recall(g *group, now time.Time) bool {
	n := &g.needs
	if n.retried || n.plan != "" || n.keys != nil || n.refs != nil || n.ends || m.shunned[g.id].until.After(now) {
		return false
	}
	for _, op := range g.ops {
		switch op.(type) {
		case *hold, *settle, release, renew:
		default:
			return false
		}
	}
	e := m.of(g.id)
	if e == nil {
		return false
	}
	s := g.state
	s.account, s.hot, s.lots, s.lotsAll = e.account, e.hot, e.lots, e.lotsAll
	g.memory, g.version = e, e.account.version
	if s.account.nextHoldEnd <= s.dueAt() {
		return false
	}
	for _, id := range n.requests {
		r := e.holds[id]
		switch {
		case r != nil:
			s.requests[id] = r
			n.permission(r.Permission)
		case int64(len(e.holds)) < e.account.OpenHolds, m.hasEnded(g.id, id), slices.Contains(n.releases, id):
			return false
		default:
			g.fresh = append(g.fresh, id)
		}
	}
	for _, hash := range n.perms {
		p := e.perms[hash]
		if p == nil {
			return false
		}
		s.perms[hash] = p
	}
	return true
}

// remember takes over the state of a group that was committed, or read under the lock and not changed. The state belongs to the
// memory from then on.
func (m *memory) remember(g *group) {
	s := g.state
	for _, r := range s.requests {
		if r.State != StateHeld {
			m.end(g.id, r.ID)
		}
	}
	if m.limit == 0 || s.account.ID == (AccountID{}) {
		return
	}
	e := g.memory
	if e == nil {
		e = m.of(g.id)
	}
	if e == nil || e.account.version != g.version {
		m.forget(g.id)
		e = &remembered{id: g.id, perms: map[toll.Hash]*permissionRow{}, holds: map[string]*requestRow{}}
	}
	e.account, e.hot, e.lotsAll = s.account, s.hot, s.lotsAll
	e.lots = slices.DeleteFunc(s.lots, func(l *lotRow) bool { return l.remaining == 0 })
	if len(e.lots) > lotDepths[0] {
		e.lots, e.lotsAll = slices.Clone(e.lots[:lotDepths[0]]), false
	}
	for _, l := range e.lots {
		l.open, l.changed, l.cold = true, false, false
	}
	if len(e.perms)+len(s.perms) > maxKnownPermissions {
		clear(e.perms)
	}
	for hash, p := range s.perms {
		p.changed, p.cold = false, false
		e.perms[hash] = p
	}
	for id, r := range s.requests {
		if r.State != StateHeld {
			delete(e.holds, id)
			continue
		}
		r.changed, r.stored = false, true
		e.holds[id] = r
	}
	m.put(e)
}

func (m *memory) put(e *remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.accounts[e.id]
	if at == nil {
		at = m.order.PushFront(e)
		m.accounts[e.id] = at
		e.size = 0
	}
	size := e.estimate()
	m.bytes += size - e.size
	e.size = size
	for m.bytes > m.limit {
		m.drop(m.order.Back())
	}
}

// estimate is how many bytes are remembered, maps and the allocator included.
func (e *remembered) estimate() int {
	n := 1024 + 160*len(e.lots) + len(e.account.hot)
	for _, p := range e.perms {
		n += 768 + len(p.Metadata) + 64*len(p.AllowedAgents)
	}
	for _, r := range e.holds {
		n += 640 + len(r.ID) + len(r.Resource) + len(r.Answer) + len(r.Labels.Upstream) + len(r.Labels.Route) + len(r.Labels.Model)
	}
	return n
}

func (m *memory) key(account AccountID, request string) uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.Write(account[:]) // never fails
	_, _ = h.WriteString(request)
	return h.Sum64()
}

// end records that a request is in the store and no open hold, so that a repeat does not fail the commit of others.
func (m *memory) end(account AccountID, request string) {
	if len(m.ended[0]) >= maxEnded {
		m.ended[1], m.ended[0] = m.ended[0], make(map[uint64]struct{}, maxEnded)
	}
	m.ended[0][m.key(account, request)] = struct{}{}
}

func (m *memory) hasEnded(account AccountID, request string) bool {
	k := m.key(account, request)
	_, young := m.ended[0][k]
	_, old := m.ended[1][k]
	return young || old
}

// mistrust has an account read from the store for a while, as the memory was wrong about it: another process writes it, or a
// caller repeats old requests.
func (m *memory) mistrust(id AccountID, now time.Time) {
	s := m.shunned[id]
	if now.Sub(s.until) > maxShun {
		s.last = 0
	}
	s.last = min(max(firstShun, 4*s.last), maxShun)
	s.until = now.Add(s.last)
	if len(m.shunned) >= maxShunned {
		clear(m.shunned)
	}
	m.shunned[id] = s
}
