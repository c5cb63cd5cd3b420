package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paidmcp"
)

// town is a service from an empty data directory, and the persons who find it.
type town struct {
	*browser
	*service
	seller, wanda, nora string // workspaces
}

// People of a service that nobody prepared by a shell: a seller, a developer of theirs, somebody whose wallet bought a plan, and a
// user of an MCP client. In the end the pages, the API, the command line and the ledger tell the same.
func TestPeopleInABrowser(t *testing.T) {
	inBrowser(t, func(b *browser) {
		mcpClients.find(b.T)
		chain := servertest.FreeAddress(b.T)
		o := servertest.Options{
			Data: b.TempDir(), Listen: servertest.FreeAddress(b.T),
			Args: []string{"--chain-http", chain, "--x402-exact", "open", "--order-wait", "40s"},
		}
		s := &service{owner: b.T, options: o, process: servertest.Start(b.T, o)}
		s.url = strings.Replace(s.process.URL, "127.0.0.1", "localhost", 1)
		w := &town{browser: b, service: s}

		// The seller signs up with a passkey, invites a developer, and lets the command line in.
		w.open("seller", true, "")
		w.visit(s.url+"/sign-up", http.StatusOK)
		w.look("sign-up with passkey")
		w.signUp("Sally")
		w.seller = w.workspace()
		w.visit(s.url+"/w/"+w.seller+"/members", http.StatusOK)
		w.typeInto("Note", "Dan")
		w.press("Create invitation link")
		link := w.textOf("code.secret")
		terminal := w.logIn()
		s.subscriber.Key = terminal.key() // asks the faucet
		seller := client.New(terminal.key(), client.WithURL(s.url), servertest.Patient)

		// The developer joins, and makes a key that can only sell.
		w.open("developer", true, "")
		w.visit(link, http.StatusOK)
		w.read("You are invited to the workspace")
		w.signUp("Dan")
		sells := w.sellingKey()

		// The seller limits what the developer spends.
		w.turn("seller")
		w.visit(s.url+"/w/"+w.seller+"/members", http.StatusOK)
		w.press("Dan")
		w.press("Set spending limit")
		w.typeInto("Monthly limit", "50.00")
		w.look("dialog of a spending limit")
		w.press("Set spending limit")
		w.read("0.00 of 50.00 in dollars and euros combined")
		w.look("member with a limit")
		w.visit(s.url+"/w/"+w.seller+"/members", http.StatusOK)
		w.read("spent this month: 0.00 of 50.00 in dollars and euros combined")
		w.look("members with a limit")

		// The seller registers two plans, each with an agent, whose servers have that key.
		var runs atomic.Int64
		coins, site := w.sellCalls(seller, sells, &runs)
		trial, tools := w.sellTools(seller, sells, &runs)

		// A wallet buys a plan, calls the agent, and its owner signs in and sees the plan.
		wallets := findNode(b.T)
		wallet := wallets.start(b.T, wallets.workDir(b.T), "wallet")
		secret := toll.NewHash().String()
		var address toll.Address
		must.Do(b, wallet.do("address", map[string]any{"key": secret}, &address))
		s.faucet(b.T, fmt.Sprintf(`{"address":%q,"usdc":"20","eth":"1"}`, address))
		token := w.walletBuys(wallet, secret, coins)
		w.calls(site, token)
		w.open("wanda", true, secret)
		w.visit(s.url+"/sign-in", http.StatusOK)
		w.press("Sign in with Test wallet")
		w.read("There is no account yet for the wallet")
		w.typeInto("Your name, shown to the other members of your workspace", "Wanda")
		w.press("Create account")
		w.read("Wanda")
		if w.wanda = w.workspace(); !strings.EqualFold(w.wanda, address.String()) {
			b.Errorf("the workspace of the wallet %s is %s", address, w.wanda)
		}
		w.visit(s.url+"/w/"+w.wanda+"/holdings", http.StatusOK)
		w.read("Coins")
		w.look("plans of a wallet")
		if row := w.textOf("main tbody tr"); !strings.Contains(row, "95") {
			b.Errorf("the plan of the wallet: %q", row)
		}

		// A stranger signs up on the way of an MCP client, orders a free plan on the page of consent, and calls.
		callback, code := callbackPage(b.T)
		lines := typescript(b.T, map[string]any{
			"url": tools, "signIn": map[string]any{"callback": callback}, "calls": []rpc{ask(nil)},
		}, func(page string) string {
			w.open("nora", true, "")
			w.visit(page, http.StatusOK)
			w.press("Sign up")
			w.signUp("Nora")
			w.press("Order for free")
			w.read("You have 10 credits.")
			w.look("consent after an order")
			w.press("Allow")
			w.read("The program goes on")
			return <-code
		})
		if last := lines[len(lines)-1]; !last.paid() {
			b.Errorf("the call of the MCP client: %+v", lines)
		}
		w.nora = w.workspace()

		// Everything agrees.
		w.turn("seller")
		w.visit(s.url+"/w/"+w.seller+"/orders", http.StatusOK)
		w.read(short(w.wanda))
		w.read(short(w.nora))
		w.agree(seller, terminal, coins, trial)
		if runs.Load() != 2 {
			b.Errorf("%d runs, want 2", runs.Load())
		}
		must.Do(b, s.process.Signal(syscall.SIGTERM))
		must.Get(s.process.Wait(roleWait))(b)
		if out, code := servertest.Run(b.T, servertest.Program(b.T), o, "audit"); code != 0 {
			b.Errorf("toll audit: exit %d: %s", code, out)
		}
	})
}

