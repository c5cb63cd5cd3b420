package server_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

func configOf(o servertest.Options) server.Config {
	return server.Config{Data: o.Data, Database: o.Database, MasterKeyFile: o.MasterKeyFile}
}

func brandWords(t *testing.T, text string) x402.Namespace {
	t.Helper()
	return must.Get(x402.ParseNamespace(text))(t)
}

// servesAs starts a service and returns the header of its versions and the prefix of a key that it
// makes.
func servesAs(t *testing.T, cfg server.Config, names x402.Namespace) (prefix string) {
	t.Helper()
	s := open(t, cfg)
	defer func() {
		must.Check(t, closeService(s))
	}()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/health", nil))
	if rec.Header().Get(names.HeaderVersion()) == "" {
		t.Errorf("headers %v, want %s", rec.Header(), names.HeaderVersion())
	}
	key := keyOf(t, s, server.KeyRequest{Account: "builder"})
	prefix, _, _ = strings.Cut(key.Key, ":")
	return prefix
}

// TestBrand_Remembered: a database keeps the namespace and the key prefix of its first start.
// Whoever comes later need not name them, and is refused with others.
func TestBrand_Remembered(t *testing.T) {
	acme := brandWords(t, "acme,Acme,acme")
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		cfg := configOf(o)
		cfg.Namespace = acme
		if p := servesAs(t, cfg, acme); p != "local" {
			t.Errorf("keys have the prefix %q", p)
		}
		cfg.Namespace = x402.Namespace{}
		if p := servesAs(t, cfg, acme); p != "local" {
			t.Errorf("keys have the prefix %q when nothing is named", p)
		}
		key, err := server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "alice"})
		if err != nil || !strings.HasPrefix(key.Key, "local:") {
			t.Errorf("a local key %.10q, %v", key.Key, err)
		}
		cfg.Namespace = acme
		s := open(t, cfg)
		rec, req := httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/api-keys", nil)
		req.Header.Set("Authorization", "Bearer "+key.Key)
		s.Handler().ServeHTTP(rec, req)
		if err := closeService(s); err != nil || rec.Code != 200 {
			t.Errorf("the local key: %d %s, %v", rec.Code, rec.Body, err)
		}

		for _, other := range []server.Config{{Namespace: brandWords(t, "other,Other,other")}, {Namespace: x402.Default}} {
			cfg := configOf(o)
			cfg.Namespace = other.Namespace
			for what, err := range map[string]error{
				"serve": newOnly(t, cfg), "a local key": func() error {
					_, err := server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "alice"})
					return err
				}(),
			} {
				if err == nil || !strings.Contains(err.Error(), "acme,Acme,acme") ||
					!strings.Contains(err.Error(), other.Namespace.String()) ||
					!strings.Contains(err.Error(), "--namespace") {
					t.Errorf("%s under %s: %v", what, other.Namespace.String(), err)
				}
			}
		}
		cfg = configOf(o)
		cfg.KeyPrefix = "other"
		if err := newOnly(
			t,
			cfg,
		); err == nil || !strings.Contains(err.Error(), `"local"`) || !strings.Contains(err.Error(), `"other"`) ||
			!strings.Contains(err.Error(), "toll keys set-prefix other --local") {
			t.Errorf("another prefix: %v", err)
		}

		// The prefix carries no authority, so it can change; the namespace is signed into keys and
		// tokens.
		cfg.KeyPrefix = ""
		for _, bad := range []string{"", "Acme", "live", strings.Repeat("a", 33), "a:b"} {
			if err := admin.SetKeyPrefix(t.Context(), cfg, bad); err == nil {
				t.Errorf("the prefix %q is taken", bad)
			}
		}
		must.Do(t, admin.SetKeyPrefix(t.Context(), cfg, "other"))
		st := storetest.OpenConfig(t, store.Config{Data: o.Data, Database: o.Database, Admin: true, ReadOnly: true})
		if acts := storetest.Acts(t, st, "", "setting.changed"); !slices.Equal(acts, []string{`key_prefix {"before":"local","after":"other"}`}) {
			t.Errorf("the audit log says %q", acts)
		}
		cfg.KeyPrefix = "other"
		if p := servesAs(t, cfg, acme); p != "other" {
			t.Errorf("keys have the prefix %q after the change", p)
		}
	})
}

