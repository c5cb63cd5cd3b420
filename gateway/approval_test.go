package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// TestApproval: with spendApproval host a person is asked before a call that would pay, create or
// raise something, and sees plan and price; and never otherwise.
func TestApproval(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPayments(), tolltest.WithPlan(client.PlanParams{
		Metadata: toll.Metadata{Name: "Evil\u202e plan\n" + strings.Repeat("x", 200)},
		Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_500_000)}, IsCrypto: true},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	}))
	key := must.Get(svc.NewKey("ann"))(t)
	cfg := gateway.Config{APIKey: key.Key, BaseURL: svc.URL(), PlanID: svc.Plan()}
	c := newControlled(t, gateway.Options{CoreToken: testToken, Config: cfg})
	if got, body := c.hello(`{"spendApproval":"host"}`); got != 200 {
		t.Fatal(got, body)
	}
	type approval struct {
		Needed                       bool
		Title, Description, Severity string
	}
	ask := func(tool, params string) (a approval) {
		t.Helper()
		status, body := c.do("POST", "/gateway/v1/approval", `{"tool":"service_`+tool+`","params":`+params+`,"caller":{"senderIsOwner":true}}`)
		if err := json.Unmarshal([]byte(body), &a); status != 200 || err != nil {
			t.Fatal(status, body, err)
		}
		return a
	}
	const agent = `"name":"n","agentUrl":"https://a.example.com","planName":"p","priceAmounts":"$1.50","creditsAmount":5`
	for _, test := range []struct {
		tool, params string
		want         bool
	}{
		{"orderPlan", `{"confirm":true}`, true},
		{"orderPlan", `{"confirm":"true"}`, true},
		{"orderPlan", `{"confirm":"yes"}`, false},
		{"orderPlan", `{}`, false},
		{"orderPlan", `null`, false},
		{"orderPlan", `{"confirm":true,"planId":"x"}`, false}, // no call
		{"orderFiatPlan", `{"confirm":true}`, true},
		{"getAccessToken", `{"confirm":true,"spendingLimitCents":5}`, true},
		{"getAccessToken", `{}`, false},
		{"checkBalance", `{}`, false},
		{"createPlan", `{"name":"n","priceAmount":"$1.50","creditsAmount":5}`, true},
		{"registerAgent", `{` + agent + `}`, true},
	} {
		a := ask(test.tool, test.params)
		if a.Needed != test.want || a.Needed != (a.Title != "" && a.Description != "" && a.Severity == "warning") {
			t.Errorf("%s %s: %+v", test.tool, test.params, a)
		}
		if utf8.RuneCountInString(a.Title) > 80 || utf8.RuneCountInString(a.Description) > 512 || strings.ContainsAny(a.Description, "\n\u202e") {
			t.Errorf("%s: %+v", test.tool, a)
		}
	}
	a := ask("orderPlan", `{"confirm":true}`)
	if !strings.Contains(a.Description, "1.50 USDC") || !strings.Contains(a.Description, string(svc.Plan())) ||
		!strings.Contains(a.Description, "100 credits") || !strings.Contains(a.Description, "sandbox") || strings.Count(a.Description, "x") > 80 {
		t.Errorf("%+v", a)
	}
	if a := ask("orderPlan", `{"confirm":true,"planId":"77"}`); !a.Needed || !strings.Contains(a.Description, "cannot be read") {
		t.Errorf("an unknown plan: %+v", a)
	}
	if a := ask("registerAgent", `{`+agent+`,"description":"`+long("y", 2000)+`"}`); !strings.Contains(a.Description, "priceAmounts: [$1.50]") {
		t.Errorf("%+v", a)
	}
	// Long texts of a model push nothing off that says how much, and to whom.
	filled := long("z", 500)
	a = ask("queryAgent", `{"agentUrl":"https://`+long("a", 60)+`.`+long("b", 60)+`.`+long("c", 60)+`.example.com/","prompt":"`+filled+`","planId":"`+
		string(svc.Plan())+`","agentId":"`+long("9", 77)+`","spendingLimitCents":987,"delegationDurationSecs":31536000,"confirm":true}`)
	if !a.Needed || !strings.Contains(a.Description, "spendingLimitCents: 987") || !strings.Contains(a.Description, "delegationDurationSecs: 31536000") {
		t.Errorf("%+v", a)
	}
	receivers := []string{"0x" + long("a", 40), "0x" + long("b", 40), "0x" + long("c", 40)}
	a = ask("registerAgent", `{"name":"`+long("n", 200)+`","agentUrl":"https://a.example.com/`+long("u", 200)+`","planName":"`+long("p", 200)+
		`","priceAmounts":"$1,$2,$3","creditsAmount":5,"priceReceivers":"`+strings.Join(receivers, ",")+`"}`)
	if !strings.Contains(a.Description, "priceReceivers: 3 [") || !strings.Contains(a.Description, receivers[2]) {
		t.Errorf("%+v", a)
	}
	if got, body := c.do("POST", "/gateway/v1/approval", `{"tool":"service_x"}`); got != 404 {
		t.Error(got, body)
	}
	if got, body := c.hello(`{"spendApproval":"confirm"}`); got != 200 {
		t.Fatal(got, body)
	}
	if a := ask("orderPlan", `{"confirm":true}`); a.Needed {
		t.Errorf("approval by confirm: %+v", a)
	}
}
