package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC)
	alice = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	bob   = toll.MustAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")
)

func write(t *testing.T, st *store.Store, f func(tx *store.Tx) error) {
	t.Helper()
	must.Do(t, st.Tx(t.Context(), f))
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func notFound(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestSettings(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		_, err := store.Setting(ctx, st, "issuer")
		notFound(t, err)

		// Many starters: one value wins, and all of them see it.
		var wg sync.WaitGroup
		seen := make([][]byte, 16)
		for i := range seen {
			wg.Go(func() {
				err := st.Tx(ctx, func(tx *store.Tx) (err error) {
					seen[i], err = store.PutSettingIfAbsent(ctx, tx, "issuer", fmt.Appendf(nil, "starter %d", i))
					return err
				})
				must.Check(t, err)
			})
		}
		wg.Wait()
		for _, s := range seen {
			if !bytes.Equal(s, seen[0]) || len(s) == 0 {
				t.Fatalf("starters see %q and %q", seen[0], s)
			}
		}
		write(t, st, func(tx *store.Tx) error { return store.PutSetting(ctx, tx, "issuer", nil) })
		if v := must.Get(store.Setting(ctx, st, "issuer"))(t); len(v) != 0 {
			t.Errorf("replaced value is %q", v)
		}
	})
}

func TestSigningKeys(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		a := store.SigningKey{KID: "b", Public: []byte{1, 0, 2}, Sealed: []byte{0xff}, CreatedAt: noon}
		b := store.SigningKey{KID: "a", Purpose: store.StatementKey, Public: []byte{3}, Sealed: []byte{4}, CreatedAt: noon.Add(time.Microsecond)}
		write(t, st, func(tx *store.Tx) error {
			return errors.Join(store.InsertSigningKey(ctx, tx, b), store.InsertSigningKey(ctx, tx, a))
		})
		end := noon.Add(time.Hour)
		write(t, st, func(tx *store.Tx) error { return store.RetireSigningKey(ctx, tx, "b", end) })
		write(t, st, func(tx *store.Tx) error { return store.RetireSigningKey(ctx, tx, "b", end.Add(time.Hour)) })
		a.RetiredAt = end
		same(t, must.Get(store.SigningKeys(ctx, st))(t), []store.SigningKey{a, b})
		notFound(t, st.Tx(ctx, func(tx *store.Tx) error { return store.RetireSigningKey(ctx, tx, "none", end) }))
	})
}

func TestPrincipals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		p := store.Principal{Address: alice, Name: "Alice", SealedKey: []byte{1, 2}, CreatedAt: noon}
		insert := func(p store.Principal) error {
			return st.Tx(ctx, func(tx *store.Tx) error { return store.InsertPrincipal(ctx, tx, p) })
		}
		must.Do(t, insert(p))
		same(t, must.Get(store.PrincipalByName(ctx, st, "Alice"))(t), p)
		same(t, must.Get(store.PrincipalByAddress(ctx, st, alice))(t), p)
		_, err := store.PrincipalByName(ctx, st, "alice")
		notFound(t, err)
		_, err = store.PrincipalByName(ctx, st, "")
		notFound(t, err)

		if err := insert(store.Principal{Address: bob, Name: "Alice"}); !store.IsUnique(err) {
			t.Errorf("a taken name: %v", err)
		}
		if err := insert(store.Principal{Address: alice}); !store.IsUnique(err) {
			t.Errorf("a taken address: %v", err)
		}
		for _, a := range []toll.Address{bob, {1}} { // unnamed ones do not collide
			must.Check(t, insert(store.Principal{Address: a}))
		}
	})
}