// newOnly starts a service that must not start.
func newOnly(t *testing.T, cfg server.Config) error {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err == nil {
		_ = closeService(s)
	}
	return err
}

// TestBrand_Defaults: under the words of the specification keys have the prefix of the environment,
// and a failed first start decides nothing.
func TestBrand_Defaults(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		cfg := configOf(o)
		cfg.Namespace, cfg.PublicURL = brandWords(t, "acme,Acme,acme"), "ftp://nowhere"
		if err := newOnly(t, cfg); err == nil {
			t.Fatal("it started")
		}
		if p := servesAs(t, configOf(o), x402.Default); p != "sandbox" {
			t.Errorf("keys have the prefix %q", p)
		}
	})
}

// TestBrand_OlderDatabase: one from before the settings takes those of the next service, and
// nothing from administration.
func TestBrand_OlderDatabase(t *testing.T) {
	acme := brandWords(t, "acme,Acme,acme")
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		cfg := configOf(o)
		servesAs(t, cfg, x402.Default)
		st := storetest.OpenConfig(t, store.Config{Data: o.Data, Database: o.Database, Admin: true})
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(
				t.Context(),
				"DELETE FROM settings WHERE name = 'namespace' OR name = 'key_prefix'",
			)
			return err
		}))
		if _, err := server.CreateLocalKey(
			t.Context(),
			cfg,
			server.KeyRequest{Account: "alice"},
		); err != nil {
			t.Error(err)
		}
		cfg.Namespace, cfg.KeyPrefix = acme, "words"
		if p := servesAs(t, cfg, acme); p != "words" {
			t.Errorf("keys have the prefix %q", p)
		}
		if p := servesAs(t, configOf(o), acme); p != "words" {
			t.Errorf("keys have the prefix %q afterwards", p)
		}
	})
}

// TestBrand_FirstStartsTogether: of processes that start first with different words, those of one
// kind come up.
func TestBrand_FirstStartsTogether(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	masterKey := freshMasterKey(t)
	words := []string{"acme,Acme,acme", "other,Other,other"}
	up := make([]int, len(words))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			c := server.Config{
				Database:      cfg.Database,
				MasterKeyFile: masterKey,
				Namespace:     brandWords(t, words[i%2]),
			}
			s, err := insist(func() (*server.Server, error) { return server.New(t.Context(), c) })
			if err != nil {
				if !strings.Contains(err.Error(), words[0]) ||
					!strings.Contains(err.Error(), words[1]) {
					t.Errorf("%v", err)
				}
				return
			}
			mu.Lock()
			up[i%2]++
			mu.Unlock()
			must.Check(t, closeService(s))
		})
	}
	all.Wait()
	if up[0]+up[1] != 4 || up[0]*up[1] != 0 {
		t.Errorf("%d and %d came up", up[0], up[1])
	}
}

// TestBrand_FirstStartsInStep: both have read an empty database before one of them writes.
func TestBrand_FirstStartsInStep(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		begin := func(words string) server.Config {
			t.Helper()
			return must.Get(server.WithBrand(ctx, server.Config{Namespace: brandWords(t, words)}, st))(t)
		}
		first, same, other := begin(
			"acme,Acme,acme",
		), begin(
			"acme,Acme,acme",
		), begin(
			"other,Other,other",
		)
		for range 2 {
			must.Check(t, server.KeepBrand(ctx, first, st))
		}
		must.Check(t, server.KeepBrand(ctx, same, st))
		if err := server.KeepBrand(
			ctx,
			other,
			st,
		); err == nil ||
			!strings.Contains(err.Error(), "acme,Acme,acme") {
			t.Errorf("two kinds of words came up: %v", err)
		}
	})
}
