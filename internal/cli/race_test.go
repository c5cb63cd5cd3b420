package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/tolltest"
)

// inBetween is a service whose agent somebody else changes after each of the first requests about
// it, before the caller has the answer.
func inBetween(t *testing.T, svc *tolltest.Service, times int, change func()) string {
	t.Helper()
	at := must.Get(url.Parse(svc.URL()))(t)
	var mu sync.Mutex
	p := httputil.NewSingleHostReverseProxy(at)
	p.ModifyResponse = func(res *http.Response) error {
		mu.Lock()
		defer mu.Unlock()
		if r := res.Request; r.Method != http.MethodPut && times > 0 &&
			strings.Contains(r.URL.Path, "/protocol/agents/"+string(svc.Agent())) {
			times--
			change()
		}
		return nil
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL
}

// runAs runs a command line against the service at an address, with the key of the builder.
func runAs(
	ctx context.Context,
	t *testing.T,
	svc *tolltest.Service,
	address string,
	args ...string,
) (out, said string, code int) {
	t.Helper()
	key := must.Get(svc.NewKey("builder"))(t)
	env := map[string]string{"TOLL_URL": address, "TOLL_API_KEY": key.Key, "HOME": t.TempDir()}
	var o, e strings.Builder
	a := &app{console: console{
		in:     strings.NewReader(""),
		out:    &o,
		err:    &e,
		getenv: func(name string) string { return env[name] },
	}}
	code = run(ctx, args, a)
	return o.String(), e.String(), code
}

func endpointsNow(t *testing.T, svc *tolltest.Service) toll.EndpointList {
	t.Helper()
	a := must.Get(svc.Client().Agent(t.Context(), svc.Agent()))(t)
	return a.API.Endpoints
}

// TestMCP_RegisterLosesNoUpdate: an endpoint that somebody else adds while toll mcp registers its
// own stays.
func TestMCP_RegisterLosesNoUpdate(t *testing.T) {
	svc := tolltest.New(t)
	late := toll.Endpoint{Verb: "POST", URL: "https://other.example.com/late"}
	address := inBetween(t, svc, 1, func() {
		u := toll.AgentUpdate{
			API: toll.AgentAPIUpdate{Endpoints: toll.SetTo(append(endpointsNow(t, svc), late))},
		}
		if _, err := svc.Client().UpdateAgent(context.Background(), svc.Agent(), u); err != nil {
			t.Error(err)
		}
	})
	behind := mcp.NewServer(&mcp.Implementation{Name: "some-tools", Version: "1"}, nil)
	upstream := httptest.NewServer(
		mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return behind }, nil),
	)
	defer upstream.Close()
	listen := must.Get(servertest.Address())(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, said, code := runAs(
			ctx,
			t,
			svc,
			address,
			"mcp",
			"--plan",
			string(svc.Plan()),
			"--agent",
			string(svc.Agent()),
			"--upstream",
			upstream.URL,
			"--register",
			"--public-url",
			"https://paid.example.com/",
			"--listen",
			listen,
		)
		if code != 0 {
			t.Errorf("exit %d: %s", code, said)
		}
	}()
	registered := toll.Endpoint{Verb: "POST", URL: "mcp://some-tools/tools/*"}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if res, err := http.Get("http://" + listen + "/health"); err == nil {
			res.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not listen")
		}
	}
	stop()
	<-done
	if got := endpointsNow(
		t,
		svc,
	); !slices.Contains(got, late) ||
		!slices.Contains(got, registered) {
		t.Errorf("an endpoint was lost: %v", got)
	}
	a, err := svc.Client().Agent(t.Context(), svc.Agent())
	if err != nil || !slices.Equal(a.API.OpenEndpoints, []string{"https://paid.example.com/mcp"}) {
		t.Errorf(
			"the address by which the consent page knows the server: %v, %v",
			a.API.OpenEndpoints,
			err,
		)
	}
}

// TestAgentsUpdate_Conditional: what toll agents update says about the endpoints that it takes away
// holds for the agent that it changed, however often somebody else changes it in between.
func TestAgentsUpdate_Conditional(t *testing.T) {
	svc := tolltest.New(t)
	n := 0
	late := func() {
		n++
		e := toll.EndpointList{
			{Verb: "POST", URL: "https://late.example.com/" + strings.Repeat("x", n)},
		}
		if _, err := svc.Client().
			AddEndpoints(context.Background(), svc.Agent(), toll.EndpointsInput{Endpoints: e}); err != nil {
			t.Error(err)
		}
	}
	api := `{"endpoints":[{"POST":"https://a.example.com/ask"}]}`
	_, said, code := runAs(
		t.Context(),
		t,
		svc,
		inBetween(t, svc, 2, late),
		"agents",
		"update",
		string(svc.Agent()),
		"--agent-api",
		api,
	)
	if code != 0 || !strings.Contains(said, "https://late.example.com/xx") {
		t.Errorf("exit %d, said %q; want both late endpoints to be named", code, said)
	}
	if got := endpointsNow(t, svc); len(got) != 1 || got[0].URL != "https://a.example.com/ask" {
		t.Errorf("endpoints %v", got)
	}

	// An agent that never rests is left alone after a bounded number of attempts.
	before := n
	_, said, code = runAs(
		t.Context(),
		t,
		svc,
		inBetween(t, svc, 1000, late),
		"agents",
		"update",
		string(svc.Agent()),
		"--agent-metadata",
		`{"description":"x"}`,
	)
	if code != 6 || !strings.Contains(said, "BCK.PROTOCOL.0910") {
		t.Errorf("exit %d, said %q; want 6 and BCK.PROTOCOL.0910", code, said)
	}
	if n-before < 2 || n-before > 10 {
		t.Errorf("%d attempts", n-before)
	}

	// A version that the user names is not replaced by a newer one.
	_, said, code = runAs(
		t.Context(),
		t,
		svc,
		svc.URL(),
		"agents",
		"update",
		string(svc.Agent()),
		"--agent-metadata",
		`{"description":"x"}`,
		"--if-version",
		"1",
	)
	if code != 6 || !strings.Contains(said, "BCK.PROTOCOL.0910") {
		t.Errorf("exit %d, said %q; want 6 and BCK.PROTOCOL.0910", code, said)
	}
}
