package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/must"
)

func TestWorkedExample(t *testing.T) {
	a, _ := known(t)
	c := must.Get(a.VerifyToken(exampleJWS))(t)
	want := must.Get(exampleClaims.encode())(t)
	if got, _ := c.encode(); !bytes.Equal(got, want) || string(got) != examplePayload {
		t.Errorf("claims differ:\n%s\n%s", got, examplePayload)
	}
	jws, err := a.SignToken(exampleClaims)
	if err != nil || jws != exampleJWS {
		t.Errorf("SignToken: %v, equal bytes: %t", err, jws == exampleJWS)
	}
	bare := exampleClaims
	bare.Issuer, bare.Audience = "", nil
	if jws, err := a.SignToken(bare); err != nil || jws != exampleJWS {
		t.Errorf("SignToken does not fill in issuer and audience: %v", err)
	}
	if d, err := DecodeUnverified(exampleJWS); err != nil || d.Hash != exampleClaims.Hash {
		t.Errorf("DecodeUnverified: %v, %+v", err, d)
	}
	// The library that others use agrees, with the document that we publish.
	obj := must.Get(jose.ParseSignedCompact(exampleJWS, []jose.SignatureAlgorithm{jose.EdDSA}))(t)
	var set jose.JSONWebKeySet
	must.Do(t, decodeStrict(a.JWKS(), &set))
	if payload, err := obj.Verify(set); err != nil || string(payload) != examplePayload {
		t.Errorf("go-jose: %v", err)
	}
}

