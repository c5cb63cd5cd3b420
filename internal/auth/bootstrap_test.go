package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

type publicKey struct{ Kty, Crv, X, Kid, Use, Alg, D string }

// tokenKeys are the published keys of API keys and access tokens, by id.
func tokenKeys(t testing.TB, a *Auth) map[string]publicKey {
	t.Helper()
	return keysOf(t, a, "")
}

// keysOf are the published keys whose ids are this DID URL and their thumbprint; "" are those of credentials.
func keysOf(t testing.TB, a *Auth, did string) map[string]publicKey {
	t.Helper()
	var doc struct{ Keys []publicKey }
	must.Do(t, json.Unmarshal(a.JWKS(), &doc))
	keys := make(map[string]publicKey, len(doc.Keys))
	for _, k := range doc.Keys {
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || k.Kty != "OKP" || k.Crv != "Ed25519" || k.Use != "sig" || k.Alg != "EdDSA" || k.D != "" {
			t.Errorf("key %+v", k)
		}
		if strings.HasPrefix(k.Kid, "did:") != (did != "") {
			continue
		}
		if kid, err := thumbprint(ed25519.PublicKey(x)); err != nil || did+kid != k.Kid {
			t.Errorf("kid %s is not %s and the thumbprint %s", k.Kid, did, kid)
		}
		keys[k.Kid] = k
	}
	return keys
}

func TestBootstrapOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		const starters = 8
		all := make([]*Auth, starters)
		errs := make([]error, starters)
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range starters {
			wg.Go(func() {
				<-gate
				cfg, _ := testConfig()
				cfg.Issuer = testIssuer + "/" + string(rune('a'+i)) // each listens on a port of its own
				all[i], errs[i] = Bootstrap(context.Background(), st, seal.New(testMaster), cfg)
			})
		}
		close(gate)
		wg.Wait()
		for i, a := range all {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			defer stop(t, a)
			if a.Issuer() != all[0].Issuer() || !bytes.Equal(a.MACKey(), all[0].MACKey()) || !bytes.Equal(a.JWKS(), all[0].JWKS()) {
				t.Errorf("process %d differs: %s", i, a.Issuer())
			}
		}
		if len(all[0].MACKey()) != 32 || bytes.Equal(all[0].MACKey(), make([]byte, 32)) {
			t.Errorf("MAC key %x", all[0].MACKey())
		}
		if n := len(tokenKeys(t, all[0])); n != 2 {
			t.Errorf("%d keys published, want 2", n)
		}
		c := exampleClaims
		c.Issuer, c.Audience = "", nil
		jws := must.Get(all[1].SignToken(c))(t)
		if _, err := all[2].VerifyToken(jws); err != nil {
			t.Errorf("token of another process: %v", err)
		}
	})
}

func TestBootstrapRefuses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, _ := testConfig()
		try := func(master [32]byte, change func(*Config)) error {
			c := cfg
			change(&c)
			a, err := Bootstrap(t.Context(), st, seal.New(master), c)
			if err == nil {
				stop(t, a)
			}
			return err
		}
		if err := try(testMaster, func(c *Config) { c.Issuer = "" }); err == nil || !strings.Contains(err.Error(), "address") {
			t.Errorf("first start without an address: %v", err)
		}
		must.Do(t, try(testMaster, func(*Config) {}))
		for name, c := range map[string]struct {
			master [32]byte
			change func(*Config)
			want   string
		}{
			"other environment":    {testMaster, func(c *Config) { c.Environment = toll.Live }, `belongs to the environment "sandbox"`},
			"unknown environment":  {testMaster, func(c *Config) { c.Environment = "test" }, "neither sandbox nor live"},
			"wrong master key":     {[32]byte{9}, func(*Config) {}, "master key"},
			"no claim object":      {testMaster, func(c *Config) { c.ClaimObject = "" }, "claim object"},
			"claim object iss":     {testMaster, func(c *Config) { c.ClaimObject = "iss" }, "claim object"},
			"prefix":               {testMaster, func(c *Config) { c.Prefix = "A:b" }, "prefix"},
			"other prefix":         {testMaster, func(c *Config) { c.Prefix = "live" }, "prefix"},
			"public address empty": {testMaster, func(c *Config) { c.Issuer, c.IssuerGiven = "", true }, "address"},
			"public address ftp":   {testMaster, func(c *Config) { c.Issuer, c.IssuerGiven = "ftp://x", true }, "URL"},
			"public address user":  {testMaster, func(c *Config) { c.Issuer, c.IssuerGiven = "https://u:p@x", true }, "URL"},
		} {
			err := try(c.master, c.change)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want it to name %q", name, err, c.want)
			}
		}
		must.Check(t, try(testMaster, func(c *Config) { c.Environment, c.Issuer = "", "" }), "later start with nothing said")
	})
}

