package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
)

// What only the owner or the holder may see of a public record.
func TestLotsAreNotPublic(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
	path := base + "/protocol/plans/" + plan + "/balance/" + strings.ToLower(s.s1.address.String())
	for _, tt := range []struct {
		who  actor
		lots bool
	}{{actor{}, false}, {s.b2, false}, {actor{key: "nonsense"}, false}, {s.b1, true}, {s.s1, true}} {
		a := s.do(tt.who, "GET", path, "")
		if a.status != 200 || a.text(t, "balance") != "100" || (a.member(t, "lots") != nil) != tt.lots {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// T14
func TestCredentialInTheWrongPlace(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	const list = base + "/protocol/plans"
	key := s.b1.key
	for name, a := range map[string]answer{
		"query":            s.do(actor{}, "GET", list+"?token="+key+"&api_key="+key+"&access_token="+key+"&authorization=Bearer%20"+key, ""),
		"payment query":    s.do(actor{}, "POST", base+"/x402/verify?payment-signature="+token+"&x402AccessToken="+token, paymentBody(plan, "", "")),
		"cookie":           s.do(actor{}, "GET", list, "", "Cookie", "authorization="+key+"; token="+key),
		"path":             s.do(actor{}, "GET", list+"/"+key, ""),
		"referer":          s.do(actor{}, "GET", list, "", "Referer", "https://x.example/?token="+key),
		"x-api-key":        s.do(actor{}, "GET", list, "", "X-Api-Key", key),
		"body":             s.do(actor{}, "POST", list, `{"authorization":"Bearer `+key+`","name":"x"}`),
		"payment header":   s.do(actor{}, "POST", base+"/x402/verify", paymentBody(plan, token, ""), "payment-signature", key),
		"access token":     s.do(actor{key: token}, "GET", list, ""),
		"basic":            s.do(actor{}, "GET", list, "", "Authorization", "Basic "+key),
		"proxy":            s.do(actor{}, "GET", list, "", "Proxy-Authorization", "Bearer "+key),
		"key in a body id": s.do(s.b1, "POST", base+"/x402/release", `{"agentRequestId":"`+key[:120]+`"}`),
		"key as a token":   s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, key, "")),
	} {
		if a.status < 400 && a.text(t, "isValid") != "" || a.status < 400 && name != "key as a token" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	short := must.Get(s.auth.CreateKey(context.Background(), auth.Local(s.b1.address), auth.KeyParams{Form: toll.KeyShort}, nil))(t).Key
	for name, a := range map[string]answer{
		"query":   s.do(actor{}, "GET", list+"?token="+short+"&authorization=Bearer%20"+short, ""),
		"path":    s.do(actor{}, "GET", list+"/"+short, ""),
		"key id":  s.do(s.b1, "GET", base+"/api-keys/"+short, ""),
		"body id": s.do(s.b1, "POST", base+"/x402/release", `{"agentRequestId":"`+short+`"}`),
		"token":   s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, short, "")),
		"basic":   s.do(actor{}, "GET", list, "", "Authorization", "Basic "+short),
		"doubled": s.do(actor{}, "GET", list, "", "Authorization", "Bearer "+short+short[11:]),
	} {
		if a.status < 400 && name != "token" || strings.Contains(string(a.body), short) {
			t.Errorf("short key, %s: %d %s", name, a.status, a.body)
		}
	}
	jwt := key[strings.Index(key, ":")+1:]
	if log := s.log.String(); strings.Contains(log, short[11:]) || strings.Contains(log, jwt) || strings.Contains(log, token) || strings.Contains(log, jwt[len(jwt)-40:]) {
		t.Errorf("a credential is in the log")
	}
}

