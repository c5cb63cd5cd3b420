package server_test

import (
	"encoding/hex"
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

var textToSign = regexp.MustCompile(`(?s)<pre class="text"[^>]*>(.*?)</pre>`)

// signsText fills in what a wallet signs on a page. The code of an account wants something before the signature.
func (p *pocket) signsText(t *testing.T, res shown, before ...byte) page {
	t.Helper()
	m := textToSign.FindStringSubmatch(res.body)
	if m == nil {
		t.Fatalf("nothing to sign: %d %s", res.status, mainPart.FindString(res.body))
	}
	signature := must.Get(p.Sign(evm.PersonalDigest(html.UnescapeString(m[1]))))(t)
	fields := map[string]string{}
	for _, m := range hiddenField.FindAllStringSubmatch(mainPart.FindString(res.body), -1) {
		fields[m[1]] = m[2]
	}
	return page{"/sign-in/wallet", url.Values{"state": {fields["state"]}, "signature": {"0x" + hex.EncodeToString(append(before, signature...))}}}
}

// withWallet signs in with a wallet, as the script of the page does.
func (v *visitor) withWallet(p *pocket, at toll.Address, before ...byte) shown {
	v.t.Helper()
	res := v.post("/sign-in/wallet", url.Values{"address": {strings.ToLower(at.String())}, "next": {"/account/access"}})
	return v.submit(p.signsText(v.t, res, before...))
}

// becomes makes an account of a wallet that nobody has.
func (v *visitor) becomes(p *pocket, at toll.Address, name string, before ...byte) {
	v.t.Helper()
	res := v.withWallet(p, at, before...)
	if res.status != http.StatusOK || !strings.Contains(res.body, "Create account") {
		v.t.Fatalf("a new wallet: %d %s", res.status, mainPart.FindString(res.body))
	}
	if res := v.submit(formOf(v.t, res).with("name", name)); res.status != http.StatusSeeOther || res.header.Get("Location") != "/account/access" {
		v.t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
	}
}

// TestWalletSignIn: a wallet that the service does not know becomes a workspace and a person, and signs in. T157: what another wallet
// signs, what was signed before or long ago, and another text are refused.
// T157
func TestWalletSignIn(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		p, other := newPocket(t, o.address), newPocket(t, o.address)
		v := newVisitor(t, o.address)
		asked := v.post("/sign-in/wallet", url.Values{"address": {p.Address().String()}})
		if text := textToSign.FindStringSubmatch(asked.body); text == nil || !strings.Contains(text[1], strings.TrimPrefix(o.s.PublicURL(), "http://")+" wants you to sign in") ||
			!strings.Contains(text[1], p.Address().String()) || !strings.Contains(text[1], "Expiration Time: ") {
			t.Fatalf("the text: %q", text)
		}
		if policy := asked.header.Get("Content-Security-Policy"); !strings.Contains(policy, "; script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("policy %s", policy)
		}
		for what, form := range map[string]page{
			"another wallet":  other.signsText(t, asked),
			"another text":    p.signsText(t, shown{body: strings.ReplaceAll(asked.body, "Sign in. ", "Sign in! ")}),
			"another state":   p.signsText(t, asked).with("state", "AAAA"),
			"no signature":    p.signsText(t, asked).with("signature", "0x"),
			"a long one":      p.signsText(t, asked).with("signature", "0x"+strings.Repeat("00", evm.MaxSignature+1)),
			"of another kind": p.signsText(t, asked).with("signature", "0x"+strings.Repeat("00", 65)),
		} {
			if res := v.submit(form); res.status < 400 || res.status > 403 {
				t.Errorf("%s: %d", what, res.status)
			}
		}
		v.becomes(p, p.Address(), "Wanda")
		if got := v.workspace(); got != p.Address().String() {
			t.Errorf("the workspace is %s", got)
		}
		if body := v.get("/account/security").body; !strings.Contains(body, "the service does not have its private key") {
			t.Errorf("the page does not say who has the key:\n%s", mainPart.FindString(body))
		}
		again := newVisitor(t, o.address)
		form := p.signsText(t, again.post("/sign-in/wallet", url.Values{"address": {p.Address().String()}, "next": {"/account/access"}}))
		if res := again.submit(form); res.status != http.StatusSeeOther || again.workspace() != p.Address().String() {
			t.Errorf("sign-in: %d", res.status)
		}
		if res := newVisitor(t, o.address).submit(form); res.status != http.StatusUnauthorized {
			t.Errorf("a signature twice: %d", res.status)
		}
	})
}

