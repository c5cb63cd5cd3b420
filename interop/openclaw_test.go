package interop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

var (
	pluginID  = x402.Default.PluginID()
	toolWord  = x402.Default.Tool("")
	agentPath = "/" + x402.Default.Word + "/agent"
)

// core is a core of the chat gateway.
type core struct {
	*gateway.Core
	url, tokenFile string
}

func newCore(t *testing.T) *core {
	t.Helper()
	dir := t.TempDir()
	g := must.Get(gateway.New(gateway.Options{Dir: dir}))(t)
	t.Cleanup(g.Close)
	return &core{g, serve(t, g.Handler()), filepath.Join(dir, "gateway.token")}
}

// fields is the configuration of a plugin that talks to the core; planId "" in more is for none.
func (c *core) fields(svc *tolltest.Service, more map[string]any) map[string]any {
	all := map[string]any{
		"coreUrl": c.url, "coreTokenFile": c.tokenFile, "baseUrl": svc.URL(), "planId": string(svc.Plan()),
	}
	defer func() {
		if all["planId"] == "" {
			delete(all, "planId")
		}
	}()
	for name, value := range more {
		all[name] = value
	}
	return all
}

// awaitLogin waits until the core has a key.
func (c *core) awaitLogin(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		res := must.Get(http.Get(c.url + "/gateway/v1/health"))(t)
		var health struct{ LoggedIn bool }
		err := json.NewDecoder(res.Body).Decode(&health)
		_ = res.Body.Close()
		must.Do(t, err)
		if health.LoggedIn {
			return
		}
	}
	t.Fatal("the core is not logged in")
}

// inOpenClaw runs a test with the real host. Its name is that of the suite in scripts/test.sh.
func inOpenClaw(t *testing.T, f func(t *testing.T, plugin string)) {
	t.Run("openclaw", func(t *testing.T) {
		chatHosts.find(t)
		_, plugin := buildPlugin(t)
		f(t, plugin)
	})
}

// quote is the answer of an order tool.
type quote struct {
	PlanID               string
	Price                string
	Credits              string
	RequiresConfirmation bool
	Success              bool
	Balance              string
	Status               string
}

// TestOpenClawBuysAndSells is the scene of the gateway: a person logs in with a browser from a chat,
// the agent orders a plan and asks an agent that sells through the plugin of a second host.
func TestOpenClawBuysAndSells(t *testing.T) {
	inOpenClaw(t, func(t *testing.T, plugin string) {
		svc := tolltest.New(t, tolltest.WithPayments())
		builder := must.Get(svc.NewKey("builder"))(t)
		buyerKey := must.Get(svc.NewKey("buyer"))(t)

		// The seller registers its agent in a chat and sells it then.
		sellerCore := newCore(t)
		seller := newHost(t, plugin, sellerCore.fields(svc, map[string]any{"apiKey": builder.Key, "planId": ""}), nil)
		seller.begin()
		var made struct {
			AgentID toll.AgentID
			PlanID  toll.PlanID
		}
		err := seller.tool("main", "service_registerAgent", map[string]any{
			"name": "Echo", "agentUrl": seller.url + agentPath, "planName": "Echo plan",
			"priceAmounts": "$1.00", "pricingType": "erc20", "creditsAmount": 100,
		}, &made)
		if err != nil || made.AgentID == "" || made.PlanID == "" {
			t.Fatalf("the registration: %+v, %v", made, err)
		}
		seller.set(sellerCore.fields(svc, map[string]any{
			"apiKey": builder.Key, "planId": made.PlanID, "agentId": made.AgentID, "creditsPerRequest": 3,
			"enablePaidEndpoint": true, "publicUrl": seller.url,
		}))
		seller.awaitPaidPath()
		testPaidPath(t, svc, seller, made.PlanID)
		testDirectCalls(t, seller)

		buyerCore := newCore(t)
		buyer := newHost(t, plugin, buyerCore.fields(svc, map[string]any{"planId": made.PlanID}), nil)
		buyer.begin()

		buyer.model.asked()
		login := buyer.say("main", "/svc_login")
		approve(t, svc, buyerKey.Key, login)
		buyerCore.awaitLogin(t)
		if asked := buyer.model.asked(); len(asked) > 0 {
			t.Errorf("a command reached the model: %s", asked)
		}

		balance := client.New(buyerKey.Key, client.WithURL(svc.URL()))
		available := func() string {
			b := must.Get(balance.Balance(t.Context(), made.PlanID))(t)
			return fmt.Sprint(b.Available)
		}
		buyer.context(t, "not ordered yet")
		var plans struct{ Total json.Number }
		if err := seller.tool("main", "service_listPlans", map[string]any{}, &plans); err != nil || plans.Total != "2" {
			t.Errorf("plans of the seller: %+v, %v", plans, err)
		}
		if err := buyer.tool("main", "service_listPlans", map[string]any{}, &plans); err != nil || plans.Total != "0" {
			t.Errorf("plans of the buyer: %+v, %v", plans, err)
		}

		var q quote
		if err := buyer.tool("main", "service_orderPlan", map[string]any{}, &q); err != nil || !q.RequiresConfirmation ||
			q.Success || q.PlanID != string(made.PlanID) || q.Credits != "100" {
			t.Errorf("a quote: %+v, %v", q, err)
		}
		if err := buyer.tool("main", "service_orderPlan", map[string]any{"confirm": "banana"}, &q); err == nil ||
			!strings.Contains(err.Error(), "confirm: must be boolean") {
			t.Errorf("confirm banana: %v", err)
		}
		if n, _ := svc.Paid(); n != 0 || available() != "0" {
			t.Errorf("%d orders without a confirmation, %s credits", n, available())
		}
		q = quote{}
		if err := buyer.tool("main", "service_orderPlan", map[string]any{"confirm": true}, &q); err != nil || !q.Success {
			t.Errorf("an order: %+v, %v", q, err)
		}
		if n, _ := svc.Paid(); n != 1 || available() != "100" {
			t.Errorf("%d orders after a confirmation, %s credits", n, available())
		}
		buyer.context(t, "100 credits available")

		var answered struct {
			Status   int
			Response json.RawMessage
			Payment  struct{ CreditsRedeemed, RemainingBalance, Transaction string }
		}
		err = buyer.tool("main", "service_queryAgent", map[string]any{
			"agentUrl": seller.url + agentPath, "prompt": "What is new?",
		}, &answered)
		if err != nil || answered.Status != http.StatusOK || !strings.Contains(string(answered.Response), "What is new?") ||
			answered.Payment.CreditsRedeemed != "3" || answered.Payment.RemainingBalance != "97" {
			t.Errorf("a paid answer: %+v, %v", answered, err)
		}
		if available() != "97" {
			t.Errorf("%s credits after the answer", available())
		}
		buyer.context(t, "97 credits available")
		soldTo(t, svc, buyerKey.Address, 3, answered.Payment.Transaction)

		if out := buyer.say("main", "/svc_logout"); !strings.HasPrefix(out, "Logged out.") {
			t.Errorf("logout: %s", out)
		}
		if err := buyer.tool("main", "service_checkBalance", map[string]any{}, &q); err == nil ||
			!strings.Contains(err.Error(), "Run /svc_login first") {
			t.Errorf("a tool after the logout: %v", err)
		}
		buyer.context(t, "")

		for _, h := range []*host{seller, buyer} {
			h.stop()
			h.secretless(builder.Key, buyerKey.Key)
		}
	})
}

