package server_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// eachDatabase runs f on a fresh database of each kind, as options of a process.
func eachDatabase(t *testing.T, f func(t *testing.T, o servertest.Options)) {
	t.Helper()
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			cfg := storetest.Config(t, v)
			o := servertest.Options{Data: cfg.Data, Database: cfg.Database}
			if cfg.Database != "" {
				o.MasterKeyFile = freshMasterKey(t)
			}
			f(t, o)
		})
	}
}

// freshMasterKey writes a master key that no other file holds.
func freshMasterKey(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/master.key"
	if err := os.WriteFile(path, []byte(toll.NewHash().String()[2:]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a service in this process until the test ends, and returns its address.
func start(t *testing.T, cfg server.Config) (*server.Server, string) {
	t.Helper()
	cfg.WaitLong()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, "http://" + ln.Addr().String()
}

// stand is a builder with a plan, and a subscriber with an access token for it.
type stand struct {
	builder, subscriber *client.Client
	owner, buyer        toll.Address
	plan                toll.PlanID
	agent               toll.AgentID
	token               *toll.AccessToken
}

// newStand sets one up on a running service. Its requests are not repeated by the client, so that tests see outcomes.
func newStand(t *testing.T, url string, builder, subscriber toll.APIKey, credits toll.Credits) *stand {
	t.Helper()
	ctx := t.Context()
	c := &stand{
		builder: client.New(builder.Key, client.WithURL(url), client.WithRetries(0)), owner: builder.Address,
		subscriber: client.New(subscriber.Key, client.WithURL(url), client.WithRetries(0)), buyer: subscriber.Address,
	}
	registered, err := c.builder.RegisterAgentWithPlan(ctx, client.AgentParams{Metadata: toll.Metadata{Name: "Agent"}}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Plan"},
		Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{c.owner}, IsCrypto: true},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.plan, c.agent = registered.PlanID, registered.AgentID
	if credits > 0 {
		if _, err := c.builder.Mint(ctx, c.plan, c.buyer, credits, 0); err != nil {
			t.Fatal(err)
		}
	}
	if c.token, err = c.subscriber.AccessToken(ctx, c.plan); err != nil {
		t.Fatal(err)
	}
	return c
}

// on returns the same stand as seen through another process.
func (c *stand) on(url string, builder, subscriber toll.APIKey) *stand {
	o := *c
	o.builder = client.New(builder.Key, client.WithURL(url), client.WithRetries(0))
	o.subscriber = client.New(subscriber.Key, client.WithURL(url), client.WithRetries(0))
	return &o
}

func (c *stand) required() x402.PaymentRequired {
	return *x402.NewPaymentRequired([]*x402.Terms{{
		PlanID: c.plan, Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PayTo: c.owner.String(), MinAmount: 1, MaxAmount: 10,
	}}, x402.Options{AgentID: c.agent})
}

// settle burns one credit for the request with this id.
func (c *stand) settle(ctx context.Context, id string) (*x402.SettleResponse, error) {
	return c.builder.Settle(ctx, &x402.SettleRequest{
		PaymentRequired: c.required(), AccessToken: c.token.AccessToken, AgentRequestID: id, MaxAmount: toll.Credits(1).Ptr(),
	})
}

func (c *stand) balance(t *testing.T) *toll.Balance {
	t.Helper()
	b, err := c.subscriber.Balance(t.Context(), c.plan)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keys makes the keys of a stand in a running service of this process.
func keys(t *testing.T, s *server.Server) (builder, subscriber toll.APIKey) {
	t.Helper()
	for account, into := range map[string]*toll.APIKey{"builder": &builder, "subscriber": &subscriber} {
		key, err := s.CreateKey(t.Context(), server.KeyRequest{Account: account})
		if err != nil {
			t.Fatal(err)
		}
		*into = key
	}
	return builder, subscriber
}

func status(t *testing.T, url string) int {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// patience is how long a test waits for what has to come. A slow machine that is busy needs some of it, a quick one none.
const patience = 2 * time.Minute

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
