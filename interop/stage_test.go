package interop

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
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
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// service is a running facilitator with its accounts.
type service struct {
	url                           string
	builder, subscriber, operator toll.APIKey
	process                       *servertest.Process // nil in this process
	owner                         *testing.T          // whose end is that of the process
	options                       servertest.Options
	rail                          *railtest.Rail // nil with a chain
	// newKey makes an API key of any account, nil with a process.
	newKey func(context.Context, server.KeyRequest) (toll.APIKey, error)
}

func (s *service) client(k toll.APIKey) *client.Client {
	return client.New(k.Key, client.WithURL(s.url), servertest.Patient)
}

// run starts the program on a database of its own.
func run(t *testing.T, o servertest.Options) *service {
	t.Helper()
	if o.Data == "" && o.Database == "" {
		o.Data = storetest.Dir(t)
	}
	s := &service{
		owner: t, options: o, builder: servertest.Key(t, o, "builder"), subscriber: servertest.Key(t, o, "subscriber"),
		operator: servertest.Key(t, o, "operator", "--operator"),
	}
	s.options.Listen = servertest.FreeAddress(t) // the same after a restart
	// The ten seconds of the embedded chain can be too few on a machine that stands still for a while.
	s.options.Args = append(slices.Clone(o.Args), "--order-wait", "40s")
	s.process = servertest.Start(t, s.options)
	s.url = strings.Replace(s.process.URL, "127.0.0.1", "localhost", 1) // as it calls itself
	return s
}

// restart kills the program, if that was not done yet, and starts it again.
func (s *service) restart() {
	s.process.Kill()
	s.process = servertest.Start(s.owner, s.options)
}

// inside starts a service in this process, whose money is taken by a stand-in, of cards as well.
func inside(t *testing.T, cfg server.Config) *service {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &service{rail: railtest.New()}
	cfg.Data, cfg.Listen = storetest.Dir(t), ln.Addr().String()
	given := rail.Rails{rail.Crypto: s.rail, rail.Card: railtest.New()}
	maps.Copy(given, cfg.Rails.Given)
	cfg.Rails.Given = given
	srv := must.Get(server.New(t.Context(), cfg))(t)
	s.url, s.newKey = srv.PublicURL(), srv.CreateKey
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		must.Check(t, <-stopped)
		must.Check(t, srv.Close(context.Background()))
	})
	for account, key := range map[string]*toll.APIKey{"builder": &s.builder, "subscriber": &s.subscriber, "operator": &s.operator} {
		*key = must.Get(srv.CreateKey(t.Context(), server.KeyRequest{Account: account, Operator: account == "operator"}))(t)
	}
	return s
}

// actors are the processes of other software.
type actors struct{ servers, clients, wallets, oracle *role }

func cast(t *testing.T) *actors {
	t.Helper()
	n := findNode(t)
	dir := n.workDir(t)
	return &actors{n.start(t, dir, "server"), n.start(t, dir, "client"), n.start(t, dir, "wallet"), n.start(t, dir, "oracle")}
}

const (
	network  = "eip155:84532"
	scheme   = "svc:erc4337"
	resource = "https://agent.example.com/ask"
)

// setting is what a scene begins with.
type setting struct {
	credits         toll.Credits // minted; the plan has as many an order
	min, max        toll.Credits // bounds of a request
	price           toll.Price
	scheme, network string
	resource        string // endpoint of the agent
	token           []client.TokenOption
	unordered       bool // nothing is minted
}

// scene is one scene: a plan with credits, a fresh access token, and who plays in it.
type scene struct {
	*testing.T
	*service
	*actors
	setting
	plan    toll.PlanID
	agent   toll.AgentID
	token   string
	minted  toll.Credits
	parties []*party
}

func newScene(t *testing.T, s *service, a *actors, change ...func(*setting)) *scene {
	t.Helper()
	price := must.Get(toll.PriceERC20(toll.UnitsOf(1_000_000), toll.Sandbox.USDC(), s.builder.Address))(t)
	c := &scene{T: t, service: s, actors: a, setting: setting{credits: 100, min: 1, max: 10, price: price, scheme: scheme, network: network, resource: resource}}
	for _, f := range change {
		f(&c.setting)
	}
	c.plan, c.agent = c.register(c.resource)
	if !c.unordered {
		c.mint(c.credits)
	}
	c.token = c.buyToken(c.setting.token...)
	t.Cleanup(c.judge)
	return c
}

// register makes an agent with a plan.
func (c *scene) register(url string) (toll.PlanID, toll.AgentID) {
	c.Helper()
	r := must.Get(c.service.client(c.builder).RegisterAgentWithPlan(c.Context(), client.AgentParams{
		Metadata: toll.Metadata{Name: c.Name()}, API: toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: url}}},
	}, client.PlanParams{
		Metadata: toll.Metadata{Name: c.Name()}, Price: c.price, Credits: toll.CreditsConfig{Amount: 100, MinAmount: c.min, MaxAmount: c.max},
	}))(c)
	return r.PlanID, r.AgentID
}

func (c *scene) mint(n toll.Credits) {
	c.Helper()
	must.Get(c.service.client(c.builder).Mint(c.Context(), c.plan, c.subscriber.Address, n, 0))(c)
	c.minted += n
}

