package x402_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// The same members without the methods: the strict decoder and the generic encoder take these.
type (
	strictVerify x402.VerifyResponse
	strictSettle x402.SettleResponse
)

var five = toll.Credits(5)

func fullVerify() *x402.VerifyResponse {
	end := toll.At(time.UnixMilli(1795225938322).UTC())
	return &x402.VerifyResponse{
		IsValid: true, InvalidReason: "insufficient_funds", InvalidMessage: "Zu wenig Guthaben: ü 語", Code: toll.CodeInsufficientCredits,
		Payer: payer, Network: "eip155:84532", AgentRequestID: "req_1", PlanID: planID, AgentID: agentID, Amount: &five,
		URLMatching: "https://agent.example.com/ask", VerbMatching: "POST",
		AgentRequest: &x402.AgentRequest{
			AgentRequestID: "req_1", AgentName: "Ask \x7f", AgentID: agentID, URLMatching: "/ask", VerbMatching: "POST", Batch: true,
			Balance: toll.Balance{
				PlanID: planID, PlanName: "Basic", PlanType: "credits", HolderAddress: toll.MustAddress(payer), Balance: 7, Held: 2, Available: 5,
				IsSubscriber: true, IsSubscriberAlias: true, PricePerCredit: json.RawMessage("0.02"), Batch: true, Total: 9, Used: 2, Remaining: 7,
				ExpiresAt: &end,
			},
		},
		Extra: &x402.VerifyExtra{AgentRequestID: "req_1", HeldAmount: &five, HoldExpiresAt: &end, CheckoutURL: "https://pay.example.com/c/1"},
	}
}

func fullSettle() *x402.SettleResponse {
	return &x402.SettleResponse{
		Success: true, ErrorReason: "settle_conflict", ErrorMessage: "used", Code: toll.CodeSettleConflict, Transaction: jti, Network: "eip155:84532",
		Payer: payer, CreditsRedeemed: &five, RemainingBalance: &five, Amount: &five, OrderTx: "0x1",
		Extra: &x402.SettleExtra{
			AgentRequestID: "req_1", PlanID: planID, AgentID: agentID, CreditsRedeemed: &five, RemainingBalance: &five, OrderTx: "0x1",
			RequestedAmount: &five, OriginalTransaction: "0x2", CheckoutURL: "https://pay.example.com/c/1",
		},
		Extensions: map[string]json.RawMessage{
			"svc-credits": json.RawMessage(`{"info":{"creditsRedeemed":"5","agentRequestId":"req_1"}}`), "other": json.RawMessage(`"text"`),
		},
	}
}

// agree decodes a text both ways.
func agree(t testing.TB, data []byte) {
	t.Helper()
	var v x402.VerifyResponse
	var sv strictVerify
	var s x402.SettleResponse
	var ss strictSettle
	same(t, data, x402.Decode(data, &v), x402.Decode(data, &sv), v, x402.VerifyResponse(sv))
	same(t, data, x402.Decode(data, &s), x402.Decode(data, &ss), s, x402.SettleResponse(ss))
}

func same(t testing.TB, data []byte, err, strictErr error, got, want any) {
	t.Helper()
	switch {
	case fmt.Sprint(err) != fmt.Sprint(strictErr):
		t.Fatalf("%s\nerror %v, strictly %v", data, err, strictErr)
	case err == nil && !reflect.DeepEqual(got, want):
		t.Fatalf("%s\n%+v, strictly %+v", data, got, want)
	}
}

// mixed writes a value with members left out, in another order, repeated, unknown, null, of other types, and with escapes and
// blanks, each now and then.
type mixed struct{ *rand.Rand }

func (m mixed) now(n int) bool { return m.IntN(n) == 0 }

func (m mixed) write(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			if !m.now(12) {
				names = append(names, name)
			}
		}
		m.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		if len(names) > 0 && m.now(60) {
			names = append(names, names[0])
		}
		if m.now(60) {
			names = append(names, "unknown")
		}
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			m.text(b, name)
			b.WriteByte(':')
			m.write(b, v[name])
		}
		b.WriteByte('}')
	case string:
		m.text(b, v)
	default:
		text, _ := json.Marshal(v)
		b.Write(text)
	}
	if m.now(150) {
		b.WriteByte(' ')
	}
}

