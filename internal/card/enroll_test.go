package card_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

const (
	cardsPage = public + "/cards/enroll"
	source    = "a hash of an address"
)

// enroll begins an enrolment of the buyer.
func (s *scene) enroll() (id, page string) {
	s.Helper()
	id, page, err := s.at().rail.Enroll(s.ctx, buyer, source, cardsPage)
	must.Do(s, err)
	return id, page
}

// enrolled enrols a card of the buyer on its page, and returns the id of its record.
func (s *scene) enrolled(number string) string {
	s.Helper()
	id, page := s.enroll()
	status, location := s.pay(page, number)
	if strings.Contains(location, "/c/authenticate/") {
		status, location = s.submit(location, url.Values{"result": {"approve"}})
	}
	if want := cardsPage + "?setup=" + id; location != want {
		s.Fatalf("the page answered %d, %q, want %q", status, location, want)
	}
	method, failure, err := s.at().rail.Enrolled(s.ctx, buyer, id)
	if must.Do(s, err); method == "" || failure != "" {
		s.Fatalf("the card is not enrolled: %q, %q", method, failure)
	}
	return method
}

// cardRecords returns the records of a card of the buyer.
func (s *scene) cardRecords(id string) (*store.PaymentMethod, *store.CardMethod) {
	s.Helper()
	record := must.Get(store.PaymentMethodByID(s.ctx, s.store, buyer, id))(s)
	m := must.Get(store.CardMethodByID(s.ctx, s.store, buyer, id))(s)
	return record, m
}

// stripeMethod returns a payment method as the double has it.
func (s *scene) stripeMethod(id string) *stripe.PaymentMethod {
	s.Helper()
	return must.Get(s.stripe.V1PaymentMethods.Retrieve(s.ctx, id, nil))(s)
}

// A card is enrolled when Stripe says that its setup succeeded, and can be charged off session.
func TestEnroll(t *testing.T) {
	each(t, func(s *scene) {
		id, page := s.enroll()
		for range 2 { // the browser has come back, or says so
			if method, failure, err := s.at().rail.Enrolled(s.ctx, buyer, id); method != "" || failure != "" || err != nil {
				s.Fatalf("enrolled before a card was typed: %q, %q, %v", method, failure, err)
			}
		}
		s.pay(page, "4000002500003155")
		if method, _, err := s.at().rail.Enrolled(s.ctx, buyer, id); method != "" || err != nil {
			s.Fatalf("enrolled before the bank agreed: %q, %v", method, err)
		}
		method := s.enrolled("4000002500003155")
		record, m := s.cardRecords(method)
		if record.Brand != "visa" || record.Last4 != "3155" || record.ExpMonth != 12 || record.ExpYear != 2030 || record.Provider != toll.ProviderCard ||
			!record.ExpiredAt.IsZero() || !record.RevokedAt.IsZero() {
			s.Errorf("got %+v", record)
		}
		behind := s.stripeMethod(m.StripeID)
		if m.ID != method || behind.AllowRedisplay != stripe.PaymentMethodAllowRedisplayLimited || behind.Customer.ID != m.Customer {
			s.Errorf("got %+v, %+v", m, behind)
		}
		p := s.plan()
		must.Do(s, s.at().topUp(p, s.delegation(method, 500), "r1"))
		if n, cents := s.charges(); n != 1 || cents != 500 {
			s.Errorf("%d charges, %d cents", n, cents)
		}
		if alarms := s.alarms(); len(alarms) > 0 {
			s.Error(alarms)
		}
	})
}

// The newer payment method is put behind the record of the same card; a card that was removed gets
// a new record.
func TestEnroll_SameCard(t *testing.T) {
	each(t, func(s *scene) {
		first := s.enrolled("4242424242424242")
		_, before := s.cardRecords(first)
		if again := s.enrolled("4242424242424242"); again != first {
			s.Errorf("the same card has the records %s and %s", first, again)
		}
		_, after := s.cardRecords(first)
		if after.StripeID == before.StripeID || after.Fingerprint != before.Fingerprint {
			s.Errorf("got %+v after %+v", after, before)
		}
		s.at().run()
		if s.stripeMethod(before.StripeID).Customer != nil || s.stripeMethod(after.StripeID).Customer == nil {
			s.Error("the older payment method is attached, or the newer is not")
		}
		if other := s.enrolled("5555555555554444"); other == first {
			s.Error("another card has the same record")
		}
		s.pass(triesTime)
		must.Do(s, s.at().PaymentMethods.Remove(s.ctx, checkout.Owner{Address: buyer}, first))
		newer := s.enrolled("4242424242424242") // before the job has run, which detaches the removed one
		must.Do(s, s.at().rail.Detach(s.ctx, []byte(first)))
		must.Do(s, s.at().rail.Detach(s.ctx, []byte(first)))
		record, _ := s.cardRecords(first)
		now, m := s.cardRecords(newer)
		if newer == first || record.RevokedAt.IsZero() || !now.RevokedAt.IsZero() || s.stripeMethod(after.StripeID).Customer != nil ||
			s.stripeMethod(m.StripeID).Customer == nil {
			s.Errorf("got %+v, %+v, %+v", record, now, m)
		}
		must.Do(s, s.at().rail.Detach(s.ctx, []byte(newer))) // a job that came too late
		if s.stripeMethod(m.StripeID).Customer == nil {
			s.Error("a card in use was detached")
		}
	})
}