// A signature counts for ten minutes, and names what it allows: who is signed in proves with it, and adds it.
// T157
func TestWalletProves(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		p, second := newPocket(t, o.address), newPocket(t, o.address)
		v := newVisitor(t, o.address)
		v.becomes(p, p.Address(), "Wanda")
		form := p.signsText(t, newVisitor(t, o.address).post("/sign-in/wallet", url.Values{"address": {p.Address().String()}}))
		o.ahead.Add(int64(11 * time.Minute))
		if res := newVisitor(t, o.address).submit(form); res.status != http.StatusUnauthorized {
			t.Errorf("after eleven minutes: %d", res.status)
		}
		invite := func() shown { return v.act("/w/"+p.Address().String()+"/members", "act", "invite", "role", "viewer") }
		if res := invite(); !strings.Contains(res.body, "Confirm that it is you") {
			t.Fatalf("an old sign-in is a proof: %d", res.status)
		}
		asked := v.post("/sign-in/wallet", url.Values{"address": {second.Address().String()}})
		if !strings.Contains(asked.body, "you can change who can use your account") {
			t.Errorf("the text does not name the act: %s", mainPart.FindString(asked.body))
		}
		if res := v.submit(second.signsText(t, asked)); res.status != http.StatusUnauthorized {
			t.Errorf("a proof by the wallet of nobody: %d", res.status)
		}
		old := cookieOf(v)
		proof := p.signsText(t, v.post("/sign-in/wallet", url.Values{"address": {p.Address().String()}}))
		if res := o.signUp("dan", "").submit(proof); res.status != http.StatusForbidden {
			t.Errorf("a proof in the session of another person: %d", res.status)
		}
		if res := v.submit(proof); res.status != http.StatusSeeOther {
			t.Fatalf("a proof: %d %s", res.status, mainPart.FindString(res.body))
		}
		if cookieOf(v) == old {
			t.Error("the session keeps its id after a proof")
		}
		if res := invite(); !linkIn.MatchString(res.body) {
			t.Errorf("after the proof: %d", res.status)
		}
		// A second wallet is added, with its workspace. Nobody else gets either.
		old = cookieOf(v)
		if res := v.submit(second.signsText(t, v.act("/account/security", "act", "wallet", "address", second.Address().String()))); !strings.Contains(res.body, "is added") {
			t.Fatalf("adding: %d %s", res.status, mainPart.FindString(res.body))
		}
		if cookieOf(v) == old {
			t.Error("the session keeps its id after a wallet was added")
		}
		if body := v.get("/account/security").body; strings.Count(body, `/members">Members`) != 2 {
			t.Errorf("the workspaces:\n%s", mainPart.FindString(body))
		}
		eve := o.signUp("eve", "")
		if res := eve.submit(second.signsText(t, eve.act("/account/security", "act", "wallet", "address", second.Address().String()))); res.status != http.StatusConflict {
			t.Errorf("a wallet of somebody: %d", res.status)
		}
		if res := newVisitor(t, o.address).withWallet(second, second.Address()); res.status != http.StatusSeeOther {
			t.Errorf("sign-in with the second wallet: %d", res.status)
		}
	})
}

// TestTakeover_ExportedWallet: the key of a workspace that the service holds, or once gave out, signs nobody in; nor does the wallet of
// a workspace that has other people.
func TestTakeover_ExportedWallet(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		st := server.StoreOf(o.s)
		held := o.signUp("alice", "").workspace()
		builder, _ := keys(t, o.s)
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error { return store.NoteExport(t.Context(), tx, builder.Address, time.Now()) }))
		for what, at := range map[string]string{"held": held, "exported": builder.Address.String()} {
			if res := newVisitor(t, o.address).post("/sign-in/wallet", url.Values{"address": {at}}); res.status != http.StatusForbidden || !strings.Contains(res.body, "The service holds the private key of this wallet, so the wallet cannot sign you in.") {
				t.Errorf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
			}
		}
		// A workspace that gets a key after the text was signed.
		p := newPocket(t, o.address)
		v := newVisitor(t, o.address)
		form := p.signsText(t, v.post("/sign-in/wallet", url.Values{"address": {p.Address().String()}}))
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			return store.InsertPrincipal(t.Context(), tx, store.Principal{Address: p.Address(), SealedKey: []byte{1}, CreatedAt: time.Now()})
		}))
		if res := v.submit(form); res.status != http.StatusForbidden {
			t.Errorf("a workspace with a key: %d", res.status)
		}
		// The wallet is no credential any more, and its workspace has an owner.
		w := newPocket(t, o.address)
		owner := newVisitor(t, o.address)
		owner.becomes(w, w.Address(), "Wanda")
		owner.act("/account/security", "act", "password", "login", "wanda", "password", goodPassword)
		id := regexp.MustCompile(`name="credential" value="([^"]*)"[^>]*><input type="hidden" name="ticket" value="[^"]*"><button type="submit" class="plain">Remove<span class="unseen"> Wallet`).
			FindStringSubmatch(owner.get("/account/security").body)
		if id == nil {
			t.Fatal("the wallet cannot be removed")
		}
		if res := owner.act("/account/security", "act", "remove", "credential", id[1]); res.status != http.StatusOK {
			t.Fatalf("removing: %d", res.status)
		}
		n := newVisitor(t, o.address)
		if res := n.submit(formOf(t, n.withWallet(w, w.Address())).with("name", "Mallory")); res.status != http.StatusForbidden {
			t.Errorf("a workspace with people: %d %s", res.status, mainPart.FindString(res.body))
		}
	})
}

