package signer

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

const (
	// remembered is how many orders the signer keeps in mind. One that is forgotten is still protected: its operation has the
	// same nonce key, and the journal keeps the content of each order.
	remembered = 1 << 16
	hour       = 3600 // seconds
)

// limits are what the signer knows of requests before: the content of each order, and what was signed in the last hour.
type limits struct {
	hourly int64 // cents, of each purse; 0: no cap
	clock  func() time.Time

	mu     sync.Mutex
	orders map[[24]byte]common.Hash // content by nonce key
	keys   [][24]byte               // the keys of orders, the oldest first

	accounts purse // what accounts of the service pay
	sales    purse // what wallets of strangers pay: they must not use up the cap of the others
}

// purse is what was signed for in the last hour.
type purse struct {
	spent []spending // one for each second with an order, oldest first
	total int64      // sum of spent
}

type spending struct{ second, cents int64 }

// admit counts an order on one of the purses, once, or says why it is not signed, and for [OverCap] when it may be.
func (l *limits) admit(on *purse, key [24]byte, content common.Hash, cents int64) (Reason, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, known := l.orders[key]; known {
		if before != content {
			return OtherContent, 0
		}
		return "", 0
	}
	if l.hourly > 0 {
		if ok, wait := l.spend(on, cents); !ok {
			return OverCap, wait
		}
	}
	l.orders[key] = content
	if l.keys = append(l.keys, key); len(l.keys) > remembered {
		delete(l.orders, l.keys[0])
		l.keys = l.keys[1:]
	}
	return "", 0
}

// Signed returns the hourly cap of a signer, 0 for none, and the cents that it signed for in the last hour, on the
// purse that has more of them. It is not a method: those are requests to sign.
func Signed(s *Signer) (hourly, cents int64) {
	l := s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accounts.forget(l.clock().Unix())
	l.sales.forget(l.clock().Unix())
	return l.hourly, max(l.accounts.total, l.sales.total)
}

// forget drops what was spent more than an hour ago.
func (p *purse) forget(now int64) {
	for len(p.spent) > 0 && p.spent[0].second < now-hour {
		p.total -= p.spent[0].cents
		p.spent = p.spent[1:]
	}
}

// spend counts cents against the cap, or says how long it takes until there is room. What was spent in a second counts until
// an hour after its end. A clock that goes back forgets nothing.
func (l *limits) spend(on *purse, cents int64) (bool, time.Duration) {
	now := l.clock().Unix()
	on.forget(now)
	if cents > l.hourly {
		return false, 0
	}
	if over := on.total - (l.hourly - cents); over > 0 {
		i := 0
		for ; over > on.spent[i].cents; i++ {
			over -= on.spent[i].cents
		}
		return false, time.Duration(on.spent[i].second+hour+1-now) * time.Second
	}
	on.total += cents
	if n := len(on.spent); n > 0 && on.spent[n-1].second >= now {
		on.spent[n-1].cents += cents
	} else {
		on.spent = append(on.spent, spending{now, cents})
	}
	return true, 0
}
