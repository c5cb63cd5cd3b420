package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/pprof"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// childEnv makes the program a process under test, which takes orders on its standard input.
const childEnv = "TOLL_BENCH_CHILD"

// role is what a process under test is. It comes over the pipe, so that no password or key stands in an argument.
type role struct {
	Echo    *echoRole    `json:",omitempty"`
	Service *serviceRole `json:",omitempty"`
	Agent   *agentRole   `json:",omitempty"`
	Peer    *peerRole    `json:",omitempty"`
	Load    *settlements `json:",omitempty"` // the service's database is filled with them, and nothing served
	Listen  string       // address, "" for a new one
}

type echoRole struct {
	Answer json.RawMessage // of a settlement, for its size
}

type serviceRole struct {
	Data     string
	Database string // "" = SQLite in Data
	Chain    bool   // runs the embedded chain and serves its JSON-RPC; no chain otherwise
}

type agentRole struct {
	URL, Key string
	Plan     toll.PlanID
	Agent    toll.AgentID
}

type order struct {
	Keys    []string `json:",omitempty"` // accounts that want an API key
	Profile string   `json:",omitempty"` // file of a CPU profile to begin
	Stop    bool     `json:",omitempty"` // ends the profile
	Audit   bool     `json:",omitempty"` // of its database, at the end if there is Quit
	Quit    bool     `json:",omitempty"`
}

type answer struct {
	Fault string        `json:",omitempty"`
	Addr  string        `json:",omitempty"`
	Chain string        `json:",omitempty"`
	Keys  []holder      `json:",omitempty"`
	CPU   time.Duration `json:",omitempty"` // used so far
	Audit *audit        `json:",omitempty"`
}

type holder struct {
	Address toll.Address
	Key     string
}

type audit struct {
	Burns    int64
	Orders   int64 // that are paid
	Granted  int64 // credits
	Findings []string
}

// underTest is what a role makes: a handler, and what only a service can do.
type underTest struct {
	serve func(ctx context.Context, ln net.Listener) error
	keys  func(ctx context.Context, names []string) ([]holder, error)
	audit func(ctx context.Context) (*audit, error)
	end   func(ctx context.Context, audited bool) (*audit, error)
	chain string // JSON-RPC of the embedded chain, "" for none
}

// childMain obeys until it is told to quit or the other end of the pipe is gone.
func childMain(in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // of the whole group: the parent says when to quit
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var r role
	if err := orders.Decode(&r); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if r.Load != nil {
		var a answer
		if err := r.Service.load(ctx, r.Load); err != nil {
			a.Fault = err.Error()
		}
		return answers.Encode(a)
	}
	ln, err := net.Listen("tcp", cmp.Or(r.Listen, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	u, err := r.open(ctx, ln.Addr().String())
	if err != nil {
		return errors.Join(answers.Encode(answer{Fault: err.Error()}), ln.Close())
	}
	served := make(chan error, 1)
	go func() { served <- u.serve(ctx, ln) }()

	reply := answer{Addr: ln.Addr().String()}
	var o order
	for {
		reply.CPU = cpuTime()
		if err := answers.Encode(reply); err != nil {
			return err
		}
		o = order{}
		if err := orders.Decode(&o); err != nil {
			o.Quit = true
		}
		if o.Quit {
			break
		}
		reply = answer{Chain: u.chain}
		if o.Audit {
			reply.Audit, err = u.audit(ctx)
		} else {
			reply.Keys, err = u.obey(ctx, o)
		}
		if err != nil {
			reply.Fault = err.Error()
		}
	}
	pprof.StopCPUProfile()
	stop()
	err = <-served
	var last answer
	if u.end != nil {
		var e error
		last.Audit, e = u.end(context.Background(), o.Audit)
		err = errors.Join(err, e)
	}
	if err != nil {
		last.Fault = err.Error()
	}
	return answers.Encode(last)
}

func (u *underTest) obey(ctx context.Context, o order) ([]holder, error) {
	switch {
	case o.Profile != "":
		f, err := os.Create(o.Profile)
		if err != nil {
			return nil, err
		}
		return nil, pprof.StartCPUProfile(f)
	case o.Stop:
		pprof.StopCPUProfile()
	case o.Keys != nil && u.keys != nil:
		return u.keys(ctx, o.Keys)
	}
	return nil, nil
}

func (r role) open(ctx context.Context, addr string) (*underTest, error) {
	switch {
	case r.Peer != nil:
		return r.Peer.open(ctx)
	case r.Service != nil:
		return r.Service.open(ctx, addr)
	case r.Agent != nil:
		return plain(r.Agent.handler()), nil
	case r.Echo != nil:
		h, err := r.Echo.handler()
		return plain(h), err
	}
	return nil, errors.New("no role")
}

func plain(h http.Handler) *underTest {
	return &underTest{serve: func(ctx context.Context, ln net.Listener) error {
		s := &http.Server{Handler: h, ReadHeaderTimeout: 15 * time.Second, IdleTimeout: 2 * time.Minute}
		context.AfterFunc(ctx, func() { _ = s.Close() })
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}}
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (s *serviceRole) open(ctx context.Context, addr string) (*underTest, error) {
	server.TuneMemory()
	cfg := server.Config{Data: s.Data, Database: s.Database, Listen: addr, Metrics: true, Log: logger()}
	// A few accounts do here what many do elsewhere.
	cfg.Quotas.Orders, cfg.Quotas.Permissions, cfg.Quotas.FreeHolds, cfg.Quotas.Changes = -1, -1, -1, -1
	cfg.Rails.Chain.Mode = rails.ChainOff
	if s.Chain {
		cfg.Rails.Chain.Mode, cfg.Rails.Chain.HTTP = rails.ChainEmbedded, "127.0.0.1:0"
		cfg.OrderWait = 40 * time.Second // an order that is not decided by then fails its slice
	}
	svc, err := server.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); s.Chain && svc.Chain().URL() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			return nil, errors.Join(errors.New("the embedded chain did not start"), svc.Close(ctx))
		}
	}
	return &underTest{
		serve: svc.Serve,
		chain: svc.Chain().URL(),
		keys:  func(ctx context.Context, names []string) ([]holder, error) { return keysOf(ctx, svc, names) },
		audit: s.audit,
		end: func(ctx context.Context, audited bool) (*audit, error) {
			if err := svc.Close(ctx); err != nil || !audited {
				return nil, err
			}
			return s.audit(ctx)
		},
	}, nil
}