func TestAPIKeys(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		k := store.APIKey{
			ID: toll.NewHash(), Address: alice, Hash: bytes.Repeat([]byte{7}, 32), Name: "ci", Prefix: "sandbox", Tail: "abcdef",
			Version: "1.1", CreatedAt: noon, ExpiresAt: noon.Add(time.Hour), MadeBy: toll.MadeByKey, Parent: toll.NewHash(),
			Rights: toll.Rights{toll.RightSell, toll.RightKeys},
		}
		other := store.APIKey{ID: toll.NewHash(), Address: bob, Hash: []byte{1}, CreatedAt: noon}
		write(t, st, func(tx *store.Tx) error {
			return errors.Join(store.InsertAPIKey(ctx, tx, k), store.InsertAPIKey(ctx, tx, other))
		})
		get := func() store.APIKey { t.Helper(); return must.Get(store.APIKeyByID(ctx, st, k.ID))(t) }
		same(t, get(), k)
		_, err := store.APIKeyByID(ctx, st, toll.NewHash())
		notFound(t, err)

		write(t, st, func(tx *store.Tx) error { return store.UpdateAPIKey(ctx, tx, k.ID, "", "1.0") })
		k.Name, k.Version = "", "1.0"
		write(t, st, func(tx *store.Tx) error { return store.TouchAPIKey(ctx, tx, k.ID, noon.Add(2*time.Minute)) })
		write(t, st, func(tx *store.Tx) error { return store.TouchAPIKey(ctx, tx, k.ID, noon) })
		k.LastUsedAt = noon.Add(2 * time.Minute)
		same(t, get(), k)

		var firsts atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				err := st.Tx(ctx, func(tx *store.Tx) error {
					first, err := store.RevokeAPIKey(ctx, tx, k.ID, noon.Add(time.Duration(i)*time.Second))
					if first {
						firsts.Add(1)
					}
					return err
				})
				must.Check(t, err)
			})
		}
		wg.Wait()
		if firsts.Load() != 1 {
			t.Errorf("%d callers were told that they revoked the key", firsts.Load())
		}
		if get().RevokedAt.IsZero() {
			t.Error("not revoked")
		}
		list := must.Get(store.APIKeys(ctx, st, alice, store.Page{}))(t)
		if len(list.Items) != 1 || list.Total != 1 || list.Items[0].ID != k.ID {
			t.Errorf("list %+v", list)
		}
	})
}

func newPlan(owner toll.Address, name string) *toll.Plan {
	return &toll.Plan{
		ID: toll.NewPlanID(), Owner: owner, Metadata: toll.Metadata{Name: name}, AccessLimit: toll.LimitCredits,
		Credits: toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1}, IsListed: true, CreatedAt: noon, UpdatedAt: noon,
	}
}

func newAgent(owner toll.Address, name string) *toll.Agent {
	return &toll.Agent{
		ID: toll.NewAgentID(), Owner: owner, Metadata: toll.Metadata{Name: name}, IsListed: true, CreatedAt: noon, UpdatedAt: noon,
	}
}

func planIDs(plans []*toll.Plan) []toll.PlanID {
	var ids []toll.PlanID
	for _, p := range plans {
		ids = append(ids, p.ID)
	}
	return ids
}

func TestPlans(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		amount := must.Get(toll.ParseUnits("115792089237316195423570985008687907853269984665640564039457584007913129639935"))(t)
		created := toll.At(noon.Truncate(time.Millisecond))
		p := &toll.Plan{
			ID: "115792089237316195423570985008687907853269984665640564039457584007913129639935", Owner: alice,
			Metadata: toll.Metadata{
				Name: `Größe "5" \ <b>&\u0026` + "\u2028🙂", Description: "100 calls", Tags: []string{"ai"}, DateCreated: created,
				CustomData: json.RawMessage(`{"a":18446744073709551616,"b":[1e3]}`),
			},
			Price: toll.Price{Amounts: []toll.Units{amount}, Receivers: []toll.Address{bob}, IsCrypto: true, Currency: "USDC"},
			Credits: toll.CreditsConfig{
				RedemptionType: 4, DurationSecs: amount, Amount: toll.MaxCredits, MinAmount: 1, MaxAmount: toll.MaxCredits, NFTAddress: &bob,
			},
			AccessLimit: toll.LimitTime, MaxOrders: math.MaxInt64, IsTrial: true, IsListed: true, CreatedAt: noon, UpdatedAt: noon.Add(time.Second),
		}
		insert := func(p *toll.Plan, nonce string, body []byte) error {
			return st.Tx(ctx, func(tx *store.Tx) error { return store.InsertPlan(ctx, tx, p, nonce, body) })
		}
		must.Do(t, insert(p, "7", []byte("body")))
		same(t, must.Get(store.PlanByID(ctx, st, p.ID))(t), p)
		got, body, err := store.PlanByNonce(ctx, st, alice, "7")
		if err != nil || got.ID != p.ID || string(body) != "body" {
			t.Errorf("by nonce: %v, %q, %v", got, body, err)
		}
		_, _, err = store.PlanByNonce(ctx, st, bob, "7")
		notFound(t, err)
		_, err = store.PlanByID(ctx, st, "1")
		notFound(t, err)
		if err := insert(newPlan(alice, ""), "7", nil); !store.IsUnique(err) {
			t.Errorf("a taken nonce: %v", err)
		}
		for _, q := range []*toll.Plan{newPlan(bob, ""), newPlan(bob, "")} { // plans without a nonce do not collide
			must.Check(t, insert(q, "", nil))
		}

		write(t, st, func(tx *store.Tx) error {
			q, err := store.PlanForUpdate(ctx, tx, p.ID)
			if err != nil {
				return err
			}
			q.Metadata.Name, q.MaxOrders, q.IsListed, q.UpdatedAt = "New", 0, false, noon.Add(time.Hour)
			return store.UpdatePlan(ctx, tx, q)
		})
		p.Metadata.Name, p.MaxOrders, p.IsListed, p.UpdatedAt = "New", 0, false, noon.Add(time.Hour)
		p.Version = 2
		same(t, must.Get(store.PlanByID(ctx, st, p.ID))(t), p)
		notFound(t, st.Tx(ctx, func(tx *store.Tx) error { return store.UpdatePlan(ctx, tx, newPlan(alice, "")) }))
	})
}

