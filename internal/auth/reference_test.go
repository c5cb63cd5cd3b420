package auth

import (
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// A reference stands for a record, for one use, and is neither an API key nor an access token; and those are no references.
func TestReference(t *testing.T) {
	a, clock := known(t)
	id := toll.NewUUID()
	text := must.Get(a.SignReference("delegation", exampleClaims.Subscriber, id, clock.now().Add(time.Hour)))(t)
	open := func(use, text string) (toll.Address, string) {
		t.Helper()
		owner, got, err := a.OpenReference(use, text)
		if err != nil && (got != "" || !owner.IsZero()) {
			t.Errorf("an error with %s", got)
		}
		return owner, got
	}
	if owner, got := open("delegation", text); owner != exampleClaims.Subscriber || got != id {
		t.Fatalf("%s of %s", got, owner)
	}
	if _, _, ends, err := a.OpenLink("delegation", text); err != nil || !ends.Equal(clock.now().Add(time.Hour).Truncate(time.Second)) {
		t.Errorf("it ends at %s, %v", ends, err)
	}
	clock.add(2 * time.Hour)
	if _, got := open("delegation", text); got != id {
		t.Error("an ended reference names nothing")
	}
	refusedToken(t, a, "reference as access token", text)
	if _, err := a.Authenticate(context.Background(), []string{"Bearer " + text}); code(t, err) != toll.CodeKeyForeign {
		t.Errorf("reference as API key: %v", err)
	}
	key := must.Get(a.CreateKey(context.Background(), Local(exampleClaims.Subscriber), KeyParams{}, nil))(t)
	_, jwt, _ := strings.Cut(key.Key, ":")
	payload := `{"iss":"` + testIssuer + `","sub":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","aud":"` + testIssuer + `/delegation","jti":"x","iat":1795226400}`
	if _, got := open("delegation", signed(ownKey(), ownHeader, payload)); got != "x" {
		t.Fatal("the test signs what is refused anyway")
	}
	_, other, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	for name, text := range map[string]string{
		"access token":   exampleJWS,
		"API key":        jwt,
		"foreign key":    signed(other, ownHeader, payload),
		"foreign issuer": signed(ownKey(), ownHeader, strings.ReplaceAll(payload, "pay.example.com", "evil.example.com")),
		"no subject":     signed(ownKey(), ownHeader, strings.Replace(payload, `"sub":`, `"x":`, 1)),
		"no id":          signed(ownKey(), ownHeader, strings.Replace(payload, `"x"`, `""`, 1)),
		"cut":            text[:len(text)-4],
		"text":           "a.b.c",
	} {
		if _, got := open("delegation", text); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, got := open("other", text); got != "" {
		t.Error("a reference has another use")
	}
}