// A row that was not written under the master key does not become a signing key.
func TestSigningKeyOfTheDatabaseWriter(t *testing.T) {
	st := sqliteStore(t)
	cfg, clock := testConfig()
	a := start(t, st, cfg)
	public := ownKey().Public().(ed25519.PublicKey)
	rows := must.Get(store.SigningKeys(t.Context(), st))(t)
	if err := st.Tx(t.Context(), func(tx *store.Tx) error {
		return store.InsertSigningKey(t.Context(), tx, store.SigningKey{KID: testKID, Public: public, Sealed: rows[0].Sealed, CreatedAt: clock.now()})
	}); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Minute)
	refusedToken(t, a, "key put into the database", exampleJWS)
	if _, ok := tokenKeys(t, a)[testKID]; ok {
		t.Error("published")
	}
	if _, err := Bootstrap(t.Context(), st, seal.New(testMaster), cfg); err == nil {
		t.Error("a start takes the key")
	}
}

func TestPublicKeyChangedInTheDatabase(t *testing.T) {
	st := sqliteStore(t)
	cfg, _ := testConfig()
	start(t, st, cfg)
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE signing_keys SET public = $1", []byte(ownKey().Public().(ed25519.PublicKey)))
		return err
	}))
	if _, err := Bootstrap(t.Context(), st, ring(), cfg); err == nil || !strings.Contains(err.Error(), "changed in the database") {
		t.Errorf("start: %v", err)
	}
}

// Services that start at once, each with a public address of its own: tokens of all of them are good everywhere.
func TestPublicAddressesAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		start(t, st, cfg)
		const starters = 6
		all := make([]*Auth, starters)
		errs := make([]error, starters)
		var wg sync.WaitGroup
		for i := range starters {
			wg.Go(func() {
				c := cfg
				c.Issuer, c.IssuerGiven = "https://"+string(rune('a'+i))+".example.com/api/v1", true
				all[i], errs[i] = Bootstrap(context.Background(), st, seal.New(testMaster), c)
			})
		}
		wg.Wait()
		for i := range all {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			defer stop(t, all[i])
		}
		clock.add(time.Minute)
		for i, a := range all {
			if want := "https://" + string(rune('a'+i)) + ".example.com/api/v1"; a.Issuer() != want {
				t.Errorf("issuer %s, want %s", a.Issuer(), want)
			}
			c := exampleClaims
			c.Issuer, c.Audience = "", nil
			jws := must.Get(a.SignToken(c))(t)
			for j, b := range all {
				if _, err := b.VerifyToken(jws); err != nil {
					t.Errorf("token of %d at %d: %v", i, j, errors.Unwrap(err))
				}
			}
		}
	})
}

