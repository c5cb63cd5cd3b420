package x402_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// The worked example of a sign-in.
const (
	signInRoute    = "https://pay.example.com/api/v1/x402/plans/" + salePlan + "/token"
	signInDeclared = `{"info":{"domain":"pay.example.com","uri":"` + signInRoute + `","version":"1","nonce":"e0773e0f4d14eb6bb22c4e94605581d5","issuedAt":"2026-11-21T02:10:00.000Z","expirationTime":"2026-11-21T02:15:00.000Z","statement":"Get an access token for this plan","resources":["https://pay.example.com/api/v1/x402/plans/` + salePlan + `"]},"supportedChains":[{"chainId":"eip155:84532","type":"eip191"}],"schema":`
	signInText     = `pay.example.com wants you to sign in with your Ethereum account:
0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266

Get an access token for this plan

URI: ` + signInRoute + `
Version: 1
Chain ID: 84532
Nonce: e0773e0f4d14eb6bb22c4e94605581d5
Issued At: 2026-11-21T02:10:00.000Z
Expiration Time: 2026-11-21T02:15:00.000Z
Resources:
- https://pay.example.com/api/v1/x402/plans/` + salePlan
	signInProof = "eyJkb21haW4iOiJwYXkuZXhhbXBsZS5jb20iLCJhZGRyZXNzIjoiMHhmMzlGZDZlNTFhYWQ4OEY2RjRjZTZhQjg4MjcyNzljZmZGYjkyMjY2Iiwic3RhdGVtZW50IjoiR2V0IGFuIGFjY2VzcyB0b2tlbiBmb3IgdGhpcyBwbGFuIiwidXJpIjoiaHR0cHM6Ly9wYXkuZXhhbXBsZS5jb20vYXBpL3YxL3g0MDIvcGxhbnMvNDQ3NDI3NjMwNzYwNDc0OTc2NDAwODAyMzAyMzY3ODE0NzQxMjk5NzA5OTI3Mjc4OTY1OTM4NjE5OTczNDcxMzU2MTMxMzU1NzEwNzEvdG9rZW4iLCJ2ZXJzaW9uIjoiMSIsImNoYWluSWQiOiJlaXAxNTU6ODQ1MzIiLCJ0eXBlIjoiZWlwMTkxIiwibm9uY2UiOiJlMDc3M2UwZjRkMTRlYjZiYjIyYzRlOTQ2MDU1ODFkNSIsImlzc3VlZEF0IjoiMjAyNi0xMS0yMVQwMjoxMDowMC4wMDBaIiwiZXhwaXJhdGlvblRpbWUiOiIyMDI2LTExLTIxVDAyOjE1OjAwLjAwMFoiLCJyZXNvdXJjZXMiOlsiaHR0cHM6Ly9wYXkuZXhhbXBsZS5jb20vYXBpL3YxL3g0MDIvcGxhbnMvNDQ3NDI3NjMwNzYwNDc0OTc2NDAwODAyMzAyMzY3ODE0NzQxMjk5NzA5OTI3Mjc4OTY1OTM4NjE5OTczNDcxMzU2MTMxMzU1NzEwNzEiXSwic2lnbmF0dXJlIjoiMHgyZjAzNjA5ZDI4YmFhYTFiNDZiZDdiYjhiNDdkNGFhOWUwZmFjYTZkYmEyOTZiZjM0YzAwZDc5Y2MzNWEzMjA5NDI3NWYyM2I2ZDhkZWQ2YWQwNDM1YjViZmI1ODYzODM2ZGE3YjVhNGE3NTNiNGFkZDliYzU4ODQxMDRhMWJlYzFiIn0="
)

func signInInfo() x402.SignInInfo {
	return x402.SignInInfo{
		Domain: "pay.example.com", URI: signInRoute, Version: "1", Nonce: "e0773e0f4d14eb6bb22c4e94605581d5",
		IssuedAt: "2026-11-21T02:10:00.000Z", ExpirationTime: "2026-11-21T02:15:00.000Z", Statement: "Get an access token for this plan",
		Resources: []string{strings.TrimSuffix(signInRoute, "/token")},
	}
}

