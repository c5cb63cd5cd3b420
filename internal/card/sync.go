package card

import (
	"context"
)

// Sync runs a job of kind [store.JobCardSync]: it fetches the object with this id, and acts on its state. An object that no row
// explains yet is kept and tried again for a day, and is then an orphan.
func (r *Rail) Sync(ctx context.Context, objectID []byte) error { return errUnbuilt }
