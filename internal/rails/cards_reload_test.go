package rails

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// Reload uses the secrets in the files, and keeps the old ones when the new ones cannot be used.
func TestReload(t *testing.T) {
	w := newWorld(t)
	var accepted atomic.Value
	accepted.Store("sk_test_0123456789")
	newAccount := func(id string) string {
		d := must.Get(double.New(double.Options{Account: id}))(t)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+accepted.Load().(string) {
				http.Error(w, `{"error":{"type":"invalid_request_error","message":"revoked"}}`, http.StatusUnauthorized)
				return
			}
			d.Handler().ServeHTTP(w, r)
		}))
		t.Cleanup(func() { s.Close(); d.Close() })
		return s.URL
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	cfg := CardConfig{URL: newAccount("acct_first"), SecretKeyFile: write("key", "sk_test_0123456789\n"), WebhookSecretFile: write("hooks", "whsec_first\n")}
	p, stop, err := w.start(cfg)
	must.Do(t, err)
	defer stop()
	if err := w.deps.Store.Tx(t.Context(), func(tx *store.Tx) error { // the account is in use
		_, err := store.EnsureCardCustomer(t.Context(), tx, &store.CardCustomer{Owner: toll.Address{1}, RowID: toll.NewUUID(), CreatedAt: time.Now()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	verifies := func(secret string) bool {
		body, at := `{"id":"evt_1","object":"event","type":"x"}`, time.Now().Unix()
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", at, body)
		return p.rail.Receive(t.Context(), fmt.Sprintf("t=%d,v1=%x", at, mac.Sum(nil)), []byte(body)) == nil
	}
	works := func() bool { _, err := p.rail.AccountID(t.Context()); return err == nil }
	if !works() || !verifies("whsec_first") || verifies("whsec_second") {
		t.Fatal("the first secrets do not work")
	}

	accepted.Store("sk_test_9876543210")
	if works() {
		t.Fatal("a revoked key works")
	}
	for name, text := range map[string]string{"another mode": "sk_live_9876543210", "no key": "", "a typing error": "sk_test_1111111111"} {
		write("key", text)
		if p.Reload(t.Context()) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	write("key", "sk_test_9876543210\n")
	write("hooks", "whsec_first\nwhsec_second\n")
	must.Do(t, p.Reload(t.Context()))
	if !works() || !verifies("whsec_first") || !verifies("whsec_second") {
		t.Error("the second secrets do not work")
	}

	// A key of another account is refused: its customers and payments are not those of the records.
	p.cfg.URL = newAccount("acct_second")
	if p.Reload(t.Context()) == nil || !works() {
		t.Error("a key of another account is taken")
	}
}