// short is an address as lists show it.
func short(address string) string { return address[:6] }

// signUp signs up on the page that the browser shows, and waits for a page with the name.
func (w *town) signUp(name string) {
	w.Helper()
	w.signUpAs(name)
	w.textOf("bdi:text-is(" + fmt.Sprintf("%q", name) + ")")
}

// workspace opens the last used workspace of who acts, and returns its address.
func (w *town) workspace() string {
	w.Helper()
	w.visit(w.url+"/w", http.StatusOK)
	_, rest, ok := strings.Cut(w.read("Overview"), "/w/")
	if !ok || len(rest) < 42 {
		w.Fatalf("no workspace: %q", rest)
	}
	return rest[:42]
}

// request sends a request of a page of who acts, with the cookie of the browser.
func (w *town) request(method, path string, body, out any) {
	w.Helper()
	text := must.Get(json.Marshal(body))(w)
	var res struct {
		Status int
		Body   string
	}
	w.must("request", map[string]any{
		"method": method, "path": path, "body": string(text),
		"headers": map[string]string{"Content-Type": "application/json", "X-Current-Org-Id": w.seller},
	}, &res)
	if err := json.Unmarshal([]byte(res.Body), out); err != nil || res.Status > 299 {
		w.Fatalf("%s %s: %d %s %v", method, path, res.Status, res.Body, err)
	}
}