const triesTime = 10 * time.Minute

// Two enrolments of one card that end at the same time make one record.
func TestEnroll_SameCardAtOnce(t *testing.T) {
	each(t, func(s *scene) {
		var setups []string
		for range 3 {
			id, page := s.enroll()
			s.pay(page, "4242424242424242")
			setups = append(setups, id)
		}
		var all sync.WaitGroup
		for _, id := range append(setups, setups...) {
			all.Go(func() {
				if _, failure, err := s.at().rail.Enrolled(s.ctx, buyer, id); failure != "" || err != nil {
					s.Errorf("%q, %v", failure, err)
				}
			})
		}
		all.Wait()
		s.at().run()
		if n := s.count("SELECT COUNT(*) FROM payment_methods"); n != 1 {
			s.Errorf("%d records", n)
		}
		attached := 0
		for m, err := range s.stripe.V1PaymentMethods.List(s.ctx, &stripe.PaymentMethodListParams{Customer: stripe.String(s.customer())}).All(s.ctx) {
			if must.Do(s, err); m.Customer != nil {
				attached++
			}
		}
		if attached != 1 {
			s.Errorf("%d payment methods are attached", attached)
		}
	})
}

// A customer that was deleted at Stripe is replaced by a new one, also when several enrolments find it
// missing at the same time; the same card is behind its record again.
func TestEnroll_CustomerDeleted(t *testing.T) {
	each(t, func(s *scene) {
		method := s.enrolled("4242424242424242")
		before := s.customer()
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { // the double keeps its customers
			return store.SetCardCustomer(s.ctx, tx, &store.CardCustomer{Owner: buyer, ID: "cus_deleted"})
		}))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, _, err := s.at().rail.Enroll(s.ctx, buyer, source, cardsPage); err != nil {
					s.Error(err)
				}
			})
		}
		all.Wait()
		if again := s.enrolled("4242424242424242"); again != method {
			s.Errorf("the record %s became %s", method, again)
		}
		after := s.customer()
		_, m := s.cardRecords(method)
		if after == before || after == "cus_deleted" || m.Customer != after || s.stripeMethod(m.StripeID).Customer.ID != after {
			s.Errorf("the customer is %s after %s, and that of the card is %s", after, before, m.Customer)
		}
		if n := s.count("SELECT COUNT(*) FROM card_calls WHERE path = 'customers'"); n != 2 {
			s.Errorf("%d customers were made", n)
		}
		if alarms := s.alarms(); len(alarms) > 0 {
			s.Error(alarms)
		}
	})
}

func (s *scene) customer() string {
	s.Helper()
	c := must.Get(store.CardCustomerOf(s.ctx, s.store, buyer))(s)
	return c.ID
}

// T84: enrolments are limited by owner and by address, before Stripe is asked.
// T84
func TestCardTesting(t *testing.T) {
	each(t, func(s *scene) {
		stopped := func(owner toll.Address, source string) bool {
			s.Helper()
			calls := s.count("SELECT COUNT(*) FROM card_calls")
			_, _, err := s.at().rail.Enroll(s.ctx, owner, source, cardsPage)
			if err == nil {
				return false
			}
			s.code(err, toll.CodeRateLimited)
			if toll.AsError(err).RetryAfterSecs == 0 || s.count("SELECT COUNT(*) FROM card_calls") != calls {
				s.Errorf("%v, and Stripe was asked", err)
			}
			return true
		}
		other := func(n int) toll.Address { return toll.Address{0: 9, 19: byte(n)} }
		// Five enrolments of an owner, from many addresses.
		for n := range 100 {
			if got := stopped(buyer, fmt.Sprint("address ", n)); got != (n >= 5) {
				s.Fatalf("enrolment %d: %t", n, got)
			}
		}
		// Five from an address, of many owners.
		for n := range 100 {
			if got := stopped(other(n), source); got != (n >= 5) {
				s.Fatalf("owner %d: %t", n, got)
			}
		}
		if stopped(seller, "another address") {
			s.Error("somebody else is stopped")
		}
		s.pass(triesTime - time.Second)
		if !stopped(buyer, "elsewhere") {
			s.Error("let in too early")
		}
		s.pass(2 * time.Second)
		if stopped(buyer, "elsewhere") {
			s.Error("stopped for longer than ten minutes")
		}
	})
}

