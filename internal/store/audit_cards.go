package store

import (
	"context"
	"slices"
	"time"
)

// The checks of [AuditCards]: what each finds, and the statement that finds it. $1 is the time after which the processor may still
// have to report a move. The amounts of moves are compared where they have the currency of the payment: the account at the processor
// may be kept in another one.
const (
	auditCardUndecided = `SELECT order_id FROM card_payments WHERE undecided AND (SELECT COUNT(*) FROM card_payments WHERE undecided)
			> (SELECT COUNT(*) FROM jobs WHERE kind = '` + JobCardDecide + `')`
	auditCardIntents = `SELECT t.order_id FROM delegation_transactions t JOIN card_payments p ON p.order_id = t.order_id
		WHERE p.state = 'paid' AND NOT p.undecided AND t.provider_id <> p.intent_id`
	auditCardCharges = `SELECT p.order_id FROM card_payments p
		LEFT JOIN (SELECT order_id, COUNT(*) AS n, MIN(currency) AS low, MAX(currency) AS high,
				SUM(CASE WHEN kind = 'charge' THEN 1 ELSE 0 END) AS charges,
				SUM(CASE WHEN kind = 'charge' THEN cents ELSE 0 END) AS cents
			FROM card_moves GROUP BY order_id) m ON m.order_id = p.order_id
		WHERE m.low <> m.high OR NOT p.undecided AND (p.state NOT IN ('paid', 'rejected') AND m.n > 0
			OR p.state = 'paid' AND (m.charges > 1 OR COALESCE(m.charges, 0) = 0 AND p.updated_at < $1
				OR m.charges = 1 AND m.low = p.currency AND m.cents <> p.cents))`
	auditCardMoves = `SELECT m.move_id FROM card_moves m LEFT JOIN card_payments p ON p.order_id = m.order_id
		WHERE p.order_id IS NULL OR m.kind NOT IN ('charge', 'refund', 'refund_failure', 'dispute', 'reinstated', 'rejected')
			OR m.kind IN ('charge', 'refund_failure', 'reinstated') AND m.cents <= 0 OR m.kind IN ('refund', 'dispute') AND m.cents > 0`
	auditCardRefunded = `SELECT p.order_id FROM card_payments p LEFT JOIN (SELECT r.order_id, MAX(r.updated_at) AS at,
				SUM(CASE WHEN r.state IN ('pending', 'succeeded') THEN r.cents ELSE 0 END) AS back,
				SUM(CASE WHEN r.state = 'succeeded' THEN r.cents ELSE 0 END) AS done,
				SUM(CASE WHEN r.state = 'failed' THEN r.cents ELSE 0 END) AS failed
			FROM card_refunds r JOIN card_payments q ON q.order_id = r.order_id AND q.intent_id = r.intent_id
			WHERE r.origin <> 'rejected' GROUP BY r.order_id) r ON r.order_id = p.order_id
		LEFT JOIN (SELECT order_id, -SUM(cents) AS cents, MIN(currency) AS currency
			FROM card_moves WHERE kind IN ('refund', 'refund_failure') GROUP BY order_id) m ON m.order_id = p.order_id
		WHERE p.state = 'paid' AND NOT p.undecided AND (m.currency = p.currency AND m.cents > COALESCE(r.back, 0) + COALESCE(r.failed, 0)
			OR COALESCE(m.currency, p.currency) = p.currency AND COALESCE(m.cents, 0) < r.done AND r.at < $1)`
	auditCardRefunds = `SELECT r.refund_id FROM card_refunds r LEFT JOIN card_payments p ON p.order_id = r.order_id
		LEFT JOIN card_orphans x ON x.object_id = r.intent_id
		WHERE CASE WHEN r.origin = 'unmatched' THEN x.object_id IS NULL OR x.cents < r.cents
			ELSE p.order_id IS NULL OR p.order_account <> r.order_account END`
	auditCardDisputes = `SELECT p.order_id FROM card_payments p LEFT JOIN (SELECT order_id, SUM(CASE WHEN withdrawn THEN cents ELSE 0 END) AS cents
			FROM card_disputes GROUP BY order_id) d ON d.order_id = p.order_id
		LEFT JOIN (SELECT order_id, -SUM(cents) AS cents, MIN(currency) AS currency
			FROM card_moves WHERE kind IN ('dispute', 'reinstated') GROUP BY order_id) m ON m.order_id = p.order_id
		WHERE p.state = 'paid' AND NOT p.undecided
			AND ((COALESCE(m.cents, 0) > 0) <> (COALESCE(d.cents, 0) > 0) OR m.currency = p.currency AND m.cents <> COALESCE(d.cents, 0))`
	auditCardOrphans = `SELECT x.object_id FROM card_orphans x LEFT JOIN card_payments p ON p.intent_id = x.object_id
		LEFT JOIN (SELECT intent_id, MAX(state) AS state FROM card_refunds WHERE origin = 'unmatched' AND state = 'succeeded'
			GROUP BY intent_id) r ON r.intent_id = x.object_id
		WHERE x.resolution = 'granted' AND p.order_id IS NULL OR x.resolution = 'refunded' AND r.state IS NULL AND COALESCE(x.refunded_cents, 0) < x.cents
			OR (x.resolved_at <> 0) <> (COALESCE(x.resolution, 'refunding') <> 'refunding') AND x.resolution IS NOT NULL`
)

// lateMove is how long after its object the processor reports a change of the balance at the latest.
const lateMove = 24 * time.Hour

