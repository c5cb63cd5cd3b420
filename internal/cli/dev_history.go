package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/x402"
)

const (
	devDays    = 27                  // the card rail raises an alarm about events that nobody read for 28
	devKeyLife = 90 * 24 * time.Hour // of keys that the month needs
)

// devOffer is a plan of the month, with the agent that it pays.
type devOffer struct {
	name, text, path string
	tags             []string
	plan             string
	price            func(receiver toll.Address) (toll.Price, error)
	credits          toll.CreditsConfig
	trial            bool
	weight           int      // how much of the traffic it has
	models           []string // that its buyers name, as behind a gate
}

func dollars(units int64) func(toll.Address) (toll.Price, error) {
	return func(to toll.Address) (toll.Price, error) {
		return toll.PriceFiat(toll.UnitsOf(units), to, toll.CurrencyUSD)
	}
}

var devOffers = []devOffer{
	{
		name: "Summaries", text: "The main points of a text of up to 64 KiB, in five sentences.", path: "/summarise", tags: []string{"text", "english"},
		plan: "Summaries, 500 credits", price: dollars(20_000_000), credits: toll.CreditsDynamic(500, 1, devMaxCredits), weight: 6,
		models: []string{"small-2", "small-2", "large-1"},
	},
	{
		name: "Translation", text: "Translates German, French, and Spanish into English.\nOne credit per 200 characters, rounded up.", path: "/translate",
		tags: []string{"text", "languages"}, plan: "Translation, one month", price: dollars(29_000_000),
		credits: toll.CreditsExpirable(toll.UnitsOf(toll.MonthSecs)), weight: 3,
	},
	{
		name: "Readability", text: "Shows how hard a text is to read, and the sentences that make it hard.", path: "/readability", tags: []string{"text"},
		plan: "Readability, free trial", price: func(toll.Address) (toll.Price, error) { return toll.PriceFree(), nil },
		credits: toll.CreditsFixed(25, 1), trial: true, weight: 2,
	},
	{
		name: "Keywords", text: "The main terms of a text.", path: "/keywords", tags: []string{"text", "search"}, plan: "Keywords, pay as you go",
		price: func(to toll.Address) (toll.Price, error) {
			return toll.PricePayAsYouGo(toll.UnitsOf(10_000), to, toll.Sandbox.USDC())
		},
		credits: toll.CreditsPayAsYouGo(),
	},
}

// devSold is what an offer became.
type devSold struct {
	devOffer
	planID  toll.PlanID
	agentID toll.AgentID
	terms   *x402.Terms
}

// devBuyer buys in the month.
type devBuyer struct {
	person
	from   int // day of the first order
	tokens map[toll.PlanID]*toll.AccessToken
}

// makeHistory fills a new data directory with a month of sales, in seconds: a service whose clock begins a month ago takes orders and
// settles, and ends before the real one starts. The chain is off meanwhile. When ctx ends, makeHistory finishes the current call and returns.
func makeHistory(ctx context.Context, a *app, m *market, f devFlags, st *stage) (err error) {
	var back atomic.Int64
	back.Store(int64(devDays * 24 * time.Hour))
	clock := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
	cfg := m.config(a, f)
	cfg.Clock, cfg.Rails.Chain = clock, rails.ChainConfig{Mode: rails.ChainOff}
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	m.service = s
	end := background(ctx, func(ctx context.Context) error { return s.Serve(ctx, m.serviceListener) })
	defer func() {
		err = errors.Join(err, end(), s.Close(context.WithoutCancel(ctx)))
		if err == nil {
			m.serviceListener, err = server.Listen(ctx, cfg.Listen)
		}
	}()
	call := context.WithoutCancel(ctx)
	builder, buyers, err := m.historyPeople(call)
	if err != nil {
		return err
	}
	sold, err := m.historyOffers(call, builder)
	if err != nil {
		return err
	}
	chance := rand.New(rand.NewPCG(1, 2)) // the same month each time
	for day := range devDays {
		if day%7 == 0 {
			st.facts("sample sales", fmt.Sprintf("day %d of %d", day+1, devDays))
		}
		for _, b := range buyers {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			if err := m.historyOrders(call, b, sold, day); err != nil {
				return fmt.Errorf("day %d: %w", day, err)
			}
		}
		for hour := 8; hour < 22; hour += 2 {
			at := time.Duration(devDays-day)*24*time.Hour - time.Duration(hour)*time.Hour
			back.Store(min(back.Load(), max(int64(at), 0)))
			calls := 1 + day/6 + chance.IntN(4)
			if wd := clock().Weekday(); wd == time.Saturday || wd == time.Sunday {
				calls /= 2
			}
			if err := m.historyCalls(call, chance, builder, buyers, sold, calls); err != nil {
				return fmt.Errorf("day %d: %w", day, err)
			}
		}
	}
	back.Store(0)
	// A webhook whose receiver does not run, and a key that ends soon: what needs attention.
	hook := client.WebhookParams{URL: "http://127.0.0.1:9/hooks", Description: "Orders to the shop"}
	if _, err = builder.client.CreateWebhook(call, hook); err == nil {
		_, err = builder.client.CreateKey(call, client.KeyParams{Name: "ci", ExpiresIn: 3 * 24 * time.Hour})
	}
	if err == nil {
		err = m.historyOrders(call, buyers[1], sold, buyers[1].from) // an event for the webhook
	}
	return err
}