// T84: cards that were declined inside an enrolment count, and end it.
// T84
func TestEnroll_Declines(t *testing.T) {
	each(t, func(s *scene) {
		_, page := s.enroll()
		for range 3 {
			s.pay(page, "4000000000000002")
		}
		_, _, err := s.at().rail.Enroll(s.ctx, buyer, "elsewhere", cardsPage) // the second, with three declines
		must.Do(s, err)
		_, _, err = s.at().rail.Enroll(s.ctx, buyer, "elsewhere", cardsPage)
		s.code(err, toll.CodeRateLimited)

		s.pass(triesTime + time.Second)
		id, page := s.enroll()
		for range 5 {
			s.pay(page, "4000000000000002")
		}
		method, failure, err := s.at().rail.Enrolled(s.ctx, buyer, id)
		if must.Do(s, err); method != "" || failure == "" {
			s.Errorf("%q, %q", method, failure)
		}
		if status, _ := s.pay(page, "4242424242424242"); status != 410 {
			s.Errorf("the page of an enrolment with five declines answers %d", status)
		}
	})
}

// T84: concurrent enrolments in several processes do not exceed the limit.
// T84
func TestAtOnce(t *testing.T) {
	each(t, func(s *scene) {
		s.start()
		var in, all sync.WaitGroup
		var mu sync.Mutex
		admitted := 0
		in.Add(1)
		for n := range 20 {
			all.Go(func() {
				in.Wait()
				_, _, err := s.processes[n%2].rail.Enroll(s.ctx, buyer, source, cardsPage)
				if mu.Lock(); err == nil {
					admitted++
				} else if toll.AsError(err).Code != toll.CodeRateLimited {
					s.Error(err)
				}
				mu.Unlock()
			})
		}
		in.Done()
		all.Wait()
		if calls := s.count("SELECT COUNT(*) FROM card_calls WHERE path = 'checkout/sessions'"); admitted > 5 || calls != int64(admitted) {
			s.Errorf("%d were let in, %d sessions were asked for", admitted, calls)
		}
	})
}

// An enrolment is known to its owner alone, and only under its id.
func TestEnrolled_OfOthers(t *testing.T) {
	each(t, func(s *scene) {
		id, page := s.enroll()
		s.pay(page, "4242424242424242")
		for owner, ids := range map[toll.Address][]string{seller: {id}, buyer: {toll.NewUUID(), "", "x", "a\x00b", "' OR 1=1"}} {
			for _, id := range ids {
				method, failure, err := s.at().rail.Enrolled(s.ctx, owner, id)
				if s.code(err, toll.CodePaymentMethodNotFound); method != "" || failure != "" {
					s.Errorf("%q: %q, %q", id, method, failure)
				}
			}
		}
		if s.count("SELECT COUNT(*) FROM payment_methods") != 0 {
			s.Error("a card was enrolled")
		}
	})
}

// A setup whose terms are others than those that were asked for enrols nothing, with an alarm.
func TestEnroll_OtherTerms(t *testing.T) {
	each(t, func(s *scene) {
		id, page := s.enroll()
		setup := must.Get(store.CardSetupByID(s.ctx, s.store, id))(s)
		s.pay(page, "4242424242424242")
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { // the row belongs to a different workspace
			_, err := tx.Exec(s.ctx, "UPDATE card_setups SET owner = $1 WHERE setup_id = $2", seller.Lower(), setup.ID)
			return err
		}))
		method, failure, err := s.at().rail.Enrolled(s.ctx, seller, id)
		if must.Do(s, err); method != "" || failure == "" || len(s.alarms()) != 1 || s.count("SELECT COUNT(*) FROM payment_methods") != 0 {
			s.Errorf("%q, %q, %v", method, failure, s.alarms())
		}
	})
}

// The page of an enrolment ends, and so does the enrolment.
func TestEnroll_Expires(t *testing.T) {
	each(t, func(s *scene) {
		id, page := s.enroll()
		s.pass(32 * time.Minute)
		method, failure, err := s.at().rail.Enrolled(s.ctx, buyer, id)
		if must.Do(s, err); method != "" || failure == "" {
			s.Errorf("%q, %q", method, failure)
		}
		if status, _ := s.pay(page, "4242424242424242"); status != 410 {
			s.Errorf("the page answers %d", status)
		}
	})
}

