package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestOauthUnused_Flood: who registers as much as there is room for keeps nobody from registering for longer than a flow takes, and
// drives nobody out who was let in or is under way.
// T120
func TestOauthUnused_Flood(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	ctx := t.Context()
	got := p.exchange(p.code())
	lamp := p.register(`{"redirect_uris":["` + progCallback + `"],"grant_types":["refresh_token","` + deviceGrant + `"]}`)
	d := p.device("client_id", lamp)
	must.Do(t, p.s.OAuth().ApproveDevice(ctx, d.User, personOf(p.buyer), p.choice(3)))
	agent := p.register(`{"redirect_uris":["https://first.example.com/cb","https://second.example.com/cb"],"agent_id":"` + string(p.agent) + `"}`)
	p.approved(p.request("client_id", agent, "redirect_uri", "https://first.example.com/cb"), p.choice(1))

	const room = 10_000
	flood := must.Get(p.s.RegisterMany(ctx, "", room-1))(t)
	register := func(agent string) shown {
		return p.send(http.MethodPost, "/oauth/register", `{"redirect_uris":["https://late.example.com/cb"]`+agent+`}`, "Content-Type", "application/json")
	}
	if res := register(""); res.status != http.StatusTooManyRequests || res.header.Get("Retry-After") == "" {
		t.Errorf("with as many clients under way as there may be: %d %s", res.status, res.body)
	}
	p.ahead.Add(int64(9 * time.Minute))
	late := p.request("client_id", flood, "redirect_uri", "https://many.example.com/0")
	if p.refusedOnPage(late) {
		t.Error("a program gave way after nine minutes")
	}
	p.ahead.Add(int64(2 * time.Minute))
	var made struct {
		ID string `json:"client_id"`
	}
	for range 12 { // more than the addresses of the oldest client
		res := register("")
		if err := json.Unmarshal([]byte(res.body), &made); err != nil || res.status != http.StatusCreated {
			t.Fatalf("ten minutes after the flood: %d %s", res.status, res.body)
		}
	}
	if res := register(`,"agent_id":"` + string(p.agent) + `"`); res.status != http.StatusCreated {
		t.Errorf("for an agent: %d %s", res.status, res.body)
	}
	if !p.refusedOnPage(late) || p.refusedOnPage(p.request("client_id", made.ID, "redirect_uri", "https://late.example.com/cb")) {
		t.Error("another one than the oldest gave way")
	}
	if p.isRegistered(p.request("client_id", agent, "redirect_uri", "https://second.example.com/cb")) ||
		!p.isRegistered(p.request("client_id", agent, "redirect_uri", "https://first.example.com/cb")) || p.refusedOnPage(p.request()) {
		t.Error("of the older ones, others gave way than those that nobody had let in")
	}
	if a := p.refresh(got.Refresh); a.status != http.StatusOK {
		t.Errorf("a program that was let in: %+v", a)
	}
	if a := p.refresh("unknown", "client_id", lamp); a.Error != "invalid_grant" {
		t.Errorf("a program that was let in on a device: %+v", a)
	}
}

// TestRoomOfSource: one network has its own room for clients that nobody let in, and what it registers takes nobody else's.
// T120
func TestRoomOfSource(t *testing.T) {
	p := newProgram(t, storetest.SQLite, func(c *server.Config) { c.TrustedProxies = "127.0.0.0/8" })
	n := 0
	register := func(from string) shown {
		p.ahead.Add(int64(2 * time.Second)) // below the rate
		var uris []string
		for range 10 {
			n++
			uris = append(uris, fmt.Sprintf(`"https://many.example.com/%d"`, n))
		}
		return p.send(http.MethodPost, "/oauth/register", `{"redirect_uris":[`+strings.Join(uris, ",")+`]}`,
			"Content-Type", "application/json", "X-Forwarded-For", from)
	}
	other := register("192.0.2.200")
	for i := range 100 {
		if res := register(fmt.Sprintf("2001:db8::%x", i)); res.status != http.StatusCreated {
			t.Fatalf("registration %d: %d %s", i, res.status, res.body)
		}
	}
	if res := register("2001:db8::ffff"); res.status != http.StatusTooManyRequests || !strings.Contains(res.body, "the limit is 1000 redirect addresses") || res.header.Get("Retry-After") == "" {
		t.Errorf("beyond the room of a network: %d %s", res.status, res.body)
	}
	for _, from := range []string{"192.0.2.7", "2001:db8:0:1::1"} {
		if res := register(from); res.status != http.StatusCreated {
			t.Errorf("another network: %d %s", res.status, res.body)
		}
	}
	p.ahead.Add(int64(10 * time.Minute))
	if res := register("2001:db8::1"); res.status != http.StatusCreated {
		t.Errorf("ten minutes later: %d %s", res.status, res.body)
	}
	var made struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal([]byte(other.body), &made); err != nil || p.refusedOnPage(p.request("client_id", made.ID, "redirect_uri", "https://many.example.com/1")) {
		t.Error("the client of another network gave way")
	}
}

// TestAgentFlood: the same for the client that stands for an agent, whose addresses many programs share.
// T120
func TestAgentFlood(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	must.Get(p.s.RegisterMany(t.Context(), string(p.agent), 1000))(t)
	id := p.register(`{"redirect_uris":["http://127.0.0.1:7000/cb"],"agent_id":"` + string(p.agent) + `"}`)
	if !p.isRegistered(p.request("client_id", id, "redirect_uri", "http://127.0.0.1:51234/cb")) {
		t.Error("a program cannot be let in beside a thousand others")
	}
}