// T15
func TestAPIKeySyntax(t *testing.T) {
	s := newStack(t)
	key := s.b1.key
	jwt := key[strings.Index(key, ":")+1:]
	tests := []struct {
		name   string
		lines  []string
		status int
		code   string
	}{
		{"as it is", []string{"Bearer " + key}, 200, ""},
		{"bare JWT", []string{"Bearer " + jwt}, 200, ""},
		{"lower case scheme", []string{"bearer " + key}, 200, ""},
		{"upper case scheme", []string{"BEARER " + key}, 200, ""},
		{"other word as prefix", []string{"Bearer acme:" + jwt}, 200, ""},
		{"other environment", []string{"Bearer live:" + jwt}, 401, "BCK.APIKEY.0901"},
		{"two colons", []string{"Bearer sandbox:sandbox:" + jwt}, 401, "BCK.APIKEY.0013"},
		{"not a JWT", []string{"Bearer sandbox:abc"}, 401, "BCK.APIKEY.0013"},
		{"bad prefix", []string{"Bearer SAND_BOX:" + jwt}, 401, "BCK.APIKEY.0013"},
		{"tab", []string{"Bearer\t" + key}, 401, "BCK.AUTH.0012"},
		{"tab inside", []string{"Bearer " + jwt[:20] + "\t" + jwt[20:]}, 401, "BCK.AUTH.0012"},
		{"no scheme", []string{key}, 401, "BCK.AUTH.0012"},
		{"scheme alone", []string{"Bearer"}, 401, "BCK.AUTH.0012"},
		{"empty", []string{""}, 401, "BCK.AUTH.0012"},
		{"other scheme", []string{"Token " + key}, 401, "BCK.AUTH.0012"},
		{"two keys", []string{"Bearer " + key + ", Bearer " + key}, 401, "BCK.AUTH.0012"},
		{"cut", []string{"Bearer " + key[:len(key)-1]}, 401, ""},
		{"two lines", []string{"Bearer " + key, "Bearer " + key}, 400, "BCK.HTTP.400"},
		{"20 KB", []string{"Bearer " + strings.Repeat("x", 20<<10)}, 431, "BCK.HTTP.431"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h []string
			for _, l := range tt.lines {
				h = append(h, "Authorization", l)
			}
			a := s.do(actor{}, "GET", base+"/protocol/plans", "", h...)
			if a.status != tt.status || tt.code != "" && a.code() != tt.code {
				t.Errorf("%d %s; want %d %s", a.status, a.body, tt.status, tt.code)
			}
			if a.status == 401 && a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Error("a 401 says how to authenticate")
			}
		})
	}
	t.Run("NUL", func(t *testing.T) {
		answers, closed := s.raw(t, "GET "+base+"/protocol/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \x00"+key+"\r\n\r\n")
		if len(answers) != 1 || answers[0].status != 400 || !closed {
			t.Errorf("%+v", answers)
		}
	})
	t.Run("two lines on an open route", func(t *testing.T) {
		if a := s.do(actor{}, "GET", "/health", "", "Authorization", "Bearer "+key, "Authorization", "Bearer "+key); a.status != 400 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	t.Run("expired", func(t *testing.T) {
		k, err := s.auth.CreateKey(context.Background(), auth.Local(s.b1.address), auth.KeyParams{ExpiresAt: s.clock.now().Add(90e9)}, nil)
		must.Do(t, err)
		s.clock.advance(91e9)
		if a := s.do(actor{key: k.Key}, "GET", base+"/protocol/plans", ""); a.status != 401 || a.code() != "BCK.AUTH.0002" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// T41
func TestNumberSyntax(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	address := s.b1.address.String()
	fields := map[string]func(v string) answer{
		"verify maxAmount": func(v string) answer {
			return s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true,"maxAmount":`+v))
		},
		"settle maxAmount": func(v string) answer {
			return s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"maxAmount":`+v))
		},
		"mint amount": func(v string) answer {
			return s.do(s.b1, "POST", base+"/protocol/plans/mint", `{"planId":"`+plan+`","creditsReceiver":"`+address+`","amount":`+v+`}`)
		},
		"mintExpirable creditsAmount": func(v string) answer {
			return s.do(s.b1, "POST", base+"/protocol/plans/mintExpirable", `{"planId":"`+plan+`","creditsReceiver":"`+address+`","creditsAmount":`+v+`}`)
		},
		"creditsDuration": func(v string) answer {
			return s.do(s.b1, "POST", base+"/protocol/plans/mintExpirable", `{"planId":"`+plan+`","creditsReceiver":"`+address+`","creditsAmount":1,"creditsDuration":`+v+`}`)
		},
		"price": func(v string) answer {
			return s.do(s.b1, "POST", base+"/protocol/plans", `{"name":"x","priceConfig":{"amounts":[`+v+`]},"creditsConfig":{}}`)
		},
		"credits of a plan": func(v string) answer {
			return s.do(s.b1, "POST", base+"/protocol/plans", `{"name":"x","priceConfig":{},"creditsConfig":{"amount":`+v+`}}`)
		},
		"nonce": func(v string) answer {
			return s.do(s.b1, "POST", base+"/protocol/plans", `{"name":"x","priceConfig":{},"creditsConfig":{},"nonce":`+v+`}`)
		},
		"redemptionLimit": func(v string) answer {
			return s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","redemptionLimit":`+v+`}`)
		},
		"expiration": func(v string) answer {
			return s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","expiration":`+v+`}`)
		},
	}
	bad := []string{
		`"+5"`, `"05"`, `" 5"`, `"5 "`, `"5.0"`, `"1e3"`, `"0x5"`, `"-1"`, `"٥"`, `"５"`, `"` + strings.Repeat("9", 100) + `"`, `""`, `"NaN"`, `"Infinity"`, `"5\u0000"`, `"5,0"`, `"1_000"`,
		`+5`, `05`, `5.0`, `5.5`, `1e3`, `1E0`, `0x5`, `-1`, `-0`, strings.Repeat("9", 100), `NaN`, `true`, `[5]`, `{}`, `.5`, `5.`,
	}
	before := dump(t, s.store)
	for name, send := range fields {
		for _, v := range bad {
			if a := send(v); a.status != 400 {
				t.Errorf("%s %s: %d %s", name, v, a.status, a.body)
			}
		}
	}
	for _, name := range []string{"mint amount", "mintExpirable creditsAmount"} {
		if a := fields[name]("null"); a.status != 400 || a.code() != "BCK.HTTP.400" {
			t.Errorf("%s null where it is required: %d %s", name, a.status, a.body)
		}
		if a := fields[name]("0"); a.status != 400 || a.code() != "BCK.CREDITS.0001" {
			t.Errorf("%s 0: %d %s", name, a.status, a.body)
		}
		if a := fields[name](`"9223372036854775808"`); a.status != 400 || a.code() != "BCK.PROTOCOL.0057" {
			t.Errorf("%s 2^63: %d %s", name, a.status, a.body)
		}
	}
	if dump(t, s.store) != before {
		t.Error("a refused number was stored")
	}
	// The one grammar, as a string and as a JSON integer, beyond what a float holds.
	for _, v := range []string{`"9007199254740993"`, `9007199254740993`, `"9223372036854775"`} {
		for _, name := range []string{"mint amount", "price", "credits of a plan", "redemptionLimit"} {
			if a := fields[name](v); a.status >= 300 {
				t.Errorf("%s %s: %d %s", name, v, a.status, a.body)
			}
		}
	}
	a := s.do(s.b1, "GET", base+"/protocol/plans?sortOrder=desc&limit=100", "")
	if !strings.Contains(string(a.body), `"amounts":["9007199254740993"]`) || !strings.Contains(string(a.body), `"amounts":[9007199254740993]`) {
		t.Errorf("not exact: %.2000s", a.body)
	}
}

// T50
func TestAccess_Ids(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	tooBig := "115792089237316195423570985008687907853269984665640564039457584007913129639936"
	bad := []string{tooBig, "-1", "007", "0x1", "0", "+1", "1.0", "1e3", " 1", "1 ", "a", strings.Repeat("9", 79)}
	for _, id := range bad {
		escaped := strings.ReplaceAll(id, " ", "%20")
		for _, path := range []string{"/protocol/plans/%s", "/protocol/plans/%s/agents", "/protocol/plans/%s/balance", "/protocol/plans/%s/balance/" + s.b1.address.String(), "/protocol/agents/%s", "/protocol/agents/%s/plans"} {
			if a := s.do(s.b1, "GET", base+fmt.Sprintf(path, escaped), ""); a.status != 400 || a.code() != "BCK.COMMON.0026" {
				t.Errorf("%s with %q: %d %s", path, id, a.status, a.body)
			}
		}
		if a := s.do(s.b1, "POST", base+"/protocol/plans/"+escaped+"/order", ""); a.status != 400 || a.code() != "BCK.COMMON.0026" {
			t.Errorf("order of %q: %d %s", id, a.status, a.body)
		}
	}
	bodies := map[string]string{
		"/protocol/plans/mint": `{"planId":%s,"amount":1,"creditsReceiver":"` + s.b1.address.String() + `"}`,
		"/x402/permissions":    `{"planId":%s}`,
		"/protocol/agents":     `{"name":"x","plans":[%s]}`,
		"/x402/permissions/":   `{"planId":"` + plan + `","agentId":%s}`,
	}
	before := dump(t, s.store)
	for path, body := range bodies {
		values := []string{"1", "12345678901234567890", "true", "{}", `"` + strings.Repeat("9", 100<<10) + `"`, `"\u0031"`}
		for _, id := range bad {
			values = append(values, `"`+id+`"`)
		}
		for _, v := range values {
			if path == "/protocol/agents" && (v == `" 1"` || v == `"1 "` || v == `"\u0031"`) {
				continue // a list in one string may have blanks, and there is no plan 1
			}
			if a := s.do(s.b1, "POST", base+path, fmt.Sprintf(body, v)); a.status != 400 || a.code() != "BCK.COMMON.0026" {
				t.Errorf("%s with %.50s: %d %.200s", path, v, a.status, a.body)
			}
		}
	}
	if dump(t, s.store) != before {
		t.Error("a refused id was stored")
	}
	for path, want := range map[string]string{
		"/api-keys/1": "BCK.HTTP.400", "/x402/permissions/0x1": "BCK.HTTP.400", "/protocol/orders/1": "BCK.COMMON.0025", "/x402/settlements?transaction=1": "BCK.HTTP.400", "/x402/settlements": "BCK.HTTP.400",
		"/protocol/plans/" + plan + "/balance/0x1": "BCK.COMMON.0903",
	} {
		if a := s.do(s.b1, "GET", base+path, ""); a.status != 400 || a.code() != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// T96
func TestJSONDifferentials(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	address := s.b1.address.String()
	mint := func(body string) answer { return s.do(s.b1, "POST", base+"/protocol/plans/mint", body) }
	good := `"planId":"` + plan + `","amount":"1","creditsReceiver":"` + address + `"`
	bad := map[string]string{
		"duplicate":                `{` + good + `,"amount":"2"}`,
		"duplicate with escape":    `{` + good + `,"\u0061mount":"2"}`,
		"duplicate of an unknown":  `{` + good + `,"x":1,"x":1}`,
		"duplicate deep inside":    `{` + good + `,"x":{"y":[{"a":1,"a":2}]}}`,
		"other case":               strings.Replace(`{`+good+`}`, "planId", "PlanId", 1),
		"name with NUL":            strings.Replace(`{`+good+`}`, "planId", `planId\u0000`, 1),
		"long s":                   strings.Replace(`{`+good+`}`, "creditsReceiver", "creditſReceiver", 1),
		"kelvin sign":              strings.Replace(paymentBody(plan, "x", ""), "x402AccessToken", "x402AccessTo\u212aen", 1),
		"byte order mark":          "\ufeff{" + good + "}",
		"UTF-16":                   "\x00{\x00}",
		"bad UTF-8":                `{` + good + ",\"x\":\"\xff\"}",
		"overlong UTF-8":           `{` + good + ",\"x\":\"\xc0\xaf\"}",
		"lone surrogate":           `{` + good + `,"x":"\ud800"}`,
		"NaN":                      `{` + good + `,"x":NaN}`,
		"trailing bytes":           `{` + good + `} x`,
		"two values":               `{` + good + `}{}`,
		"trailing comma":           `{` + good + `,}`,
		"comment":                  `{` + good + `/* */}`,
		"single quotes":            strings.ReplaceAll(`{`+good+`}`, `"`, `'`),
		"depth 33":                 `{` + good + `,"x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`,
		"number of a million":      `{` + good + `,"creditsDuration":` + strings.Repeat("9", 1_000_000) + `}`,
		"raw control character":    `{` + good + ",\"x\":\"a\x01b\"}",
		"array":                    `[{` + good + `}]`,
		"string":                   `"` + plan + `"`,
		"not complete":             `{` + good,
		"member that is an object": strings.Replace(`{`+good+`}`, `"1"`, `{"a":1}`, 1),
	}
	before := dump(t, s.store)
	for name, body := range bad {
		send := mint
		switch name {
		case "number of a million":
			send = func(body string) answer { return s.do(s.b1, "POST", base+"/protocol/plans/mintExpirable", body) }
		case "kelvin sign":
			send = func(body string) answer { return s.do(s.b1, "POST", base+"/x402/verify", body) }
		}
		if a := send(body); a.status != 400 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if dump(t, s.store) != before {
		t.Error("a refused body was stored")
	}
	for name, body := range map[string]string{
		"unknown members":  `{` + good + `,"x":{"y":[null]},"PlanId":"7","planId ":"7"}`,
		"escapes in names": strings.Replace(`{`+good+`}`, "amount", `\u0061mount`, 1),
		"blanks":           " \r\n\t{ " + good + " }\n",
		"depth 32":         `{` + good + `,"x":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`,
		"surrogate pair":   `{` + good + `,"x":"\ud83d\ude00"}`,
		"null as absent":   `{` + good + `,"holderAddress":null}`,
	} {
		if a := mint(body); a.status != 200 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	t.Run("all faults at once", func(t *testing.T) {
		a := s.do(s.b1, "POST", base+"/protocol/plans/mint", `{"planId":5,"amount":"x"}`)
		var params struct{ Errors []toll.Fault }
		must.Do(t, json.Unmarshal([]byte(a.text(t, "params")), &params))
		if a.status != 400 || len(params.Errors) != 2 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
