package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

const (
	// listedOrders are made for the list of orders, by listBuyers in turn.
	listedOrders, listBuyers = 1024, 64
	// listPage is how many records a list answers, so that an answer fits into the buffer of a connection.
	listPage = 20
)

// lists read a database with many settlements, one after the other on one connection: their latency is the time of the service.
func (b *bench) lists(engine string) (out []*scenario) {
	add := func(name, about, want string, path func(m *market) string) {
		out = append(out, &scenario{
			name: "list-" + name + "-" + engine, about: "list " + about, engine: full + engine,
			load: func(b *bench) (*load, error) {
				m := b.markets[full+engine]
				msg := m.get(m.key, path(m))
				return &load{addr: m.service.addr, lanes: [][]message{{msg}}, want: []byte(want)}, nil
			},
		})
	}
	of := func(path string) func(m *market) string {
		return func(*market) string { return "/api/v1/protocol" + path }
	}
	add("usage", "usage by day of all plans", `"usage":[`, of("/usage?by=day"))
	add("usage-subscribers", "usage of a plan by subscriber", `"usage":[`, func(m *market) string {
		return "/api/v1/protocol/usage?by=subscriber&planId=" + string(m.plan)
	})
	add("revenue", "revenue by day of all plans", `"revenue":[`, of("/revenue?by=day"))
	add("subscribers", "subscribers of a plan", `"subscribers":[{`, func(m *market) string {
		return "/api/v1/protocol/plans/" + string(m.plan) + "/subscribers"
	})
	add("requests", "requests of all plans, newest first", `"requests":[{`, of("/requests"))
	add("requests-first", "requests of all plans, oldest first", `"requests":[{`, of("/requests?sortOrder=asc"))
	add("requests-subscriber", "requests of a subscriber of a plan", `"requests":[{`, func(m *market) string {
		return "/api/v1/protocol/requests?planId=" + string(m.plan) + "&subscriber=" + m.subscribers[0].Lower()
	})
	add("requests-none", "requests of an agent that has none; the service reads 2,000", `"requests":[]`, of("/requests?agentId=1"))
	out = append(out, &scenario{
		name: "list-orders-" + engine, about: "list orders of all plans of a seller with " + strconv.Itoa(listedOrders),
		engine: full + engine, load: func(b *bench) (*load, error) {
			m := b.markets[full+engine]
			key, err := m.ordered(context.Background())
			if err != nil {
				return nil, err
			}
			msg := m.get(key, "/api/v1/protocol/orders?role=seller")
			return &load{addr: m.service.addr, lanes: [][]message{{msg}}, want: []byte(`"orders":[{`)}, nil
		},
	})
	return out
}

// get reads a page of a list.
func (m *market) get(key, path string) message {
	sign := "?"
	if strings.Contains(path, sign) {
		sign = "&"
	}
	return message{raw: fmt.Appendf(nil, "GET %s%spageSize=%d HTTP/1.1\r\nHost: %s\r\nUser-Agent: toll-bench\r\nAccept: application/json\r\n"+
		"Authorization: Bearer %s\r\n%s: %s\r\n\r\n", path, sign, listPage, m.service.addr, key, x402.Default.HeaderVersion(), client.Version)}
}

// ordered makes a seller with a free plan that was ordered often, and returns its key.
func (m *market) ordered(ctx context.Context) (key string, err error) {
	names := []string{"seller of orders"}
	for i := range listBuyers {
		names = append(names, "buyer "+strconv.Itoa(i))
	}
	a, err := m.service.say(order{Keys: names})
	if err != nil {
		return "", err
	}
	as := func(h holder) *client.Client { return client.New(h.Key, client.WithURL(m.url())) }
	plan, err := as(a.Keys[0]).RegisterPlan(ctx, client.PlanParams{
		Metadata: toll.Metadata{Name: "Ordered"}, Credits: toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1},
	})
	if err != nil {
		return "", err
	}
	return a.Keys[0].Key, together(listedOrders, func(i int) error {
		_, err := as(a.Keys[1+i%listBuyers]).OrderPlan(ctx, plan.PlanID)
		return err
	})
}
