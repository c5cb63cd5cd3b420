package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func newKey(t testing.TB, a *Auth, p KeyParams) toll.APIKey {
	t.Helper()
	owner, err := a.CreatePrincipal(context.Background(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	k, err := a.CreateKey(context.Background(), owner, p)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func try(t testing.TB, a *Auth, lines ...string) toll.Code {
	t.Helper()
	_, err := a.Authenticate(context.Background(), lines)
	return code(t, err)
}

func jwtOf(k toll.APIKey) string { return k.Key[strings.IndexByte(k.Key, ':')+1:] }

func payloadOf(t testing.TB, jws string) string {
	t.Helper()
	_, segment, _, ok := splitCompact(jws)
	body, ok2 := decodeSegment(segment)
	if !ok || !ok2 {
		t.Fatal("not a JWS")
	}
	return string(body)
}

func TestAPIKeyLife(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		cfg, clock := testConfig()
		cfg.Prefix, cfg.Version = "acme-1", "1.1"
		a := start(t, st, cfg)
		k := newKey(t, a, KeyParams{Name: "first"})
		if !strings.HasPrefix(k.Key, "acme-1:ey") || k.Prefix != "acme-1" || k.Tail != k.Key[len(k.Key)-6:] ||
			k.Name == nil || *k.Name != "first" || k.Version != "1.1" || k.Status != toll.StatusActive || k.ExpiresAt != nil || k.LastUsedAt != nil {
			t.Errorf("record %+v", k)
		}
		var claims map[string]any
		if err := json.Unmarshal([]byte(payloadOf(t, jwtOf(k))), &claims); err != nil {
			t.Fatal(err)
		}
		word, _ := claims["o11y"].(string)
		if claims["iss"] != testIssuer || claims["sub"] != k.Address.String() || claims["jti"] != k.ID.String() || word == "" ||
			claims["iat"] != float64(issuedAt+100) || fmt.Sprint(claims["svc"]) != "map[environment:sandbox]" || len(claims) != 6 {
			t.Errorf("claims %v", claims)
		}
		caller, err := a.Authenticate(ctx, []string{"Bearer " + k.Key})
		if err != nil || caller != (Caller{k.Address, k.ID, "1.1"}) {
			t.Fatalf("caller %+v, %v", caller, err)
		}

		short, err := a.CreateKey(ctx, k.Address, KeyParams{ExpiresAt: clock.now().Add(90*time.Second + 700*time.Millisecond), Version: "1.0", Prefix: "sandbox"})
		if err != nil || short.Version != "1.0" || short.Name != nil || !strings.HasPrefix(short.Key, "sandbox:") {
			t.Fatalf("second key %+v, %v", short, err)
		}
		if !strings.Contains(payloadOf(t, jwtOf(short)), fmt.Sprintf(`"exp":%d,`, short.ExpiresAt.Unix())) || short.ExpiresAt.Nanosecond() != 0 {
			t.Errorf("end %v of %s", short.ExpiresAt, payloadOf(t, jwtOf(short)))
		}
		for name, p := range map[string]KeyParams{
			"ended": {ExpiresAt: clock.now().Add(-time.Second)}, "ends now": {ExpiresAt: clock.now()}, "ends in half a second": {ExpiresAt: clock.now().Add(500 * time.Millisecond)},
		} {
			if _, err := a.CreateKey(ctx, k.Address, p); code(t, err) != toll.CodeKeyExpiryPast {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, p := range map[string]KeyParams{"prefix": {Prefix: "other"}, "other environment": {Prefix: "live"}, "name": {Name: strings.Repeat("n", 101)}} {
			if _, err := a.CreateKey(ctx, k.Address, p); code(t, err) != toll.CodeBadRequest {
				t.Errorf("%s: %v", name, err)
			}
		}

		clock.add(89 * time.Second)
		if got := try(t, a, "Bearer "+short.Key); got != "" {
			t.Errorf("a second before the end: %s", got)
		}
		clock.add(time.Second)
		if got := try(t, a, "Bearer "+short.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("at the end: %s", got)
		}

		list, err := a.Keys(ctx, k.Address, store.Page{})
		if err != nil || list.Total != 2 || len(list.Items) != 2 {
			t.Fatalf("list %+v, %v", list, err)
		}
		status := map[toll.Hash]toll.PermissionStatus{}
		for _, item := range list.Items {
			status[item.ID] = item.Status
		}
		if status[k.ID] != toll.StatusActive || status[short.ID] != toll.StatusExpired {
			t.Errorf("statuses %v", status)
		}

		stranger, err := a.CreatePrincipal(ctx, "stranger")
		if err != nil {
			t.Fatal(err)
		}
		if list, err := a.Keys(ctx, stranger, store.Page{}); err != nil || list.Total != 0 {
			t.Errorf("list of a stranger: %+v, %v", list, err)
		}
		pin := "1.0"
		for who, id := range map[toll.Address]toll.Hash{stranger: k.ID, k.Address: toll.NewHash()} {
			_, e1 := a.Key(ctx, who, id)
			_, e2 := a.UpdateKey(ctx, who, id, KeyUpdate{Version: &pin})
			_, e3 := a.RevokeKey(ctx, who, id)
			if code(t, e1) != toll.CodeKeyNotFound || code(t, e2) != toll.CodeKeyNotFound || code(t, e3) != toll.CodeKeyNotFound {
				t.Errorf("foreign or unknown key: %v, %v, %v", e1, e2, e3)
			}
		}

		if _, err := a.UpdateKey(ctx, k.Address, k.ID, KeyUpdate{}); code(t, err) != toll.CodeKeyNothingToUpdate {
			t.Errorf("empty update: %v", err)
		}
		if u, err := a.UpdateKey(ctx, k.Address, k.ID, KeyUpdate{Version: &pin}); err != nil || u.Version != "1.0" || *u.Name != "first" {
			t.Errorf("pin: %+v, %v", u, err)
		}
		if caller, err := a.Authenticate(ctx, []string{"Bearer " + k.Key}); err != nil || caller.Version != "1.0" {
			t.Errorf("the pin is not effective at once: %+v, %v", caller, err)
		}
		if u, err := a.UpdateKey(ctx, k.Address, k.ID, KeyUpdate{SetName: true}); err != nil || u.Name != nil {
			t.Errorf("name cleared: %+v, %v", u, err)
		}
		long := strings.Repeat("n", 101)
		if _, err := a.UpdateKey(ctx, k.Address, k.ID, KeyUpdate{SetName: true, Name: &long}); code(t, err) != toll.CodeBadRequest {
			t.Errorf("long name: %v", err)
		}

		if r, err := a.RevokeKey(ctx, k.Address, k.ID); err != nil || r.Status != toll.StatusRevoked {
			t.Errorf("revoke: %+v, %v", r, err)
		}
		if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("after revocation: %q", got)
		}
		if _, err := a.RevokeKey(ctx, k.Address, k.ID); code(t, err) != toll.CodeKeyAlreadyRevoked {
			t.Errorf("again: %v", err)
		}
	})
}

// While callers use a key, its revocation takes effect at once in the process that does it, and within a second in others.
func TestRevocationUnderLoad(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a, b := start(t, st, cfg), start(t, st, cfg)
		k := newKey(t, a, KeyParams{})
		stopLoad := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					select {
					case <-stopLoad:
						return
					default:
					}
					clock.add(200 * time.Millisecond) // snapshots end all the time
					_, _ = a.Authenticate(context.Background(), []string{"Bearer " + k.Key})
				}
			})
		}
		if got := try(t, b, "Bearer "+k.Key); got != "" {
			t.Error(got)
		}
		if _, err := a.RevokeKey(t.Context(), k.Address, k.ID); err != nil {
			t.Error(err)
		}
		for range 200 {
			if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
				t.Errorf("after revocation here: %q", got)
				break
			}
		}
		close(stopLoad)
		wg.Wait()
		clock.add(time.Second)
		if got := try(t, b, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("a second after revocation elsewhere: %q", got)
		}
	})
}

