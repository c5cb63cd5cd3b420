package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
)

func memoryGroup(i int) *group {
	g := &group{id: AccountID{byte(i), byte(i >> 8), 1}}
	g.reset(1)
	g.state.account.ID = g.id
	return g
}

// TestMemory_Bounds: whatever strangers do, what is remembered has a bound.
func TestMemory_Bounds(t *testing.T) {
	m := newMemory()
	m.limit = 100_000
	for i := range 200 {
		g := memoryGroup(i)
		for j := range 100 {
			g.state.perms[toll.Hash{byte(j)}] = &permissionRow{}
		}
		for j := range i % 5 {
			id := fmt.Sprint(j)
			g.state.requests[id] = &requestRow{Request: Request{ID: id, State: StateHeld}}
		}
		if i%2 == 0 {
			clear(g.state.perms)
		}
		m.remember(g)
		if m.bytes > m.limit || m.bytes < 0 || len(m.accounts) != m.order.Len() {
			t.Fatalf("%d bytes, %d accounts, %d in order", m.bytes, len(m.accounts), m.order.Len())
		}
	}
	if m.of(memoryGroup(198).id) == nil || m.of(memoryGroup(0).id) != nil {
		t.Error("the one used last has to stay, and the first to go")
	}
	for i := range 3 * maxEnded {
		m.end(AccountID{}, fmt.Sprint(i))
	}
	if n := len(m.ended[0]) + len(m.ended[1]); n > 2*maxEnded {
		t.Errorf("%d ended requests", n)
	}
	if !m.hasEnded(AccountID{}, fmt.Sprint(3*maxEnded-1)) || m.hasEnded(AccountID{1}, fmt.Sprint(3*maxEnded-1)) {
		t.Error("an ended request is known by its account and id")
	}
	now := time.Unix(1000, 0)
	for i := range maxShunned + 1 {
		m.mistrust(memoryGroup(i).id, now)
	}
	if len(m.shunned) > maxShunned {
		t.Errorf("%d are shunned", len(m.shunned))
	}
}

// TestMemory_Mistrust: each further time an account is read for longer, up to a bound, and a quiet one starts anew.
func TestMemory_Mistrust(t *testing.T) {
	m, id, now := newMemory(), AccountID{1}, time.Unix(1000, 0)
	for _, want := range []time.Duration{1, 4, 16, 60, 60} {
		m.mistrust(id, now)
		if got := m.shunned[id].until.Sub(now); got != want*time.Second {
			t.Fatalf("it is read for %v, want %d s", got, want)
		}
		now = m.shunned[id].until
	}
	now = now.Add(maxShun + 1)
	if m.mistrust(id, now); m.shunned[id].until.Sub(now) != firstShun {
		t.Errorf("it is read until %v", m.shunned[id].until)
	}
}
