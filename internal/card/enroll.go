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

// Enroll implements [rail.Enroller]. It counts before it asks Stripe: [Config.Tries] in 10 minutes
// for an owner and for a source, each declined card in them included (T84).
//
// A repeat is another enrolment: the address of the page is not stored, so it cannot be returned again.
func (r *Rail) Enroll(ctx context.Context, owner toll.Address, source, back string) (setupID, page string, err error) {
	s := &store.CardSetup{
		ID: toll.NewUUID(), Owner: owner, Source: source, State: setupCreated, CreatedAt: r.now(),
		ExpiresAt: r.cfg.Machine().UTC().Truncate(time.Second).Add(setupLife), MadeBy: store.ActorOf(ctx).Person(),
	}
	if err := r.admit(ctx, s); err != nil {
		return "", "", r.enrollError(ctx, err)
	}
	session, err := r.openSetup(ctx, s, back)
	if err != nil {
		return "", "", r.enrollError(ctx, err)
	}
	s.State, s.Session, s.Intent = setupOpen, session.ID, intentOf(session)
	if err := r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.UpdateCardSetup(ctx, tx, s) }); err != nil {
		return "", "", err
	}
	return s.ID, session.URL, nil
}

// openSetup has Stripe make the page of an enrolment. A customer that was deleted at Stripe is replaced
// by a new one, once. Errors: [*answer], those of the database.
func (r *Rail) openSetup(ctx context.Context, s *store.CardSetup, back string) (*stripe.CheckoutSession, error) {
	session := &stripe.CheckoutSession{}
	var refusal error
	for _, key := range []string{s.ID, s.ID + keyAgain} {
		customer, err := r.customer(ctx, s.Owner)
		if err != nil {
			return nil, err
		}
		call := &store.CardCall{Key: key, Subject: s.ID, Path: "checkout/sessions"}
		refusal = r.call(ctx, call, func() any { return r.setupParams(s, customer, back) }, session)
		if a, ok := errors.AsType[*answer](refusal); !ok || a.kind != missing || a.param != "customer" {
			break
		}
		if err := r.forgetCustomer(ctx, s.Owner, customer); err != nil {
			return nil, err
		}
	}
	return session, refusal
}

// enrollError returns the error for callers: that of an enrolment that Stripe did not take.
func (r *Rail) enrollError(ctx context.Context, err error) error {
	if e := unavailable(err); e != nil {
		return e
	}
	a, ok := errors.AsType[*answer](err)
	if !ok {
		return err
	}
	alarm.Log(ctx, r.log, alarm.CardRequestRefused, "the card processor refused an enrolment", "answer", a)
	return toll.NewError(toll.CodeCheckoutFailed).WithCause(a)
}

// setupParams are the parameters of the page of an enrolment. A card that is enrolled is shown again only to its owner.
func (r *Rail) setupParams(s *store.CardSetup, customer, back string) *stripe.CheckoutSessionCreateParams {
	metadata := map[string]string{metaInstallation: r.cfg.Installation, metaSetup: s.ID}
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
func (r *Rail) Enrolled(ctx context.Context, owner toll.Address, setupID string) (methodID, failure string, err error) {
	id, err := toll.ParseUUID(setupID)
	if err != nil {
		return "", "", toll.NewError(toll.CodePaymentMethodNotFound)
	}
	s, err := store.CardSetupByID(ctx, r.cfg.Store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && s.Owner != owner {
		return "", "", toll.NewError(toll.CodePaymentMethodNotFound)
	}
	if err != nil {
		return "", "", err
	}
	if err := r.readSetup(ctx, s); err != nil {
		return "", "", r.enrollError(ctx, err)
	}
	switch s.State {
	case setupFailed:
		return "", "The card cannot be used here.", nil
	case setupExpired:
		return "", "The page ended before a card was saved.", nil
	}
	return s.Method, "", nil
}

// syncSetup fetches an enrolment, by the id of its session or of its setup intent, and acts on its
// state. Enrolments of others are ignored: the page of one that no row has was never shown.
func (r *Rail) syncSetup(ctx context.Context, id string) error {
	s, err := store.CardSetupByIntent(ctx, r.cfg.Store, id)
	if errors.Is(err, store.ErrNotFound) {
		s, err = store.CardSetupBySession(ctx, r.cfg.Store, id)
	}
	if err != nil {
		return store.NotFoundAs(err, nil)
	}
	return r.readSetup(ctx, s)
}

// readSetup fetches an open enrolment, stores what became of it, and sets that in s. A repeat
// changes nothing. Errors: [*answer], those of the database.
func (r *Rail) readSetup(ctx context.Context, s *store.CardSetup) error {
	if s.State != setupOpen {
		return nil
	}
	params := &stripe.CheckoutSessionRetrieveParams{}
	params.AddExpand("setup_intent.payment_method")
	var session stripe.CheckoutSession
	err := r.get(ctx, "checkout/sessions/"+s.Session, params, &session)
	if hasKind(err, missing) {
		after := *s
		after.State = setupExpired
		return r.putSetup(ctx, s, &after, nil)
	}
	if err != nil {
		return err
	}
	after, intent := *s, session.SetupIntent
	if intent != nil { // Stripe may make it when the page is used first
		after.Intent = intent.ID
		failures, err := r.failedTries(ctx, intent.ID)
		if err != nil {
			return err
		}
		after.Failures = max(s.Failures, failures)
	}
	switch {
	case intent != nil && intent.Status == stripe.SetupIntentStatusSucceeded:
		customer, err := r.customer(ctx, s.Owner)
		if err != nil {
			return err
		}
		if wrong := r.wrongSetup(s, &session, customer); wrong != "" {
			alarm.Log(ctx, r.log, alarm.CardOddPage, "an enrolment has other terms", "setup", s.ID, "session", s.Session, "member", wrong)
			after.State = setupFailed
			break
		}
		return r.keepCard(ctx, s, &after, intent.PaymentMethod, customer)
	case session.Status == stripe.CheckoutSessionStatusExpired, intent != nil && intent.Status == stripe.SetupIntentStatusCanceled:
		after.State = setupExpired
	case after.Failures >= r.tries():
		if err := r.expireSetup(ctx, s); err != nil {
			return err
		}
		after.State = setupExpired
	}
	if after == *s {
		return nil
	}
	return r.putSetup(ctx, s, &after, nil)
}

// putSetup stores an enrolment, unless it was decided meanwhile, and sets in s what is stored. card writes the records of its card, nil
// for none, and returns the payment method to detach.
func (r *Rail) putSetup(ctx context.Context, s, after *store.CardSetup, card func(tx *store.Tx) (replaced string, err error)) error {
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
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
				err = store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDetach, Key: []byte(replaced), Due: r.now()})
			}
		}
		if err == nil {
			*s = *now
		}
		return err
	})
}

