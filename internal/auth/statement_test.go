package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// The worked example of the wire contract: an offer, a receipt and the document with their key.
const (
	exampleOffer = `{"version":1,"resourceUrl":"https://agent.example.com/ask","scheme":"svc:erc4337","network":"eip155:84532","asset":"svc:credits","payTo":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","amount":"5","validUntil":1795226460}`
	signedOffer  = "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6cGF5LmV4YW1wbGUuY29tI2tQcktfcW14VldhWVZBOXd3QkY2SXVvM3ZWeno3VHhIQ1R3WEJ5Z3JTNGsifQ.eyJ2ZXJzaW9uIjoxLCJyZXNvdXJjZVVybCI6Imh0dHBzOi8vYWdlbnQuZXhhbXBsZS5jb20vYXNrIiwic2NoZW1lIjoic3ZjOmVyYzQzMzciLCJuZXR3b3JrIjoiZWlwMTU1Ojg0NTMyIiwiYXNzZXQiOiJzdmM6Y3JlZGl0cyIsInBheVRvIjoiMHg3MDk5Nzk3MEM1MTgxMmRjM0EwMTBDN2QwMWI1MGUwZDE3ZGM3OUM4IiwiYW1vdW50IjoiNSIsInZhbGlkVW50aWwiOjE3OTUyMjY0NjB9.BWOrNFGg3W-fPyhyJM483ko8xtfaj9J_n9GrK7D_ScEUSx49CDuuzay2K8mmySD7qxbuGTU8HcqVvQ_N_QU5BA"

	exampleReceipt = `{"version":1,"network":"eip155:84532","resourceUrl":"https://agent.example.com/ask","payer":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","issuedAt":1795226402,"transaction":"0x5e2d5d1e58e94d7607e0745cd3e612c4a358fc93f37fc5ab1fed8d04bbf7ce77"}`
	signedReceipt  = "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6cGF5LmV4YW1wbGUuY29tI2tQcktfcW14VldhWVZBOXd3QkY2SXVvM3ZWeno3VHhIQ1R3WEJ5Z3JTNGsifQ.eyJ2ZXJzaW9uIjoxLCJuZXR3b3JrIjoiZWlwMTU1Ojg0NTMyIiwicmVzb3VyY2VVcmwiOiJodHRwczovL2FnZW50LmV4YW1wbGUuY29tL2FzayIsInBheWVyIjoiMHhmMzlGZDZlNTFhYWQ4OEY2RjRjZTZhQjg4MjcyNzljZmZGYjkyMjY2IiwiaXNzdWVkQXQiOjE3OTUyMjY0MDIsInRyYW5zYWN0aW9uIjoiMHg1ZTJkNWQxZTU4ZTk0ZDc2MDdlMDc0NWNkM2U2MTJjNGEzNThmYzkzZjM3ZmM1YWIxZmVkOGQwNGJiZjdjZTc3In0.IDeInKcSkk8TlpCTP0NhxyNT5AycrIyS02KZW08fQ2_-OxlrXIR5cGhvgFGDVqpehwKiNI7k0wozl2XlYCTXCQ"

	exampleDID = `{"@context":["https://www.w3.org/ns/did/v1"],"id":"did:web:pay.example.com","verificationMethod":[{"id":"did:web:pay.example.com#kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k","type":"JsonWebKey2020","controller":"did:web:pay.example.com","publicKeyJwk":{"crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kty":"OKP"}}],"assertionMethod":["did:web:pay.example.com#kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"]}`
)

// stating is a service on SQLite whose one statement key is that of the worked example.
func stating(t *testing.T) (*Auth, *store.Store, *testClock) {
	t.Helper()
	st := sqliteStore(t)
	cfg, clock := testConfig()
	writer := &Auth{ring: seal.New(testMaster), environment: toll.Sandbox}
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := writer.putSigningKey(t.Context(), tx, store.StatementKey, testSeed, clock.now().Add(-time.Hour))
		return err
	}))
	return start(t, st, cfg), st, clock
}

func TestStatements(t *testing.T) {
	a, _, _ := stating(t)
	for payload, want := range map[string]string{exampleOffer: signedOffer, exampleReceipt: signedReceipt} {
		if got, err := a.SignStatement([]byte(payload)); err != nil || got != want {
			t.Errorf("%v\n got %s\nwant %s", err, got, want)
		}
	}
	if string(a.DID()) != exampleDID {
		t.Errorf("%s", a.DID())
	}
	// The library that others use agrees, with both documents.
	obj := must.Get(jose.ParseSignedCompact(signedOffer, []jose.SignatureAlgorithm{jose.EdDSA}))(t)
	var set jose.JSONWebKeySet
	must.Do(t, json.Unmarshal(a.JWKS(), &set))
	if payload, err := obj.Verify(set); err != nil || string(payload) != exampleOffer {
		t.Errorf("go-jose: %v", err)
	}
	if _, err := a.SignStatement([]byte(strings.Repeat("x", maxJWS))); err == nil {
		t.Error("a statement of more than 8 KiB")
	}
}

