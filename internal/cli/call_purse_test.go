package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// stall is a builder's server that asks for 5 credits and does with a payment what the test likes,
// and a buyer with 100 credits on the command line.
type stall struct {
	*testing.T
	svc   *tolltest.Service
	buyer toll.APIKey
	url   string
	dir   string
	took  func(w http.ResponseWriter, payment string)
	// asked is called before each request to the service that the command line makes.
	asked   func(r *http.Request)
	service string // its address for the command line
}

func newStall(t *testing.T) *stall {
	t.Helper()
	s := &stall{T: t, svc: tolltest.New(t), dir: t.TempDir(), asked: func(*http.Request) {}}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if payment := r.Header.Get(x402.HeaderSignature); payment != "" {
			s.took(w, payment)
			return
		}
		value, err := x402.EncodeHeader(s.required())
		must.Check(t, err)
		w.Header().Set(x402.HeaderRequired, value)
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	t.Cleanup(agent.Close)
	s.url = agent.URL + "/ask"
	endpoints := toll.SetTo(toll.EndpointList{{Verb: "GET", URL: s.url}})
	must.Get(s.svc.Client().UpdateAgent(t.Context(), s.svc.Agent(),
		toll.AgentUpdate{API: toll.AgentAPIUpdate{Endpoints: endpoints}}))(t)
	s.buyer = must.Get(s.svc.NewKey("buyer"))(t)
	s.svc.Mint(s.buyer.Address, 100)
	to := must.Get(url.Parse(s.svc.URL()))(t)
	forward := httputil.NewSingleHostReverseProxy(to)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked(r)
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	s.service = between.URL
	config := configuration{path: filepath.Join(s.dir, "config.json"), top: document{}}
	must.Do(t, config.save())
	return s
}

func (s *stall) required() *x402.PaymentRequired {
	terms, err := s.svc.Facilitator().Terms(s.Context(), s.svc.Plan())
	if err != nil {
		s.Error(err)
		return nil
	}
	return x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{
		Endpoint: "/ask", AgentID: s.svc.Agent(), HTTPVerb: http.MethodGet,
		Amount: toll.Credits(5).Ptr(),
	})
}

func (s *stall) hold(payment string, secs int) string {
	v, err := s.svc.Facilitator().Verify(s.Context(), &x402.VerifyRequest{
		PaymentRequired: *s.required(), AccessToken: payment,
		Hold: true, HoldSecs: secs, MaxAmount: toll.Credits(5).Ptr(),
	})
	if err != nil || !v.IsValid {
		s.Errorf("the hold is refused: %+v, %v", v, err)
		return ""
	}
	return v.AgentRequestID
}

func (s *stall) settle(payment, id string) {
	if _, err := s.svc.Facilitator().Settle(s.Context(), &x402.SettleRequest{
		PaymentRequired: *s.required(), AccessToken: payment,
		AgentRequestID: id, MaxAmount: toll.Credits(5).Ptr(),
	}); err != nil {
		s.Error(err)
	}
}

// toll runs a command line as the buyer and returns what it says and prints.
func (s *stall) toll(args ...string) (code int, out, said string) {
	env := map[string]string{
		"TOLL_CONFIG": filepath.Join(s.dir, "config.json"),
		"TOLL_URL":    s.service, "TOLL_API_KEY": s.buyer.Key,
	}
	var stdout, stderr strings.Builder
	getenv := func(name string) string { return env[name] }
	a := &app{console: console{in: strings.NewReader(""), out: &stdout, err: &stderr, getenv: getenv}}
	code = run(s.Context(), args, a)
	return code, stdout.String(), stderr.String()
}

// counted returns what the record counts, when this process is the next to read it.
func (s *stall) counted() int64 {
	f := filePurse{path: filepath.Join(s.dir, "payments.jsonl"), now: time.Now}
	payments, err := f.read()
	must.Check(s, err)
	var sum int64
	for _, p := range payments {
		c := p.Counts()
		sum += c.Int().Int64()
	}
	return sum
}

func (s *stall) burned() int64 {
	b, err := s.svc.Client().BalanceOf(s.Context(), s.svc.Plan(), s.buyer.Address)
	if err != nil {
		s.Error(err)
		return 0
	}
	return 100 - int64(b.Balance)
}

