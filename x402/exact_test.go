package x402_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// The worked example of a plan sale: the first development account pays one USDC on Base Sepolia.
const (
	devKey     = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	salePlan   = "44742763076047497640080230236781474129970992727896593861997347135613135571071"
	saleRoute  = "https://pay.example.com/api/v1/x402/plans/" + salePlan + "/order"
	saleHeader = "eyJ4NDAyVmVyc2lvbiI6MiwiZXJyb3IiOiJQYXltZW50IHJlcXVpcmVkIiwicmVzb3VyY2UiOnsidXJsIjoiaHR0cHM6Ly9wYXkuZXhhbXBsZS5jb20vYXBpL3YxL3g0MDIvcGxhbnMvNDQ3NDI3NjMwNzYwNDc0OTc2NDAwODAyMzAyMzY3ODE0NzQxMjk5NzA5OTI3Mjc4OTY1OTM4NjE5OTczNDcxMzU2MTMxMzU1NzEwNzEvb3JkZXIiLCJkZXNjcmlwdGlvbiI6IjEwMCBjcmVkaXRzIG9mIHBsYW4gU3RhcnRlciIsIm1pbWVUeXBlIjoiYXBwbGljYXRpb24vanNvbiJ9LCJhY2NlcHRzIjpbeyJzY2hlbWUiOiJleGFjdCIsIm5ldHdvcmsiOiJlaXAxNTU6ODQ1MzIiLCJhbW91bnQiOiIxMDAwMDAwIiwiYXNzZXQiOiIweDAzNkNiRDUzODQyYzU0MjY2MzRlNzkyOTU0MWVDMjMxOGYzZENGN2UiLCJwYXlUbyI6IjB4NzA5OTc5NzBDNTE4MTJkYzNBMDEwQzdkMDFiNTBlMGQxN2RjNzlDOCIsIm1heFRpbWVvdXRTZWNvbmRzIjoxMjAsImV4dHJhIjp7Im5hbWUiOiJVU0RDIiwidmVyc2lvbiI6IjIiLCJhc3NldFRyYW5zZmVyTWV0aG9kIjoiZWlwMzAwOSIsInBsYW5JZCI6IjQ0NzQyNzYzMDc2MDQ3NDk3NjQwMDgwMjMwMjM2NzgxNDc0MTI5OTcwOTkyNzI3ODk2NTkzODYxOTk3MzQ3MTM1NjEzMTM1NTcxMDcxIn19XSwiZXh0ZW5zaW9ucyI6eyJwYXltZW50LWlkZW50aWZpZXIiOnsiaW5mbyI6eyJyZXF1aXJlZCI6ZmFsc2V9LCJzY2hlbWEiOnsidHlwZSI6Im9iamVjdCIsInByb3BlcnRpZXMiOnsicmVxdWlyZWQiOnsidHlwZSI6ImJvb2xlYW4ifSwiaWQiOnsidHlwZSI6InN0cmluZyIsIm1pbkxlbmd0aCI6MTYsIm1heExlbmd0aCI6MTI4LCJwYXR0ZXJuIjoiXlthLXpBLVowLTlfLV0rJCJ9fSwicmVxdWlyZWQiOlsicmVxdWlyZWQiXX19fX0="
	salePaid   = `{"x402Version":2,"resource":{"url":"` + saleRoute + `","description":"100 credits of plan Starter","mimeType":"application/json"},"accepted":{"scheme":"exact","network":"eip155:84532","amount":"1000000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","maxTimeoutSeconds":120,"extra":{"name":"USDC","version":"2","assetTransferMethod":"eip3009","planId":"` + salePlan + `"}},"payload":{"authorization":{"from":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","to":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","value":"1000000","validAfter":"0","validBefore":"1795226520","nonce":"0x676b8bb84ce7267dd520deca4811c8f10a53e636352f06987f42fe425acedd80"},"signature":"0x2b34badec3e8bddf645dfd12db3c2e0ac5585b86ed41dcc0be7624fdec89b3233ef39f4db606bd0e3b32bd202ddca4e92d7218f5daa4677bc4581cc274c9402a1b"},"extensions":{"payment-identifier":{"info":{"required":false,"id":"pay_0f9c1d2e3a4b5c6d7e8f901234567890"},"schema":{"type":"object","properties":{"required":{"type":"boolean"},"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}}}`
	saleDone   = "eyJzdWNjZXNzIjp0cnVlLCJ0cmFuc2FjdGlvbiI6IjB4NmZjNTJhNzdkNjBkZmM3YWVhZDRhNzU4Zjg0Y2NiNjc2NWFlYTY3NGE1ZTNhNmQ1YTg1NjZhZjA5NWI4NWZiZCIsIm5ldHdvcmsiOiJlaXAxNTU6ODQ1MzIiLCJwYXllciI6IjB4ZjM5RmQ2ZTUxYWFkODhGNkY0Y2U2YUI4ODI3Mjc5Y2ZmRmI5MjI2NiIsImFtb3VudCI6IjEwMDAwMDAiLCJleHRyYSI6eyJvcmRlcklkIjoiMDFhMWZiZDQtZjUwMC03ZDhlLTlmMDEtMjM0NTY3ODlhYmNkIiwicGxhbklkIjoiNDQ3NDI3NjMwNzYwNDc0OTc2NDAwODAyMzAyMzY3ODE0NzQxMjk5NzA5OTI3Mjc4OTY1OTM4NjE5OTczNDcxMzU2MTMxMzU1NzEwNzEiLCJjcmVkaXRzR3JhbnRlZCI6IjEwMCIsInJlbWFpbmluZ0JhbGFuY2UiOiIxMDAifX0="
)