// Two callers that change one record after reading it: no change is lost.
func TestPlanForUpdate(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		p := newPlan(alice, "")
		write(t, st, func(tx *store.Tx) error { return store.InsertPlan(ctx, tx, p, "", nil) })
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					err := st.Tx(ctx, func(tx *store.Tx) error {
						p, err := store.PlanForUpdate(ctx, tx, p.ID)
						if err != nil {
							return err
						}
						p.MaxOrders++
						return store.UpdatePlan(ctx, tx, p)
					})
					must.Check(t, err)
				}
			})
		}
		wg.Wait()
		if p := must.Get(
			store.PlanByID(ctx, st, p.ID),
		)(t); p.MaxOrders != 20 ||
			p.Version != 21 {
			t.Errorf("%d of 20 changes are there, version %d", p.MaxOrders, p.Version)
		}
	})
}

func TestAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		plans := []*toll.Plan{newPlan(alice, "Basic"), newPlan(alice, "Pro"), newPlan(alice, "Free")}
		a := &toll.Agent{
			ID: toll.NewAgentID(), Owner: alice, Metadata: toll.Metadata{Name: "Ask", Tags: []string{"ai"}},
			API: toll.AgentAPI{
				Endpoints:     []toll.Endpoint{{Verb: "POST", URL: "https://agent.example.com/ask"}, {Verb: "GET", URL: "/jobs/:id"}},
				OpenEndpoints: []string{"/health"}, AgentDefinitionURL: "https://agent.example.com/openapi.json", AuthType: "bearer",
				StrictEndpoints: true, HasCredentials: true,
			},
			Plans:    []toll.PlanRef{{PlanID: plans[1].ID, Name: "Pro"}, {PlanID: plans[0].ID, Name: "Basic"}},
			IsListed: true, CreatedAt: noon, UpdatedAt: noon,
		}
		b := &toll.Agent{ID: toll.NewAgentID(), Owner: alice, CreatedAt: noon.Add(time.Microsecond), UpdatedAt: noon}
		write(t, st, func(tx *store.Tx) error {
			for _, p := range plans {
				if err := store.InsertPlan(ctx, tx, p, "", nil); err != nil {
					return err
				}
			}
			return errors.Join(store.InsertAgent(ctx, tx, a, []byte("sealed")), store.InsertAgent(ctx, tx, b, nil))
		})
		same(t, must.Get(store.AgentByID(ctx, st, a.ID))(t), a)
		same(t, must.Get(store.AgentByID(ctx, st, b.ID))(t), b)
		_, err := store.AgentByID(ctx, st, "1")
		notFound(t, err)
		if s := must.Get(store.AgentCredentials(ctx, st, a.ID))(t); string(s) != "sealed" {
			t.Errorf("credentials %q", s)
		}

		write(t, st, func(tx *store.Tx) error {
			a, err := store.AgentForUpdate(ctx, tx, a.ID)
			if err != nil {
				return err
			}
			a.Metadata.Name, a.API.StrictEndpoints, a.IsListed, a.UpdatedAt = "Ask more", false, false, noon.Add(time.Hour)
			return errors.Join(store.UpdateAgent(ctx, tx, a), store.SetAgentCredentials(ctx, tx, a.ID, nil))
		})
		a.Metadata.Name, a.API.StrictEndpoints, a.IsListed, a.UpdatedAt = "Ask more", false, false, noon.Add(time.Hour)
		a.API.HasCredentials, a.Version = false, 2

		attach := func(p *toll.Plan) (added bool) {
			write(t, st, func(tx *store.Tx) (err error) { added, err = store.AttachPlan(ctx, tx, a.ID, p.ID); return err })
			return added
		}
		detach := func(p *toll.Plan) (removed bool) {
			write(t, st, func(tx *store.Tx) (err error) { removed, err = store.DetachPlan(ctx, tx, a.ID, p.ID); return err })
			return removed
		}
		same(t, []bool{attach(plans[2]), attach(plans[2]), detach(plans[1]), detach(plans[1])}, []bool{true, false, true, false})
		a.Plans = []toll.PlanRef{{PlanID: plans[0].ID, Name: "Basic"}, {PlanID: plans[2].ID, Name: "Free"}}
		same(t, must.Get(store.AgentByID(ctx, st, a.ID))(t), a)

		agents := must.Get(store.AgentsOfOwner(ctx, st, alice, store.Page{Sort: store.SortName}))(t)
		same(t, agents.Items, []*toll.Agent{a, b})
		agents = must.Get(store.AgentsOfPlan(ctx, st, plans[0].ID, store.Page{}))(t)
		same(t, agents.Items, []*toll.Agent{a})
		same(t, must.Get(store.AgentIDsOfPlan(ctx, st, plans[0].ID, 2))(t), []toll.AgentID{a.ID})
		of := must.Get(store.PlansOfAgent(ctx, st, a.ID, store.Page{Sort: store.SortName, Ascending: true}))(t)
		same(t, planIDs(of.Items), planIDs([]*toll.Plan{plans[0], plans[2]}))

		err = st.Tx(ctx, func(tx *store.Tx) error { _, err := store.AttachPlan(ctx, tx, a.ID, "1"); return err })
		if err == nil {
			t.Error("a plan that does not exist was attached")
		}
	})
}

