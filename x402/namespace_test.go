package x402_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// Another namespace leaves no word of the default one in anything that is sent.
func TestNamespace(t *testing.T) {
	other := x402.Namespace{Scheme: "zzz", Header: "Acme", Word: "acme"}
	v := reflect.ValueOf(other)
	for i := range v.NumMethod() {
		name := v.Type().Method(i).Name
		if v.Method(i).Type().NumIn() > 0 || v.Method(i).Type().NumOut() != 1 {
			continue
		}
		got := v.Method(i).Call(nil)[0].String()
		want := reflect.ValueOf(x402.Default).Method(i).Call(nil)[0].String()
		if got == want || strings.Contains(got, "svc") || strings.Contains(strings.ToLower(got), "service") {
			t.Errorf("%s: %q", name, got)
		}
	}
	p := x402.NewPaymentRequired([]*x402.Terms{{PlanID: "1", Scheme: other.SchemeCard()}, {}}, x402.Options{Namespace: other})
	if text := encode(t, p); strings.Contains(text, "svc") || strings.Count(text, "zzz:") != 4 {
		t.Error(text)
	}
	for _, i := range toll.Codes() {
		for _, act := range []x402.Act{x402.ActVerify, x402.ActSettle} {
			if r := x402.ReasonOf(other, toll.NewError(i.Code), act); r == "" || strings.Contains(r, "svc") {
				t.Errorf("%s: reason %q", i.Code, r)
			}
		}
	}
	if c := x402.CodeOf(other, x402.Default.ReasonExpired()); c != toll.CodeInternal {
		t.Errorf("a reason of the default is read as %s", c)
	}
	if c := x402.CodeOf(other, other.ReasonExpired()); c != toll.CodePermissionExpired {
		t.Errorf("%s", c)
	}
}

// The table of the wire contract, section 16.
func TestReasons(t *testing.T) {
	n := x402.Default
	for reason, codes := range map[string][]toll.Code{
		"invalid_svc_payload_signature": {"BCK.X402.0005"},
		"invalid_svc_payload_expired":   {"BCK.X402.0026"},
		"invalid_svc_payload_revoked":   {"BCK.X402.0025"},
		"invalid_svc_payload_unknown":   {"BCK.X402.0024"},
		"invalid_svc_plan_mismatch":     {"BCK.X402.0013"},
		"invalid_svc_agent_mismatch":    {"BCK.X402.0003"},
		"invalid_svc_resource_mismatch": {"BCK.PROTOCOL.0031"},
		"invalid_payment_requirements":  {"BCK.X402.0012", "BCK.X402.0001", "BCK.X402.0002"},
		"unsupported_scheme":            {"BCK.X402.0034"},
		"agent_inactive":                {"BCK.X402.0912"},
		"insufficient_funds":            {"BCK.CREDITS.0003"},
		"plan_expired":                  {"BCK.X402.0911"},
		"redemption_limit_reached":      {"BCK.X402.0901"},
		"order_limit_reached":           {"BCK.X402.0902"},
		"invalid_payload":               {"BCK.X402.0010", "BCK.HTTP.400", "BCK.HTTP.413", "BCK.HTTP.415", "BCK.X402.0910", "BCK.COMMON.0026", "BCK.PROTOCOL.0057"},
		"invalid_x402_version":          {"BCK.X402.0915"},
		"rate_limited":                  {"BCK.HTTP.429"},
		"delegation_not_found":          {"BCK.X402.0019"},
		"delegation_revoked":            {"BCK.X402.0020"},
		"delegation_expired":            {"BCK.X402.0021"},
		"delegation_exhausted":          {"BCK.X402.0022"},
		"delegation_insufficient":       {"BCK.X402.0023"},
		"payment_method_unavailable":    {"BCK.X402.0027", "BCK.X402.0028"},
		"payment_declined":              {"BCK.X402.0008"},
		"key_not_allowed":               {"BCK.X402.0029"},
		"plan_unlisted":                 {"BCK.PROTOCOL.0902"},
		"trial_used":                    {"BCK.PROTOCOL.0056"},
		"payment_in_flight":             {"BCK.X402.0904"},
		"settle_conflict":               {"BCK.X402.0906"},
		"hold_expired":                  {"BCK.X402.0905"},
		"too_many_holds":                {"BCK.X402.0907"},
		"settlement_exceeds_amount":     {"BCK.X402.0908"},
		"unauthorized_server":           {"BCK.PROTOCOL.0017", "BCK.PROTOCOL.0016", "BCK.AUTH.0002", "BCK.AUTH.0003", "BCK.APIKEY.0013"},
		"settlement_pending":            {"BCK.X402.0914"},
	} {
		for i, code := range codes {
			if got := x402.ReasonOf(n, toll.NewError(code), x402.ActVerify); got != reason {
				t.Errorf("%s: %q, want %q", code, got, reason)
			}
			if got := x402.CodeOf(n, reason); i == 0 && got != code {
				t.Errorf("%q: %s, want %s", reason, got, code)
			}
		}
	}
	for reason, code := range map[string]toll.Code{
		"duplicate_settlement": "BCK.X402.0904", "payment_identifier_conflict": "BCK.X402.0906", "invalid_network": "BCK.X402.0034", "amount_out_of_range": "BCK.X402.0908",
		"unexpected_verify_error": "BCK.HTTP.500", "unexpected_settle_error": "BCK.HTTP.500", "": "BCK.HTTP.500", "payload_expired": "BCK.HTTP.500", "invalid_svc_": "BCK.HTTP.500", "invalid_svc_invalid_payload": "BCK.HTTP.500",
	} {
		if got := x402.CodeOf(n, reason); got != code {
			t.Errorf("%q: %s, want %s", reason, got, code)
		}
	}
	for _, code := range []toll.Code{"BCK.HTTP.500", "BCK.HTTP.503", "BCK.COMMON.0029", "BCK.UNKNOWN.1"} {
		if v, s := x402.ReasonOf(n, toll.NewError(code), x402.ActVerify), x402.ReasonOf(n, toll.NewError(code), x402.ActSettle); v != "unexpected_verify_error" || s != "unexpected_settle_error" {
			t.Errorf("%s: %q %q", code, v, s)
		}
	}
	if got := x402.ReasonOf(n, toll.NewError(toll.CodeRequestUsed).WithReason(x402.ReasonDuplicate), x402.ActVerify); got != "duplicate_settlement" {
		t.Errorf("the reason of the error is lost: %q", got)
	}
}

