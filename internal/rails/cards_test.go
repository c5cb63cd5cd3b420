package rails

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = time.Minute // what has to come is waited for as long

// world is a database whose card rail is started and stopped.
type world struct {
	*testing.T
	deps Deps
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, cfg := storetest.OpenVariant(t, storetest.SQLite)
	ring := seal.New([32]byte{1})
	a := must.Get(auth.Bootstrap(t.Context(), st, ring, auth.Config{
		Environment: toll.Sandbox, Issuer: "https://pay.example.com/api/v1", ClaimObject: "svc",
	}))(t)
	return &world{t, Deps{
		Store: st, Ring: ring, Auth: a, Clock: time.Now, Machine: time.Now, Log: slog.New(slog.DiscardHandler), Data: cfg.Data,
		PublicURL: "https://pay.example.com", Listen: "http://127.0.0.1:1", Webhook: "/hook",
	}}
}

// start starts a processor. The function that it returns stops it.
func (w *world) start(cfg CardConfig) (*Cards, func(), error) {
	w.Helper()
	deps := w.deps
	deps.Jobs = jobs.NewGroup(nil)
	stop := func() {
		must.Check(w, deps.Jobs.Stop(context.Background()))
	}
	p, err := NewCards(w.Context(), cfg, deps)
	if err == nil {
		err = p.Start(w.Context())
	}
	return p, stop, err
}

// stripe is a double on another machine, which can be away.
type stripe struct {
	url  string
	away atomic.Bool
}

func newStripe(t *testing.T, opts double.Options) *stripe {
	t.Helper()
	d := must.Get(double.New(opts))(t)
	s := &stripe{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		d.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); d.Close() })
	s.url = server.URL
	return s
}