// historyPeople creates the two people of the market, and companies that buy.
func (m *market) historyPeople(ctx context.Context) (builder person, buyers []*devBuyer, err error) {
	open := func(key toll.APIKey) person {
		return person{address: key.Address, client: client.New(key.Key, client.WithURL(m.url()), client.WithNamespace(m.service.Namespace()))}
	}
	key, err := m.localPerson(ctx, "Bob", devKeyLife)
	if err != nil {
		return builder, nil, err
	}
	builder = open(key)
	if key, err = m.localPerson(ctx, "Alice", devKeyLife); err != nil {
		return builder, nil, err
	}
	buyers = append(buyers, &devBuyer{open(key), 2, map[toll.PlanID]*toll.AccessToken{}})
	for i, name := range []string{"acorn", "birch", "cedar", "daisy", "elder", "ferns"} {
		key, err := m.service.CreateKey(ctx, server.KeyRequest{Account: "dev-" + name, Name: "toll dev", ExpiresIn: devKeyLife})
		if err != nil {
			return builder, nil, err
		}
		buyers = append(buyers, &devBuyer{open(key), i * 4, map[toll.PlanID]*toll.AccessToken{}})
	}
	return builder, buyers, nil
}

// historyOffers registers the agents and the plans of the month.
func (m *market) historyOffers(ctx context.Context, builder person) (sold []devSold, err error) {
	for _, o := range devOffers {
		price, err := o.price(builder.address)
		if err != nil {
			return nil, err
		}
		made, err := builder.client.RegisterAgentWithPlan(ctx,
			client.AgentParams{
				Metadata: toll.Metadata{Name: o.name, Description: o.text, Tags: o.tags},
				API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: http.MethodPost, URL: m.agent() + o.path}}},
			},
			client.PlanParams{Metadata: toll.Metadata{Name: o.plan, Description: o.text}, Price: price, Credits: o.credits, IsTrial: o.trial})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		terms, err := builder.client.Terms(ctx, made.PlanID)
		if err != nil {
			return nil, err
		}
		sold = append(sold, devSold{o, made.PlanID, made.AgentID, terms})
	}
	return sold, nil
}

// historyOrders has a buyer order what it needs on a day: every plan with a price in dollars or none on its first day, and later the credits
// that it used up.
func (m *market) historyOrders(ctx context.Context, b *devBuyer, sold []devSold, day int) error {
	if day < b.from || day > b.from && (day-b.from)%9 != 0 {
		return nil
	}
	for _, o := range sold {
		switch {
		case o.weight == 0, o.trial && b.tokens[o.planID] != nil, !o.terms.Kind.Charges() && b.tokens[o.planID] != nil:
			continue
		case o.trial:
			if _, err := b.client.OrderPlan(ctx, o.planID); err != nil {
				return err
			}
		default:
			page, err := b.client.Checkout(ctx, o.planID, client.CheckoutParams{SessionType: "hosted"})
			if err == nil {
				err = m.service.Cards().FillPage(ctx, page.OrderID, devCard)
			}
			if err != nil {
				return err
			}
		}
		if b.tokens[o.planID] == nil {
			token, err := b.client.AccessToken(ctx, o.planID, client.WithAgent(o.agentID), client.WithExpiry(devKeyLife/2))
			if err != nil {
				return err
			}
			b.tokens[o.planID] = token
		}
	}
	return nil
}

// historyCalls settles calls of buyers that have begun. A buyer without credits is refused, as in life.
func (m *market) historyCalls(ctx context.Context, chance *rand.Rand, builder person, buyers []*devBuyer, sold []devSold, calls int) error {
	f := m.service.Facilitator(builder.address)
	for range calls {
		o := sold[pick(chance, sold)]
		b := buyers[chance.IntN(len(buyers))]
		amount := toll.Credits(1 + chance.IntN(devMaxCredits))
		token := b.tokens[o.planID]
		if token == nil {
			continue
		}
		required := x402.NewPaymentRequired([]*x402.Terms{o.terms}, x402.Options{
			Namespace: m.service.Namespace(), Environment: m.service.Environment(), Endpoint: m.agent() + o.path, HTTPVerb: http.MethodPost, AgentID: o.agentID,
		})
		var labels toll.UsageLabels
		if len(o.models) > 0 {
			labels = toll.UsageLabels{Upstream: "models", Route: http.MethodPost + " " + o.path, Model: o.models[chance.IntN(len(o.models))]}
		}
		_, err := f.Settle(ctx, &x402.SettleRequest{
			PaymentRequired: *required, AccessToken: token.AccessToken, MaxAmount: &amount, AgentRequestID: toll.NewUUID(), Labels: labels,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pick chooses an offer by its weight.
func pick(chance *rand.Rand, sold []devSold) int {
	sum := 0
	for _, o := range sold {
		sum += o.weight
	}
	n := chance.IntN(sum)
	for i, o := range sold {
		if n -= o.weight; n < 0 {
			return i
		}
	}
	return 0
}