func TestOrders(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		o := &store.Order{
			ID: toll.NewUUID(), Account: [16]byte{1, 0, 255}, Plan: "5", Subscriber: bob, Status: toll.OrderCreated, Credits: 0,
			Amount: toll.UnitsOf(1_000_000), Currency: "USDC", CreatedAt: noon, UpdatedAt: noon,
		}
		insert := func(o *store.Order) error {
			return st.Tx(ctx, func(tx *store.Tx) error { return store.InsertOrder(ctx, tx, o) })
		}
		must.Do(t, insert(o))
		if err := insert(o); !store.IsUnique(err) {
			t.Errorf("the same order again: %v", err)
		}
		o.Status, o.TxHash, o.Credits, o.FailureReason, o.UpdatedAt = toll.OrderConfirmed, toll.NewHash().String(), toll.MaxCredits, "no", noon.Add(1000)
		write(t, st, func(tx *store.Tx) error { return store.UpdateOrder(ctx, tx, o) })
		same(t, must.Get(store.OrderByID(ctx, st, o.ID))(t), o)
		same(t, must.Get(store.OrderOfAccount(ctx, st, o.Account, o.ID))(t), o)
		_, err := store.OrderOfAccount(ctx, st, [16]byte{9}, o.ID)
		notFound(t, err)
		elsewhere := *o
		elsewhere.Account = [16]byte{9}
		notFound(t, st.Tx(ctx, func(tx *store.Tx) error { return store.UpdateOrder(ctx, tx, &elsewhere) }))
	})
}