func TestParseNamespace(t *testing.T) {
	for text, want := range map[string]x402.Namespace{
		"":                  x402.Default,
		"acme,Acme,acme":    {Scheme: "acme", Header: "Acme", Word: "acme"},
		"a1,X-Acme,service": {Scheme: "a1", Header: "X-Acme", Word: "service"},
	} {
		got, err := x402.ParseNamespace(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := x402.ParseNamespace(got.String()); err != nil || again != got {
			t.Errorf("%q does not read what it wrote: %v", text, err)
		}
	}
	for _, text := range []string{"acme", "acme,Acme", "acme,Acme,acme,x", "Acme,Acme,acme", "acme,,acme", "acme,Ac me,acme", "1a,A,a", "a,-A,a", "a,A\r\n,a", "a,Ä,a", "a,A,a/b"} {
		if got, err := x402.ParseNamespace(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestNamespace_OtherBrand: a scheme of another brand is named with both words, and what is no
// scheme of this protocol is not.
func TestNamespace_OtherBrand(t *testing.T) {
	n := must.Get(x402.ParseNamespace("acme,Acme,acme"))(t)
	for _, scheme := range []string{"other:erc4337", "other:card-delegation"} {
		want := `the scheme "` + scheme + `" belongs to the namespace "other"; the namespace here is "acme"`
		if got := n.OtherBrand(scheme); got != want {
			t.Errorf("%s: %q, want %q", scheme, got, want)
		}
	}
	for _, scheme := range []string{
		"", "exact", "acme:erc4337", "acme:card-delegation", ":erc4337", "other:exact", "other:", "Other:erc4337", "other:erc4337:more",
		"o ther:erc4337", strings.Repeat("o", 33) + ":erc4337",
	} {
		if got := n.OtherBrand(scheme); got != "" {
			t.Errorf("%q: %q", scheme, got)
		}
	}
}
