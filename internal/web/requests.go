package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// requestPages are the requests to agents of a workspace, those that it paid, and the last calls of
// its API keys.
func requestPages() []areaPage {
	return []areaPage{
		{
			Path: "/requests", Title: "Requests", Template: "sheet", Group: groupSell, Nav: "Requests", Icon: "receipt", Key: "q",
			Right: toll.RightRead, Get: listRequests,
		},
		{
			Path: "/requests/{request}", Template: "sheet", Under: "/requests", Right: toll.RightRead,
			Get: showRequest,
		},
		{
			Path: "/keys/{key}/calls", Template: "sheet", Under: "/keys", Right: toll.RightRead, Persons: true,
			Get: listCalls,
		},
	}
}

// outcomes are the states of requests that the list narrows to.
var outcomes = []option{
	{Text: "All that ended"}, {Value: "settled", Text: "Settled"}, {Value: "released", Text: "Released"}, {Value: "lapsed", Text: "Lapsed"},
	{Value: "held", Text: "Held now"},
}

func stateOfRequest(status string) *state {
	tone := map[string]string{"settled": "good", "released": "quiet", "lapsed": "bad"}[status]
	return &state{status, cmp.Or(tone, "warn")}
}

// mostReads bounds how many parts of a list one page reads: a part has few requests, or none, where
// filters leave most of them out.
const mostReads = 5

// requests reads what a page shows of the list of requests.
func requests(v *visit, q url.Values) (all store.List[*toll.Settlement], err error) {
	page := v.listPage()
	for range mostReads {
		page.Size = mostRows - len(all.Items)
		setPage(q, page)
		var list store.List[*toll.Settlement]
		if list, err = partOf[*toll.Settlement](v, "/protocol/requests", "requests", q); err != nil {
			return all, err
		}
		all = store.List[*toll.Settlement]{Items: append(all.Items, list.Items...), Next: list.Next, Total: list.Total}
		if all.Next == "" || len(all.Items) == mostRows {
			break
		}
		page.Cursor = all.Next
	}
	return all, nil
}

// requestFilter are the fields that narrow the list of requests, and the same for the API. It has
// answered when ok is false.
func requestFilter(v *visit) (fields []field, q url.Values, ok bool) {
	plans, _, ok := planFilter(v, "planId")
	if !ok {
		return nil, nil, false
	}
	asked := v.r.URL.Query()
	buyer := asked.Get("role") == "buyer"
	agents := field{Name: "agentId", Label: "Agent", Max: 100}
	if !buyer {
		if agents, _, ok = agentFilter(v, "agentId"); !ok {
			return nil, nil, false
		}
	}
	fields = []field{
		{Name: "role", Label: "Side", Options: []option{{Value: "seller", Text: "Of my plans"}, {Value: "buyer", Text: "Paid by this workspace"}}},
		plans, agents,
	}
	if !buyer {
		fields = append(fields, field{Name: "subscriber", Label: "Subscriber of the plan", Max: 42})
	}
	fields, q = v.filters(append(fields,
		field{Name: "status", Label: "Outcome", Options: outcomes}, field{Name: "since", Label: "From", Type: "date"},
		field{Name: "until", Label: "Before", Type: "date"})...)
	return fields, q, true
}

func listRequests(v *visit) {
	filter, q, ok := requestFilter(v)
	if !ok {
		return
	}
	files := file(v, "requests", q)
	list, err := requests(v, q)
	if v.narrowed(err) {
		return
	}
	buyer := q.Get("role") == "buyer"
	t, err := requestsTable(v, list, buyer)
	if v.failed("part of the list", err) {
		return
	}
	v.sheet("Requests", sheet{
		Lead:  "Requests that were paid with credits, by the time of their end, at most 90 days at once. Settlements appear within seconds.",
		Links: files, Filter: filter, Table: t,
	})
}