func (c *scene) buyToken(opts ...client.TokenOption) string {
	c.Helper()
	token := must.Get(c.service.client(c.subscriber).AccessToken(c.Context(), c.plan, opts...))(c)
	return token.AccessToken
}

func (c *scene) balance() *toll.Balance {
	c.Helper()
	return must.Get(c.service.client(c.subscriber).Balance(c.Context(), c.plan))(c)
}

// advance moves the clock of the service.
func (c *scene) advance(d time.Duration) {
	c.Helper()
	body := fmt.Sprintf(`{"advanceSecs":%d}`, int64(d/time.Second))
	req := must.Get(http.NewRequestWithContext(c.Context(), "POST", c.url+"/api/v1/sandbox/clock", strings.NewReader(body)))(c)
	req.Header.Set("Authorization", "Bearer "+c.operator.Key)
	req.Header.Set("Content-Type", "application/json")
	res := must.Get(http.DefaultClient.Do(req))(c)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		c.Fatalf("the clock: %s", res.Status)
	}
}

// burnElsewhere takes all credits that are available, through requests that have nothing to do with the scene.
func (c *scene) burnElsewhere() {
	c.Helper()
	f := c.service.client(c.builder)
	terms := must.Get(f.Terms(c.Context(), c.plan))(c)
	required := x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{AgentID: c.agent})
	for left := c.balance().Available; left > 0; left = c.balance().Available {
		r, err := f.Settle(c.Context(), &x402.SettleRequest{PaymentRequired: *required, AccessToken: c.buyToken(), MaxAmount: min(left, c.max).Ptr()})
		if err != nil || !r.Success {
			c.Fatalf("%+v %v", r, err)
		}
	}
}

// party is a server with one paid route.
type party struct {
	*recorder
	ask  string // address of the route
	runs func() int
	base string
}

type serverArgs struct {
	Service           string       `json:"service"`
	Key               string       `json:"key"`
	Scheme            string       `json:"scheme"`
	Network           string       `json:"network"`
	PlanID            toll.PlanID  `json:"planId"`
	AgentID           toll.AgentID `json:"agentId"`
	Price             any          `json:"price"` // credits, or dollars of an entry of another scheme
	PayTo             string       `json:"payTo"`
	MaxTimeoutSeconds int          `json:"maxTimeoutSeconds"`
	Resource          string       `json:"resource"`
	Extensions        any          `json:"extensions,omitempty"`
	NoCancelHook      bool         `json:"noCancelHook,omitempty"`
	Upfront           bool         `json:"upfront,omitempty"`
	TopLevelPlan      bool         `json:"topLevelPlan,omitempty"`
	Pause             bool         `json:"pause,omitempty"`
	Override          string       `json:"override,omitempty"`
	Status            int          `json:"status,omitempty"`
}

// E opens an Express server whose route costs 5 credits.
func (c *scene) E(change ...func(*serverArgs)) *party {
	c.Helper()
	p := &party{recorder: newRecorder(c.T, c.url)}
	args := serverArgs{
		Service: p.recorder.url, Key: c.builder.Key, Scheme: c.scheme, Network: c.network, PlanID: c.plan, AgentID: c.agent, Price: 5,
		PayTo: c.builder.Address.String(), MaxTimeoutSeconds: 60, Resource: resource,
	}
	for _, f := range change {
		f(&args)
	}
	must.Do(c, c.servers.do("open", args, &p.base))
	c.Cleanup(func() { _ = c.servers.do("close", map[string]any{"url": p.base}, nil) }) // it may have ended
	p.ask = p.base + "/ask"
	p.runs = func() (n int) {
		must.Check(c, c.servers.do("runs", map[string]any{"url": p.base}, &n))
		return n
	}
	c.parties = append(c.parties, p)
	return p
}

// reached waits until a handler of E that pauses was reached, and pass lets it go on.
func (c *scene) reached(p *party) { c.tell("reached", p) }
func (c *scene) pass(p *party)    { c.tell("pass", p) }

func (c *scene) tell(command string, p *party) {
	c.Helper()
	must.Do(c, c.servers.do(command, map[string]any{"url": p.base}, nil))
}

// judge gives all answers of the facilitator to the schemas of other software.
func (c *scene) judge() {
	var answers []map[string]any
	for _, p := range c.parties {
		for _, operation := range []string{"verify", "settle", "supported"} {
			for _, a := range p.of(operation) {
				answers = append(answers, map[string]any{
					"operation": operation, "status": a.status, "body": string(a.answer), "headers": map[string]string{"content-type": a.header.Get("Content-Type")},
				})
			}
		}
	}
	if len(answers) > 0 {
		c.faults(map[string]any{"answers": answers})
	}
}

func (c *scene) faults(given map[string]any) {
	c.Helper()
	var faults []string
	must.Check(c, c.oracle.do("judge", given, &faults))
	for _, f := range faults {
		c.Errorf("other software does not understand: %s", f)
	}
}

// own is a server of this process.
func (c *scene) own(h func(r *recorder) http.Handler) *party {
	c.Helper()
	p := &party{recorder: newRecorder(c.T, c.url)}
	p.base = serve(c.T, h(p.recorder))
	p.ask = p.base + "/ask"
	c.parties = append(c.parties, p)
	return p
}

// content is what a paid handler does: it counts, and answers.
func content(runs *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"answer":42}`)
	})
}
