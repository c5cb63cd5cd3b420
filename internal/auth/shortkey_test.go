package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var shortText = regexp.MustCompile(`^tk_sandbox_[A-Za-z0-9_-]{32}$`)

// A short key lives as a long one does: it ends, is changed, rotated, suspended, and revoked in the same way.
func TestShortKeyLife(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		cfg, clock := testConfig()
		a := start(t, st, cfg)
		k := newKey(t, a, KeyParams{Name: "short", Form: toll.KeyShort, Rights: toll.Rights{toll.RightRead}, ExpiresAt: clock.now().Add(time.Hour)})
		if !shortText.MatchString(k.Key) || k.Prefix != "tk_sandbox_" || k.Tail != k.Key[len(k.Key)-6:] || k.ID != toll.ShortKeyID(k.Key) {
			t.Fatalf("record %+v", k)
		}
		caller, err := a.Authenticate(ctx, []string{"Bearer " + k.Key})
		if err != nil || caller.Address != k.Address || caller.KeyID != k.ID || !caller.Ends.Equal(k.ExpiresAt.Time) ||
			!caller.Rights.Has(toll.RightRead) || caller.Rights.Has(toll.RightSell) {
			t.Fatalf("caller %+v, %v", caller, err)
		}
		pin := "1.0"
		must.Get(a.UpdateKey(ctx, k.Address, k.ID, KeyUpdate{Version: &pin}))(t)
		if caller, err := a.Authenticate(ctx, []string{"Bearer " + k.Key}); err != nil || caller.Version != "1.0" {
			t.Errorf("the pin: %+v, %v", caller, err)
		}

		person := Caller{Address: k.Address, Rights: toll.AllRights()}
		next := must.Get(a.RotateAPIKey(ctx, person, k.ID, time.Minute, nil))(t)
		if !shortText.MatchString(next.Key) || next.Key == k.Key || next.ID != toll.ShortKeyID(next.Key) {
			t.Errorf("rotated %+v", next)
		}
		for what, text := range map[string]string{"the old key within the overlap": k.Key, "the new key": next.Key} {
			if got := try(t, a, "Bearer "+text); got != "" {
				t.Errorf("%s: %s", what, got)
			}
		}
		clock.add(time.Minute)
		if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("the old key after the overlap: %q", got)
		}

		must.Do(t, st.Tx(ctx, func(tx *store.Tx) error { return store.SuspendAPIKey(ctx, tx, next.ID, clock.now()) }))
		clock.add(2 * time.Second)
		if got := try(t, a, "Bearer "+next.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("suspended: %q", got)
		}
		must.Do(t, st.Tx(ctx, func(tx *store.Tx) error { return store.SuspendAPIKey(ctx, tx, next.ID, time.Time{}) }))
		clock.add(2 * time.Second)
		if got := try(t, a, "Bearer "+next.Key); got != "" {
			t.Errorf("resumed: %s", got)
		}
		must.Get(a.EndKey(ctx, k.Address, next.ID))(t)
		if got := try(t, a, "Bearer "+next.Key); got != toll.CodeNotAuthenticated {
			t.Errorf("revoked: %q", got)
		}
	})
}

