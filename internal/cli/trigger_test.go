package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	goflag "flag"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// update rewrites the samples: go test ./internal/cli -run TestEventSamples -update
var update = goflag.Bool("update", false, "rewrite event_samples.json")

// TestEventSamples has a service create an event of each type, and compares the members of the samples with them.
func TestEventSamples(t *testing.T) {
	s := newSampleScene(t)
	s.records()
	s.credits()
	s.money()
	s.times()
	real := s.events()
	if *update {
		must.Do(t, os.WriteFile("event_samples.json", sampleText(t, real), 0o644))
		return
	}
	for _, kind := range toll.EventTypes() {
		e, err := sampleOf(kind, x402.Default, time.Now())
		if err != nil {
			t.Errorf("%s: %v (go test ./internal/cli -run TestEventSamples -update writes it)", kind, err)
			continue
		}
		if want, got := shape(t, real[kind]), shape(t, e); want != got {
			t.Errorf("%s (go test ./internal/cli -run TestEventSamples -update rewrites it)\n got %s\nwant %s", kind, got, want)
		}
		if e.Type != kind || e.Sequence != 0 || e.Object.Kind != real[kind].Object.Kind || time.Since(e.CreatedAt.Time).Abs() > time.Minute {
			t.Errorf("%+v", e)
		}
		acme := must.Get(sampleOf(kind, x402.Namespace{Scheme: "acme", Header: "Acme", Word: "acme"}, time.Now()))(t)
		if got, want := bytes.Count(acme.Data, []byte(`"acme`)), bytes.Count(real[kind].Data, []byte(`"svc`)); got != want {
			t.Errorf("%s has %d words of the brand, want %d", kind, got, want)
		}
	}
}

// sampleScene is a service with a builder, a subscriber and a rail that the test controls.
type sampleScene struct {
	*testing.T
	server     *server.Server
	offset     atomic.Int64
	rail       *railtest.Rail
	builder    *client.Client
	subscriber *client.Client
	holder     toll.Address
	plan       toll.PlanID
	agent      toll.AgentID
	found      map[toll.EventType]*toll.Event // the first of each type
}

func newSampleScene(t *testing.T) *sampleScene {
	s := &sampleScene{T: t, rail: railtest.New(), found: map[toll.EventType]*toll.Event{}}
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	cfg := server.Config{
		Data: t.TempDir(), Listen: ln.Addr().String(), LoopbackWebhooks: true,
		Clock: func() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) },
	}
	cfg.Rails.Card.Mode = "off"
	cfg.Rails.Given = rail.Rails{rail.Crypto: s.rail}
	ctx, stop := context.WithCancel(context.Background())
	s.server = must.Get(server.New(ctx, cfg))(t)
	stopped := make(chan error, 1)
	go func() { stopped <- s.server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		must.Check(t, <-stopped)
		must.Check(t, s.server.Close(context.Background()))
	})
	s.builder, _ = s.account("builder")
	s.subscriber, s.holder = s.account("subscriber")
	return s
}

func (s *sampleScene) account(name string) (*client.Client, toll.Address) {
	key := must.Get(s.server.CreateKey(s.Context(), server.KeyRequest{Account: name}))(s)
	return client.New(key.Key, client.WithURL(s.server.PublicURL())), key.Address
}

func (s *sampleScene) do(err error) { s.Helper(); must.Do(s, err) }

// records creates the events of agents, plans, API keys and wallets.
func (s *sampleScene) records() {
	ctx, c := s.Context(), s.builder
	made := must.Get(c.RegisterAgentWithPlan(ctx, client.AgentParams{
		Metadata: toll.Metadata{Name: "Translator", Description: "Translates texts", Tags: []string{"language"}},
		API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: "https://agent.example.com/translate"}}},
	}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Starter", Description: "100 translations"},
		Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, IsCrypto: true},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	}))(s)
	s.plan, s.agent = made.PlanID, made.AgentID
	for _, listed := range []bool{false, true} {
		must.Get(c.SetPlanListed(ctx, s.plan, listed))(s)
		must.Get(c.SetAgentListed(ctx, s.agent, listed))(s)
	}
	must.Get(c.UpdatePlan(ctx, s.plan, toll.PlanUpdate{Description: toll.SetTo("100 translations of one page")}))(s)
	must.Get(c.UpdateAgent(ctx, s.agent, toll.AgentUpdate{Description: toll.SetTo("Translates pages")}))(s)
	key := must.Get(c.CreateKey(ctx, client.KeyParams{Name: "laptop"}))(s)
	must.Get(c.RevokeKey(ctx, key.ID))(s)

	signed := must.Get(client.New("", client.WithURL(s.server.PublicURL())).SignUp(ctx, client.SignUpParams{Login: "alice", Password: "correct horse battery staple"}))(s)
	person := client.New(signed.Token, client.WithURL(s.server.PublicURL()), client.WithWorkspace(signed.Organizations[0].ID))
	must.Get(person.ExportWallet(ctx))(s)
	s.read(person)
}

