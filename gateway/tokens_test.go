package gateway_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// permission returns what the newest access token of the account of the rig may
// spend.
func (r *rig) permission() *toll.Permission {
	r.t.Helper()
	for p, err := range r.client().Permissions(r.t.Context()) {
		must.Do(r.t, err)
		return p
	}
	r.t.Fatal("no permission")
	return nil
}

func (r *rig) client() *client.Client {
	r.t.Helper()
	key := must.Get(r.svc.NewKey(r.account))(r.t)
	return client.New(key.Key, client.WithURL(r.svc.URL()))
}

func (r *rig) delegations() (all []*toll.Delegation) {
	r.t.Helper()
	for d, err := range r.client().Delegations(r.t.Context()) {
		must.Do(r.t, err)
		all = append(all, d)
	}
	return all
}

// TestToken: without a spending limit a token spends what is there, and causes no order.
func TestToken(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	got := r.run("getAccessToken", `{"redemptionLimit":"7","expirationSecs":600,"agentId":"`+string(r.svc.Agent())+`"}`)
	if got["accessToken"] != got["token"] || got.text(t, "token") == "" || got["planId"] != string(r.svc.Plan()) ||
		got["scheme"] != "svc:erc4337" || got["network"] != "eip155:84532" || got["delegationId"] != nil ||
		!strings.Contains(got.text(t, "notice"), "secret") {
		t.Error(got)
	}
	end, err := time.Parse(time.RFC3339, got.text(t, "expiresAt"))
	if life := end.Sub(r.svc.Now()); err != nil || life > 10*time.Minute || life < 9*time.Minute {
		t.Error(life, err)
	}
	if !strings.Contains(got.warnings(), "no credits") || !strings.Contains(got.warnings(), "1000") {
		t.Error(got.warnings())
	}
	p := r.permission()
	if p.MaxOrders == nil || *p.MaxOrders != 0 || p.DelegationID != nil || p.MaxCredits == nil || *p.MaxCredits != 7 {
		t.Errorf("%+v", p)
	}
	if acts := r.wire.acts(); !slices.Equal(acts, []string{"POST /x402/permissions"}) {
		t.Error(acts)
	}
	// confirm alone raises nothing.
	r.svc.Mint(r.address, 3)
	if got := r.run("getAccessToken", `{"confirm":true,"orderLimit":5}`); got["delegationId"] != nil || !strings.Contains(got.warnings(), "orderLimit") ||
		strings.Contains(got.warnings(), "no credits") {
		t.Error(got)
	}
	if p := r.permission(); *p.MaxOrders != 0 {
		t.Errorf("%+v", p)
	}
}

