package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// TestCall_Exact: a price in a token is not called credits, neither in what is asked for nor in the receipt.
func TestCall_Exact(t *testing.T) {
	amount := toll.Credits(1_000_000)
	for _, tc := range []struct {
		status    int
		header    string
		value     any
		exit      int
		want, not string
	}{
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Accepts: []x402.Requirements{{
			Scheme: x402.SchemeExact, Network: "eip155:84532", Amount: "1000000", Asset: "0xA5", PayTo: "0xB0",
		}}}, 4, "1000000 base units of the token 0xA5 to 0xB0", "credit"},
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Accepts: []x402.Requirements{{
			Scheme: x402.SchemeExact, Network: "eip155:84532", Amount: "1050000", Asset: strings.ToLower(toll.USDCSandbox.String()), PayTo: "0xB0",
		}}}, 4, "1.05 USDC to 0xB0", "credit"},
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Accepts: []x402.Requirements{{ // the token of another network
			Scheme: x402.SchemeExact, Network: "eip155:8453", Amount: "1050000", Asset: toll.USDCSandbox.String(), PayTo: "0xB0",
		}}}, 4, "1050000 base units of the token " + toll.USDCSandbox.String(), "credit"},
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Error: x402.ReasonExactBalance + ": too low"}, 4, "below the price", "credit"},
		{200, x402.HeaderResponse, x402.SettleResponse{Success: true, Transaction: "0x77", Amount: &amount}, 0, "amount 1000000, transaction 0x77", "credit"},
	} {
		value := must.Get(x402.EncodeHeader(tc.value))(t)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(tc.header, value)
			w.WriteHeader(tc.status)
		}))
		var out, said strings.Builder
		a := &app{console: console{in: strings.NewReader(""), out: &out, err: &said, getenv: func(string) string { return "" }}}
		if code := run(t.Context(), []string{"call", srv.URL}, a); code != tc.exit {
			t.Errorf("exit %d, want %d", code, tc.exit)
		}
		srv.Close()
		if got := said.String(); !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) {
			t.Errorf("said %q, want %q and nothing of %q", got, tc.want, tc.not)
		}
	}
}

// TestCall_Wallet: what a wallet has signed is on disk before the server has it, so that a call which does not live to see the
// answer can be looked up on the chain. The receipt speaks of whole units.
func TestCall_Wallet(t *testing.T) {
	dir := t.TempDir()
	ask := must.Get(x402.EncodeHeader(map[string]any{"x402Version": 2, "accepts": []any{map[string]any{
		"scheme": "exact", "network": "eip155:84532", "amount": "50000", "asset": toll.USDCSandbox, "maxTimeoutSeconds": 60,
		"payTo": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "extra": map[string]any{"name": "USDC", "version": "2"},
	}}}))(t)
	amount := toll.Credits(50_000)
	receipt := must.Get(x402.EncodeHeader(x402.SettleResponse{Success: true, Transaction: "0x77", Amount: &amount}))(t)
	var found []client.Payment
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(x402.HeaderSignature) == "" {
			w.Header().Set(x402.HeaderRequired, ask)
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		var err error
		if found, err = (&filePurse{path: filepath.Join(dir, "payments.jsonl"), now: time.Now}).read(); err != nil {
			t.Error(err)
		}
		w.Header().Set(x402.HeaderResponse, receipt)
	}))
	defer srv.Close()
	env := map[string]string{"TOLL_CONFIG": filepath.Join(dir, "config.json"), "TOLL_WALLET_KEY": strings.Repeat("01", 32)}
	must.Do(t, (&configuration{path: env["TOLL_CONFIG"], top: document{}}).save())
	var out, said strings.Builder
	a := &app{console: console{in: strings.NewReader(""), out: &out, err: &said, getenv: func(name string) string { return env[name] }}}
	if code := run(t.Context(), []string{"call", srv.URL, "--pay"}, a); code != exitDone {
		t.Fatalf("exit %d: %s", code, said.String())
	}
	want := "note: the wallet may pay at most 1.00 USDC or EURC for this call, and 10.00 of each token in 24 hours\n" +
		"receipt: 0.05 USDC, transaction 0x77\n"
	if said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
	if len(found) != 1 || found[0].State != client.PaymentSent || found[0].Authorization == nil || found[0].Authorization.Nonce.IsZero() {
		b, _ := json.Marshal(found)
		t.Errorf("while the payment was under way, the file had %s", b)
	}
}

// TestInterrupted: whoever ends a command is told so, and not to look for the service.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, apiBase+"/protocol/plans") {
			cancel()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"environment":"sandbox"}`)
	}))
	defer srv.Close()
	env := map[string]string{"TOLL_CONFIG": filepath.Join(t.TempDir(), "config.json"), "TOLL_URL": srv.URL}
	must.Do(t, (&configuration{path: env["TOLL_CONFIG"], top: document{}}).save())
	said := &untilSaid{word: "Sign in at", then: cancel}
	a := &app{console: console{in: strings.NewReader(""), out: io.Discard, err: said, getenv: func(name string) string { return env[name] }}}
	if code := run(ctx, []string{"login", "--no-browser"}, a); code != exitFailed || !strings.HasSuffix(said.String(), "\nerror: interrupted\n") {
		t.Errorf("exit %d: %s", code, said.String())
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	said = &untilSaid{}
	a = &app{console: console{in: strings.NewReader(""), out: io.Discard, err: said, getenv: a.getenv}}
	code := run(ctx, []string{"plans", "list"}, a)
	if got := said.String(); code != exitFailed || !strings.HasSuffix(got, "\ncause: interrupted\n") || strings.Contains(got, "toll serve") {
		t.Errorf("exit %d: %s", code, got)
	}
}

// untilSaid calls then when a line has the word.
type untilSaid struct {
	strings.Builder
	word string
	then func()
}

func (u *untilSaid) Write(b []byte) (int, error) {
	if u.then != nil && strings.Contains(string(b), u.word) {
		u.then()
	}
	return u.Builder.Write(b)
}
