package card

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/store"
)

// setupLife is how long the page of an enrolment lives, by Stripe's clock: the shortest time that
// Stripe takes, and a minute for clocks that differ.
const setupLife = 31 * time.Minute

// enrolments records the cards that their owners save on a page of Stripe.
type enrolments struct {
	cfg    *Config
	stripe *processor
}

// Enroll implements [rail.Enroller]. It counts before it asks Stripe: [Config.Tries] in 10 minutes
// for an owner and for a source, each declined card in them included (T84).
//
// A repeat is another enrolment: the address of the page is not stored, so it cannot be returned again.
func (e *enrolments) Enroll(ctx context.Context, owner toll.Address, source, back string) (setupID, page string, err error) {
	s := &store.CardSetup{
		ID: toll.NewUUID(), Owner: owner, Source: source, State: setupCreated, CreatedAt: e.cfg.now(),
		ExpiresAt: e.cfg.Machine().UTC().Truncate(time.Second).Add(setupLife), MadeBy: store.ActorOf(ctx).Person(),
	}
	if err := e.admit(ctx, s); err != nil {
		return "", "", e.enrollError(ctx, err)
	}
	session, err := e.openSetup(ctx, s, back)
	if err != nil {
		return "", "", e.enrollError(ctx, err)
	}
	s.State, s.Session, s.Intent = setupOpen, session.ID, intentOf(session)
	if err := e.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.UpdateCardSetup(ctx, tx, s) }); err != nil {
		return "", "", err
	}
	return s.ID, session.URL, nil
}

// openSetup has Stripe make the page of an enrolment. A customer that was deleted at Stripe is replaced
// by a new one, once. Errors: [*answer], those of the database.
func (e *enrolments) openSetup(ctx context.Context, s *store.CardSetup, back string) (*stripe.CheckoutSession, error) {
	session := &stripe.CheckoutSession{}
	var refusal error
	for _, key := range []string{s.ID, s.ID + keyAgain} {
		customer, err := e.stripe.customer(ctx, s.Owner)
		if err != nil {
			return nil, err
		}
		call := &store.CardCall{Key: key, Subject: s.ID, Path: "checkout/sessions"}
		refusal = e.stripe.call(ctx, call, func() any { return e.setupParams(s, customer, back) }, session)
		if a, ok := errors.AsType[*answer](refusal); !ok || a.kind != missing || a.param != "customer" {
			break
		}
		if err := e.stripe.forgetCustomer(ctx, s.Owner, customer); err != nil {
			return nil, err
		}
	}
	return session, refusal
}

// enrollError returns the error for callers: that of an enrolment that Stripe did not take.
func (e *enrolments) enrollError(ctx context.Context, err error) error {
	if e := unavailable(err); e != nil {
		return e
	}
	a, ok := errors.AsType[*answer](err)
	if !ok {
		return err
	}
	alarm.Log(ctx, e.cfg.Log, alarm.CardRequestRefused, "the card processor rejected the enrollment of a card", "answer", a)
	return toll.NewError(toll.CodeCheckoutFailed).WithCause(a)
}

// setupParams are the parameters of the page of an enrolment. A card that is enrolled is shown again only to its owner.
func (e *enrolments) setupParams(s *store.CardSetup, customer, back string) *stripe.CheckoutSessionCreateParams {
	metadata := map[string]string{metaInstallation: e.cfg.Installation, metaSetup: s.ID}
	back += "?" + url.Values{"setup": {s.ID}}.Encode()
	return &stripe.CheckoutSessionCreateParams{
		Mode: stripe.String("setup"), UIMode: stripe.String("hosted_page"), Customer: &customer,
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}), ClientReferenceID: &s.ID,
		PaymentMethodData: &stripe.CheckoutSessionCreatePaymentMethodDataParams{AllowRedisplay: stripe.String("limited")},
		SuccessURL:        &back, CancelURL: &back, ExpiresAt: stripe.Int64(s.ExpiresAt.Unix()),
		Metadata:        metadata,
		SetupIntentData: &stripe.CheckoutSessionCreateSetupIntentDataParams{Metadata: metadata},
	}
}

func intentOf(s *stripe.CheckoutSession) string {
	if s.SetupIntent == nil {
		return ""
	}
	return s.SetupIntent.ID
}

