package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// The brand words are one setting of the program, for the service and for who calls it.
func TestNamespaceSetting(t *testing.T) {
	names := must.Get(x402.ParseNamespace("acme,Acme,acme"))(t)
	o := servertest.Options{Data: storetest.Dir(t), Env: []string{"TOLL_NAMESPACE=" + names.String(), "TOLL_KEY_PREFIX=acme-sandbox"}}
	key := servertest.Key(t, o, "builder")
	if !strings.HasPrefix(key.Key, "acme-sandbox:") {
		t.Errorf("the key begins with %.20q", key.Key)
	}
	p := servertest.Start(t, o)
	res := must.Get(http.Get(p.URL + "/health"))(t)
	_ = res.Body.Close()
	if res.Header.Get("Acme-Version") == "" || res.Header.Get(x402.Default.HeaderVersion()) != "" {
		t.Errorf("headers: %v", res.Header)
	}
	c := p.Client(key.Key, client.WithNamespace(names))
	reg := must.Get(c.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "brand"}, Credits: toll.CreditsConfig{Amount: 5, MinAmount: 1, MaxAmount: 1},
	}))(t)
	token, err := c.AccessToken(t.Context(), reg.PlanID)
	if err != nil || token.Scheme != "acme:erc4337" {
		t.Fatalf("%+v %v", token, err)
	}
	terms := must.Get(c.Terms(t.Context(), reg.PlanID))(t)
	r, err := c.Settle(t.Context(), &x402.SettleRequest{
		PaymentRequired: *x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{}), AccessToken: token.AccessToken,
	})
	if err != nil || !r.Success || r.Extensions["acme-credits"] == nil {
		t.Fatalf("%+v %v", r, err)
	}
}
