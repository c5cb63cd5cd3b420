package auth

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Tokens and API keys that the first signing key signed before its retirement work after two rotations and after a restart. A retired
// key signs nothing that is accepted.
// T18
func TestRetiredTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a := start(t, st, cfg)
		token := func(at time.Time) Claims {
			c := exampleClaims
			c.Hash, c.IssuedAt, c.ExpiresAt = toll.NewHash(), at.Truncate(time.Second), clock.now().Add(30*24*time.Hour)
			return c
		}
		sign := func(c Claims) string {
			t.Helper()
			return must.Get(a.SignToken(c))(t)
		}
		key := newKey(t, a, KeyParams{})
		jws := sign(token(clock.now()))
		var retired []*signingKey
		for range 2 {
			retired = append(retired, a.keys().keys[len(retired)])
			r := must.Get(a.RotateKey(t.Context(), ""))(t)
			clock.add(r.At.Sub(clock.now()) + time.Minute)
		}
		// forge signs with a retired key, as a thief of the key would.
		forge := func(k *signingKey) string {
			c := token(clock.now())
			c.Issuer, c.Audience = a.Issuer(), []string{audienceOf(a.Issuer())}
			payload := must.Get(c.encode())(t)
			return k.sign(payload)
		}
		for _, when := range []string{"remembered", "after a restart"} {
			if _, err := a.VerifyToken(jws); err != nil {
				t.Errorf("%s: a token of the first key: %v", when, err)
			}
			if got := try(t, a, "Bearer "+key.Key); got != "" {
				t.Errorf("%s: an API key of the first key: %s", when, got)
			}
			for i, k := range retired {
				if _, err := a.VerifyToken(forge(k)); !errors.Is(err, toll.NewError(toll.CodeTokenSignature)) {
					t.Errorf("%s: retired key %d signs: %v", when, i, err)
				}
			}
			if _, err := a.VerifyToken(sign(token(clock.now()))); err != nil {
				t.Errorf("%s: a token of the present key: %v", when, err)
			}
			a = start(t, st, cfg)
		}
	})
}