func saleEntry() x402.ExactRequirements {
	return x402.ExactRequirements{
		Scheme: x402.SchemeExact, Network: "eip155:84532", Amount: "1000000", Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", MaxTimeoutSeconds: 120,
		Extra: x402.ExactExtra{Name: "USDC", Version: "2", AssetTransferMethod: x402.MethodEIP3009, PlanID: salePlan},
	}
}

func TestSaleRequired(t *testing.T) {
	got, err := x402.EncodeHeader(&x402.SaleRequired{
		X402Version: x402.Version, Error: "Payment required",
		Resource: x402.Resource{URL: saleRoute, Description: "100 credits of plan Starter", MimeType: "application/json"},
		Accepts:  []x402.ExactRequirements{saleEntry()}, Extensions: map[string]json.RawMessage{x402.ExtensionPaymentIdentifier: x402.PaymentIdentifier(false)},
	})
	if err != nil || got != saleHeader {
		t.Errorf("%v\n got %s\nwant %s", err, got, saleHeader)
	}
}

// The payment of the example is read in each encoding, and its signature is that of the key for the domain of the token.
func TestDecodeExact(t *testing.T) {
	padded := must.Get(x402.EncodeHeader(json.RawMessage(salePaid)))(t)
	for _, form := range []string{salePaid, padded, strings.TrimRight(padded, "="), strings.NewReplacer("+", "-", "/", "_").Replace(padded)} {
		p, err := x402.DecodeExact(form)
		if err != nil {
			t.Fatalf("%v: %.80s", err, form)
		}
		entry := saleEntry()
		if !entry.Pays(&p.Accepted) || p.PaymentIdentifier != "pay_0f9c1d2e3a4b5c6d7e8f901234567890" || p.ResourceURL != saleRoute {
			t.Errorf("%+v", p)
		}
		key := must.Get(evm.ParseKey(devKey))(t)
		a := p.Authorization
		signed := evm.Authorization{
			From: a.From, To: a.To, Value: a.Value.Int(), ValidAfter: a.ValidAfter.Int().Uint64(), ValidBefore: a.ValidBefore.Int().Uint64(), Nonce: a.Nonce,
		}
		domain := evm.Domain{Name: "USDC", Version: "2", ChainID: toll.UnitsOf(84532).Int(), Contract: toll.USDCSandbox}
		again, err := signed.Sign(key, domain)
		if err != nil || string(again) != string(p.Signature) {
			t.Errorf("%v, signed %x, want %x", err, again, p.Signature)
		}
		out, err := x402.Encode(&x402.ExactPayload{Authorization: a, Signature: "0x" + hex.EncodeToString(p.Signature)})
		if err != nil || !strings.Contains(salePaid, `"payload":`+string(out)+`,`) {
			t.Errorf("%v, the payload is written as %s", err, out)
		}
	}
}

func TestExactReceipt(t *testing.T) {
	got, err := x402.EncodeHeader(&x402.ExactReceipt{
		Success: true, Transaction: "0x6fc52a77d60dfc7aead4a758f84ccb6765aea674a5e3a6d5a8566af095b85fbd", Network: "eip155:84532",
		Payer: "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", Amount: "1000000",
		Extra: &x402.ExactGrant{OrderID: "01a1fbd4-f500-7d8e-9f01-23456789abcd", PlanID: salePlan, CreditsGranted: 100, RemainingBalance: 100},
	})
	if err != nil || got != saleDone {
		t.Errorf("%v\n got %s\nwant %s", err, got, saleDone)
	}
}

