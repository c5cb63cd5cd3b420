package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"hash"
	"math/big"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/rounds"
)

// T01
func TestUnsignedJWS(t *testing.T) {
	a, _ := known(t)
	for _, alg := range []string{`"alg":"none",`, `"alg":"None",`, `"alg":"NONE",`, `"alg":"nOnE",`, ``, `"alg":"",`, `"alg":null,`, `"alg":["EdDSA"],`} {
		header := "{" + alg + `"typ":"JWT","kid":"` + testKID + `"}`
		refusedToken(t, a, header+" unsigned", b64(header)+"."+b64(examplePayload)+".")
		refusedToken(t, a, header+" signed", signed(ownKey(), header, examplePayload))
	}
	refusedToken(t, a, "empty third part", exampleJWS[:strings.LastIndexByte(exampleJWS, '.')+1])
	refusedToken(t, a, "no third part", exampleJWS[:strings.LastIndexByte(exampleJWS, '.')])
	refusedToken(t, a, "zero signature", exampleJWS[:strings.LastIndexByte(exampleJWS, '.')+1]+strings.Repeat("A", 86))
	refusedToken(t, a, "empty", "")
}

// T01
func TestLongJWS(t *testing.T) {
	for n, good := range map[int]bool{maxJWS: true, maxJWS + 1: false} {
		if _, _, _, ok := splitCompact("a." + strings.Repeat("b", n-4) + ".c"); ok != good {
			t.Errorf("a JWS of %d bytes: %t", n, ok)
		}
	}
}

