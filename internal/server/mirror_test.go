package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// Seven burns of a mirrored plan and five of another one, in a period that ends: the seven have proofs that the chain alone
// confirms, their sum is that of the receipts, and the five are nowhere. A burn of the next period waits for its end.
// T54
func TestPublishedBurns(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		cfg := server.Config{Data: o.Data, Database: o.Database, MasterKeyFile: o.MasterKeyFile, Rails: rails.Config{Chain: rails.ChainConfig{Mirror: true, HTTP: "127.0.0.1:0"}}}
		if cfg.Data == "" {
			cfg.Data = storetest.Dir(t) // of the embedded chain
		}
		s, url := start(t, cfg)
		builder, subscriber := keys(t, s)
		op := operator(t, s, url)
		plain := newStand(t, url, builder, subscriber, 50).patient
		mirrored := mirroredStand(t, plain)

		burn := func(c *stand, id string, n toll.Credits) toll.Hash {
			res, err := c.builder.Settle(t.Context(), &x402.SettleRequest{
				PaymentRequired: c.required(), AccessToken: c.token.AccessToken, AgentRequestID: id, MaxAmount: n.Ptr(),
			})
			if err != nil || !res.Success {
				t.Fatalf("settle %s: %+v %v", id, res, err)
			}
			return must.Get(toll.ParseHash(res.Transaction))(t)
		}
		var published, others []toll.Hash
		var sum toll.Credits
		for i := range 7 {
			n := toll.Credits(i + 1)
			published = append(published, burn(mirrored, fmt.Sprintf("mirrored-%d", i), n))
			sum += n
		}
		for i := range 5 {
			others = append(others, burn(plain, fmt.Sprintf("plain-%d", i), 1))
		}
		for _, tx := range published {
			if p, err := plain.subscriber.BurnProof(t.Context(), tx); err != nil || p.Status != toll.ProofOpen {
				t.Fatalf("before the end of the period: %+v %v", p, err)
			}
		}
		advance(t, op, 65*time.Minute+time.Second)
		later := burn(mirrored, "mirrored-later", 1)
		var last *toll.BurnProof
		eventually(t, "a proof", func() bool {
			p, err := plain.subscriber.BurnProof(t.Context(), published[6])
			last = p
			return err == nil && p.Status == toll.ProofFinal
		})
		var found toll.Credits
		periods := map[int64]bool{}
		for _, tx := range published {
			p := must.Get(client.New("", client.WithURL(url), servertest.Patient).BurnProof(t.Context(), tx))(t) // nobody needs a key
			v, err := rails.VerifyProof(t.Context(), []string{s.Chain().URL()}, p)
			if err != nil || !v.Holds || v.Transaction != tx || v.PlanID != mirrored.plan || v.Holder != mirrored.buyer {
				t.Fatalf("%+v %v", v, err)
			}
			found += v.Credits
			periods[p.Period] = true
		}
		if found != sum || len(periods) > 2 { // the test may run across the end of an hour
			t.Errorf("%d credits are published in %d periods, %d were burned", found, len(periods), sum)
		}
		changed := *last
		changed.Fields.Credits--
		if _, err := rails.VerifyProof(t.Context(), []string{s.Chain().URL()}, &changed); err == nil || !strings.Contains(err.Error(), "leaf") {
			t.Errorf("a changed proof: %v", err)
		}
		for _, tx := range others {
			if _, err := plain.subscriber.BurnProof(t.Context(), tx); codeOf(err) != toll.CodeBurnNotMirrored {
				t.Errorf("a burn of a plan that is not mirrored: %v", err)
			}
		}
		if _, err := plain.subscriber.BurnProof(t.Context(), toll.Hash{1}); codeOf(err) != toll.CodeBurnNotMirrored {
			t.Errorf("no burn: %v", err)
		}
		if p, err := plain.subscriber.BurnProof(t.Context(), later); err != nil || p.Status != toll.ProofOpen {
			t.Errorf("a burn of the running period: %+v %v", p, err)
		}
		r, err := plain.builder.SettlementByTransaction(t.Context(), published[0].String())
		if err != nil || r.MirrorTx == nil || r.MirrorTx.IsZero() {
			t.Errorf("the record has no transaction of the mirror: %+v %v", r, err)
		}
	})
}

// mirroredStand is a stand of the same people whose plan is mirrored.
func mirroredStand(t *testing.T, c *stand) *stand {
	t.Helper()
	m := *c
	m.patient = &m
	registered, err := c.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Mirrored"},
		Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{c.owner}, IsCrypto: true},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10, OnchainMirror: true},
	})
	must.Do(t, err)
	m.plan, m.agent = registered.PlanID, ""
	must.Get(c.builder.Mint(t.Context(), m.plan, m.buyer, 50, 0))(t)
	m.token = must.Get(c.subscriber.AccessToken(t.Context(), m.plan))(t)
	return &m
}