// sellingKey makes the key of the developer, which can sell and nothing else.
func (w *town) sellingKey() *client.Client {
	w.Helper()
	w.visit(w.url+"/w/"+w.seller, http.StatusOK)
	var key toll.APIKey
	w.request("POST", "/api/v1/api-keys", map[string]any{"name": "server", "rights": []string{"sell"}}, &key)
	c := client.New(key.Key, client.WithURL(w.url), servertest.Patient)
	_, err := c.RegisterPlan(w.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Foreign"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(1, 1)})
	if toll.AsError(err).Code != toll.CodeRightMissing {
		w.Errorf("a key that can only sell registers a plan: %v", err)
	}
	for _, err := range c.Keys(w.Context()) {
		if toll.AsError(err).Code != toll.CodeRightMissing {
			w.Errorf("a key that can only sell lists keys: %v", err)
		}
	}
	return c
}

// sellCalls registers a plan of 100 credits for 1 USDC, and serves an agent whose requests cost 5.
func (w *town) sellCalls(seller, sells *client.Client, runs *atomic.Int64) (toll.PlanID, string) {
	w.Helper()
	var handler http.Handler
	agent := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	w.Cleanup(agent.Close)
	owner := must.Get(toll.ParseAddress(w.seller))(w)
	price := must.Get(toll.PriceERC20(toll.UnitsOf(1_000_000), toll.Sandbox.USDC(), owner))(w)
	r := w.register(seller, "Coins", agent.URL+"/ask", client.PlanParams{Price: price, Credits: toll.CreditsDynamic(100, 1, 100)})
	handler = paid.Handler(sells, content(runs), paid.PublicURL(agent.URL), paid.Plan(r.PlanID), paid.Agent(r.AgentID), paid.Credits(5))
	return r.PlanID, agent.URL + "/ask"
}

// sellTools registers a free plan of 10 credits that is ordered once, and serves a tool that costs 5 to whoever signed in.
func (w *town) sellTools(seller, sells *client.Client, runs *atomic.Int64) (toll.PlanID, string) {
	w.Helper()
	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	w.Cleanup(front.Close)
	r := w.register(seller, "Trial", "mcp://demo/tools/*", client.PlanParams{
		Price: toll.Price{IsCrypto: true}, Credits: toll.CreditsDynamic(10, 1, 10), IsTrial: true,
	})
	p := paidmcp.New(sells, paidmcp.Config{PlanID: r.PlanID, AgentID: r.AgentID, ServerName: "demo"})
	tools := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	paidmcp.AddTool(p, tools, &mcp.Tool{Name: "ask", Description: "Ask the agent"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		runs.Add(1)
		return said("42"), nil, nil
	}, paidmcp.Credits(5))
	srv := must.Get(paidmcp.NewServer(p, tools, paidmcp.ServerConfig{BaseURL: front.URL, ServiceURL: w.url, RequireSignIn: true}))(w)
	w.Cleanup(func() {
		must.Check(w, srv.Close(context.Background()))
	})
	handler = srv.Handler()
	return r.PlanID, front.URL + "/mcp"
}

func (w *town) register(seller *client.Client, name, endpoint string, plan client.PlanParams) *client.Registered {
	w.Helper()
	plan.Metadata.Name = name
	return must.Get(seller.RegisterAgentWithPlan(w.Context(), client.AgentParams{
		Metadata: toll.Metadata{Name: "Agent of " + name}, API: toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: endpoint}}},
	}, plan))(w)
}

// walletBuys buys a plan by an exact payment, and returns the access token that came with it.
func (w *town) walletBuys(wallet *role, key string, plan toll.PlanID) string {
	w.Helper()
	var o outcome
	must.Do(w, wallet.do("buy", map[string]any{"key": key, "url": w.url + "/api/v1/x402/plans/" + string(plan) + "/order"}, &o))
	var got bought
	if err := json.Unmarshal([]byte(o.Body), &got); err != nil || o.Status != http.StatusOK || got.Balance != 100 || got.AccessToken == "" {
		w.Fatalf("%+v %v", o, err)
	}
	return got.AccessToken
}

func (w *town) calls(site, token string) {
	w.Helper()
	req := must.Get(http.NewRequestWithContext(w.Context(), http.MethodPost, site, strings.NewReader("{}")))(w)
	req.Header.Set("payment-signature", token)
	if a, err := read(req); err != nil || a.status != http.StatusOK {
		w.Fatalf("%+v %v", a, err)
	}
}

