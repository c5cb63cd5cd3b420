package card_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// taken returns how many events are stored, and how many jobs fetch objects.
func (s *scene) taken() (events, jobs int64) {
	s.Helper()
	return s.count("SELECT COUNT(*) FROM card_events"), s.count("SELECT COUNT(*) FROM jobs WHERE kind = $1", store.JobCardSync)
}

// took fails the test unless so many events are stored, and so many jobs fetch objects.
func (s *scene) took(events, jobs int64) {
	s.Helper()
	if e, j := s.taken(); e != events || j != jobs {
		s.Fatalf("%d events are stored and %d jobs, want %d and %d", e, j, events, jobs)
	}
}

// turn runs a turn of the loop that reads events.
func (s *scene) turn(l jobs.Loop) (next time.Duration) {
	s.Helper()
	next = must.Get(l.Run(s.ctx))(s)
	return next
}

// killTurn runs a turn that a crash ends. Its lease is over afterwards.
func (s *scene) killTurn(l jobs.Loop, step string) {
	s.Helper()
	s.kill(step)
	func() {
		defer func() {
			if recover() != errKilled {
				s.Fatalf("the turn did not reach %s", step)
			}
		}()
		_, _ = l.Run(s.ctx)
	}()
	s.pass(20 * time.Second)
}

// charge charges a test card by its name, as another program with the same account does.
func (s *scene) charge(name string, metadata map[string]string) (*stripe.PaymentIntent, error) {
	s.Helper()
	u := must.Get(s.stripe.V1Customers.Create(s.ctx, &stripe.CustomerCreateParams{}))(s)
	m := must.Get(s.stripe.V1PaymentMethods.Attach(s.ctx, name, &stripe.PaymentMethodAttachParams{Customer: &u.ID}))(s)
	return s.stripe.V1PaymentIntents.Create(s.ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(500), Currency: stripe.String("usd"), Customer: &u.ID, PaymentMethod: &m.ID, Confirm: stripe.Bool(true),
		OffSession: stripe.Bool(true), PaymentMethodTypes: []*string{stripe.String("card")}, Metadata: metadata,
		CaptureMethod: stripe.String("automatic"),
	})
}

// happen makes events at Stripe: payments of another program that fail.
func (s *scene) happen(events int) {
	s.Helper()
	for range events {
		if _, err := s.charge("pm_card_chargeCustomerFail", nil); err == nil {
			s.Fatal("the card was not declined")
		}
	}
}

// rail returns another rail on the same database, as change makes it.
func (s *scene) rail(change func(c *card.Config)) *card.Rail {
	s.Helper()
	cfg := card.Config{
		Store: s.store, Environment: toll.Sandbox, Installation: installation, SecretKey: secretKey, URL: s.url,
		HTTP: &http.Client{Transport: s.transport()}, Clock: s.clock, Machine: s.machineClock,
	}
	change(&cfg)
	return must.Get(card.New(cfg))(s)
}

