package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// FuzzVerifyToken holds that no text passes but what this service signed, byte for byte.
func FuzzVerifyToken(f *testing.F) {
	a, _ := known(f)
	c := exampleClaims
	c.AgentID, c.RedemptionLimit, c.Hash = "", nil, mustHash("0x"+strings.Repeat("ab", 32))
	second := must.Get(a.SignToken(c))(f)
	ours := map[string]bool{exampleJWS: true, second: true}
	dot := strings.LastIndexByte(exampleJWS, '.')
	for _, s := range []string{
		exampleJWS, second, exampleJWS + "=", exampleJWS[:dot] + second[strings.LastIndexByte(second, '.'):], exampleJWS[:dot+1],
		b64(`{"alg":"none"}`) + "." + b64(examplePayload) + ".", b64(ownHeader) + "." + b64("{}") + "." + strings.Repeat("A", 86),
		b64(`{"alg":"EdDSA","typ":"JWT","kid":"`+testKID+`","crit":["b64"],"b64":false}`) + ".e30." + strings.Repeat("A", 86),
		"..", "", "{}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, jws string) {
		c, err := a.VerifyToken(jws)
		if (err == nil) != ours[jws] || (c == nil) != (err != nil) {
			t.Fatalf("%q: claims %t, %v", jws, c != nil, err)
		}
		if got := code(t, err); err != nil && got != toll.CodeTokenSignature {
			t.Fatalf("%q: %s", jws, got)
		}
		if _, err := DecodeUnverified(jws); err != nil && code(t, err) != toll.CodeTokenUndecodable {
			t.Fatalf("%q: %v", jws, err)
		}
	})
}

// FuzzClaims signs any payload with our own key: what is taken is written again with the same meaning.
func FuzzClaims(f *testing.F) {
	f.Add(examplePayload)
	f.Add(strings.Replace(examplePayload, `"iat":1795226400`, `"iat":1e400`, 1))
	f.Add(strings.Replace(examplePayload, `"x402Version":2`, `"x402Version":2,"x402Version":2`, 1))
	f.Add(strings.Replace(examplePayload, `"credits":{"redemptionLimit":"100"}`, `"credits":{"redemptionLimit":7,"orderLimit":0},"nbf":1`, 1))
	f.Add(strings.Replace(examplePayload, `"aud":"https://pay.example.com/api/v1/x402"`, `"aud":["https://pay.example.com/api/v1/x402","\u2028<>"]`, 1))
	f.Fuzz(func(t *testing.T, payload string) {
		c, err := decodeClaims([]byte(payload))
		if err != nil {
			if !errors.Is(err, errMalformedText) && !errors.Is(err, errContradiction) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := c.encode()
		if err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		d, err := decodeClaims(again)
		if err != nil {
			t.Fatalf("%q: written as %s: %v", payload, again, err)
		}
		if third, err := d.encode(); err != nil || string(third) != string(again) {
			t.Fatalf("%q: %s, then %s, %v", payload, again, third, err)
		}
		if !c.ExpiresAt.After(c.IssuedAt) || c.ExpiresAt.After(time.Unix(lastSecond, 0)) || c.PlanID == "" || c.Subscriber.IsZero() || c.Hash.IsZero() {
			t.Fatalf("%q: %+v", payload, c)
		}
	})
}

// FuzzAuthorization holds that one JWT passes, with or without a prefix, and one short key, and that every refusal has an expected code.
func FuzzAuthorization(f *testing.F) {
	a, _ := known(f)
	k := newKey(f, a, KeyParams{})
	jwt := jwtOf(k)
	short := newKey(f, a, KeyParams{Form: toll.KeyShort})
	for _, s := range []string{
		"Bearer " + short.Key, "Bearer sandbox:" + short.Key, "Bearer " + short.Key + "=", "Bearer " + short.Key[:len(short.Key)-1],
		"Bearer tk_sandbox_" + strings.Repeat("A", 32), "Bearer tk_live_" + strings.Repeat("A", 32), "Bearer tk_",
		"Bearer " + k.Key, "bearer " + jwt, "Bearer live:" + jwt, "Bearer sandbox:" + k.Key, "Bearer\t" + k.Key, "Bearer " + k.Key + "\x00",
		"Basic x", "Bearer ", "Bearer :", "Bearer a.b.c", "Bearer " + exampleJWS, "",
		"Bearer " + signed(ownKey(), ownHeader, `{"iss":"`+testIssuer+`","sub":"0x0000000000000000000000000000000000000001","jti":"0x`+strings.Repeat("01", 32)+`","iat":1,"o11y":"x","svc":{"environment":"sandbox"}}`),
	} {
		f.Add(s)
	}
	refusals := map[toll.Code]bool{
		toll.CodeBadRequest: true, toll.CodeNotAuthenticated: true, toll.CodeBadAuthorization: true, toll.CodeKeyMalformed: true,
		toll.CodeKeyForeign: true, toll.CodeKeyWrongEnvironment: true, toll.CodeHeadersTooLarge: true,
	}
	f.Fuzz(func(t *testing.T, line string) {
		caller, err := a.Authenticate(context.Background(), []string{line})
		if err != nil {
			if got := code(t, err); !refusals[got] || !caller.Address.IsZero() {
				t.Fatalf("%q: %s, %+v", line, got, caller)
			}
			return
		}
		if caller.KeyID == short.ID && strings.EqualFold(line[:7], "Bearer ") && strings.Trim(line[7:], " ") == short.Key {
			return
		}
		if caller.KeyID != k.ID || !strings.HasSuffix(strings.TrimRight(line, " "), jwt) || len(line) > len("Bearer ")+33+len(jwt)+strings.Count(line, " ") {
			t.Fatalf("%q passes", line)
		}
	})
}