// A sandbox without keys has a double on this machine, which keeps its keys, its account and its address. No key of it lies in the
// database or in its file as it is.
func TestDouble(t *testing.T) {
	w := newWorld(t)
	first, stop, err := w.start(CardConfig{})
	must.Do(t, err)
	if first.State() != "ok" || first.Rail() == nil || !strings.HasPrefix(first.Double(), "http://127.0.0.1:") {
		t.Errorf("%s at %s", first.State(), first.Double())
	}
	k := first.double.keys
	link, err := first.deps.link(rail.UsePage, toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"), "o-1", time.Now().Add(time.Hour))
	if err != nil || !strings.HasPrefix(link, "https://pay.example.com/checkout/o-1?t=") {
		t.Errorf("link %q, %v", link, err)
	} else if _, id, _, err := w.deps.Auth.OpenLink(string(rail.UsePage), link[strings.Index(link, "=")+1:]); err != nil || id != "o-1" {
		t.Errorf("the link is of %q, %v", id, err)
	}
	stop()
	second, stop, err := w.start(CardConfig{})
	must.Do(t, err)
	if second.Double() != first.Double() || second.double.keys.secret != k.secret || second.double.keys.webhook[0] != k.webhook[0] || second.State() != "ok" {
		t.Errorf("%s at %s, was at %s", second.State(), second.Double(), first.Double())
	}
	stop()
	// A backup has the database alone: after it is restored the account is the same, and empty.
	if err := w.deps.Store.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := store.EnsureCardCustomer(t.Context(), tx, &store.CardCustomer{Owner: toll.Address{1}, RowID: toll.NewUUID(), CreatedAt: time.Now()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.Remove(filepath.Join(w.deps.Data, doubleFile)))
	third, stop, err := w.start(CardConfig{})
	if err != nil || third.State() != "ok" {
		t.Fatalf("without the file of the double: %v", err)
	}
	stop()
	files, err := filepath.Glob(filepath.Join(w.deps.Data, "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text := must.Get(os.ReadFile(name))(t)
		if bytes.Contains(text, []byte(k.secret)) || bytes.Contains(text, []byte(k.webhook[0])) {
			t.Errorf("%s holds a key", name)
		}
	}
	w.deps.Ring = seal.New([32]byte{2})
	if _, stop, err = w.start(CardConfig{}); err == nil {
		t.Error("another master key opens the keys of the double")
	}
	stop()
}

func TestOff(t *testing.T) {
	w := newWorld(t)
	p, stop, err := w.start(CardConfig{Mode: CardOff, SecretKeyFile: "none"})
	if err != nil || p.State() != "off" || p.Rail() != nil || p.Double() != "" {
		t.Errorf("%s, %v", p.State(), err)
	}
	stop()
	if _, err := store.Setting(t.Context(), w.deps.Store, settingInstallation); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the database has an installation: %v", err)
	}
}

// A database belongs to the account at the processor that its records are about. One without such records may change it.
func TestAccount(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	const key = "sk_test_0123456789"
	one, two := newStripe(t, double.Options{SecretKey: key}), newStripe(t, double.Options{SecretKey: key})
	start := func(s *stripe) (*Cards, func(), error) { return w.start(CardConfig{SecretKey: key, URL: s.url}) }
	for _, s := range []*stripe{one, two, one} {
		p, stop, err := start(s)
		if err != nil || p.State() != "ok" {
			t.Fatalf("%s, %v", p.State(), err)
		}
		stop()
	}
	must.Do(t, w.deps.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := store.EnsureCardCustomer(ctx, tx, &store.CardCustomer{Owner: toll.Address{1}, RowID: toll.NewUUID(), CreatedAt: time.Now()})
		return err
	}))
	_, stop, err := start(two)
	stop()
	if !errors.Is(err, errOtherAccount) || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "toll card-double --file") {
		t.Errorf("another account: %v", err)
	}
	// While the processor is down nothing is sent to it, because the account of the key is not
	// known.
	two.away.Store(true)
	p, stop, err := start(two)
	if err != nil || p.State() != "failing" {
		t.Fatalf("%s, %v", p.State(), err)
	}
	if _, _, err := p.rail.Enroll(ctx, toll.Address{1}, "source", "https://pay.example.com/cards/enroll"); !errors.Is(err, toll.NewError(toll.CodeCardUnreachable)) {
		t.Errorf("enrolled: %v", err)
	}
	two.away.Store(false)
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		p.wake.Fire()
		if f, _ := p.fault.Load().(slot); errors.Is(f.err, errOtherAccount) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the other account is not noticed")
		}
	}
	if _, _, err := p.rail.Enroll(ctx, toll.Address{1}, "source", "https://pay.example.com/cards/enroll"); p.State() != "failing" ||
		!errors.Is(err, toll.NewError(toll.CodeCardUnreachable)) {
		t.Errorf("%s, enrolled: %v", p.State(), err)
	}
	stop()
	one.away.Store(true)
	p, stop, err = start(one)
	if err != nil || p.State() != "failing" {
		t.Fatalf("%s, %v", p.State(), err)
	}
	one.away.Store(false)
	for end := time.Now().Add(soon); p.State() != "ok"; time.Sleep(10 * time.Millisecond) {
		if p.wake.Fire(); time.Now().After(end) {
			t.Fatal("the account that is there again is not noticed")
		}
	}
	stop()
}

// The state of the processor follows the first request that fails, and the first check after the outage.
func TestState_Outage(t *testing.T) {
	w := newWorld(t)
	const key = "sk_test_0123456789"
	s := newStripe(t, double.Options{SecretKey: key})
	p, stop, err := w.start(CardConfig{SecretKey: key, URL: s.url})
	defer stop()
	if err != nil || p.State() != "ok" {
		t.Fatalf("%s, %v", p.State(), err)
	}
	within := func(limit time.Duration, what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(limit); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("within %v: not %s", limit, what)
			}
		}
	}
	within(soon, "the first check", func() bool {
		return slices.ContainsFunc(p.deps.Jobs.Status(), func(s jobs.Status) bool { return s.Name == "card.account" && s.Runs > 0 })
	})
	s.away.Store(true)
	if _, _, err := p.rail.Enroll(t.Context(), toll.Address{1}, "source", "https://pay.example.com/cards/enroll"); err == nil {
		t.Error("enrolled")
	}
	const limit = 9 * time.Second // less than the pause between two checks
	within(limit, "failing", func() bool { return p.State() == "failing" })
	s.away.Store(false)
	within(limit, "ok", func() bool { return p.State() == "ok" })
}