// T02
func TestAlgorithmConfusion(t *testing.T) {
	a, _ := known(t)
	public := ownKey().Public().(ed25519.PublicKey)
	der := must.Get(x509.MarshalPKIXPublicKey(public))(t)
	jwk := must.Get((&jose.JSONWebKey{Key: public, KeyID: testKID}).MarshalJSON())(t)
	secrets := map[string][]byte{
		"raw": public, "base64url": []byte(base64.RawURLEncoding.EncodeToString(public)),
		"pem": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "der": der, "jwk": jwk,
	}
	for alg, h := range map[string]func() hash.Hash{"HS256": sha256.New, "HS384": sha512.New384, "HS512": sha512.New, "EdDSA": sha512.New} {
		for kind, secret := range secrets {
			text := b64(`{"alg":"`+alg+`","typ":"JWT","kid":"`+testKID+`"}`) + "." + b64(examplePayload)
			mac := hmac.New(h, secret)
			mac.Write([]byte(text))
			refusedToken(t, a, alg+" "+kind, text+"."+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
		}
	}
	for _, alg := range []string{"ES256", "RS256", "PS256", "Ed25519", "EDDSA", "eddsa", "Ed448"} {
		refusedToken(t, a, alg, signed(ownKey(), `{"alg":"`+alg+`","typ":"JWT","kid":"`+testKID+`"}`, examplePayload))
	}
	text := b64(ownHeader) + "." + b64(examplePayload)
	ed448 := make([]byte, 114)
	_, _ = rand.Read(ed448)
	refusedToken(t, a, "EdDSA over Ed448", text+"."+base64.RawURLEncoding.EncodeToString(ed448))
	refusedToken(t, a, "type JOSE", signed(ownKey(), `{"alg":"EdDSA","typ":"JOSE","kid":"`+testKID+`"}`, examplePayload))
	refusedToken(t, a, "no type", signed(ownKey(), `{"alg":"EdDSA","kid":"`+testKID+`"}`, examplePayload))
	refusedToken(t, a, "algorithm twice", signed(ownKey(), `{"alg":"none","alg":"EdDSA","typ":"JWT","kid":"`+testKID+`"}`, examplePayload))
	refusedToken(t, a, "member case", signed(ownKey(), `{"Alg":"EdDSA","typ":"JWT","kid":"`+testKID+`"}`, examplePayload))
}

// T03
func TestKeyInsideTheJWS(t *testing.T) {
	a, _ := known(t)
	var asked atomic.Int64
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1) }))
	defer evil.Close()
	_, attacker, err := ed25519.GenerateKey(rand.Reader)
	must.Do(t, err)
	public := attacker.Public().(ed25519.PublicKey)
	kid := must.Get(thumbprint(public))(t)
	jwk := must.Get((&jose.JSONWebKey{Key: public, KeyID: kid}).MarshalJSON())(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, public, attacker))(t)
	members := map[string]string{
		"jwk": `"jwk":` + string(jwk), "jku": `"jku":"` + evil.URL + `"`, "x5u": `"x5u":"` + evil.URL + `"`,
		"x5c": `"x5c":["` + base64.StdEncoding.EncodeToString(der) + `"]`,
	}
	for name, member := range members {
		for _, id := range []string{testKID, kid} {
			refusedToken(t, a, name+" "+id, signed(attacker, `{"alg":"EdDSA","typ":"JWT","kid":"`+id+`",`+member+`}`, examplePayload))
		}
		refusedToken(t, a, name+" without kid", signed(attacker, `{"alg":"EdDSA","typ":"JWT",`+member+`}`, examplePayload))
		// Beside our own signature the member means nothing.
		if _, err := a.VerifyToken(signed(ownKey(), `{"alg":"EdDSA","typ":"JWT","kid":"`+testKID+`",`+member+`}`, examplePayload)); err != nil {
			t.Errorf("%s beside our signature: %v", name, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests to an address in a header", n)
	}
}

// order is the order of the prime subgroup of edwards25519.
var order, _ = new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

func littleEndian(n *big.Int) []byte {
	b := n.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	return b
}

func fromLittleEndian(b []byte) *big.Int {
	c := slices.Clone(b)
	slices.Reverse(c)
	return new(big.Int).SetBytes(c)
}

// T05
func TestMalleableSignature(t *testing.T) {
	a, _ := known(t)
	must.Get(a.VerifyToken(exampleJWS))(t)
	dot := strings.LastIndexByte(exampleJWS, '.')
	text, sig := exampleJWS[:dot], mustDecode(exampleJWS[dot+1:])
	with := func(sig []byte) string { return text + "." + base64.RawURLEncoding.EncodeToString(sig) }

	s := fromLittleEndian(sig[32:])
	for i := int64(1); i < 8; i++ {
		shifted := new(big.Int).Add(s, new(big.Int).Mul(order, big.NewInt(i)))
		refusedToken(t, a, fmt.Sprintf("S+%dL", i), with(append(slices.Clone(sig[:32]), littleEndian(shifted)...)))
	}
	if len(smallOrderPoints) != 8 {
		t.Errorf("%d points of small order, want 8", len(smallOrderPoints))
	}
	for r := range smallOrderPoints {
		for _, s := range [][]byte{sig[32:], make([]byte, 32)} {
			refusedToken(t, a, "R "+hex.EncodeToString(r[:]), with(append(slices.Clone(r[:]), s...)))
		}
	}
	// With the private key a signature over the identity can be made that crypto/ed25519 takes: S = k·a. Every other
	// point of small order lies outside the subgroup and cannot.
	digest := sha512.Sum512(testSeed)
	digest[0] &= 248
	digest[31] = digest[31]&127 | 64
	for r := range smallOrderPoints {
		h := sha512.New()
		h.Write(r[:])
		h.Write(ownKey().Public().(ed25519.PublicKey))
		h.Write([]byte(text))
		k := new(big.Int).Mod(fromLittleEndian(h.Sum(nil)), order)
		k.Mul(k, fromLittleEndian(digest[:32])).Mod(k, order)
		forged := append(slices.Clone(r[:]), littleEndian(k)...)
		identity := r == [32]byte{1}
		if got := ed25519.Verify(ownKey().Public().(ed25519.PublicKey), []byte(text), forged); got != identity {
			t.Errorf("crypto/ed25519 takes R %x: %t", r, got)
		}
		refusedToken(t, a, fmt.Sprintf("made with R %x", r), with(forged))
	}
	for i := range sig {
		for bit := range 8 {
			flipped := slices.Clone(sig)
			flipped[i] ^= 1 << bit
			refusedToken(t, a, fmt.Sprintf("signature bit %d.%d", i, bit), with(flipped))
		}
	}
	for i := range exampleJWS {
		for bit := rounds.Of(i%8, 0); bit < 8; bit += rounds.Of(8, 1) { // one bit of each character; in make test-all all of them
			flipped := []byte(exampleJWS)
			flipped[i] ^= 1 << bit
			refusedToken(t, a, fmt.Sprintf("character %d bit %d", i, bit), string(flipped))
		}
	}
	for i := range exampleJWS {
		refusedToken(t, a, fmt.Sprintf("first %d", i), exampleJWS[:i])
	}
	// The signature has 4 unused bits, so 15 other last characters decode to the same 64 bytes.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	same := 0
	for _, c := range alphabet {
		other := exampleJWS[:len(exampleJWS)-1] + string(c)
		b, err := base64.RawURLEncoding.DecodeString(other[dot+1:])
		if err == nil && bytes.Equal(b, sig) {
			same++
		}
		if other != exampleJWS {
			refusedToken(t, a, "last character "+string(c), other)
		}
	}
	if same != 16 {
		t.Errorf("%d last characters decode to the signature, want 16", same)
	}
	for _, junk := range []string{"=", "==", "\n", "\r\n", " ", "\t", "\x00", ".", "A", "+", "/", "é"} {
		for _, at := range []int{0, 5, strings.IndexByte(exampleJWS, '.'), dot, dot + 1, len(exampleJWS)} {
			refusedToken(t, a, fmt.Sprintf("%q at %d", junk, at), exampleJWS[:at]+junk+exampleJWS[at:])
		}
	}
	refusedToken(t, a, "standard alphabet", strings.NewReplacer("-", "+", "_", "/").Replace(exampleJWS))
}

// T07
func TestExoticJOSE(t *testing.T) {
	a, _ := known(t)
	with := func(members string) string {
		return signed(ownKey(), `{"alg":"EdDSA","typ":"JWT","kid":"`+testKID+`"`+members+`}`, examplePayload)
	}
	sig := exampleJWS[strings.LastIndexByte(exampleJWS, '.')+1:]
	nested := signed(ownKey(), `{"alg":"EdDSA","typ":"JWT","cty":"JWT","kid":"`+testKID+`"}`, exampleJWS)
	deep := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)
	exotic := map[string]string{
		"crit":            with(`,"crit":["exp"],"exp":1`),
		"crit b64":        with(`,"crit":["b64"],"b64":true`),
		"crit empty":      with(`,"crit":[]`),
		"crit null":       with(`,"crit":null`),
		"b64 false":       with(`,"b64":false`),
		"b64 false, crit": with(`,"b64":false,"crit":["b64"]`),
		"zip":             with(`,"zip":"DEF"`),
		"raw payload":     b64(`{"alg":"EdDSA","typ":"JWT","b64":false,"crit":["b64"],"kid":"`+testKID+`"}`) + "." + examplePayload + "." + sig,
		"JWE":             b64(`{"alg":"dir","enc":"A256GCM"}`) + "..AAAA.AAAA.AAAA",
		"JWE, five parts": exampleJWS + ".AAAA.AAAA",
		"flattened JSON":  `{"protected":"` + b64(ownHeader) + `","payload":"` + b64(examplePayload) + `","signature":"` + sig + `"}`,
		"general JSON":    `{"payload":"` + b64(examplePayload) + `","signatures":[{"protected":"` + b64(ownHeader) + `","signature":"` + sig + `"}]}`,
		"nested JWS":      nested,
		"nested, no cty":  signed(ownKey(), ownHeader, exampleJWS),
		"10,000 dots":     strings.Repeat(".", 10000),
		"8,000 dots":      strings.Repeat(".", 8000),
		"100 KB header":   b64(`{"alg":"EdDSA","typ":"JWT","kid":"`+testKID+`","x":"`+strings.Repeat("x", 100<<10)+`"}`) + "." + b64(examplePayload) + "." + sig,
		"5 KB header":     b64(`{"alg":"EdDSA","typ":"JWT","kid":"`+strings.Repeat("x", 3<<10)+`"}`) + "." + b64(examplePayload) + "." + sig,
		"many members":    b64("{"+strings.Repeat(`"a":1,`, 500)+`"kid":"x"}`) + "." + b64(examplePayload) + "." + sig,
		"deep header":     b64(deep[:4000]) + "." + b64(examplePayload) + "." + sig,
		"deep, closed":    b64(`{"kid":"`+testKID+`","a":`+deep[:0]+strings.Repeat("[", 800)+strings.Repeat("]", 800)+"}") + ".e30." + sig,
		"x5c bomb":        b64(`{"alg":"EdDSA","typ":"JWT","kid":"x","x5c":["`+strings.Repeat("MIIB", 500)+`"]}`) + ".e30." + sig,
		"1 MB":            strings.Repeat("A", 1<<20),
	}
	// verifying returns the shortest of many times, as a busy machine makes some longer, and what one needs of memory.
	verifying := func(jws string) (best time.Duration, each uint64) {
		var before, after runtime.MemStats
		best = time.Hour
		const runs = 20
		runtime.ReadMemStats(&before)
		for range runs {
			a.keys().tokens.Clear()
			began := time.Now()
			_, _ = a.VerifyToken(jws)
			best = min(best, time.Since(began))
		}
		runtime.ReadMemStats(&after)
		return best, (after.TotalAlloc - before.TotalAlloc) / runs
	}
	good, _ := verifying(exampleJWS)
	for name, jws := range exotic {
		refusedToken(t, a, name, jws)
		if best, each := verifying(jws); best > 5*good || each > 64<<10 {
			t.Errorf("%s: %v and %d bytes, want < 5 times the %v of a good one, and < 64 KiB", name, best, each, good)
		}
	}
}
