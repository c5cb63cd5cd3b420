package server_test

import (
	"context"
	"errors"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	gethtypes "github.com/ethereum/go-ethereum/core/types"
	ethcrypto "github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

var (
	usdc = contracts.USDC(contracts.BaseSepolia)
	eurc = contracts.EURC(contracts.BaseSepolia)

	topicRun      = ethcrypto.Keccak256Hash([]byte("UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)"))
	topicTransfer = ethcrypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
)

// till looks at the money of a chain.
type till struct {
	*testing.T
	node *ethclient.Client
}

func newTill(t *testing.T, url string) till {
	t.Helper()
	node := must.Get(ethclient.Dial(url))(t)
	t.Cleanup(node.Close)
	return till{t, node}
}

// has returns the balance of an account, of the native token for the zero address.
func (w till) has(account toll.Address, token common.Address) int64 {
	w.Helper()
	if token == (common.Address{}) {
		b := must.Get(w.node.BalanceAt(w.Context(), common.Address(account), nil))(w)
		return b.Int64()
	}
	data := append(ethcrypto.Keccak256([]byte("balanceOf(address)"))[:4], common.LeftPadBytes(account[:], 32)...)
	out := must.Get(w.node.CallContract(w.Context(), ethereum.CallMsg{To: &token, Data: data}, nil))(w)
	return new(big.Int).SetBytes(out).Int64()
}

// transfers counts the transfers of a token from one account to another, with their sum.
func (w till) transfers(token common.Address, from, to toll.Address) (n int, sum int64) {
	w.Helper()
	logs, err := w.node.FilterLogs(w.Context(), ethereum.FilterQuery{FromBlock: new(big.Int), Addresses: []common.Address{token}, Topics: [][]common.Hash{
		{topicTransfer}, {common.BytesToHash(from[:])}, {common.BytesToHash(to[:])},
	}})
	must.Do(w, err)
	for _, l := range logs {
		sum += new(big.Int).SetBytes(l.Data).Int64()
	}
	return len(logs), sum
}

// ran makes sure that a transaction holds an operation of the account that succeeded.
func (w till) ran(tx string, sender toll.Address) {
	w.Helper()
	receipt, err := w.node.TransactionReceipt(w.Context(), common.HexToHash(tx))
	if err != nil {
		w.Fatalf("transaction %q: %v", tx, err)
	}
	for _, l := range receipt.Logs {
		if l.Address == contracts.EntryPoint && l.Topics[0] == topicRun && l.Topics[2] == common.BytesToHash(sender[:]) && l.Data[63] == 1 {
			return
		}
	}
	w.Errorf("transaction %s holds no operation of %s that succeeded", tx, sender)
}

// bazaar is a running service whose plans are paid on a chain that the test sees.
type bazaar struct {
	till
	cfg     server.Config
	server  *server.Server
	url     string
	store   *store.Store
	builder *client.Client
	hasty   *client.Client // the builder, who repeats nothing by itself
	owner   toll.Address
	service toll.Address      // delegate of all delegations
	public  *chaintest.Chain  // nil: the chain is in the service
	double  *chaintest.Double // before public
}

// embeddedBazaar has its chain inside.
func embeddedBazaar(t *testing.T, change ...func(*server.Config)) *bazaar {
	t.Helper()
	m := &bazaar{cfg: server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{HTTP: "127.0.0.1:0"}}}}
	for _, f := range change {
		f(&m.cfg)
	}
	m.server, m.url = start(t, m.cfg)
	eventually(t, "the chain is there", func() bool { return m.server.Chain().URL() != "" })
	m.till = newTill(t, m.server.Chain().URL())
	return m.open()
}

// publicBazaar reaches its chain through a double.
func publicBazaar(t *testing.T, public *chaintest.Chain, change ...func(*server.Config)) *bazaar {
	t.Helper()
	m := &bazaar{public: public, double: chaintest.NewDouble(t, public.Client()), till: till{t, public.Eth()}}
	m.cfg = outside(m.double.URL)
	m.cfg.Data = storetest.Dir(t)
	for _, f := range change {
		f(&m.cfg)
	}
	m.server, m.url = start(t, m.cfg)
	fuel(t, rows(t, m.cfg), public)
	return m.open()
}

func (m *bazaar) open() *bazaar {
	m.Helper()
	m.store = rows(m.T, m.cfg)
	k := keyOf(m.T, m.server, server.KeyRequest{Account: "builder"})
	m.builder, m.owner = client.New(k.Key, client.WithURL(m.url), servertest.Patient), k.Address
	m.hasty = client.New(k.Key, client.WithURL(m.url), client.WithRetries(0))
	m.service = serviceAccount(m.T, m.store)
	plan, first := m.dollar(m.owner), m.buyer("first", 1_000_000)
	once := client.WithIdempotencyKey(m.Context(), "first") // the order of a call that failed may be paid before it is repeated
	eventually(m.T, "the chain can be used", func() bool {
		_, err := first.OrderPlan(once, plan)
		return err == nil
	})
	return m
}