func TestPublicAddressReplacesTheIssuer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		cfg.Issuer = "http://127.0.0.1:4000/api/v1"
		first := start(t, st, cfg)
		token := func(a *Auth) string {
			t.Helper()
			c := exampleClaims
			c.Issuer, c.Audience, c.Hash = "", nil, toll.NewHash()
			return must.Get(a.SignToken(c))(t)
		}
		old := token(first)

		cfg.Issuer = "http://127.0.0.1:5000/api/v1"
		if again := start(t, st, cfg); again.Issuer() != first.Issuer() {
			t.Errorf("another port changed the issuer to %s", again.Issuer())
		}
		cfg.Issuer, cfg.IssuerGiven = testIssuer+"/", true
		second := start(t, st, cfg)
		if second.Issuer() != testIssuer {
			t.Fatalf("issuer %s", second.Issuer())
		}
		clock.add(2 * time.Second)
		for name, a := range map[string]*Auth{"first": first, "second": second} {
			for kind, jws := range map[string]string{"old": old, "new": token(second)} {
				if _, err := a.VerifyToken(jws); err != nil {
					t.Errorf("%s process, %s token: %v: %v", name, kind, err, errors.Unwrap(err))
				}
			}
		}
		cfg.Issuer, cfg.IssuerGiven = "", false
		if third := start(t, st, cfg); third.Issuer() != testIssuer {
			t.Errorf("a later start without an address has %s", third.Issuer())
		}
		clock.add(time.Minute)
		if first.Issuer() != testIssuer {
			t.Errorf("the first process still has %s", first.Issuer())
		}
		for range 3 {
			cfg.Issuer, cfg.IssuerGiven = testIssuer, true
			start(t, st, cfg)
		}
		if list, err := storedIssuers(t.Context(), st); err != nil || len(list) != 2 {
			t.Errorf("issuers %q, %v", list, err)
		}
	})
}

func TestPrincipals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, _ := testConfig()
		a, b := start(t, st, cfg), start(t, st, cfg)
		const callers = 16
		addresses := make([]toll.Address, callers)
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				addresses[i], errs[i] = []*Auth{a, b}[i%2].CreatePrincipal(context.Background(), "alice")
			})
		}
		wg.Wait()
		for i := range callers {
			if errs[i] != nil || addresses[i] != addresses[0] || addresses[i].IsZero() {
				t.Errorf("caller %d: %s, %v", i, addresses[i], errs[i])
			}
		}
		if got, err := b.PrincipalByName(t.Context(), "alice"); err != nil || got != addresses[0] {
			t.Errorf("by name: %s, %v", got, err)
		}
		if _, err := a.PrincipalByName(t.Context(), "bob"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("unknown name: %v", err)
		}
		for _, text := range []string{addresses[0].String(), addresses[0].Lower(), "0X" + addresses[0].Lower()[2:]} {
			if got, err := a.CreatePrincipal(t.Context(), text); text[1] == 'x' && (err != nil || got != addresses[0]) || text[1] == 'X' && err == nil && got != addresses[0] {
				t.Errorf("by address %s: %s, %v", text, got, err)
			}
		}
		if _, err := a.CreatePrincipal(t.Context(), toll.Address{1}.String()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an unknown address makes an account: %v", err)
		}
		if _, err := a.CreatePrincipal(t.Context(), "0x12"); !errors.Is(err, toll.NewError(toll.CodeBadAddress)) {
			t.Errorf("half of an address makes an account: %v", err)
		}
		one, err1 := a.CreatePrincipal(t.Context(), "")
		two, err2 := a.CreatePrincipal(t.Context(), "")
		if err1 != nil || err2 != nil || one == two {
			t.Errorf("without a name: %s %v, %s %v", one, err1, two, err2)
		}
		for _, name := range []string{strings.Repeat("a", 101), "a\x00b", "a\nb", "a\xff"} {
			if _, err := a.CreatePrincipal(t.Context(), name); code(t, err) != toll.CodeBadRequest {
				t.Errorf("name %q: %v", name, err)
			}
		}

		p := must.Get(store.PrincipalByAddress(t.Context(), st, addresses[0]))(t)
		ring := seal.New(testMaster)
		plain := must.Get(ring.Open(p.SealedKey, a.aad("wallet", p.Address.Lower())))(t)
		if walletAddress(secp256k1.PrivKeyFromBytes(plain).PubKey()) != p.Address {
			t.Error("the sealed key is not that of the address")
		}
		if bytes.Contains(p.SealedKey, plain) {
			t.Error("the key is in the clear")
		}
		if _, err := ring.Open(p.SealedKey, a.aad("wallet", one.Lower())); err == nil {
			t.Error("the key opens for another address")
		}
		live := &Auth{environment: toll.Live}
		if _, err := ring.Open(p.SealedKey, live.aad("wallet", p.Address.Lower())); err == nil {
			t.Error("the key opens in the other environment")
		}
	})
}

