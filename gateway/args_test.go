package gateway_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll/gateway"
)

// TestArguments: types are coerced as the design says, and nothing else is taken.
func TestArguments(t *testing.T) {
	for _, test := range []struct {
		tool, params string
		name         string
		want         any // nil: refused
	}{
		{"orderPlan", `{"confirm":true}`, "confirm", true},
		{"orderPlan", `{"confirm":"true"}`, "confirm", true},
		{"orderPlan", `{"confirm":"false"}`, "confirm", false},
		{"listPlans", `{"page":7}`, "page", int64(7)},
		{"listPlans", `{"page":"7"}`, "page", int64(7)},
		{"listPlans", `{"page":1000000}`, "page", int64(1_000_000)},
		{"listPlans", `{"page":1000001}`, "page", nil},
		{"listPlans", `{"page":0}`, "page", nil},
		{"listPlans", `{"page":-1}`, "page", nil},
		{"listPlans", `{"page":1.0}`, "page", nil},
		{"listPlans", `{"page":1e2}`, "page", nil},
		{"listPlans", `{"page":"07"}`, "page", nil},
		{"listPlans", `{"page":" 7"}`, "page", nil},
		{"listPlans", `{"page":""}`, "page", nil},
		{"listPlans", `{"page":true}`, "page", nil},
		{"listPlans", `{"page":[7]}`, "page", nil},
		{"orderPlan", `{"planId":"44"}`, "planId", "44"},
		{"orderPlan", `{"planId":44}`, "planId", "44"},
		{"orderPlan", `{"planId":9007199254740991}`, "planId", "9007199254740991"},
		{"orderPlan", `{"planId":9007199254740992}`, "planId", nil},
		{"orderPlan", `{"planId":"` + long("9", 77) + `"}`, "planId", long("9", 77)},
		{"orderPlan", `{"planId":"` + long("9", 78) + `"}`, "planId", nil},
		{"orderPlan", `{"planId":"0"}`, "planId", nil},
		{"orderPlan", `{"planId":"044"}`, "planId", nil},
		{"orderPlan", `{"planId":"0x44"}`, "planId", nil},
		{"orderPlan", `{"planId":""}`, "planId", nil},
		{"queryAgent", `{"agentUrl":"https://a.example.com","prompt":"é` + long("x", 99_999) + `"}`, "prompt", "é" + long("x", 99_999)},
		{"queryAgent", `{"agentUrl":"https://a.example.com","prompt":"` + long("x", 100_001) + `"}`, "prompt", nil},
		{"queryAgent", `{"agentUrl":"https://a.example.com","prompt":""}`, "prompt", nil},
		{"queryAgent", `{"agentUrl":"https://a.example.com","prompt":7}`, "prompt", nil},
		{"queryAgent", `{"agentUrl":"https://a.example.com","prompt":"x","method":"PUT"}`, "method", "PUT"},
		{"queryAgent", `{"agentUrl":"https://a.example.com","prompt":"x","method":"put"}`, "method", nil},
		{"queryAgent", `{"agentUrl":"https://a.example.com/` + long("x", 2000) + `","prompt":"x"}`, "agentUrl", nil},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":"1, 2"}`, "priceAmounts", []string{"1", "2"}},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":["1","2"]}`, "priceAmounts", []string{"1", "2"}},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":[1]}`, "priceAmounts", []string{"1"}},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":[1.0]}`, "priceAmounts", nil},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":[]}`, "priceAmounts", nil},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":"1,"}`, "priceAmounts", nil},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":"` + long("1,", 10) + `1"}`, "priceAmounts", nil},
		{"registerAgent", `{"name":"n","agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":"` + long("1", 201) + `"}`, "priceAmounts", nil},
		{"registerAgent", `{"agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":"1"}`, "name", nil},
		{"registerAgent", `{"name":null,"agentUrl":"https://a.example.com","planName":"p","creditsAmount":1,"priceAmounts":"1"}`, "name", nil},
	} {
		args, warnings, err := gateway.CheckArguments(test.tool, test.params)
		if test.want == nil {
			e, ok := errors.AsType[*gateway.Error](err)
			if !ok || e.Code != gateway.InvalidParams || !strings.HasPrefix(e.Message, test.name+" ") || len(e.Message) > 300 {
				t.Errorf("%s %.80s: %v, %v", test.tool, test.params, args, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(args[test.name], test.want) || len(warnings) > 0 {
			t.Errorf("%s %.80s: %.80v, %q, %v", test.tool, test.params, args, warnings, err)
		}
	}
	for _, params := range []string{`[]`, `7`, `"{}"`, `{`, `{"page":1,"page":2}`, `{} {}`} {
		if _, _, err := gateway.CheckArguments("listPlans", params); err == nil {
			t.Errorf("%s: accepted", params)
		}
	}
	for _, params := range []string{``, `{}`, `null`, `{"page":null}`} {
		if args, warnings, err := gateway.CheckArguments("listPlans", params); err != nil || len(args)+len(warnings) > 0 {
			t.Errorf("%q: %v %v %v", params, args, warnings, err)
		}
	}
}

// TestOnlyTrueConfirms: everything that is not true leaves an order tool without its
// confirmation, and says so.
// T138
func TestOnlyTrueConfirms(t *testing.T) {
	for _, tool := range []string{"orderPlan", "orderFiatPlan", "getAccessToken"} {
		for _, value := range []string{`"yes"`, `1`, `"TRUE"`, `"true "`, `"1"`, `[true]`, `{"x":true}`, `""`} {
			args, warnings, err := gateway.CheckArguments(tool, `{"confirm":`+value+`}`)
			if err != nil || args["confirm"] != false || len(warnings) != 1 || !strings.Contains(warnings[0], "treated as false") {
				t.Errorf("%s %s: %v %q %v", tool, value, args, warnings, err)
			}
		}
	}
}

// TestArguments_Unknown: unknown arguments are left out, and their warnings are bounded.
func TestArguments_Unknown(t *testing.T) {
	args, warnings, err := gateway.CheckArguments("listPlans", `{"page":2,"Page":3,"`+long("x", 500)+`":1}`)
	if err != nil || len(args) != 1 || len(warnings) != 2 || !strings.Contains(warnings[0], `"Page"`) || len(warnings[1]) > 100 {
		t.Error(args, warnings, err)
	}
	var many strings.Builder
	for i := range 100 {
		many.WriteString(`"` + long("y", i+1) + `":1,`)
	}
	_, warnings, err = gateway.CheckArguments("listPlans", `{`+many.String()+`"page":2}`)
	if err != nil || len(warnings) != 11 || !strings.Contains(warnings[10], "90 more") {
		t.Error(len(warnings), err)
	}
}
