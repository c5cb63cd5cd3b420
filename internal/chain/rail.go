package chain

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
)

// Purchase is an order to be paid.
type Purchase struct {
	OrderID    string
	Account    [16]byte       // of the order: that of the plan and the subscriber
	OrderedAt  time.Time      // zero: now
	Subscriber toll.Address   // owns the credits; its account pays, unless the delegation names another
	Token      toll.Address   // zero: the native token
	Receivers  []toll.Address // of Amounts
	Amounts    []toll.Units   // base units
	Total      toll.Units     // sum of Amounts
	Delegation *Delegation    // limit on money to pay with; nil for a direct order
	TopUp      bool           // a request waits for it
}

// Delegation is a limit on money as the service records it. With the keys of the accounts it says all that is signed.
type Delegation struct {
	ID                string // UUID
	Owner             toll.Address
	OwnerAccount      toll.Address // account that the user holds; zero: the wallet that the service holds for Owner
	Currency          string       // "usdc" or "eurc"
	LimitCents        int64
	CreatedAt         time.Time
	ExpiresAt         time.Time
	AllowedRecipients []toll.Address // empty: any
	Signature         []byte         // of OwnerAccount, 65 bytes; nil: the service signs, or the signature is still to come

	// Authorization is the signed EIP-7702 authorization of OwnerAccount as it was handed in, JSON; nil: none was. It goes
	// along with the first order that finds the account without code.
	Authorization json.RawMessage

	// NativeUnits make it a limit in wei for one order in the native token, which pays Calls receivers; Currency is then ""
	// and LimitCents 0.
	NativeUnits toll.Units
	Calls       int
}

// Outcome is how an order stands. Confirmed, Final and Failed decide it.
type Outcome struct {
	State   State
	Tx      common.Hash // zero while none exists
	Failure *Failure    // set when State is Failed
}

// Rail is the crypto rail of one environment. Its methods may be called at the same time, and in several processes that share
// a database.
type Rail struct {
	cfg     Config
	chainID *big.Int
	log     *slog.Logger
	work    signal // there are operations to send, or transactions that may be mined
	moved   signal // the chain, or what is looked for on it, may have moved
	outbox  outbox
	lanes   chan struct{} // reads of the chain under way
	stopped atomic.Pointer[error]

	mu      sync.Mutex
	watches map[string]map[chan struct{}]struct{} // by operation
	ready   readiness

	delegations map[common.Hash]struct{} // that are stored
}

// maxReads is how many reads of the chain are under way at a time.
const maxReads = 8

// New returns a rail, or an error when the configuration cannot be used. It asks no endpoint.
func New(cfg Config) (*Rail, error) {
	if err := cfg.set(); err != nil {
		return nil, err
	}
	return &Rail{
		cfg: cfg, chainID: new(big.Int).SetUint64(cfg.ChainID), log: cfg.Log, watches: map[string]map[chan struct{}]struct{}{},
		lanes: make(chan struct{}, maxReads), ready: readiness{low: map[common.Address]bool{}}, delegations: map[common.Hash]struct{}{},
	}, nil
}

// Run sends operations and follows the chain until ctx ends. Any number of processes may run; leases say which of them is at
// what. It returns nil when ctx ended.
func (r *Rail) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, relayer := range r.cfg.Relayers {
		wg.Go(func() { r.relay(ctx, relayer) })
	}
	wg.Go(func() { r.track(ctx) })
	wg.Wait()
	return nil
}

// watch returns a channel that is closed at the next change of an operation by this process. The caller calls stop.
func (r *Rail) watch(id string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches[id] == nil {
		r.watches[id] = map[chan struct{}]struct{}{}
	}
	r.watches[id][c] = struct{}{}
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.watches[id], c); len(r.watches[id]) == 0 {
			delete(r.watches, id)
		}
	}
}

// changed wakes who waits for these operations.
func (r *Rail) changed(ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		for c := range r.watches[id] {
			close(c)
		}
		delete(r.watches, id)
	}
}

// signal wakes all who wait for it.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

// next returns a channel that is closed by the next call of fire.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
