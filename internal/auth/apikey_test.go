package auth

import (
	"bytes"
	"context"
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
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func newKey(t testing.TB, a *Auth, p KeyParams) toll.APIKey {
	t.Helper()
	owner := must.Get(a.CreatePrincipal(context.Background(), "owner"))(t)
	return must.Get(a.CreateKey(context.Background(), Local(owner), p, nil))(t)
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
		must.Do(t, json.Unmarshal([]byte(payloadOf(t, jwtOf(k))), &claims))
		word, _ := claims["o11y"].(string)
		if claims["iss"] != testIssuer || claims["sub"] != k.Address.String() || claims["jti"] != k.ID.String() || word == "" ||
			claims["iat"] != float64(issuedAt+100) || fmt.Sprint(claims["svc"]) != "map[environment:sandbox]" || len(claims) != 6 {
			t.Errorf("claims %v", claims)
		}
		caller, err := a.Authenticate(ctx, []string{"Bearer " + k.Key})
		if err != nil || caller.Address != k.Address || caller.KeyID != k.ID || caller.Version != "1.1" {
			t.Fatalf("caller %+v, %v", caller, err)
		}

		short, err := a.CreateKey(ctx, Local(k.Address), KeyParams{ExpiresAt: clock.now().Add(90*time.Second + 700*time.Millisecond), Version: "1.0", Prefix: "sandbox"}, nil)
		if err != nil || short.Version != "1.0" || short.Name != nil || !strings.HasPrefix(short.Key, "sandbox:") {
			t.Fatalf("second key %+v, %v", short, err)
		}
		if !strings.Contains(payloadOf(t, jwtOf(short)), fmt.Sprintf(`"exp":%d,`, short.ExpiresAt.Unix())) || short.ExpiresAt.Nanosecond() != 0 {
			t.Errorf("end %v of %s", short.ExpiresAt, payloadOf(t, jwtOf(short)))
		}
		for name, p := range map[string]KeyParams{
			"ended": {ExpiresAt: clock.now().Add(-time.Second)}, "ends now": {ExpiresAt: clock.now()}, "ends in half a second": {ExpiresAt: clock.now().Add(500 * time.Millisecond)},
		} {
			if _, err := a.CreateKey(ctx, Local(k.Address), p, nil); code(t, err) != toll.CodeKeyExpiryPast {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, p := range map[string]KeyParams{"prefix": {Prefix: "other"}, "other environment": {Prefix: "live"}, "name": {Name: strings.Repeat("n", 101)}} {
			if _, err := a.CreateKey(ctx, Local(k.Address), p, nil); code(t, err) != toll.CodeBadRequest {
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

		stranger := must.Get(a.CreatePrincipal(ctx, "stranger"))(t)
		if list, err := a.Keys(ctx, stranger, store.Page{}); err != nil || list.Total != 0 {
			t.Errorf("list of a stranger: %+v, %v", list, err)
		}
		pin := "1.0"
		for who, id := range map[toll.Address]toll.Hash{stranger: k.ID, k.Address: toll.NewHash()} {
			_, e1 := a.Key(ctx, who, id)
			_, e2 := a.UpdateKey(ctx, who, id, KeyUpdate{Version: &pin})
			_, e3 := a.EndKey(ctx, who, id)
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

		if r, err := a.EndKey(ctx, k.Address, k.ID); err != nil || r.Status != toll.StatusRevoked {
			t.Errorf("revoke: %+v, %v", r, err)
		}
		if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("after revocation: %q", got)
		}
		if _, err := a.EndKey(ctx, k.Address, k.ID); code(t, err) != toll.CodeKeyAlreadyRevoked {
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
		if _, err := a.EndKey(t.Context(), k.Address, k.ID); err != nil {
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
		_, err := a.EndKey(ctx, k.Address, k.ID)
		return err
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("revocation beside a read: %v", err)
	}
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Errorf("the key: %s", got)
	}
	if _, err := a.EndKey(t.Context(), k.Address, k.ID); err != nil {
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
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE api_keys SET expires_at = 0")
		return err
	}))
	clock.add(2 * time.Minute)
	if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
		t.Errorf("after the signed end: %q", got)
	}

	must.Get(a.AddSigningKey(t.Context()))(t)
	later := newKey(t, a, KeyParams{})
	for _, key := range []toll.APIKey{lasting, later} {
		if got := try(t, a, "Bearer "+key.Key); got != "" {
			t.Fatal(got)
		}
	}
	must.Do(t, a.RetireSigningKey(t.Context(), testKID, clock.now()))
	for _, when := range []string{"remembered", "read again"} {
		if got := try(t, a, "Bearer "+lasting.Key); got != "" {
			t.Errorf("%s: signed before the retirement: %s", when, got)
		}
		if got := try(t, a, "Bearer "+later.Key); got != toll.CodeKeyForeign {
			t.Errorf("%s: signed at the retirement: %q", when, got)
		}
		a.keys().signatures.Clear()
	}
}

// T19
func TestSecretReadBack(t *testing.T) {
	dir := t.TempDir()
	st := must.Get(store.Open(t.Context(), store.Config{Data: dir}))(t)
	cfg, _ := testConfig()
	var lines strings.Builder
	cfg.Log = logTo(&lines)
	a := must.Get(Bootstrap(t.Context(), st, ring(), cfg))(t)
	k := newKey(t, a, KeyParams{Name: "shown once"})
	jwt := jwtOf(k)
	short := newKey(t, a, KeyParams{Form: toll.KeyShort})
	_, raw, _ := toll.ParseShortKey(short.Key)
	secrets := map[string][]byte{
		"short key": []byte(short.Key[:len(short.Key)-6]), "its random bytes": raw[:16], "key": []byte(jwt), "signature": []byte(jwt[strings.LastIndexByte(jwt, '.')+1:]),
	}
	sum := sha256.Sum256([]byte(jwt))

	row, err := store.APIKeyByID(t.Context(), st, k.ID)
	if err != nil || !bytes.Equal(row.Hash, sum[:]) {
		t.Errorf("the store does not hold the hash: %v", err)
	}
	one, err1 := a.Key(t.Context(), k.Address, k.ID)
	list, err2 := a.Keys(t.Context(), k.Address, store.Page{})
	name := "renamed"
	updated, err3 := a.UpdateKey(t.Context(), k.Address, k.ID, KeyUpdate{SetName: true, Name: &name})
	gone, err4 := a.EndKey(t.Context(), k.Address, k.ID)
	must.Do(t, errors.Join(err1, err2, err3, err4))
	shown := must.Get(json.Marshal([]any{one, list, updated, gone}))(t)
	if one.Key+updated.Key+list.Items[0].Key != "" || bytes.Contains(shown, []byte(`"key"`)) {
		t.Error("the key is read back")
	}
	// The tail of six characters is public on purpose.
	var wallets, seeds [][]byte
	for _, set := range a.keys().keys {
		seeds = append(seeds, set.private.Seed(), set.short.mac, set.short.record)
	}
	p := must.Get(store.PrincipalByAddress(t.Context(), st, k.Address))(t)
	wallet := must.Get(ring().Open(p.SealedKey, a.aad("wallet", p.Address.Lower())))(t)
	wallets = append(wallets, wallet)
	for _, raw := range slices.Concat(seeds, wallets, [][]byte{a.MACKey(), testMaster[:]}) {
		secrets["raw "+base64.StdEncoding.EncodeToString(raw[:3])] = raw
	}
	stop(t, a)
	must.Do(t, st.Close())
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		data := must.Get(os.ReadFile(f))(t)
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
	must.Do(t, err)
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	k := newKey(t, a, KeyParams{})
	short := newKey(t, a, KeyParams{Form: toll.KeyShort})
	token := must.Get(a.SignToken(exampleClaims))(t)
	note := func(err error) {
		for ; err != nil; err = errors.Unwrap(err) {
			fmt.Fprintf(&lines, "%v %+v\n", err, err)
		}
	}
	text := []string{k.Key, token, jwtOf(k), token[:len(token)-3], "live:" + jwtOf(k), k.Key + "x", k.Key + ":" + k.Key, "a b " + k.Key, short.Key, "live:" + short.Key, short.Key + "x", short.Key[:40] + "AAA"}
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
	must.Do(t, st.Close())
	clock.add(time.Hour) // every cache ends, every write fails
	_, err = a.Authenticate(t.Context(), []string{"Bearer " + k.Key})
	note(err)
	_, err = a.CreateKey(t.Context(), Local(k.Address), KeyParams{}, nil)
	note(err)
	_, err = a.CreatePrincipal(t.Context(), "x")
	note(err)
	_, err = a.AddSigningKey(t.Context())
	note(err)
	stop(t, a)
	if !strings.Contains(lines.String(), "signing keys could not be reloaded") {
		t.Errorf("nothing was logged, so nothing is tested:\n%s", lines.String())
	}
	seed := base64.RawURLEncoding.EncodeToString(testSeed)
	for what, secret := range map[string]string{
		"short key": short.Key[11:31], "API key": jwtOf(k)[20:60], "its payload": strings.Split(jwtOf(k), ".")[1][:40], "its signature": strings.Split(jwtOf(k), ".")[2][:20],
		"token payload": strings.Split(token, ".")[1][:40], "token signature": strings.Split(token, ".")[2][:20],
		"seed": seed, "seed in hexadecimal": fmt.Sprintf("%x", testSeed), "MAC key": fmt.Sprintf("%x", a.MACKey()),
		"seed as numbers": fmt.Sprint(testSeed[:8]),
	} {
		if strings.Contains(lines.String(), strings.Trim(secret, "[]")) {
			t.Errorf("%s in a line", what)
		}
	}
}