func requestsTable(v *visit, list store.List[*toll.Settlement], buyer bool) (*table, error) {
	t := &table{
		Caption: "Requests",
		Head:    []column{{Text: "Ended"}, {Text: "Request", Stays: true}, {Text: "Outcome"}, {Text: "Agent"}, {Text: "Plan"}, {Text: "Subscriber"}, {Text: "Credits", Num: true}},
		Empty:   &empty{Icon: "receipt", Title: "No requests in this time", Text: "Each request that holds or burns credits appears here.", Command: "toll requests history"},
		Pager:   v.pagerOf(list.Total, list.Next, "request"),
	}
	if list.Next != "" {
		t.Empty.Title, t.Empty.Text, t.Empty.Command = "None so far", "The filters leave out all requests that were read. Follow Next to read more.", ""
	}
	var plans []toll.PlanID
	var agents []toll.AgentID
	for _, s := range list.Items {
		if plans = append(plans, s.PlanID); s.AgentID != nil {
			agents = append(agents, *s.AgentID)
		}
	}
	names, err := namesOf(v, plans, agents)
	for _, s := range list.Items {
		outcome := cell{State: stateOfRequest(s.Status), Sub: tookText(s)}
		t.Rows = append(t.Rows, []cell{
			atOr(s.EndedAt, "open"), {ID: s.AgentRequestID, To: v.to("requests", s.AgentRequestID)}, outcome, agentCell(v, names, s, !buyer),
			planCell(v, names, s.PlanID, !buyer), {ID: s.Payer.String()}, creditsOf(s),
		})
	}
	return t, err
}

// tookText is how long a request took, from its hold to its end.
func tookText(s *toll.Settlement) string {
	if s.EndedAt == nil || s.HoldExpiresAt == nil {
		return ""
	}
	return s.EndedAt.Sub(s.CreatedAt.Time).Round(time.Millisecond).String()
}

// creditsOf is what a request burned, or what it holds or held.
func creditsOf(s *toll.Settlement) cell {
	c := credits(s.HeldAmount)
	switch {
	case s.CreditsRedeemed != nil && s.Status == "settled":
		c = credits(*s.CreditsRedeemed)
	case s.Status == "held":
		c.Sub = "held"
	default:
		c.Sub = "given back"
	}
	return c
}

// agentCell names the agent of a request. own says whether the workspace sells it.
func agentCell(v *visit, names map[string]string, s *toll.Settlement, own bool) cell {
	c := cell{Text: "no agent named"}
	if s.AgentID != nil {
		id := string(*s.AgentID)
		c = cell{Text: cmp.Or(names[id], short(id)), To: "/a/" + url.PathEscape(id)}
		if own {
			c.To = v.to("agents", id)
		}
	}
	if s.Resource != nil {
		c.Sub = plain.Name(*s.Resource)
	}
	return c
}

func planCell(v *visit, names map[string]string, id toll.PlanID, own bool) cell {
	area := "holdings"
	if own {
		area = "plans"
	}
	return cell{Text: cmp.Or(names[string(id)], short(string(id))), To: v.to(area, string(id))}
}

// stepWords are the states that a request takes, as its page says them.
var stepWords = map[string]step{
	"held": {Title: "Held", Text: "set aside for the request", Tone: "good"}, "settled": {Title: "Settled", Text: "burned", Tone: "good"},
	"released": {Title: "Released", Text: "given back", Tone: "warn"}, "lapsed": {Title: "Lapsed", Text: "given back: no settlement came in time", Tone: "bad"},
}

