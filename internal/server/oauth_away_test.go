package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestOAuthWithoutDatabase: a database that answers nothing now is no fault of a program: nobody is told that a request is wrong,
// and everybody that they may come again.
// F26
func TestOAuthWithoutDatabase(t *testing.T) {
	var database string
	p := newProgram(t, storetest.Postgres, func(c *server.Config) { database = c.Database })
	got := p.exchange(p.approved(p.request("scope", "openid"), p.choice(5)).Query().Get("code"))
	const local = "http://127.0.0.1:7000/cb"
	here := p.register(`{"redirect_uris":["` + local + `"]}`)
	v := newVisitor(t, p.url)
	away := func(table string) {
		t.Helper()
		storetest.Exec(t, database, strings.ReplaceAll(`ALTER TABLE TABLE_ RENAME TO TABLE_away;
			CREATE FUNCTION TABLE_fails() RETURNS SETOF TABLE_away LANGUAGE plpgsql AS
				$$ BEGIN RAISE EXCEPTION 'starting' USING ERRCODE = 'cannot_connect_now'; END $$;
			CREATE VIEW TABLE_ AS SELECT * FROM TABLE_fails()`, "TABLE_", table))
	}
	later := func(what string, res shown, says string) {
		t.Helper()
		if res.status != http.StatusServiceUnavailable || res.header.Get("Retry-After") == "" || !strings.Contains(res.body, says) {
			t.Errorf("%s: %d %v %s", what, res.status, res.header, res.body)
		}
	}

	away("plans")
	q := p.request("plan_id", string(p.plan))
	res := v.get("/oauth/authorize?" + q.Encode())
	later("the page of a program elsewhere", res, "The service cannot process this request right now.")
	if links := linkTag.FindAllString(mainPart.FindString(res.body), -1); len(links) > 0 {
		t.Errorf("it leads to %q", links)
	}
	q.Set("client_id", here)
	q.Set("redirect_uri", local)
	to, err := url.Parse(v.get("/oauth/authorize?" + q.Encode()).header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), local+"?") || to.Query().Get("error") != "temporarily_unavailable" {
		t.Errorf("a program on this computer is told %v", to)
	}

	away("oauth_access")
	later("what a token is for", p.send(http.MethodGet, "/oauth/userinfo", "", "Authorization", "Bearer "+got.Access), `"temporarily_unavailable"`)
	refresh := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {got.Refresh}, "client_id": {p.id}}.Encode()
	later("a renewal", p.send(http.MethodPost, "/oauth/token", refresh), `"temporarily_unavailable"`)
	away("oauth_refresh_tokens")
	later("a revocation", p.send(http.MethodPost, "/oauth/revoke", url.Values{"token": {got.Refresh}}.Encode()), `"temporarily_unavailable"`)
	away("oauth_redirects")
	later("the page of a program that nobody can look up", v.get("/oauth/authorize?"+p.request().Encode()), "The service cannot process this request right now.")
	later("a registration", p.send(http.MethodPost, "/oauth/register", `{"redirect_uris":["`+local+`"]}`, "Content-Type", "application/json"), `"temporarily_unavailable"`)
}
