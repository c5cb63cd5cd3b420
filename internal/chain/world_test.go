package chain_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	usdc = contracts.USDC(contracts.BaseSepolia)
	eurc = contracts.EURC(contracts.BaseSepolia)
	wei  = common.Address{} // the native token
)

// world is a chain with the accounts and the memory of one service. Rails that share a world are processes of it.
type world struct {
	testing.TB
	*chaintest.Chain

	keys    chaintest.Keys
	records *chain.Records
	books   *books
	service common.Address
	relayer common.Address
	sends   sync.Mutex // of send, by the stranger
	outside common.Address
}

// newWorld returns the world on a chain. The relayer and an account of nobody have gas money.
func newWorld(t testing.TB, c *chaintest.Chain) *world {
	t.Helper()
	w := &world{TB: t, Chain: c, books: newBooks()}
	w.forget()
	w.service, w.relayer, w.outside = w.keys.New(t), w.keys.New(t), w.keys.New(t)
	for _, a := range []common.Address{w.relayer, w.outside} {
		must.Get(c.Fund(t.Context(), a, new(big.Int).Mul(big.NewInt(10), big.NewInt(1e18))))(t)
	}
	return w
}

// forget gives the service an empty database. Rails that are there keep the one before.
func (w *world) forget() {
	w.Helper()
	st, _ := storetest.Open(w.TB, store.SQLite)
	w.records = chain.NewRecords(st)
}

// orphans are the events that nothing explains.
func (w *world) orphans() []chain.Orphan {
	w.Helper()
	return must.Get(w.records.Orphans(w.Context()))(w)
}

// rail is one more process of the service that has not started to send.
func (w *world) rail(change ...func(*chain.Config)) *chain.Rail {
	w.Helper()
	cfg := chain.Config{
		Environment: toll.Sandbox, Embedded: true, Store: w.records.Store, Orders: w.books, Service: w.service, Relayers: []common.Address{w.relayer},
		Clock: w.Now, Log: slog.New(slog.NewTextHandler(w.Output(), nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	cfg.Orders = &orders{sink: cfg.Orders.(sink), store: cfg.Store}
	if cfg.Pool == nil {
		cfg.Pool = w.pool(endpoints.Config{Clients: []*rpc.Client{w.Client()}})
	}
	if cfg.Signer == nil {
		cfg.Signer = w.signer(signer.Config{})
	}
	return must.Get(chain.New(cfg))(w)
}

// pool is a set of endpoints with long time-outs, so that a slow machine does not close any of them. It
// fails the test when they are asked inside a transaction.
func (w *world) pool(cfg endpoints.Config) *endpoints.Pool {
	w.Helper()
	cfg.ChainID, cfg.Idle = w.ChainID(), true
	cfg.Clock = func() time.Time { // read with every request
		if storetest.InTransaction() {
			w.Error("an endpoint is asked inside a transaction")
		}
		return w.Now()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = unhurried
	}
	p := must.Get(endpoints.New(cfg))(w)
	w.Cleanup(p.Close)
	return p
}

func (w *world) signer(cfg signer.Config) *signer.Signer {
	w.Helper()
	cfg.ChainID, cfg.Keys, cfg.Service, cfg.Relayers = w.chainID(), &w.keys, w.service, []common.Address{w.relayer}
	cfg.Clock, cfg.Log = w.Now, slog.New(slog.NewTextHandler(w.Output(), nil))
	return must.Get(signer.New(cfg))(w)
}

func (w *world) chainID() *big.Int { return new(big.Int).SetUint64(w.ChainID()) }

// running is a rail that sends, until the test ends.
func (w *world) running(change ...func(*chain.Config)) *chain.Rail {
	w.Helper()
	r := w.rail(change...)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		must.Check(w, <-done, "Run")
	})
	return r
}

// account is a new account whose key the service holds, with this many base units of tokens.
func (w *world) account(money ...any) common.Address {
	w.Helper()
	a := w.keys.New(w)
	w.give(a, money...)
	return a
}

// give gives pairs of a token and base units.
func (w *world) give(a common.Address, money ...any) {
	w.Helper()
	for i := 0; i < len(money); i += 2 {
		token, amount := money[i].(common.Address), big.NewInt(int64(money[i+1].(int)))
		var err error
		if token == wei {
			_, err = w.Fund(w.Context(), a, amount)
		} else {
			_, err = w.Mint(w.Context(), token, a, amount)
		}
		must.Do(w, err)
	}
}

// balance is what an account has, base units.
func (w *world) balance(token, a common.Address) int64 {
	w.Helper()
	if token == wei {
		n := must.Get(w.Eth().BalanceAt(w.Context(), a, nil))(w)
		return n.Int64()
	}
	data := append(common.FromHex("0x70a08231"), common.LeftPadBytes(a[:], 32)...)
	out := must.Get(w.Eth().CallContract(w.Context(), ethereum.CallMsg{To: &token, Data: data}, nil))(w)
	return new(big.Int).SetBytes(out).Int64()
}

// has fails the test unless the balances are these: triples of an account, a token and base units.
func (w *world) has(want ...any) {
	w.Helper()
	for i := 0; i < len(want); i += 3 {
		a, token, n := want[i].(common.Address), want[i+1].(common.Address), int64(want[i+2].(int))
		if got := w.balance(token, a); got != n {
			w.Errorf("account %s has %d of %s, want %d", a, got, token, n)
		}
	}
}

// patience is how long a test waits for what has to come. A slow machine that is busy needs some of it, a quick one none.
const patience = 2 * time.Minute

// pay pays an order that is decided in time.
func (w *world) pay(r *chain.Rail, p rail.Purchase) rail.Payment {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	o, err := r.Pay(ctx, p)
	must.Do(w, err, "Pay")
	return o
}

// paid fails the test unless the order is paid.
func (w *world) paid(r *chain.Rail, p rail.Purchase) common.Hash {
	w.Helper()
	o := w.pay(r, p)
	if o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
		w.Fatalf("the order is %s (%+v), want it paid", o.Status, o)
	}
	if o.TxHash == "" {
		w.Fatal("a paid order has no transaction")
	}
	return common.HexToHash(o.TxHash)
}

