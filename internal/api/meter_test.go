package api

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/tollhq/toll/internal/pay"
)

func TestUsualBurst(t *testing.T) {
	if newMeter(0, 4) != nil {
		t.Error("a rate of 0 is no limit")
	}
	if m := newMeter(50, 0); m.Burst() != 200 {
		t.Errorf("burst %d", m.Burst())
	}
}

// T94
func TestClientAddress(t *testing.T) {
	proxies, err := ParseProxies("10.0.0.0/8, 2001:db8:1::1,192.0.2.1")
	if err != nil || len(proxies) != 3 {
		t.Fatal(proxies, err)
	}
	for _, bad := range []string{"10.0.0.0/33", "proxy.example.com", "10.0.0.0/8;"} {
		if _, err := ParseProxies(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, c := range []struct {
		remote string
		lines  []string
		want   string
	}{
		{"198.51.100.7:4711", nil, "198.51.100.7"},
		{"198.51.100.7:4711", []string{"203.0.113.9"}, "198.51.100.7"}, // no proxy of ours
		{"10.1.2.3:4711", nil, "10.1.2.3"},
		{"10.1.2.3:4711", []string{"203.0.113.9"}, "203.0.113.9"},
		{"10.1.2.3:4711", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"}, // what stands before was written by the caller
		{"10.1.2.3:4711", []string{"1.1.1.1", "203.0.113.9, 192.0.2.1"}, "203.0.113.9"},
		{"10.1.2.3:4711", []string{"203.0.113.9", "10.9.9.9"}, "203.0.113.9"},
		{"10.1.2.3:4711", []string{"203.0.113.9, nonsense"}, "10.1.2.3"},
		{"10.1.2.3:4711", []string{"nonsense, 203.0.113.9"}, "203.0.113.9"},
		{"10.1.2.3:4711", []string{"203.0.113.9:1234"}, "203.0.113.9"},
		{"10.1.2.3:4711", []string{"[2001:db8::9]:1234"}, "2001:db8::9"},
		{"10.1.2.3:4711", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"[2001:db8:1::1]:4711", []string{"2001:db8::9"}, "2001:db8::9"},
		{"[fe80::1%eth0]:4711", nil, "fe80::1"},
		{"[::ffff:10.1.2.3]:4711", []string{"203.0.113.9"}, "203.0.113.9"},
		{"@", nil, "::"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.lines, "Forwarded": {"for=9.9.9.9"}, "X-Real-Ip": {"9.9.9.9"}}}
		if got := Source(r, proxies); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s %q: %s, not %s", c.remote, c.lines, got, c.want)
		}
	}
}

// Every call that creates a record of the caller takes an Idempotency-Key; what repeats itself by an id of its own does not.
func TestCreatingCallsTakeAKey(t *testing.T) {
	var took []string
	for _, r := range table(Deps{Facilitator: &pay.Facilitator{}}.withDefaults(), nil) {
		if r.action.once {
			took = append(took, r.op)
		} else if r.success() == http.StatusCreated && r.auth != open { // nobody yet for whom a key would count
			t.Errorf("%s creates, and takes no key", r.op)
		}
	}
	want := []string{
		"createDelegation", "createInvitation", "createKey", "createPermission", "createWebhook", "mintCredits", "mintExpirableCredits", "openCheckout",
		"openStripePayment", "orderPlan", "recordSubTask", "refundOrder", "registerAgent", "registerAgentWithPlan", "registerPlan", "rotateKey",
		"takeBackCredits",
	}
	if slices.Sort(took); !slices.Equal(took, want) {
		t.Errorf("%v", took)
	}
}