// approve reads the address and the code of an answer to the login command, and approves it as a
// person in a browser who signs in with a key.
func approve(t *testing.T, svc *tolltest.Service, key, answer string) {
	t.Helper()
	page := regexp.MustCompile(`https?://\S+`).FindString(answer)
	code := regexp.MustCompile(`[B-Z]{4}-[B-Z]{4}`).FindString(answer)
	if !strings.HasPrefix(page, svc.URL()+"/device") || code == "" {
		t.Fatalf("the answer has no page or no code: %s", answer)
	}
	jar := must.Get(cookiejar.New(nil))(t)
	person := &http.Client{Jar: jar, Transport: servertest.FromPages{}}
	read := func(res *http.Response, err error) string {
		t.Helper()
		must.Do(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s %v", res.Request.URL, res.Status, b, err)
		}
		return string(b)
	}
	ticket := func(page string) string {
		t.Helper()
		m := regexp.MustCompile(`(?s)<main>.*name="ticket" value="([^"]+)"`).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("no form: %s", page)
		}
		return m[1]
	}
	read(person.PostForm(svc.URL()+"/sign-in", url.Values{"api_key": {key}, "next": {"/device"}}))
	shown := read(person.Get(page))
	if !strings.Contains(shown, "with the rights that you select") {
		shown = read(person.PostForm(svc.URL()+"/device", url.Values{"user_code": {code}, "ticket": {ticket(shown)}}))
	}
	read(person.PostForm(svc.URL()+"/device", url.Values{
		"request": {code}, "ticket": {ticket(shown)}, "decision": {"approve"}, "right": {"read", "spend", "manage"},
	}))
}

// awaitPaidPath waits until the host has taken a configuration with the paid endpoint.
func (h *host) awaitPaidPath() {
	h.Helper()
	for end := time.Now().Add(hostWait); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if status, _ := h.send(agentPath, nil, map[string]any{"prompt": "hello"}); status == http.StatusPaymentRequired {
			return
		}
	}
	h.Fatal("the host does not serve the paid endpoint")
}

