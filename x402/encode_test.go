package x402_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// generic is the encoder of all values.
func generic(t testing.TB, v any) string {
	t.Helper()
	b := must.Get(jsonx.Marshal(v, jsonx.Deterministic(true), jsontext.AllowInvalidUTF8(true)))(t)
	return string(b)
}

var oddTexts = []string{
	"", "a", "eight by", "plain text, longer than eight", `a "quote"`, `\`, "<script>&'", "tab\t", "\x00", "\x7f", "é", "日本語", "\u2028", "\xff", "a\xc0\xafb",
	"12345678\n", "12345678\"", "\U0001f600", "\ufffd", "0123456\x80", "0123456\x1f", " !#[]^",
}

// fill sets every member of v at random, whichever members it has: one that an encoder forgets is seen.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case toll.Time:
		at := time.Unix(r.Int64N(4e9), r.Int64N(1e9)).In(time.FixedZone("", 3600))
		if r.IntN(50) == 0 {
			at = time.Time{}
		}
		v.Set(reflect.ValueOf(toll.At(at)))
		return
	case json.RawMessage:
		raws := []string{"0", "1", "0.5", "12.000001", "333333333333333333", "1e5", "-1", `{"b": 1, "a":"\u0061"}`, "null", `"x"`}
		raw := raws[r.IntN(len(raws))]
		if r.IntN(3) > 0 {
			raw = raws[r.IntN(5)]
		}
		v.Set(reflect.ValueOf(json.RawMessage(raw)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		if r.IntN(10) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 4))
			for i := range v.Len() {
				fill(r, v.Index(i))
			}
		}
	case reflect.Array:
		if r.IntN(3) > 0 {
			for i := range v.Len() {
				fill(r, v.Index(i))
			}
		}
	case reflect.Map: // extensions
		for range r.IntN(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			k.SetString([]string{"a", "svc-credits", "offer-receipt", "é"}[r.IntN(4)])
			fill(r, e)
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		if r.IntN(3) > 0 {
			v.SetString(fmt.Sprintf("%s%d", oddTexts[1+r.IntN(3)], r.IntN(100)))
		} else {
			v.SetString(oddTexts[r.IntN(len(oddTexts))])
		}
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{0, 1, 100, 1<<63 - 1, -5, r.Int64()}[r.IntN(6)])
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(256)))
	default:
		panic("no value for " + v.Type().String())
	}
}

// TestEncode_AsGeneric holds that an answer is written as the generic encoder writes it.
func TestEncode_AsGeneric(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	same := func(v *x402.VerifyResponse) {
		t.Helper()
		if b, err := x402.Encode(v); err != nil || string(b) != generic(t, v) {
			t.Fatalf("%v\n%s\nin place of\n%s", err, b, generic(t, v))
		}
	}
	for range 20_000 {
		v := new(x402.VerifyResponse)
		fill(r, reflect.ValueOf(v).Elem())
		same(v)
	}
	for c := range 256 {
		for at := range 20 {
			text := []byte("an ASCII text of 20.")
			text[at] = byte(c)
			same(&x402.VerifyResponse{Payer: string(text), Network: string(text[:at+1]), InvalidMessage: string(text[at:])})
		}
	}
	for _, v := range []*x402.VerifyResponse{nil, {}, {Extra: &x402.VerifyExtra{}}, {AgentRequest: &x402.AgentRequest{}}, {AgentRequest: &x402.AgentRequest{Balance: toll.Balance{Lots: []toll.Lot{}}}}} {
		same(v)
	}
	// It is the quick encoder that was tested: the other one allocates more often.
	v := usualVerdict()
	if n := testing.AllocsPerRun(100, func() { _, _ = x402.Encode(v) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func usualVerdict() *x402.VerifyResponse {
	amount := toll.Credits(1)
	id := "req_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	return &x402.VerifyResponse{
		IsValid: true, Payer: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Network: "eip155:84532", PlanID: "7", AgentID: "9", Amount: &amount,
		AgentRequestID: id, URLMatching: "/ask", VerbMatching: "POST", Extra: &x402.VerifyExtra{AgentRequestID: id, HeldAmount: &amount},
		AgentRequest: &x402.AgentRequest{
			AgentRequestID: id, AgentName: "Bench", AgentID: "9",
			Balance: toll.Balance{
				PlanID: "7", PlanName: "Plan", PlanType: "credits", HolderAddress: toll.Address{1}, PricePerCredit: json.RawMessage("0.1"),
			},
		},
	}
}

func BenchmarkEncodeVerify(b *testing.B) {
	v := usualVerdict()
	b.Run("quick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = x402.Encode(v)
		}
	})
	b.Run("generic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = generic(b, v)
		}
	})
}
