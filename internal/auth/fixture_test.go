package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

const (
	testIssuer = "https://pay.example.com/api/v1"
	testKID    = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
	issuedAt   = 1795226400
)

// testSeed is the private key of RFC 8037, appendix A.1, whose public key signs the worked example of the wire contract.
var testSeed = mustDecode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")

func mustDecode(s string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

type testClock struct{ micros atomic.Int64 }

func clockAt(t time.Time) *testClock {
	c := &testClock{}
	c.set(t)
	return c
}

func (c *testClock) now() time.Time      { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *testClock) set(t time.Time)     { c.micros.Store(t.UnixMicro()) }
func (c *testClock) add(d time.Duration) { c.micros.Add(d.Microseconds()) }

var testMaster = [32]byte{1, 2, 3}

// testConfig is a service whose clock stands 100 s after the worked example was issued.
func testConfig() (Config, *testClock) {
	c := clockAt(time.Unix(issuedAt+100, 0))
	return Config{Environment: toll.Sandbox, Issuer: testIssuer, ClaimObject: "svc", Clock: c.now}, c
}

func sqliteStore(t testing.TB) *store.Store {
	t.Helper()
	st, _ := storetest.Open(t, store.SQLite)
	return st
}

func start(t testing.TB, st *store.Store, cfg Config) *Auth {
	t.Helper()
	a := must.Get(Bootstrap(context.Background(), st, seal.New(testMaster), cfg))(t)
	group := jobs.NewGroup(nil)
	group.Start(a.Loop())
	groups.Store(a, group)
	t.Cleanup(func() { stop(t, a) })
	return a
}

// groups are the loops of what start and the tests have made.
var groups sync.Map

// stop ends the loop of an Auth, which writes the last uses that wait. Without one it does nothing.
func stop(t testing.TB, a *Auth) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if group, ok := groups.Load(a); ok {
		must.Check(t, group.(*jobs.Group).Stop(ctx))
	}
}

// putKey brings a known signing key into a database before its first start.
func putKey(t testing.TB, st *store.Store, env toll.Environment, seed []byte, at time.Time) string {
	t.Helper()
	writer := &Auth{ring: seal.New(testMaster), environment: env}
	var kid string
	must.Do(t, st.Tx(context.Background(), func(tx *store.Tx) error {
		var err error
		kid, err = writer.putSigningKey(context.Background(), tx, "", seed, at)
		return err
	}))
	return kid
}

// known is a service on SQLite whose one signing key is that of the worked example.
func known(t testing.TB) (*Auth, *testClock) {
	t.Helper()
	st := sqliteStore(t)
	cfg, clock := testConfig()
	putKey(t, st, toll.Sandbox, testSeed, clock.now().Add(-time.Hour))
	return start(t, st, cfg), clock
}

// signed makes a compact JWS of any header and payload text with a private key.
func signed(private ed25519.PrivateKey, header, payload string) string {
	text := b64(header) + "." + b64(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
}

func ownKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(testSeed) }

const ownHeader = `{"alg":"EdDSA","typ":"JWT","kid":"` + testKID + `"}`

// examplePayload is the JSON of the worked example without line breaks.
var examplePayload = strings.ReplaceAll(`{"iss":"https://pay.example.com/api/v1","sub":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","aud":"https://pay.example.com/api/v1/x402",
"jti":"0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634","iat":1795226400,"exp":1795230000,
"planId":"44742763076047497640080230236781474129970992727896593861997347135613135571071",
"agentId":"50637310539380773994947796286606926419362223513940385288598954542035389945899",
"subscriberAddress":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
"authorization":{"from":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
"planId":"44742763076047497640080230236781474129970992727896593861997347135613135571071",
"agentId":"50637310539380773994947796286606926419362223513940385288598954542035389945899"},
"credits":{"redemptionLimit":"100"},"x402Version":2,
"accepted":{"scheme":"svc:erc4337","network":"eip155:84532",
"planId":"44742763076047497640080230236781474129970992727896593861997347135613135571071",
"extra":{"version":"1","agentId":"50637310539380773994947796286606926419362223513940385288598954542035389945899"}}}`, "\n", "")

