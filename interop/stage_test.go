package interop

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
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
}

func (s *service) client(k toll.APIKey) *client.Client {
	return client.New(k.Key, client.WithURL(s.url), client.WithRetries(0))
}

// run starts the program on a database of its own.
func run(t *testing.T, o servertest.Options) *service {
	t.Helper()
	if o.Data == "" && o.Database == "" {
		o.Data = t.TempDir()
	}
	s := &service{
		owner: t, options: o, builder: servertest.Key(t, o, "builder"), subscriber: servertest.Key(t, o, "subscriber"),
		operator: servertest.Key(t, o, "operator", "--operator"),
	}
	s.options.Listen = servertest.FreeAddress(t) // the same after a restart
	s.process = servertest.Start(t, s.options)
	s.url = s.process.URL
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
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{url: "http://" + ln.Addr().String(), rail: railtest.New()}
	cfg.Data, cfg.Listen = t.TempDir(), ln.Addr().String()
	cfg.Rails.Crypto, cfg.Rails.Card = s.rail, railtest.New()
	srv, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for account, key := range map[string]*toll.APIKey{"builder": &s.builder, "subscriber": &s.subscriber, "operator": &s.operator} {
		if *key, err = srv.CreateKey(t.Context(), server.KeyRequest{Account: account, Operator: account == "operator"}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// actors are the processes of other software.
type actors struct{ servers, clients, oracle *role }

func cast(t *testing.T) *actors {
	t.Helper()
	n := findNode(t)
	dir := n.workDir(t)
	return &actors{n.start(t, dir, "server"), n.start(t, dir, "client"), n.start(t, dir, "oracle")}
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
	price, err := toll.PriceERC20(toll.UnitsOf(1_000_000), toll.Sandbox.USDC(), s.builder.Address)
	if err != nil {
		t.Fatal(err)
	}
	c := &scene{T: t, service: s, actors: a, setting: setting{credits: 100, min: 1, max: 10, price: price, scheme: scheme, network: network}}
	for _, f := range change {
		f(&c.setting)
	}
	c.plan, c.agent = c.register(resource)
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
	r, err := c.service.client(c.builder).RegisterAgentWithPlan(c.Context(), client.AgentParams{
		Metadata: toll.Metadata{Name: c.Name()}, API: toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: url}}},
	}, client.PlanParams{
		Metadata: toll.Metadata{Name: c.Name()}, Price: c.price, Credits: toll.CreditsConfig{Amount: 100, MinAmount: c.min, MaxAmount: c.max},
	})
	if err != nil {
		c.Fatal(err)
	}
	return r.PlanID, r.AgentID
}

func (c *scene) mint(n toll.Credits) {
	c.Helper()
	if _, err := c.service.client(c.builder).Mint(c.Context(), c.plan, c.subscriber.Address, n, 0); err != nil {
		c.Fatal(err)
	}
	c.minted += n
}

func (c *scene) buyToken(opts ...client.TokenOption) string {
	c.Helper()
	token, err := c.service.client(c.subscriber).AccessToken(c.Context(), c.plan, opts...)
	if err != nil {
		c.Fatal(err)
	}
	return token.AccessToken
}

func (c *scene) balance() *toll.Balance {
	c.Helper()
	b, err := c.service.client(c.subscriber).Balance(c.Context(), c.plan)
	if err != nil {
		c.Fatal(err)
	}
	return b
}

// advance moves the clock of the service.
func (c *scene) advance(d time.Duration) {
	c.Helper()
	body := fmt.Sprintf(`{"advanceSecs":%d}`, int64(d/time.Second))
	req, err := http.NewRequestWithContext(c.Context(), "POST", c.url+"/api/v1/sandbox/clock", strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.operator.Key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		c.Fatalf("the clock: %s", res.Status)
	}
}

// burnElsewhere takes all credits that are available, through requests that have nothing to do with the scene.
func (c *scene) burnElsewhere() {
	c.Helper()
	f := c.service.client(c.builder)
	terms, err := f.Terms(c.Context(), c.plan)
	if err != nil {
		c.Fatal(err)
	}
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
	Price             int64        `json:"price"`
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
	if err := c.servers.do("open", args, &p.base); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = c.servers.do("close", map[string]any{"url": p.base}, nil) }) // it may have ended
	p.ask = p.base + "/ask"
	p.runs = func() (n int) {
		if err := c.servers.do("runs", map[string]any{"url": p.base}, &n); err != nil {
			c.Error(err)
		}
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
	if err := c.servers.do(command, map[string]any{"url": p.base}, nil); err != nil {
		c.Fatal(err)
	}
}

type clientArgs struct {
	URL               string           `json:"url,omitempty"`
	Required          string           `json:"required,omitempty"`
	Token             string           `json:"token"`
	Scheme            string           `json:"scheme"`
	Network           string           `json:"network"`
	NoDefaultAsset    bool             `json:"noDefaultAsset,omitempty"`
	AnyPlan           bool             `json:"anyPlan,omitempty"`
	Nonce             *json.RawMessage `json:"nonce,omitempty"`
	PaymentIdentifier string           `json:"paymentIdentifier,omitempty"`
	SpendControls     any              `json:"spendControls,omitempty"`
}

// trip is a request of a client and its answer.
type trip struct {
	Status  int
	Headers map[string]string
	Payment string
}

// outcome is what became of a paid call.
type outcome struct {
	Trips   []trip
	Status  int
	Headers map[string]string
	Body    string
	Thrown  string
}

func (c *scene) args(p *party, change []func(*clientArgs)) clientArgs {
	a := clientArgs{URL: p.ask, Token: c.token, Scheme: c.scheme, Network: c.network}
	for _, f := range change {
		f(&a)
	}
	return a
}