// fails fails the test unless the order has failed with this code, and returns the failure.
func (w *world) fails(r *chain.Rail, p rail.Purchase, code toll.Code) rail.Payment {
	w.Helper()
	o := w.pay(r, p)
	if o.Status != toll.OrderFailed || o.FailureCode != code {
		w.Fatalf("the order is %s (%+v), want it failed with %s", o.Status, o, code)
	}
	return o
}

// account is that of the orders of all tests.
var account = [16]byte{1}

// purchase is a new order: pairs of a receiver and base units.
func purchase(from, token common.Address, to ...any) rail.Purchase {
	p := rail.Purchase{OrderID: toll.NewUUID(), Account: account, Subscriber: toll.Address(from), Token: toll.Address(token)}
	sum := int64(0)
	for i := 0; i < len(to); i += 2 {
		n := int64(to[i+1].(int))
		p.Receivers, p.Amounts = append(p.Receivers, toll.Address(to[i].(common.Address))), append(p.Amounts, toll.UnitsOf(n))
		sum += n
	}
	p.Total = toll.UnitsOf(sum)
	return p
}

// oneOrder returns a world with an account of 3 USDC and an order that pays 1 of them. Rails that run with change report to the sink.
func oneOrder(t testing.TB) (w *world, sink *ledger, change func(*chain.Config), owner common.Address, p rail.Purchase) {
	t.Helper()
	w = newWorld(t, chaintest.New(t))
	sink = w.ledger()
	owner = w.account(usdc, 3_000_000)
	return w, sink, func(c *chain.Config) { c.Orders = sink }, owner, purchase(owner, usdc, receiver(1), 1_000_000)
}

// by has the order paid with a delegation.
func by(d *rail.Delegation, p rail.Purchase) rail.Purchase {
	p.Delegation = d
	return p
}

// delegation is a new limit in cents on USDC, for a day.
func (w *world) delegation(owner common.Address, cents int64) *rail.Delegation {
	now := w.Now()
	return &rail.Delegation{
		ID: toll.NewUUID(), Owner: toll.Address(owner), Currency: "usdc", LimitCents: cents, CreatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
	}
}