// A limit holds whoever orders at the same time.
func TestCountOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		var mu sync.Mutex
		var counted []int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				var n int64
				var ok bool
				err := st.Tx(ctx, func(tx *store.Tx) (err error) {
					n, ok, err = store.CountOrder(ctx, tx, "5", 5)
					return err
				})
				must.Check(t, err)
				if ok {
					mu.Lock()
					counted = append(counted, n)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(counted)
		same(t, counted, []int64{1, 2, 3, 4, 5})
		same(t, must.Get(store.OrdersOfPlan(ctx, st, "5"))(t), int64(5))
		same(t, must.Get(store.OrdersOfPlan(ctx, st, "6"))(t), int64(0))
		for _, limit := range []int64{0, math.MaxInt64} {
			var ok bool
			write(t, st, func(tx *store.Tx) (err error) { _, ok, err = store.CountOrder(ctx, tx, "5", limit); return err })
			if !ok {
				t.Errorf("limit %d refuses", limit)
			}
		}
		write(t, st, func(tx *store.Tx) error { _, _, err := store.CountOrder(ctx, tx, "5", 0); return err })
		same(t, must.Get(store.OrdersOfPlan(ctx, st, "5"))(t), int64(8))
		err := st.Tx(ctx, func(tx *store.Tx) error {
			if _, _, err := store.CountOrder(ctx, tx, "5", 0); err != nil {
				return err
			}
			return errors.New("changed my mind")
		})
		if err == nil {
			t.Error("no error")
		}
		same(t, must.Get(store.OrdersOfPlan(ctx, st, "5"))(t), int64(8))
	})
}

// What is listed is chosen owner by owner, so that one who has much does not push out others; records come with what tells whether
// they changed.
func TestListedAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		p, hidden := newPlan(alice, "p"), newPlan(alice, "hidden")
		hidden.IsListed = false
		var ids []toll.AgentID
		write(t, st, func(tx *store.Tx) error {
			ids = nil
			for _, p := range []*toll.Plan{p, hidden} {
				if err := store.InsertPlan(ctx, tx, p, "", nil); err != nil {
					return err
				}
			}
			for i, owner := range []toll.Address{bob, alice, alice, alice, alice} {
				a := newAgent(owner, fmt.Sprint(i))
				a.UpdatedAt = noon.Add(time.Duration(i) * time.Second)
				a.Plans = []toll.PlanRef{{PlanID: p.ID}, {PlanID: hidden.ID}}
				a.IsListed = i < 4
				if err := store.InsertAgent(ctx, tx, a, nil); err != nil {
					return err
				}
				ids = append(ids, a.ID)
			}
			_, err := store.InsertDiscovered(ctx, tx, store.Discovered{Agent: ids[0], Verb: "GET", URL: "x", Info: "{}", UpdatedAt: noon})
			return err
		})
		chosen := func(n int) (out []toll.AgentID) {
			for _, a := range must.Get(store.ListedAgents(ctx, st, n))(t) {
				out = append(out, a.ID)
			}
			return out
		}
		same(t, chosen(2), []toll.AgentID{ids[3], ids[0]})
		same(t, chosen(9), []toll.AgentID{ids[3], ids[0], ids[2], ids[1]})
		first := must.Get(store.ListedAgents(ctx, st, 2))(t)[1]
		if first.Said != 1 || first.SaidAt != noon.UnixMicro() || first.Bytes < 10 || first.UpdatedAt != noon.UnixMicro() {
			t.Errorf("%+v", first)
		}
		same(t, first.Plans, []store.ListedPlan{{ID: p.ID, UpdatedAt: p.UpdatedAt.UnixMicro()}})
		var read []toll.AgentID
		for range 50 { // more than one statement takes, and repeated
			read = append(read, ids...)
		}
		n := 0
		if err := store.EachAgent(ctx, st, append(read, "404"), func(*toll.Agent) error { n++; return nil }); err != nil || n != 3*len(ids) {
			t.Errorf("%d agents, %v", n, err)
		}
	})
}

// A page of agents is bounded in bytes, too.
func TestPageOfBigAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		write(t, st, func(tx *store.Tx) error {
			for i := range 10 {
				a := newAgent(alice, fmt.Sprint(i))
				for range 256 {
					a.API.Endpoints = append(a.API.Endpoints, toll.Endpoint{Verb: "GET", URL: "https://x.example/" + strings.Repeat("a", 2000)})
				}
				if err := store.InsertAgent(ctx, tx, a, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if _, err := store.AgentsOfOwner(ctx, st, alice, store.Page{Size: 10}); !errors.Is(err, toll.NewError(toll.CodeBadPage)) {
			t.Errorf("ten big agents: %v", err)
		}
		list := must.Get(store.AgentsOfOwner(ctx, st, alice, store.Page{Size: 5}))(t)
		if len(list.Items) != 5 || list.Total != 10 {
			t.Errorf("%d of %d", len(list.Items), list.Total)
		}
	})
}