// exampleJWS is the worked example of the wire contract, section 14, byte for byte.
var exampleJWS = strings.ReplaceAll(`eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCIsImtpZCI6ImtQcktfcW14VldhWVZBOXd3QkY2SXVvM3ZWeno3VHhIQ1R3WEJ5Z3JTNGsifQ.eyJpc3MiOiJodHRwczovL3BheS5leGFtcGxlLmNvbS9hcGkvdjEiLCJzdWIiOiIweGYzOUZkNmU1MWFhZDg4RjZGNGNlN
mFCODgyNzI3OWNmZkZiOTIyNjYiLCJhdWQiOiJodHRwczovL3BheS5leGFtcGxlLmNvbS9hcGkvdjEveDQwMiIsImp0aSI6IjB4NmMzYjE4ZGRmN2E3M2RjN2QwY2E1MjZiMTg0NjNkNDA4MzM3Mzk2YTdiNDQ1ZGJiNmYzNWRmNmNmYzJiMjYzNCIsImlhdCI6MTc5N
TIyNjQwMCwiZXhwIjoxNzk1MjMwMDAwLCJwbGFuSWQiOiI0NDc0Mjc2MzA3NjA0NzQ5NzY0MDA4MDIzMDIzNjc4MTQ3NDEyOTk3MDk5MjcyNzg5NjU5Mzg2MTk5NzM0NzEzNTYxMzEzNTU3MTA3MSIsImFnZW50SWQiOiI1MDYzNzMxMDUzOTM4MDc3Mzk5NDk0Nzc5N
jI4NjYwNjkyNjQxOTM2MjIyMzUxMzk0MDM4NTI4ODU5ODk1NDU0MjAzNTM4OTk0NTg5OSIsInN1YnNjcmliZXJBZGRyZXNzIjoiMHhmMzlGZDZlNTFhYWQ4OEY2RjRjZTZhQjg4MjcyNzljZmZGYjkyMjY2IiwiYXV0aG9yaXphdGlvbiI6eyJmcm9tIjoiMHhmMzlGZ
DZlNTFhYWQ4OEY2RjRjZTZhQjg4MjcyNzljZmZGYjkyMjY2IiwicGxhbklkIjoiNDQ3NDI3NjMwNzYwNDc0OTc2NDAwODAyMzAyMzY3ODE0NzQxMjk5NzA5OTI3Mjc4OTY1OTM4NjE5OTczNDcxMzU2MTMxMzU1NzEwNzEiLCJhZ2VudElkIjoiNTA2MzczMTA1MzkzO
DA3NzM5OTQ5NDc3OTYyODY2MDY5MjY0MTkzNjIyMjM1MTM5NDAzODUyODg1OTg5NTQ1NDIwMzUzODk5NDU4OTkifSwiY3JlZGl0cyI6eyJyZWRlbXB0aW9uTGltaXQiOiIxMDAifSwieDQwMlZlcnNpb24iOjIsImFjY2VwdGVkIjp7InNjaGVtZSI6InN2YzplcmM0M
zM3IiwibmV0d29yayI6ImVpcDE1NTo4NDUzMiIsInBsYW5JZCI6IjQ0NzQyNzYzMDc2MDQ3NDk3NjQwMDgwMjMwMjM2NzgxNDc0MTI5OTcwOTkyNzI3ODk2NTkzODYxOTk3MzQ3MTM1NjEzMTM1NTcxMDcxIiwiZXh0cmEiOnsidmVyc2lvbiI6IjEiLCJhZ2VudElkI
joiNTA2MzczMTA1MzkzODA3NzM5OTQ5NDc3OTYyODY2MDY5MjY0MTkzNjIyMjM1MTM5NDAzODUyODg1OTg5NTQ1NDIwMzUzODk5NDU4OTkifX19.LLJ_aEoO5dtv8WezP89zlaGcjHdSV4ndpLGmQIHJSpuwTUMiQuQqgsHddL8wRauqYBpVjBJ-BGwkOgZg79pjBw`, "\n", "")