func (m mixed) text(b *bytes.Buffer, s string) {
	switch {
	case m.now(90):
		b.WriteString([]string{"null", "5", "true", `""`, `"-1"`, `"007"`, `"\ud800"`, "\"\xff\"", "\"\t\"", "[]", "{}", `"9223372036854775808"`}[m.IntN(12)])
	case len(s) > 0 && m.now(60):
		fmt.Fprintf(b, `"\u%04x%s"`, s[0], s[1:])
	default:
		b.WriteString(`"` + s + `"`)
	}
}

func TestAnswersByHandAreThoseOfTheStrictDecoder(t *testing.T) {
	m := mixed{rand.New(rand.NewPCG(16, 1))}
	byHand := 0
	for _, full := range []any{fullVerify(), fullSettle()} {
		text := must.Get(x402.Encode(full))(t)
		if !x402.ReadByHand(text, reflect.New(reflect.TypeOf(full).Elem()).Interface()) {
			t.Fatalf("%s is not read by hand", text)
		}
		agree(t, text)
		for i := range text { // cut off, and each byte changed
			agree(t, text[:i])
			other := bytes.Clone(text)
			other[i] = "\"\\{}[],:0n \xc3"[m.IntN(12)]
			agree(t, other)
		}
		agree(t, append(bytes.Clone(text), ' '))
		agree(t, append(bytes.Clone(text), '}'))
		var members map[string]any
		must.Do(t, json.Unmarshal(text, &members))
		for range 6000 {
			var b bytes.Buffer
			m.write(&b, members)
			agree(t, b.Bytes())
			if x402.ReadByHand(b.Bytes(), reflect.New(reflect.TypeOf(full).Elem()).Interface()) {
				byHand++
			}
		}
	}
	if byHand < 1000 {
		t.Errorf("only %d of the texts are read by hand", byHand)
	}
	for _, text := range []string{
		"", "null", "{}", "[]", `{"isValid":null}`, `{"extensions":{}}`, `{"extensions":null}`, `{"extensions":{"a":{},"a":{}}}`,
		`{"extensions":{"a":{"b":"","b":""}}}`, `{"extensions":{"a":{"b":{"c":{"d":{}}}}}}`, `{"extra":{}}`, `{"extra":null}`,
		`{"agentRequest":{"balance":{"pricePerCredit":007}}}`, `{"agentRequest":{"balance":{"pricePerCredit":0.}}}`,
		`{"agentRequest":{"balance":{"pricePerCredit":.5}}}`, `{"agentRequest":{"balance":{"pricePerCredit":0.5.5}}}`,
		`{"agentRequest":{"balance":{"pricePerCredit":-5}}}`, `{"agentRequest":{"balance":{"pricePerCredit":1e5}}}`,
		`{"agentRequest":{"balance":{"pricePerCredit":00.5}}}`, `{"agentRequest":{"balance":{"pricePerCredit":5`,
		`{"agentRequest":{"balance":{"pricePerCredit":null,"lots":[]}}}`, `{"agentRequest":{"balance":{"expiresAt":"2026-11-21T01:52:18"}}}`,
		`{"agentRequest":{"balance":{"expiresAt":"2026-11-21"}}}`, `{"isValid":true,}`, `{,"isValid":true}`, `{"isValid" :true}`, `{"isValid":truex}`,
		`{"extensions":{"a":{` + strings.Repeat(`"x":"",`, 3) + `"y":{"z":"` + strings.Repeat("é", 3) + `"}}}}`,
		`{"payer":"` + strings.Repeat("x", 17<<10) + `"}`, `{"extensions":{"a":{"1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":"","9":""}}}`,
		`{"extensions":{"a":{"1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":"","8":""}}}`,
	} {
		agree(t, []byte(text))
	}
}