// failedTries returns how many cards were declined in an enrolment.
func (r *Rail) failedTries(ctx context.Context, intentID string) (n int64, err error) {
	params := &stripe.SetupAttemptListParams{SetupIntent: &intentID}
	params.Limit = stripe.Int64(100)
	var tries stripe.SetupAttemptList
	if err := r.get(ctx, "setup_attempts", params, &tries); err != nil {
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
func (r *Rail) expireSetup(ctx context.Context, s *store.CardSetup) error {
	call := &store.CardCall{Key: s.ID + keyExpire, Subject: s.ID, Path: "checkout/sessions/" + s.Session + "/expire"}
	var session stripe.CheckoutSession
	err := r.call(ctx, call, func() any { return &stripe.CheckoutSessionExpireParams{} }, &session)
	if hasKind(err, refused) { // it has ended: the next read says how
		return nil
	}
	return err
}

// wrongSetup returns the member of a finished enrolment that does not fit its row, "" when all fit.
func (r *Rail) wrongSetup(s *store.CardSetup, session *stripe.CheckoutSession, customer string) string {
	intent := session.SetupIntent
	method := intent.PaymentMethod
	switch live := r.cfg.Environment == toll.Live; {
	case session.Livemode != live, intent.Livemode != live:
		return "livemode"
	case string(session.Mode) != "setup":
		return "mode"
	case intent.Metadata[metaInstallation] != r.cfg.Installation, intent.Metadata[metaSetup] != s.ID:
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
func (r *Rail) keepCard(ctx context.Context, s, after *store.CardSetup, method *stripe.PaymentMethod, customer string) error {
	record := func() error {
		done := *after
		done.State = setupDone
		return r.putSetup(ctx, s, &done, func(tx *store.Tx) (string, error) { return r.putCard(ctx, tx, &done, method, customer) })
	}
	err := record()
	if store.IsUnique(err) { // another enrolment has just recorded the same card
		err = record()
	}
	return err
}

// putCard writes the records of a card, sets Method of the enrolment, and returns the payment method
// that was behind the record before, "" for none.
func (r *Rail) putCard(
	ctx context.Context, tx *store.Tx, s *store.CardSetup, method *stripe.PaymentMethod, customer string,
) (replaced string, err error) {
	m := &store.CardMethod{
		Owner: s.Owner, ID: method.ID, StripeID: method.ID, Customer: customer,
		Fingerprint: cmp.Or(method.Card.Fingerprint, method.ID), CheckedAt: r.now(),
	}
	old, err := r.sameCard(ctx, tx, m)
	if err != nil {
		return "", err
	}
	if old == nil {
		record := r.recordOf(m, method)
		record.MadeBy = s.MadeBy
		err = store.PutPaymentMethod(ctx, tx, record)
	} else {
		m.ID = old.ID
		if old.StripeID != m.StripeID {
			replaced = old.StripeID
		}
		err = store.RefreshPaymentMethod(ctx, tx, r.recordOf(m, method))
	}
	if err != nil {
		return "", err
	}
	s.Method = m.ID
	return replaced, store.PutCardMethod(ctx, tx, m)
}

// sameCard returns what is behind the record of the same card of the owner, locked, and nil when
// there is none. The record of a card that was removed stays removed.
func (r *Rail) sameCard(ctx context.Context, tx *store.Tx, m *store.CardMethod) (*store.CardMethod, error) {
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
func (r *Rail) recordOf(m *store.CardMethod, method *stripe.PaymentMethod) *store.PaymentMethod {
	p := &store.PaymentMethod{
		Owner: m.Owner, ID: m.ID, Provider: toll.ProviderCard, Brand: string(method.Card.Brand), Last4: method.Card.Last4,
		ExpMonth: method.Card.ExpMonth, ExpYear: method.Card.ExpYear, CreatedAt: r.now(),
	}
	if now := r.cfg.Machine(); !now.Before(p.Ends()) {
		p.ExpiredAt = now.UTC().Truncate(time.Microsecond)
	}
	return p
}
