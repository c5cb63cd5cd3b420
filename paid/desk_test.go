package paid_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

const (
	plan   toll.PlanID  = "44742763076047497640080230236781474129970992727896593861997347135613135571071"
	agent  toll.AgentID = "50637310539380773994947796286606926419362223513940385288598954542035389945899"
	payer               = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	issuer              = "https://pay.example.com/api/v1" // base address of the service
)

// token has the form of an access token and is a canary: it must be in no log and reach no handler.
var token = jws(claims(issuer, string(plan), `"`+issuer+`/x402"`))

func claims(iss, plan, aud string) string {
	return `{"iss":"` + iss + `","sub":"` + payer + `","aud":` + aud + `,"jti":"0x01","iat":1795226400,"exp":1795230000,"planId":"` + plan +
		`","x402Version":2}`
}

func jws(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"EdDSA","typ":"JWT","kid":"test"}`)) + "." + part([]byte(claims)) + ".Y2FuYXJ5LXNpZ25hdHVyZQ"
}

// desk is a stateful stand-in for the payment service: one plan, one subscriber, holds, settlements that burn once, and
// faults on demand. before runs in place of a call, after loses its answer when it returns an error.
type desk struct {
	mu       sync.Mutex
	balance  toll.Credits
	held     toll.Credits
	burned   toll.Credits
	requests map[string]*request
	calls    map[string]int
	resource []string // resource urls that were verified

	min, max toll.Credits
	orderURL string
	service  string // base address
	refuse   *x402.VerifyResponse
	refuseS  *x402.SettleResponse
	before   func(op string, n int) error
	after    func(op string, n int) error
	verified func(*x402.VerifyRequest)
	answer   func(*x402.VerifyRequest) *x402.VerifyResponse // in place of the desk's own, nil: the desk decides
}

type request struct {
	state  string // held, settled, released
	amount toll.Credits
	stored *x402.SettleResponse
}

func newDesk(balance toll.Credits) *desk {
	return &desk{balance: balance, requests: map[string]*request{}, calls: map[string]int{}, min: 1, max: 10}
}

func (d *desk) enter(op string) error {
	d.mu.Lock()
	d.calls[op]++
	n, before := d.calls[op], d.before
	d.mu.Unlock()
	if before != nil {
		return before(op, n)
	}
	return nil
}

func (d *desk) leave(op string) error {
	d.mu.Lock()
	n, after := d.calls[op], d.after
	d.mu.Unlock()
	if after != nil {
		return after(op, n)
	}
	return nil
}

func (d *desk) Terms(context.Context, toll.PlanID) (*x402.Terms, error) {
	if err := d.enter("terms"); err != nil {
		return nil, err
	}
	return &x402.Terms{
		PlanID: plan, PlanName: "Basic", Scheme: "svc:erc4337", Network: "eip155:84532",
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", MinAmount: d.min, MaxAmount: d.max, OrderURL: d.orderURL,
		ServiceURL: d.service,
	}, nil
}

func (d *desk) effective(n *toll.Credits) toll.Credits {
	switch {
	case n == nil:
		return d.max
	case *n == 0:
		return 0
	}
	return min(max(*n, d.min), d.max)
}

func (d *desk) Verify(_ context.Context, r *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	if err := d.enter("verify"); err != nil {
		return nil, err
	}
	var v *x402.VerifyResponse
	if d.answer != nil {
		v = d.answer(r)
	}
	if v == nil {
		v = d.verify(r)
	}
	if err := d.leave("verify"); err != nil {
		return nil, err
	}
	return v, nil
}

func (d *desk) verify(r *x402.VerifyRequest) *x402.VerifyResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.verified != nil {
		d.verified(r)
	}
	d.resource = append(d.resource, r.PaymentRequired.Resource.URL)
	if d.refuse != nil {
		return d.refuse
	}
	t, err := x402.DecodeToken(r.AccessToken)
	if err != nil || t.JWS != token {
		return &x402.VerifyResponse{InvalidReason: x402.Default.ReasonSignature(), InvalidMessage: "The access token does not verify.", Code: toll.CodeTokenSignature}
	}
	n := d.effective(r.MaxAmount)
	if d.balance-d.held < n {
		return &x402.VerifyResponse{
			InvalidReason: x402.ReasonInsufficientFunds, Code: toll.CodeInsufficientCredits, Payer: payer,
			InvalidMessage: fmt.Sprintf("%d credits needed, %d available", n, d.balance-d.held),
		}
	}
	id := fmt.Sprintf("req_%04d", len(d.requests)+1)
	v := &x402.VerifyResponse{
		IsValid: true, Payer: payer, Network: "eip155:84532", AgentRequestID: id, PlanID: plan, AgentID: agent, Amount: n.Ptr(),
		Extra: &x402.VerifyExtra{AgentRequestID: id},
	}
	q := &request{state: "new"}
	if r.Hold {
		d.held += n
		q.state, q.amount = "held", n
		v.Extra.HeldAmount = n.Ptr()
	}
	d.requests[id] = q
	return v
}

func (d *desk) Settle(_ context.Context, r *x402.SettleRequest) (*x402.SettleResponse, error) {
	if err := d.enter("settle"); err != nil {
		return nil, err
	}
	s := d.settle(r)
	if err := d.leave("settle"); err != nil {
		return nil, err
	}
	return s, nil
}

func (d *desk) settle(r *x402.SettleRequest) *x402.SettleResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.requests[r.AgentRequestID]
	switch {
	case d.refuseS != nil:
		return d.refuseS
	case q == nil || q.state == "released":
		return &x402.SettleResponse{ErrorReason: x402.ReasonConflict, Code: toll.CodeSettleConflict, Network: "eip155:84532"}
	case q.state == "settled":
		s := *q.stored
		s.Replayed = true
		return &s
	}
	n := d.effective(r.MaxAmount)
	if d.balance-d.held+q.amount < n {
		return &x402.SettleResponse{ErrorReason: x402.ReasonInsufficientFunds, Code: toll.CodeInsufficientCredits, Network: "eip155:84532"}
	}
	d.held -= q.amount
	d.balance -= n
	d.burned += n
	s := &x402.SettleResponse{
		Success: true, Transaction: "0x" + strings.Repeat("0", 60) + r.AgentRequestID[4:], Network: "eip155:84532", Payer: payer,
		CreditsRedeemed: n.Ptr(), RemainingBalance: d.balance.Ptr(), Amount: n.Ptr(),
		Extra: &x402.SettleExtra{AgentRequestID: r.AgentRequestID},
	}
	s.Raw, _ = x402.Encode(s)
	q.state, q.stored = "settled", s
	return s
}

func (d *desk) Release(_ context.Context, r *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	if err := d.enter("release"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.requests[r.AgentRequestID]
	if q == nil {
		return nil, toll.NewError(toll.CodeSettlementNotFound)
	}
	if q.state == "settled" {
		return nil, toll.NewError(toll.CodeReleaseOfSettled)
	}
	n := q.amount
	if q.state == "held" {
		d.held -= n
	}
	q.state, q.amount = "released", 0
	return &x402.ReleaseResponse{Success: true, AgentRequestID: r.AgentRequestID, Status: "released", Released: n}, nil
}

// want compares the whole state: what was burned, what is still held, how many requests were settled and released.
func (d *desk) want(t *testing.T, burned toll.Credits, settled, released int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	states := map[string]int{}
	for _, q := range d.requests {
		states[q.state]++
	}
	if d.burned != burned || d.held != 0 || states["settled"] != settled || states["released"] != released {
		t.Errorf("burned %d, held %d, states %v; want burned %d, held 0, settled %d, released %d", d.burned, d.held, states, burned, settled, released)
	}
}

// long is more than anything takes that comes at all, on a busy machine as well.
const long = 2 * time.Minute

// spent returns what was burned when no hold is left: a settlement may follow its stream.
func (d *desk) spent() toll.Credits {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		d.mu.Lock()
		held := d.held
		d.mu.Unlock()
		if held == 0 {
			break
		}
	}
	return d.burnedNow()
}

// decided reports whether the first request is settled or released.
func (d *desk) decided() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.requests["req_0001"]
	return q != nil && (q.state == "settled" || q.state == "released")
}

func (d *desk) burnedNow() toll.Credits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.burned
}

func (d *desk) count(op string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[op]
}

// eventually waits for something that happens behind an answer.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// work counts the runs of a handler and proves on each run that it sees no credential.
type work struct {
	t    *testing.T
	mu   sync.Mutex
	runs int
	f    http.HandlerFunc
}

const content = "the paid answer"

func (h *work) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.runs++
	h.mu.Unlock()
	for name, values := range r.Header {
		if strings.Contains(strings.Join(values, " "), "Y2FuYXJ5") {
			h.t.Errorf("the handler sees the access token in %s", name)
		}
	}
	if h.f != nil {
		h.f(w, r)
		return
	}
	fmt.Fprint(w, content)
}

func (h *work) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs
}

// logs collects log lines and proves at the end that no access token is among them.
func logs(t *testing.T) (paid.Option, *safeBuffer) {
	b := &safeBuffer{}
	t.Cleanup(func() {
		if strings.Contains(b.String(), "Y2FuYXJ5") {
			t.Error("an access token is in the log")
		}
	})
	return paid.Log(slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))), b
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// serve runs a handler behind a real net/http server.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// paidServer serves the handler for 2 credits of plan.
func paidServer(t *testing.T, d *desk, h http.Handler, opts ...paid.Option) *httptest.Server {
	t.Helper()
	log, _ := logs(t)
	return serve(t, paid.Handler(d, h, append([]paid.Option{paid.Plan(plan), paid.Agent(agent), paid.Credits(2), log}, opts...)...))
}

// atEnd prices an answer when it has ended, so that its stream runs on a hold.
var atEnd = paid.CreditsFunc(func(*http.Request, paid.Response) toll.Credits { return 2 })

type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func send(t *testing.T, method, url string, header ...string) reply {
	t.Helper()
	req := must.Get(http.NewRequest(method, url, nil))(t)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) reply {
	t.Helper()
	res, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(b), err}
}

const sig = "payment-signature"

// receipt decodes the payment-response of a reply.
func (r reply) receipt(t *testing.T) *x402.SettleResponse {
	t.Helper()
	var s x402.SettleResponse
	if err := x402.DecodeHeader(r.header.Get("payment-response"), &s); err != nil {
		t.Fatalf("payment-response %q: %v", r.header.Get("payment-response"), err)
	}
	return &s
}

// isRefused proves that a reply asks for payment in header and body and carries nothing of the handler.
func (r reply) isRefused(t *testing.T, reason string, code toll.Code) {
	t.Helper()
	if r.status != http.StatusPaymentRequired || strings.Contains(r.body, content) {
		t.Fatalf("status %d, body %q; want 402 without content", r.status, r.body)
	}
	var p x402.PaymentRequired
	must.Do(t, x402.DecodeHeader(r.header.Get("payment-required"), &p), "payment-required")
	var b struct {
		x402.PaymentRequired
		toll.ErrorBody
	}
	if err := json.Unmarshal([]byte(r.body), &b); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	if b.X402Version != 2 || len(b.Accepts) != 1 || b.HTTPStatus != r.status || b.Category == "" || b.CorrelationID == "" || b.Message == "" {
		t.Errorf("body %s misses members of one of its two shapes", r.body)
	}
	if b.Code != code || !strings.HasPrefix(p.Error, reason) || (reason == "" && p.Error != "Payment required") {
		t.Errorf("code %s, error %q; want %s, %q", b.Code, p.Error, code, reason)
	}
	if got := r.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
}

// raw sends bytes on a fresh connection and returns everything that comes back until it closes, as it must.
func raw(t *testing.T, addr, text string) string {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(long))
	answered := make(chan struct{})
	go func() {
		_, _ = io.WriteString(c, text)
		<-answered
		_ = c.(*net.TCPConn).CloseWrite() // net/http waits for the end of a body that it answered before
	}()
	first := make([]byte, 1)
	n, err := c.Read(first)
	close(answered)
	out := first[:n]
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(c)
		out = append(out, rest...)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open after %q", out)
	}
	return string(out)
}

func statuses(text string) (all []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "HTTP/1.") {
			all = append(all, strings.Fields(line)[1])
		}
	}
	return all
}