// A check that began before its signing key ended may still accept, but leaves nothing for later checks.
func TestSigningKeyEndsDuringCheck(t *testing.T) {
	apiKey := func(form toll.KeyForm) func(*testing.T, *Auth) func() error {
		return func(t *testing.T, a *Auth) func() error {
			k := newKey(t, a, KeyParams{Form: form})
			return func() error { return second(a.Authenticate(t.Context(), []string{"Bearer " + k.Key})) }
		}
	}
	for what, c := range map[string]struct {
		checkOf func(*testing.T, *Auth) func() error
		want    toll.Code
	}{
		"access token": {func(t *testing.T, a *Auth) func() error {
			return func() error { return second(a.VerifyToken(exampleJWS)) }
		}, toll.CodeTokenSignature},
		"long API key":  {apiKey(toll.KeyLong), toll.CodeKeyForeign},
		"short API key": {apiKey(toll.KeyShort), toll.CodeKeyForeign},
	} {
		t.Run(what, func(t *testing.T) {
			a, clock := known(t)
			check := c.checkOf(t, a)
			readings := 0
			a.clock = func() time.Time {
				if readings++; readings == 2 { // in Auth.keys, which has loaded the set
					must.Get(a.EndSigningKey(t.Context(), "", testKID))(t)
				}
				return clock.now()
			}
			if got := code(t, check()); got != "" {
				t.Errorf("the check that began before the end: %s", got)
			}
			if got := code(t, check()); got != c.want {
				t.Errorf("the next check: %q, want %q", got, c.want)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// A token that was verified is remembered with its times: after the clock was set back it is refused as issued in the future.
// T06
func TestRememberedTokenOfTheFuture(t *testing.T) {
	st := sqliteStore(t)
	cfg, clock := testConfig()
	a := start(t, st, cfg)
	c := exampleClaims
	c.Hash, c.IssuedAt, c.ExpiresAt = toll.NewHash(), time.Time{}, clock.now().Add(time.Hour)
	jws := must.Get(a.SignToken(c))(t)
	for _, s := range []struct {
		move time.Duration
		want toll.Code
	}{{0, ""}, {-2 * time.Minute, toll.CodeTokenSignature}, {2 * time.Minute, ""}, {time.Hour - time.Second, ""}, {time.Second, toll.CodePermissionExpired}} {
		clock.add(s.move)
		_, err := a.VerifyToken(jws)
		if s.want == "" && err != nil || s.want != "" && !errors.Is(err, toll.NewError(s.want)) {
			t.Errorf("%s later: %v, want %q", s.move, err, s.want)
		}
	}
}

// A rotation and a change of an API key look at the key again under its lock: a key that was revoked after the first look gets no
// successor.
func TestRotateAPIKey_RevokedMeanwhile(t *testing.T) {
	st := sqliteStore(t)
	cfg, clock := testConfig()
	var asked atomic.Int64
	cfg.Clock = func() time.Time { asked.Add(1); return clock.now() }
	a := start(t, st, cfg)
	k := newKey(t, a, KeyParams{})
	slot := a.reads[k.ID[0]%keyLocks]
	slot <- struct{}{} // as a call does that changes this key
	before := asked.Load()
	done := make(chan error)
	go func() {
		caller := Caller{Address: k.Address, Rights: toll.AllRights()}
		_, err := a.RotateAPIKey(context.WithoutCancel(t.Context()), caller, k.ID, time.Hour, nil)
		done <- err
	}()
	for asked.Load() < before+3 { // it has read the key and signed the new one
		time.Sleep(time.Millisecond)
	}
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := store.RevokeAPIKey(t.Context(), tx, k.ID, clock.now())
		return err
	}))
	<-slot
	if err := <-done; !errors.Is(err, toll.NewError(toll.CodeKeyAlreadyRevoked)) {
		t.Errorf("the rotation says %v", err)
	}
	all, err := a.Keys(t.Context(), k.Address, store.Page{Size: 10})
	if err != nil || len(all.Items) != 1 {
		t.Errorf("%d keys, %v", len(all.Items), err)
	}
}

// An API key ends at the second that is signed in it, whatever its row says, and its row must be of the workspace that is signed in it.
func TestAPIKey_RowAgainstClaims(t *testing.T) {
	st := sqliteStore(t)
	cfg, clock := testConfig()
	a := start(t, st, cfg)
	change := func(statement string) {
		t.Helper()
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(t.Context(), statement)
			return err
		}))
	}
	ending := newKey(t, a, KeyParams{ExpiresAt: clock.now().Truncate(time.Second).Add(time.Minute)})
	other := newKey(t, a, KeyParams{})
	change("UPDATE api_keys SET expires_at = 0")
	clock.add(ending.ExpiresAt.Sub(clock.now()) - time.Millisecond)
	if got := try(t, a, "Bearer "+ending.Key); got != "" {
		t.Errorf("before the signed end: %s", got)
	}
	clock.add(time.Millisecond)
	if got := try(t, a, "Bearer "+ending.Key); got != toll.CodeNotAuthenticated {
		t.Errorf("at the signed end: %q", got)
	}
	if got := try(t, a, "Bearer "+other.Key); got != "" {
		t.Errorf("the row as it was: %s", got)
	}
	change("UPDATE api_keys SET address = '0x00000000000000000000000000000000000000aa'")
	a = start(t, st, cfg)
	if got := try(t, a, "Bearer "+other.Key); got != toll.CodeNotAuthenticated {
		t.Errorf("a row of another workspace: %q", got)
	}
}

// A suspended key stays suspended when another key of the workspace rotates it.
func TestRotateAPIKey_Suspended(t *testing.T) {
	st := sqliteStore(t)
	cfg, _ := testConfig()
	a := start(t, st, cfg)
	k := newKey(t, a, KeyParams{})
	must.Get(a.Suspend(t.Context(), k.ID.String(), true))(t)
	rotated := must.Get(a.RotateAPIKey(t.Context(), Caller{Address: k.Address, Rights: toll.AllRights()}, k.ID, 0, nil))(t)
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + rotated.Key}); err == nil || toll.AsError(err).HTTPStatus() != 401 {
		t.Errorf("the new key of a suspended key: %v", err)
	}
}
