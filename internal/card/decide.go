package card

import (
	"context"
)

// DecideAgain runs a job of kind [store.JobCardDecide].
func (r *Rail) DecideAgain(ctx context.Context, orderID []byte) error { return errUnbuilt }
