package card

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

// Page implements [rail.Pages].
func (r *Rail) Page(ctx context.Context, orderID string, hosted bool) (rail.Shown, error) {
	return rail.Shown{}, errUnbuilt
}

// Again implements [rail.Pages].
func (r *Rail) Again(owner toll.Address, orderID string, ends time.Time) (string, error) {
	return r.cfg.Link(rail.UseAgain, owner, orderID, ends)
}
