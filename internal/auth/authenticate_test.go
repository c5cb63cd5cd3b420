package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// T09
func TestEnvironmentMix(t *testing.T) {
	cfg, clock := testConfig()
	start1 := func(env toll.Environment, issuer string) *Auth {
		st := sqliteStore(t)
		putKey(t, st, env, testSeed, clock.now())
		c := cfg
		c.Environment, c.Issuer = env, issuer
		return start(t, st, c)
	}
	sandbox := start1(toll.Sandbox, testIssuer)
	for name, live := range map[string]*Auth{
		"own address": start1(toll.Live, "https://live.example.com/api/v1"), "same address": start1(toll.Live, testIssuer),
	} {
		k := newKey(t, sandbox, KeyParams{})
		if got := try(t, live, "Bearer "+k.Key); got != toll.CodeKeyWrongEnvironment {
			t.Errorf("%s: sandbox key: %q", name, got)
		}
		for _, line := range []string{"Bearer " + jwtOf(k), "Bearer acme:" + jwtOf(k), "Bearer live:" + jwtOf(k)} {
			if got := try(t, live, line); got.Info().Status != 401 || got == toll.CodeNotAuthenticated {
				t.Errorf("%s: sandbox key without its prefix: %q", name, got)
			}
		}
		if got := try(t, sandbox, "Bearer "+newKey(t, live, KeyParams{}).Key); got != toll.CodeKeyWrongEnvironment {
			t.Errorf("%s: live key: %q", name, got)
		}
		jws := must.Get(sandbox.SignToken(exampleClaims))(t)
		refusedToken(t, live, name+": sandbox token", jws)
		c := exampleClaims
		c.Issuer, c.Audience, c.Network = "", nil, toll.Live.Network()
		jws = must.Get(live.SignToken(c))(t)
		if _, err := live.VerifyToken(jws); err != nil {
			t.Errorf("%s: live token at home: %v", name, err)
		}
		refusedToken(t, sandbox, name+": live token", jws)
	}
}

