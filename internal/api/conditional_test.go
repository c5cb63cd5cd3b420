package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// putIf is put with an If-Match header.
func (s *stack) putIf(who actor, path, match, body string) answer {
	s.t.Helper()
	return s.do(who, "PUT", base+path, body, "If-Match", match)
}

func (s *stack) versionOf(path string) int {
	s.t.Helper()
	a := s.do(actor{}, "GET", base+path, "")
	n, err := strconv.Atoi(string(a.member(s.t, "version").(json.Number)))
	must.Do(s.t, err, a.body)
	return n
}

func (s *stack) endpointsOf(agent string) toll.EndpointList {
	s.t.Helper()
	var a toll.Agent
	must.Do(s.t, json.Unmarshal(s.do(actor{}, "GET", base+"/protocol/agents/"+agent, "").body, &a))
	return a.API.Endpoints
}

// Every change of a record raises its version by one, and what changes nothing does not.
func TestRecordVersion(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		loose := s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, plan)
		for _, path := range []string{"/protocol/agents/" + agent, "/protocol/plans/" + plan} {
			steps := []struct {
				method, path, body string
				version            int
			}{
				{"PUT", path, `{}`, 1},
				{"PUT", path, `{"description":"x"}`, 2},
				{"PUT", path, `{"description":"x"}`, 2},
				{"PUT", path + "/list/true", "", 2},
				{"PUT", path + "/list/false", "", 3},
			}
			if strings.Contains(path, "agents") {
				steps = append(steps, []struct {
					method, path, body string
					version            int
				}{
					{"POST", path + "/plan/" + loose, "", 4},
					{"POST", path + "/plan/" + loose, "", 4},
					{"DELETE", path + "/plan/" + loose, "", 5},
					{"POST", path + "/endpoints", `{"endpoints":[{"POST":"/more"}]}`, 6},
					{"POST", path + "/endpoints", `{"endpoints":[{"POST":"/more"}]}`, 6},
				}...)
			}
			for _, step := range steps {
				a := s.do(s.b1, step.method, base+step.path, step.body)
				s.want(
					a,
					200,
					map[bool]string{true: a.code()}[strings.HasSuffix(step.path, "/list/true")],
				)
				if got := s.versionOf(path); got != step.version {
					t.Errorf(
						"%s %s %s: version %d, want %d",
						step.method,
						step.path,
						step.body,
						got,
						step.version,
					)
				}
				if got := a.member(
					t,
					"data.version",
				); got != json.Number(
					strconv.Itoa(step.version),
				) {
					t.Errorf(
						"%s %s: the answer has version %v, want %d",
						step.method,
						step.path,
						got,
						step.version,
					)
				}
			}
		}
	})
}

func TestIfMatch(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	loose := s.plan(s.b1, freePlan)
	agent := s.agent(s.b1, plan)
	for _, path := range []string{"/protocol/agents/" + agent, "/protocol/plans/" + plan} {
		s.want(s.put(s.b1, path, `{"description":"one"}`), 200, "") // version 2
		before := dump(t, s.store)
		for _, stale := range []string{"1", `"1"`, "3", `"9223372036854775807"`} {
			for _, body := range []string{`{"description":"two"}`, `{}`} {
				a := s.putIf(s.b1, path, stale, body)
				s.want(a, 409, "BCK.PROTOCOL.0910")
				if !strings.Contains(a.text(t, "params"), `"version":2`) {
					t.Errorf("the refusal does not name the version: %s", a.body)
				}
			}
			s.want(s.putIf(s.b1, path+"/list/false", stale, ""), 409, "BCK.PROTOCOL.0910")
		}
		for _, bad := range []string{"", "two", "0", "-1", "2.0", "02", `W/"2"`, `"2", "3"`, `"2`, "9223372036854775808"} {
			s.want(s.putIf(s.b1, path, bad, `{"description":"two"}`), 400, "BCK.HTTP.400")
		}
		if dump(t, s.store) != before {
			t.Error("a refused update was stored")
		}
		s.want(s.putIf(s.b1, path, `"2"`, `{"description":"three"}`), 200, "")
		s.want(s.putIf(s.b1, path, "3", `{"description":"four"}`), 200, "")
		s.want(s.putIf(s.b1, path, "*", `{"description":"five"}`), 200, "")
		// Who may not change a record learns nothing about its version.
		s.want(
			s.putIf(s.b2, path, "1", `{}`),
			403,
			map[bool]string{true: "BCK.PROTOCOL.0016", false: "BCK.PROTOCOL.0017"}[strings.Contains(path, "agents")],
		)
	}
	at := base + "/protocol/agents/" + agent
	for _, change := range [][2]string{{"POST", "/plan/" + loose}, {"DELETE", "/plan/" + plan}, {"POST", "/endpoints"}} {
		s.want(
			s.do(s.b1, change[0], at+change[1], `{"endpoints":[{"POST":"/x"}]}`, "If-Match", "1"),
			409,
			"BCK.PROTOCOL.0910",
		)
	}
}

