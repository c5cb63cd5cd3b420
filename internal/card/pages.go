package card

import (
	"context"

	"github.com/tollhq/toll/internal/rail"
)

// Page implements [rail.Pages].
func (r *Rail) Page(ctx context.Context, orderID string, hosted bool) (rail.Shown, error) {
	return rail.Shown{}, errUnbuilt
}
