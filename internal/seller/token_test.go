package seller_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

const issuer = "https://pay.example.com/api/v1"

// jws has the form of a signed text with these claims.
func jws(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"EdDSA","typ":"JWT","kid":"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"}`)) + "." + part([]byte(claims)) + "." +
		part([]byte(strings.Repeat("s", 64)))
}

// What is remembered of one token holds for no other, and not for one that is for a resource.
func TestCheckResourceAgain(t *testing.T) {
	s := &seller.Seller{Room: "room", Item: "item"}
	s.SetDefaults()
	for range 2 {
		for aud, want := range map[string]bool{
			`"` + issuer + `/x402"`: true, `["` + issuer + `/x402","https://agent.example.com/ask"]`: true,
			`["` + issuer + `/x402","https://other.example.com"]`: false, `"https://other.example.com"`: false, `7`: false,
		} {
			token := must.Get(x402.DecodeToken(jws(`{"iss":"` + issuer + `","aud":` + aud + `}`)))(t)
			for resource, here := range map[string]bool{"https://agent.example.com/ask": true, "https://agent.example.com/b": !strings.Contains(aud, "/ask")} {
				r := s.CheckResource(token, "https://agent.example.com", func() string { return resource })
				if (r == nil) != (want && here) {
					t.Errorf("%s at %s: %+v", aud, resource, r)
				}
			}
		}
	}
}

func TestIsFor(t *testing.T) {
	const base, resource = "https://agent.example.com/v1", "https://agent.example.com/v1/ask"
	service := `"` + issuer + `/x402"`
	for aud, want := range map[string]bool{
		service:             true,
		"[" + service + "]": true,
		"[" + service + `,"https://agent.example.com/v1"]`:                                 true,
		"[" + service + `,"https://agent.example.com/v1/"]`:                                true,
		"[" + service + `,"HTTPS://AGENT.example.com:443/v1/ask"]`:                         true,
		"[" + service + `,"https://other.example.com","https://agent.example.com/v1/ask"]`: true,
		"[" + service + `,"https://agent.example.com/v1/%61sk"]`:                           true,
		"[" + service + `,"https://agent.example.com"]`:                                    false, // above the base: another server's
		"[" + service + `,"https://agent.example.com/v1/as"]`:                              false,
		"[" + service + `,"https://agent.example.com/v1/ask/more"]`:                        false,
		"[" + service + `,"https://agent.example.com/v2"]`:                                 false,
		"[" + service + `,"https://agent.example.com/v1%2fask"]`:                           false,
		"[" + service + `,"https://agent.example.com/v1/x/.."]`:                            false,
		"[" + service + `,"http://agent.example.com/v1"]`:                                  false,
		"[" + service + `,"https://agent.example.com:8443/v1"]`:                            false,
		"[" + service + `,"https://agent.example.com.evil.example/v1"]`:                    false,
		"[" + service + `,"https://agent.example.com@evil.example/v1"]`:                    false,
		"[" + service + `,""]`:           false,
		`"https://agent.example.com/v1"`: false, // not for the service
		`[]`:                             false, `7`: false, `null`: false, `{"a":1}`: false,
	} {
		token := must.Get(x402.DecodeToken(jws(`{"iss":"` + issuer + `","aud":` + aud + `}`)))(t)
		c, ok := seller.ClaimsOf(token)
		if got := c.IsFor(base, resource); !ok || got != want {
			t.Errorf("%s: %v", aud, got)
		}
		// A server that does not know its address takes no token that is made for an address.
		if got := c.IsFor("", resource); got != (aud == service || aud == "["+service+"]") {
			t.Errorf("without a base, %s: %v", aud, got)
		}
	}
}

// A token that is made for one path pays nothing that a dot segment leads to.
func TestIsFor_DotSegments(t *testing.T) {
	c := seller.Claims{Issuer: issuer, Audience: []byte(`["` + issuer + `/x402","https://agent.example.com/v1/a"]`)}
	for resource, want := range map[string]bool{
		"/v1/a/b": true, "/v1/a/..b": true, "/v1/a/../b": false, "/v1/a/%2e%2e/b": false, "/v1/a/./b": false, "/v1/a/..": false,
	} {
		if got := c.IsFor("https://agent.example.com/v1", "https://agent.example.com"+resource); got != want {
			t.Errorf("%s: %v", resource, got)
		}
	}
}

func TestAccessToken(t *testing.T) {
	claims := func(iss, plan, version string) string {
		return `{"iss":"` + iss + `","sub":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","aud":"` + iss + `/x402","planId":"` + plan + `","x402Version":` + version + `}`
	}
	const plan, other = "44742763076047497640080230236781474129970992727896593861997347135613135571071", "50637310539380773994947796286606926419362223513940385288598954542035389945899"
	terms := &x402.Terms{PlanID: plan, ServiceURL: issuer + "/"}
	own := jws(claims(issuer, other, "2"))
	wrapped := x402.EncodeToken(own, x402.Requirements{PlanID: other}, x402.Authorization{}, "n-1")
	text := must.Get(base64.StdEncoding.DecodeString(wrapped))(t)
	for name, c := range map[string]struct {
		text  string
		terms *x402.Terms
		want  bool
	}{
		"jwt":                          {own, terms, true},
		"x402":                         {wrapped, terms, true},
		"x402 without padding":         {strings.TrimRight(wrapped, "="), terms, true},
		"x402 in lines":                {base64.StdEncoding.EncodeToString([]byte("{\n" + string(text[1:]))), terms, true},
		"json":                         {string(text), terms, true},
		"of an earlier address":        {jws(claims("https://old.example/api/v1", plan, "2")), terms, true},
		"of another service":           {jws(claims("https://old.example/api/v1", other, "2")), terms, false},
		"of any service, no address":   {jws(claims("https://old.example/api/v1", other, "2")), &x402.Terms{PlanID: plan}, true},
		"of any service, no terms":     {jws(claims("https://old.example/api/v1", other, "2")), nil, true},
		"a sign-in of somebody else":   {jws(`{"iss":"` + issuer + `","aud":"app","sub":"` + strings.Repeat("u", 200) + `"}`), terms, false},
		"claims that are not ours":     {jws(`{"iss":7,"planId":"` + plan + `","x402Version":2,"x":"` + strings.Repeat("u", 200) + `"}`), terms, false},
		"another version":              {jws(claims(issuer, plan, "1")), terms, false},
		"opaque":                       {"e" + strings.Repeat("x", 400), terms, false},
		"short":                        {"eyJ", terms, false},
		"nothing":                      {"", terms, false},
		"too long for an access token": {own + strings.Repeat("x", 8<<10), terms, false},
	} {
		claims, ok := seller.AccessToken(c.text)
		if got := ok && claims.IsOf(c.terms); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