func FuzzAnswers(f *testing.F) {
	for _, full := range []any{fullVerify(), fullSettle()} {
		text := must.Get(x402.Encode(full))(f)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}

// The bodies of verify and settle by the generic encoder.
type (
	strictRequired x402.PaymentRequired
	strictAsked    struct {
		PaymentRequired *strictRequired `json:"paymentRequired"`
		AccessToken     string          `json:"x402AccessToken"`
		MaxAmount       *toll.Credits   `json:"maxAmount,omitempty"`
	}
	strictVerifyBody struct {
		strictAsked
		Hold           bool   `json:"hold,omitzero"`
		HoldSecs       int    `json:"holdSecs,omitzero"`
		AgentRequestID string `json:"agentRequestId,omitempty"`
	}
	strictSettleBody struct {
		strictAsked
		MarginPercent  *x402.Margin `json:"marginPercent,omitempty"`
		AgentRequestID string       `json:"agentRequestId,omitempty"`
		Batch          bool         `json:"batch,omitzero"`

		Labels toll.UsageLabels `json:"labels,omitzero"`
	}
)

func TestRequestsByHandAreThoseOfTheGenericEncoder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(16, 2))
	margin := must.Get(x402.ParseMargin("7.5"))(t)
	texts := []string{"", "", "POST", "/ask?q=<a>&b", "quote \" slash \\ tab \t nul \x00 del \x7f", "ü 語 \u2028", "not \xff UTF-8", planID}
	text := func() string { return texts[rnd.IntN(len(texts))] }
	required := func() x402.PaymentRequired {
		p := x402.PaymentRequired{
			X402Version: toll.Int(rnd.IntN(3)), Error: text(), Resource: x402.Resource{URL: text(), Description: text(), MimeType: text()},
		}
		for range rnd.IntN(3) {
			p.Accepts = append(p.Accepts, x402.Requirements{
				Scheme: text(), Network: text(), Amount: text(), Asset: text(), PayTo: text(), MaxTimeoutSeconds: toll.Int(rnd.IntN(2) * 60),
				PlanID: text(), Extra: x402.RequirementsExtra{
					Version: text(), PlanID: text(), AgentID: text(), HTTPVerb: text(), PaymentFlow: text(), PlanURL: text(), OrderURL: text(),
					SignInURL: text(),
				},
			})
		}
		switch rnd.IntN(3) {
		case 0:
			p.Extensions = map[string]json.RawMessage{}
		case 1:
			p.Extensions = map[string]json.RawMessage{"b": json.RawMessage(`{ "x" : "\u0041" }`), "a": json.RawMessage("1")}
		}
		return p
	}
	for range 5000 {
		p := required()
		asked := strictRequired(p)
		asked.Accepts = append([]x402.Requirements(nil), p.Accepts...)
		for i := range asked.Accepts {
			e := &asked.Accepts[i].Extra
			e.PlanURL, e.OrderURL, e.SignInURL = "", "", ""
		}
		both := strictAsked{PaymentRequired: &asked, AccessToken: text()}
		if rnd.IntN(2) == 0 {
			both.MaxAmount = toll.Credits(rnd.Int64N(3)).Ptr()
		}
		sv := strictVerifyBody{both, rnd.IntN(2) == 0, rnd.IntN(3), text()}
		ss := strictSettleBody{strictAsked: both, AgentRequestID: text(), Batch: rnd.IntN(2) == 0}
		ss.Labels = toll.UsageLabels{Upstream: text(), Route: text(), Model: text()}
		if rnd.IntN(2) == 0 {
			ss.MarginPercent = &margin
		}
		v := &x402.VerifyRequest{
			PaymentRequired: p, AccessToken: both.AccessToken, MaxAmount: both.MaxAmount, Hold: sv.Hold, HoldSecs: sv.HoldSecs,
			AgentRequestID: sv.AgentRequestID,
		}
		s := &x402.SettleRequest{
			PaymentRequired: p, AccessToken: both.AccessToken, MaxAmount: both.MaxAmount, MarginPercent: ss.MarginPercent,
			AgentRequestID: ss.AgentRequestID, Batch: ss.Batch, Labels: ss.Labels,
		}
		for _, c := range []struct{ byHand, generic any }{{v, &sv}, {s, &ss}} {
			got, err := x402.Encode(c.byHand)
			want, wantErr := x402.Encode(c.generic)
			if err != nil || wantErr != nil || string(got) != string(want) {
				t.Fatalf("%s, %v\nwant %s, %v", got, err, want, wantErr)
			}
		}
	}
	bad := &x402.VerifyRequest{PaymentRequired: x402.PaymentRequired{Extensions: map[string]json.RawMessage{"a": json.RawMessage("{")}}}
	if _, err := x402.Encode(bad); err == nil {
		t.Error("an extension that is no JSON was written")
	}
}