// A change of a key waits for a read of the same key, which would otherwise put the older row into the cache after it.
func TestChangeWaitsForRead(t *testing.T) {
	a, _ := known(t)
	k := newKey(t, a, KeyParams{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := a.alone(t.Context(), k.ID, func() error {
		_, err := a.RevokeKey(ctx, k.Address, k.ID)
		return err
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("revocation beside a read: %v", err)
	}
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Errorf("the key: %s", got)
	}
	if _, err := a.RevokeKey(t.Context(), k.Address, k.ID); err != nil {
		t.Error(err)
	}
}

// The end that was signed counts, whatever the row says, and so does the retirement of the key that signed.
func TestSignedEndAndRetiredSigner(t *testing.T) {
	st := sqliteStore(t)
	cfg, clock := testConfig()
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	k := newKey(t, a, KeyParams{ExpiresAt: clock.now().Add(time.Minute)})
	lasting := newKey(t, a, KeyParams{})
	if err := st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE api_keys SET expires_at = 0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	clock.add(2 * time.Minute)
	if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
		t.Errorf("after the signed end: %q", got)
	}

	if _, err := a.AddSigningKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	later := newKey(t, a, KeyParams{})
	for _, key := range []toll.APIKey{lasting, later} {
		if got := try(t, a, "Bearer "+key.Key); got != "" {
			t.Fatal(got)
		}
	}
	if err := a.RetireSigningKey(t.Context(), testKID, clock.now()); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"remembered", "read again"} {
		if got := try(t, a, "Bearer "+lasting.Key); got != "" {
			t.Errorf("%s: signed before the retirement: %s", when, got)
		}
		if got := try(t, a, "Bearer "+later.Key); got != toll.CodeKeyForeign {
			t.Errorf("%s: signed at the retirement: %q", when, got)
		}
		a.signatures.clear()
	}
}