// TestToken_Limit: a spending limit is a quote until it is confirmed. A delegation of this core that
// covers it is used again, also after a restart; others are not.
func TestToken_Limit(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	foreign := must.Get(r.client().CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: time.Hour, Currency: "usdc", PlanID: r.svc.Plan(),
	}))(t)
	const params = `{"spendingLimitCents":"350","delegationDurationSecs":7200}`
	confirmed := strings.Replace(params, "}", `,"confirm":"true"}`, 1)
	q := r.run("getAccessToken", params)
	if q["requiresConfirmation"] != true || q["spendingLimitCents"] != "350" || q["delegationDurationSecs"] != 7200.0 || q["orderLimit"] != 3.0 || q["expirationSecs"] != 3600.0 ||
		q["price"] != "1.00" || q["currency"] != "USDC" || q["token"] != nil || !strings.Contains(q.text(t, "message"), "350 cents") {
		t.Error(q)
	}
	if acts := r.wire.acts(); acts != nil {
		t.Error(acts)
	}
	// Another limit is another act.
	if got := r.run("getAccessToken", strings.Replace(confirmed, "350", "400", 1)); got["requiresConfirmation"] != true || got["priceChanged"] != true {
		t.Error(got)
	}
	r.run("getAccessToken", params)
	got := r.run("getAccessToken", confirmed)
	id := got.text(t, "delegationId")
	if acts := r.wire.acts(); !slices.Equal(acts, []string{"POST /delegation/create", "POST /x402/permissions"}) || id == foreign.DelegationID {
		t.Errorf("%v, %v", acts, got)
	}
	made, err := r.client().Delegation(t.Context(), id)
	if err != nil || made.SpendingLimitCents != 350 || made.PlanID == nil || *made.PlanID != r.svc.Plan() || made.Currency != "usdc" {
		t.Errorf("%+v, %v", made, err)
	}
	if p := r.permission(); p.MaxOrders == nil || *p.MaxOrders != 3 {
		t.Errorf("%+v", p)
	}

	// A smaller limit uses it again, with fewer orders.
	r.wait(time.Minute)
	r = r.restarted()
	smaller := strings.Replace(confirmed, "350", "299", 1)
	r.run("getAccessToken", smaller)
	r.wait(readTime)
	again := r.run("getAccessToken", smaller)
	if acts := r.wire.acts(); !slices.Equal(acts, []string{"POST /x402/permissions"}) || again["delegationId"] != id {
		t.Errorf("%v, %v", acts, again)
	}
	if p := r.permission(); p.MaxOrders == nil || *p.MaxOrders != 2 {
		t.Errorf("%+v", p)
	}
	// A larger one, one that lasts longer or shorter, and one for another plan do not.
	price := must.Get(toll.PriceERC20(toll.UnitsOf(1), toll.Sandbox.USDC(), r.svc.Builder()))(t)
	other := must.Get(r.svc.Client().RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Other"}, Price: price}))(t)
	for _, other := range []string{
		strings.Replace(confirmed, "350", "351", 1),
		strings.Replace(confirmed, "7200", `86400,"expirationSecs":86400`, 1),
		strings.Replace(confirmed, "7200", "600", 1),
		strings.Replace(confirmed, "{", `{"planId":"`+string(other.PlanID)+`",`, 1),
	} {
		r.wait(time.Minute)
		r.run("getAccessToken", other)
		r.wait(readTime)
		if got := r.run("getAccessToken", other); got.text(t, "delegationId") == id {
			t.Error(other, got)
		}
	}
}

// TestToken_AnotherMember: on a host where somebody else of the workspace was logged in, a member with a spending limit, who may
// not use the delegation of that one, gets one of their own.
func TestToken_AnotherMember(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	as := func(token, workspace string) *client.Client {
		return client.New(token, client.WithURL(r.svc.URL()), client.WithWorkspace(workspace))
	}
	person := func(login string) *toll.SignedIn {
		return must.Get(as("", "").SignUp(t.Context(), client.SignUpParams{Login: login, Password: "four words are enough"}))(t)
	}
	boss, dev := person("boss"), person("dev")
	workspace := boss.Organizations[0].ID
	owner := as(boss.Token, workspace)
	invited, err := owner.Invite(t.Context(), toll.RoleDeveloper, "")
	if err == nil {
		_, err = as(dev.Token, dev.Organizations[0].ID).AcceptInvitation(t.Context(), invited.Link)
	}
	if err == nil {
		_, err = owner.SetSpendLimit(t.Context(), dev.Person.ID, new(toll.Cents(500)))
	}
	must.Do(t, err)
	// login gives the host a key of a person for the workspace of the boss.
	login := func(in *toll.SignedIn) {
		t.Helper()
		key := must.Get(as(in.Token, workspace).CreateKey(t.Context(), client.KeyParams{}))(t)
		r.opts.Config.APIKey = key.Key
		r.start()
	}
	token := func() string {
		t.Helper()
		r.run("getAccessToken", `{"spendingLimitCents":"350"}`)
		r.wait(readTime)
		got := r.run("getAccessToken", `{"spendingLimitCents":"350","confirm":true}`)
		r.wait(time.Minute)
		return got.text(t, "delegationId")
	}
	login(boss)
	first := token()
	if again := token(); again != first {
		t.Errorf("the delegation %s is used again, not %s", first, again)
	}
	login(dev)
	r.wire.acts()
	own := token()
	if own == first {
		t.Errorf("a member with a limit uses %s of somebody else", own)
	}
	if acts := r.wire.acts(); !slices.Equal(acts, []string{"POST /x402/permissions", "POST /delegation/create", "POST /x402/permissions"}) {
		t.Error(acts)
	}
	if again := token(); again != own {
		t.Errorf("the delegation %s is used again, not %s", own, again)
	}
}