// callbackPage is where a program waits for the answer to its sign-in.
func callbackPage(t *testing.T) (address string, code <-chan string) {
	codes := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := r.URL.Query().Get("code"); c != "" {
			codes <- c
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>Program</title><h1>The program goes on</h1>`)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/callback", codes
}

// commandLine is the command line on the computer of the seller.
type commandLine struct {
	*town
	config string
}

// logIn signs the command line in, as the person who acts.
func (w *town) logIn() *commandLine {
	w.Helper()
	c := &commandLine{w, filepath.Join(w.TempDir(), "config.json")}
	cmd := c.command("login", "--no-browser", "-o", "json")
	cmd.Stdout = nil
	said := must.Get(cmd.StderrPipe())(w)
	must.Do(w, cmd.Start())
	stop := time.AfterFunc(roleWait, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if _, page, ok := strings.Cut(lines.Text(), "Sign in at "); ok {
			w.visit(page, http.StatusOK)
			w.press("Allow access")
			w.read("Signed in. You can close this page.")
		}
	}
	must.Do(w, cmd.Wait(), "toll login")
	return c
}

func (c *commandLine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(servertest.Program(c.T), args...)
	cmd.Env = append(os.Environ(), "TOLL_CONFIG="+c.config, "TOLL_URL="+c.url)
	return cmd
}

// key is the API key that the sign-in left in the profile.
func (c *commandLine) key() string {
	c.Helper()
	text, err := os.ReadFile(c.config)
	var config struct {
		Profiles map[string]struct {
			Key string `json:"apiKey"`
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil || len(config.Profiles) != 1 {
		c.Fatalf("%s: %v", text, err)
	}
	for _, p := range config.Profiles {
		return p.Key
	}
	return ""
}

// rows are what a command lists.
func rows[T any](c *commandLine, member string, args ...string) []T {
	c.Helper()
	out, err := c.command(append(args, "--all", "-o", "json")...).Output()
	if err != nil {
		c.Fatalf("toll %s: %v %s", strings.Join(args, " "), err, out)
	}
	var got map[string]json.RawMessage
	var list []T
	if err = json.Unmarshal(out, &got); err == nil {
		err = json.Unmarshal(got[member], &list)
	} else {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		c.Fatalf("toll %s: %v %s", strings.Join(args, " "), err, out)
	}
	return list
}

// agree compares orders, subscribers, usage by day and revenue: of the command line with the API, and their sums with what the
// ledger has of the two buyers.
func (w *town) agree(seller *client.Client, c *commandLine, coins, trial toll.PlanID) {
	w.Helper()
	ctx := w.Context()
	var burned, granted toll.Credits
	for plan, holder := range map[toll.PlanID]string{coins: w.wanda, trial: w.nora} {
		at := must.Get(toll.ParseAddress(holder))(w)
		b := must.Get(seller.BalanceOf(ctx, plan, at))(w)
		burned += b.Used
		granted += b.Balance + b.Used
		subscribers := collect(w.T, seller.Subscribers(ctx, plan))
		if len(subscribers) != 1 || subscribers[0].HolderAddress != at || subscribers[0].Used != b.Used || subscribers[0].Balance != b.Balance {
			w.Errorf("subscribers of %s: %+v, the ledger has %+v", plan, subscribers, b)
		}
		same(w, "subscribers", subscribers, rows[*toll.Balance](c, "subscribers", "subscribers", string(plan)))
	}
	if burned != 10 || granted != 110 {
		w.Errorf("%d credits burned of %d, want 10 of 110", burned, granted)
	}

	orders := collect(w.T, seller.Orders(ctx, client.AsSeller()))
	var ordered toll.Credits
	for _, o := range orders {
		ordered += o.CreditsGranted
	}
	if len(orders) != 2 || ordered != granted {
		w.Errorf("%d orders of %d credits, want 2 of %d", len(orders), ordered, granted)
	}
	ids := func(orders []*toll.Order) (out []string) { // the chain may confirm one more meanwhile
		for _, o := range orders {
			out = append(out, o.OrderID)
		}
		return out
	}
	same(w, "orders", ids(orders), ids(rows[*toll.Order](c, "orders", "orders", "list", "--role", "seller")))

	// Usage follows the settlements within seconds. A test around midnight has two days of it.
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		usage := collect(w.T, seller.Usage(ctx, client.By("day")))
		revenue := collect(w.T, seller.Revenue(ctx, client.By("plan")))
		var settled int64
		var credits toll.Sum
		for _, u := range usage {
			settled += u.Settled
			credits = credits.Add(u.Credits.Int())
		}
		if settled == 2 && credits.String() == burned.String() && len(revenue) == 1 {
			if r := revenue[0]; r.PlanID != coins || r.Orders != 1 || r.Amount.String() != "1000000" || r.Returned.String() != "0" {
				w.Errorf("revenue: %+v", r)
			}
			same(w, "usage", usage, rows[*toll.Usage](c, "usage", "usage", "--by", "day"))
			same(w, "revenue", revenue, rows[*toll.Revenue](c, "revenue", "revenue", "--by", "plan"))
			return
		}
		if time.Now().After(end) {
			w.Fatalf("usage %+v, revenue %+v, want 2 settlements of %d credits", usage, revenue, burned)
		}
	}
}

// same fails the test where the API and the command line list different records.
func same[T any](w *town, what string, api, line []T) {
	w.Helper()
	a, err1 := json.Marshal(api)
	l, err2 := json.Marshal(line)
	if err := errors.Join(err1, err2); err != nil || string(a) != string(l) {
		w.Errorf("%s: the API has %s, the command line %s, %v", what, a, l, err)
	}
}

// collect reads a list of the API.
func collect[T any](t *testing.T, list iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for one, err := range list {
		must.Do(t, err)
		all = append(all, one)
	}
	return all
}