func TestT09_EnvironmentMix(t *testing.T) {
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
		jws, err := sandbox.SignToken(exampleClaims)
		if err != nil {
			t.Fatal(err)
		}
		refusedToken(t, live, name+": sandbox token", jws)
		c := exampleClaims
		c.Issuer, c.Audience, c.Network = "", nil, toll.Live.Network()
		if jws, err = live.SignToken(c); err != nil {
			t.Fatal(err)
		}
		if _, err := live.VerifyToken(jws); err != nil {
			t.Errorf("%s: live token at home: %v", name, err)
		}
		refusedToken(t, sandbox, name+": live token", jws)
	}
}

func TestT15_APIKeySyntax(t *testing.T) {
	a, _ := known(t)
	k := newKey(t, a, KeyParams{})
	jwt := jwtOf(k)
	access, err := a.SignToken(exampleClaims)
	if err != nil {
		t.Fatal(err)
	}
	claims := payloadOf(t, jwt)
	drop := func(member string) string {
		t.Helper()
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(claims), &m); err != nil || m[member] == nil {
			t.Fatalf("%v, %s", err, claims)
		}
		delete(m, member)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
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

func TestT16_ExistenceOracle(t *testing.T) {
	st := sqliteStore(t)
	cfg, clock := testConfig()
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	ctx := t.Context()
	good := newKey(t, a, KeyParams{})
	revoked := newKey(t, a, KeyParams{})
	ended := newKey(t, a, KeyParams{ExpiresAt: clock.now().Add(time.Minute)})
	if _, err := a.RevokeKey(ctx, revoked.Address, revoked.ID); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Hour)
	other := toll.NewHash().String()
	unknown := signed(ownKey(), ownHeader, strings.Replace(payloadOf(t, jwtOf(good)), good.ID.String(), other, 1))
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
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
		for _, cold := range []bool{false, true} {
			const samples = 2000
			times := map[string][]time.Duration{}
			bodies := map[string]bool{}
			for i := range samples {
				for kind, jwt := range set { // in random order
					if cold && i%8 == 0 { // the store is asked
						clock.add(2 * time.Second)
					} else if cold {
						continue
					}
					began := time.Now()
					_, err := a.Authenticate(ctx, []string{"Bearer " + jwt})
					times[kind] = append(times[kind], time.Since(began))
					if got := code(t, err); got != want {
						t.Fatalf("%s, %s: %q, want %q", name, kind, got, want)
					}
					body, err := json.Marshal(toll.AsError(err).Body("", ""))
					if err != nil {
						t.Fatal(err)
					}
					bodies[string(body)] = true
				}
			}
			if len(bodies) != 1 {
				t.Errorf("%s: %d different answers", name, len(bodies))
			}
			var low, high time.Duration
			for kind, all := range times {
				slices.Sort(all)
				median := all[len(all)/2]
				t.Logf("%s, cold %t, %s: median %v", name, cold, kind, median)
				if low == 0 || median < low {
					low = median
				}
				high = max(high, median)
			}
			if high > 3*low {
				t.Errorf("%s, cold %t: medians from %v to %v", name, cold, low, high)
			}
		}
	}
	if got := try(t, a, "Bearer "+good.Key); got != "" {
		t.Errorf("the good key: %s", got)
	}
}