// TestLocalAddresses: a program on this computer is used by whatever port it answers at.
// T120
func TestLocalAddresses(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	id := p.register(`{"redirect_uris":["http://127.0.0.1:7000/cb","http://[::1]:7000/cb"],"agent_id":"` + string(p.agent) + `"}`)
	p.ahead.Add(int64(29 * 24 * time.Hour))
	q := p.request("client_id", id, "redirect_uri", "http://127.0.0.1:51234/cb")
	p.approved(q, p.choice(1))
	p.ahead.Add(int64(2 * 24 * time.Hour))
	must.Get(p.s.OAuth().Sweep(t.Context()))(t)
	if !p.isRegistered(q) || p.isRegistered(p.request("client_id", id, "redirect_uri", "http://[::1]:51234/cb")) {
		t.Error("the address that was used two days ago is gone, or the one that was not stays")
	}
}

// TestOauthUnused_Addresses: of IPv6 the addresses of one /64 count as one, as one caller has them all.
// T120
func TestOauthUnused_Addresses(t *testing.T) {
	p := newProgram(t, storetest.SQLite, func(c *server.Config) { c.TrustedProxies = "127.0.0.0/8" })
	post := func(path, body, from string, header ...string) int {
		return p.send(http.MethodPost, path, body, append([]string{"X-Forwarded-For", from}, header...)...).status
	}
	for i := range 60 {
		from := fmt.Sprintf("2001:db8::%x:1", i)
		if status := post("/oauth/register", `{}`, from, "Content-Type", "application/json"); status != http.StatusBadRequest {
			t.Fatalf("registration %d: %d", i, status)
		}
		if status := post("/oauth/device_authorization", url.Values{"client_id": {p.id}}.Encode(), from); status != http.StatusBadRequest {
			t.Fatalf("device %d: %d", i, status)
		}
	}
	for from, want := range map[string]int{"2001:db8::ffff:1": http.StatusTooManyRequests, "2001:db8:0:1::1": http.StatusBadRequest, "192.0.2.1": http.StatusBadRequest} {
		if status := post("/oauth/register", `{}`, from, "Content-Type", "application/json"); status != want {
			t.Errorf("a registration from %s: %d", from, status)
		}
		if status := post("/oauth/device_authorization", url.Values{"client_id": {p.id}}.Encode(), from); status != want {
			t.Errorf("a device from %s: %d", from, status)
		}
	}
}

// TestOauthUnused_Shown: a person who reads what a program asks for has ten minutes for it, however long ago the program registered. One
// person keeps few programs in this way.
// T120
func TestOauthUnused_Shown(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	ctx := t.Context()
	p.exchange(p.code())
	var asked []url.Values
	for i := range 8 {
		uri := fmt.Sprintf("https://slow.example.com/%d", i)
		asked = append(asked, p.request("client_id", p.register(`{"redirect_uris":["`+uri+`"]}`), "redirect_uri", uri))
	}
	p.ahead.Add(int64(9 * time.Minute))
	v := newVisitor(t, p.url)
	form := formOf(t, v.signIn(v.get("/oauth/authorize?"+asked[0].Encode()), p.buyerKey))
	for _, q := range asked[1:] {
		a := must.Get(p.s.OAuth().Authorize(ctx, q))(t)
		must.Do(t, p.s.OAuth().Shown(ctx, a, p.buyer))
	}
	must.Get(p.s.RegisterMany(ctx, "", 10_000-len(asked)))(t)
	p.ahead.Add(int64(2 * time.Minute))
	for i, want := range []int{http.StatusCreated, http.StatusCreated, http.StatusTooManyRequests} {
		res := p.send(http.MethodPost, "/oauth/register", `{"redirect_uris":["https://late.example.com/cb"]}`, "Content-Type", "application/json")
		if res.status != want {
			t.Errorf("registration %d beside programs that are read: %d %s", i, res.status, res.body)
		}
	}
	for i, q := range asked {
		if gone := p.refusedOnPage(q); gone != (i >= 6) {
			t.Errorf("the program of request %d is gone: %v", i, gone)
		}
	}
	res := v.submit(form.with("decision", "approve"))
	if to, ok := leaves(res); !ok || !strings.Contains(to, "code=") {
		t.Errorf("the decision: %d to %q", res.status, to)
	}
}

// TestLetIn: there is a most of programs that were let in, too, and those go first that have nothing any more.
// T120
func TestLetIn(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	p.s.OAuth().MaxLetIn = 1
	holds := p.exchange(p.code())
	p.ahead.Add(int64(time.Second))
	over := p.request("client_id", p.register(`{"redirect_uris":["https://over.example.com/cb"]}`), "redirect_uri", "https://over.example.com/cb")
	p.approved(over, p.choice(1)) // and its code is left to end
	p.ahead.Add(int64(11 * time.Minute))
	if more, err := p.s.OAuth().Sweep(t.Context()); more || err != nil {
		t.Errorf("more %v, %v", more, err)
	}
	if !p.refusedOnPage(over) {
		t.Error("a program stays that has nothing, and is one too many")
	}
	if a := p.refresh(holds.Refresh); a.status != http.StatusOK {
		t.Errorf("a program whose consent holds: %+v", a)
	}
}
