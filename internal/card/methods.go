package card

import (
	"context"
)

// Detach runs a job of kind [store.JobCardDetach]. A card that is detached already is no error.
func (r *Rail) Detach(ctx context.Context, methodID []byte) error { return errUnbuilt }

// syncMethod fetches a payment method, whose card may have been renewed or detached.
func (r *Rail) syncMethod(ctx context.Context, id string) error { return errUnbuilt }
