package signer_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// vault holds keys under a mask, so that no key is in memory but those that it hands out. It keeps what it handed out.
type vault struct {
	mu     sync.Mutex
	masked map[common.Address][]byte
	given  [][]byte
	fail   error
}

func mask(key []byte) []byte {
	out := make([]byte, len(key))
	for i, b := range key {
		out[i] = b ^ 0xa5
	}
	return out
}

// add takes a key and zeroes it.
func (v *vault) add(key []byte) common.Address {
	k := secp256k1.PrivKeyFromBytes(key)
	defer k.Zero()
	account := common.BytesToAddress(crypto.Keccak256(k.PubKey().SerializeUncompressed()[1:]))
	if v.masked == nil {
		v.masked = map[common.Address][]byte{}
	}
	v.masked[account] = mask(key)
	clear(key)
	return account
}

func (v *vault) Open(_ context.Context, account common.Address) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fail != nil {
		return nil, v.fail
	}
	m, ok := v.masked[account]
	if !ok {
		return nil, signer.ErrNoKey
	}
	key := mask(m)
	v.given = append(v.given, key)
	return key, nil
}

// bench is a signer with all that it needs.
type bench struct {
	*signer.Signer
	keys                                   *vault
	log                                    *bytes.Buffer
	now                                    time.Time
	subscriber, service, relayer, operator common.Address
	usdc                                   common.Address
}

var receiver = common.HexToAddress("0x1111111111111111111111111111111111111111")

func newBench(t testing.TB, change func(*signer.Config)) *bench {
	t.Helper()
	return newBenchOf(t, func(account byte) []byte { return bytes.Repeat([]byte{account}, 32) }, change)
}

func newBenchOf(t testing.TB, key func(account byte) []byte, change func(*signer.Config)) *bench {
	t.Helper()
	b := &bench{keys: &vault{}, log: &bytes.Buffer{}, now: time.Unix(1_790_000_000, 0), usdc: contracts.USDC(contracts.BaseSepolia)}
	b.subscriber, b.service, b.relayer, b.operator = b.keys.add(key(1)), b.keys.add(key(2)), b.keys.add(key(3)), b.keys.add(key(4))
	c := signer.Config{
		ChainID: big.NewInt(contracts.BaseSepolia), Keys: b.keys, Service: b.service, Relayers: []common.Address{b.relayer}, Mirror: b.operator,
		Clock: func() time.Time { return b.now }, Log: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&c)
	}
	var err error
	if b.Signer, err = signer.New(c); err != nil {
		t.Fatal(err)
	}
	return b
}

// direct is a request for an order of one dollar.
func (b *bench) direct(id string) signer.Order {
	return signer.Order{
		OrderID: id, Sender: b.subscriber, Token: b.usdc, Transfers: []userop.Transfer{{To: receiver, Amount: big.NewInt(1_000_000)}},
		Total: big.NewInt(1_000_000), Cents: 100, CallGas: 200_000,
	}
}

func (b *bench) terms() userop.Terms {
	return userop.Terms{
		ID: "00000000-0000-4000-8000-000000000001", Delegate: b.service, Delegator: b.subscriber, Token: b.usdc,
		Limit: big.NewInt(10_000_000), Before: 1893456000,
	}
}

// delegated is a request for the same order, paid by a delegation.
func (b *bench) delegated(t testing.TB, id string, d *userop.Delegation) signer.Order {
	t.Helper()
	signed := must.Get(b.Delegation(t.Context(), signer.Delegation{Delegation: d}))(t)
	o := b.direct(id)
	o.Sender, o.Delegation = b.service, signed
	return o
}

func (b *bench) transaction(ops ...*userop.Operation) signer.RelayerTx {
	return signer.RelayerTx{Relayer: b.relayer, Nonce: 7, Ops: ops, Gas: 500_000, Tip: big.NewInt(1), FeeCap: big.NewInt(11)}
}

