package store

import "context"

// Names of the rails in orders, jobs, and metrics.
const (
	RailCard   = "card"
	RailCrypto = "crypto"
)

// Rail names a rail, and has the statements that read the states of payments by their orders, count payments that their orders could not
// take yet, and count payments without an order that no operator has resolved.
type Rail struct{ Name, states, undecided, orphans string }

// Rails lists the rails.
var Rails = []Rail{
	{
		Name: RailCard, states: "SELECT state FROM card_payments WHERE order_id IN ",
		undecided: "SELECT COUNT(*) FROM jobs WHERE kind = '" + JobCardDecide + "'",
		orphans:   "SELECT COUNT(*) FROM card_orphans WHERE resolved_at = 0",
	},
	{
		Name: RailCrypto, states: "SELECT state FROM chain_ops WHERE op_id IN ",
		undecided: "SELECT COUNT(*) FROM chain_ops WHERE untold", orphans: "SELECT COUNT(*) FROM chain_orphans WHERE resolved_at IS NULL",
	},
}

// CountOrphans counts, by rail, the payments without an order that no operator has resolved.
func CountOrphans(ctx context.Context, q Querier) (map[string]int64, error) {
	return countByRail(ctx, q, func(r Rail) string { return r.orphans })
}

func countByRail(ctx context.Context, q Querier, statement func(Rail) string) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, r := range Rails {
		n, err := value[int64](ctx, q, statement(r))
		if err != nil {
			return nil, err
		}
		counts[r.Name] = n
	}
	return counts, nil
}