// Of several callers that have read one version and write at the same time, exactly one succeeds.
func TestConditionalUpdatesRace(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, plan)
		for _, path := range []string{"/protocol/agents/" + agent, "/protocol/plans/" + plan} {
			const writers, rounds = 8, 6
			for round := range rounds {
				version := s.versionOf(path)
				var won atomic.Int64
				var winner atomic.Value
				var all sync.WaitGroup
				for w := range writers {
					all.Go(func() {
						tag := fmt.Sprintf("%d-%d", round, w)
						a := s.putIf(s.b1, path, strconv.Itoa(version), `{"tags":["`+tag+`"]}`)
						if a.status == 200 {
							won.Add(1)
							winner.Store(tag)
							return
						}
						s.want(a, 409, "BCK.PROTOCOL.0910")
					})
				}
				all.Wait()
				record := s.do(actor{}, "GET", base+path, "")
				if won.Load() != 1 || s.versionOf(path) != version+1 ||
					!strings.Contains(
						string(record.body),
						`"tags":["`+fmt.Sprint(winner.Load())+`"]`,
					) {
					t.Fatalf(
						"%s: %d of %d writers succeeded on version %d, the last of them with %v: %s",
						path,
						won.Load(),
						writers,
						version,
						winner.Load(),
						record.body,
					)
				}
			}
		}
	})
}

