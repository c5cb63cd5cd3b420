package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// lamp is a device that waits for a person.
type lamp struct {
	Device   string `json:"device_code"`
	User     string `json:"user_code"`
	URI      string `json:"verification_uri"`
	Complete string `json:"verification_uri_complete"`
	Secs     int64  `json:"expires_in"`
	Interval int64  `json:"interval"`
}

// device lets the client of the program ask for a device.
func (p *program) device(changes ...string) lamp {
	p.t.Helper()
	form := changed(url.Values{"client_id": {p.id}, "scope": {"credits"}, "resource": {progResource}, "agent_id": {string(p.agent)}}, changes)
	res := p.send(http.MethodPost, "/oauth/device_authorization", form.Encode())
	var d lamp
	if err := json.Unmarshal([]byte(res.body), &d); err != nil || res.status != 200 || d.Device == "" {
		p.t.Fatalf("%d %s", res.status, res.body)
	}
	return d
}

func (p *program) poll(code string, changes ...string) answered {
	p.t.Helper()
	return p.token(changed(url.Values{"grant_type": {deviceGrant}, "device_code": {code}, "client_id": {p.id}}, changes))
}

// TestDeviceCodes: a device is let in by the person who was shown it, once; who guesses or asks too often is held off.
// T123
func TestDeviceCodes(t *testing.T) {
	for _, v := range oauthVariants {
		t.Run(string(v), func(t *testing.T) { deviceCodes(t, v) })
	}
}