// T15
func TestAPIKeySyntax(t *testing.T) {
	a, _ := known(t)
	k := newKey(t, a, KeyParams{})
	jwt := jwtOf(k)
	access := must.Get(a.SignToken(exampleClaims))(t)
	claims := payloadOf(t, jwt)
	drop := func(member string) string {
		t.Helper()
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(claims), &m); err != nil || m[member] == nil {
			t.Fatalf("%v, %s", err, claims)
		}
		delete(m, member)
		b := must.Get(json.Marshal(m))(t)
		return signed(ownKey(), ownHeader, string(b))
	}
	edit := func(old, new string) string {
		t.Helper()
		if !strings.Contains(claims, old) {
			t.Fatalf("%s lacks %s", claims, old)
		}
		return signed(ownKey(), ownHeader, strings.Replace(claims, old, new, 1))
	}
	for _, c := range []struct {
		name  string
		lines []string
		want  toll.Code
	}{
		{"the key", []string{"Bearer " + k.Key}, ""},
		{"lower case", []string{"bearer " + k.Key}, ""},
		{"upper case", []string{"BEARER " + k.Key}, ""},
		{"bare JWT", []string{"Bearer " + jwt}, ""},
		{"any other word", []string{"Bearer acme-2:" + jwt}, ""},
		{"two spaces", []string{"Bearer  " + k.Key}, ""},
		{"no line", nil, toll.CodeNotAuthenticated},
		{"two lines", []string{"Bearer " + k.Key, "Bearer " + k.Key}, toll.CodeBadRequest},
		{"two lines, one empty", []string{"Bearer " + k.Key, ""}, toll.CodeBadRequest},
		{"NUL in the key", []string{"Bearer " + k.Key + "\x00"}, toll.CodeBadRequest},
		{"NUL in the scheme", []string{"Bea\x00rer " + k.Key}, toll.CodeBadRequest},
		{"empty line", []string{""}, toll.CodeBadAuthorization},
		{"no key", []string{"Bearer "}, toll.CodeBadAuthorization},
		{"scheme alone", []string{"Bearer"}, toll.CodeBadAuthorization},
		{"key alone", []string{k.Key}, toll.CodeBadAuthorization},
		{"Basic", []string{"Basic " + k.Key}, toll.CodeBadAuthorization},
		{"tab", []string{"Bearer\t" + k.Key}, toll.CodeBadAuthorization},
		{"tab before the key", []string{"Bearer \t" + k.Key}, toll.CodeBadAuthorization},
		{"tab after the key", []string{"Bearer " + k.Key + "\t"}, toll.CodeBadAuthorization},
		{"two words", []string{"Bearer " + k.Key + " x"}, toll.CodeBadAuthorization},
		{"two keys", []string{"Bearer " + k.Key + ", Bearer " + k.Key}, toll.CodeBadAuthorization},
		{"other environment", []string{"Bearer live:" + jwt}, toll.CodeKeyWrongEnvironment},
		{"other environment, no JWT", []string{"Bearer live:x"}, toll.CodeKeyWrongEnvironment},
		{"two colons", []string{"Bearer sandbox:" + k.Key}, toll.CodeKeyMalformed},
		{"two prefixes", []string{"Bearer sandbox:live:" + jwt}, toll.CodeKeyMalformed},
		{"no prefix", []string{"Bearer :" + jwt}, toll.CodeKeyMalformed},
		{"long prefix", []string{"Bearer " + strings.Repeat("a", 33) + ":" + jwt}, toll.CodeKeyMalformed},
		{"prefix in upper case", []string{"Bearer SANDBOX:" + jwt}, toll.CodeKeyMalformed},
		{"no JWT", []string{"Bearer sandbox:abc"}, toll.CodeKeyMalformed},
		{"nothing after the prefix", []string{"Bearer sandbox:"}, toll.CodeKeyMalformed},
		{"two parts", []string{"Bearer " + jwt[:strings.LastIndexByte(jwt, '.')]}, toll.CodeKeyMalformed},
		{"padded", []string{"Bearer " + jwt + "="}, toll.CodeKeyMalformed},
		{"control character", []string{"Bearer " + jwt + "\x01"}, toll.CodeKeyMalformed},
		{"payload is no JSON", []string{"Bearer " + signed(ownKey(), ownHeader, "hello")}, toll.CodeKeyMalformed},
		{"without sub", []string{"Bearer " + drop("sub")}, toll.CodeKeyMalformed},
		{"without jti", []string{"Bearer " + drop("jti")}, toll.CodeKeyMalformed},
		{"without o11y", []string{"Bearer " + drop("o11y")}, toll.CodeKeyMalformed},
		{"jti twice", []string{"Bearer " + edit(`"jti":`, `"jti":"`+k.ID.String()+`","jti":`)}, toll.CodeKeyMalformed},
		{"without environment", []string{"Bearer " + drop("svc")}, toll.CodeKeyForeign},
		{"without iat", []string{"Bearer " + drop("iat")}, toll.CodeKeyForeign},
		{"environment changed", []string{"Bearer " + edit("sandbox", "live")}, toll.CodeKeyWrongEnvironment},
		{"foreign issuer", []string{"Bearer " + edit("pay.example.com", "pay.example.org")}, toll.CodeKeyForeign},
		{"access token", []string{"Bearer " + access}, toll.CodeKeyForeign},
		{"access token with prefix", []string{"Bearer sandbox:" + access}, toll.CodeKeyForeign},
		{"bad signature", []string{"Bearer " + jwt[:len(jwt)-8] + "AAAAAAAA"}, toll.CodeKeyForeign},
		{"unsigned", []string{"Bearer " + b64(`{"alg":"none"}`) + "." + b64(claims) + "." + b64("x")}, toll.CodeKeyForeign},
		{"signed again, other text", []string{"Bearer " + edit(`"iat":`, `"x":1,"iat":`)}, toll.CodeNotAuthenticated},
		{"9 KB", []string{"Bearer sandbox:" + strings.Repeat("a", 9<<10)}, toll.CodeKeyMalformed},
		{"9 KB, well signed", []string{"Bearer " + edit(`"o11y":"`, `"o11y":"`+strings.Repeat("a", 7<<10))}, toll.CodeKeyMalformed},
		{"20 KB", []string{"Bearer sandbox:" + strings.Repeat("a", 20<<10)}, toll.CodeHeadersTooLarge},
	} {
		if got := try(t, a, c.lines...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for want, c := range map[toll.Code]int{
		toll.CodeBadRequest: 400, toll.CodeNotAuthenticated: 401, toll.CodeBadAuthorization: 401, toll.CodeKeyMalformed: 401,
		toll.CodeKeyForeign: 401, toll.CodeKeyWrongEnvironment: 401, toll.CodeHeadersTooLarge: 431,
	} {
		if got := want.Info().Status; got != c {
			t.Errorf("%s has status %d, want %d", want, got, c)
		}
	}
}

// TestExistenceOracle: a stranger cannot sign a key, so the service rejects the stranger's key without a read of the store, whether a key
// with its id exists or not. The rejection of a signed key does not show why: the response is always the same, and later ones need no read.
// T16
func TestExistenceOracle(t *testing.T) {
	st := sqliteStore(t)
	var reads atomic.Int64
	st.Trace(func(_ uint64, statement string) {
		if strings.Contains(statement, "api_keys") {
			reads.Add(1)
		}
	})
	cfg, clock := testConfig()
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	ctx := t.Context()
	good := newKey(t, a, KeyParams{})
	revoked := newKey(t, a, KeyParams{})
	ended := newKey(t, a, KeyParams{ExpiresAt: clock.now().Add(time.Minute)})
	must.Get(a.EndKey(ctx, revoked.Address, revoked.ID))(t)
	clock.add(time.Hour)
	other := toll.NewHash().String()
	unknown := signed(ownKey(), ownHeader, strings.Replace(payloadOf(t, jwtOf(good)), good.ID.String(), other, 1))
	_, stranger, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	badKnown := signed(stranger, ownHeader, payloadOf(t, jwtOf(good)))
	badUnknown := signed(stranger, ownHeader, payloadOf(t, unknown))

	for name, set := range map[string]map[string]string{
		"well signed":  {"unknown": unknown, "revoked": jwtOf(revoked), "expired": jwtOf(ended)},
		"badly signed": {"known": badKnown, "unknown": badUnknown},
	} {
		want := toll.CodeNotAuthenticated
		if name == "badly signed" {
			want = toll.CodeKeyForeign
		}
		bodies := map[string]bool{}
		for kind, jwt := range set {
			clock.add(2 * time.Second) // past the life of cached rows
			for _, cached := range []bool{false, true} {
				reads.Store(0)
				_, err := a.Authenticate(ctx, []string{"Bearer " + jwt})
				if got := code(t, err); got != want {
					t.Fatalf("%s, %s: %q, want %q", name, kind, got, want)
				}
				body, err := json.Marshal(toll.AsError(err).Body("", ""))
				must.Do(t, err)
				bodies[string(body)] = true
				if stored := name == "well signed" && !cached; stored != (reads.Load() > 0) {
					t.Errorf("%s, %s, cached %t: %d statements", name, kind, cached, reads.Load())
				}
			}
		}
		if len(bodies) != 1 {
			t.Errorf("%s: %d different responses", name, len(bodies))
		}
	}
	if got := try(t, a, "Bearer "+good.Key); got != "" {
		t.Errorf("the good key: %s", got)
	}
}

// TestLastUse_Stopped: a turn that has uses in hand when the service stops writes them.
func TestLastUse_Stopped(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a := start(t, st, cfg)
		stop(t, a)
		k := newKey(t, a, KeyParams{})
		if got := try(t, a, "Bearer "+k.Key); got != "" {
			t.Fatal(got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.writeUses(ctx); err != nil {
			t.Error(err)
		}
		if row, err := store.APIKeyByID(t.Context(), st, k.ID); err != nil || !row.LastUsedAt.Equal(clock.now()) {
			t.Errorf("last use %v, %v", row, err)
		}
	})
}

func TestLastUse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a := start(t, st, cfg)
		k := newKey(t, a, KeyParams{})
		used := func() time.Time {
			t.Helper()
			row := must.Get(store.APIKeyByID(t.Context(), st, k.ID))(t)
			return row.LastUsedAt
		}
		began := clock.now()
		for range 59 {
			if got := try(t, a, "Bearer "+k.Key); got != "" {
				t.Fatal(got)
			}
			clock.add(time.Second)
		}
		wait := func(want time.Time) {
			t.Helper()
			for end := time.Now().Add(2 * time.Minute); !used().Equal(want); time.Sleep(2 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("last use %v, want %v", used(), want)
				}
			}
		}
		wait(began)
		clock.add(time.Second)
		second := clock.now()
		for range 30 {
			if got := try(t, a, "Bearer "+k.Key); got != "" {
				t.Fatal(got)
			}
			clock.add(time.Second)
		}
		wait(second)
		clock.add(time.Minute)
		last := clock.now()
		if got := try(t, a, "Bearer "+k.Key); got != "" {
			t.Fatal(got)
		}
		stop(t, a) // writes what waits
		if !used().Equal(last) {
			t.Errorf("last use %v after the end, want %v", used(), last)
		}
	})
}