// Endpoints that are added while others add and replace are all there in the end.
func TestAddEndpointsRace(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, plan)
		at := "/protocol/agents/" + agent
		s.want(s.put(s.b1, at, `{"endpoints":[{"POST":"/first"}]}`), 200, "")
		want := toll.EndpointList{{Verb: "POST", URL: "/first"}}
		var all sync.WaitGroup
		for w := range 8 {
			urls := []string{fmt.Sprintf("/w%d/a", w), fmt.Sprintf("/w%d/b", w), "/shared"}
			for _, u := range urls {
				if e := (toll.Endpoint{Verb: "POST", URL: u}); !slices.Contains(want, e) {
					want = append(want, e)
				}
				all.Go(func() {
					s.want(
						s.do(
							s.b1,
							"POST",
							base+at+"/endpoints",
							`{"endpoints":[{"POST":"`+u+`"}]}`,
						),
						200,
						"",
					)
				})
			}
			all.Go(
				func() { s.want(s.put(s.b1, at, fmt.Sprintf(`{"metadataAttributes":{"author":"w%d"}}`, w)), 200, "") },
			)
		}
		all.Wait()
		got := s.endpointsOf(agent)
		byURL := func(a, b toll.Endpoint) int { return strings.Compare(a.URL, b.URL) }
		slices.SortFunc(got, byURL)
		slices.SortFunc(want, byURL)
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestAddEndpoints(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	agent := s.agent(s.b1, plan)
	path := base + "/protocol/agents/" + agent
	s.want(
		s.put(s.b1, "/protocol/agents/"+agent, `{"endpoints":[{"POST":"/a"},{"GET":"/a"}]}`),
		200,
		"",
	)
	add := func(who actor, body string) answer { return s.do(who, "POST", path+"/endpoints", body) }

	first := add(
		s.b1,
		`{"endpoints":[{"POST":"/b"},{"verb":"post","url":"/a"},{"PUT":"/c","GET":"/a"},{"POST":"/b"}]}`,
	)
	s.want(first, 200, "")
	want := toll.EndpointList{
		{Verb: "POST", URL: "/a"},
		{Verb: "GET", URL: "/a"},
		{Verb: "POST", URL: "/b"},
		{Verb: "PUT", URL: "/c"},
	}
	if got := s.endpointsOf(agent); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.clock.advance(1e9)
	before := dump(t, s.store)
	again := add(s.b1, `{"endpoints":[{"POST":"/b"}]}`)
	s.want(again, 200, "")
	if again.text(t, "txHash") != first.text(t, "txHash") || dump(t, s.store) != before {
		t.Errorf("endpoints that are there already were added again: %s", again.body)
	}

	for body, text := range map[string]string{
		`{}`:                   "endpoints",
		`{"endpoints":null}`:   "endpoints",
		`{"endpoints":[]}`:     "endpoints",
		`{"endpoints":"/b"}`:   "",
		`{"endpoints":[{}]}`:   "",
		`{"endpoints":["/b"]}`: "",
		`{"endpoints":[{"POST":"/ok"},{"POST":"nowhere"}]}`:                                              "endpoints[1]",
		`{"endpoints":[{"POST":"https://a.example.com/` + strings.Repeat("x", toll.MaxURLRunes) + `"}]}`: "endpoints[0]",
		`{"endpoints":[` + manyEndpoints(toll.MaxEndpoints-3) + `]}`:                                     "256",
	} {
		a := add(s.b1, body)
		s.want(a, 400, "BCK.HTTP.400")
		if !strings.Contains(string(a.body), text) {
			t.Errorf("the refusal does not name %q: %s", text, a.body)
		}
	}
	if dump(t, s.store) != before {
		t.Error("a refused addition was stored")
	}
	s.want(add(s.b2, `{"endpoints":[{"POST":"/x"}]}`), 403, "BCK.PROTOCOL.0016")
	s.want(add(actor{}, `{"endpoints":[{"POST":"/x"}]}`), 401, "BCK.AUTH.0002")
	s.want(
		s.do(
			s.b1,
			"POST",
			base+"/protocol/agents/11111/endpoints",
			`{"endpoints":[{"POST":"/x"}]}`,
		),
		404,
		"BCK.PROTOCOL.0004",
	)
	s.want(add(s.b1, `{"endpoints":[`+manyEndpoints(toll.MaxEndpoints-4)+`]}`), 200, "")
	if n := len(s.endpointsOf(agent)); n != toll.MaxEndpoints {
		t.Errorf("%d endpoints, want %d", n, toll.MaxEndpoints)
	}
	s.want(add(s.b1, `{"endpoints":[{"POST":"/a"}]}`), 200, "") // it is there already

	// Open endpoints are added alike, and bounded on their own.
	s.want(add(s.b1, `{"openEndpoints":["https://agent.example.com/health","/b","/b"]}`), 200, "")
	s.want(add(s.b1, `{"openEndpoints":["/b"]}`), 200, "")
	if a := s.do(
		actor{},
		"GET",
		path,
		"",
	); !strings.Contains(
		string(a.body),
		`"openEndpoints":["https://agent.example.com/health","/b"]`,
	) {
		t.Errorf("%s", a.body)
	}
	for _, bad := range []string{`["nowhere"]`, `[` + strings.Repeat(`"/c",`, toll.MaxEndpoints) + `"/c"]`} {
		s.want(add(s.b1, `{"openEndpoints":`+bad+`}`), 400, "BCK.HTTP.400")
	}
}

func manyEndpoints(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"POST":"/many/%d"}`, i)
	}
	return strings.Join(all, ",")
}
