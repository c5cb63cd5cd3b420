package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// O opens one of our own servers, whose route costs 5 credits.
func (c *scene) O(opts ...paid.Option) *party {
	c.Helper()
	return c.ours(func(h http.Handler) http.Handler { return h }, opts...)
}

// ours is O behind something that changes its answers.
func (c *scene) ours(around func(http.Handler) http.Handler, opts ...paid.Option) *party {
	c.Helper()
	runs := new(atomic.Int64)
	p := c.own(func(r *recorder) http.Handler {
		f := client.New(c.builder.Key, client.WithURL(r.url))
		opts = append([]paid.Option{
			paid.Plan(c.plan), paid.Agent(c.agent), paid.Credits(5), paid.PublicURL("https://agent.example.com"),
		}, opts...)
		mux := http.NewServeMux()
		mux.Handle("POST /ask", around(paid.Handler(f, content(runs), opts...)))
		return mux
	})
	p.runs = func() int { return int(runs.Load()) }
	return p
}

// post sends a request with header lines as they are; "" sends none.
func post(ctx context.Context, url string, payment ...string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, value := range payment {
		if value != "" {
			req.Header["PAYMENT-SIGNATURE"] = append(req.Header["PAYMENT-SIGNATURE"], value)
		}
	}
	return read(req)
}

func read(req *http.Request) (*answer, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return &answer{res.StatusCode, res.Header, body}, err
}

// minimal rewrites what a server asks for to the smallest form of an entry.
func minimal(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		body := rec.Body.Bytes()
		if header := rec.Header().Get(x402.HeaderRequired); header != "" {
			p := required(header)
			for i, e := range p.Accepts {
				p.Accepts[i] = x402.Requirements{Scheme: e.Scheme, Network: e.Network, PlanID: e.PlanID, Extra: x402.RequirementsExtra{
					Version: e.Extra.Version, AgentID: e.Extra.AgentID, HTTPVerb: e.Extra.HTTPVerb,
				}}
			}
			value, err := x402.EncodeHeader(p)
			if err != nil {
				panic(err)
			}
			w.Header().Set(x402.HeaderRequired, value)
			body, _ = x402.Encode(p)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})
}

// audit proves the books of a service that has ended.
func audit(t *testing.T, s *service) {
	t.Helper()
	out, err := exec.Command(servertest.Program(t), "audit", "--data", s.options.Data).CombinedOutput()
	if err != nil {
		t.Errorf("toll audit: %v\n%s", err, out)
	}
}
