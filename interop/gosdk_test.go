package interop

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// G is a client and a server with the habits of the Go SDK of x402, which no module proxy has: typed objects that drop what
// they do not know, encoding/json, an answer of the facilitator that is exactly 200, five members that are compared. Its
// scheme is our plug-in.

type goPayload struct {
	X402Version int                       `json:"x402Version"`
	Payload     map[string]any            `json:"payload"`
	Accepted    x402.StandardRequirements `json:"accepted"`
	Resource    *goResource               `json:"resource,omitempty"`
	Extensions  map[string]any            `json:"extensions,omitempty"`
}

type goRequired struct {
	X402Version int                         `json:"x402Version"`
	Error       string                      `json:"error,omitempty"`
	Resource    *goResource                 `json:"resource,omitempty"`
	Accepts     []x402.StandardRequirements `json:"accepts"`
	Extensions  map[string]any              `json:"extensions,omitempty"`
}

type goResource struct {
	URL         string `json:"url"`
	Description string `json:"description,omitempty"`
	MimeType    string `json:"mimeType,omitempty"`
}

// goClient asks a server with payment.
func (c *scene) goClient(p *party) *outcome {
	c.Helper()
	first := c.send(p)
	if first.status != http.StatusPaymentRequired {
		c.Fatalf("%d %s", first.status, first.body)
	}
	header, err := c.goPay(first.header.Get("Payment-Required"))
	if err != nil {
		return &outcome{Thrown: err.Error()}
	}
	a := c.send(p, header)
	o := &outcome{Status: a.status, Body: string(a.body), Headers: map[string]string{}}
	for _, name := range []string{"payment-required", "payment-response"} {
		if value := a.header.Get(name); value != "" {
			o.Headers[name] = value
		}
	}
	return o
}

func (c *scene) goPay(header string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "", err
	}
	var asked goRequired
	if err := json.Unmarshal(b, &asked); err != nil {
		return "", err
	}
	plugin := x402.NewClientScheme(c.scheme, x402.StaticToken(c.token))
	for _, r := range asked.Accepts {
		if r.Scheme != plugin.Scheme() || r.Network != c.network {
			continue
		}
		payload, err := plugin.CreatePaymentPayload(c.Context(), r)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(goPayload{2, payload, r, asked.Resource, asked.Extensions})
		return base64.StdEncoding.EncodeToString(b), err
	}
	return "", errors.New("no entry that can be paid")
}

// goServer is a server with one paid route.
type goServer struct {
	url, key string
	scheme   *x402.ServerScheme
	accepts  []x402.StandardRequirements
	runs     atomic.Int64
}

// G opens a server whose route costs 5 credits.
func (c *scene) G() *party {
	c.Helper()
	g := &goServer{key: c.builder.Key}
	p := c.own(func(r *recorder) http.Handler {
		g.url = r.url + "/api/v1/x402"
		g.scheme = &x402.ServerScheme{Name: c.scheme, PlanID: c.plan, AgentID: c.agent, Facilitator: client.New(c.builder.Key, client.WithURL(r.url))}
		return g
	})
	asset, amount, err := g.scheme.ParsePrice("5")
	must.Do(c, err)
	entry := must.Get(g.scheme.EnhanceRequirements(x402.StandardRequirements{
		Scheme: g.scheme.Scheme(), Network: c.network, Asset: asset, Amount: amount, PayTo: c.builder.Address.String(), MaxTimeoutSeconds: 60,
	}))(c)
	g.accepts = []x402.StandardRequirements{entry}
	must.Do(c, g.initialize(c.Context()))
	p.runs = func() int { return int(g.runs.Load()) }
	return p
}

// initialize asks which kinds the facilitator serves.
func (g *goServer) initialize(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, "GET", g.url+"/supported", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var supported struct {
		Kinds []struct{ Scheme, Network string }
	}
	if err := json.NewDecoder(res.Body).Decode(&supported); err != nil {
		return err
	}
	for _, k := range supported.Kinds {
		if k.Scheme == g.scheme.Scheme() && k.Network == g.accepts[0].Network {
			return nil
		}
	}
	return fmt.Errorf("%s on %s is not supported", g.scheme.Scheme(), g.accepts[0].Network)
}

func (g *goServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var payment goPayload
	b, err := base64.StdEncoding.DecodeString(r.Header.Get("PAYMENT-SIGNATURE"))
	if err != nil || len(b) == 0 || json.Unmarshal(b, &payment) != nil {
		g.refuse(w, "Payment required")
		return
	}
	var matched *x402.StandardRequirements
	for _, e := range g.accepts {
		a := payment.Accepted
		if a.Scheme == e.Scheme && a.Network == e.Network && a.Amount == e.Amount && a.Asset == e.Asset && a.PayTo == e.PayTo {
			matched = &e
		}
	}
	if matched == nil {
		g.refuse(w, "No matching payment requirements")
		return
	}
	var verdict struct {
		IsValid       *bool
		InvalidReason string
	}
	if err := g.ask(r.Context(), "verify", payment, *matched, &verdict); err != nil || verdict.IsValid == nil {
		g.refuse(w, fmt.Sprint(err))
		return
	}
	if !*verdict.IsValid {
		g.refuse(w, verdict.InvalidReason)
		return
	}
	g.runs.Add(1)
	if r.URL.Query().Has("fail") {
		if err := g.scheme.Release(r.Context(), string(b), *matched); err != nil {
			panic(err)
		}
		http.Error(w, "the work failed", http.StatusInternalServerError)
		return
	}
	var receipt struct {
		Success     *bool   `json:"success"`
		ErrorReason string  `json:"errorReason,omitempty"`
		Payer       string  `json:"payer,omitempty"`
		Transaction *string `json:"transaction"`
		Network     *string `json:"network"`
		Amount      string  `json:"amount,omitempty"`
		Extra       any     `json:"extra,omitempty"`
	}
	if err := g.ask(r.Context(), "settle", payment, *matched, &receipt); err != nil || receipt.Success == nil || receipt.Transaction == nil || receipt.Network == nil {
		g.refuse(w, fmt.Sprint(err))
		return
	}
	header, err := json.Marshal(receipt)
	if err != nil {
		panic(err)
	}
	w.Header().Set("PAYMENT-RESPONSE", base64.StdEncoding.EncodeToString(header))
	if !*receipt.Success {
		w.WriteHeader(http.StatusPaymentRequired)
		return
	}
	fmt.Fprint(w, `{"answer":42}`)
}

func (g *goServer) refuse(w http.ResponseWriter, text string) {
	b, err := json.Marshal(goRequired{X402Version: 2, Error: text, Resource: &goResource{URL: resource}, Accepts: g.accepts})
	if err != nil {
		panic(err)
	}
	w.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(b))
	w.WriteHeader(http.StatusPaymentRequired)
}

// ask wants exactly 200; a refusal with another status is one when it has its reason.
func (g *goServer) ask(ctx context.Context, operation string, p goPayload, r x402.StandardRequirements, into any) error {
	body, err := json.Marshal(map[string]any{"x402Version": 2, "paymentPayload": p, "paymentRequirements": r})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/"+operation, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+g.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		var refusal struct{ InvalidReason, ErrorReason string }
		if json.Unmarshal(b, &refusal) == nil && refusal.InvalidReason+refusal.ErrorReason != "" {
			return errors.New(refusal.InvalidReason + refusal.ErrorReason)
		}
		return fmt.Errorf("facilitator %s failed (%d): %s", operation, res.StatusCode, b)
	}
	return json.Unmarshal(b, into)
}