// operation is a signed one.
func (b *bench) operation(t testing.TB) *userop.Operation {
	t.Helper()
	return must.Get(b.Order(t.Context(), b.direct("order-1")))(t)
}

func TestVectors(t *testing.T) {
	b := newBench(t, nil)
	op := b.operation(t)
	d := must.Get(b.Delegation(t.Context(), signer.Delegation{Delegation: userop.NewDelegation(b.terms())}))(t)
	a := must.Get(b.Authorization(t.Context(), signer.Authorization{Account: b.subscriber}))(t)
	for name, v := range map[string]struct{ got, want string }{
		"subscriber":           {b.subscriber.Hex(), "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1"},
		"service":              {b.service.Hex(), "0x5050A4F4b3f9338C3472dcC01A87C76A144b3c9c"},
		"userOpHash":           {op.Hash(big.NewInt(84532)).Hex(), "0x5c80ed947d82d41fff31354f180b3952000024aea3462eb32b2bc965d7906987"},
		"operation signature":  {hex.EncodeToString(op.Signature), "c3c4345b415f7550ee6911673bfbedffe63a35cdb1358ecfc7f52d4d18360d3b62437ba229b5ab7f443f1ff98cd3789fb2a20bf6330adfd6cc00e87379e394a61c"},
		"delegation signature": {hex.EncodeToString(d.Signature), "14e6248266f00e1c530c70e304af539a473a98a0e579fe53bbe63aba0606e0b103fd95b4490d117e08d1e60bb9778173ed974377123cf677ae0608d50de2c9b91c"},
		"authorization r":      {a.R.Hex(), "0x104a1733aca5060eccc982e2fb7e27476aa53382ac9c6325c961003ab1310930"},
		"authorization s":      {a.S.Hex(), "0x55e15e7b74ae79833163d78f24157d09f836b0f10cbe02b92273a23c1a05e9c0"},
	} {
		if v.got != v.want {
			t.Errorf("%s: %s, want %s", name, v.got, v.want)
		}
	}
	if a.V != 1 || a.ChainID.Uint64() != 84532 || a.Address != contracts.AccountCode || a.Nonce != 0 {
		t.Errorf("%+v", a)
	}
	if by, err := a.Authority(); err != nil || by != b.subscriber {
		t.Errorf("the authority is %s, %v", by, err)
	}
}

// What each request gives, and that the same request gives it again byte for byte.
func TestRequests(t *testing.T) {
	b := newBench(t, nil)
	chain := big.NewInt(contracts.BaseSepolia)
	signedBy := func(name string, op *userop.Operation, account common.Address, key [24]byte) {
		t.Helper()
		if by, err := evm.Recover(op.SigningHash(chain), op.Signature); err != nil || common.Address(by) != account || op.Sender != account {
			t.Errorf("%s of %s is signed by %s, %v", name, op.Sender, by, err)
		}
		if userop.KeyOf(op.Nonce) != key || op.Nonce.Cmp(userop.Nonce(key)) != 0 {
			t.Errorf("%s has the nonce %x", name, op.Nonce)
		}
		if op.PreVerificationGas.Sign() != 0 || op.GasFees != [32]byte{} || len(op.InitCode)+len(op.PaymasterAndData) != 0 {
			t.Errorf("%s costs fees", name)
		}
	}
	d := userop.NewDelegation(b.terms())
	request := b.delegated(t, "order-2", d)
	request.VerificationGas = 60_000
	order := must.Get(b.Order(t.Context(), request))(t)
	signedBy("the order", order, b.service, userop.OrderKey("order-2"))
	if want, _ := userop.DelegatedCall(b.usdc, request.Transfers, request.Delegation); !bytes.Equal(order.CallData, want) {
		t.Errorf("the order does %x", order.CallData)
	}
	if verification, call := order.Gas(); verification != 60_000 || call != 200_000 {
		t.Errorf("the order has %d and %d gas", verification, call)
	}
	void := must.Get(b.Void(t.Context(), signer.Void{OrderID: "order-2", Sender: b.service, CallGas: 50_000}))(t)
	signedBy("the void", void, b.service, userop.VoidKey("order-2"))
	if !bytes.Equal(void.CallData, userop.VoidCall(userop.OrderKey("order-2"))) {
		t.Errorf("the void does %x", void.CallData)
	}
	revoke := must.Get(b.Revoke(t.Context(), signer.Revoke{DelegationID: b.terms().ID, Delegation: d, CallGas: 50_000}))(t)
	signedBy("the revocation", revoke, b.subscriber, userop.RevokeKey(b.terms().ID, 0))
	if !bytes.Equal(revoke.CallData, userop.RevokeCall(*d)) {
		t.Errorf("the revocation does %x", revoke.CallData)
	}

	again := newBench(t, nil)
	second, err := again.Order(t.Context(), request)
	if err != nil || !bytes.Equal(second.Signature, order.Signature) {
		t.Errorf("another signature for the same request: %x, %v", second.Signature, err)
	}
}