var exampleClaims = Claims{
	Issuer: testIssuer, Audience: []string{testIssuer + "/x402"},
	Subscriber: toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
	Hash:       mustHash("0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634"),
	IssuedAt:   time.Unix(issuedAt, 0).UTC(), ExpiresAt: time.Unix(issuedAt+3600, 0).UTC(),
	PlanID:          "44742763076047497640080230236781474129970992727896593861997347135613135571071",
	AgentID:         "50637310539380773994947796286606926419362223513940385288598954542035389945899",
	RedemptionLimit: toll.Credits(100).Ptr(), Scheme: "svc:erc4337", Network: "eip155:84532",
}

func mustHash(s string) toll.Hash {
	h, err := toll.ParseHash(s)
	if err != nil {
		panic(err)
	}
	return h
}

// code returns the code of a *toll.Error, "" for nil.
func code(t testing.TB, err error) toll.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := err.(*toll.Error)
	if !ok {
		t.Fatalf("%T is not a *toll.Error: %v", err, err)
	}
	return e.Code
}

func refusedToken(t testing.TB, a *Auth, name, jws string) {
	t.Helper()
	c, err := a.VerifyToken(jws)
	if got := code(t, err); got != toll.CodeTokenSignature || c != nil {
		t.Errorf("%s: got %q and claims %t, want %q without claims", name, got, c != nil, toll.CodeTokenSignature)
	}
}

func logTo(w *strings.Builder) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func ring() *seal.Ring { return seal.New(testMaster) }

// AddSigningKey makes a key of API keys and access tokens that is published at once and signs when all older ones are retired. It returns its id.
func (a *Auth) AddSigningKey(ctx context.Context) (string, error) {
	var kid string
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		rows, err := keysFor(ctx, tx, "")
		if err != nil {
			return err
		}
		// Keys take their turns in the order of their times, also when this clock is behind that of another process.
		now := a.clock()
		if n := len(rows); n > 0 && !rows[n-1].CreatedAt.Before(now) {
			now = rows[n-1].CreatedAt.Add(time.Microsecond)
		}
		kid, err = a.newSigningKey(ctx, tx, "", now)
		return err
	})
	if err != nil {
		return "", err
	}
	return kid, a.readKeysNow(ctx)
}

// RetireSigningKey ends the use of a key of API keys and access tokens at a moment. What it signed before stays valid until its own end; what it
// signed since is refused. A zero moment is the first at which nobody notices: two minutes after the next key has been
// published for ten minutes, at least two minutes from now. A retired key keeps its moment. The last key cannot be
// retired.
func (a *Auth) RetireSigningKey(ctx context.Context, kid string, at time.Time) error {
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		rows, err := keysFor(ctx, tx, "")
		if err != nil {
			return err
		}
		known := false
		var next time.Time
		for _, row := range rows {
			switch {
			case row.KID == kid:
				known = true
			case row.RetiredAt.IsZero() && (next.IsZero() || row.CreatedAt.Before(next)):
				next = row.CreatedAt
			}
		}
		if !known {
			return fmt.Errorf("auth: there is no signing key %q", kid)
		}
		if next.IsZero() {
			return errors.New("auth: the last signing key cannot be retired: add one first")
		}
		when := at
		if when.IsZero() {
			when = a.unnoticed(next)
		}
		return store.RetireSigningKey(ctx, tx, kid, when)
	})
	if err != nil {
		return err
	}
	return a.readKeysNow(ctx)
}
