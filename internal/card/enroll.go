package card

import (
	"context"

	"github.com/tollhq/toll"
)

// Enroll implements [rail.Enroller]. It counts before it asks Stripe: 5 tries in 10 minutes for an owner and for a source, each
// declined card in them included (T84).
func (r *Rail) Enroll(ctx context.Context, owner toll.Address, source, back string) (setupID, page string, err error) {
	return "", "", errUnbuilt
}

// Enrolled implements [rail.Enroller].
func (r *Rail) Enrolled(ctx context.Context, owner toll.Address, setupID string) (methodID, failure string, err error) {
	return "", "", errUnbuilt
}

// syncSetup fetches an enrolment, by the id of its session or of its setup intent.
func (r *Rail) syncSetup(ctx context.Context, id string) error { return errUnbuilt }