func showRequest(v *visit) {
	r, err := v.w.API.Request(v.acting(), v.param("request"))
	if v.failed("request", err) {
		return
	}
	p, err := v.w.API.Plan(v.acting(), r.PlanID)
	if v.failed("request", err) {
		return
	}
	own := p.Owner == v.person.Address
	var agents []toll.AgentID
	if r.AgentID != nil {
		agents = append(agents, *r.AgentID)
	}
	names, err := namesOf(v, []toll.PlanID{r.PlanID}, agents)
	if v.failed("request", err) {
		return
	}
	token := cell{ID: r.PermissionHash.String()}
	if r.Payer == v.person.Address {
		token.To = v.to("tokens", r.PermissionHash.String())
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: r.AgentRequestID}}, {"Outcome", cell{State: stateOfRequest(r.Status), Sub: tookText(&r.Settlement)}},
		{"Plan", planCell(v, names, r.PlanID, own)}, {"Agent", agentCell(v, names, &r.Settlement, own)},
		{"Subscriber", cell{ID: r.Payer.String()}}, {"Credits", creditsOf(&r.Settlement)}, {"Access token", token},
		{"Begun", at(r.CreatedAt.Time)},
	}}
	if r.HoldExpiresAt != nil {
		s.Facts = append(s.Facts, fact{"The hold ends", atOr(r.HoldExpiresAt, "never")})
	}
	if r.RemainingBalance != nil {
		s.Facts = append(s.Facts, fact{"Left after it", credits(*r.RemainingBalance)})
	}
	for _, of := range []struct {
		label string
		tx    *toll.Hash
	}{{"Transaction", r.Transaction}, {"Bought on the way in", r.OrderTx}, {"Proof on the chain in", r.MirrorTx}} {
		if of.tx != nil {
			s.Facts = append(s.Facts, fact{of.label, cell{ID: of.tx.String()}})
		}
	}
	for _, one := range r.Steps {
		said := stepWords[one.Status]
		said.Text, said.At = count(int64(one.Credits), "credit")+" "+said.Text+".", one.At.Time
		s.Steps = append(s.Steps, said)
	}
	if r.Status == "held" {
		s.Steps = append(s.Steps, step{Title: "Settled, released or lapsed"})
	}
	if len(r.Receipt) > 0 && string(r.Receipt) != "null" {
		var text bytes.Buffer
		if json.Indent(&text, r.Receipt, "", "  ") != nil {
			text.Write(r.Receipt)
		}
		s.Snippets = []snippet{{"The receipt", text.String()}}
	}
	if r.Transaction != nil {
		s.Links = []link{{Text: "Check the receipt", To: PathReceipts + "#" + r.Transaction.String(), Plain: true}}
	}
	v.sheet("Request "+short(r.AgentRequestID), s)
}

// listCalls are the last calls of an API key, as far as this process of the service answered them.
func listCalls(v *visit) {
	k, ok := key(v)
	if !ok {
		return
	}
	var recent struct {
		Calls []toll.RecentCall `json:"calls"`
		Since toll.Time         `json:"since"`
	}
	err := v.w.API.Call(v.acting(), http.MethodGet, "/api/v1/api-keys/"+k.ID.String()+"/calls", nil, nil, &recent)
	if v.failed("API key", err) {
		return
	}
	show, _ := v.filters(field{Name: "show", Label: "Calls", Options: []option{{Text: "All"}, {Value: "refused", Text: "Refused and failed"}}})
	t := &table{
		Caption: "Recent calls",
		Head:    []column{{Text: "Time"}, {Text: "Call", Stays: true}, {Text: "Answer"}, {Text: "Took", Num: true}, {Text: "Correlation id"}},
		Empty: &empty{
			Icon: "terminal", Title: "No calls", Text: "The last 200 calls with this key appear here. Verify and settle are not among them: see the requests.",
		},
	}
	for _, c := range recent.Calls {
		if show[0].Value != "" && c.Status < http.StatusBadRequest {
			continue
		}
		t.Rows = append(t.Rows, []cell{
			at(c.At.Time), {Text: cmp.Or(c.Operation, "no such operation"), Sub: strings.TrimSpace(c.Method + " " + c.Path)},
			{State: stateOfAnswer(c.Status), Sub: string(c.Code)},
			{Text: (time.Duration(c.DurationMicros) * time.Microsecond).Round(10 * time.Microsecond).String(), Num: true}, {ID: plain.Name(c.CorrelationID)},
		})
	}
	v.sheet("Calls of "+nameOfKey(k), sheet{
		Lead:  "The last 200 calls but verify and settle, the newest first. They are kept in memory by the process that answers you, since " + date(recent.Since.Time) + ".",
		Links: []link{{Text: "The API key", To: v.to("keys", k.ID.String()), Plain: true}}, Filter: show, Table: t,
	})
}

// stateOfAnswer is the status of an answer over HTTP.
func stateOfAnswer(status int) *state {
	s := &state{strconv.Itoa(status), "good"}
	switch {
	case status >= http.StatusInternalServerError:
		s.Tone = "bad"
	case status >= http.StatusBadRequest:
		s.Tone = "warn"
	}
	return s
}