// onChain is the delegation that the account signs, as the design says.
func (w *world) onChain(d *rail.Delegation) *userop.Delegation {
	t := userop.Terms{
		ID: d.ID, Delegate: w.service, Delegator: common.Address(d.Owner), Token: usdc,
		Limit: big.NewInt(d.LimitCents * 10_000), Before: uint64(d.ExpiresAt.Unix()),
	}
	if d.Currency == "eurc" {
		t.Token = eurc
	}
	if !d.OwnerAccount.IsZero() {
		t.Delegator = common.Address(d.OwnerAccount)
	}
	if len(d.AllowedRecipients) == 1 {
		to := common.Address(d.AllowedRecipients[0])
		t.Receiver = &to
	}
	return userop.NewDelegation(t)
}

// signedBy is the delegation with the signature of an account whose key the test holds.
func (w *world) signedBy(a common.Address, d *userop.Delegation) *userop.SignedDelegation {
	return &userop.SignedDelegation{Delegation: *d, Signature: w.keys.Sign(w, a, d.SigningHash(w.chainID()))}
}

// receiver is an address that nobody has used.
func receiver(n int) common.Address {
	return common.BigToAddress(new(big.Int).Add(big.NewInt(0x1000_0000), big.NewInt(int64(n))))
}

// send lets an account of nobody send calldata, after giving accounts without code ours, and returns the receipt.
func (w *world) send(to common.Address, data []byte, needCode ...common.Address) *types.Receipt {
	w.Helper()
	var list []types.SetCodeAuthorization
	for _, a := range needCode {
		n := must.Get(w.Eth().NonceAt(w.Context(), a, nil))(w)
		list = append(list, w.authorization(a, n))
	}
	return w.sendWith(to, data, list...)
}

// sendWith is send with authorizations.
func (w *world) sendWith(to common.Address, data []byte, list ...types.SetCodeAuthorization) *types.Receipt {
	w.Helper()
	w.sends.Lock()
	defer w.sends.Unlock()
	nonce := must.Get(w.Eth().NonceAt(w.Context(), w.outside, nil))(w)
	tx := w.transaction(w.outside, nonce, to, data, list)
	w.eventually("the pool knows of the money, and takes the transaction", func() bool {
		err := w.Eth().SendTransaction(w.Context(), tx)
		if err != nil && !strings.Contains(strings.ToLower(err.Error()), "insufficient funds") {
			w.Fatal(err)
		}
		return err == nil
	})
	return w.receipt(tx.Hash())
}

// arrives brings the transaction of an operation to the chain that endpoints have kept back. Ours, which is sent again after a
// while, may be faster.
func (w *world) arrives(id string) {
	w.Helper()
	tx := must.Get(w.records.TxOf(w.Context(), w.op(id).Tx))(w)
	var kept types.Transaction
	must.Do(w, kept.UnmarshalBinary(tx.Raw))
	_ = w.Eth().SendTransaction(w.Context(), &kept)
}

// receipt waits for a transaction, and for the head: a receipt can be seen before its block is the latest.
func (w *world) receipt(tx common.Hash) *types.Receipt {
	w.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if r, err := w.Eth().TransactionReceipt(w.Context(), tx); err == nil {
			if head, err := w.Eth().BlockNumber(w.Context()); err == nil && head >= r.BlockNumber.Uint64() {
				return r
			}
		}
	}
	w.Fatalf("transaction %s is not mined", tx)
	return nil
}

// sink hears what decides orders, just before it is committed. Tests give one as [chain.Config.Orders].
type sink interface {
	rail.Orders
	refuses(id string, out rail.Outcome) error // why an order does not take an outcome
	Paid(id string, tx common.Hash)
	Failed(id string, f chain.Failure)
	Final(id string)
	Yielded(id string)
}

// orders decide orders in transactions of the database of a rail, and tell a sink.
type orders struct {
	sink
	store *store.Store
}