func deviceCodes(t *testing.T, v storetest.Variant) {
	p := newProgram(t, v, nil)
	other := p.register(`{"redirect_uris":["` + progCallback + `"],"grant_types":["` + deviceGrant + `"]}`)
	p.id = p.register(`{"client_name":"Lamp","redirect_uris":["` + progCallback + `"],"grant_types":["refresh_token","` + deviceGrant + `"]}`)
	o, ctx := p.s.OAuth(), t.Context()
	later := func(d time.Duration) { p.ahead.Add(int64(d)) }

	d := p.device()
	if d.Secs != 600 || d.Interval != 5 || d.URI != p.s.PublicURL()+"/device" || d.Complete != d.URI+"?user_code="+d.User || len(d.User) != 9 {
		t.Fatalf("%+v", d)
	}
	ask := func(want string) answered {
		t.Helper()
		a := p.poll(d.Device)
		if a.Error != want {
			t.Errorf("%+v, not %q", a, want)
		}
		return a
	}
	ask("authorization_pending")
	later(time.Second)
	ask("slow_down")
	later(6 * time.Second)
	ask("slow_down") // ten seconds now
	later(15 * time.Second)
	ask("authorization_pending")

	r, err := o.Device(ctx, p.buyer, strings.ToLower(strings.ReplaceAll(d.User, "-", " ")))
	if err != nil || r.Client.Name != "Lamp" || r.UserCode != d.User || r.Source != "127.0.0.1" || r.AgentID != p.agent || r.Resource != progResource || r.Kind != oauth.KindPermission {
		t.Fatalf("%+v, %v", r, err)
	}
	must.Do(t, o.ApproveDevice(ctx, d.User, personOf(p.buyer), p.choice(3)))
	for what, again := range map[string]error{
		"approved by another": o.ApproveDevice(ctx, d.User, personOf(p.owner), p.choice(3)), "refused": o.DenyDevice(ctx, d.User),
	} {
		if e := toll.AsError(again); again == nil || e.HTTPStatus() != 400 {
			t.Errorf("%s after the decision: %v", what, again)
		}
	}
	later(15 * time.Second)
	if a := p.poll(d.Device, "client_id", other); a.Error != "invalid_grant" {
		t.Errorf("another client: %+v", a)
	}
	got := ask("")
	if !p.pays(got.Access, 3) || p.pays(got.Access, 1) || got.Refresh == "" {
		t.Errorf("%+v", got)
	}
	if ask("invalid_grant"); p.refresh(got.Refresh).Error != "invalid_grant" {
		t.Error("the refresh token of a device code that came twice")
	}

	// Of many polls at the same time one gets something.
	d = p.device()
	must.Do(t, o.ApproveDevice(ctx, d.User, personOf(p.buyer), p.choice(3)))
	var won atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if p.poll(d.Device).status == 200 {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() > 1 {
		t.Errorf("%d polls got something", won.Load())
	}

	d = p.device()
	must.Do(t, o.DenyDevice(ctx, d.User))
	ask("access_denied")
	d = p.device()
	later(10 * time.Minute)
	ask("expired_token")
	if _, err := o.Device(ctx, p.buyer, d.User); err == nil {
		t.Error("an expired code")
	}
	later(time.Second)
	must.Get(o.Sweep(ctx))(t)
	ask("invalid_grant")

	// Ten wrong codes in ten minutes, and the person gets no more answers, for a right one either. Others do.
	d = p.device()
	later(11 * time.Minute)
	d = p.device()
	locked := func(who toll.Address, code string) bool {
		_, err := o.Device(ctx, who, code)
		var e *toll.Error
		return errors.As(err, &e) && e.HTTPStatus() == 429
	}
	for i := range 10 {
		if locked(p.buyer, "BBBB-BBB"+string("BCDFGHJKLM"[i])) {
			t.Errorf("locked after %d", i)
		}
	}
	if !locked(p.buyer, d.User) || !locked(p.buyer, "BBBB-BBBB") || locked(p.owner, d.User) {
		t.Error("guesses are not held off")
	}
	later(9 * time.Minute)
	if !locked(p.buyer, d.User) {
		t.Error("unlocked too early")
	}
	later(2 * time.Minute)
	if locked(p.buyer, d.User) {
		t.Error("locked for ever")
	}

	// The command line needs no registration, and gets an API key.
	d = p.device("client_id", oauth.CommandLine, "resource", p.s.PublicURL()+"/api/v1", "agent_id", "")
	must.Do(t, o.ApproveDevice(ctx, d.User, personOf(p.buyer), oauth.Choice{}))
	if a := p.poll(d.Device, "client_id", oauth.CommandLine); !p.opensAPI(a.Access) {
		t.Errorf("%+v", a)
	}
	chatGateway(p, o)
	limited := 0
	for range 70 {
		if p.send(http.MethodPost, "/oauth/device_authorization", url.Values{"client_id": {p.id}}.Encode()).status == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("devices are not limited")
	}
	if log := p.log.String(); strings.Contains(log, d.Device) || strings.Contains(log, d.User) {
		t.Error("a code is in the log")
	}
}

// chatGateway: the chat gateway needs no registration, gets a key for 90 days with the rights that
// it asks for, read and spend by itself, and none that a person keeps; its key ends where RFC 7009
// says.
func chatGateway(p *program, o *oauth.OAuth) {
	p.t.Helper()
	as := []string{"client_id", oauth.ChatGateway, "resource", p.s.PublicURL() + "/api/v1", "agent_id", ""}
	for scope, want := range map[string]string{
		"": "read spend", "spend": "spend", "read spend manage sell": "read sell spend manage",
	} {
		d := p.device(append(as, "scope", scope)...)
		r, err := o.Device(p.t.Context(), p.buyer, d.User)
		if err != nil || r.Rights.String() != want || !r.Client.Ours || r.Kind != oauth.KindAPIKey {
			p.t.Errorf("scope %q: %+v, %v", scope, r, err)
		}
		must.Do(p.t, o.ApproveDevice(p.t.Context(), d.User, personOf(p.buyer), oauth.Choice{}))
		got := p.poll(d.Device, "client_id", oauth.ChatGateway)
		if got.Secs != int64(90*24*time.Hour/time.Second) || !strings.Contains(got.Scope, "spend") {
			p.t.Errorf("scope %q: %+v", scope, got)
		}
		p.revoke(got.Access)
		if p.opensAPI(got.Access) {
			p.t.Error("a revoked key opens the API")
		}
	}
	for _, scope := range []string{"money", "read keys", "export", "members spend"} {
		form := changed(url.Values{"scope": {scope}}, as)
		if res := p.send(http.MethodPost, "/oauth/device_authorization", form.Encode()); !strings.Contains(res.body, "invalid_scope") {
			p.t.Errorf("scope %q: %d %s", scope, res.status, res.body)
		}
	}
	q := p.request("client_id", oauth.ChatGateway)
	if !p.refusedOnPage(q) {
		p.t.Error("the chat gateway has no address to which a browser could go")
	}
}

// TestWaitingDevices: one source has at most 20 devices that wait, and does not keep others from beginning.
// T123
func TestWaitingDevices(t *testing.T) {
	for _, v := range oauthVariants {
		t.Run(string(v), func(t *testing.T) {
			p := newProgram(t, v, func(c *server.Config) { c.TrustedProxies = "127.0.0.1" })
			p.id = p.register(`{"redirect_uris":["` + progCallback + `"],"grant_types":["` + deviceGrant + `"]}`)
			form := url.Values{"client_id": {p.id}, "scope": {"credits"}, "resource": {progResource}, "agent_id": {string(p.agent)}}.Encode()
			begin := func(from string, want int) lamp {
				t.Helper()
				res := p.send(http.MethodPost, "/oauth/device_authorization", form, "X-Forwarded-For", from)
				var d lamp
				_ = json.Unmarshal([]byte(res.body), &d)
				if res.status != want {
					t.Fatalf("from %s: %d %s", from, res.status, res.body)
				}
				return d
			}
			for i := range 20 {
				begin(fmt.Sprintf("2001:db8::%x", i), http.StatusOK)
			}
			begin("2001:db8::ffff", http.StatusTooManyRequests)
			begin("2001:db8:1::1", http.StatusOK)
			var last lamp
			for range 20 {
				last = begin("203.0.113.9", http.StatusOK)
			}
			begin("203.0.113.9", http.StatusTooManyRequests)
			must.Do(t, p.s.OAuth().DenyDevice(t.Context(), last.User))
			begin("203.0.113.9", http.StatusOK)
			begin("203.0.113.9", http.StatusTooManyRequests)
			p.ahead.Add(int64(10 * time.Minute))
			begin("203.0.113.9", http.StatusOK)
		})
	}
}
