package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// monthOf returns the first moment of the month of a time, in UTC, by which the spending of members is counted.
func monthOf(at time.Time) time.Time {
	year, month, _ := at.UTC().Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}

// SpentBy returns what a member has had a workspace pay in the month of a moment, in cents: orders that its wallet pays and that did not
// fail; the whole limit of each delegation that the member made and that is neither revoked nor over for a minute; and all that the
// others have paid, if they were used in the month. In that minute an order of another machine, whose clock may be slow, is written.
func SpentBy(ctx context.Context, q Querier, workspace toll.Address, user toll.UUID, at time.Time) (toll.Cents, error) {
	orders, err := value[int64](ctx, q, `SELECT CAST(COALESCE(SUM(cents), 0) AS BIGINT) FROM orders
		WHERE ordered_by = $1 AND created_at >= $2 AND subscriber = $3 AND status <> 'failed'`, user[:], Micros(monthOf(at)), workspace.Lower())
	if err != nil {
		return 0, err
	}
	delegated, err := value[int64](ctx, q, `SELECT CAST(COALESCE(SUM(CASE WHEN revoked_at = 0 AND expires_at > $4 THEN limit_cents
			WHEN last_used_at >= $2 THEN spent_cents + reserved_cents ELSE 0 END), 0) AS BIGINT)
		FROM delegations WHERE made_by = $1 AND expires_at >= $2 AND owner = $3`,
		user[:], Micros(monthOf(at)), workspace.Lower(), Micros(at.Add(-time.Minute)))
	return toll.Cents(orders + delegated), err
}
