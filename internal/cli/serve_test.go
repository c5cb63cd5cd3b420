package cli

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// TestGreeting: a terminal shows the address, and the link of the first operator right below, as docs/PEOPLE.md says.
func TestGreeting(t *testing.T) {
	cfg := server.Config{Data: t.TempDir()}
	s := must.Get(server.New(t.Context(), cfg))(t)
	defer func() { must.Check(t, s.Close(context.Background())) }()
	said := func(link string) string {
		var b strings.Builder
		greeting(&console{err: &b, getenv: os.Getenv}, s, cfg, link)
		return b.String()
	}
	link := must.Get(s.FirstLink(t.Context()))(t)
	first, _, found := strings.Cut(link, "?link=")
	if !found || first != "http://localhost:8402/sign-up" {
		t.Fatal(link)
	}
	shown := strings.Replace(said(link), link, first+"?link=…", 1)
	if page := must.Get(os.ReadFile("../../docs/PEOPLE.md"))(t); !strings.Contains(string(page), "```\n"+shown+"```\n") {
		t.Errorf("docs/PEOPLE.md does not show\n%s", shown)
	}
	if got := said(""); strings.Contains(got, "operator") || !strings.Contains(got, "toll keys create --local --data "+cfg.Data) {
		t.Errorf("after the first sign-up:\n%s", got)
	}
}