// What is not the form of a payment is told apart from a payment that is refused later.
func TestDecodeExact_Bad(t *testing.T) {
	swap := func(old, new string) string {
		if !strings.Contains(salePaid, old) {
			t.Fatalf("no %s in the example", old)
		}
		return strings.Replace(salePaid, old, new, 1)
	}
	code := func(s string) toll.Code {
		_, err := x402.DecodeExact(s)
		if err == nil {
			return ""
		}
		return toll.AsError(err).Code
	}
	for name, c := range map[string]struct {
		text string
		want toll.Code
	}{
		"nothing":              {"", toll.CodeTokenUndecodable},
		"an access token":      {"a.b.c", toll.CodeTokenUndecodable},
		"version 1":            {swap(`"x402Version":2`, `"x402Version":1`), toll.CodeBadX402Version},
		"no entry":             {`{"x402Version":2,"payload":{}}`, toll.CodeTokenUndecodable},
		"no authorization":     {`{"x402Version":2,"accepted":{"scheme":"exact"},"payload":{"signature":"0x00"}}`, toll.CodeTokenUndecodable},
		"no value":             {swap(`"value":`, `"Value":`), toll.CodeTokenUndecodable},
		"too long a signature": {swap(`4c9402a1b"`, `4c9402a1b`+strings.Repeat("00", 4<<10-64)+`"`), toll.CodeTokenUndecodable},
		"the longest one":      {swap(`4c9402a1b"`, `4c9402a1b`+strings.Repeat("00", 4<<10-65)+`"`), ""},
		"no nonce":             {swap(`"nonce":`, `"Nonce":`), toll.CodeTokenUndecodable},
		"a nonce of 31 bytes":  {swap(`dd80"`, `dd"`), toll.CodeTokenUndecodable},
		"a value with a sign":  {swap(`"value":"1000000"`, `"value":"+1000000"`), toll.CodeTokenUndecodable},
		"a value as exponent":  {swap(`"value":"1000000"`, `"value":1e6`), toll.CodeTokenUndecodable},
		"no address":           {swap(`"to":"0x70`, `"to":"70`), toll.CodeTokenUndecodable},
		"no hex":               {swap(`"signature":"0x2b34`, `"signature":"0x2bzz`), toll.CodeTokenUndecodable},
		"a name twice":         {swap(`"value":"1000000"`, `"value":"1000000","value":"1000000"`), toll.CodeTokenUndecodable},
		"a short identifier":   {swap(`"id":"pay_0f9c1d2e3a4b5c6d7e8f901234567890"`, `"id":"pay"`), toll.CodeTokenUndecodable},
		"bytes after the end":  {salePaid + "{}", toll.CodeTokenUndecodable},
		"another scheme":       {`{"x402Version":2,"accepted":{"scheme":"upto","extra":[]},"payload":7}`, ""},
		"numbers for strings":  {swap(`"value":"1000000"`, `"value":1000000`), ""},
		"an upper-case nonce":  {swap("0x676b8bb84ce7267dd520deca4811c8f10a53e636352f06987f42fe425acedd80", "0x676B8BB84CE7267DD520DECA4811C8F10A53E636352F06987F42FE425ACEDD80"), ""},
		"a long signature":     {swap(`4c9402a1b"`, `4c9402a1b00"`), ""},
		"no identifier":        {swap(salePaid[strings.Index(salePaid, `{"info":`):], `null}}`), ""},
		"no info":              {swap(salePaid[strings.Index(salePaid, `{"info":`):], `{"info":null}}}`), ""},
		"an extension of ours": {swap(`"extensions":{`, `"extensions":{"other":[1],`), ""},
	} {
		if got := code(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, err := x402.DecodeExact(strings.Repeat("e", x402.MaxTokenBytes+1)); !errors.Is(err, toll.NewError(toll.CodeTokenUndecodable)) {
		t.Errorf("a value above the limit: %v", err)
	}
}

// An entry is paid by what a client kept of it, and by nothing that differs.
func TestExactRequirementsPays(t *testing.T) {
	ours := saleEntry()
	for name, change := range map[string]func(*x402.ExactRequirements){
		"scheme":  func(r *x402.ExactRequirements) { r.Scheme = "upto" },
		"network": func(r *x402.ExactRequirements) { r.Network = "eip155:8453" },
		"amount":  func(r *x402.ExactRequirements) { r.Amount = "999999" },
		"asset":   func(r *x402.ExactRequirements) { r.Asset = toll.EURCSandbox.String() },
		"payTo":   func(r *x402.ExactRequirements) { r.PayTo = toll.EURCSandbox.String() },
		"timeout": func(r *x402.ExactRequirements) { r.MaxTimeoutSeconds = 121 },
		"name":    func(r *x402.ExactRequirements) { r.Extra.Name = "USD Coin" },
		"version": func(r *x402.ExactRequirements) { r.Extra.Version = "1" },
		"method":  func(r *x402.ExactRequirements) { r.Extra.AssetTransferMethod = "permit2" },
		"plan":    func(r *x402.ExactRequirements) { r.Extra.PlanID = "1" },
	} {
		theirs := saleEntry()
		change(&theirs)
		if ours.Pays(&theirs) {
			t.Errorf("another %s passes", name)
		}
	}
	kept := saleEntry()
	kept.Asset, kept.PayTo = strings.ToLower(kept.Asset), strings.ToLower(kept.PayTo)
	kept.MaxTimeoutSeconds, kept.Extra = 0, x402.ExactExtra{}
	if !ours.Pays(&kept) {
		t.Error("a client that keeps five members is refused")
	}
}
