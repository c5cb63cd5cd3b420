package fiat

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/jobs"
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
	a, err := auth.Bootstrap(t.Context(), st, ring, auth.Config{
		Environment: toll.Sandbox, Issuer: "https://pay.example.com/api/v1", ClaimObject: "svc",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, Deps{
		Store: st, Ring: ring, Auth: a, Clock: time.Now, Machine: time.Now, Log: slog.New(slog.DiscardHandler), Data: cfg.Data,
		PublicURL: "https://pay.example.com", Listen: "http://127.0.0.1:1", Webhook: "/hook",
	}}
}

// start starts a processor. The function that it returns stops it.
func (w *world) start(cfg Config) (*Processor, func(), error) {
	w.Helper()
	deps := w.deps
	deps.Jobs = jobs.NewGroup(nil)
	stop := func() {
		if err := deps.Jobs.Stop(context.Background()); err != nil {
			w.Error(err)
		}
	}
	p, err := New(w.Context(), cfg, deps)
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
	d, err := double.New(opts)
	if err != nil {
		t.Fatal(err)
	}
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
	first, stop, err := w.start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if first.State() != "ok" || first.Rail() == nil || first.Receive() == nil || !strings.HasPrefix(first.Double(), "http://127.0.0.1:") {
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
	second, stop, err := w.start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if second.Double() != first.Double() || second.double.keys.secret != k.secret || second.double.keys.webhook[0] != k.webhook[0] || second.State() != "ok" {
		t.Errorf("%s at %s, was at %s", second.State(), second.Double(), first.Double())
	}
	stop()
	files, err := filepath.Glob(filepath.Join(w.deps.Data, "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(k.secret)) || bytes.Contains(text, []byte(k.webhook[0])) {
			t.Errorf("%s holds a key", name)
		}
	}
	w.deps.Ring = seal.New([32]byte{2})
	if _, stop, err = w.start(Config{}); err == nil {
		t.Error("another master key opens the keys of the double")
	}
	stop()
}

func TestOff(t *testing.T) {
	w := newWorld(t)
	p, stop, err := w.start(Config{Mode: Off, SecretKeyFile: "none"})
	if err != nil || p.State() != "off" || p.Rail() != nil || p.Receive() != nil || p.Double() != "" {
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
	start := func(s *stripe) (*Processor, func(), error) { return w.start(Config{SecretKey: key, URL: s.url}) }
	for _, s := range []*stripe{one, two, one} {
		p, stop, err := start(s)
		if err != nil || p.State() != "ok" {
			t.Fatalf("%s, %v", p.State(), err)
		}
		stop()
	}
	err := w.deps.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := store.EnsureCardCustomer(ctx, tx, &store.CardCustomer{Owner: toll.Address{1}, RowID: toll.NewUUID(), CreatedAt: time.Now()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, stop, err := start(two)
	stop()
	if !errors.Is(err, errForeign) || strings.Contains(err.Error(), key) {
		t.Errorf("another account: %v", err)
	}
	// While the processor is away nothing is sent to it, as nobody knows whose the key is.
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
		if f, _ := p.fault.Load().(slot); errors.Is(f.err, errForeign) {
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

// The name of an address is the same for a /64 of IPv6, and does not tell the address.
func TestSource(t *testing.T) {
	w := newWorld(t)
	of := func(text string) string { return w.deps.Source(netip.MustParseAddr(text)) }
	if of("192.0.2.1") != of("::ffff:192.0.2.1") || of("192.0.2.1") == of("192.0.2.2") || strings.Contains(of("192.0.2.1"), "192") {
		t.Error("IPv4")
	}
	if of("2001:db8::1") != of("2001:db8::ffff:1") || of("2001:db8::1") == of("2001:db8:0:1::1") {
		t.Error("IPv6")
	}
}

// What doctor says of each kind of processor.
func TestInspect(t *testing.T) {
	w := newWorld(t)
	inspect := func(cfg Config) string {
		var b strings.Builder
		Inspect(t.Context(), cfg, w.deps, func(name, status, format string, args ...any) {
			b.WriteString(name + " " + status + "; ")
		})
		return b.String()
	}
	const key, restricted, blind = "sk_test_0123456789", "rk_test_0123456789", "rk_test_9876543210"
	s := newStripe(t, double.Options{
		SecretKey: key, RestrictedKeys: map[string][]string{restricted: {"account_read"}, blind: nil},
		Webhooks: []double.Webhook{{URL: w.deps.PublicURL + w.deps.Webhook, Secrets: []string{"whsec_1"}}},
	})
	bare := newStripe(t, double.Options{SecretKey: key})
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"off":         {Config{Mode: Off}, "cards ok; "},
		"the double":  {Config{}, "cards ok; "},
		"all is well": {Config{SecretKey: key, URL: s.url, WebhookSecrets: []string{"whsec_1"}}, "cards ok; card webhooks ok; "},
		"no secret":   {Config{SecretKey: key, URL: s.url}, "cards ok; card webhooks warning; "},
		"no webhook":  {Config{SecretKey: key, URL: bare.url, WebhookSecrets: []string{"whsec_1"}}, "cards ok; card webhooks warning; "},
		"restricted":  {Config{SecretKey: restricted, URL: s.url}, "cards ok; card permissions failed; card webhooks warning; "},
		"blind":       {Config{SecretKey: blind, URL: s.url}, "cards failed; card permissions failed; card webhooks warning; "},
		"another key": {Config{SecretKey: "sk_test_9876543210", URL: s.url}, "cards failed; "},
		"no file":     {Config{SecretKeyFile: "none"}, "cards failed; "},
	} {
		if got := inspect(tt.cfg); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	err := w.deps.Store.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := store.InsertCardOrphan(t.Context(), tx, &store.CardOrphan{Object: "pi_1", Cents: 100, Currency: "usd", Reason: "unknown", SeenAt: time.Now()})
		return err
	})
	if got := inspect(Config{}); err != nil || got != "cards ok; card money warning; " {
		t.Errorf("an orphan: %s, %v", got, err)
	}
}