// Declaration, text and proof of the example, byte for byte.
func TestSignIn(t *testing.T) {
	declared, err := x402.Encode(x402.NewSignInExtension(signInInfo(), "eip155:84532"))
	if err != nil || !strings.HasPrefix(string(declared), signInDeclared) {
		t.Errorf("%v\n got %s\nwant %s", err, declared, signInDeclared)
	}
	key := must.Get(evm.ParseKey(devKey))(t)
	made := x402.NewSignIn(signInInfo(), x402.SignInChain{ChainID: "eip155:84532", Type: x402.TypeEIP191}, key.Address())
	if made.Text() != signInText {
		t.Errorf("the text is\n%s\nwant\n%s", made.Text(), signInText)
	}
	p, err := x402.DecodeSignIn(signInProof)
	if err != nil || p.Text() != signInText {
		t.Fatalf("%v: %+v", err, p)
	}
	signer, err := evm.Recover(evm.PersonalDigest(p.Text()), p.SignatureBytes())
	if err != nil || signer != key.Address() {
		t.Errorf("%v, signed by %s", err, signer)
	}
	made.Signature = p.Signature
	if header, err := made.Encode(); err != nil || header != signInProof {
		t.Errorf("%v\n got %s\nwant %s", err, header, signInProof)
	}
}

// A hint at the kind of the signature is carried along, and is no part of what is signed.
func TestSignIn_SignatureScheme(t *testing.T) {
	key := must.Get(evm.ParseKey(devKey))(t)
	made := x402.NewSignIn(signInInfo(), x402.SignInChain{ChainID: "eip155:84532", Type: x402.TypeEIP191, SignatureScheme: "eip1271"}, key.Address())
	if made.Text() != signInText {
		t.Errorf("the text is\n%s\nwant\n%s", made.Text(), signInText)
	}
	made.Signature = "0x00"
	header := must.Get(made.Encode())(t)
	if p, err := x402.DecodeSignIn(header); err != nil || p.SignatureScheme != "eip1271" {
		t.Errorf("%+v, %v", p, err)
	}
	for scheme, want := range map[string]bool{"": true, "eip191": true, "eip1271": true, "eip6492": true, "siws": false, "EIP191": false} {
		if x402.KnownSignature(scheme) != want {
			t.Errorf("%q: %v", scheme, !want)
		}
	}
}

// The optional lines stand where EIP-4361 has them.
func TestSignInText(t *testing.T) {
	p := &x402.SignIn{Domain: "d", Address: "0xA", URI: "u", Version: "1", ChainID: "eip155:1", Nonce: "n", IssuedAt: "t"}
	if want := "d wants you to sign in with your Ethereum account:\n0xA\n\n\nURI: u\nVersion: 1\nChain ID: 1\nNonce: n\nIssued At: t"; p.Text() != want {
		t.Errorf("%q, want %q", p.Text(), want)
	}
	p.NotBefore, p.RequestID, p.Resources = "b", "r", []string{"x", "y"}
	if want := "\nIssued At: t\nNot Before: b\nRequest ID: r\nResources:\n- x\n- y"; !strings.HasSuffix(p.Text(), want) {
		t.Errorf("%q", p.Text())
	}
}

// No member can pretend to be a line of the text.
func TestDecodeSignIn_Bad(t *testing.T) {
	good := x402.NewSignIn(signInInfo(), x402.SignInChain{ChainID: "eip155:84532", Type: x402.TypeEIP191}, toll.Address{1})
	good.Signature = "0x00"
	for name, change := range map[string]func(*x402.SignIn){
		"line in the statement": func(p *x402.SignIn) { p.Statement = "a\n\nURI: b" },
		"line in a resource":    func(p *x402.SignIn) { p.Resources = []string{"a\n- b"} },
		"line in the request":   func(p *x402.SignIn) { p.RequestID = "a\nResources:" },
		"blank in the uri":      func(p *x402.SignIn) { p.URI += " " },
		"no nonce":              func(p *x402.SignIn) { p.Nonce = "" },
		"no signature":          func(p *x402.SignIn) { p.Signature = "" },
		"many resources":        func(p *x402.SignIn) { p.Resources = make([]string, 17) },
		"not ASCII":             func(p *x402.SignIn) { p.Domain = "päy.example.com" },
	} {
		bad := *good
		change(&bad)
		header := must.Get(bad.Encode())(t)
		if _, err := x402.DecodeSignIn(header); err == nil || toll.AsError(err).Code != toll.CodeTokenUndecodable {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []string{"", "x", "{}", "{", strings.Repeat("e", x402.MaxTokenBytes+1)} {
		if _, err := x402.DecodeSignIn(s); err == nil {
			t.Errorf("%.20q is taken", s)
		}
	}
}