// The name of an address is the same for a /64 of IPv6, and does not tell the address.
func TestSource(t *testing.T) {
	w := newWorld(t)
	of := func(text string) string { return (&Cards{deps: w.deps}).Source(netip.MustParseAddr(text)) }
	if of("192.0.2.1") != of("::ffff:192.0.2.1") || of("192.0.2.1") == of("192.0.2.2") || strings.Contains(of("192.0.2.1"), "192.0") {
		t.Error("IPv4")
	}
	if of("2001:db8::1") != of("2001:db8::ffff:1") || of("2001:db8::1") == of("2001:db8:0:1::1") {
		t.Error("IPv6")
	}
}

// What doctor says of each kind of processor. No line has a key in it.
func TestInspect(t *testing.T) {
	w := newWorld(t)
	const key, other, restricted, live = "sk_test_0123456789", "sk_test_9876543210", "rk_test_0123456789", "rk_live_0123456789"
	options := func() double.Options {
		return double.Options{
			SecretKey: key, RestrictedKeys: map[string][]string{restricted: {"account_read"}},
			Webhooks: []double.Webhook{{URL: w.deps.PublicURL + w.deps.Webhook, Secrets: []string{"whsec_1"}}},
		}
	}
	s, away := newStripe(t, options()), newStripe(t, options())
	away.away.Store(true)
	bare := newStripe(t, double.Options{SecretKey: key})
	inspect := func(cfg CardConfig, deps Deps) (lines, details string) {
		cfg.Inspect(t.Context(), deps, func(name, status, format string, args ...any) {
			lines += name + " " + status + "; "
			details += fmt.Sprintf(format, args...) + "\n"
		})
		for _, secret := range []string{key, other, restricted, live, "whsec_1"} {
			if strings.Contains(details, secret) {
				t.Errorf("a key is in %s", details)
			}
		}
		return lines, details
	}
	onLive, local, postgres := w.deps, w.deps, w.deps
	liveStore, _ := storetest.Open(t, store.SQLite)
	liveAuth := must.Get(auth.Bootstrap(t.Context(), liveStore, w.deps.Ring, auth.Config{
		Environment: toll.Live, Issuer: "https://pay.example.com/api/v1", ClaimObject: "svc",
	}))(t)
	onLive.Auth, local.PublicURL, postgres.Data = liveAuth, "http://127.0.0.1:8402", ""
	hooks := []string{"whsec_1"}
	for name, tt := range map[string]struct {
		cfg         CardConfig
		deps        Deps
		want, words string
	}{
		"off":                {CardConfig{Mode: CardOff}, w.deps, "cards ok; ", "off"},
		"the double":         {CardConfig{}, w.deps, "cards ok; ", "no money moves"},
		"no double":          {CardConfig{}, postgres, "cards warning; ", "--stripe-url"},
		"nothing on live":    {CardConfig{}, onLive, "cards warning; ", "TOLL_STRIPE_SECRET_KEY_FILE"},
		"test key on live":   {CardConfig{SecretKey: key}, onLive, "cards failed; ", "test mode key"},
		"live key on test":   {CardConfig{SecretKey: live, URL: s.url}, w.deps, "cards failed; ", "--environment live"},
		"a double on live":   {CardConfig{SecretKey: live, URL: s.url}, onLive, "cards failed; ", "moves no money"},
		"all is well":        {CardConfig{SecretKey: key, URL: s.url, WebhookSecrets: hooks}, w.deps, "cards ok; card webhooks ok; ", "in US, test mode, API version " + double.Version},
		"no secret":          {CardConfig{SecretKey: key, URL: s.url}, w.deps, "cards ok; card webhooks warning; ", "cannot be verified"},
		"no webhook":         {CardConfig{SecretKey: key, URL: bare.url, WebhookSecrets: hooks}, w.deps, "cards ok; card webhooks warning; ", "sends no events to https://pay.example.com/hook"},
		"restricted":         {CardConfig{SecretKey: restricted, URL: s.url}, w.deps, "cards ok; card permissions failed; card webhooks warning; ", "no permission for customers, payment methods"},
		"another key":        {CardConfig{SecretKey: other, URL: s.url}, w.deps, "cards failed; ", "rejects the secret key (Stripe responded with 401"},
		"Stripe is away":     {CardConfig{SecretKey: key, URL: away.url}, w.deps, "cards failed; ", away.url + " does not respond"},
		"no file":            {CardConfig{SecretKeyFile: "none"}, w.deps, "cards failed; ", "no such file"},
		"an address of ours": {CardConfig{SecretKey: key, URL: s.url}, local, "cards ok; card webhooks warning; ", "sends no events to http://127.0.0.1:8402/hook"},
	} {
		if got, details := inspect(tt.cfg, tt.deps); got != tt.want || !strings.Contains(details, tt.words) {
			t.Errorf("%s: %s\n%s", name, got, details)
		}
	}
	// Stripe itself could not reach an address of this machine.
	var lines []string
	inspectWebhooks(&local, cardKeys{webhook: hooks}, true, &card.Account{Webhooks: []string{}}, func(name, status, format string, args ...any) {
		lines = append(lines, name+" "+status+" "+fmt.Sprintf(format, args...))
	})
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "card webhooks warning Stripe cannot reach http://127.0.0.1:8402/hook") {
		t.Error(lines)
	}

	write := func(f func(tx *store.Tx) error) {
		t.Helper()
		must.Do(t, w.deps.Store.Tx(t.Context(), f))
	}
	well := CardConfig{SecretKey: key, URL: s.url, WebhookSecrets: hooks}
	write(func(tx *store.Tx) error {
		return store.PutSetting(t.Context(), tx, card.AccountSetting, []byte("acct_first"))
	})
	if got, details := inspect(well, w.deps); got != "cards ok; card webhooks ok; " { // nothing is about the first account, and a start takes this one
		t.Errorf("another account that was not used: %s\n%s", got, details)
	}
	write(func(tx *store.Tx) error {
		_, err := store.EnsureCardCustomer(t.Context(), tx, &store.CardCustomer{Owner: toll.Address{1}, RowID: toll.NewUUID(), CreatedAt: time.Now()})
		return err
	})
	if got, details := inspect(well, w.deps); got != "cards failed; card webhooks ok; " || !strings.Contains(details, "was used with acct_first") {
		t.Errorf("another account: %s\n%s", got, details)
	}
	write(func(tx *store.Tx) error {
		_, err := store.InsertCardOrphan(t.Context(), tx, &store.CardOrphan{Object: "pi_1", Cents: 100, Currency: "usd", Reason: "unknown", SeenAt: time.Now()})
		return err
	})
	if got, details := inspect(CardConfig{}, w.deps); got != "cards ok; card money warning; " || !strings.Contains(details, "such as pi_1: unknown") {
		t.Errorf("an orphan: %s\n%s", got, details)
	}
	write(func(tx *store.Tx) error {
		return store.PutJob(t.Context(), tx, store.Job{Kind: store.JobCardDecide, Key: []byte(toll.NewUUID()), Due: time.Now()})
	})
	if got, details := inspect(CardConfig{Mode: CardOff}, w.deps); got != "cards ok; card money warning; card money failed; " || !strings.Contains(details, "1 payments could not be applied") {
		t.Errorf("an undecided payment: %s\n%s", got, details)
	}
}
