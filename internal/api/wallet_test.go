package api_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
)

// purses are what a chain shows of accounts, with a faucet.
type purses struct {
	mu   sync.Mutex
	of   map[toll.Address][3]toll.Units // wei, USDC, EURC
	gone bool
}

func newPurses() *purses { return &purses{of: map[toll.Address][3]toll.Units{}} }

func (p *purses) chain() *api.Chain {
	return &api.Chain{
		Contracts: map[string]toll.Address{"EntryPoint": toll.MustAddress("0x0000000071727De22E5E9d8BAf0edAc6f37da032")},
		Balances: func(_ context.Context, a toll.Address) ([]toll.TokenBalance, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.gone {
				return nil, toll.NewError(toll.CodeChainUnreachable)
			}
			has := p.of[a]
			return []toll.TokenBalance{
				{Symbol: "ETH", Decimals: 18, Amount: has[0]}, {Symbol: "USDC", TokenAddress: toll.Sandbox.USDC(), Decimals: 6, Amount: has[1]},
				{Symbol: "EURC", TokenAddress: toll.Sandbox.EURC(), Decimals: 6, Amount: has[2]},
			}, nil
		},
		Faucet: func(_ context.Context, a toll.Address, usdc, eurc, wei toll.Units) (toll.Hash, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			has := p.of[a]
			for i, more := range []toll.Units{wei, usdc, eurc} {
				has[i], _ = has[i].Add(more)
			}
			p.of[a] = has
			return toll.Hash{1}, nil
		},
	}
}

// recordWallet are the routes of the wallet and of the faucet.
func recordWallet(t *testing.T, version string, files map[string][]exchange) {
	s := newStack(t)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op string, who actor, method, path, body string) {
		t.Helper()
		r.call(version, op, who, method, base+path, body)
	}
	call("readWallet", s.s1, "GET", "/wallet", "")
	call("useFaucet", s.s1, "POST", "/sandbox/faucet", `{}`)
	call("useFaucet", s.s1, "POST", "/sandbox/faucet", `{"address":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","usdc":"12.5","eth":"0.000000000000000001"}`)
	call("useFaucet", s.s1, "POST", "/sandbox/faucet", `{"usdc":"0.0000001","eurc":"1e3","eth":"11"}`)
	call("useFaucet", s.s1, "POST", "/sandbox/faucet", `{"address":"0x00"}`)
	call("useFaucet", actor{}, "POST", "/sandbox/faucet", `{}`)
	call("readWallet", s.s1, "GET", "/wallet", "")
	s.purses.gone = true
	call("readWallet", s.s1, "GET", "/wallet", "")
	call("readWallet", actor{}, "GET", "/wallet", "")
	s.purses.gone = false
	call("exportWallet", s.s1, "POST", "/wallet/export", "")
	call("exportWallet", s.s1, "POST", "/wallet/export", "")
	call("readWallet", s.s1, "GET", "/wallet", "")
	call("exportWallet", s.keyWith(s.b1, toll.RightRead, toll.RightKeys), "POST", "/wallet/export", "")
	call("exportWallet", actor{}, "POST", "/wallet/export", "")
}

// The key of a wallet is given out once, to who signed in a moment ago, and is nowhere else afterwards.
func TestWalletIsExportedOnce(t *testing.T) {
	s := newStack(t)
	a := s.do(s.s1, "POST", base+"/wallet/export", "", "Idempotency-Key", "k")
	key := a.text(t, "privateKey")
	if a.status != 200 || len(key) != 66 || a.header.Get("Cache-Control") != "no-store" || a.text(t, "custody") != "shared" {
		t.Fatalf("%d %s", a.status, a.header)
	}
	again := s.do(s.s1, "POST", base+"/wallet/export", "", "Idempotency-Key", "k")
	if again.status != 409 || strings.Contains(string(again.body), key[2:]) {
		t.Errorf("second: %d %s", again.status, again.body)
	}
	var told struct{ Events []toll.Event }
	events := s.do(s.s1, "GET", base+"/events?type=wallet.exported", "")
	must.Do(t, json.Unmarshal(events.body, &told))
	if len(told.Events) != 1 || told.Events[0].Object.ID != s.s1.address.String() || strings.Contains(string(events.body), key[2:]) {
		t.Errorf("events %s", events.body)
	}
	if other := s.do(s.b1, "GET", base+"/events?type=wallet.exported", ""); strings.Contains(string(other.body), "wallet.exported\"") {
		t.Errorf("somebody else hears of it: %s", other.body)
	}
	if strings.Contains(s.log.String(), key[2:]) {
		t.Error("the key is in the log")
	}
}

// TestWalletExport_Keys: what exports the wallet is a key that the operator made, with the right for it. Its age does not count.
func TestWalletExport_Keys(t *testing.T) {
	s := newStack(t)
	keyOf := func(a answer) actor {
		t.Helper()
		if a.status != 201 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return actor{s.b1.address, a.text(t, "key"), toll.Hash{}}
	}
	made := keyOf(s.do(s.b1, "POST", base+"/api-keys", `{}`))
	consent := func(by toll.KeyMaker) actor {
		maker := auth.Maker{Address: s.b1.address, By: by, Parent: toll.NewHash(), Rights: toll.AllRights()}
		k := must.Get(s.auth.CreateKey(t.Context(), maker, auth.KeyParams{}, nil))(t)
		return actor{s.b1.address, k.Key, k.ID}
	}
	for name, who := range map[string]actor{
		"a key that a key made": made, "of a key that a key made": keyOf(s.do(made, "POST", base+"/api-keys", `{}`)),
		"a key of a consent": consent(toll.MadeByGrant), "a key of a sign-in": consent(toll.MadeByUser),
		"a key without the right": s.keyWith(s.b1, toll.RightRead, toll.RightSell, toll.RightSpend, toll.RightManage, toll.RightMoney, toll.RightKeys, toll.RightMembers),
	} {
		a := s.do(who, "POST", base+"/wallet/export", "")
		if a.status != 403 || a.code() != string(toll.CodeRightMissing) || !strings.Contains(a.text(t, "params"), `"right":"export"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := s.do(s.b1, "POST", base+"/api-keys", `{"rights":["read","export"]}`); a.status != 403 || a.code() != string(toll.CodeRightMissing) {
		t.Errorf("a key gives its right to export on: %d %s", a.status, a.body)
	}
	s.clock.advance(1000 * time.Hour)
	if a := s.do(s.b1, "POST", base+"/wallet/export", ""); a.status != 200 {
		t.Errorf("an old key of the operator's: %d %s", a.status, a.body)
	}
}

// Without the embedded chain there is no faucet, and the wallet is known all the same.
func TestWalletWithoutChain(t *testing.T) {
	s := newStack(t)
	built := s.built
	built.Rails.Chain = nil
	server := httptest.NewServer(api.New(built))
	defer server.Close()
	s.url = server.URL
	if a := s.do(s.s1, "POST", base+"/sandbox/faucet", `{}`); a.status != 404 || a.code() != string(toll.CodePathNotFound) {
		t.Errorf("faucet: %d %s", a.status, a.body)
	}
	if a := s.do(s.s1, "GET", base+"/wallet", ""); a.status != 200 || a.text(t, "address") != s.s1.address.String() || len(a.member(t, "balances").([]any)) != 0 {
		t.Errorf("wallet: %d %s", a.status, a.body)
	}
}
