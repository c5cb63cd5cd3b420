package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// fiveDollars registers a plan of 100 credits at 5.00 USD, and an agent.
func (s *service) fiveDollars(t *testing.T, agentURL string) (toll.PlanID, toll.AgentID) {
	t.Helper()
	price := must.Get(toll.PriceFiat(toll.UnitsOf(5_000_000), s.builder.Address, "USD"))(t)
	r := must.Get(s.client(s.builder).RegisterAgentWithPlan(t.Context(), client.AgentParams{
		Metadata: toll.Metadata{Name: "Agent"},
		API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: agentURL}}},
	}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Five dollars"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 100),
	}))(t)
	return r.PlanID, r.AgentID
}

// The card rail from an empty data directory, as people and agents use it: a card is enrolled in a
// browser with 3-D Secure, an agent spends within a limit of 17.00 until the fourth purchase does
// not fit, and half of an order is refunded. In the end the audit of the books, the lists and the
// double of Stripe tell the same.
func TestCardsInABrowser(t *testing.T) {
	inBrowser(t, func(b *browser) {
		ctx := b.Context()
		s := run(b.T, servertest.Options{})
		var handler http.Handler
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(w, r)
		}))
		b.Cleanup(agent.Close)
		plan, id := s.fiveDollars(b.T, agent.URL+"/ask")
		var runs atomic.Int64
		handler = paid.Handler(s.client(s.builder), content(&runs),
			paid.PublicURL(agent.URL), paid.Plan(plan), paid.Agent(id), paid.Credits(80))

		// The buyer enrols a card.
		b.begin(false)
		b.enrol(s, "4000 0025 0000 3155")
		buyer := s.client(s.subscriber)
		cards, err := buyer.PaymentMethods(ctx, client.OfProvider(toll.ProviderCard))
		if err != nil || len(cards) != 1 || cards[0].Last4 != "3155" {
			b.Fatalf("%+v, %v", cards, err)
		}
		limit := must.Get(buyer.CreateDelegation(ctx, client.DelegationParams{
			Provider:        toll.ProviderCard,
			PaymentMethodID: cards[0].ID,
			SpendingLimit:   1700,
			Lifetime:        24 * time.Hour,
			Currency:        "usd",
		}))(b)
		token := must.Get(buyer.AccessToken(ctx, plan, client.WithDelegation(limit.DelegationID), client.WithTokenFormat("x402")))(b)
		inner, err := x402.DecodeToken(token.AccessToken)
		if err != nil || inner.Accepted == nil || inner.Accepted.Scheme != x402.Default.SchemeCard() {
			b.Fatalf("the scheme of the token: %+v, %v", inner, err)
		}

		// 80 credits a call, 100 an order: each of three calls buys, the fourth finds 60 credits
		// and 2.00.
		for i := range 4 {
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, agent.URL+"/ask", strings.NewReader("{}")))(b)
			req.Header.Set("payment-signature", token.AccessToken)
			res := must.Get(http.DefaultClient.Do(req))(b)
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			want := http.StatusOK
			if i == 3 {
				want = http.StatusPaymentRequired
			}
			refused := strings.Contains(string(text), x402.ReasonDelegationShort)
			if res.StatusCode != want || refused != (i == 3) || err != nil {
				b.Fatalf("call %d: %s %s, %v", i+1, res.Status, text, err)
			}
		}
		if runs.Load() != 3 {
			b.Errorf("the agent worked %d times", runs.Load())
		}
		d, err := buyer.Delegation(ctx, limit.DelegationID)
		if err != nil || d.AmountSpentCents != 1500 || d.RemainingBudgetCents != 200 || d.TransactionCount != 3 {
			b.Errorf("%+v, %v", d, err)
		}
		var spent []*toll.DelegationTransaction
		for x, err := range buyer.DelegationTransactions(ctx, limit.DelegationID) {
			if err != nil || x.Status != "succeeded" || x.AmountCents != 500 {
				b.Fatalf("%+v, %v", x, err)
			}
			spent = append(spent, x)
		}
		if len(spent) != 3 {
			b.Fatalf("%d transactions", len(spent))
		}

		// The seller gives half of the last order back.
		last := slices.MaxFunc(spent, func(x, y *toll.DelegationTransaction) int {
			return x.CreatedAt.Compare(y.CreatedAt.Time)
		}).OrderID
		must.Get(s.client(s.builder).RefundOrder(ctx, last, 250))(b)
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			o, err := buyer.Order(ctx, last)
			if err == nil && o.RefundedCents == 250 && o.RefundedCredits == 50 {
				break
			}
			if err != nil || time.Now().After(end) {
				b.Fatalf("%+v, %v", o, err)
			}
		}
		if balance, err := buyer.Balance(ctx, plan); err != nil || balance.Balance != 10 || balance.Used != 240 {
			b.Errorf("%+v, %v", balance, err)
		}

		// Everything agrees.
		must.Do(b, s.process.Signal(syscall.SIGTERM))
		must.Get(s.process.Wait(roleWait))(b)
		if out, code := servertest.Run(b.T, servertest.Program(b.T), s.options, "audit"); code != 0 {
			b.Errorf("toll audit: exit %d: %s", code, out)
		}
		books := must.Get(double.New(double.Options{File: filepath.Join(s.options.Data, "card-double.json")}))(b)
		defer books.Close()
		sums := books.Books().Currencies["usd"]
		if sums == nil || sums.Charges != 3 || sums.Captured != 1500 || sums.Refunded != 250 {
			b.Fatalf("books of the double: %+v", sums)
		}
		out, code := servertest.Run(b.T, servertest.Program(b.T), s.options, "payouts", "list", "-o", "json")
		var owed []struct {
			Builder                      toll.Address
			Orders                       int
			Charged, Refunded, Fees, Due toll.Cents
		}
		err = json.Unmarshal([]byte(out), &owed)
		if err != nil || code != 0 || len(owed) != 1 || owed[0].Builder != s.builder.Address ||
			owed[0].Orders != 3 || owed[0].Charged != 1500 || owed[0].Refunded != 250 ||
			int64(owed[0].Fees) != sums.Fees || int64(owed[0].Due) != sums.Net {
			b.Errorf("toll payouts list: %d %s, %v; the double has %+v", code, out, err, sums)
		}
	})
}

// enrol signs in and enrols a card of the subscriber.
func (b *browser) enrol(s *service, number string) {
	b.Helper()
	b.visit(s.url+"/cards/enroll", http.StatusOK)
	b.signIn(s.subscriber.Key)
	b.read("Enroll card")
	b.look("enrol")
	b.press("Continue to the card processor's page")
	b.fillCard(number, "Save a card")
	b.press("Approve")
	b.read("Card enrolled")
	b.look("enrolled")
}