// TestWalletSignIn_Contract: code of an account is asked at each sign-in, its sessions end within a day, and without a chain the page
// says why nobody gets in.
// T157
func TestWalletOfContract(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	m := embeddedBazaar(t, func(cfg *server.Config) {
		cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	vault := m.vault(0)
	v := newVisitor(t, m.url)
	v.becomes(vault.pocket, vault.at, "Vera", 0)
	if res := newVisitor(t, m.url).withWallet(vault.pocket, vault.at, 0); res.status != http.StatusSeeOther {
		t.Errorf("sign-in: %d", res.status)
	}
	if res := newVisitor(t, m.url).withWallet(newPocket(t, m.url), vault.at, 0); res.status != http.StatusUnauthorized {
		t.Errorf("a signature that the code does not take: %d", res.status)
	}
	turns := m.places(chaintest.CodeAgreesUntilCalled)
	w := newVisitor(t, m.url)
	w.becomes(vault.pocket, turns, "Tina", 0)
	m.sends(common.Address(turns), nil)
	if res := newVisitor(t, m.url).withWallet(vault.pocket, turns, 0); res.status != http.StatusUnauthorized {
		t.Errorf("code that says no since: %d", res.status)
	}
	for hours, on := range []bool{0: true, 1: true, 2: false} { // steps of 11 hours: a session is used in each
		ahead.Add(int64(11 * time.Hour))
		if body := v.get("/account/security").body; strings.Contains(body, "Signed in as") != on {
			t.Errorf("a session that code opened goes on after %d hours: %t", 11*(hours+1), !on)
		}
	}

	off := newTown(t, "sqlite", func(cfg *server.Config) { cfg.Rails.Chain = rails.ChainConfig{Mode: rails.ChainOff} })
	if res := newVisitor(t, off.address).withWallet(vault.pocket, vault.at, 0); res.status != http.StatusForbidden || !strings.Contains(res.body, "is not connected to a chain that can verify its signature") {
		t.Errorf("without a chain: %d %s", res.status, mainPart.FindString(res.body))
	}
}

// The workspace of a wallet signs no user operation: an order says so, a delegation waits for the wallet, and there is no key to export.
func TestWalletWorkspace_SignsNothing(t *testing.T) {
	t.Parallel()
	m := embeddedBazaar(t)
	p := newPocket(t, m.url)
	v := newVisitor(t, m.url)
	v.becomes(p, p.Address(), "Wanda")
	in := client.NewSignIn(callback, "toll-cli")
	anonymous := client.New("", client.WithURL(m.url))
	res := v.submit(formOf(t, v.get(strings.TrimPrefix(in.URL(anonymous), m.url))))
	u := must.Get(url.Parse(res.header.Get("Location")))(t)
	key, _, err := anonymous.ExchangeCode(t.Context(), in, u.Query().Get("code"))
	must.Do(t, err)
	c := client.New(key, client.WithURL(m.url), client.WithRetries(0))
	wallet, err := c.Wallet(t.Context())
	if err != nil || wallet.Custody != toll.CustodyExternal || wallet.Address != p.Address() {
		t.Errorf("wallet: %+v, %v", wallet, err)
	}
	m.give(p.Address(), usdc, 5_000_000)
	if _, err := c.OrderPlan(t.Context(), m.dollar(m.owner)); toll.AsError(err).Code != toll.CodeDelegationNotFound || !strings.Contains(err.Error(), "user holds the key") {
		t.Errorf("an order: %v", err)
	}
	d, err := c.CreateDelegation(t.Context(), client.DelegationParams{Provider: toll.ProviderCrypto, SpendingLimit: 500, Lifetime: time.Hour, Currency: "usdc"})
	if err != nil || d.Status != toll.StatusPending || d.Account == nil || d.Account.Address != p.Address() {
		t.Errorf("a delegation: %+v, %v", d, err)
	}
	// SIWX: an access token for the wallet of a workspace of its owner, and none where the service holds the key.
	plan, q := m.dollar(m.owner), newPocket(t, m.url)
	for _, at := range []toll.Address{p.Address(), q.Address()} {
		must.Get(m.builder.Mint(t.Context(), plan, at, 10, 0))(t)
	}
	if in := p.signsIn(plan); in.status != http.StatusOK || in.AccessToken == "" {
		t.Errorf("a token for an external workspace: %d %s", in.status, in.Error)
	}
	must.Do(t, m.store.Tx(t.Context(), func(tx *store.Tx) error {
		return store.InsertPrincipal(t.Context(), tx, store.Principal{Address: q.Address(), SealedKey: []byte{1}, CreatedAt: time.Now()})
	}))
	if in := q.signsIn(plan); in.status != http.StatusPaymentRequired || in.AccessToken != "" {
		t.Errorf("a token for a workspace whose key the service holds: %d %s", in.status, in.body)
	}
	if _, err := server.AuthOf(m.server).ExportLocalWallet(t.Context(), p.Address()); !errors.Is(err, auth.ErrExternal) {
		t.Errorf("an export: %v", err)
	}
}