// Keys that this service did not sign cause no query, and a signed one causes one a second.
func TestQueriesOfAuthenticate(t *testing.T) {
	st := must.Get(store.Open(t.Context(), store.Config{Data: storetest.Dir(t)}))(t)
	cfg, clock := testConfig()
	a := must.Get(Bootstrap(t.Context(), st, ring(), cfg))(t)
	k := newKey(t, a, KeyParams{})
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Fatal(got)
	}
	stop(t, a)
	if err := st.Close(); err != nil { // from here on a query fails
		t.Fatal(err)
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	for range 100 {
		forged := strings.Replace(payloadOf(t, jwtOf(k)), k.ID.String(), toll.NewHash().String(), 1)
		for _, kid := range []string{a.keys().keys[0].id, "unknown"} {
			if got := try(t, a, "Bearer "+signed(stranger, `{"alg":"EdDSA","typ":"JWT","kid":"`+kid+`"}`, forged)); got != toll.CodeKeyForeign {
				t.Fatal(got)
			}
		}
	}
	clock.add(999 * time.Millisecond)
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Errorf("within a second: %s", got)
	}
	clock.add(time.Millisecond)
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + k.Key}); err == nil || errors.Is(err, toll.ErrNotAuthenticated) {
		t.Errorf("after a second without a database: %v", err)
	}
}

func BenchmarkAuthenticateHit(b *testing.B) {
	a, _ := known(b)
	for _, form := range []toll.KeyForm{toll.KeyLong, toll.KeyShort} {
		k := newKey(b, a, KeyParams{Form: form})
		lines := []string{"Bearer " + k.Key}
		b.Run(string(form), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					must.Get(a.Authenticate(context.Background(), lines))(b)
				}
			})
		})
	}
}

// BenchmarkAuthenticateForged is the price of a key with a wrong signature or MAC, after so many rotations of the signing key.
func BenchmarkAuthenticateForged(b *testing.B) {
	a, _ := known(b)
	for generations := 1; generations <= 100; generations += 99 {
		for len(a.keys().keys) < generations {
			must.Get(a.AddSigningKey(context.Background()))(b)
		}
		for _, form := range []toll.KeyForm{toll.KeyLong, toll.KeyShort} {
			k := newKey(b, a, KeyParams{Form: form})
			lines := []string{"Bearer " + k.Key[:len(k.Key)-8] + "AAAAAAAA"}
			b.Run(fmt.Sprintf("%s/%d", form, generations), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := a.Authenticate(context.Background(), lines); err == nil {
						b.Fatal("a forged key passes")
					}
				}
			})
		}
	}
}