// credits creates the events of credits, permissions and settlements.
func (s *sampleScene) credits() {
	ctx := s.Context()
	must.Get(s.builder.Mint(ctx, s.plan, s.holder, 20, 0))(s)
	token := must.Get(s.subscriber.AccessToken(ctx, s.plan, client.WithRedemptionLimit(20)))(s)
	h := paid.Handler(s.builder, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), paid.Plan(s.plan), paid.Agent(s.agent), paid.Credits(10))
	for range 2 { // uses up the credits and the limit
		req := httptest.NewRequest(http.MethodPost, "/translate", nil)
		req.Header.Set(x402.HeaderSignature, token.AccessToken)
		res := httptest.NewRecorder()
		if h.ServeHTTP(res, req); res.Code != http.StatusOK {
			s.Fatalf("%d %s", res.Code, res.Body)
		}
	}
	other := must.Get(s.subscriber.AccessToken(ctx, s.plan))(s)
	s.do(s.subscriber.RevokePermission(ctx, other.PermissionHash))
	must.Get(s.builder.Mint(ctx, s.plan, s.holder, 20, 0))(s)
	must.Get(s.builder.TakeBack(ctx, s.plan, s.holder, 5))(s)
	must.Get(s.builder.Mint(ctx, s.plan, s.holder, 7, time.Hour))(s)
}

// money creates the events of orders and delegations. Expiry is in times.
func (s *sampleScene) money() {
	ctx, c := s.Context(), s.subscriber
	delegate := func(limit toll.Cents) string {
		return must.Get(c.CreateDelegation(ctx, client.DelegationParams{
			Provider: toll.ProviderCrypto, SpendingLimit: limit, Lifetime: time.Hour, Currency: "usdc",
		}))(s).DelegationID
	}
	order := must.Get(c.OrderPlan(ctx, s.plan, client.PaidBy(delegate(100))))(s).OrderID
	s.do(s.rail.Refund(order, 50))
	order = must.Get(c.OrderPlan(ctx, s.plan, client.PaidBy(delegate(500))))(s).OrderID
	s.do(s.rail.Dispute(order, "open"))
	s.do(s.rail.Dispute(order, "won"))

	s.rail.Behave(railtest.Behaviour{Decline: true, ByBank: true, Code: toll.CodeCardDeclined, Reason: "insufficient funds"})
	declined := delegate(500)
	for range 3 {
		if o, err := c.OrderPlan(ctx, s.plan, client.PaidBy(declined)); err == nil && o.Success {
			s.Errorf("%+v", o)
		}
	}
	must.Get(c.UnfreezeDelegation(ctx, declined))(s)
	must.Get(c.RevokeDelegation(ctx, declined))(s)
}

// times creates the events that come with time.
func (s *sampleScene) times() {
	ctx := s.Context()
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	s.Cleanup(failing.Close)
	hook := must.Get(s.builder.CreateWebhook(ctx, client.WebhookParams{URL: failing.URL, Description: "Bookkeeping"}))(s)
	s.do(s.builder.TestWebhook(ctx, hook.ID))
	s.until("the webhook fails", func() bool {
		w, err := s.builder.Webhook(ctx, hook.ID)
		return err == nil && w.FailingSince != nil
	})
	s.offset.Add(int64(73 * time.Hour))
	must.Get(s.builder.Mint(ctx, s.plan, s.holder, 1, 0))(s) // the change notes that older credits have expired
}

