package gateway_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// loaded reads a configuration and starts a core with it.
func loaded(t *testing.T, config string) (gateway.Config, error) {
	t.Helper()
	c, err := gateway.ParseConfig([]byte(config), x402.Default)
	if err != nil {
		return c, err
	}
	core, err := gateway.New(gateway.Options{Dir: t.TempDir(), Config: c})
	if err != nil {
		return c, err
	}
	return core.Settings(), nil
}

// TestConfig_Refused: a configuration that cannot be meant is refused when it is loaded, by the name of
// its field, and never repeats a key.
// T148
func TestConfig_Refused(t *testing.T) {
	const secret = "sandbox:eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"
	for config, want := range map[string]string{
		`{"agentEndpointPath":"/../x"}`:                               "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/a/./x"}`:                              "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"x"}`:                                   "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/"}`:                                   "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"//x"}`:                                 "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/x/"}`:                                 "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/x?y"}`:                                "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/x%2e%2e"}`:                            "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/gateway/v1/tools"}`:                   "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/v1/chat/completions"}`:                "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/tools"}`:                              "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/MCP"}`:                                "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"agentEndpointPath":"/` + long("x", 256) + `"}`:             "agentEndpointPath must start with /, have at most 256 characters, ",
		`{"creditsPerRequest":-1}`:                                    "creditsPerRequest must be",
		`{"creditsPerRequest":0}`:                                     "creditsPerRequest must be at least 1",
		`{"creditsPerRequest":1.5}`:                                   "creditsPerRequest must be",
		`{"environment":"production"}`:                                "environment must be sandbox or live",
		`{"planId":"0x5"}`:                                            "planId must be a decimal number",
		`{"agentId":"-1"}`:                                            "agentId must be a decimal number",
		`{"paymentType":"cash"}`:                                      "paymentType must be crypto or fiat",
		`{"spendApproval":"never"}`:                                   "spendApproval must be confirm or host",
		`{"enablePaidEndpoint":"yes"}`:                                "enablePaidEndpoint must be true or false",
		`{"maxSpendingLimitCents":-1}`:                                "maxSpendingLimitCents must be",
		`{"maxSpendingLimitCents":1000000001}`:                        "maxSpendingLimitCents must be",
		`{"maxOrderCents":1000000001}`:                                "maxOrderCents must be",
		`{"defaultSpendingLimitCents":1001}`:                          "defaultSpendingLimitCents must be at most maxSpendingLimitCents",
		`{"defaultDelegationDurationSecs":59}`:                        "defaultDelegationDurationSecs must be 60 to",
		`{"publicUrl":"example.com"}`:                                 "publicUrl must be",
		`{"baseUrl":"https://user:pass@example.com"}`:                 "baseUrl must be",
		`{"coreUrl":"ftp://example.com"}`:                             "coreUrl must be",
		`{"paymentMethodId":"` + long("x", 129) + `"}`:                "paymentMethodId must be",
		`{"agentHandler":{"kind":"shell"}}`:                           "agentHandler.kind must be",
		`{"agentHandler":{}}`:                                         "agentHandler.kind must be",
		`{"agentHandler":{"kind":"http"}}`:                            "agentHandler.url is required",
		`{"agentHandler":{"kind":"http","url":"x"}}`:                  "agentHandler.url must be",
		`{"agentHandler":{"kind":"demo","x":1}}`:                      "agentHandler.x is not a configuration field",
		`{"agentHandler":{"kind":"demo"},"environment":"live"}`:       "agentHandler.kind must be http or host in the live environment",
		`{"agentHandler":{"kind":"host","url":"http://127.0.0.1:1"}}`: "agentHandler.agent is required",
		`{"planid":"5"}`:                                              "planid is not a configuration field",
		`{"planId":"5","planId":"6"}`:                                 "planId is duplicated",
		`{"apiKey":"a","nvmApiKey":"b"}`:                              "nvmApiKey is another name for apiKey",
		`{"apiKey":{"source":"env"}}`:                                 "apiKey must be a string",
		`{"apiKey":"` + secret + `\n"}`:                               "apiKey must be",
		`{"apiKey":"` + long("x", 8193) + `"}`:                        "apiKey must be",
		`[]`:                                                          "the configuration must be a JSON object",
		`{`:                                                           "the configuration must be a JSON object",
	} {
		_, err := loaded(t, config)
		switch {
		case err == nil:
			t.Errorf("%.80s: accepted", config)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%.80s: %v, want %s", config, err, want)
		case strings.Contains(err.Error(), secret):
			t.Errorf("%.80s: the error repeats the key", config)
		}
	}
}

func long(s string, n int) string { return strings.Repeat(s, n) }

// TestConfig_Defaults: what applies when nothing is set, and what wins.
func TestConfig_Defaults(t *testing.T) {
	for config, check := range map[string]func(gateway.Config) bool{
		`{}`: func(c gateway.Config) bool {
			return c.Environment == toll.Sandbox && c.CreditsPerRequest == 1 && c.AgentEndpointPath == "/service/agent" &&
				c.PaymentType == "crypto" && c.SpendApproval == "confirm"
		},
		`{"environment":"live","apiKey":"sandbox:a.b.c"}`: func(c gateway.Config) bool { return c.Environment == toll.Sandbox },
		`{"apiKey":"live:a.b.c"}`:                         func(c gateway.Config) bool { return c.Environment == toll.Live },
		`{"environment":"live","apiKey":"acme:a.b.c"}`:    func(c gateway.Config) bool { return c.Environment == toll.Live },
		`{"nvmApiKey":"a.b.c"}`:                           func(c gateway.Config) bool { return c.APIKey == "a.b.c" },
		`{"agentEndpointPath":"/mcp2/x.y"}`:               func(c gateway.Config) bool { return c.AgentEndpointPath == "/mcp2/x.y" },
		`{"planId":"5","creditsPerRequest":"3","maxOrderCents":0,"defaultSpendingLimitCents":"20"}`: func(c gateway.Config) bool {
			return c.PlanID == "5" && c.CreditsPerRequest == 3 && *c.MaxOrderCents == 0 && *c.DefaultSpendingLimitCents == 20
		},
	} {
		if c, err := loaded(t, config); err != nil || !check(c) {
			t.Errorf("%s: %+v, %v", config, c, err)
		}
	}
	// Below another limit, the proposal is not above it.
	c := must.Get(gateway.ParseConfig([]byte(`{"maxSpendingLimitCents":200}`), x402.Default))(t)
	if _, err := gateway.New(gateway.Options{Dir: t.TempDir(), Config: c}); err != nil {
		t.Error(err)
	}
}