// An offer and a receipt open no door, not even when they say what an access token says, and under no key id.
// T08
func TestStatementIsNoCredential(t *testing.T) {
	a, _, _ := stating(t)
	claims := must.Get(exampleClaims.encode())(t)
	like := must.Get(a.SignStatement(claims))(t)
	under := func(kid string) string { // the same key under the header of an access token
		return signed(ownKey(), `{"alg":"EdDSA","typ":"JWT","kid":"`+kid+`"}`, string(claims))
	}
	for name, jws := range map[string]string{
		"offer": signedOffer, "receipt": signedReceipt, "claims of an access token": like,
		"T04, by thumbprint": under(testKID), "T04, by DID URL": under("did:web:pay.example.com#" + testKID),
	} {
		if _, err := a.VerifyToken(jws); code(t, err) != toll.CodeTokenSignature {
			t.Errorf("%s as access token: %v", name, err)
		}
		for _, credential := range []string{jws, "sandbox:" + jws} {
			if _, err := a.Authenticate(t.Context(), []string{"Bearer " + credential}); err == nil {
				t.Errorf("%s as API key", name)
			}
		}
	}
}

// Whoever can write to the database cannot make a key of statements one of access tokens.
func TestPurposeChangedInTheDatabase(t *testing.T) {
	a, st, clock := stating(t)
	for _, change := range []string{"UPDATE signing_keys SET purpose = ''", "UPDATE signing_keys SET purpose = 'statement'"} {
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(t.Context(), change)
			return err
		}))
		cfg, _ := testConfig()
		if _, err := Bootstrap(t.Context(), st, seal.New(testMaster), cfg); err == nil || !strings.Contains(err.Error(), "master key does not open") {
			t.Errorf("%s: %v", change, err)
		}
	}
	clock.add(time.Minute)
	refusedToken(t, a, "key of statements", exampleJWS)
}

// T18
func TestStatementKeyRotation(t *testing.T) {
	a, _, clock := stating(t)
	kidOf := func() string {
		t.Helper()
		jws := must.Get(a.SignStatement([]byte(exampleOffer)))(t)
		head, _, _ := strings.Cut(jws, ".")
		b, err := base64.RawURLEncoding.DecodeString(head)
		var h struct{ Kid string }
		if err = errors.Join(err, json.Unmarshal(b, &h)); err != nil {
			t.Fatal(err)
		}
		return h.Kid
	}
	const did = "did:web:pay.example.com#"
	credentials := tokenKeys(t, a)
	r, err := a.RotateKey(t.Context(), store.StatementKey)
	if err != nil || r.Retiring != testKID || r.Next == "" || r.Next != r.Added {
		t.Fatalf("%+v, %v", r, err)
	}
	if keys := keysOf(t, a, did); len(keys) != 2 || keys[did+r.Next].X == "" {
		t.Errorf("published %v", keys)
	}
	if !strings.Contains(string(a.DID()), did+r.Next) {
		t.Errorf("%s", a.DID())
	}
	clock.add(11 * time.Minute)
	if got := kidOf(); got != did+testKID {
		t.Errorf("%s signs before it has been published for ten minutes", got)
	}
	clock.add(2 * time.Minute)
	if got := kidOf(); got != did+r.Next {
		t.Errorf("%s signs, want %s", got, r.Next)
	}
	if !strings.Contains(string(a.DID()), testKID) {
		t.Error("the retired key is not published: its statements cannot be checked")
	}
	if now := tokenKeys(t, a); len(now) != len(credentials) {
		t.Errorf("keys of credentials: %v, before %v", now, credentials)
	}
	clock.add(longestToken)
	if strings.Contains(string(a.DID()), testKID) || len(keysOf(t, a, did)) != 1 {
		t.Errorf("a year later: %s", a.DID())
	}
}

func TestDIDOfAPort(t *testing.T) {
	for issuer, want := range map[string]string{
		"http://127.0.0.1:8402/api/v1": "did:web:127.0.0.1%3A8402", "https://pay.example.com/api/v1": "did:web:pay.example.com",
	} {
		if got := didOf(issuer); got != want {
			t.Errorf("%s: %s", issuer, got)
		}
	}
}
