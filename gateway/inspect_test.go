package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// TestInspect: each thing that keeps a core from working is named, nothing is changed, and no key is
// repeated.
func TestInspect(t *testing.T) {
	svc := tolltest.New(t)
	key := must.Get(svc.NewKey("builder"))(t)
	reader := must.Get(svc.Client().CreateKey(t.Context(), client.KeyParams{Rights: toll.Rights{toll.RightRead}}))(t)
	spender := must.Get(svc.Client().CreateKey(t.Context(), client.KeyParams{
		Rights: toll.Rights{toll.RightRead, toll.RightSpend, toll.RightManage},
	}))(t)
	revoked, err := svc.Client().CreateKey(t.Context(), client.KeyParams{Rights: toll.Rights{toll.RightRead}})
	if err == nil {
		_, err = svc.Client().RevokeKey(t.Context(), revoked.ID)
	}
	must.Do(t, err)
	on := true
	dir := filepath.Join(t.TempDir(), "none")
	for name, test := range map[string]struct {
		config, plugin gateway.Config
		want           []string // "name status" and a part of the detail
	}{
		"nobody logged in": {want: []string{"configuration ok", "login warning: Not authenticated"}},
		"all is well": {
			config: gateway.Config{APIKey: key.Key, PlanID: svc.Plan()},
			plugin: gateway.Config{EnablePaidEndpoint: &on, PublicURL: "https://agent.example.com"},
			want: []string{
				"configuration ok", "login ok: workspace " + key.Address.String() + ", environment sandbox, service ", "plan ok",
				"paid endpoint ok: POST https://agent.example.com/service/agent, handler demo",
			},
		},
		"no plan":        {config: gateway.Config{APIKey: key.Key}, want: []string{"configuration ok", "login ok", "plan warning: planId"}},
		"plan not there": {config: gateway.Config{APIKey: key.Key, PlanID: "7"}, want: []string{"configuration ok", "login ok", "plan failed: plan 7"}},
		"price outside the plan": {
			config: gateway.Config{
				APIKey:             key.Key,
				PlanID:             svc.Plan(),
				CreditsPerRequest:  50,
				EnablePaidEndpoint: &on,
			},
			want: []string{"configuration ok", "login ok", "plan ok", "paid endpoint failed: creditsPerRequest must be 1 to 10"},
		},
		"no public address": {
			config: gateway.Config{
				APIKey:             key.Key,
				PlanID:             svc.Plan(),
				EnablePaidEndpoint: &on,
			},
			want: []string{"configuration ok", "login ok", "plan ok", "paid endpoint warning: publicUrl"},
		},
		"key that reads": {config: gateway.Config{APIKey: reader.Key}, want: []string{"configuration ok", "login ok", "rights warning: the API key lacks these rights: spend manage", "plan warning"}},
		"key that cannot sell": {
			config: gateway.Config{APIKey: spender.Key, PlanID: svc.Plan(), EnablePaidEndpoint: &on},
			want: []string{
				"configuration ok", "login ok", "rights warning: the API key lacks these rights: sell", "plan ok",
				"paid endpoint failed: The key lacks the right sell",
			},
		},
		"revoked key": {
			config: gateway.Config{APIKey: revoked.Key},
			want:   []string{"configuration ok", "login failed: The service rejected the API key"},
		},
		"key of nobody": {config: gateway.Config{APIKey: testJWT}, want: []string{"configuration ok", "login failed"}},
		"live":          {config: gateway.Config{APIKey: key.Key, Environment: toll.Live}, want: []string{"configuration ok", "login ok", "plan warning"}},
		"bad field":     {plugin: gateway.Config{PaymentType: "cash"}, want: []string{"configuration failed: paymentType"}},
		"service away":  {config: gateway.Config{APIKey: key.Key, BaseURL: "http://127.0.0.1:1"}, want: []string{"configuration ok", "login failed: The service failed or could not be reached"}},
	} {
		if test.config.BaseURL == "" {
			test.config.BaseURL = svc.URL()
		}
		found := gateway.Inspect(t.Context(), gateway.Options{Dir: dir, Config: test.config}, test.plugin)
		for i, c := range found {
			line := c.Name + " " + c.Status + ": " + c.Detail
			if i >= len(test.want) || !strings.HasPrefix(line, test.want[i]) {
				t.Errorf("%s: %s", name, line)
			}
			if strings.Contains(line, "eyJ") {
				t.Errorf("%s: a key stands in %s", name, line)
			}
		}
		if len(found) != len(test.want) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("the data directory was made")
	}
}