// The call determines the form of a new key, else a prefix makes it long, else the service determines it.
func TestShortKey_Form(t *testing.T) {
	for _, c := range []struct {
		short       bool // of the configuration
		own         string
		form        toll.KeyForm
		prefix      string
		want, fault string
	}{
		{want: "sandbox"},
		{short: true, want: "tk_sandbox_"},
		{short: true, form: toll.KeyLong, want: "sandbox"},
		{short: true, prefix: "sandbox", want: "sandbox"},
		{short: true, own: "acme", want: "acme"},
		{short: true, own: "acme", form: toll.KeyShort, want: "tk_sandbox_"},
		{form: toll.KeyShort, want: "tk_sandbox_"},
		{form: toll.KeyShort, prefix: "sandbox", fault: "prefix: "},
		{form: "medium", fault: "form: "},
		{form: toll.KeyLong, prefix: "tk_sandbox_", fault: "The prefix"},
	} {
		cfg, _ := testConfig()
		cfg.ShortKeys, cfg.Prefix = c.short, c.own
		a := start(t, sqliteStore(t), cfg)
		owner := must.Get(a.CreatePrincipal(t.Context(), "owner"))(t)
		k, err := a.CreateKey(t.Context(), Local(owner), KeyParams{Form: c.form, Prefix: c.prefix}, nil)
		if c.fault != "" {
			if code(t, err) != toll.CodeBadRequest || !strings.HasPrefix(toll.AsError(err).Message, c.fault) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || k.Prefix != c.want || !strings.HasPrefix(k.Key, c.want) {
			t.Errorf("%+v: prefix %q, %v", c, k.Prefix, err)
		}
		if got := try(t, a, "Bearer "+k.Key); got != "" {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if err := CheckPrefix("tk_sandbox_", toll.Sandbox); err == nil {
		t.Error("a long key can have the prefix of short keys")
	}
}

// Any text except a short key of this service, byte for byte, is refused without a query.
func TestShortKey_Forged(t *testing.T) {
	st := must.Get(store.Open(t.Context(), store.Config{Data: storetest.Dir(t)}))(t)
	cfg, clock := testConfig()
	a := must.Get(Bootstrap(t.Context(), st, ring(), cfg))(t)
	k := newKey(t, a, KeyParams{Form: toll.KeyShort})
	stop(t, a)

	other, _ := testConfig()
	elsewhere := newKey(t, start(t, sqliteStore(t), other), KeyParams{Form: toll.KeyShort})
	other.Environment = toll.Live
	liveStore, _ := storetest.Open(t, store.SQLite)
	live := must.Get(Bootstrap(t.Context(), liveStore, seal.New(testMaster), other))(t)
	liveKey := newKey(t, live, KeyParams{Form: toll.KeyShort})

	if got := try(t, a, "Bearer "+k.Key); got != "" { // known from here on
		t.Fatal(got)
	}
	must.Do(t, st.Close()) // from here on a query fails
	head, text := "tk_sandbox_", strings.TrimPrefix(k.Key, "tk_sandbox_")
	_, body, _ := toll.ParseShortKey(k.Key)
	flipped := func(i int) string {
		b := body
		b[i] ^= 1
		return head + base64.RawURLEncoding.EncodeToString(b[:])
	}
	for name, c := range map[string]struct {
		key  string
		want toll.Code
	}{
		"random byte changed":                    {flipped(0), toll.CodeKeyForeign},
		"last random byte changed":               {flipped(15), toll.CodeKeyForeign},
		"first byte of the MAC changed":          {flipped(16), toll.CodeKeyForeign},
		"last byte of the MAC changed":           {flipped(23), toll.CodeKeyForeign},
		"MAC of zeros":                           {head + text[:21] + strings.Repeat("A", 11), toll.CodeKeyForeign},
		"all zeros":                              {head + strings.Repeat("A", 32), toll.CodeKeyForeign},
		"another service":                        {elsewhere.Key, toll.CodeKeyForeign},
		"live":                                   {liveKey.Key, toll.CodeKeyWrongEnvironment},
		"live with the prefix of the sandbox":    {head + strings.TrimPrefix(liveKey.Key, "tk_live_"), toll.CodeKeyForeign},
		"sandbox with the prefix of live":        {"tk_live_" + text, toll.CodeKeyWrongEnvironment},
		"unknown environment":                    {"tk_test_" + text, toll.CodeKeyMalformed},
		"truncated":                              {k.Key[:len(k.Key)-1], toll.CodeKeyMalformed},
		"a byte truncated":                       {head + base64.RawURLEncoding.EncodeToString(body[:23]), toll.CodeKeyMalformed},
		"a byte too many":                        {head + base64.RawURLEncoding.EncodeToString(append(body[:], 0)), toll.CodeKeyMalformed},
		"trailing characters":                    {k.Key + "AAAA", toll.CodeKeyMalformed},
		"padded":                                 {k.Key + "=", toll.CodeKeyMalformed},
		"line break inside":                      {k.Key[:40] + "\n" + k.Key[41:], toll.CodeKeyMalformed},
		"another alphabet":                       {head + strings.Repeat("+", 32), toll.CodeKeyMalformed},
		"prefix alone":                           {head, toll.CodeKeyMalformed},
		"upper-case prefix":                      {"TK_SANDBOX_" + text, toll.CodeKeyMalformed},
		"behind a prefix":                        {"sandbox:" + k.Key, toll.CodeKeyMalformed},
		"behind a prefix of one's own":           {"acme:" + k.Key, toll.CodeKeyMalformed},
		"prefix with a colon":                    {"tk:" + k.Key, toll.CodeKeyMalformed},
		"8 KB":                                   {head + strings.Repeat("a", 8<<10), toll.CodeKeyMalformed},
		"without its prefix":                     {text, toll.CodeKeyMalformed},
		"with the name of the other environment": {"live:" + k.Key, toll.CodeKeyWrongEnvironment},
	} {
		if got := try(t, a, "Bearer "+c.key); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if upper := strings.ToUpper(text); upper != text {
		if got := try(t, a, "Bearer "+head+upper); got != toll.CodeKeyForeign {
			t.Errorf("upper case: %q", got)
		}
	}
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Errorf("the key itself: %s", got)
	}
	clock.add(time.Second)
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + k.Key}); err == nil || errors.Is(err, toll.ErrNotAuthenticated) {
		t.Errorf("after a second without a database: %v", err)
	}
}

// A key whose MAC is valid and that has no record is refused like every other unknown key.
func TestShortKey_Unknown(t *testing.T) {
	a, _ := known(t)
	row := store.APIKey{Prefix: "tk_sandbox_", CreatedAt: a.clock()}
	text := must.Get(a.signKey(&row))(t)
	if got := try(t, a, "Bearer "+text); got != toll.CodeNotAuthenticated {
		t.Errorf("a key without a record: %q", got)
	}
}

// Short keys from before the retirement of their signing key stay valid. The end of a signing key ends its short keys, cached or not.
func TestShortKey_Generations(t *testing.T) {
	a, clock := known(t)
	old := newKey(t, a, KeyParams{Form: toll.KeyShort})
	clock.add(time.Minute)
	must.Get(a.AddSigningKey(t.Context()))(t)
	late := newKey(t, a, KeyParams{Form: toll.KeyShort})
	must.Do(t, a.RetireSigningKey(t.Context(), testKID, clock.now()))
	next := newKey(t, a, KeyParams{Form: toll.KeyShort})
	for _, when := range []string{"remembered", "read again"} {
		for _, c := range []struct {
			what string
			k    toll.APIKey
			want toll.Code
		}{{"before the retirement", old, ""}, {"at the retirement", late, toll.CodeNotAuthenticated}, {"of the next signing key", next, ""}} {
			if got := try(t, a, "Bearer "+c.k.Key); got != c.want {
				t.Errorf("%s, %s: %q, want %q", when, c.what, got, c.want)
			}
		}
		a.keys().signatures.Clear()
	}
	must.Get(a.EndSigningKey(t.Context(), "", testKID))(t)
	if got := try(t, a, "Bearer "+old.Key); got != toll.CodeKeyForeign {
		t.Errorf("after the signing key ended: %q", got)
	}
	if got := try(t, a, "Bearer "+next.Key); got != "" {
		t.Errorf("a key of the next signing key: %s", got)
	}
	ended := must.Get(a.EndSigningKey(t.Context(), "", ""))(t)
	if !slices.ContainsFunc(ended.APIKeys, func(k FallenKey) bool { return k.ID == next.ID }) {
		t.Errorf("the keys to replace: %+v", ended.APIKeys)
	}
	if got := try(t, a, "Bearer "+next.Key); got != toll.CodeKeyForeign {
		t.Errorf("after its signing key ended: %q", got)
	}
}

// Another process accepts a short key, and rejects it half a minute after its signing key ended.
func TestShortKey_TwoProcesses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a, b := start(t, st, cfg), start(t, st, cfg)
		k := newKey(t, a, KeyParams{Form: toll.KeyShort})
		if got := try(t, b, "Bearer "+k.Key); got != "" {
			t.Fatal(got)
		}
		must.Get(a.EndSigningKey(t.Context(), "", ""))(t)
		clock.add(refreshEvery)
		if got := try(t, b, "Bearer "+k.Key); got != toll.CodeKeyForeign {
			t.Errorf("after the signing key ended elsewhere: %q", got)
		}
	})
}