func TestTransactions(t *testing.T) {
	b := newBench(t, nil)
	op := b.operation(t)
	plain := b.transaction(op)
	install := plain
	a := must.Get(b.Authorization(t.Context(), signer.Authorization{Account: b.subscriber, Nonce: 3}))(t)
	install.Authorizations = []types.SetCodeAuthorization{a}
	fill := signer.Fill{Relayer: b.relayer, Nonce: 7, Tip: big.NewInt(1), FeeCap: big.NewInt(11)}
	for name, v := range map[string]struct {
		make func() (*types.Transaction, error)
		kind uint8
		to   common.Address
		data []byte
		gas  uint64
	}{
		"operations":         {func() (*types.Transaction, error) { return b.RelayerTx(t.Context(), plain) }, types.DynamicFeeTxType, contracts.EntryPoint, userop.HandleOps(plain.Ops, b.relayer), 500_000},
		"with authorization": {func() (*types.Transaction, error) { return b.RelayerTx(t.Context(), install) }, types.SetCodeTxType, contracts.EntryPoint, userop.HandleOps(plain.Ops, b.relayer), 500_000},
		"fill":               {func() (*types.Transaction, error) { return b.Fill(t.Context(), fill) }, types.DynamicFeeTxType, b.relayer, nil, 21_000},
	} {
		tx, err := v.make()
		if err != nil {
			t.Fatal(name, err)
		}
		if tx.Type() != v.kind || *tx.To() != v.to || tx.Value().Sign() != 0 || !bytes.Equal(tx.Data(), v.data) || tx.Gas() != v.gas || tx.Nonce() != 7 ||
			tx.GasTipCap().Int64() != 1 || tx.GasFeeCap().Int64() != 11 || tx.ChainId().Int64() != contracts.BaseSepolia || len(tx.AccessList()) != 0 {
			t.Errorf("%s: type %d to %s, value %s, gas %d, %x", name, tx.Type(), tx.To(), tx.Value(), tx.Gas(), tx.Data())
		}
		if from, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx); err != nil || from != b.relayer {
			t.Errorf("%s is sent by %s, %v", name, from, err)
		}
		again, err := v.make()
		if err != nil || again.Hash() != tx.Hash() {
			t.Errorf("%s: another signature for the same request: %v", name, err)
		}
		if name == "with authorization" && !reflect.DeepEqual(tx.SetCodeAuthorizations(), install.Authorizations) {
			t.Errorf("%s: %v", name, tx.SetCodeAuthorizations())
		}
	}
}