func serviceAccount(t *testing.T, st *store.Store) toll.Address {
	t.Helper()
	all := must.Get(store.ChainKeys(t.Context(), st))(t)
	for _, k := range all {
		if k.Role == "service" {
			return k.Address
		}
	}
	t.Fatal("the service has no account")
	return toll.Address{}
}

// give makes base units of a token, or wei.
func (m *bazaar) give(to toll.Address, token common.Address, amount int64) {
	m.Helper()
	if m.public == nil {
		member, decimals := map[common.Address]string{usdc: "usdc", eurc: "eurc", {}: "eth"}[token], 6
		if member == "eth" {
			decimals = 18
		}
		body := map[string]string{"address": to.String(), member: toll.FormatAmount(toll.UnitsOf(amount), decimals)}
		must.Do(m, m.builder.Call(m.Context(), http.MethodPost, "/api/v1/sandbox/faucet", nil, body, nil))
		return
	}
	var err error
	if token == (common.Address{}) {
		_, err = m.public.Fund(m.Context(), common.Address(to), big.NewInt(amount))
	} else {
		_, err = m.public.Mint(m.Context(), token, common.Address(to), big.NewInt(amount))
	}
	must.Do(m, err)
}

// buyer is a customer of a bazaar.
type buyer struct {
	*client.Client
	toll.Address
	m     *bazaar
	hasty *client.Client // who repeats nothing by itself
}

// buyer makes one with base units of USDC.
func (m *bazaar) buyer(name string, units int64) *buyer {
	m.Helper()
	k := keyOf(m.T, m.server, server.KeyRequest{Account: name})
	if units > 0 {
		m.give(k.Address, usdc, units)
	}
	return &buyer{client.New(k.Key, client.WithURL(m.url), servertest.Patient), k.Address, m, client.New(k.Key, client.WithURL(m.url), client.WithRetries(0))}
}