// AuditCards proves that payments by card agree with their orders, and with the changes of the operator's balance, of which payouts
// are computed. It returns what does not hold, nil when all does. It goes through all payments by card.
func AuditCards(ctx context.Context, q Querier, now time.Time) ([]string, error) {
	late := []any{Micros(now.Add(-lateMove))}
	found, err := findAll(ctx, q, []finder{
		{"an undecided card payment has no job: ", auditCardUndecided, nil},
		{"a card payment differs from the payment of its delegation: ", auditCardIntents, nil},
		{"a card payment does not have exactly one charge for its amount: ", auditCardCharges, late},
		{"a balance change does not belong to a card payment: ", auditCardMoves, nil},
		{"card refunds and their balance changes disagree for order ", auditCardRefunded, late},
		{"a card refund does not belong to a payment: ", auditCardRefunds, nil},
		{"disputes and their balance changes disagree for order ", auditCardDisputes, nil},
		{"an unmatched payment differs from its recorded resolution: ", auditCardOrphans, nil},
	})
	if err != nil {
		return nil, err
	}
	// Payments and orders are read one after the other, as a cluster has them in different places.
	orders, err := twice(func() ([]string, error) { return auditCardOrders(ctx, q) })
	return append(found, orders...), err
}

// twice returns what an audit finds two times, so that what changes while it reads is no fault.
func twice(audit func() ([]string, error)) ([]string, error) {
	found, err := audit()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	again, err := audit()
	return slices.DeleteFunc(again, func(s string) bool { return !slices.Contains(found, s) }), err
}

// Columns of an order, and what the payment of one says they are: the sixth is 'open' of one that is not decided. The last two count
// refunds and disputes.
const (
	sqlCardSays = `SELECT p.order_id, p.order_account, p.payer, p.seller, COALESCE(p.delegation_id, ''), p.currency,
			CASE WHEN p.state = 'paid' THEN CASE WHEN p.intent_id IS NULL OR p.charge_id IS NULL OR p.paid_at = 0 THEN 'unproved' ELSE 'paid' END
				WHEN p.state IN ('failed', 'rejected') THEN 'failed' ELSE 'open' END, CAST(p.cents * 10000 AS TEXT), p.undecided,
			(SELECT CAST(COALESCE(SUM(r.cents), 0) AS BIGINT) FROM card_refunds r WHERE r.order_id = p.order_id AND r.intent_id = p.intent_id
				AND r.origin <> 'rejected' AND r.state IN ('pending', 'succeeded') AND p.state = 'paid'),
			(SELECT COALESCE(MAX(CASE WHEN d.state = 'warning_closed' THEN 0 WHEN d.state = 'won' OR d.state = 'prevented' AND NOT d.withdrawn THEN 1
					WHEN d.state IN ('lost', 'prevented') THEN 2 WHEN d.withdrawn THEN 3 ELSE 0 END), 0)
				FROM card_disputes d WHERE d.order_id = p.order_id AND p.state = 'paid')
		FROM card_payments p WHERE p.order_id > $1 ORDER BY p.order_id LIMIT 500`
	sqlCardOrders = `SELECT order_id, account_id, subscriber, seller, COALESCE(delegation_id, ''), LOWER(currency),
			CASE WHEN status IN ('confirmed', 'final') THEN 'paid' WHEN status = 'failed' THEN 'failed' ELSE 'open' END, amount, (1 = 0),
			COALESCE(refunded_cents, 0), CASE dispute WHEN 'won' THEN 1 WHEN 'lost' THEN 2 WHEN 'open' THEN 3 ELSE 0 END
		FROM orders WHERE rail = 'card' AND order_id IN `
	sqlCardPaid = "SELECT COUNT(*) FROM orders WHERE rail = 'card' AND status IN ('confirmed', 'final')"
)

// cardOrder is an order that is paid by card, as its row or its payment has it.
type cardOrder struct {
	id, account, payer, seller, delegation, currency, state, amount string
	undecided                                                       bool
	refunded, dispute                                               int64
}

func scanCardOrder(scan func(dest ...any) error) (o cardOrder, err error) {
	var account []byte
	err = scan(&o.id, &account, &o.payer, &o.seller, &o.delegation, &o.currency, &o.state, &o.amount, &o.undecided, &o.refunded, &o.dispute)
	o.account = string(account)
	return o, err
}

func auditCardOrders(ctx context.Context, q Querier) (found []string, err error) {
	paid, err := value[int64](ctx, q, sqlCardPaid)
	for after := ""; err == nil; {
		var page []cardOrder
		if page, err = All(ctx, q, scanCardOrder, sqlCardSays, after); err != nil || len(page) == 0 {
			break
		}
		says, ids := make(map[string]cardOrder, len(page)), make([]string, len(page))
		for i, o := range page {
			says[o.id], ids[i], after = o, o.id, o.id
		}
		err = eachOf(ctx, q, sqlCardOrders, ids, scanCardOrder, func(o cardOrder) error {
			want := says[o.id]
			delete(says, o.id)
			if o.state == "paid" {
				paid--
			}
			if want.undecided {
				want.state, want.refunded, want.dispute, want.undecided = o.state, o.refunded, o.dispute, false
			}
			if o != want {
				found = append(found, "an order and its card payment disagree: "+o.id)
			}
			return nil
		})
		for id := range says {
			found = append(found, "a card payment does not belong to an order: "+id)
		}
	}
	if paid > 0 {
		found = append(found, "orders paid by card have no card payment")
	}
	return found, err
}

// finder is a statement that finds the ids of what is wrong.
type finder struct {
	what, statement string
	args            []any
}

func findAll(ctx context.Context, q Querier, all []finder) (found []string, err error) {
	for _, f := range all {
		ids, err := values[string](ctx, q, f.statement, f.args...)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			found = append(found, f.what+id)
		}
	}
	return found, nil
}