func TestNew_Refuses(t *testing.T) {
	good := func() signer.Config {
		return signer.Config{
			ChainID: big.NewInt(1), Keys: &vault{}, Service: common.Address{1}, Relayers: []common.Address{{2}},
			Clock: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
	}
	must.Get(signer.New(good()))(t)
	for name, change := range map[string]func(*signer.Config){
		"no chain id":              func(c *signer.Config) { c.ChainID = nil },
		"chain id 0":               func(c *signer.Config) { c.ChainID = new(big.Int) },
		"negative chain id":        func(c *signer.Config) { c.ChainID = big.NewInt(-1) },
		"no keys":                  func(c *signer.Config) { c.Keys = nil },
		"no clock":                 func(c *signer.Config) { c.Clock = nil },
		"no log":                   func(c *signer.Config) { c.Log = nil },
		"no service":               func(c *signer.Config) { c.Service = common.Address{} },
		"relayer without address":  func(c *signer.Config) { c.Relayers = []common.Address{{}} },
		"the service is a relayer": func(c *signer.Config) { c.Relayers = []common.Address{c.Service} },
		"the operator of the mirror is a relayer":   func(c *signer.Config) { c.Mirror = c.Relayers[0] },
		"the operator of the mirror is the service": func(c *signer.Config) { c.Mirror = c.Service },
		"negative cap": func(c *signer.Config) { c.HourlyCents = -1 },
	} {
		c := good()
		change(&c)
		if s, err := signer.New(c); err == nil || s != nil {
			t.Errorf("%s: a signer", name)
		}
	}
}

// The chain id is the signer's, whatever its maker does with the number afterwards.
func TestNew_KeepsItsChain(t *testing.T) {
	id := big.NewInt(contracts.BaseSepolia)
	b := newBench(t, func(c *signer.Config) { c.ChainID = id })
	id.SetInt64(0)
	a, err := b.Authorization(t.Context(), signer.Authorization{Account: b.subscriber})
	if err != nil || a.ChainID.Uint64() != contracts.BaseSepolia {
		t.Errorf("chain id %s, %v", &a.ChainID, err)
	}
}

func TestKeys(t *testing.T) {
	stranger := common.Address{9}
	order := big.NewInt(0)
	order.SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	for name, v := range map[string]struct {
		stored []byte // for the subscriber
		alarm  bool
	}{
		"key of another account": {bytes.Repeat([]byte{2}, 32), true},
		"short":                  {bytes.Repeat([]byte{1}, 31), true},
		"long":                   {bytes.Repeat([]byte{1}, 33), true},
		"nothing":                {[]byte{}, true},
		"zero":                   {make([]byte, 32), true},
		"order of the curve":     {order.Bytes(), true},
	} {
		b := newBench(t, nil)
		b.keys.masked[b.subscriber] = mask(v.stored)
		op, err := b.Order(t.Context(), b.direct("order-1"))
		if err == nil || op != nil {
			t.Errorf("%s: signed", name)
		}
		if got := strings.Contains(b.log.String(), "alarm"); got != v.alarm {
			t.Errorf("%s: alarm %t", name, got)
		}
		clean(t, b, v.stored)
	}
	b := newBench(t, nil)
	request := b.direct("order-1")
	request.Sender = stranger
	if _, err := b.Order(t.Context(), request); !errors.Is(err, signer.ErrNoKey) {
		t.Errorf("no key: %v", err)
	}
	// An order that could not be signed is not remembered: another content may come.
	request = b.direct("order-1")
	if _, err := b.Order(t.Context(), request); err != nil {
		t.Errorf("after an attempt without a key: %v", err)
	}
	b.keys.fail = errors.New("the database is away")
	if _, err := b.Void(t.Context(), signer.Void{OrderID: "order-1", Sender: b.subscriber}); !errors.Is(err, b.keys.fail) {
		t.Errorf("no database: %v", err)
	}
}

// clean reports key bytes that were not zeroed or that are in the log.
func clean(t *testing.T, b *bench, key []byte) {
	t.Helper()
	for _, given := range b.keys.given {
		if !bytes.Equal(given, make([]byte, len(given))) {
			t.Errorf("a key was not zeroed")
		}
	}
	if len(key) > 8 && strings.Contains(strings.ToLower(b.log.String()), hex.EncodeToString(key[:8])) {
		t.Errorf("a key is in the log: %s", b.log)
	}
}
