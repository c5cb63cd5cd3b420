package card

import (
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// A turn of the loop reads each recent event twice. After a pause it reads window by window, and
// after more than 28 days it reads the objects themselves.
func TestSpanOf(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		at, whole time.Time
		want      span
	}{
		"the usual turn": {ago(30 * time.Second), ago(time.Minute), span{from: ago(150 * time.Second), at: now}},
		"the first turn of a process": {ago(30 * time.Second), time.Time{},
			span{from: ago(time.Hour + 30*time.Second), at: now, whole: true}},
		"every 15 minutes":        {now, ago(15 * time.Minute), span{from: ago(time.Hour), at: now, whole: true}},
		"just before":             {now, ago(15*time.Minute - 1), span{from: ago(2 * time.Minute), at: now}},
		"an hour behind":          {ago(time.Hour), ago(time.Minute), span{from: ago(62 * time.Minute), at: now}},
		"more than an hour":       {ago(time.Hour + 1), now, span{from: ago(62*time.Minute + 1), until: ago(1), at: ago(1), more: true}},
		"a restored database":     {ago(48 * time.Hour), time.Time{}, span{from: ago(49 * time.Hour), until: ago(47 * time.Hour), at: ago(47 * time.Hour), whole: true, more: true}},
		"28 days":                 {ago(listedFor), now, span{from: ago(listedFor + 2*time.Minute), until: ago(listedFor - time.Hour), at: ago(listedFor - time.Hour), more: true}},
		"more than 28 days":       {ago(listedFor + 1), now, span{from: ago(listedFor + time.Hour + 1), at: now, whole: true, lost: true}},
		"a clock that went back":  {now.Add(time.Hour), now, span{from: ago(2 * time.Minute), at: now}},
		"... and the overlap too": {now.Add(time.Hour), now.Add(time.Hour), span{from: ago(time.Hour), at: now, whole: true}},
	} {
		if got := spanOf(c.at, c.whole, now); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Only one time in the header counts, and it is a number of seconds.
func TestSignedAt(t *testing.T) {
	for header, want := range map[string]int64{
		"": -1, "v1=00": -1, "t=": -1, "t=x,v1=00": -1, "t=-5,v1=00": -1, "t=1,t=1": -1, "t=1,v1=00,t=2": -1,
		"t=99999999999999999999,v1=00": -1, "t=9223372036854775807": -1, " t=1": -1, "T=1": -1,
		"t=1": 1, "v0=00,t=1795000000,v1=00": 1_795_000_000,
		"t=1," + strings.Repeat("v", maxSignature): -1,
	} {
		at, ok := signedAt(header)
		if ok != (want >= 0) || ok && at.Unix() != want {
			t.Errorf("%.40q: got %v, %t", header, at.Unix(), ok)
		}
	}
}

// The states of disputes at Stripe, and what each means for the order. Of several disputes an open
// one counts most, then a lost one.
func TestMoney_Disputes(t *testing.T) {
	type d = store.CardDispute
	dispute := func(state string, withdrawn bool) *d { return &d{State: state, Withdrawn: withdrawn} }
	for want, all := range map[string][][]*d{
		"": {
			nil, {dispute("warning_needs_response", false)}, {dispute("warning_under_review", false)}, {dispute("warning_closed", false)},
			{dispute("needs_response", false)},
		},
		store.DisputeOpen: {
			{dispute("needs_response", true)}, {dispute("under_review", true)}, {dispute("lost", true), dispute("needs_response", true)},
			{dispute("under_review", true), dispute("won", false)}, {dispute("a new word", true)},
		},
		store.DisputeWon: {
			{dispute("won", false)}, {dispute("won", true)}, {dispute("prevented", false)}, {dispute("won", false), dispute("warning_closed", false)},
		},
		store.DisputeLost: {
			{dispute("lost", true)}, {dispute("lost", true), dispute("won", false)}, {dispute("won", false), dispute("lost", true)},
			{dispute("prevented", true)},
		},
	} {
		for i, disputes := range all {
			m := &money{payment: &store.CardPayment{}, disputes: disputes}
			if got := m.adjustment().Dispute; got != want {
				t.Errorf("%q %d: got %q", want, i, got)
			}
		}
	}
}

// A dispute that was read before the stored one changes nothing, and an inquiry sends one event.
func TestMoney_TakeDispute(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	read := func(state string, after time.Duration) *store.CardDispute {
		return &store.CardDispute{ID: "dp_1", State: state, UpdatedAt: at.Add(after)}
	}
	m := &money{payment: &store.CardPayment{}}
	for i, c := range []struct {
		d       *store.CardDispute
		inquiry bool
		state   string
	}{
		{read("warning_needs_response", 0), true, "warning_needs_response"},
		{read("warning_needs_response", time.Second), false, "warning_needs_response"},
		{read("lost", 2*time.Second), false, "lost"},
		{read("needs_response", time.Second), false, "lost"},
		{read("won", 2*time.Second), false, "won"},
	} {
		m.dispute, m.inquiry = nil, false
		m.take(change{dispute: c.d})
		if m.inquiry != c.inquiry || len(m.disputes) != 1 || m.disputes[0].State != c.state {
			t.Errorf("%d: got %t, %+v", i, m.inquiry, m.disputes[0])
		}
	}
}

// The state of a refund only moves forward. A refund counts from when Stripe has it until it fails.
// Refunds of another payment never count.
func TestMoney_Refunds(t *testing.T) {
	m := &money{payment: &store.CardPayment{State: string(Paid), Cents: 500, Intent: "pi_1"}}
	m.refunds = []*store.CardRefund{
		{ID: "mine", Origin: originSeller, State: refundCreated, Cents: 200, Intent: "pi_1"},
		{ID: "twice", Origin: originRejected, State: refundSucceeded, Cents: 500, Intent: "pi_2", StripeID: "re_2"},
	}
	from := func(id, stripeID, state string, cents int64) {
		m.refund, m.newRefund = nil, false
		m.take(change{refund: &store.CardRefund{
			ID: id, StripeID: stripeID, State: state, Cents: cents, Intent: "pi_1", Origin: originProcessor, Reason: "r",
		}})
	}
	check := func(what string, refunded int64, rows int, left int64) {
		t.Helper()
		got, err := m.beginRefund(0)
		if left == 0 && err == nil || left > 0 && (err != nil || got != left) {
			t.Errorf("%s: %d cents can be refunded, %v, want %d", what, got, err, left)
		}
		if a := m.adjustment(); a.RefundedCents != refunded || len(m.refunds) != rows {
			t.Errorf("%s: %d cents are refunded by %d refunds, want %d by %d", what, a.RefundedCents, len(m.refunds), refunded, rows)
		}
	}
	check("not sent", 0, 2, 300)
	from("mine", "re_1", refundSucceeded, 200)
	check("sent", 200, 2, 300)
	if m.newRefund || m.refund.ID != "mine" || m.refund.Origin != originSeller {
		t.Errorf("got %+v", m.refund)
	}
	from("mine", "re_1", refundPending, 200)
	if check("an earlier state", 200, 2, 300); m.refund != nil {
		t.Errorf("got %+v", m.refund)
	}
	from("mine", "re_3", refundPending, 200) // another one with its metadata: it is not the same
	check("a second one", 400, 3, 100)
	if !m.newRefund || m.refund.ID == "mine" || m.refund.Origin != originProcessor {
		t.Errorf("got %+v", m.refund)
	}
	from("", "re_4", refundPending, 100)
	check("all", 500, 4, 0)
	from("mine", "re_1", refundFailed, 200)
	check("failed later", 300, 4, 200)
	from("mine", "re_1", refundSucceeded, 200)
	check("a failed one does not succeed", 300, 4, 200)
	if _, err := m.beginRefund(201); err == nil {
		t.Error("more than is left is refunded")
	}
	for _, state := range []string{"needs_response", "lost"} {
		m.disputes = []*store.CardDispute{{State: state, Withdrawn: true}}
		check(state, 300, 4, 0)
	}
	m.disputes[0].State = "warning_needs_response"
	m.disputes[0].Withdrawn = false
	check("an inquiry", 300, 4, 200)
	m.payment.State = string(Rejected)
	check("not paid", 300, 4, 0)
}

// T84: a page that nobody pays costs some 30 requests in its hour, a charge two a minute.
func TestPauseOf(t *testing.T) {
	for session, want := range map[*rail.SessionInput]int{nil: 122, {}: 29} {
		d, n := &details{Session: session, TriedAt: time.Unix(0, 0)}, 0
		for age := time.Duration(0); age < time.Hour; n++ {
			age += pauseOf(d, d.TriedAt.Add(age))
		}
		if n != want {
			t.Errorf("%d looks in an hour, want %d", n, want)
		}
	}
}

// Stripe's page names a plan by the text that ours shows, in 250 bytes at most.
func TestProductName(t *testing.T) {
	for in, want := range map[string]string{
		"safe\u202etxt.exe": "safetxt.exe", "zero\u200bwidth": "zerowidth", "\u3164\u2800": "Plan", " \n ": "Plan", "": "Plan",
		strings.Repeat("\U0001f600", 80): strings.Repeat("\U0001f600", 62),
	} {
		if got := productName(in); got != want {
			t.Errorf("%q: got %q", in, got)
		}
	}
}
