package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

func TestWallet(t *testing.T) {
	const address = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	s := serve(t, func(_ int, c sent) (int, map[string]string, string) {
		switch c.method + " " + c.target {
		case "GET /api/v1/wallet":
			return 200, nil, `{"address":"` + address + `","network":"eip155:84532","chainId":84532,"custody":"shared","exportedAt":"2026-11-21T01:52:18.322Z",
				"explorer":null,"balances":[{"symbol":"ETH","tokenAddress":"0x0000000000000000000000000000000000000000","decimals":18,"amount":"100000000000000000001"}]}`
		case "POST /api/v1/wallet/export":
			return 200, nil, `{"address":"` + address + `","privateKey":"0x01","custody":"shared"}`
		case "POST /api/v1/sandbox/faucet":
			return 200, nil, `{"success":true,"txHash":"0x0100000000000000000000000000000000000000000000000000000000000000","httpStatus":200,"data":{}}`
		}
		t.Errorf("%s %s", c.method, c.target)
		return 404, nil, errorBody
	})
	ctx := context.Background()
	w, err := s.client().Wallet(ctx)
	if err != nil || w.Address != toll.MustAddress(address) || w.Custody != toll.CustodyShared || w.ExportedAt == nil || w.Explorer != nil ||
		len(w.Balances) != 1 || w.Balances[0].Amount.String() != "100000000000000000001" {
		t.Errorf("wallet %+v, %v", w, err)
	}
	if key, err := s.client().ExportWallet(ctx); err != nil || key.PrivateKey != "0x01" || key.Address != toll.MustAddress(address) {
		t.Errorf("export: %v", err)
	}
	for _, tt := range []struct {
		params client.FaucetParams
		want   string
	}{
		{client.FaucetParams{}, `{}`},
		{client.FaucetParams{Address: toll.MustAddress(address), USDC: "12.50", EURC: "1", ETH: "0.1"}, `{"address":"` + address + `","usdc":"12.50","eurc":"1","eth":"0.1"}`},
	} {
		got, err := s.client().Faucet(ctx, tt.params)
		if err != nil || !got.Success || got.TxHash != (toll.Hash{1}) {
			t.Errorf("faucet: %+v, %v", got, err)
		}
		if body := s.sent[s.calls()-1].body; body != tt.want {
			t.Errorf("faucet: sent %s, want %s", body, tt.want)
		}
	}
}

// A key is given out once, and a faucet gives each time: what may have been done is not done again.
func TestWallet_NotRepeated(t *testing.T) {
	for name, act := range map[string]func(c *client.Client) error{
		"export": func(c *client.Client) error { _, err := c.ExportWallet(context.Background()); return err },
		"faucet": func(c *client.Client) error {
			_, err := c.Faucet(context.Background(), client.FaucetParams{})
			return err
		},
	} {
		broken := serve(t, always(0, ""))
		if err := act(broken.client()); err == nil || broken.calls() != 1 {
			t.Errorf("%s: %v, %d calls", name, err, broken.calls())
		}
		refused := serve(t, always(404, errorBody))
		if err := act(refused.client()); !errors.Is(err, toll.ErrPlanNotFound) || refused.calls() != 1 {
			t.Errorf("%s: %v, %d calls", name, err, refused.calls())
		}
	}
}