// C asks with @x402/fetch and the plug-in.
func (c *scene) C(p *party, change ...func(*clientArgs)) *outcome { return c.asked("fetch", p, change) }

// axios asks with @x402/axios and the plug-in.
func (c *scene) axios(p *party, change ...func(*clientArgs)) *outcome {
	return c.asked("axios", p, change)
}

func (c *scene) asked(command string, p *party, change []func(*clientArgs)) *outcome {
	c.Helper()
	o := new(outcome)
	if err := c.clients.do(command, c.args(p, change), o); err != nil {
		c.Fatal(err)
	}
	var headers []map[string]string
	for _, trip := range o.Trips {
		for name, value := range trip.Headers {
			if name == "payment-required" || name == "payment-response" {
				headers = append(headers, map[string]string{"name": name, "value": value})
			}
		}
		if trip.Payment != "" {
			headers = append(headers, map[string]string{"name": "payment-signature", "value": trip.Payment})
		}
	}
	c.faults(map[string]any{"headers": headers})
	return o
}

// pay makes the header with which the plug-in pays what a server asks for, and sends nothing.
func (c *scene) pay(p *party, change ...func(*clientArgs)) string {
	c.Helper()
	a := c.args(p, change)
	a.URL, a.Required = "", c.send(p, "").header.Get("Payment-Required")
	var header string
	if err := c.clients.do("pay", a, &header); err != nil {
		c.Fatal(err)
	}
	return header
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// error is the text of a 402, from its header.
func (a *answer) error() string { return required(a.header.Get("Payment-Required")).Error }

func required(header string) *x402.PaymentRequired {
	p := new(x402.PaymentRequired)
	if b, err := base64.StdEncoding.DecodeString(header); err == nil {
		_ = json.Unmarshal(b, p) // what a server of others said; the scene looks at members
	}
	return p
}

// send asks with header lines as they are.
func (c *scene) send(p *party, payment ...string) *answer {
	c.Helper()
	a, err := post(c.Context(), p.ask, payment...)
	if err != nil {
		c.Fatal(err)
	}
	return a
}

// sendAll asks with all payments at once.
func (c *scene) sendAll(p *party, payments []string) []*answer {
	c.Helper()
	answers := make([]*answer, len(payments))
	errs := make(chan error, len(payments))
	for i, payment := range payments {
		go func() {
			var err error
			answers[i], err = post(c.Context(), p.ask, payment)
			errs <- err
		}()
	}
	for range payments {
		if err := <-errs; err != nil {
			c.Fatal(err)
		}
	}
	return answers
}

// counted returns how many answers have each status.
func counted(answers []*answer) map[int]int {
	n := map[int]int{}
	for _, a := range answers {
		n[a.status]++
	}
	return n
}

// receipt is the one of a header payment-response.
func (c *scene) receipt(header string) *x402.SettleResponse {
	c.Helper()
	r := new(x402.SettleResponse)
	if err := x402.DecodeHeader(header, r); err != nil {
		c.Fatalf("receipt %q: %v", header, err)
	}
	return r
}

// paid makes sure that a call was answered after it was paid with so many credits.
func (c *scene) paid(o *outcome, credits toll.Credits) {
	c.Helper()
	if o.Thrown != "" || o.Status != http.StatusOK || !strings.Contains(o.Body, "42") {
		c.Fatalf("%d %q %s", o.Status, o.Body, o.Thrown)
	}
	r := c.receipt(o.Headers["payment-response"])
	if !r.Success || r.Transaction == "" || r.Extra == nil || r.Extra.CreditsRedeemed == nil || *r.Extra.CreditsRedeemed != credits {
		c.Errorf("receipt %+v", r)
	}
}

// refused makes sure that a call was answered with 402 without content, and returns its text.
func (c *scene) refused(o *outcome) string {
	c.Helper()
	if o.Thrown != "" || o.Status != http.StatusPaymentRequired || strings.Contains(o.Body, "42") {
		c.Fatalf("%d %q %s", o.Status, o.Body, o.Thrown)
	}
	return required(o.Headers["payment-required"]).Error
}

// begins makes sure that a text of a 402 begins with a reason.
func (c *scene) begins(text string, reason string) {
	c.Helper()
	if word, _, _ := strings.Cut(text, ":"); word != reason {
		c.Errorf("402 says %q, want %s", text, reason)
	}
}

// ends makes sure how the scene ended: runs of handlers, burns of all its parties, and the balance, of which nothing is held.
func (c *scene) ends(handled int, burned []int, balance toll.Credits) {
	c.Helper()
	var runs int
	var got []int
	seen := map[string]bool{}
	for _, p := range c.parties {
		runs += p.runs()
		for _, s := range p.of("settle") {
			if tx := s.text("transaction"); s.text("success") == "true" && !seen[tx] {
				seen[tx] = true
				n, err := strconv.Atoi(s.text("amount"))
				if err != nil {
					c.Errorf("amount %q", s.text("amount"))
				}
				got = append(got, n)
			}
		}
	}
	slices.Sort(got)
	if runs != handled || !slices.Equal(got, burned) {
		c.Errorf("%d runs with burns %v, want %d with %v", runs, got, handled, burned)
	}
	if b := c.balance(); b.Balance != balance || b.Available != balance {
		c.Errorf("balance %d, available %d, want %d", b.Balance, b.Available, balance)
	}
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
	c.faults(map[string]any{"answers": answers})
}

func (c *scene) faults(given map[string]any) {
	c.Helper()
	var faults []string
	if err := c.oracle.do("judge", given, &faults); err != nil {
		c.Error(err)
	}
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