// The address of a known private key: the first account of the mnemonic that every development chain uses, which is
// the subscriber of the worked example.
func TestWalletAddress(t *testing.T) {
	var key [32]byte
	copy(key[:], mustHex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))
	if got := walletAddress(secp256k1.PrivKeyFromBytes(key[:]).PubKey()); got != exampleClaims.Subscriber {
		t.Errorf("address %s, want %s", got, exampleClaims.Subscriber)
	}
}

func mustHex(s string) []byte {
	h := mustHash("0x" + s)
	return h[:]
}

// T18
func TestSigningKeyRotation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		late := clockAt(clock.now().Add(-30 * time.Second)) // instances 30 s apart
		a := start(t, st, cfg)
		cfg.Clock = late.now
		b := start(t, st, cfg)
		both := []*Auth{a, b}
		signers := make(map[string]int)
		traffic := func() {
			t.Helper()
			for i, from := range both {
				c := exampleClaims
				c.Hash, c.IssuedAt, c.ExpiresAt = toll.NewHash(), time.Time{}, clock.now().Add(24*time.Hour)
				jws := must.Get(from.SignToken(c))(t)
				kid := must.Get(headerKeyID(jws[:strings.IndexByte(jws, '.')]))(t)
				signers[kid]++
				if _, ok := tokenKeys(t, both[1-i])[kid]; !ok {
					t.Fatalf("%s: signed with a key that the other instance does not publish", clock.now())
				}
				for _, to := range both {
					if _, err := to.VerifyToken(jws); err != nil {
						t.Fatalf("%s: refused: %v: %v", clock.now(), err, errors.Unwrap(err))
					}
				}
			}
		}
		pass := func(d time.Duration) {
			t.Helper()
			for ; d > 0; d -= 10 * time.Second {
				clock.add(10 * time.Second)
				late.add(10 * time.Second)
				traffic()
			}
		}
		traffic()
		first := a.keys().keys[0].id
		for kid := range signers {
			if kid != first {
				t.Errorf("%s signs, not the oldest key %s", kid, first)
			}
		}
		added := must.Get(a.AddSigningKey(t.Context()))(t)
		if len(tokenKeys(t, a)) != 3 {
			t.Error("the new key is not published at once")
		}
		must.Do(t, a.RetireSigningKey(t.Context(), first, time.Time{}))
		second := a.keys().keys[1].id
		pass(9 * time.Minute)
		if signers[second] != 0 {
			t.Error("the next key signs before it has been published for ten minutes")
		}
		pass(4 * time.Minute)
		if signers[second] == 0 || signers[added] != 0 {
			t.Errorf("signers %v, want %s now", signers, second)
		}
		must.Do(t, b.RetireSigningKey(t.Context(), second, time.Time{}))
		pass(5 * time.Minute)
		if signers[added] == 0 {
			t.Errorf("signers %v, want %s now", signers, added)
		}
		if err := a.RetireSigningKey(t.Context(), added, time.Time{}); err == nil {
			t.Error("the last key was retired")
		}
		if err := a.RetireSigningKey(t.Context(), "nobody", time.Time{}); err == nil {
			t.Error("an unknown key was retired")
		}
		if n := len(tokenKeys(t, b)); n != 3 {
			t.Errorf("%d keys published, want 3: tokens of retired ones are valid", n)
		}
		if strings.Contains(string(a.JWKS()), `"d"`) {
			t.Error("the document holds private keys")
		}
		clock.add(longestToken + time.Hour)
		if n := len(tokenKeys(t, a)); n != 1 {
			t.Errorf("%d keys published a year later, want 1", n)
		}
	})
}

// While one caller reads the keys again, others go on with the ones they have.
func TestReadingKeysHoldsUpOneCaller(t *testing.T) {
	a, clock := known(t)
	clock.add(refreshEvery)
	a.refresh.Lock() // as a read that hangs would
	done := make(chan error, 1)
	go func() {
		_, err := a.VerifyToken(exampleJWS)
		done <- err
	}()
	select {
	case err := <-done:
		must.Check(t, err)
	case <-time.After(2 * time.Minute):
		t.Error("a caller waits for the read of another")
	}
	a.refresh.Unlock()
}

