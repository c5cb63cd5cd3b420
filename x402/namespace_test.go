package x402_test

import (
	"testing"

	"github.com/tollhq/toll/x402"
)

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