func (o *orders) Change(ctx context.Context, of [16]byte, f func(t *rail.Tx) error) error {
	if of != account {
		return fmt.Errorf("there is no account %x", of)
	}
	return o.store.Tx(ctx, func(tx *store.Tx) error {
		decided, yielded := map[string]rail.Outcome{}, []string(nil)
		err := f(rail.NewTx(tx, func(id string, out rail.Outcome) error {
			decided[id] = out
			return o.refuses(id, out)
		}, func(id string) error {
			yielded = append(yielded, id)
			return nil
		}, nil))
		if err != nil {
			return err
		}
		for id, out := range decided {
			o.hear(id, out)
		}
		for _, id := range yielded {
			o.Yielded(id)
		}
		return nil
	})
}

func (o *orders) hear(id string, out rail.Outcome) {
	if out.Status == toll.OrderFailed {
		o.Failed(id, chain.Failure{Code: out.FailureCode, Reason: out.FailureReason, Params: out.Params})
		return
	}
	o.Paid(id, common.HexToHash(out.TxHash))
	if out.Status == toll.OrderFinal {
		o.Final(id)
	}
}

// books are what was decided.
type books struct {
	rail.Orders // not called: see orders

	mu       sync.Mutex
	paid     map[string]common.Hash
	failed   map[string]chain.Failure
	final    map[string]bool
	yielded  map[string]int
	spent    map[string]toll.Units
	disabled map[string]bool
}

func newBooks() *books {
	return &books{
		paid: map[string]common.Hash{}, failed: map[string]chain.Failure{}, final: map[string]bool{}, yielded: map[string]int{}, spent: map[string]toll.Units{},
		disabled: map[string]bool{},
	}
}

func (*books) refuses(string, rail.Outcome) error { return nil }

func (b *books) Paid(id string, tx common.Hash) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid[id] = tx
}

func (b *books) Failed(id string, f chain.Failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[id] = f
}

func (b *books) Final(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final[id] = true
}

func (b *books) Yielded(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.yielded[id]++
}

// yields is how often an order was told to give its place back.
func (b *books) yields(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.yielded[id]
}

func (b *books) Spent(_ context.Context, _ *store.Tx, id string, units toll.Units) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent[id] = units
	return nil
}

func (b *books) Disabled(_ context.Context, _ *store.Tx, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disabled[id] = true
	return nil
}

func (b *books) spentOf(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.spent[id])
}

// authorization gives an account whose key the test holds our code.
func (w *world) authorization(a common.Address, nonce uint64) types.SetCodeAuthorization {
	w.Helper()
	return w.gives(a, contracts.AccountCode, nonce)
}

// gives is an authorization that gives an account whose key the test holds whatever code.
func (w *world) gives(a, code common.Address, nonce uint64) types.SetCodeAuthorization {
	w.Helper()
	auth := types.SetCodeAuthorization{Address: code, Nonce: nonce}
	auth.ChainID.SetFromBig(w.chainID())
	signature := w.keys.Sign(w, a, auth.SigHash())
	auth.V = signature[64] - 27
	auth.R.SetBytes(signature[:32])
	auth.S.SetBytes(signature[32:64])
	return auth
}

// transaction is one of an account whose key the test holds.
func (w *world) transaction(from common.Address, nonce uint64, to common.Address, data []byte, list []types.SetCodeAuthorization) *types.Transaction {
	w.Helper()
	b := must.Get(w.keys.Open(w.Context(), from))(w)
	key := must.Get(crypto.ToECDSA(b))(w)
	var in types.TxData = &types.DynamicFeeTx{
		ChainID: w.chainID(), Nonce: nonce, GasTipCap: big.NewInt(1_000_000), GasFeeCap: big.NewInt(1_000_000_000), Gas: 5_000_000, To: &to, Data: data,
	}
	if len(list) > 0 {
		number := list[0].ChainID.Clone
		in = &types.SetCodeTx{
			ChainID: number(), Nonce: nonce, GasTipCap: number().SetUint64(1_000_000), GasFeeCap: number().SetUint64(1_000_000_000),
			Gas: 5_000_000, To: to, Value: number().Clear(), Data: data, AuthList: list,
		}
	}
	return must.Get(types.SignNewTx(key, types.LatestSignerForChainID(w.chainID()), in))(w)
}
