// Package tolltest runs a complete service inside a test: a builder with a plan and an agent, subscribers with credits, and
// a clock that the test moves. Nothing is mocked; the service uses an embedded database in a separate directory.
//
//	svc := tolltest.New(t)
//	h := paid.Handler(svc.Facilitator(), ask, paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(2))
//	ann := svc.Subscriber(10)
//	req.Header.Set("payment-signature", ann.AccessToken)
package tolltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// Option configures the service.
type Option func(*options)

type options struct {
	plan  client.PlanParams
	agent client.AgentParams
	start time.Time
	rail  *railtest.Rail
	cards bool
	own   bool // the plan was named
}

// WithPlan replaces the plan of the builder, by default one with a price, 100 credits an order and 1 to 10 credits a
// request. Subscribers of a plan with a price have what [Service.Subscriber] gives them; a free one is ordered on demand.
func WithPlan(p client.PlanParams) Option { return func(o *options) { o.plan, o.own = p, true } }

// WithAgent replaces the agent of the builder. The default agent has no endpoints, and any request may pay it.
func WithAgent(a client.AgentParams) Option { return func(o *options) { o.agent = a } }

// WithStart sets the initial time of the service's clock, by default the current time.
func WithStart(t time.Time) Option { return func(o *options) { o.start = t } }

// WithPayments adds a fake rail that pays token orders at once, unless [Service.Decline] is called. Without this option,
// paid orders in tokens are refused because no rail is configured. Card orders get a page, but nothing pays it.
func WithPayments() Option { return func(o *options) { o.rail = railtest.New() } }

// Service is a running service. It is safe for concurrent use.
type Service struct {
	tb      testing.TB // nil for a service of Start
	server  *server.Server
	url     string
	dir     string
	base    time.Time
	offset  atomic.Int64 // nanoseconds by which Advance has moved the clock
	stop    context.CancelFunc
	stopped chan error
	once    sync.Once
	ended   error

	builder toll.APIKey
	client  *client.Client
	clock   func() time.Time
	rail    *railtest.Rail // nil without WithPayments
	plan    toll.PlanID
	agent   toll.AgentID
	people  atomic.Int64
}

// New starts a service that stops at the end of the test. Any failure fails the test.
func New(t testing.TB, opts ...Option) *Service {
	t.Helper()
	s, err := Start(opts...)
	if err != nil {
		t.Fatalf("tolltest: %v", err)
	}
	s.tb = t
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("tolltest: %v", err)
		}
	})
	return s
}