// A database that is away costs one failed read in two seconds, and the known keys serve on.
func TestKeysServeOnWithoutTheDatabase(t *testing.T) {
	st := must.Get(store.Open(t.Context(), store.Config{Data: storetest.Dir(t)}))(t)
	cfg, clock := testConfig()
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	must.Do(t, st.Close())
	clock.add(time.Minute)
	if _, err := a.VerifyToken(exampleJWS); err != nil {
		t.Errorf("%v: %v", err, errors.Unwrap(err))
	}
}

// What another process signs under an address that it has brought is not refused for good while the database is away: nobody knows
// whether it is one of ours.
func TestNewAddressWithoutTheDatabase(t *testing.T) {
	st := must.Get(store.Open(t.Context(), store.Config{Data: storetest.Dir(t)}))(t)
	cfg, clock := testConfig()
	putKey(t, st, toll.Sandbox, testSeed, clock.now())
	a := start(t, st, cfg)
	cfg.Issuer, cfg.IssuerGiven = "https://new.example.com/api/v1", true
	b := start(t, st, cfg)
	c := exampleClaims
	c.Issuer, c.Audience, c.Hash = "", nil, toll.NewHash()
	token := must.Get(b.SignToken(c))(t)
	key := newKey(t, b, KeyParams{})
	text := must.Get(b.SignReference("use", key.Address, "1", clock.now().Add(time.Hour)))(t)
	must.Do(t, st.Close())
	clock.add(2 * time.Second)
	_, tokenErr := a.VerifyToken(token)
	_, keyErr := a.Authenticate(t.Context(), []string{"Bearer " + key.Key})
	_, _, referenceErr := a.OpenReference("use", text)
	for what, err := range map[string]error{"token": tokenErr, "API key": keyErr, "reference": referenceErr} {
		if !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	forged := strings.Split(token, ".")[1]
	payload, _ := decodeSegment(forged)
	refusedToken(t, a, "of a stranger", signed(stranger, ownHeader, string(payload)))
}

// A last use that could not be written is noted at the next one, also within the minute.
func TestLastUseWithoutTheDatabase(t *testing.T) {
	st := must.Get(store.Open(t.Context(), store.Config{Data: storetest.Dir(t)}))(t)
	cfg, clock := testConfig()
	a := start(t, st, cfg)
	k := newKey(t, a, KeyParams{})
	must.Do(t, st.Close())
	a.noteUse(&store.APIKey{ID: k.ID}, clock.now())
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, noted := a.touched.Get(k.ID, clock.now()); !noted {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the use counts as noted")
		}
	}
}

// Rotated again and again, keys take their turns in order, and there is always one that signs and one that comes next.
// T18
func TestBootstrap_Rotations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, clock := testConfig()
		a := start(t, st, cfg)
		var turns, noted []string
		for range 4 {
			r := must.Get(a.RotateKey(t.Context(), ""))(t)
			signer, err := signerOf(a.keys().keys, clock.now())
			if err != nil || signer.id != r.Retiring || !r.At.After(clock.now()) {
				t.Errorf("%+v, while %s signs", r, signer.id)
			}
			if n := len(turns); n > 0 && turns[n-1] != r.Retiring {
				t.Errorf("%s was to sign next, but %s did", turns[n-1], r.Retiring)
			}
			again, err := a.RotateKey(t.Context(), "")
			if r.Added = ""; err != nil || again != r {
				t.Errorf("at once again: %+v, %v, not %+v", again, err, r)
			}
			turns = append(turns, r.Next)
			noted = append(noted, fmt.Sprintf(`%[1]s {"before":"%[1]s","after":"%[2]s"}`, r.Retiring, r.Next))
			clock.add(r.At.Sub(clock.now()))
			if signer, err := signerOf(a.keys().keys, clock.now()); err != nil || signer.id != r.Next {
				t.Errorf("%s is to sign now, not %v, %v", r.Next, signer, err)
			}
		}
		if n := len(a.keys().keys); n != 6 {
			t.Errorf("%d keys", n)
		}
		slices.Reverse(noted)
		if acts := storetest.Acts(t, st, "", "signing_key.rotated"); !slices.Equal(acts, noted) {
			t.Errorf("the audit log says %q, not %q", acts, noted)
		}
	})
}