// restarted returns the rig with a new core on the same directory.
func (r *rig) restarted() *rig {
	r.t.Helper()
	next := &rig{t: r.t, svc: r.svc, wire: r.wire, address: r.address, account: r.account, opts: r.opts, clock: r.clock}
	next.start()
	return next
}

// TestToken_LimitRefused: limits that make no sense or are above the operator's are refused, with
// and without confirm.
func TestToken_LimitRefused(t *testing.T) {
	most := toll.Cents(5000)
	r := newRig(t, func(c *gateway.Config) { c.MaxSpendingLimitCents = &most }, tolltest.WithPayments())
	register := func(p toll.Price) string {
		t.Helper()
		made := must.Get(r.svc.Client().RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Other"}, Price: p}))(t)
		return string(made.PlanID)
	}
	price := func(p toll.Price, err error) toll.Price {
		t.Helper()
		must.Do(t, err)
		return p
	}
	to := r.svc.Builder()
	native := register(price(toll.PriceNative(toll.UnitsOf(1), to)))
	other := register(price(toll.PriceERC20(toll.UnitsOf(1), toll.MustAddress(otherToken), to)))
	card := register(price(toll.PriceFiat(toll.UnitsOf(5_000_000), to, "EUR")))
	for _, confirm := range []string{"", `,"confirm":true`} {
		for _, w := range []struct {
			code   gateway.Word
			params string
		}{
			{gateway.OverCap, `{"spendingLimitCents":5001`},
			{gateway.InvalidParams, `{"spendingLimitCents":99`},
			{gateway.InvalidParams, `{"spendingLimitCents":0`},
			{gateway.InvalidParams, `{"spendingLimitCents":1.5`},
			{gateway.InvalidParams, `{"spendingLimitCents":500,"planId":"` + native + `"`},
			{gateway.InvalidParams, `{"spendingLimitCents":500,"planId":"` + other + `"`},
			{gateway.InvalidParams, `{"spendingLimitCents":500,"paymentType":"fiat"`},
			{gateway.InvalidParams, `{"paymentType":"fiat"`},
			{gateway.InvalidParams, `{"paymentType":"crypto","planId":"` + card + `"`},
			{gateway.NoPaymentMethod, `{"spendingLimitCents":500,"planId":"` + card + `"`},
			{gateway.InvalidParams, `{"spendingLimitCents":500,"paymentMethodId":"pm_none","planId":"` + card + `"`},
		} {
			r.refused(w.code, "getAccessToken", w.params+confirm+"}")
		}
	}
	if acts := r.wire.acts(); acts != nil {
		t.Error(acts)
	}
	if got := r.run("getAccessToken", `{"spendingLimitCents":5000}`); got["requiresConfirmation"] != true {
		t.Error(got)
	}
}

// TestToken_Card: the first active card backs the limit, or the one that was named.
func TestToken_Card(t *testing.T) {
	r := newRig(t, nil, tolltest.WithCards())
	e := r.refused(gateway.NoPaymentMethod, "getAccessToken", `{"paymentType":"fiat"}`)
	if e.Message != "No enrolled payment method found." || !strings.Contains(e.Hint, r.svc.URL()+"/cards/enroll") {
		t.Error(e)
	}
	card := r.svc.EnrollCard(r.address, "4242 4242 4242 4242")
	r.wire.acts()
	params := `{"paymentType":"fiat","spendingLimitCents":1000,"confirm":true}`
	q := r.run("getAccessToken", params)
	if q["requiresConfirmation"] != true || q["paymentMethodId"] != card || !strings.Contains(q.text(t, "paymentMethod"), "4242") {
		t.Error(q)
	}
	r.wait(readTime)
	got := r.run("getAccessToken", params)
	if got["scheme"] != "svc:card-delegation" || !strings.HasPrefix(got.text(t, "network"), "stripe") || got.text(t, "delegationId") == "" {
		t.Error(got)
	}
	d := r.delegations()
	if len(d) != 1 || d[0].ProviderPaymentMethodID != card || d[0].Currency != "usd" || d[0].SpendingLimitCents != 1000 {
		t.Errorf("%+v", d)
	}

	// The token of the limit pays a request, by one order.
	methods := r.run("listPaymentMethods", `{}`)
	all, _ := methods["paymentMethods"].([]any)
	if len(all) != 2 {
		t.Fatal(methods)
	}
	first, _ := all[0].(map[string]any)
	for _, name := range []string{"id", "type", "brand", "last4", "expMonth", "expYear", "provider", "status"} {
		if first[name] == nil {
			t.Errorf("%s is missing: %v", name, first)
		}
	}
	// Credits that exist need no card.
	s := rigOf(t, r.svc, "bob", nil)
	r.svc.Mint(s.address, 5)
	if got := s.run("getAccessToken", `{"paymentType":"fiat"}`); got["scheme"] != "svc:card-delegation" {
		t.Error(got)
	}
}

// TestToken_Concurrent: twenty confirmations at once are one delegation.
func TestToken_Concurrent(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("getAccessToken", `{"spendingLimitCents":500}`)
	results := make(chan result, 20)
	for range cap(results) {
		go func() {
			got, err := r.try(owner, "", "getAccessToken", `{"spendingLimitCents":500,"confirm":true}`)
			must.Check(t, err)
			results <- got
		}()
	}
	tokens := map[any]bool{}
	for range cap(results) {
		tokens[(<-results)["token"]] = true
	}
	if d := r.delegations(); len(d) != 1 || len(tokens) != 1 {
		t.Errorf("%d delegations, %d tokens", len(d), len(tokens))
	}
}

// TestToken_Record: the record of delegations is private and bounded; one that cannot be read is
// an empty one.
func TestToken_Record(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	token := func() string {
		t.Helper()
		r.wait(time.Minute)
		r.run("getAccessToken", `{"spendingLimitCents":500}`)
		return r.run("getAccessToken", `{"spendingLimitCents":500,"confirm":true}`).text(t, "delegationId")
	}
	first := token()
	path := filepath.Join(r.opts.Dir, "delegations.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again := token(); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	must.Do(t, os.WriteFile(path, []byte("{"), 0o600))
	if again := token(); again == first {
		t.Error("the delegation is used without a record")
	}
	// What others write into the record is not used unless it is a delegation of the account for the plan.
	sub := r.svc.Subscriber(0)
	foreign := sub.Delegate(1000)
	record := `{"sandbox ` + r.address.Lower() + `":["` + foreign + `","x","../.."]}`
	must.Do(t, os.WriteFile(path, []byte(record), 0o600))
	if got := token(); got == foreign {
		t.Error("a delegation of somebody else is used")
	}
}

// TestToken_Ended: delegations that ended are asked for once, and one that may be good stays in the
// record.
func TestToken_Ended(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	path := filepath.Join(r.opts.Dir, "delegations.json")
	key := "sandbox " + r.address.Lower()
	record := func() (ids []string) {
		t.Helper()
		var all map[string][]string
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &all)
		}
		must.Do(t, err)
		return all[key]
	}
	delegate := func(limit toll.Cents, life time.Duration) string {
		t.Helper()
		made := must.Get(r.client().CreateDelegation(t.Context(), client.DelegationParams{
			Provider: toll.ProviderCrypto, SpendingLimit: limit, Lifetime: life, Currency: "usdc", PlanID: r.svc.Plan(),
		}))(t)
		return made.DelegationID
	}
	small, expired, revoked := delegate(100, 100*time.Hour), delegate(900, time.Minute), delegate(900, time.Hour)
	r.svc.Advance(2 * time.Minute)
	must.Get(r.client().RevokeDelegation(t.Context(), revoked))(t)
	b, err := json.Marshal(map[string][]string{key: {small, expired, revoked, toll.NewUUID()}})
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	must.Do(t, err)
	// While the service fails, nothing is known.
	r.wire.alter(func(req *http.Request, body []byte) ([]byte, error) {
		if strings.Contains(req.URL.Path, "/delegation/") {
			return nil, refusedBy(http.StatusInternalServerError)
		}
		return body, nil
	})
	confirmed := `{"spendingLimitCents":500,"confirm":true}`
	r.run("getAccessToken", `{"spendingLimitCents":500}`)
	if _, err := r.try(owner, "", "getAccessToken", confirmed); err == nil || len(record()) != 4 {
		t.Errorf("%v, record %v", err, record())
	}
	r.wire.alter(nil)
	made := r.run("getAccessToken", confirmed).text(t, "delegationId")
	if ids := record(); !slices.Equal(ids, []string{small, made}) {
		t.Errorf("%v, want %s and %s", ids, small, made)
	}
}