// testPaidPath pays for a request to the paid endpoint of a host, once.
func testPaidPath(t *testing.T, svc *tolltest.Service, seller *host, plan toll.PlanID) {
	t.Helper()
	key, err := svc.NewKey("ann")
	if err == nil {
		_, err = svc.Client().Mint(t.Context(), plan, key.Address, 10, 0)
	}
	must.Do(t, err)
	ann := client.New(key.Key, client.WithURL(svc.URL()))
	token := must.Get(ann.AccessToken(t.Context(), plan, client.WithTokenFormat("x402")))(t)
	payment := withNonce(t, token.AccessToken, "one-request")
	left := func() toll.Credits {
		t.Helper()
		b := must.Get(ann.Balance(t.Context(), plan))(t)
		return b.Balance
	}
	ask := func(method, payment string) *http.Response {
		t.Helper()
		req := must.Get(http.NewRequestWithContext(t.Context(), method, seller.url+agentPath, strings.NewReader(`{"prompt":"hello"}`)))(t)
		req.Header.Set("Content-Type", "application/json")
		if payment != "" {
			req.Header.Set("Payment-Signature", payment)
		}
		res := must.Get(http.DefaultClient.Do(req))(t)
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		must.Do(t, err)
		res.Body = io.NopCloser(strings.NewReader(string(b)))
		return res
	}
	if res := ask("POST", ""); res.StatusCode != http.StatusPaymentRequired || res.Header.Get("Payment-Required") == "" {
		t.Errorf("without a payment: %s", res.Status)
	}
	res := ask("POST", payment)
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK || !strings.Contains(string(body), "hello") || res.Header.Get("Payment-Response") == "" {
		t.Errorf("with a payment: %s %s", res.Status, body)
	}
	if left() != 7 {
		t.Errorf("%d credits are left of 10, want 7", left())
	}
	if res := ask("POST", payment); res.StatusCode != http.StatusPaymentRequired || left() != 7 {
		t.Errorf("the same payment again: %s, %d credits", res.Status, left())
	}
	if res := ask("GET", ""); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %s", res.Status)
	}
}

// withNonce names the request that an access token of the format x402 pays for.
func withNonce(t *testing.T, token, nonce string) string {
	t.Helper()
	text := must.Get(base64.StdEncoding.DecodeString(token))(t)
	var members map[string]any
	must.Do(t, json.Unmarshal(text, &members))
	members["payload"].(map[string]any)["nonce"] = nonce
	text = must.Get(json.Marshal(members))(t)
	return base64.StdEncoding.EncodeToString(text)
}

// testDirectCalls calls tools of a host without an agent.
func testDirectCalls(t *testing.T, h *host) {
	t.Helper()
	if status, body := h.tryInvoke(toolWord + "checkBalance"); status != http.StatusOK || !strings.Contains(body, `"balance"`) {
		t.Errorf("the balance: %d %s", status, body)
	}
	if status, body := h.tryInvoke(toolWord + "nothing"); status != http.StatusNotFound {
		t.Errorf("an unknown tool: %d %s", status, body)
	}
	status, body := h.send("/tools/invoke", http.Header{"Authorization": {"Bearer wrong"}},
		map[string]any{"tool": toolWord + "checkBalance"})
	if status != http.StatusUnauthorized {
		t.Errorf("another token: %d %s", status, body)
	}
}

// context asks the agent something and checks that the model saw the balance once, in the message
// of the user; "" is for a turn without it.
func (h *host) context(t *testing.T, text string) {
	t.Helper()
	h.model.asked()
	h.ask("context", "How are you?")
	asked := h.model.asked()
	if len(asked) != 1 {
		t.Errorf("%d requests to the model", len(asked))
		return
	}
	n := strings.Count(asked[0], "["+x402.Default.Word+"] Plan ")
	if text == "" && n != 0 || text != "" && (n != 1 || !strings.Contains(asked[0], text)) {
		t.Errorf("the balance is %d times in a prompt that should say %q: %s", n, text, asked[0])
	}
}

// soldTo checks that the builder sees one settlement with a buyer, in its events and as a record.
func soldTo(t *testing.T, svc *tolltest.Service, buyer toll.Address, credits toll.Credits, transaction string) {
	t.Helper()
	var found []*toll.Settlement
	for e, err := range svc.Client().Events(t.Context(), client.OfType(toll.EventSettlementSettled)) {
		must.Do(t, err)
		var s toll.Settlement
		must.Do(t, json.Unmarshal(e.Data, &s))
		if s.Payer == buyer {
			found = append(found, &s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d settlements with the buyer", len(found))
	}
	s, err := svc.Client().SettlementByTransaction(t.Context(), transaction)
	if err != nil || s.CreditsRedeemed == nil || *s.CreditsRedeemed != credits || s.AgentRequestID != found[0].AgentRequestID {
		t.Errorf("the settlement: %+v, %v", s, err)
	}
}

// secretless fails when a secret is in what the host has logged.
func (h *host) secretless(secrets ...string) {
	h.Helper()
	logs := h.log.String() + h.read("host.log")
	for _, secret := range secrets {
		_, jwt, _ := strings.Cut(secret, ":")
		if strings.Contains(logs, jwt) {
			h.Error("a key is in the log of the host")
		}
	}
}
