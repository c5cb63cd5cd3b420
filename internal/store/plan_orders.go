package store

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
)

// CountOrder counts one more order of a plan, unless it has limit orders already (0: no limit), and reports whether it
// did. Orders of one plan run one after the other from here to the end of their transactions.
func CountOrder(ctx context.Context, tx *Tx, plan toll.PlanID, limit int64) (orders int64, ok bool, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO plan_orders (plan_id, orders) VALUES ($1, 1)
		ON CONFLICT (plan_id) DO UPDATE SET orders = plan_orders.orders + 1 WHERE plan_orders.orders < CAST($2 AS BIGINT) OR $2 = 0
		RETURNING orders`, string(plan), limit).Scan(&orders)
	if errors.Is(err, ErrNotFound) {
		return limit, false, nil
	}
	return orders, err == nil, err
}

// OrdersOfPlan returns how often a plan was ordered.
func OrdersOfPlan(ctx context.Context, q Querier, plan toll.PlanID) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT orders FROM plan_orders WHERE plan_id = $1", string(plan)).Scan(&n)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return n, err
}

// UncountOrder gives the place of a failed order back.
func UncountOrder(ctx context.Context, tx *Tx, plan toll.PlanID) error {
	_, err := tx.Exec(ctx, "UPDATE plan_orders SET orders = orders - 1 WHERE plan_id = $1", string(plan))
	return err
}