func TestT19_SecretReadBack(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), store.Config{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	cfg, _ := testConfig()
	var lines strings.Builder
	cfg.Log = logTo(&lines)
	a, err := Bootstrap(t.Context(), st, ring(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := newKey(t, a, KeyParams{Name: "shown once"})
	jwt := jwtOf(k)
	secrets := map[string][]byte{"key": []byte(jwt), "signature": []byte(jwt[strings.LastIndexByte(jwt, '.')+1:])}
	sum := sha256.Sum256([]byte(jwt))

	row, err := store.APIKeyByID(t.Context(), st, k.ID)
	if err != nil || !bytes.Equal(row.Hash, sum[:]) {
		t.Errorf("the store does not hold the hash: %v", err)
	}
	one, err1 := a.Key(t.Context(), k.Address, k.ID)
	list, err2 := a.Keys(t.Context(), k.Address, store.Page{})
	name := "renamed"
	updated, err3 := a.UpdateKey(t.Context(), k.Address, k.ID, KeyUpdate{SetName: true, Name: &name})
	gone, err4 := a.RevokeKey(t.Context(), k.Address, k.ID)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal([]any{one, list, updated, gone})
	if err != nil {
		t.Fatal(err)
	}
	if one.Key+updated.Key+gone.Key+list.Items[0].Key != "" || bytes.Contains(shown, []byte(`"key"`)) {
		t.Error("the key is read back")
	}
	// The tail of six characters is public on purpose.
	var wallets, seeds [][]byte
	for _, set := range a.keys().keys {
		seeds = append(seeds, set.private.Seed())
	}
	p, err := store.PrincipalByAddress(t.Context(), st, k.Address)
	if err != nil {
		t.Fatal(err)
	}
	wallet, err := ring().Open(p.SealedKey, a.walletAAD(p.Address))
	if err != nil {
		t.Fatal(err)
	}
	wallets = append(wallets, wallet)
	for _, raw := range slices.Concat(seeds, wallets, [][]byte{a.MACKey(), testMaster[:]}) {
		secrets["raw "+base64.StdEncoding.EncodeToString(raw[:3])] = raw
	}
	stop(t, a)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for what, secret := range secrets {
			if bytes.Contains(data, secret) {
				t.Errorf("%s in %s", what, filepath.Base(f))
			}
		}
	}
}

func TestNoSecretInLogsAndErrors(t *testing.T) {
	var lines strings.Builder
	cfg, clock := testConfig()
	cfg.Log = logTo(&lines)
	st, err := store.Open(t.Context(), store.Config{Data: t.TempDir(), Log: cfg.Log})
	if err != nil {
		t.Fatal(err)
	}
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	k := newKey(t, a, KeyParams{})
	token, err := a.SignToken(exampleClaims)
	if err != nil {
		t.Fatal(err)
	}
	note := func(err error) {
		for ; err != nil; err = errors.Unwrap(err) {
			fmt.Fprintf(&lines, "%v %+v\n", err, err)
		}
	}
	text := []string{k.Key, token, jwtOf(k), token[:len(token)-3], "live:" + jwtOf(k), k.Key + "x", k.Key + ":" + k.Key, "a b " + k.Key}
	for _, s := range text {
		_, err := a.VerifyToken(s)
		note(err)
		for _, scheme := range []string{"Bearer ", "Basic ", "", "Bearer x:"} {
			_, err := a.Authenticate(t.Context(), []string{scheme + s})
			note(err)
		}
		_, err = DecodeUnverified(s + ".")
		note(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Hour) // every cache ends, every write fails
	_, err = a.Authenticate(t.Context(), []string{"Bearer " + k.Key})
	note(err)
	_, err = a.CreateKey(t.Context(), k.Address, KeyParams{})
	note(err)
	_, err = a.CreatePrincipal(t.Context(), "x")
	note(err)
	_, err = a.AddSigningKey(t.Context())
	note(err)
	stop(t, a)
	if !strings.Contains(lines.String(), "signing keys could not be read") {
		t.Errorf("nothing was logged, so nothing is tested:\n%s", lines.String())
	}
	seed := base64.RawURLEncoding.EncodeToString(testSeed)
	for what, secret := range map[string]string{
		"API key": jwtOf(k)[20:60], "its payload": strings.Split(jwtOf(k), ".")[1][:40], "its signature": strings.Split(jwtOf(k), ".")[2][:20],
		"token payload": strings.Split(token, ".")[1][:40], "token signature": strings.Split(token, ".")[2][:20],
		"seed": seed, "seed in hexadecimal": fmt.Sprintf("%x", testSeed), "MAC key": fmt.Sprintf("%x", a.MACKey()),
		"seed as numbers": fmt.Sprint(testSeed[:8]),
	} {
		if strings.Contains(lines.String(), strings.Trim(secret, "[]")) {
			t.Errorf("%s in a line", what)
		}
	}
}

func TestLastUse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a := start(t, st, cfg)
		k := newKey(t, a, KeyParams{})
		used := func() time.Time {
			t.Helper()
			row, err := store.APIKeyByID(t.Context(), st, k.ID)
			if err != nil {
				t.Fatal(err)
			}
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
			for end := time.Now().Add(5 * time.Second); !used().Equal(want); time.Sleep(2 * time.Millisecond) {
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
	st, err := store.Open(t.Context(), store.Config{Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cfg, clock := testConfig()
	a, err := Bootstrap(t.Context(), st, ring(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := newKey(t, a, KeyParams{})
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Fatal(got)
	}
	stop(t, a)
	if err := st.Close(); err != nil { // from here on a query fails
		t.Fatal(err)
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
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
	k := newKey(b, a, KeyParams{})
	lines := []string{"Bearer " + k.Key}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.Authenticate(context.Background(), lines); err != nil {
				b.Fatal(err)
			}
		}
	})
}