// eventOf returns the body of a webhook.
func eventOf(id, kind, object, more string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"object":"event","type":%q,"livemode":false,"created":%d,"data":{"object":{"id":%q}}%s}`,
		id, kind, noon.Unix(), object, more)
}

// T74: a webhook counts when one of the secrets has signed its bytes, within five minutes of the
// clock of the machine, which a sandbox cannot move.
// T74
func TestForgedEvents(t *testing.T) {
	each(t, func(s *scene) {
		const next = "whsec_next"
		r := s.rail(func(c *card.Config) {
			c.WebhookSecrets = []string{hookSecret, next}
			c.Log = slog.New(slog.NewTextHandler(s.log, nil))
		})
		s.now.Add(time.Hour.Microseconds()) // the clock of the sandbox does not count
		body := eventOf("evt_1", "refund.created", "re_1", "")
		sign := func(after time.Duration, body []byte, secrets ...string) string {
			return double.Sign(s.machineClock().Add(after), body, secrets...)
		}
		changed := bytes.Replace(body, []byte("re_1"), []byte("re_2"), 1)
		good := sign(0, body, hookSecret)
		for name, c := range map[string]struct {
			header string
			body   []byte
		}{
			"no header":                  {"", body},
			"no signature":               {"t=" + fmt.Sprint(noon.Unix()), body},
			"a wrong secret":             {sign(0, body, "whsec_other"), body},
			"an empty secret":            {sign(0, body, ""), body},
			"a changed byte":             {good, changed},
			"a changed time":             {strings.Replace(good, "t=", "t=1", 1), body},
			"two times":                  {good + fmt.Sprintf(",t=%d", noon.Unix()), body},
			"301 s old":                  {sign(-301*time.Second, body, hookSecret), body},
			"301 s ahead":                {sign(301*time.Second, body, hookSecret), body},
			"a header of more than 1 KB": {good + ",v1=" + strings.Repeat("0", 1<<10), body},
			"a body of more than 512 KB": {sign(0, append(slices.Clone(body), make([]byte, 512<<10)...), hookSecret), append(slices.Clone(body), make([]byte, 512<<10)...)},
		} {
			err := r.Receive(s.ctx, c.header, c.body)
			if err == nil || toll.AsError(err).Code != toll.CodeWebhookSignature {
				s.Errorf("%s: %v", name, err)
			}
		}
		if lines := s.log.with("cannot be verified"); len(lines) != 1 || strings.Contains(lines[0], "re_") || strings.Contains(lines[0], "whsec") {
			s.Errorf("the log has %q", lines)
		}
		none := s.rail(func(*card.Config) {})
		s.code(none.Receive(s.ctx, sign(0, body, ""), body), toll.CodeWebhookSignature)
		s.took(0, 0)

		for i, header := range []string{
			sign(-300*time.Second, body, hookSecret), sign(300*time.Second, body, next), sign(0, body, "whsec_other", next),
		} {
			must.Do(s, r.Receive(s.ctx, header, eventOf("evt_1", "refund.created", "re_1", "")))
			if s.took(1, 1); i == 0 {
				must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.DropJob(s.ctx, tx, store.JobCardSync, []byte("re_1")) }))
				must.Do(s, r.Receive(s.ctx, header, body))
				s.took(1, 0) // a repeat has no job
				must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.SyncCardObjects(s.ctx, tx, s.clock(), "re_1") }))
			}
		}
	})
}

// T77: events of other accounts leave no row, and at most one alarm a minute.
// T77
func TestEventsOfOthers(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		first, second := s.order(p), s.order(p)
		receive := func(body []byte) {
			s.Helper()
			must.Do(s, s.at().rail.Receive(s.ctx, double.Sign(s.machineClock(), body, hookSecret), body))
		}
		for i, body := range [][]byte{
			eventOf("evt_1", "payment_intent.succeeded", "pi_1", `,"livemode":true`),
			eventOf("evt_2", "payment_intent.succeeded", "pi_1", `,"account":"acct_other"`),
			eventOf("evt_3", "customer.created", "cus_1", ""), // says nothing here
			eventOf("", "payment_intent.succeeded", "pi_1", ""),
			eventOf("evt_4", "payment_intent.succeeded", "", ""),
			eventOf("evt_5", "payment_intent.succeeded", "pi_1/../../account", ""),
			eventOf("evt_6", "payment_intent.succeeded", "pi_"+strings.Repeat("1", 201), ""),
			[]byte(`{"object":"v2.core.event","id":"evt_7","type":"v1.billing.meter.no_meter_found"}`),
			[]byte(`[]`), []byte(`{`), nil,
		} {
			receive(body)
			if s.took(0, 0); i == 0 && len(s.alarms()) != 1 {
				s.Fatalf("alarms: %v", s.alarms())
			}
		}
		if n := len(s.alarms()); n != 1 {
			s.Fatalf("%d alarms in a minute", n)
		}
		s.pass(time.Minute)
		receive(eventOf("evt_1", "payment_intent.succeeded", "pi_1", `,"livemode":true`))
		if n := len(s.alarms()); n != 2 {
			s.Fatalf("%d alarms after a minute", n)
		}
		// The account of the database is not another one.
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.PutSetting(s.ctx, tx, "card_account", []byte("acct_ours")) }))
		receive(eventOf("evt_8", "payment_intent.succeeded", "pi_none", `,"account":"acct_ours"`))
		// Objects that are not there, of another program, or of another installation.
		receive(eventOf("evt_9", "checkout.session.completed", "cs_test_none", ""))
		receive(eventOf("evt_10", "charge.dispute.created", "dp_none", ""))
		receive(eventOf("evt_11", "refund.created", "re_none", ""))
		for i, metadata := range []map[string]string{nil, {"order_id": first, "installation": "another"}, {"order_id": first}} {
			pi := must.Get(s.charge("pm_card_visa", metadata))(s)
			receive(eventOf(fmt.Sprint("evt_2", i), "payment_intent.succeeded", pi.ID, ""))
		}
		s.at().run()
		s.took(7, 0)
		for _, id := range []string{first, second} {
			if o := s.state(id); !o.Open {
				s.Errorf("the order is decided: %+v", o)
			}
		}
		if n := s.count("SELECT COUNT(*) FROM card_moves") + s.count("SELECT COUNT(*) FROM card_orphans"); n != 0 || s.balance(p) != 0 {
			s.Errorf("%d rows, %d credits", n, s.balance(p))
		}
		s.others = true
	})
}

// The loop reads what was not read before, page by page, and a crash loses nothing.
func TestEvents_Pages(t *testing.T) {
	each(t, func(s *scene) {
		s.happen(1) // before the first start: nobody waits for it
		s.pass(2 * time.Hour)
		l := s.at().rail.Loops()[0]
		if next := s.turn(l); next != 0 {
			s.Errorf("the next turn comes after %v", next)
		}
		s.took(0, 0)
		s.happen(120)
		s.pass(30 * time.Second)
		s.killTurn(l, "card.event")
		s.took(50, 50) // the newest page
		l = s.at().rail.Loops()[0]
		s.killTurn(l, "card.cursor")
		s.took(120, 120)
		l = s.at().rail.Loops()[0]
		s.turn(l)
		s.took(120, 120)
		s.at().run()
		s.took(120, 0)
		s.pass(30 * time.Second)
		s.turn(l)
		s.took(120, 0)
	})
}

// Another process that has the lease is left alone.
func TestEvents_Lease(t *testing.T) {
	each(t, func(s *scene) {
		one, two := s.at().rail.Loops()[0], s.at().rail.Loops()[0]
		s.turn(one)
		if _, err := two.Run(s.ctx); err == nil {
			s.Fatal("two processes read at the same time")
		}
		s.pass(20 * time.Second)
		s.turn(two)
	})
}

// After a pause the loop reads an hour at a time, and stores each event once.
func TestEvents_Behind(t *testing.T) {
	each(t, func(s *scene) {
		l := s.at().rail.Loops()[0]
		s.turn(l)
		for range 5 {
			s.happen(1)
			s.pass(50 * time.Minute)
		}
		l = s.at().rail.Loops()[0]
		turns := 1
		for ; s.turn(l) != 0; turns++ {
			if turns > 10 {
				s.Fatal("the loop does not end")
			}
		}
		if s.took(5, 5); turns != 5 {
			s.Errorf("%d turns for 250 minutes", turns)
		}
	})
}

// Old rows go.
func TestEvents_Drop(t *testing.T) {
	each(t, func(s *scene) {
		l := s.at().rail.Loops()[0]
		s.turn(l)
		s.happen(1)
		s.turn(l)
		s.took(1, 1)
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			c := &store.CardCall{Key: "k", Subject: "o", Path: "refunds", Status: 200, CreatedAt: s.clock(), AnsweredAt: s.clock()}
			_, err := store.EnsureCardCall(s.ctx, tx, c)
			return err
		}))
		_, _, err := s.at().rail.Enroll(s.ctx, buyer, "here", public+"/cards/enroll")
		must.Do(s, err)
		s.pass(31*24*time.Hour + time.Minute)
		l = s.at().rail.Loops()[0]
		s.turn(l)
		if events, _ := s.taken(); events != 0 {
			s.Errorf("%d events are left", events)
		}
		if n := s.count("SELECT COUNT(*) FROM card_setups"); n != 0 {
			s.Errorf("%d enrolments are left", n)
		}
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { _, err := store.CardCallByKey(s.ctx, tx, "k"); return err }))
		s.pass(4 * 24 * time.Hour)
		s.turn(l)
		if n := s.count("SELECT COUNT(*) FROM card_calls"); n != 0 {
			s.Errorf("%d calls are left", n)
		}
	})
}
