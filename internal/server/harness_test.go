package server_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
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
	must.Do(t, os.WriteFile(path, []byte(toll.NewHash().String()[2:]+"\n"), 0o600))
	return path
}

// open makes a service in this process. One whose database does not answer is made again, as supervisors do.
func open(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	cfg.WaitLong()
	s := must.Get(insist(func() (*server.Server, error) { return server.New(t.Context(), cfg) }))(t)
	storetest.Follow(t, server.StoreOf(s))
	return s
}

// insist makes a call again while its error says that it may succeed later, as callers do. What a lost answer leaves behind must not
// matter.
func insist[T any](call func() (T, error)) (v T, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		v, err = call()
		if e, ok := errors.AsType[*toll.Error](err); !ok || e.HTTPStatus() != http.StatusServiceUnavailable || time.Now().After(end) {
			return v, err
		}
	}
}

// closeService closes a service in this process. It has minutes, as the machine may be busy with other tests.
func closeService(s *server.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.Close(ctx)
}

// start runs a service in this process until the test ends, and returns its address. A start takes about 60 ms, so each test has its own
// service: tests move its clock, read its log, and count its rows.
func start(t *testing.T, cfg server.Config) (*server.Server, string) {
	t.Helper()
	return startOn(t, cfg, listenAnywhere(t))
}

func listenAnywhere(t *testing.T) net.Listener {
	t.Helper()
	return must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
}

// startOn is start on a listener, whose address the configuration may have.
func startOn(t *testing.T, cfg server.Config, ln net.Listener) (*server.Server, string) {
	t.Helper()
	s := open(t, cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		must.Check(t, <-done, "serve")
		must.Check(t, closeService(s), "close")
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
	patient             *stand // the same, through clients that repeat what may succeed later
}

// newStand sets one up on a running service. Its requests are not repeated by the client, so that tests see outcomes, but for those of
// its patient self.
func newStand(t *testing.T, url string, builder, subscriber toll.APIKey, credits toll.Credits) *stand {
	t.Helper()
	ctx := t.Context()
	c := (&stand{owner: builder.Address, buyer: subscriber.Address}).on(url, builder, subscriber).patient
	registered, err := c.builder.RegisterAgentWithPlan(ctx, client.AgentParams{Metadata: toll.Metadata{Name: "Agent"}}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Plan"},
		Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{c.owner}, IsCrypto: true},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	})
	must.Do(t, err)
	c.plan, c.agent = registered.PlanID, registered.AgentID
	if credits > 0 {
		must.Get(c.builder.Mint(ctx, c.plan, c.buyer, credits, 0))(t)
	}
	c.token = must.Get(c.subscriber.AccessToken(ctx, c.plan))(t)
	return c.on(url, builder, subscriber)
}

// on returns the same stand as seen through another process.
func (c *stand) on(url string, builder, subscriber toll.APIKey) *stand {
	o, p := *c, *c
	o.builder = client.New(builder.Key, client.WithURL(url), client.WithRetries(0))
	o.subscriber = client.New(subscriber.Key, client.WithURL(url), client.WithRetries(0))
	p.builder = client.New(builder.Key, client.WithURL(url), servertest.Patient)
	p.subscriber = client.New(subscriber.Key, client.WithURL(url), servertest.Patient)
	o.patient, p.patient = &p, &p
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
	return must.Get(c.patient.subscriber.Balance(t.Context(), c.plan))(t)
}

// keys makes the keys of a stand in a running service of this process.
func keys(t *testing.T, s *server.Server) (builder, subscriber toll.APIKey) {
	t.Helper()
	for account, into := range map[string]*toll.APIKey{"builder": &builder, "subscriber": &subscriber} {
		*into = keyOf(t, s, server.KeyRequest{Account: account})
	}
	return builder, subscriber
}

func keyOf(t *testing.T, s *server.Server, r server.KeyRequest) toll.APIKey {
	t.Helper()
	return must.Get(insist(func() (toll.APIKey, error) { return s.CreateKey(t.Context(), r) }))(t)
}

// thrice repeats an attempt until it succeeds, at most three times, because a stalled machine can make one fail. scripts/test.sh lists
// each failed attempt in its summary.
func thrice(t *testing.T, attempt func() error) {
	t.Helper()
	for try := 1; ; try++ {
		err := attempt()
		if err == nil {
			return
		}
		if t.Failed() || try == 3 {
			t.Fatal(err)
		}
		t.Logf("attempt %d failed: %v", try, err)
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	res := must.Get(http.Get(url))(t)
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
