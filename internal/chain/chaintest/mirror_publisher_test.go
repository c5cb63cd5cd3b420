package chaintest_test

import (
	"errors"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/mirror"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// journal is the database, and the lease that publishers need to write.
type journal struct {
	t     *testing.T
	st    *store.Store
	lease *jobs.Lease
	now   time.Time // of leases
}

func newJournal(t *testing.T) *journal {
	st, _ := storetest.Open(t, store.SQLite)
	j := &journal{t: t, st: st, now: time.Now()}
	j.lease = j.newLease()
	return j
}

// newLease takes the lease from its holder.
func (j *journal) newLease() *jobs.Lease {
	j.t.Helper()
	j.now = j.now.Add(time.Minute)
	l := jobs.NewLease(j.st, func() time.Time { return j.now }, "mirror")
	must.Do(j.t, l.Take(j.t.Context()))
	return l
}

// back returns the lease to the publishers after newLease.
func (j *journal) back() {
	j.t.Helper()
	j.now = j.now.Add(time.Minute)
	must.Do(j.t, j.lease.Take(j.t.Context()))
}

func (j *journal) all() []*store.MirrorPeriod {
	j.t.Helper()
	var all []*store.MirrorPeriod
	for n := range int64(200) {
		p, err := store.MirrorPeriodByNumber(j.t.Context(), j.st, n)
		if err == nil {
			all = append(all, p)
		} else if !errors.Is(err, store.ErrNotFound) {
			j.t.Fatal(err)
		}
	}
	return all
}

func (j *journal) of(number int64) *store.MirrorPeriod {
	j.t.Helper()
	return must.Get(store.MirrorPeriodByNumber(j.t.Context(), j.st, number))(j.t)
}

// set changes a period in the database without a publisher.
func (j *journal) set(number int64, columns string, args ...any) {
	j.t.Helper()
	must.Do(j.t, j.st.Tx(j.t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(j.t.Context(), "UPDATE mirror_periods SET "+columns+" WHERE period = $1", append([]any{number}, args...)...)
		return err
	}))
}

type mirrorScene struct {
	*chaintest.Chain
	keys     chaintest.Keys
	operator common.Address
	pool     *endpoints.Pool
	journal  *journal
	signer   *signer.Signer
}

func newMirrorScene(t *testing.T, c *chaintest.Chain) *mirrorScene {
	t.Helper()
	s := &mirrorScene{Chain: c, journal: newJournal(t)}
	s.operator = s.keys.New(t)
	must.Get(c.Fund(t.Context(), s.operator, big.NewInt(1e18)))(t)
	s.connect(t, c.Client())
	var err error
	s.signer, err = signer.New(signer.Config{
		ChainID: new(big.Int).SetUint64(c.ChainID()), Keys: &s.keys, Service: s.keys.New(t), Mirror: s.operator, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	must.Do(t, err)
	return s
}

// connect makes publishers use a client. The timeout is long, so that a pause of the machine causes no retry.
func (s *mirrorScene) connect(t *testing.T, client *rpc.Client) {
	t.Helper()
	var err error
	s.pool, err = endpoints.New(endpoints.Config{Clients: []*rpc.Client{client}, ChainID: s.ChainID(), Idle: true, Timeout: patience / 4})
	must.Do(t, err)
	t.Cleanup(s.pool.Close)
}

// publisher returns a new publisher, like the one of a new process.
func (s *mirrorScene) publisher(atOnce bool) *mirror.Publisher {
	return mirror.NewPublisher(mirror.Config{
		Pool: s.pool, Signer: s.signer, Operator: s.operator, Store: s.journal.st, Lease: s.journal.lease, Tip: big.NewInt(1e6), AtOnce: atOnce,
		Log: slog.New(slog.DiscardHandler),
	})
}

// add stores a closed period with n burns.
func (s *mirrorScene) add(number, n int64) mirror.Closed {
	burns := make([]mirror.Burn, n)
	for i := range burns {
		burns[i] = mirror.Burn{At: time.Unix(3600*number+int64(i), 0), BurnFields: toll.BurnFields{
			Commitment: toll.Hash{byte(number), byte(i), 1}, PlanID: "77", Holder: toll.Address{7}, RequestHash: toll.Hash{8}, Credits: toll.Credits(i + 1),
		}}
	}
	c := mirror.Close(burns, time.Hour, number-1)[0]
	j := s.journal
	must.Do(j.t, j.st.Tx(j.t.Context(), func(tx *store.Tx) error {
		return store.InsertMirrorPeriod(j.t.Context(), tx, &store.MirrorPeriod{
			Period: c.Number, Root: c.Root, Leaves: n, Credits: c.Credits.String(), State: mirror.IsClosed,
		}, nil, nil)
	}))
	return c
}

// run calls Step until the publisher is idle or fails.
func (s *mirrorScene) run(t *testing.T, p *mirror.Publisher) error {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		busy, err := p.Step(t.Context())
		if err != nil || !busy {
			s.latest(t)
			return err
		}
		if time.Now().After(end) {
			t.Fatal("there is always something left to do")
		}
	}
}

// latest waits until the chain has all blocks that the journal names, because a receipt appears before its block is the latest block.
func (s *mirrorScene) latest(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		head := must.Get(s.Eth().BlockNumber(t.Context()))(t)
		if !slices.ContainsFunc(s.journal.all(), func(p *store.MirrorPeriod) bool { return uint64(p.Block) > head }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the head stays at block %d", head)
		}
	}
}

