package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/store/storetest"
)

// While no endpoint of the chain speaks, credits that are there are verified and settled as ever, orders are told to come again,
// and they go on by themselves when an endpoint is back.
// T68
func TestCreditsGoOnWithoutEndpoints(t *testing.T) {
	t.Parallel() // it mostly waits
	public := chaintest.New(t)
	double := chaintest.NewDouble(t, public.Client())
	cfg := outside(double.URL)
	cfg.Data = storetest.Dir(t)
	s, url := start(t, cfg)
	fuel(t, rows(t, cfg), public)
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 10)
	if _, err := public.Mint(t.Context(), contracts.USDC(contracts.BaseSepolia), common.Address(subscriber.Address), toll.UnitsOf(5_000_000).Int()); err != nil {
		t.Fatal(err)
	}
	first := client.WithIdempotencyKey(t.Context(), "first")
	eventually(t, "an order is paid", func() bool {
		_, err := c.subscriber.OrderPlan(first, c.plan)
		return err == nil && c.balance(t).Balance == 110
	})
	impatient := client.New(subscriber.Key, client.WithURL(url), client.WithMaxRetryWait(time.Millisecond))
	burned := toll.Credits(0)
	asked := map[any]bool{} // orders; as a rule one, but it may be paid before it is asked for again
	for name, fault := range map[string]func(){
		"HTML 200": func() { double.Page(http.StatusOK) }, "cut": func() { double.Drop(-1) }, "hang": func() { double.Hang() },
	} {
		t.Run(name, func(t *testing.T) {
			fault()
			defer double.Clear()
			_, err := impatient.OrderPlan(t.Context(), c.plan)
			if codeOf(err) != toll.CodeChainUnreachable {
				t.Fatalf("order: %v", err)
			}
			asked[toll.AsError(err).Params["orderId"]] = true
			thrice(t, func() error {
				began := time.Now()
				for range 2 {
					if res, err := c.settle(t.Context(), ""); err != nil || !res.Success {
						t.Errorf("settle: %+v, %v", res, err)
					}
					burned++
				}
				if took := time.Since(began); took > 8*time.Second { // one attempt on an endpoint that hangs takes 5 s
					return fmt.Errorf("two settlements took %v while the chain is away", took)
				}
				return nil
			})
			eventually(t, "ready", func() bool { return status(t, url+"/ready") == http.StatusOK })
		})
	}
	eventually(t, "orders go on", func() bool {
		o, err := c.subscriber.OrderPlan(t.Context(), c.plan)
		if err == nil {
			asked[o.OrderID] = true
		}
		return err == nil
	})
	want := 110 - burned + toll.Credits(100*len(asked))
	eventually(t, "what was asked for is paid once", func() bool { return c.balance(t).Balance == want })
}