// While Stripe does not answer nothing is enrolled. A lost answer is asked for again with the same
// bytes, and a process that ends in between leaves one try.
func TestEnroll_Away(t *testing.T) {
	each(t, func(s *scene) {
		s.enroll()
		s.fault(double.Fault{Kind: "500", Count: 3})
		_, _, err := s.at().rail.Enroll(s.ctx, buyer, source, cardsPage) // it reads the first one
		s.code(err, toll.CodeCardUnreachable)
		s.fault(double.Fault{Kind: "clear"})
		if n := s.count("SELECT COUNT(*) FROM card_setups"); n != 1 {
			s.Errorf("%d rows", n)
		}
		const sessions = "/v1/checkout/sessions"
		s.fault(double.Fault{Kind: "cut", After: true, Method: "POST", Path: sessions, Count: 2})
		if _, page := s.enroll(); page == "" {
			s.Error("no page")
		}
		for _, step := range []string{"card.calling", "card.answered"} {
			s.kill(step)
			func() {
				defer func() { _ = recover() }()
				_, _, err := s.at().rail.Enroll(s.ctx, buyer, source, cardsPage)
				s.Errorf("%s: it went on, %v", step, err)
			}()
		}
		if n := s.count("SELECT COUNT(*) FROM card_setups WHERE state = 'created'"); n != 2 {
			s.Errorf("%d rows of enrolments that were cut off", n)
		}
		open := 0
		for _, err := range s.stripe.V1CheckoutSessions.List(s.ctx, &stripe.CheckoutSessionListParams{Customer: stripe.String(s.customer())}).All(s.ctx) {
			must.Do(s, err)
			open++
		}
		if open != 3 { // one of them nobody was sent to
			s.Errorf("%d sessions", open)
		}
		if id, _ := s.enroll(); id == "" {
			s.Error("no enrolment")
		}
		_, _, err = s.at().rail.Enroll(s.ctx, buyer, source, cardsPage)
		s.code(err, toll.CodeRateLimited)
	})
}

// Events of Stripe report that a bank has renewed a card, that a card has expired, and that a card
// was removed on Stripe's own page. Events of unknown cards change nothing.
func TestMethods_Sync(t *testing.T) {
	each(t, func(s *scene) {
		id := s.enrolled("4242424242424242")
		d := s.delegation(id, 5000)
		_, m := s.cardRecords(id)
		p := s.plan()
		refused := func(request, want string) {
			s.Helper()
			err := s.at().topUp(p, d, request)
			if want == "" {
				must.Do(s, err)
				return
			}
			if s.code(err, toll.CodePaymentMethodUnusable); toll.AsError(err).Text() != want {
				s.Errorf("the refusal says %q", toll.AsError(err).Text())
			}
		}
		renewed := func(year int64) *store.PaymentMethod {
			s.Helper()
			s.fault(double.Fault{Kind: "update_card", Object: m.StripeID, Month: 1, Year: year})
			s.read()
			record, _ := s.cardRecords(id)
			return record
		}
		if r := renewed(2041); r.ExpYear != 2041 || r.ExpMonth != 1 || !r.ExpiredAt.IsZero() {
			s.Errorf("a renewed card is %+v", r)
		}
		refused("r1", "")
		if r := renewed(2020); r.ExpiredAt.IsZero() {
			s.Errorf("a card past its date is %+v", r)
		}
		refused("r2", "The card has expired.")
		if r := renewed(2042); !r.ExpiredAt.IsZero() {
			s.Errorf("a renewed card is %+v", r)
		}
		refused("r3", "")
		n, _ := s.charges()
		must.Get(s.stripe.V1PaymentMethods.Detach(s.ctx, m.StripeID, nil))(s)
		s.read()
		for range 2 { // a repeat of the event
			must.Do(s, s.at().rail.Sync(s.ctx, []byte(m.StripeID)))
		}
		if r, _ := s.cardRecords(id); r.ExpiredAt.IsZero() || !r.RevokedAt.IsZero() {
			s.Errorf("a card that was detached is %+v", r)
		}
		refused("r4", "The card was removed at the card processor. Enroll it again, or enroll another card.")
		must.Do(s, s.at().rail.Sync(s.ctx, []byte("pm_somebody_else")))
		if now, _ := s.charges(); now != n {
			s.Errorf("%d charges, want %d", now, n)
		}
	})
}