func (s *mirrorScene) anchors(t *testing.T) []types.Log {
	t.Helper()
	s.latest(t)
	logs, err := s.Eth().FilterLogs(t.Context(), ethereum.FilterQuery{FromBlock: new(big.Int), Addresses: []common.Address{s.publisher(true).Contract()}})
	must.Do(t, err)
	return logs
}

func (s *mirrorScene) proof(t *testing.T, c mirror.Closed, i int) *toll.BurnProof {
	t.Helper()
	hashes := make([]toll.Hash, len(c.Leaves))
	for i := range c.Leaves {
		hashes[i] = c.Leaves[i].Leaf()
	}
	levels := mirror.Levels(hashes)
	path := must.Get(mirror.Proof(int64(len(hashes)), int64(i), func(level, i int64) (toll.Hash, error) { return levels[level][i], nil }))(t)
	p := s.journal.of(c.Number)
	return &toll.BurnProof{
		Status: toll.ProofFinal, Period: c.Number, Root: c.Root, Index: int64(i), Leaf: hashes[i], Fields: c.Leaves[i], Proof: path,
		Network: "eip155:84532", Contract: toll.Address(s.publisher(true).Contract()), AnchorTransaction: p.TxHash,
	}
}

// Verify accepts the proof of every leaf, in periods of several sizes, and rejects each proof with a changed field. The contract accepts the
// same leaves.
func TestPublishAndVerify(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, chain *chaintest.Chain) {
		s := newMirrorScene(t, chain)
		var closed []mirror.Closed
		for i, n := range []int64{1, 2, 3, 7} {
			closed = append(closed, s.add(int64(100+3*i), n))
		}
		must.Do(t, s.run(t, s.publisher(true)))
		contract := s.publisher(true).Contract()
		for _, c := range closed {
			for i := range c.Leaves {
				p := s.proof(t, c, i)
				v, err := mirror.Verify(t.Context(), s.pool, p)
				if err != nil {
					t.Fatalf("leaf %d of %d: %v", i, len(c.Leaves), err)
				}
				if v.Operator != toll.Address(s.operator) || v.Leaves != uint64(len(c.Leaves)) || v.Credits.Cmp(c.Credits) != 0 {
					t.Errorf("leaf %d: %+v", i, v)
				}
				proof := make([][32]byte, len(p.Proof))
				for i, h := range p.Proof {
					proof[i] = h
				}
				answer, err := s.Eth().CallContract(t.Context(), ethereum.CallMsg{
					To: &contract, Data: chaintest.Call("check(bytes32,bytes32,bytes32[])", p.Root, p.Leaf, proof),
				}, nil)
				if err != nil || len(answer) != 32 || answer[31] != 1 {
					t.Errorf("the contract does not take leaf %d of %d: %x %v", i, len(c.Leaves), answer, err)
				}
			}
		}
		last := closed[len(closed)-1]
		for name, change := range map[string]func(*toll.BurnProof){
			"credits": func(p *toll.BurnProof) { p.Fields.Credits++ }, "holder": func(p *toll.BurnProof) { p.Fields.Holder[0]++ },
			"leaf": func(p *toll.BurnProof) { p.Leaf[0]++ }, "root": func(p *toll.BurnProof) { p.Root[0]++ }, "period": func(p *toll.BurnProof) { p.Period-- },
			"contract": func(p *toll.BurnProof) { p.Contract = toll.Address(s.operator) },
			"forged": func(p *toll.BurnProof) {
				p.Fields.Credits++
				p.Leaf = p.Fields.Leaf()
				p.Root, p.Proof, p.Index = p.Leaf, nil, p.Fields.Index
			},
			"anchor":    func(p *toll.BurnProof) { p.AnchorTransaction = s.proof(t, closed[0], 0).AnchorTransaction },
			"no anchor": func(p *toll.BurnProof) { p.AnchorTransaction = toll.Hash{1} },
		} {
			p := s.proof(t, last, 2)
			change(p)
			if _, err := mirror.Verify(t.Context(), s.pool, p); err == nil {
				t.Errorf("a proof with another %s holds", name)
			}
		}
	})
}

