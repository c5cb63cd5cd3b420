package store

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
)

// returnedSlot is an open order that returned its slot. The record has no meaning once the order is decided.
type returnedSlot struct {
	Plan    toll.PlanID `db:"plan_id"`
	OrderID string      `db:"order_id"`
	Account [16]byte    `db:"order_account"`
}

var returnedSlots = newRecord[*returnedSlot]("returned_places")

// CountOrder counts one more order of a plan, unless limit places are taken already (0: no limit), and reports whether it
// did. Orders of one plan run one after the other from here to the end of their transactions.
func CountOrder(ctx context.Context, tx *Tx, plan toll.PlanID, limit int64) (orders int64, ok bool, err error) {
	if orders, ok, err = countOrder(ctx, tx, plan, limit); ok || err != nil {
		return orders, ok, err
	}
	// The row is locked from here on, so that of two callers one gets a place that was given back.
	open, ended, err := returned(ctx, tx, plan)
	if err != nil {
		return 0, false, err
	}
	for _, id := range ended {
		if _, err := tx.Exec(ctx, "DELETE FROM returned_places WHERE plan_id = $1 AND order_id = $2", string(plan), id); err != nil {
			return 0, false, err
		}
	}
	if open == 0 {
		return limit, false, nil
	}
	return countOrder(ctx, tx, plan, limit+open)
}

func countOrder(ctx context.Context, tx *Tx, plan toll.PlanID, limit int64) (orders int64, ok bool, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO plan_orders (plan_id, orders) VALUES ($1, 1)
		ON CONFLICT (plan_id) DO UPDATE SET orders = plan_orders.orders + 1 WHERE plan_orders.orders < CAST($2 AS BIGINT) OR $2 = 0
		RETURNING orders`, string(plan), limit).Scan(&orders)
	if errors.Is(err, ErrNotFound) {
		return limit, false, nil
	}
	return orders, err == nil, err
}

// returned returns how many open orders of a plan have given their place back, and the ids of those that were decided since.
func returned(ctx context.Context, q Querier, plan toll.PlanID) (open int64, ended []string, err error) {
	places, err := returnedSlots.all(ctx, q, "WHERE plan_id = $1", string(plan))
	if err != nil {
		return 0, nil, err
	}
	for _, p := range places {
		o, err := OrderOfAccount(ctx, q, p.Account, p.OrderID)
		switch {
		case err == nil && o.Open:
			open++
		case err == nil || errors.Is(err, ErrNotFound):
			ended = append(ended, p.OrderID)
		default:
			return 0, nil, err
		}
	}
	return open, ended, nil
}

// OrdersOfPlan returns how often a plan was ordered.
func OrdersOfPlan(ctx context.Context, q Querier, plan toll.PlanID) (int64, error) {
	n, err := value[int64](ctx, q, "SELECT orders FROM plan_orders WHERE plan_id = $1", string(plan))
	return n, NotFoundAs(err, nil)
}

// SlotsTaken counts the orders of a plan without open ones that returned their slot.
func SlotsTaken(ctx context.Context, q Querier, plan toll.PlanID) (int64, error) {
	n, err := OrdersOfPlan(ctx, q, plan)
	if err != nil {
		return 0, err
	}
	open, _, err := returned(ctx, q, plan)
	return n - open, err
}

// ReturnSlot lets another order take the slot of an open order, and reports whether the order still had it. The order stays counted,
// and once decided it keeps or loses its slot like any other order.
func ReturnSlot(ctx context.Context, tx *Tx, o *Order) (bool, error) {
	return returnedSlots.insertOr(ctx, tx, &returnedSlot{o.Plan, o.ID, o.Account}, "ON CONFLICT (plan_id, order_id) DO NOTHING")
}

// UncountOrder returns the slot of a failed order.
var UncountOrder = runs[toll.PlanID](done, "UPDATE plan_orders SET orders = orders - 1 WHERE plan_id = $1")
