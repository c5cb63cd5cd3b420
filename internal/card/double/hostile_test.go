package double_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

func TestKeys(t *testing.T) {
	s := start(t, func(o *double.Options) {
		o.RestrictedKeys = map[string][]string{"rk_test_restricted01": {"customer_write", "event_read"}}
	})
	for name, k := range map[string]string{
		"no key": "", "another": "sk_test_other0123456789", "live": "sk_live_0123456789abcdef", "live, restricted": "rk_live_0123456789abcdef",
		"publishable": "pk_test_0123456789abcdef", "nonsense": "x",
	} {
		status, m := s.raw("GET", "/v1/account", "", "Authorization", "Bearer "+k)
		e, _ := m["error"].(map[string]any)
		if status != 401 || e["type"] != "invalid_request_error" || len(k) > 5 && strings.Contains(e["message"].(string), k) {
			t.Errorf("%s: got %d %v", name, status, m)
		}
	}
	if status, m := s.raw("GET", "/v1/account", "", "Authorization", key); status != 401 {
		t.Errorf("no bearer token: got %d %v", status, m)
	}
	rk := s.client("rk_test_restricted01")
	must.Get(rk.V1Customers.Create(s.ctx, nil))(t)
	for _, err := range rk.V1Events.List(s.ctx, nil).All(s.ctx) {
		must.Check(t, err)
	}
	_, err := rk.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: stripe.String("ch_1")})
	if e := refused(t, err, 403, ""); !strings.Contains(e.Msg, "charge_write") {
		t.Errorf("got %+v", e)
	}
	if status, _ := s.raw("GET", "/_double/books", "", "Authorization", "Bearer rk_test_restricted01"); status != 403 {
		t.Errorf("a restricted key reads the books: %d", status)
	}
	for _, version := range []string{double.Version, "2026-10-28.endive"} { // stripe-go and stripe-node
		if status, m := s.raw("GET", "/v1/account", "", "Stripe-Version", version); status != 200 {
			t.Errorf("%s: %d %v", version, status, m)
		}
	}
	if status, m := s.raw("GET", "/v1/account", "", "Stripe-Version", "2025-09-30.clover"); status != 400 {
		t.Errorf("another version: got %d %v", status, m)
	}
	if status, m := s.raw("GET", "/v1/account", "", "Stripe-Account", "acct_other"); status != 400 {
		t.Errorf("a connected account: got %d %v", status, m)
	}
	if status, m := s.raw("GET", "/v1/nonsense", ""); status != 404 {
		t.Errorf("got %d %v", status, m)
	}
	anyKey := start(t, func(o *double.Options) { o.SecretKey = "" })
	if status, _ := anyKey.raw("GET", "/v1/account", "", "Authorization", "Bearer sk_test_whatever"); status != 200 {
		t.Errorf("got %d", status)
	}
	for _, o := range []double.Options{{SecretKey: "sk_live_1"}, {RestrictedKeys: map[string][]string{"rk_live_1": nil}}} {
		if d, err := double.New(o); err == nil {
			d.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestHostileForms(t *testing.T) {
	s := start(t)
	for name, body := range map[string]string{
		"long":            "name=" + strings.Repeat("x", 5001),
		"too long":        "name=" + strings.Repeat("x", 70_000),
		"many":            strings.Repeat("metadata[]=1&", 301),
		"metadata":        strings.Repeat("metadata[]=1&", 51),
		"deep":            "a" + strings.Repeat("[a]", 7) + "=1",
		"twice":           "email=a&email=b",
		"open bracket":    "metadata[a=1",
		"closed bracket":  "meta]data=1",
		"stray bracket":   "metadata[a]]=1",
		"dots":            "invoice_settings[a.b]=1",
		"empty name":      "=1",
		"bad escape":      "email=%zz",
		"long key":        "metadata[" + strings.Repeat("k", 41) + "]=1",
		"long value":      query("metadata[k]", strings.Repeat("v", 501)),
		"very long key":   strings.Repeat("k", 301) + "=1",
		"list as text":    "email[0]=a",
		"negative number": "expand[-1]=x",
		"unknown":         "created=1",
		"expand":          "expand[]=nonsense",
		"expand deep":     "expand[]=a.b.c.d.e",
		"expand much":     strings.Repeat("expand[]=id&", 21),
		"expand id":       "expand[]=metadata",
	} {
		status, m := s.raw("POST", "/v1/customers", body)
		if name == "expand id" { // an object is already there
			continue
		}
		if e, _ := m["error"].(map[string]any); status != 400 || e["type"] != "invalid_request_error" {
			t.Errorf("%s: got %d %v", name, status, m)
		}
	}
	if status, _ := s.raw("POST", "/v1/customers", `{"email":"a"}`, "Content-Type", "application/json"); status != 400 {
		t.Errorf("JSON: got %d", status)
	}
	if status, _ := s.raw("POST", "/v1/customers", "", "Idempotency-Key", strings.Repeat("k", 256)); status != 400 {
		t.Errorf("a long key: got %d", status)
	}
	if status, _ := s.raw("GET", "/v1/events?type="+strings.Repeat("a", 6000), ""); status != 400 {
		t.Errorf("a long query: got %d", status)
	}
	for _, path := range []string{"/c/pay/cs_test_none", "/c/embed/cs_test_none_secret_x", "/c/authenticate/pi_none", "/c/authenticate/seti_"} {
		if p := s.open(s.url + path); p.status != 404 {
			t.Errorf("%s: got %d", path, p.status)
		}
		if p := s.submit(s.url+strings.Replace(path, "embed", "pay", 1), typed("4242424242424242")); p.status != 404 {
			t.Errorf("%s: got %d", path, p.status)
		}
	}
	form := typed("4242424242424242")
	form.Set("metadata[order_id]", "o2")
	if p := s.submit(s.session(payment(500)).URL, form); p.status != 400 {
		t.Errorf("metadata in a form: got %d", p.status)
	}
	form = typed("4242424242424242")
	form.Set("name", strings.Repeat("x", 9000))
	if p := s.submit(s.session(payment(500)).URL, form); p.status != 400 {
		t.Errorf("a long form: got %d", p.status)
	}
}

func TestRowsAreBounded(t *testing.T) {
	s := start(t, func(o *double.Options) { o.MaxRows = 60 })
	pay := s.session(payment(500))
	n := 0
	for ; n < 100; n++ {
		if _, err := s.sc.V1Customers.Create(s.ctx, nil); err != nil {
			refused(t, err, 429, "rate_limit")
			break
		}
	}
	if n < 10 || n > 30 {
		t.Errorf("the limit came after %d customers", n)
	}
	if p := s.submit(pay.URL, typed("4000000000000002")); p.status != 429 {
		t.Errorf("got %d", p.status)
	}
	if got := s.reload(pay.ID); got.Status != "open" {
		t.Errorf("got %+v", got)
	}
}

func TestState_Broken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "double.json")
	must.Do(t, os.WriteFile(file, []byte(`{"Account":`), 0o600))
	if d, err := double.New(double.Options{File: file}); err == nil {
		d.Close()
		t.Error("a broken state was read")
	}
	// A new state that was not put in place does not matter.
	must.Do(t, os.Rename(file, file+".new"))
	s := start(t, func(o *double.Options) { o.File = file })
	u := s.customer()
	must.Get(s.sc.V1Customers.Retrieve(s.ctx, u.ID, nil))(t)
	dir := filepath.Join(t.TempDir(), "dir")
	if d, err := double.New(double.Options{File: filepath.Join(dir, "double.json")}); err == nil {
		d.Close()
		t.Error("a state that cannot be saved was accepted")
	}
	must.Do(t, os.Mkdir(dir, 0o700))
	gone := start(t, func(o *double.Options) { o.File = filepath.Join(dir, "double.json") })
	must.Do(t, os.RemoveAll(dir))
	_, err := gone.sc.V1Customers.Create(gone.ctx, nil)
	refused(t, err, 500, "")
}

func TestServe(t *testing.T) {
	s := start(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(s.ctx)
	served := make(chan error, 1)
	go func() { served <- s.d.Serve(ctx, l) }()
	r := must.Get(http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+"/v1/account", nil))(t)
	r.Header.Set("Authorization", "Bearer "+key)
	if p := s.browse(r); p.status != 200 {
		t.Errorf("got %+v", p)
	}
	stop()
	select {
	case err := <-served:
		must.Check(t, err)
	case <-time.After(time.Minute):
		t.Error("the server did not end")
	}
}
