package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
)

// A page calls inside the process with the rights of its person or API key, and no more.
func TestPageCalls(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		p := s.human("ada")
		workspace := must.Get(toll.ParseAddress(p.workspace))(t)
		now := s.clock.now()
		caller := func(rights ...toll.Right) auth.Page {
			return auth.Page{
				Caller: auth.Caller{Address: workspace, UserID: p.id, Rights: rights, MadeBy: toll.MadeByUser},
				Proof:  "password", AuthenticatedAt: now, Source: "192.0.2.1",
			}
		}
		key := auth.Page{Caller: auth.Caller{Address: s.b1.address, KeyID: s.b1.keyID, Rights: toll.AllRights(), MadeBy: toll.MadeLocally}}
		keyOf := auth.Page{Caller: auth.Caller{Address: workspace, KeyID: s.b1.keyID, Rights: toll.AllRights(), MadeBy: toll.MadeByUser}}
		old := caller(toll.AllRights()...)
		old.AuthenticatedAt = now.Add(-time.Hour)

		const agent = `{"name":"Echo","endpoints":[{"POST":"https://agent.example.com/ask"}],"plans":[]}`
		for _, c := range []struct {
			name, method, path, body string
			page                     auth.Page
			status                   int
			code                     toll.Code
		}{
			{"with the right", "POST", "/protocol/agents", agent, caller(toll.RightManage), 201, ""},
			{"without the right", "POST", "/protocol/agents", agent, caller(toll.RightRead), 403, toll.CodeRightMissing},
			{"a visitor", "POST", "/protocol/agents", agent, auth.Page{Source: "192.0.2.1"}, 401, toll.CodeNotAuthenticated},
			{"a key session", "POST", "/protocol/agents", agent, key, 201, ""},
			{"a fresh proof", "POST", "/api-keys", `{"name":"new"}`, caller(toll.AllRights()...), 201, ""},
			{"an old proof", "POST", "/api-keys", `{"name":"new"}`, old, 403, toll.CodeProofNeeded},
			{"keys in a key session", "POST", "/api-keys", `{"name":"new"}`, key, 403, toll.CodePersonNeeded},
			{"export in a key session", "POST", "/wallet/export", `{}`, key, 403, toll.CodePersonNeeded},
			{"the file of the audit log", "GET", "/audit-log?format=ndjson&act=no.act", "", caller(toll.RightMembers), 200, ""},
			{"members", "GET", "/members", "", caller(toll.RightRead), 200, ""},
			{"members in a key session", "GET", "/audit-log", "", keyOf, 403, toll.CodePersonNeeded},
			{"a workspace in a key session", "DELETE", "/workspaces/" + s.b1.address.Lower(), "", key, 403, toll.CodePersonNeeded},
			{"a workspace after an old proof", "DELETE", "/workspaces/" + workspace.Lower(), "", old, 403, toll.CodeProofNeeded},
			{"a workspace of others", "DELETE", "/workspaces/" + s.b1.address.Lower(), "", caller(toll.AllRights()...), 404, toll.CodePersonNotFound},
			{"a route of the session", "GET", "/session", "", caller(toll.AllRights()...), 403, toll.CodePersonNeeded},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := httptest.NewRequest(c.method, base+c.path, strings.NewReader(c.body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+s.b2.key) // does not count
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, r.WithContext(auth.WithPage(r.Context(), c.page)))
				var e struct{ Code toll.Code }
				if w.Body.Len() > 0 { // a file without rows
					must.Do(t, json.Unmarshal(w.Body.Bytes(), &e))
				}
				if origin := w.Header().Values("Access-Control-Allow-Origin"); origin != nil {
					t.Errorf("other origins may read the answer to a page: %q", origin)
				}
				if w.Code != c.status && !(c.status == 201 && w.Code == 200) || e.Code != c.code {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			})
		}
	})
}

// The calls of one view count once against limits, and those of the next view again.
func TestPageCalls_CountOnce(t *testing.T) {
	s := newStack(t)
	deps := s.built
	deps.Policy.Limits = api.Limits{PerKey: 1, KeyBurst: 1, Clock: s.clock.now}
	handler := api.New(deps)
	view := func() func() int {
		page := auth.Page{Caller: auth.Caller{Address: s.b1.address, KeyID: s.b1.keyID, Rights: toll.AllRights()}, Counted: new(bool)}
		return func() int {
			r, w := httptest.NewRequest("GET", base+"/protocol/plans", nil), httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(auth.WithPage(r.Context(), page)))
			return w.Code
		}
	}
	first, second := view(), view()
	if a, b, c, d := first(), first(), second(), second(); a != 200 || b != 200 || c != 429 || d != 429 {
		t.Errorf("calls of two views: %d, %d and %d, %d", a, b, c, d)
	}
}