// Enrolled implements [rail.Enroller].
func (e *enrolments) Enrolled(ctx context.Context, owner toll.Address, setupID string) (methodID, failure string, err error) {
	id, err := toll.ParseUUID(setupID)
	if err != nil {
		return "", "", toll.NewError(toll.CodePaymentMethodNotFound)
	}
	s, err := store.CardSetupByID(ctx, e.cfg.Store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && s.Owner != owner {
		return "", "", toll.NewError(toll.CodePaymentMethodNotFound)
	}
	if err != nil {
		return "", "", err
	}
	if err := e.readSetup(ctx, s); err != nil {
		return "", "", e.enrollError(ctx, err)
	}
	switch s.State {
	case setupFailed:
		return "", "This card cannot be used.", nil
	case setupExpired:
		return "", "The page expired before a card was saved.", nil
	}
	return s.Method, "", nil
}

// syncSetup fetches an enrolment, by the id of its session or of its setup intent, and acts on its
// state. Enrolments of others are ignored: the page of one that no row has was never shown.
func (e *enrolments) syncSetup(ctx context.Context, id string) error {
	s, err := store.CardSetupByIntent(ctx, e.cfg.Store, id)
	if errors.Is(err, store.ErrNotFound) {
		s, err = store.CardSetupBySession(ctx, e.cfg.Store, id)
	}
	if err != nil {
		return store.NotFoundAs(err, nil)
	}
	return e.readSetup(ctx, s)
}

// readSetup fetches an open enrolment, stores what became of it, and sets that in s. A repeat
// changes nothing. Errors: [*answer], those of the database.
func (e *enrolments) readSetup(ctx context.Context, s *store.CardSetup) error {
	if s.State != setupOpen {
		return nil
	}
	params := &stripe.CheckoutSessionRetrieveParams{}
	params.AddExpand("setup_intent.payment_method")
	var session stripe.CheckoutSession
	err := e.stripe.get(ctx, "checkout/sessions/"+s.Session, params, &session)
	if hasKind(err, missing) {
		after := *s
		after.State = setupExpired
		return e.putSetup(ctx, s, &after, nil)
	}
	if err != nil {
		return err
	}
	after, intent := *s, session.SetupIntent
	if intent != nil { // Stripe may make it when the page is used first
		after.Intent = intent.ID
		failures, err := e.failedTries(ctx, intent.ID)
		if err != nil {
			return err
		}
		after.Failures = max(s.Failures, failures)
	}
	switch {
	case intent != nil && intent.Status == stripe.SetupIntentStatusSucceeded:
		customer, err := e.stripe.customer(ctx, s.Owner)
		if err != nil {
			return err
		}
		if wrong := e.wrongSetup(s, &session, customer); wrong != "" {
			alarm.Log(ctx, e.cfg.Log, alarm.CardOddPage, "the enrollment of a card does not match its request", "setup", s.ID, "session", s.Session, "member", wrong)
			after.State = setupFailed
			break
		}
		return e.keepCard(ctx, s, &after, intent.PaymentMethod, customer)
	case session.Status == stripe.CheckoutSessionStatusExpired, intent != nil && intent.Status == stripe.SetupIntentStatusCanceled:
		after.State = setupExpired
	case after.Failures >= e.cfg.tries():
		if err := e.expireSetup(ctx, s); err != nil {
			return err
		}
		after.State = setupExpired
	}
	if after == *s {
		return nil
	}
	return e.putSetup(ctx, s, &after, nil)
}

// putSetup stores an enrolment, unless it was decided meanwhile, and sets in s what is stored. card writes the records of its card, nil
// for none, and returns the payment method to detach.
func (e *enrolments) putSetup(ctx context.Context, s, after *store.CardSetup, card func(tx *store.Tx) (replaced string, err error)) error {
	return e.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		now, err := store.CardSetupForUpdate(ctx, tx, s.ID)
		if err == nil && now.State == setupOpen {
			replaced := ""
			if now = after; card != nil {
				replaced, err = card(tx)
			}
			if err == nil {
				err = store.UpdateCardSetup(ctx, tx, after)
			}
			if err == nil && replaced != "" {
				err = store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDetach, Key: []byte(replaced), Due: e.cfg.now()})
			}
		}
		if err == nil {
			*s = *now
		}
		return err
	})
}

// failedTries returns how many cards were declined in an enrolment.
func (e *enrolments) failedTries(ctx context.Context, intentID string) (n int64, err error) {
	params := &stripe.SetupAttemptListParams{SetupIntent: &intentID}
	params.Limit = stripe.Int64(100)
	var tries stripe.SetupAttemptList
	if err := e.stripe.get(ctx, "setup_attempts", params, &tries); err != nil {
		return 0, err
	}
	for _, t := range tries.Data {
		if t.Status == stripe.SetupAttemptStatusFailed {
			n++
		}
	}
	return n, nil
}