func (s *sampleScene) until(what string, done func() bool) {
	s.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never: %s", what)
		}
	}
}

// read keeps the first event of each type in a workspace.
func (s *sampleScene) read(c *client.Client) {
	s.Helper()
	for e, err := range c.Events(s.Context(), client.Ascending(), client.PageSize(100)) {
		must.Do(s, err)
		if s.found[e.Type] == nil {
			s.found[e.Type] = e
		}
	}
}

// events waits until there is an event of each type.
func (s *sampleScene) events() map[toll.EventType]*toll.Event {
	var missing []toll.EventType
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		s.read(s.builder)
		s.read(s.subscriber)
		missing = nil
		for _, kind := range toll.EventTypes() {
			if s.found[kind] == nil {
				missing = append(missing, kind)
			}
		}
		if len(missing) == 0 {
			return s.found
		}
		if time.Now().After(end) {
			s.Fatalf("no event of %v", missing)
		}
	}
}

// shape returns the members of an event with the kinds of their values.
func shape(t *testing.T, e *toll.Event) string {
	t.Helper()
	var v any
	must.Do(t, json.Unmarshal(must.Get(x402.Encode(e))(t), &v))
	return shapeOf(v)
}

func shapeOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var members []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			members = append(members, name+":"+shapeOf(v[name]))
		}
		return "{" + strings.Join(members, " ") + "}"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, shapeOf(item))
		}
		return "[" + strings.Join(items, " ") + "]"
	case nil:
		return "null"
	}
	return fmt.Sprintf("%T", v)
}

// changing matches values that differ between runs: times, UUIDs, addresses and hashes, ids of requests, plans and agents.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-fA-F]{40,64}|req_[0-9a-v]{20,}|\b\d{60,78}\b|` +
	`http://127\.0\.0\.1:\d+|\b\d{13}\b`)

// sampleText returns the file of samples. Values that differ between runs are replaced, equal values by equal ones. Times keep their
// distance in minutes.
func sampleText(t *testing.T, real map[toll.EventType]*toll.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	for i, kind := range toll.EventTypes() {
		fmt.Fprintf(&b, "%c%q:%s", "{,"[min(i, 1)], kind, must.Get(x402.Encode(real[kind]))(t))
	}
	b.WriteByte('}')
	var text bytes.Buffer
	must.Do(t, json.Indent(&text, b.Bytes(), "", "  "))
	text.WriteByte('\n')
	seen := map[string]string{}
	now, began := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC), time.Time{}
	replaced := changing.ReplaceAllStringFunc(text.String(), func(found string) string {
		if at, err := time.Parse(time.RFC3339Nano, found); err == nil {
			if began.IsZero() {
				began = at
			}
			layout := "2006-01-02T15:04:05Z"
			if strings.Contains(found, ".") {
				layout = "2006-01-02T15:04:05.000Z"
			}
			return now.Add(at.Sub(began).Round(time.Minute)).Format(layout)
		}
		key := strings.ToLower(found)
		if v, ok := seen[key]; ok {
			return v
		}
		sum := sha256.Sum256([]byte(strconv.Itoa(len(seen))))
		digits := hex.EncodeToString(sum[:])
		v := found
		switch {
		case found == toll.Sandbox.USDC().String(), strings.Trim(found, "0x") == "":
		case strings.HasPrefix(found, "http"):
			v = "https://hooks.example.com"
		case strings.HasPrefix(found, "0x") && len(found) == 42:
			v = toll.Address(sum[:20]).String()
		case strings.HasPrefix(found, "0x"):
			v = "0x" + digits
		case strings.HasPrefix(found, "req_"):
			v = "req_" + digits[:28]
		case len(found) == 36:
			v = digits[:8] + "-" + digits[8:12] + "-7" + digits[13:16] + "-8" + digits[17:20] + "-" + digits[20:32]
		case len(found) == 13:
			v = strconv.FormatInt(now.UnixMilli(), 10)
		default:
			v = new(big.Int).SetBytes(sum[:]).String()
		}
		seen[key] = v
		return v
	})
	return []byte(strings.NewReplacer(`"svc:`, `"{{scheme}}:`, `"svc-`, `"{{scheme}}-`).Replace(replaced))
}