func (m *bazaar) plan(price toll.Price, credits toll.CreditsConfig) toll.PlanID {
	m.Helper()
	r, err := m.builder.RegisterPlan(m.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Plan"}, Price: price, Credits: credits})
	must.Do(m, err)
	return r.PlanID
}

// dollar is a plan of 100 credits for 1 USDC to one receiver.
func (m *bazaar) dollar(to toll.Address) toll.PlanID {
	return m.plan(price(usdc, 1_000_000, to), toll.CreditsDynamic(100, 1, 100))
}

// price is one of amounts, each of them followed by who receives it.
func price(token common.Address, shares ...any) toll.Price {
	p := toll.Price{TokenAddress: toll.Address(token), IsCrypto: true}
	for i := 0; i < len(shares); i += 2 {
		p.Amounts = append(p.Amounts, toll.UnitsOf(int64(shares[i].(int))))
		p.Receivers = append(p.Receivers, shares[i+1].(toll.Address))
	}
	return p
}

// receiver is an account that nobody has used.
func receiver(n byte) toll.Address { return toll.Address{0xbe, 0xef, 19: n} }

// buys orders a plan, which must be paid, and compares the record with the chain.
func (b *buyer) buys(plan toll.PlanID, opts ...client.OrderOption) *toll.Order {
	b.m.Helper()
	o, err := b.OrderPlan(b.m.Context(), plan, opts...)
	if err == nil && o.HTTPStatus == http.StatusAccepted {
		o, err = b.WaitOrder(b.m.Context(), o.OrderID)
	}
	if err != nil || !isPaid(o.Status) {
		b.m.Fatalf("order: %+v, %v", o, err)
	}
	b.m.recorded(b, o, o.TxHash)
	return o
}

func isPaid(s toll.OrderStatus) bool { return s == toll.OrderConfirmed || s == toll.OrderFinal }

// recorded makes sure that an order can be read as it was answered, paid by a transaction.
func (m *bazaar) recorded(b *buyer, o *toll.Order, tx string) {
	m.Helper()
	r, err := b.Order(m.Context(), o.OrderID)
	if err != nil || !isPaid(r.Status) || r.TxHash != tx || r.PlanID != o.PlanID || r.Amount.Cmp(o.Amount) != 0 || r.Currency != o.Currency || r.CreditsGranted != o.CreditsGranted {
		m.Errorf("the record of %+v is %+v, %v", o, r, err)
	}
}

func (b *buyer) credits(plan toll.PlanID) *toll.Balance {
	b.m.Helper()
	return must.Get(b.Balance(b.m.Context(), plan))(b.m)
}

// limit makes a delegation of so many cents.
func (b *buyer) limit(currency string, cents toll.Cents, change ...func(*client.DelegationParams)) string {
	b.m.Helper()
	p := client.DelegationParams{Provider: toll.ProviderCrypto, SpendingLimit: cents, Lifetime: time.Hour, Currency: currency}
	for _, f := range change {
		f(&p)
	}
	d := must.Get(b.CreateDelegation(b.m.Context(), p))(b.m)
	return d.DelegationID
}

// budget compares what is spent of a delegation, and by how many orders.
func (b *buyer) budget(id string, spent toll.Cents, orders int64) {
	b.m.Helper()
	d, err := b.Delegation(b.m.Context(), id)
	if err != nil || d.AmountSpentCents != spent || d.TransactionCount != orders {
		b.m.Errorf("delegation: %+v, %v, want %d cents spent in %d orders", d, err, spent, orders)
	}
}

// access is an access token for a plan, which a delegation tops up unless it is "".
func (b *buyer) access(plan toll.PlanID, delegation string) string {
	b.m.Helper()
	var opts []client.TokenOption
	if delegation != "" {
		opts = append(opts, client.WithDelegation(delegation))
	}
	tok := must.Get(b.AccessToken(b.m.Context(), plan, opts...))(b.m)
	return tok.AccessToken
}

func accepts(plan toll.PlanID) x402.PaymentRequired {
	return x402.PaymentRequired{X402Version: 2, Resource: x402.Resource{URL: "/ask"}, Accepts: []x402.Requirements{{
		Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PlanID: string(plan),
	}}}
}

func settlement(plan toll.PlanID, token, id string, n toll.Credits) *x402.SettleRequest {
	return &x402.SettleRequest{PaymentRequired: accepts(plan), AccessToken: token, AgentRequestID: id, MaxAmount: n.Ptr()}
}

// settled settles, which must succeed, be it after a while.
func settled(t *testing.T, c *client.Client, req *x402.SettleRequest) *x402.SettleResponse {
	t.Helper()
	r, err := c.Settle(t.Context(), req)
	for end := time.Now().Add(patience); again(r, err) && req.AgentRequestID != "" && time.Now().Before(end); {
		r, err = c.Settle(t.Context(), req)
	}
	if err != nil || !r.Success {
		t.Fatalf("settle: %+v, %v", r, err)
	}
	return r
}

// audited proves the books of orders and credits of a service that runs.
func (m *bazaar) audited() {
	m.Helper()
	problems, err := store.AuditOrders(m.Context(), m.store)
	if err != nil || len(problems) > 0 {
		m.Errorf("%v, %v", problems, err)
	}
	found, err := server.LedgerOf(m.server).Audit(m.Context())
	if err != nil || len(found) > 0 {
		m.Errorf("%v, %v", found, err)
	}
}

// nonces makes sure that the transactions of the relayers use up their nonces without a gap, and returns how many there are.
func (w till) nonces(st *store.Store) (n int64) {
	w.Helper()
	relayers := must.Get(store.ChainKeys(w.Context(), st))(w)
	for _, k := range relayers {
		if k.Role != "relayer" {
			continue
		}
		next := must.Get(w.node.NonceAt(w.Context(), common.Address(k.Address), nil))(w)
		txs := must.Get(store.ChainTxsFrom(w.Context(), st, k.Address, 0))(w)
		landed := map[int64]int{}
		for _, tx := range txs {
			receipt, err := w.node.TransactionReceipt(w.Context(), common.Hash(tx.Hash))
			if errors.Is(err, ethereum.NotFound) {
				continue
			}
			if err != nil || receipt.Status != gethtypes.ReceiptStatusSuccessful {
				w.Errorf("transaction %d of %s: %+v, %v", tx.Nonce, k.Address, receipt, err)
			}
			landed[tx.Nonce]++
		}
		for i := range int64(next) {
			if landed[i] != 1 {
				w.Errorf("nonce %d of %s is used by %d of the transactions that are stored", i, k.Address, landed[i])
			}
		}
		n += int64(next)
	}
	return n
}

// background runs f again and again until the returned function is called.
func background(t *testing.T, f func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f(ctx)
		}
	}()
	return func() { cancel(); <-done }
}

// in is the bazaar as a subtest sees it.
func (m *bazaar) in(t *testing.T) *bazaar {
	sub := *m
	sub.T = t
	return &sub
}