// TestCall_Killed: whenever the process is killed, its payment counts in full for the next one.
// What the file holds at each request that leaves is what a kill at that moment would leave.
func TestCall_Killed(t *testing.T) {
	for name, c := range map[string]struct {
		took  func(s *stall, w http.ResponseWriter, payment string)
		after int64
	}{
		"a hold that is kept": {func(s *stall, w http.ResponseWriter, payment string) {
			s.hold(payment, 900)
			w.WriteHeader(http.StatusInternalServerError)
		}, 5},
		"nothing is taken": {func(_ *stall, w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusInternalServerError)
		}, 0},
		"the answer is lost": {func(s *stall, _ http.ResponseWriter, payment string) {
			s.settle(payment, "")
			panic(http.ErrAbortHandler)
		}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStall(t)
			var steps []string
			paying, sent := false, false
			step := func(what string) {
				steps = append(steps, what)
				if n := s.counted(); n != 5 {
					t.Errorf("killed at %q it would count %d", steps, n)
				}
			}
			s.asked = func(r *http.Request) {
				if paying = paying || r.Method == http.MethodPost; paying {
					step(r.Method + " " + strings.SplitN(r.URL.Path, "0x", 2)[0])
				} else if n := s.counted(); n != 0 {
					t.Errorf("%d credits are counted before anything is paid", n)
				}
			}
			s.took = func(w http.ResponseWriter, payment string) {
				sent = true
				step("paid")
				b, err := os.ReadFile(filepath.Join(s.dir, "payments.jsonl"))
				text := string(b)
				if err != nil || !strings.Contains(text, `"permission":"0x`) || strings.Contains(text, "eyJ") {
					t.Errorf("the record of a payment that has left is %s, %v", b, err)
				}
				c.took(s, w, payment)
			}
			s.toll("call", s.url, "--pay")
			if !sent || len(steps) < 2 {
				t.Fatalf("nothing was paid: %q", steps)
			}
			if n := s.counted(); n != c.after || s.burned() > n {
				t.Errorf("%d are counted after %q, %d were burned", n, steps, s.burned())
			}
		})
	}
}

// TestCall_ManyProcesses: processes that pay at the same time keep one limit together, also when
// the server settles what it said it would not.
func TestCall_ManyProcesses(t *testing.T) {
	for name, secs := range map[string]int{"holds that are kept": 900, "holds that lapse": 1} {
		t.Run(name, func(t *testing.T) {
			s := newStall(t)
			var mu sync.Mutex
			var later []func()
			s.took = func(w http.ResponseWriter, payment string) {
				id := s.hold(payment, secs)
				s.svc.Advance(2 * time.Second)
				mu.Lock()
				later = append(later, func() { s.settle(payment, id) })
				mu.Unlock()
				w.WriteHeader(http.StatusInternalServerError)
			}
			for range 2 {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { s.toll("call", s.url, "--pay", "--max-credits-per-day", "10") })
				}
				wg.Wait()
				for _, do := range later {
					do()
				}
			}
			if n := s.counted(); len(later) < 2 || n > 10 || s.burned() > n {
				t.Errorf("%d calls, %d are counted, %d were burned", len(later), n, s.burned())
			}
		})
	}
}

// TestPayments_Check: the service says what became of payments with credits, and what it does not
// know counts.
func TestPayments_Check(t *testing.T) {
	s := newStall(t)
	var payment, id string
	s.took = func(w http.ResponseWriter, p string) {
		payment, id = p, s.hold(p, 900)
		fmt.Fprint(w, "a stream")
	}
	code, _, said := s.toll("call", s.url, "--pay")
	if code != exitDone || !strings.Contains(said, "note: 5 credits count as spent for 24 hours") ||
		!strings.Contains(said, "note: the server sent no receipt") {
		t.Errorf("exit %d: %s", code, said)
	}
	state := func() (p client.Payment) {
		t.Helper()
		code, out, said := s.toll("payments", "check", "-o", "json")
		var list struct{ Payments []json.RawMessage }
		if code != exitDone || json.Unmarshal([]byte(out), &list) != nil || len(list.Payments) != 1 ||
			json.Unmarshal(list.Payments[0], &p) != nil {
			t.Fatalf("exit %d: %s%s", code, out, said)
		}
		return p
	}
	if p := state(); p.State != client.PaymentUnknown || s.counted() != 5 {
		t.Errorf("while the stream runs: %+v", p)
	}
	owner := s.buyer
	var err error
	if s.buyer, err = s.svc.NewKey("somebody else"); err != nil {
		t.Fatal(err)
	}
	code, out, said := s.toll("payments", "check")
	if code != exitDone || !strings.Contains(said, "another workspace or service") ||
		!strings.Contains(out, "unknown") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
	s.buyer = owner
	s.settle(payment, id)
	if p := state(); p.State != client.PaymentPaid || p.Spent.String() != "5" || s.counted() != 5 {
		t.Errorf("after the settlement: %+v", p)
	}
	code, _, said = s.toll("payments", "check")
	if code != exitDone || !strings.Contains(said, "no open payments to check") {
		t.Errorf("exit %d: %s", code, said)
	}
}