// After a crash at any write, each period has one root.
func TestCrash(t *testing.T) {
	s := newMirrorScene(t, chaintest.New(t))
	s.add(50, 2)
	must.Do(t, s.run(t, s.publisher(true)))

	s.add(51, 3)
	s.journal.newLease() // the transaction cannot be stored, so it is not sent
	if err := s.run(t, s.publisher(true)); !errors.Is(err, store.ErrLeased) || len(s.anchors(t)) != 1 {
		t.Fatalf("%v, %d roots", err, len(s.anchors(t)))
	}
	s.journal.back()
	must.Do(t, s.run(t, s.publisher(true)))

	// The transaction was sent, but the period is still closed in the database, as after the restore of an older backup.
	s.add(52, 1)
	must.Do(t, s.run(t, s.publisher(true)))
	was := s.journal.of(52)
	s.journal.set(52, "state = $2, tx_hash = NULL, raw = NULL", mirror.IsClosed)
	must.Do(t, s.run(t, s.publisher(true)))
	if now := s.journal.of(52); now.State != mirror.IsFinal || now.TxHash != was.TxHash {
		t.Errorf("found again: %+v, was %+v", now, was)
	}

	// A further period is anchored.
	s.add(53, 1)
	must.Do(t, s.run(t, s.publisher(true)))
	if logs := s.anchors(t); len(logs) != 4 {
		t.Errorf("%d roots for 4 periods", len(logs))
	}
	// The publisher never sends a different root for a period that the chain has.
	root := toll.Hash{9}
	s.journal.set(53, "state = $2, root = $3", mirror.IsClosed, root[:])
	if err := s.run(t, s.publisher(true)); !errors.Is(err, mirror.ErrConflict) {
		t.Errorf("another root: %v", err)
	}
}

// After a reorganization without the transaction, the publisher sends it again.
func TestReorg(t *testing.T) {
	s := newMirrorScene(t, chaintest.New(t))
	s.add(50, 2)
	p := s.publisher(false)
	for s.journal.of(50).State != mirror.IsAnchored {
		must.Get(p.Step(t.Context()))(t)
	}
	was := s.journal.of(50)
	must.Do(t, s.Reorg(1, true))
	if len(s.anchors(t)) != 0 {
		t.Fatal("the root is still there")
	}
	now := was
	for end := time.Now().Add(patience); (now.State != mirror.IsAnchored || now.BlockHash == was.BlockHash) && time.Now().Before(end); {
		must.Get(p.Step(t.Context()))(t)
		time.Sleep(10 * time.Millisecond)
		now = s.journal.of(50)
	}
	if now.State != mirror.IsAnchored || now.TxHash != was.TxHash || now.BlockHash == was.BlockHash || len(s.anchors(t)) != 1 {
		t.Errorf("after the reorganisation: %+v, %d roots", now, len(s.anchors(t)))
	}
}

// After a reorganization without the contract, the publisher deploys it again. Without the contract, a root would cost gas without effect.
func TestReorg_Contract(t *testing.T) {
	s := newMirrorScene(t, chaintest.New(t))
	s.add(50, 2)
	p := s.publisher(true)
	s.journal.newLease()
	if err := s.run(t, p); !errors.Is(err, store.ErrLeased) {
		t.Fatal(err)
	}
	must.Do(t, s.Reorg(1, true))
	if code, err := s.Eth().CodeAt(t.Context(), p.Contract(), nil); err != nil || len(code) > 0 {
		t.Fatalf("the contract is still there: %v", err)
	}
	s.journal.back()
	must.Do(t, s.run(t, p))
	if now := s.journal.of(50); now.State != mirror.IsFinal || len(s.anchors(t)) != 1 {
		t.Errorf("%+v, %d roots", now, len(s.anchors(t)))
	}
	if nonce, err := s.Eth().NonceAt(t.Context(), s.operator, nil); err != nil || nonce != 2 {
		t.Errorf("%d transactions: %v", nonce, err)
	}
}

// The contract accepts periods only in order, and only from its operator.
func TestContract(t *testing.T) {
	s := newMirrorScene(t, chaintest.New(t))
	s.add(50, 1)
	must.Do(t, s.run(t, s.publisher(true)))
	contract := s.publisher(true).Contract()
	call := func(from common.Address, period uint64) string {
		anchor := signer.Anchor{Period: period, Root: common.Hash{1}, Leaves: 1, Credits: big.NewInt(1)}
		_, err := s.Eth().CallContract(t.Context(), ethereum.CallMsg{From: from, To: &contract, Data: anchor.Call()}, nil)
		if err == nil {
			return ""
		}
		var data rpc.DataError
		if !errors.As(err, &data) {
			t.Fatal(err)
		}
		text, _ := data.ErrorData().(string)
		return text
	}
	custom := func(signature string) string { return common.Bytes2Hex(selector(signature)) }
	if got := call(s.operator, 50); !strings.HasPrefix(strings.TrimPrefix(got, "0x"), custom("PeriodNotAfter(uint64)")) {
		t.Errorf("the same period again: %q", got)
	}
	if got := call(common.Address{1}, 51); strings.TrimPrefix(got, "0x") != custom("NotOperator()") {
		t.Errorf("a stranger: %q", got)
	}
	if got := call(s.operator, 51); got != "" {
		t.Errorf("the next period: %q", got)
	}
}