func TestClaimsRoundTrip(t *testing.T) {
	a, _ := known(t)
	orders := int64(0)
	c := exampleClaims
	c.AgentID, c.RedemptionLimit, c.OrderLimit = "", nil, &orders
	c.Audience = []string{"https://agent.example/a?b=1&c=<2>"}
	c.NotBefore = time.Unix(issuedAt+1, 0).UTC()
	jws := must.Get(a.SignToken(c))(t)
	got := must.Get(a.VerifyToken(jws))(t)
	if want := []string{testIssuer + "/x402", "https://agent.example/a?b=1&c=<2>"}; !slices.Equal(got.Audience, want) {
		t.Errorf("audience %q", got.Audience)
	}
	if got.AgentID != "" || got.RedemptionLimit != nil || got.OrderLimit == nil || *got.OrderLimit != 0 || !got.NotBefore.Equal(c.NotBefore) {
		t.Errorf("claims %+v", got)
	}
	for name, change := range map[string]func(*Claims){
		"no plan":       func(c *Claims) { c.PlanID = "" },
		"no hash":       func(c *Claims) { c.Hash = toll.Hash{} },
		"no subscriber": func(c *Claims) { c.Subscriber = toll.Address{} },
		"no end":        func(c *Claims) { c.ExpiresAt = time.Time{} },
		"ends at start": func(c *Claims) { c.ExpiresAt = c.IssuedAt },
		"no scheme":     func(c *Claims) { c.Scheme = "" },
		"too long":      func(c *Claims) { c.Audience = []string{strings.Repeat("a", 8<<10)} },
	} {
		c := exampleClaims
		change(&c)
		if _, err := a.SignToken(c); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

// T04
func TestKeyID(t *testing.T) {
	a, clock := known(t)
	ctx := context.Background()
	_, attacker, err := ed25519.GenerateKey(rand.Reader)
	must.Do(t, err)
	foreign := must.Get(thumbprint(attacker.Public().(ed25519.PublicKey)))(t)
	for name, kid := range map[string]string{
		"absent": "", "unknown": `,"kid":"` + foreign + `"`, "10 KB": `,"kid":"` + strings.Repeat("k", 10<<10) + `"`,
		"path": `,"kid":"../../x"`, "sql": `,"kid":"' OR 1=1--"`, "offer key": `,"kid":"did:web:pay.example.com#offers"`,
		"number": `,"kid":1`, "null": `,"kid":null`, "empty": `,"kid":""`, "object": `,"kid":{"$ne":""}`,
		"prefix": `,"kid":"` + testKID[:42] + `"`, "case": `,"kid":"` + strings.ToLower(testKID) + `"`,
	} {
		header := `{"alg":"EdDSA","typ":"JWT"` + kid + `}`
		refusedToken(t, a, name+", our signature", signed(ownKey(), header, examplePayload))
		refusedToken(t, a, name+", foreign signature", signed(attacker, header, examplePayload))
	}

	must.Get(a.AddSigningKey(ctx))(t)
	payload := func(iat int64) string {
		return strings.Replace(strings.Replace(examplePayload, "1795226400", fmt.Sprint(iat), 1), "1795230000", fmt.Sprint(iat+36000), 1)
	}
	remembered := signed(ownKey(), ownHeader, payload(clock.now().Unix()))
	before := signed(ownKey(), ownHeader, payload(clock.now().Unix()-1))
	for _, jws := range []string{remembered, before} {
		must.Get(a.VerifyToken(jws))(t)
	}
	retired := clock.now()
	clock.add(10 * time.Second)
	must.Do(t, a.RetireSigningKey(ctx, testKID, retired))
	refusedToken(t, a, "retired key, remembered", remembered)
	if _, err := a.VerifyToken(before); err != nil {
		t.Errorf("retired key, signed before: %v", err)
	}
	refusedToken(t, a, "retired key, signed at its retirement", signed(ownKey(), ownHeader, payload(retired.Unix())))
	refusedToken(t, a, "retired key, signed after", signed(ownKey(), ownHeader, payload(retired.Unix()+5)))
}

// T06
func TestClaimGames(t *testing.T) {
	a, clock := known(t)
	swap := func(old, new string) string {
		t.Helper()
		if !strings.Contains(examplePayload, old) {
			t.Fatalf("the example lacks %s", old)
		}
		return strings.Replace(examplePayload, old, new, 1)
	}
	plan := `"planId":"44742763076047497640080230236781474129970992727896593861997347135613135571071"`
	agent := `,"agentId":"50637310539380773994947796286606926419362223513940385288598954542035389945899"`
	inAuthorization := func(old, new string) string {
		i := strings.Index(examplePayload, `"authorization"`)
		return examplePayload[:i] + strings.Replace(examplePayload[i:], old, new, 1)
	}
	inAccepted := func(old, new string) string {
		i := strings.Index(examplePayload, `"accepted"`)
		return examplePayload[:i] + strings.Replace(examplePayload[i:], old, new, 1)
	}
	now := clock.now().Unix()
	bad := map[string]string{
		"exp absent":          swap(`,"exp":1795230000`, ``),
		"exp null":            swap(`"exp":1795230000`, `"exp":null`),
		"exp text":            swap(`"exp":1795230000`, `"exp":"1795230000"`),
		"exp float":           swap(`"exp":1795230000`, `"exp":1795230000.5`),
		"exp whole float":     swap(`"exp":1795230000`, `"exp":1795230000.0`),
		"exp exponent":        swap(`"exp":1795230000`, `"exp":2e9`),
		"exp 1e400":           swap(`"exp":1795230000`, `"exp":1e400`),
		"exp negative":        swap(`"exp":1795230000`, `"exp":-1`),
		"exp below iat":       swap(`"exp":1795230000`, `"exp":1795226399`),
		"exp equal iat":       swap(`"exp":1795230000`, `"exp":1795226400`),
		"exp 2^63":            swap(`"exp":1795230000`, `"exp":9223372036854775808`),
		"exp 2^63-1":          swap(`"exp":1795230000`, `"exp":9223372036854775807`),
		"exp year 10000":      swap(`"exp":1795230000`, `"exp":253402300800`),
		"exp twice":           swap(`"exp":1795230000`, `"exp":1795230000,"exp":1795230000`),
		"exp in other case":   swap(`"exp":1795230000`, `"Exp":1795230000`),
		"exp array":           swap(`"exp":1795230000`, `"exp":[1795230000]`),
		"iat absent":          swap(`"iat":1795226400,`, ``),
		"iat text":            swap(`"iat":1795226400`, `"iat":"1795226400"`),
		"iat float":           swap(`"iat":1795226400`, `"iat":1795226400.1`),
		"iat negative":        swap(`"iat":1795226400`, `"iat":-5`),
		"iat in 61 s":         swap(`"iat":1795226400`, fmt.Sprintf(`"iat":%d`, now+61)),
		"nbf in 61 s":         swap(`"exp":`, fmt.Sprintf(`"nbf":%d,"exp":`, now+61)),
		"nbf text":            swap(`"exp":`, `"nbf":"1795226400","exp":`),
		"nbf 1e3":             swap(`"exp":`, `"nbf":1e3,"exp":`),
		"planId twice":        swap(plan, plan+","+plan),
		"planId other twice":  swap(plan, plan+`,"planId":"7"`),
		"planId escaped":      swap(plan, plan+`,"plan\u0049d":"7"`),
		"planId number":       swap(plan, `"planId":7`),
		"planId absent":       swap(plan+",", ``),
		"planId zero":         swap(plan, `"planId":"0"`),
		"inner planId twice":  inAuthorization(plan, plan+","+plan),
		"foreign iss":         swap(`"iss":"https://pay.example.com/api/v1"`, `"iss":"https://evil.example/api/v1"`),
		"foreign iss and aud": strings.ReplaceAll(examplePayload, "pay.example.com", "evil.example"),
		"iss with slash":      swap(`"iss":"https://pay.example.com/api/v1"`, `"iss":"https://pay.example.com/api/v1/"`),
		"iss absent":          swap(`"iss":"https://pay.example.com/api/v1",`, ``),
		"iss array":           swap(`"iss":"https://pay.example.com/api/v1"`, `"iss":["https://pay.example.com/api/v1"]`),
		"foreign aud":         swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":"https://evil.example/x402"`),
		"aud is iss":          swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":"https://pay.example.com/api/v1"`),
		"foreign auds":        swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":["https://evil.example/x402"]`),
		"aud empty":           swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":[]`),
		"aud null":            swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":null`),
		"aud number":          swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":1`),
		"aud mixed":           swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":["https://pay.example.com/api/v1/x402",1]`),
		"other sub":           swap(`"sub":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"`, `"sub":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92267"`),
		"other subscriber":    swap(`"subscriberAddress":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"`, `"subscriberAddress":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92267"`),
		"other from":          inAuthorization("92266", "92267"),
		"zero subscriber":     strings.ReplaceAll(examplePayload, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "0x0000000000000000000000000000000000000000"),
		"authorized plan":     inAuthorization("571071", "571072"),
		"authorized agent":    inAuthorization("945899", "945898"),
		"no authorized agent": inAuthorization(agent, ""),
		"accepted plan":       inAccepted("571071", "571072"),
		"accepted agent":      inAccepted("945899", "945898"),
		"accepted absent":     examplePayload[:strings.Index(examplePayload, `,"accepted"`)] + "}",
		"extra version":       inAccepted(`"version":"1"`, `"version":"2"`),
		"other network":       inAccepted("eip155:84532", "eip155:8453"),
		"other card network":  inAccepted("eip155:84532", "stripe:live"),
		"x402Version 1":       swap(`"x402Version":2`, `"x402Version":1`),
		"x402Version text":    swap(`"x402Version":2`, `"x402Version":"2"`),
		"x402Version 2.0":     swap(`"x402Version":2`, `"x402Version":2.0`),
		"x402Version absent":  swap(`"x402Version":2,`, ``),
		"jti absent":          swap(`"jti":"0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634",`, ``),
		"jti short":           swap(`2634"`, `26"`),
		"limit negative":      swap(`"redemptionLimit":"100"`, `"redemptionLimit":"-1"`),
		"limit float":         swap(`"redemptionLimit":"100"`, `"redemptionLimit":1.5`),
		"limit huge":          swap(`"redemptionLimit":"100"`, `"redemptionLimit":"9223372036854775808"`),
		"orders text":         swap(`"redemptionLimit":"100"`, `"orderLimit":"1"`),
		"orders negative":     swap(`"redemptionLimit":"100"`, `"orderLimit":-1`),
		"bad UTF-8":           swap("svc:erc4337", "svc:\xff"),
		"trailing bytes":      examplePayload + "{}",
		"array":               "[" + examplePayload + "]",
		"text":                `"` + strings.ReplaceAll(examplePayload, `"`, `\"`) + `"`,
		"null":                "null",
		"nothing":             " ",
		"API key":             `{"iss":"https://pay.example.com/api/v1","sub":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","jti":"0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634","iat":1795226400,"exp":1795230000,"o11y":"x","svc":{"environment":"sandbox"}}`,
	}
	for name, payload := range bad {
		if payload == examplePayload {
			t.Fatalf("%s: nothing changed", name)
		}
		refusedToken(t, a, name, signed(ownKey(), ownHeader, payload))
	}
	good := map[string]string{
		"the example":           examplePayload,
		"iat in 60 s":           swap(`"iat":1795226400`, fmt.Sprintf(`"iat":%d`, now+60)),
		"nbf in 60 s":           swap(`"exp":`, fmt.Sprintf(`"nbf":%d,"exp":`, now+60)),
		"aud among others":      swap(`"aud":"https://pay.example.com/api/v1/x402"`, `"aud":["https://agent.example","https://pay.example.com/api/v1/x402"]`),
		"address in lower case": strings.Replace(examplePayload, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266", 1),
		"unknown member":        swap(`"x402Version":2`, `"x402Version":2,"sessionKeys":[{"a":1}]`),
		"no agent":              strings.ReplaceAll(examplePayload, agent, ""),
		"null agent":            swap(agent+`,"sub`, `,"agentId":null,"sub`),
	}
	good["null agent"] = strings.ReplaceAll(examplePayload, agent, `,"agentId":null`)
	for name, payload := range good {
		if _, err := a.VerifyToken(signed(ownKey(), ownHeader, payload)); err != nil {
			t.Errorf("%s: %v: %v", name, err, errors.Unwrap(err))
		}
	}

	end := time.Unix(issuedAt+3600, 0)
	for _, c := range []struct {
		at   time.Time
		want toll.Code
	}{
		{end.Add(-time.Second), ""}, {end.Add(-time.Microsecond), ""},
		{end, toll.CodePermissionExpired}, {end.Add(time.Second), toll.CodePermissionExpired},
		{end.Add(-time.Second), ""}, // set back
		{time.Unix(issuedAt-60, 0), ""}, {time.Unix(issuedAt-61, 0), toll.CodeTokenSignature},
	} {
		for _, cached := range []bool{false, true} {
			clock.set(c.at)
			if !cached {
				a.keys().tokens.Clear()
			}
			claims, err := a.VerifyToken(exampleJWS)
			if got := code(t, err); got != c.want {
				t.Errorf("at exp%+v, cached %t: %q, want %q", c.at.Sub(end), cached, got, c.want)
			}
			// An expired token comes with its claims, as a held request may still settle; nothing else does.
			if (claims != nil) != (c.want != toll.CodeTokenSignature) {
				t.Errorf("at exp%+v, cached %t: claims %t", c.at.Sub(end), cached, claims != nil)
			}
		}
	}
	clock.set(end.Add(time.Hour))
	refusedToken(t, a, "expired and foreign", signed(ownKey(), ownHeader, bad["foreign aud"]))
}

func TestTokenCacheIsBounded(t *testing.T) {
	a, clock := known(t)
	const most = 320
	a.keys().tokens = cache.OfHashes[*Claims](most)
	for i := range 5 * most {
		c := exampleClaims
		c.Hash = toll.NewHash()
		c.ExpiresAt = c.IssuedAt.Add(time.Duration(200+i) * time.Second)
		jws := must.Get(a.SignToken(c))(t)
		must.Get(a.VerifyToken(jws))(t)
		if n := a.keys().tokens.Len(); n > most {
			t.Fatalf("%d tokens in a cache of %d", n, most)
		}
	}
	if n := a.keys().tokens.Len(); n < most*3/4 {
		t.Errorf("%d tokens kept of %d", n, most)
	}
	must.Get(a.VerifyToken(exampleJWS))(t)
	clock.add(time.Hour)
	sum := sha256.Sum256([]byte(exampleJWS))
	if _, ok := a.keys().tokens.Get(sum, clock.now()); ok {
		t.Error("a token is remembered after its end")
	}
	clock.add(-time.Hour)
	if _, ok := a.keys().tokens.Get(sum, clock.now()); ok {
		t.Error("a token that ended was not dropped")
	}
}

func BenchmarkVerifyTokenHit(b *testing.B) {
	a, _ := known(b)
	b.ReportAllocs()
	for b.Loop() {
		must.Get(a.VerifyToken(exampleJWS))(b)
	}
}

func BenchmarkVerifyTokenMiss(b *testing.B) {
	a, _ := known(b)
	b.ReportAllocs()
	for b.Loop() {
		a.keys().tokens.Clear()
		must.Get(a.VerifyToken(exampleJWS))(b)
	}
}