// The database alone cannot move a short key to another workspace or behind a retirement, and does not hold its plain hash.
func TestShortKey_Record(t *testing.T) {
	a, clock := known(t)
	ctx := t.Context()
	k := newKey(t, a, KeyParams{Form: toll.KeyShort})
	row := must.Get(store.APIKeyByID(ctx, a.store, k.ID))(t)
	if sum := sumOf(k.Key); bytes.Equal(row.Hash, sum[:]) || len(row.Hash) != 32 {
		t.Errorf("hash %x", row.Hash)
	}
	victim := must.Get(a.CreatePrincipal(ctx, "victim"))(t)
	change := func(column string, value any) {
		t.Helper()
		must.Do(t, a.store.Tx(context.Background(), func(tx *store.Tx) error {
			_, err := tx.Exec(context.Background(), "UPDATE api_keys SET "+column+" = $1", value)
			return err
		}))
		clock.add(2 * time.Second)
	}
	change("address", victim.Lower())
	if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
		t.Errorf("moved to another workspace: %q", got)
	}
	change("address", k.Address.Lower())
	if got := try(t, a, "Bearer "+k.Key); got != "" {
		t.Fatalf("moved back: %s", got)
	}
	change("created_at", row.CreatedAt.Add(-time.Hour).UnixMicro())
	if got := try(t, a, "Bearer "+k.Key); got != toll.CodeNotAuthenticated {
		t.Errorf("created earlier: %q", got)
	}
}