// expireSetup ends the page of an enrolment in which too many cards were declined.
func (e *enrolments) expireSetup(ctx context.Context, s *store.CardSetup) error {
	call := &store.CardCall{Key: s.ID + keyExpire, Subject: s.ID, Path: "checkout/sessions/" + s.Session + "/expire"}
	var session stripe.CheckoutSession
	err := e.stripe.call(ctx, call, func() any { return &stripe.CheckoutSessionExpireParams{} }, &session)
	if hasKind(err, refused) { // it has ended: the next read says how
		return nil
	}
	return err
}

// wrongSetup returns the member of a finished enrolment that does not fit its row, "" when all fit.
func (e *enrolments) wrongSetup(s *store.CardSetup, session *stripe.CheckoutSession, customer string) string {
	intent := session.SetupIntent
	method := intent.PaymentMethod
	switch live := e.cfg.Environment == toll.Live; {
	case session.Livemode != live, intent.Livemode != live:
		return "livemode"
	case string(session.Mode) != "setup":
		return "mode"
	case intent.Metadata[metaInstallation] != e.cfg.Installation, intent.Metadata[metaSetup] != s.ID:
		return "metadata"
	case session.Customer == nil || session.Customer.ID != customer, intent.Customer == nil || intent.Customer.ID != customer:
		return "customer"
	case method == nil || method.Card == nil:
		return "payment_method"
	case method.Customer == nil || method.Customer.ID != customer:
		return "payment_method.customer"
	}
	return ""
}

// keepCard records the card of an enrolment, or puts the newer payment method behind the record of
// the same card. s is set as it is stored. A repeat changes nothing.
func (e *enrolments) keepCard(ctx context.Context, s, after *store.CardSetup, method *stripe.PaymentMethod, customer string) error {
	record := func() error {
		done := *after
		done.State = setupDone
		return e.putSetup(ctx, s, &done, func(tx *store.Tx) (string, error) { return e.putCard(ctx, tx, &done, method, customer) })
	}
	err := record()
	if store.IsUnique(err) { // another enrolment has just recorded the same card
		err = record()
	}
	return err
}

// putCard writes the records of a card, sets Method of the enrolment, and returns the payment method
// that was behind the record before, "" for none.
func (e *enrolments) putCard(ctx context.Context, tx *store.Tx, s *store.CardSetup, method *stripe.PaymentMethod, customer string) (replaced string, err error) {
	m := &store.CardMethod{
		Owner: s.Owner, ID: method.ID, StripeID: method.ID, Customer: customer,
		Fingerprint: cmp.Or(method.Card.Fingerprint, method.ID), CheckedAt: e.cfg.now(),
	}
	old, err := sameCard(ctx, tx, m)
	if err != nil {
		return "", err
	}
	if old == nil {
		record := e.recordOf(m, method)
		record.MadeBy = s.MadeBy
		err = store.PutPaymentMethod(ctx, tx, record)
	} else {
		m.ID = old.ID
		if old.StripeID != m.StripeID {
			replaced = old.StripeID
		}
		err = store.RefreshPaymentMethod(ctx, tx, e.recordOf(m, method))
	}
	if err != nil {
		return "", err
	}
	s.Method = m.ID
	return replaced, store.PutCardMethod(ctx, tx, m)
}

// sameCard returns what is behind the record of the same card of the owner, locked, and nil when
// there is none. The record of a card that was removed stays removed.
func sameCard(ctx context.Context, tx *store.Tx, m *store.CardMethod) (*store.CardMethod, error) {
	like, found, err := store.IfThere(store.CardMethodLike(ctx, tx, m.Owner, m.Fingerprint))
	if !found {
		return nil, err
	}
	record, err := store.PaymentMethodForUpdate(ctx, tx, m.Owner, like.ID)
	if err != nil {
		return nil, err
	}
	// It may have changed before it was locked.
	if like, err = store.CardMethodByID(ctx, tx, m.Owner, like.ID); err != nil || record.RevokedAt.IsZero() {
		return like, err
	}
	like.Fingerprint = ""
	return nil, store.PutCardMethod(ctx, tx, like)
}

// recordOf returns the record of a card as Stripe describes it.
func (e *enrolments) recordOf(m *store.CardMethod, method *stripe.PaymentMethod) *store.PaymentMethod {
	p := &store.PaymentMethod{
		Owner: m.Owner, ID: m.ID, Provider: toll.ProviderCard, Brand: string(method.Card.Brand), Last4: method.Card.Last4,
		ExpMonth: method.Card.ExpMonth, ExpYear: method.Card.ExpYear, CreatedAt: e.cfg.now(),
	}
	if now := e.cfg.Machine(); !now.Before(p.Ends()) {
		p.ExpiredAt = now.UTC().Truncate(time.Microsecond)
	}
	return p
}
