package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
)

// matrix has the example programs of a package in another language meet a seller and a buyer of this module.
type matrix struct {
	*service
	dir    string   // of the examples
	env    []string // what the programs need beside the key and the address of the service
	buyer  []string // program and arguments, before the address of an agent and a text
	seller func(host, port string) []string
	// front returns the public address of a seller that listens at a url; nil is the same one.
	front func(url string) string
}

// purchase is what a buyer says after it received an answer of two credits.
const purchase = "HELLO\n2 credits spent\n"

func (m matrix) run(t *testing.T) {
	t.Run("Go seller", m.sellToThem)
	t.Run("Go buyer", m.buyFromThem)
}

func (m matrix) program(t *testing.T, key toll.APIKey, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = m.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "TOLL_API_KEY="+key.Key, "TOLL_URL="+m.url)
	cmd.Env = append(append(cmd.Env, m.env...), env...)
	return cmd
}

// register registers an agent at a url, with a free plan of 100 credits.
func (m matrix) register(t *testing.T, url string) *client.Registered {
	t.Helper()
	return must.Get(m.client(m.builder).RegisterAgentWithPlan(t.Context(), client.AgentParams{
		Metadata: toll.Metadata{Name: t.Name()},
		API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: url + "/ask"}}},
	}, client.PlanParams{
		Metadata: toll.Metadata{Name: t.Name()},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	}))(t)
}

func (m matrix) left(t *testing.T, plan toll.PlanID, want toll.Credits) {
	t.Helper()
	b, err := m.client(m.subscriber).Balance(t.Context(), plan)
	if err != nil || b.Balance != want || b.Held != 0 {
		t.Errorf("%+v %v, want a balance of %d", b, err, want)
	}
}

func (m matrix) sellToThem(t *testing.T) {
	url, r, _ := m.openGo(t)
	if out, err := m.buy(t, url); err != nil || out != purchase {
		t.Fatalf("%v %q", err, out)
	}
	m.left(t, r.PlanID, 98)
}

// openGo is open with a seller of this module, which has no log.
func (m matrix) openGo(t *testing.T) (url string, r *client.Registered, _ *servertest.Log) {
	t.Helper()
	agent := httptest.NewUnstartedServer(nil)
	if url = "http://" + agent.Listener.Addr().String(); m.front != nil {
		url = m.front(url)
	}
	r = m.register(t, url)
	ask := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		p, _ := paid.FromContext(q.Context())
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"text":"HELLO","payer":"` + p.Payer + `"}`)) // the gate keeps it
	})
	agent.Config.Handler = paid.Handler(m.client(m.builder), ask,
		paid.Plan(r.PlanID), paid.Agent(r.AgentID), paid.Credits(2), paid.PublicURL(url))
	agent.Start()
	t.Cleanup(agent.Close)
	return url, r, nil
}

// buy has the buyer ask the agent at a url once, and returns what it says.
func (m matrix) buy(t *testing.T, url string) (string, error) {
	args := append(append([]string{}, m.buyer...), url, "hello")
	out, err := m.program(t, m.subscriber, nil, args...).CombinedOutput()
	return string(out), err
}

// open starts the seller and returns its public address. What it says is in the log.
func (m matrix) open(t *testing.T) (url string, r *client.Registered, log *servertest.Log) {
	t.Helper()
	at := servertest.FreeAddress(t)
	if url = "http://" + at; m.front != nil {
		url = m.front(url)
	}
	r = m.register(t, url)
	host, port, _ := strings.Cut(at, ":")
	env := []string{"TOLL_PLAN=" + string(r.PlanID), "TOLL_AGENT=" + string(r.AgentID), "AGENT_URL=" + url, "PORT=" + port}
	agent := m.program(t, m.builder, env, m.seller(host, port)...)
	log = &servertest.Log{}
	agent.Stderr = log
	must.Do(t, agent.Start())
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = agent.Wait() // a process that was killed has nothing to say
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			_ = conn.Close()
			return url, r, log
		}
		if time.Now().After(end) {
			t.Fatalf("%v\n%s", err, log)
		}
	}
}

// meet has the buyer of another package pay the seller.
func (m matrix) meet(t *testing.T, other matrix) {
	t.Helper()
	url, r, log := m.open(t)
	other.service = m.service
	if out, err := other.buy(t, url); err != nil || out != purchase {
		t.Errorf("%v %q\n%s", err, out, log)
	}
	m.left(t, r.PlanID, 98)
}

func (m matrix) buyFromThem(t *testing.T) {
	url, r, log := m.open(t)
	if out, err := m.buyGo(t, url); err != nil || out != purchase {
		t.Errorf("%v %q\n%s", err, out, log)
	}
	m.left(t, r.PlanID, 98)
}

// buyGo is buy with the buyer of this module.
func (m matrix) buyGo(t *testing.T, url string) (string, error) {
	purse := client.NewPurse(client.Limits{Hosts: []string{strings.TrimPrefix(url, "http://")}, CreditsPerCall: 5, Credits: 5})
	h := &http.Client{Transport: client.NewTransport(purse, m.client(m.subscriber).Payer())}
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/ask", strings.NewReader(`{"text":"hello"}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var answer struct{ Text, Payer string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Payer != m.subscriber.Address.String() {
		return "", fmt.Errorf("%s %+v %v", res.Status, answer, err)
	}
	p := purse.Payments()
	if len(p) != 1 || p[0].State != client.PaymentPaid {
		return "", fmt.Errorf("%s: payments %+v", res.Status, p)
	}
	return fmt.Sprintf("%s\n%s credits spent\n", answer.Text, p[0].Spent), nil
}