// Start is [New] for programs and examples, which have no test. The caller must close the service; later failures panic.
func Start(opts ...Option) (_ *Service, err error) {
	o := options{
		plan: client.PlanParams{
			Metadata: toll.Metadata{Name: "Test plan"},
			Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, IsCrypto: true},
			Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
		},
		agent: client.AgentParams{Metadata: toll.Metadata{Name: "Test agent"}},
		start: time.Now(),
	}
	for _, opt := range opts {
		opt(&o)
	}
	if o.cards && !o.own {
		o.plan.Price = toll.Price{Amounts: []toll.Units{toll.UnitsOf(5_000_000)}, Currency: toll.CurrencyUSD}
	}
	s := &Service{base: o.start, rail: o.rail, stopped: make(chan error, 1)}
	began := time.Now()
	s.clock = func() time.Time { return s.base.Add(time.Since(began) + time.Duration(s.offset.Load())) }

	if s.dir, err = os.MkdirTemp("", "tolltest-"); err != nil {
		return nil, err
	}
	if err := storetest.Fill(s.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	cfg := server.Config{Data: s.dir, Listen: ln.Addr().String(), Clock: s.clock, LoopbackWebhooks: true}
	if !o.cards {
		cfg.Rails.Card.Mode = "off"
	}
	if s.rail != nil {
		card := railtest.New()
		card.Behave(railtest.Behaviour{Person: true})
		if cfg.Rails.Given = (rail.Rails{rail.Crypto: s.rail}); !o.cards {
			cfg.Rails.Given[rail.Card] = card
		}
	}
	if s.server, err = server.New(ctx, cfg); err != nil {
		stop()
		return nil, errors.Join(err, ln.Close(), os.RemoveAll(s.dir))
	}
	s.url = s.server.PublicURL()
	go func() { s.stopped <- s.server.Serve(ctx, ln) }()
	if err := s.seed(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Service) seed(ctx context.Context, o options) (err error) {
	if s.builder, err = s.server.CreateKey(ctx, server.KeyRequest{Account: "builder"}); err != nil {
		return err
	}
	s.client = client.New(s.builder.Key, client.WithURL(s.url))
	if price := &o.plan.Price; len(price.Amounts) == 1 && len(price.Receivers) == 0 {
		price.Receivers = []toll.Address{s.builder.Address}
	}
	registered, err := s.client.RegisterAgentWithPlan(ctx, o.agent, o.plan)
	if err != nil {
		return err
	}
	s.plan, s.agent = registered.PlanID, registered.AgentID
	return nil
}

// Close ends the service and removes its data. A service of [New] is closed by its test.
func (s *Service) Close() error {
	s.once.Do(func() {
		s.stop()
		s.ended = errors.Join(<-s.stopped, s.server.Close(context.Background()), os.RemoveAll(s.dir))
	})
	return s.ended
}

// URL returns the public address of the service, such as http://localhost:40213.
func (s *Service) URL() string { return s.url }

// Plan returns the plan of the builder.
func (s *Service) Plan() toll.PlanID { return s.plan }

// Agent returns the agent of the builder, to which the plan is attached.
func (s *Service) Agent() toll.AgentID { return s.agent }

// Builder returns the address of the builder.
func (s *Service) Builder() toll.Address { return s.builder.Address }

// Client returns a client with the builder's key, over HTTP.
func (s *Service) Client() *client.Client { return s.client }

// Facilitator returns the facilitator as the builder sees it, without a network between. [Service.Client] is one as well, over HTTP.
func (s *Service) Facilitator() x402.Facilitator { return s.server.Facilitator(s.builder.Address) }

// Data returns the directory of the service's database, for commands that work on it such as toll audit.
func (s *Service) Data() string { return s.dir }

// Advance moves the clock of the service forward: access tokens and holds end, credits expire.
func (s *Service) Advance(d time.Duration) {
	if d < 0 {
		s.fail(errors.New("the clock cannot be set back"))
	}
	s.offset.Add(int64(d))
}

// Now returns the time of the service.
func (s *Service) Now() time.Time { return s.clock() }

// Decline makes the fake rail of [WithPayments] refuse payments from now on, or accept them again when on is false.
func (s *Service) Decline(on bool) {
	if s.payments() {
		s.rail.Behave(railtest.Behaviour{Decline: on, Reason: "declined by the test"})
	}
}

// Stall makes the fake rail of [WithPayments] leave orders undecided from now on, or decide them again when on is false.
func (s *Service) Stall(on bool) {
	if s.payments() {
		s.rail.Behave(railtest.Behaviour{Hang: on})
	}
}

// Paid returns the number of orders that the fake rail of [WithPayments] has paid, and the sum in base units of their tokens.
func (s *Service) Paid() (orders int, sum toll.Units) {
	if s.payments() {
		return s.rail.Charges()
	}
	return 0, sum
}

func (s *Service) payments() bool {
	s.helper()
	if s.rail == nil {
		s.fail(errors.New("the service has no payments: start it with WithPayments"))
	}
	return s.rail != nil
}

// Mint grants credits of the builder's plan to a holder.
func (s *Service) Mint(holder toll.Address, credits toll.Credits) {
	s.helper()
	if _, err := s.client.Mint(context.Background(), s.plan, holder, credits, 0); err != nil {
		s.fail(err)
	}
}

// Subscriber is a subscriber of the service.
type Subscriber struct {
	Address toll.Address
	// AccessToken pays with the credits of the subscriber, at every agent of the plan, for a day of the service's clock.
	AccessToken string
	// Permission is the hash of the access token's permission.
	Permission toll.Hash
	// Client has the subscriber's key.
	Client *client.Client

	svc *Service
}

// Subscriber returns a new subscriber with this many credits of the builder's plan.
func (s *Service) Subscriber(credits toll.Credits, opts ...client.TokenOption) *Subscriber {
	s.helper()
	ctx := context.Background()
	key, err := s.server.CreateKey(ctx, server.KeyRequest{Account: "subscriber " + strconv.FormatInt(s.people.Add(1), 10)})
	if err != nil {
		s.fail(err)
		return nil
	}
	if credits > 0 {
		s.Mint(key.Address, credits)
	}
	sub := &Subscriber{Address: key.Address, Client: client.New(key.Key, client.WithURL(s.url)), svc: s}
	token, err := sub.Client.AccessToken(ctx, s.plan, opts...)
	if err != nil {
		s.fail(err)
		return nil
	}
	sub.AccessToken, sub.Permission = token.AccessToken, token.PermissionHash
	return sub
}

// Balance returns the credits that the subscriber has of the builder's plan, held ones included.
func (sub *Subscriber) Balance() toll.Credits {
	sub.svc.helper()
	b, err := sub.Client.Balance(context.Background(), sub.svc.plan)
	if err != nil {
		sub.svc.fail(err)
		return 0
	}
	return b.Balance
}

// Delegate lets access tokens of the subscriber spend up to this many cents, for a day of the service's clock, and returns
// the id for [client.WithDelegation] and [client.PaidBy]. Orders through it need [WithPayments].
func (sub *Subscriber) Delegate(limit toll.Cents) string {
	sub.svc.helper()
	d, err := sub.Client.CreateDelegation(context.Background(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: limit, Lifetime: 24 * time.Hour, Currency: "usdc",
	})
	if err != nil {
		sub.svc.fail(err)
		return ""
	}
	return d.DelegationID
}

func (s *Service) helper() {
	if s.tb != nil {
		s.tb.Helper()
	}
}

func (s *Service) fail(err error) {
	s.helper()
	if s.tb == nil {
		panic(fmt.Sprintf("tolltest: %v", err))
	}
	s.tb.Fatalf("tolltest: %v", err)
}

// NewKey returns a new API key of the account with this name, which is made on its first use. The builder's account is called "builder".
func (s *Service) NewKey(account string) (toll.APIKey, error) {
	return s.server.CreateKey(context.Background(), server.KeyRequest{Account: account})
}