// operator is the name of an account that may move the clock.
const operator = "operator"

func keysOf(ctx context.Context, svc *server.Server, names []string) ([]holder, error) {
	out := make([]holder, len(names))
	err := together(len(names), func(i int) error {
		k, err := svc.CreateKey(ctx, server.KeyRequest{Account: names[i], Operator: names[i] == operator})
		out[i] = holder{k.Address, k.Key}
		return err
	})
	return out, err
}

// together calls f for 0 to n-1, 32 at a time, and returns the first error.
func together(n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(32)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

// audit reads the database, beside a service or not.
func (s *serviceRole) audit(ctx context.Context) (*audit, error) {
	st, err := store.Open(ctx, store.Config{Data: s.Data, Database: s.Database, Admin: true, ReadOnly: true, Log: logger()})
	if err != nil {
		return nil, err
	}
	l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)}) // issues nothing
	defer func() { _ = errors.Join(l.Close(ctx), st.Close()) }()
	found, err := l.Audit(ctx)
	if err != nil {
		return nil, err
	}
	a := &audit{}
	for _, f := range found {
		a.Findings = append(a.Findings, f.String())
	}
	// Every settlement here burns one credit, and the audit has proved the sums.
	return a, errors.Join(
		st.QueryRow(ctx, "SELECT CAST(COALESCE(SUM(burned), 0) AS BIGINT), CAST(COALESCE(SUM(minted), 0) AS BIGINT) FROM accounts").
			Scan(&a.Burns, &a.Granted),
		st.QueryRow(ctx, "SELECT COUNT(*) FROM orders WHERE status IN ('confirmed', 'final') AND tx_hash <> ''").Scan(&a.Orders),
	)
}

// handler is an agent as its builder writes it: the default client, and work that costs next to nothing. At /bare it is free.
func (a *agentRole) handler() http.Handler {
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the text cannot be read", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"characters":%d}`, len(text))
	})
	f := client.New(a.Key, client.WithURL(a.URL), client.WithLog(logger()))
	sold := paid.Handler(f, work, paid.Plan(a.Plan), paid.Agent(a.Agent), paid.Credits(1), paid.Log(logger()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bare" {
			work(w, r)
			return
		}
		sold.ServeHTTP(w, r)
	})
}

// echoRequest is the body of a settle request for a handler that knows nothing of payments.
type echoRequest struct {
	PaymentRequired x402.PaymentRequired `json:"paymentRequired"`
	AccessToken     string               `json:"x402AccessToken"`
	MaxAmount       *toll.Credits        `json:"maxAmount"`
	AgentRequestID  string               `json:"agentRequestId"`
}

// echoAnswer makes answers to settle requests that are like a sample.
func echoAnswer(text json.RawMessage) (func(in *echoRequest) ([]byte, error), error) {
	var sample x402.SettleResponse
	if err := x402.Decode(text, &sample); err != nil {
		return nil, err
	}
	if sample.Extra == nil {
		return nil, errors.New("the sample response for the echo handler has no extra")
	}
	return func(in *echoRequest) ([]byte, error) {
		out, extra := sample, *sample.Extra
		extra.AgentRequestID, out.Extra, out.CreditsRedeemed = in.AgentRequestID, &extra, in.MaxAmount
		return x402.Encode(&out)
	}, nil
}

func (e *echoRole) handler() (http.Handler, error) {
	respond, err := echoAnswer(e.Answer)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, err = w.Write(body)
		}
		if err != nil {
			http.Error(w, "bad body", http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /json", func(w http.ResponseWriter, r *http.Request) {
		var in echoRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = x402.Decode(body, &in)
		}
		if err != nil {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		answer, err := respond(&in)
		if err != nil {
			http.Error(w, "no answer", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
	return mux, nil
}
