package api_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// An export has every record that the filters of its list let through, in the order of the list, across pages.
func TestExport(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		const orders = 230 // more than two pages
		var want []string
		for range orders {
			o := s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
			want = append(want, o.text(t, "orderId"))
			s.clock.advance(1e6)
		}
		s.do(s.s1, "POST", base+"/protocol/plans/"+s.plan(s.b1, freePlan)+"/order", "")
		path := "/protocol/orders?role=seller&sortOrder=asc&pageSize=7&page=3&planId=" + plan + "&format="

		a := s.do(s.b1, "GET", base+path+"ndjson", "")
		lines := strings.Split(strings.TrimSuffix(string(a.body), "\n"), "\n")
		if a.status != 200 || a.header.Get("Content-Type") != "application/x-ndjson; charset=utf-8" {
			t.Fatalf("%d %v", a.status, a.header)
		}
		var got []string
		for _, line := range lines {
			var o toll.Order
			must.Do(t, json.Unmarshal([]byte(line), &o))
			got = append(got, o.OrderID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d lines, want %d in their order", len(got), len(want))
		}

		a = s.do(s.b1, "GET", base+path+"csv", "")
		table := must.Get(csv.NewReader(strings.NewReader(string(a.body))).ReadAll())(t)
		if len(table) != orders+1 || a.header.Get("Content-Disposition") != `attachment; filename="Orders.csv"` {
			t.Fatalf("%d rows, %v", len(table), a.header)
		}
		column := func(name string) int { return slices.Index(table[0], name) }
		for i, row := range table[1:] {
			if row[column("orderId")] != want[i] || row[column("creditsGranted")] == "" || row[column("replaces")] != "" {
				t.Fatalf("row %d: %v under %v", i, row, table[0])
			}
		}
		if column("balance.available") < 0 {
			t.Errorf("members of members are no columns: %v", table[0])
		}
		if members := list.Orders.Members(); !slices.Equal(table[0], append(members, "amountWhole", "refundedWhole")) || table[1][len(members)+1] != "0.00" {
			t.Errorf("no columns with whole units after the members: %v of %v", table[1], table[0])
		}

		// An empty list is a file with its header.
		a = s.do(s.b2, "GET", base+"/protocol/holdings?format=csv", "")
		if head, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll(); err != nil || len(head) != 1 || len(head[0]) < 5 {
			t.Errorf("%v, %v", head, err)
		}
	})
}

// A refusal of a list is one of its export, and an export takes its right.
func TestExport_Refusals(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	for _, tt := range []struct {
		who  actor
		path string
		want toll.Code
	}{
		{s.b1, "/protocol/orders?format=xlsx", toll.CodeBadRequest},
		{s.b1, "/protocol/orders?format=", toll.CodeBadRequest},
		{s.b1, "/protocol/orders?format=csv&sortBy=weight", toll.CodeBadPage},
		{s.b1, "/protocol/orders?format=csv&role=thief", toll.CodeBadRequest},
		{s.b2, "/protocol/plans/" + plan + "/subscribers?format=csv", toll.CodeNotPlanOwner},
		{s.keyWith(s.b1, toll.RightRead), "/protocol/orders?format=csv", toll.CodeRightMissing},
		{s.keyWith(s.b1, toll.RightMoney), "/protocol/orders?format=csv", toll.CodeRightMissing}, // lacks read
		{s.keyWith(s.b1, toll.RightRead), "/protocol/orders", ""},
		{s.keyWith(s.b1, toll.RightRead), "/protocol/holdings?format=csv", ""},
		{s.keyWith(s.b1, toll.RightRead, toll.RightMoney), "/protocol/orders?format=csv", ""},
	} {
		if a := s.do(tt.who, "GET", base+tt.path, ""); toll.Code(a.code()) != tt.want {
			t.Errorf("%s: %d %s, want %s", tt.path, a.status, a.body, tt.want)
		}
	}
}

// T158: what strangers wrote is text in a spreadsheet, whatever it begins with.
// T158
func TestSpreadsheetFormulas(t *testing.T) {
	s := newStack(t)
	names := []string{"=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\uff1d1+1", " =1+1", "\ufeff=1+1", "plain", `=HYPERLINK("https://evil.example")`}
	for _, name := range names {
		body, _ := json.Marshal(map[string]any{
			"name": name, "description": name, "priceConfig": map[string]any{}, "creditsConfig": map[string]any{},
		})
		a := s.do(s.b1, "POST", base+"/protocol/plans", string(body))
		if a.status != 200 {
			t.Logf("%q cannot be a name: %s", name, a.body)
			continue
		}
		if a := s.do(s.s1, "POST", base+"/protocol/plans/"+a.text(t, "planId")+"/order", ""); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := s.do(s.s1, "GET", base+"/protocol/holdings?format=csv", "")
	table := must.Get(csv.NewReader(strings.NewReader(string(a.body))).ReadAll())(t)
	seen := 0
	for _, row := range table[1:] {
		for _, cell := range row {
			if strings.IndexAny(strings.TrimLeft(cell, " \ufeff"), "=+-@\t\r\uff1d") == 0 {
				t.Errorf("a cell begins a formula: %q", cell)
			}
			if strings.HasPrefix(cell, "'=") || strings.HasPrefix(cell, "'@") || strings.HasPrefix(cell, "'+") || strings.HasPrefix(cell, "'-") {
				seen++
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d inert cells, so the test proves little: %s", seen, a.body)
	}
}

// Two exports of a workspace run at a time; a third is refused, and another workspace is not.
func TestExport_AtATime(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	for range 3 {
		s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
	}
	full, wait := make(chan bool, 2), make(chan bool)
	done := make(chan bool, 2)
	for range 2 {
		go func() {
			r := httptest.NewRequest("GET", base+"/protocol/holdings?format=ndjson", nil)
			r.Header.Set("Authorization", "Bearer "+s.s1.key)
			s.handler.ServeHTTP(&stuck{ResponseRecorder: httptest.NewRecorder(), full: full, wait: wait}, r)
			done <- true
		}()
	}
	<-full
	<-full
	a := s.do(s.s1, "GET", base+"/protocol/holdings?format=csv", "")
	if a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do(s.b2, "GET", base+"/protocol/holdings?format=csv", ""); a.status != 200 {
		t.Errorf("another workspace: %d %s", a.status, a.body)
	}
	close(wait)
	<-done
	<-done
	if a := s.do(s.s1, "GET", base+"/protocol/holdings?format=csv", ""); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// stuck is a reader who does not read.
type stuck struct {
	*httptest.ResponseRecorder
	full, wait chan bool
}

func (s *stuck) Write(b []byte) (int, error) {
	s.full <- true
	<-s.wait
	return s.ResponseRecorder.Write(b)
}

// An export that fails after its first page ends its connection, so that half of it does not look whole.
func TestExport_CutOff(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	for i := range 120 {
		s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "", "Idempotency-Key", fmt.Sprint(i))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handler.ServeHTTP(&closing{w, s.store}, r)
	}))
	defer server.Close()
	r, _ := http.NewRequest("GET", server.URL+base+"/protocol/orders?role=seller&format=ndjson", nil)
	r.Header.Set("Authorization", "Bearer "+s.b1.key)
	res := must.Get(http.DefaultClient.Do(r))(t)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != 200 || len(body) == 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d, %d bytes, %v: the answer looks whole", res.StatusCode, len(body), err)
	}
}

// closing closes the database after the first page.
type closing struct {
	http.ResponseWriter
	st *store.Store
}

func (c *closing) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	_ = c.st.Close()
	return n, err
}

func unnamed(column string) bool { return column == "" || column[0] == '.' }

// Every list whose export has a right is one that can be exported.
func TestExport_EveryFlaggedList(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	s.agent(s.b1, plan)
	s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
	token, _ := s.token(s.s1, plan)
	if a := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.followed()
	s.counts()
	filled := map[string]bool{
		"listAgents": true, "listPlans": true, "listEvents": true, "listUsage": true, "listRequests": true, "listSubscribers": true,
	}
	found := 0
	for _, r := range api.Routes() {
		if r.Export == "" || r.Auth == "person" || strings.Contains(r.Path, "{delegationId}") {
			continue
		}
		found++
		path := strings.ReplaceAll(r.Path, "{planId}", plan)
		for _, format := range []string{"csv", "ndjson"} {
			if a := s.do(s.b1, "GET", path+"?format="+format, ""); a.status != 200 || !strings.Contains(a.header.Get("Content-Type"), format) {
				t.Errorf("%s as %s: %d %s", r.Operation, format, a.status, a.body)
			} else if head, _, _ := strings.Cut(string(a.body), "\n"); format == "csv" && slices.ContainsFunc(strings.Split(head, ","), unnamed) {
				t.Errorf("%s has columns without a name: %s", r.Operation, head)
			} else if lines := strings.Count(string(a.body), "\n"); filled[r.Operation] && lines < 2 && format == "csv" {
				t.Errorf("%s has nothing in it: %s", r.Operation, a.body)
			} else if format == "csv" {
				sameAsList(t, r.Operation, a.body, s.do(s.b1, "GET", path+"?pageSize=100", "").body)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d lists", found)
	}
}

// sameAsList: each member of the records of a list that is a text has its column, and each row its text.
func sameAsList(t *testing.T, op string, file, list []byte) {
	t.Helper()
	table := must.Get(csv.NewReader(strings.NewReader(string(file))).ReadAll())(t)
	var members map[string]json.RawMessage
	must.Do(t, json.Unmarshal(list, &members))
	var records []map[string]any
	for _, m := range members {
		if m[0] == '[' {
			must.Do(t, json.Unmarshal(m, &records))
		}
	}
	if len(records) != len(table)-1 {
		t.Errorf("%s: %d rows of %d records", op, len(table)-1, len(records))
		return
	}
	for i, r := range records {
		for name, value := range r {
			text, isText := value.(string)
			if at := slices.Index(table[0], name); isText && (at < 0 || table[i+1][at] != text) {
				t.Errorf("%s: %s of record %d is %q, in columns %v", op, name, i, text, table[0])
			}
		}
	}
}
