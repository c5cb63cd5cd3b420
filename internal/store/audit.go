package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math/big"
	"slices"

	"github.com/tollhq/toll"
)

// The checks of [AuditOrders]: what each finds, and the statement that finds it.
const (
	auditDelegations = `SELECT d.delegation_id FROM delegations d
		LEFT JOIN (SELECT delegation_id,
				SUM(CASE WHEN open_key IS NOT NULL THEN cents ELSE COALESCE(held_cents, 0) END) AS reserved,
				SUM(CASE WHEN status IN ('confirmed', 'final') THEN cents ELSE 0 END) AS spent,
				SUM(CASE WHEN status <> 'failed' OR held_cents > 0 THEN 1 ELSE 0 END) AS n
			FROM orders WHERE delegation_id IS NOT NULL GROUP BY delegation_id) o ON o.delegation_id = d.delegation_id
		LEFT JOIN (SELECT delegation_id, SUM(counted_cents) AS spent, COUNT(*) AS n
			FROM card_orphans WHERE delegation_id IS NOT NULL AND counted_cents > 0 GROUP BY delegation_id) u ON u.delegation_id = d.delegation_id
		WHERE d.reserved_cents <> COALESCE(o.reserved, 0) OR d.paid_cents <> COALESCE(o.spent, 0) + COALESCE(u.spent, 0)
			OR d.transactions <> COALESCE(o.n, 0) + COALESCE(u.n, 0)
			OR d.unclear_cents < 0 OR d.unclear_cents > d.reserved_cents`
	auditSpending = `SELECT delegation_id FROM delegations WHERE spent_cents <> CASE
		WHEN paid_cents + CASE WHEN beyond_cents > unclear_cents THEN beyond_cents - unclear_cents ELSE 0 END > limit_cents - reserved_cents
			THEN limit_cents - reserved_cents
		WHEN beyond_cents > unclear_cents THEN paid_cents + beyond_cents - unclear_cents
		ELSE paid_cents END`
	auditPlaces = `SELECT p.plan_id FROM plan_orders p
		LEFT JOIN (SELECT plan_id, COUNT(*) AS n FROM orders WHERE status <> 'failed' GROUP BY plan_id) o ON o.plan_id = p.plan_id
		WHERE p.orders <> COALESCE(o.n, 0)`
	auditMints = `SELECT o.order_id FROM orders o LEFT JOIN lots l ON l.account_id = o.account_id AND l.ref = o.order_id
		WHERE (o.status IN ('confirmed', 'final')) <> (l.ref IS NOT NULL AND l.old_end = 0) OR l.granted <> o.credits
			OR (COALESCE(o.reversed, 0) = 1) <> (l.ref IS NOT NULL AND l.old_end <> 0) OR o.reversed = 1 AND o.status <> 'failed'`
	auditTakenBack = `SELECT o.order_id FROM orders o JOIN lots l ON l.account_id = o.account_id AND l.ref = o.order_id
		WHERE o.reversed = 1 AND (o.taken_back + o.loss + o.held_back <> l.granted OR o.taken_back > l.taken
			OR o.held_back = 0 AND (o.taken_back <> l.taken OR l.remaining <> 0))`
	auditRefunded = `SELECT o.order_id FROM orders o LEFT JOIN lots b ON b.account_id = o.account_id AND b.ref = 'back:' || o.order_id
		WHERE (o.refunded_cents > 0 OR o.dispute IS NOT NULL) AND (o.status <> 'confirmed' OR o.refunded_credits > COALESCE(b.taken, 0)
			OR o.refunded_credits + o.loss + o.held_back > o.credits
			OR o.held_back = 0 AND (o.refunded_credits <> COALESCE(b.taken, 0) OR COALESCE(b.remaining, 0) <> 0))`
	auditBack = `SELECT b.ref FROM lots b LEFT JOIN orders o ON o.account_id = b.account_id AND b.ref = 'back:' || o.order_id
		WHERE b.lot_id < 0 AND b.taken + b.remaining > 0 AND (o.order_id IS NULL OR COALESCE(o.refunded_cents, 0) = 0 AND o.dispute IS NULL)`
	auditPermissions = `SELECT p.scheme FROM permissions p
		LEFT JOIN (SELECT account_id, permission_hash, COUNT(*) AS n FROM orders
			WHERE permission_hash IS NOT NULL AND status <> 'failed' GROUP BY account_id, permission_hash) o
			ON o.account_id = p.account_id AND o.permission_hash = p.permission_hash
		WHERE p.orders <> COALESCE(o.n, 0)`
	auditTransactions = `SELECT o.order_id FROM orders o LEFT JOIN delegation_transactions t ON t.order_id = o.order_id
		WHERE o.delegation_id IS NOT NULL AND (t.order_id IS NULL OR t.cents <> o.cents
			OR (o.open_key IS NOT NULL) <> (t.status = 'pending') OR (o.status = 'failed') <> (t.status = 'failed'))`
	auditSellers = `SELECT o.order_id FROM orders o LEFT JOIN plans p ON p.plan_id = o.plan_id LEFT JOIN accounts a ON a.account_id = o.account_id
		WHERE COALESCE(o.seller, '') <> p.owner OR a.plan_id <> o.plan_id OR a.subscriber <> o.subscriber`
	auditStreams = `SELECT s.principal FROM event_streams s
		LEFT JOIN (SELECT principal, COUNT(*) AS n FROM events GROUP BY principal) e ON e.principal = s.principal
		WHERE s.kept IS NULL AND s.last <> COALESCE(e.n, 0) + COALESCE(s.settled, 0)`
	auditKept = `SELECT COUNT(*) FROM events WHERE principal = $1`
)

// AuditEvents proves that each event of a stream is a row or stands in one run, and that the settlements of runs are burns of the journal,
// in its order. It returns what does not hold, nil when all does. It goes through all streams. Burns that known has need not be read.
func AuditEvents(ctx context.Context, q Querier, known Burns) ([]string, error) {
	var found []string
	lost, err := values[string](ctx, q, auditStreams)
	for _, p := range lost {
		found = append(found, "an event stream has a wrong event count: "+p)
	}
	for after := ""; err == nil; {
		var streams []*stream
		if streams, err = All(ctx, q, scanStream, sqlStreamsAfter, after, int64(auditSlice)); err != nil || len(streams) == 0 {
			break
		}
		for _, s := range streams {
			after = s.principal.Lower()
			ok, e := s.sound(ctx, q, known)
			if e != nil {
				return nil, e
			}
			if !ok {
				found = append(found, "the events of a stream do not match its counters or the journal: "+after)
			}
		}
	}
	return found, err
}

// Burns are positions of burns in the journal, one bit each.
type Burns []uint64

// Add adds a position, from 1 on.
func (b *Burns) Add(pos int64) {
	for int(pos/64) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[pos/64] |= 1 << (pos % 64)
}

// Has reports whether a position was added.
func (b Burns) Has(pos int64) bool {
	return pos >= 0 && int(pos/64) < len(b) && b[pos/64]>>(pos%64)&1 == 1
}

// auditSlice bounds the streams, and the runs of one, that the audit reads at once.
const auditSlice = 100

const (
	sqlStreamsAfter = `SELECT principal, last, kept, settled, tail FROM event_streams WHERE principal > $1 ORDER BY principal LIMIT $2`
	sqlRunsAfter    = `SELECT ` + runColumns + ` FROM event_runs WHERE principal = $1 AND first > $2 ORDER BY first LIMIT $3`
)

func (s *stream) sound(ctx context.Context, q Querier, known Burns) (bool, error) {
	end, count, position := s.kept-1, int64(0), int64(0)
	if s.kept > 1 { // auditStreams counts the rows of the others
		var err error
		if count, err = value[int64](ctx, q, sqlRunsForgotten, s.principal.Lower(), s.tail.before); err != nil {
			return false, err
		}
		rows, err := value[int64](ctx, q, auditKept, s.principal.Lower())
		if err != nil {
			return false, err
		}
		if rows+s.settled-count != s.last-s.kept+1 {
			return false, nil
		}
	}
	check := func(r *run) (bool, error) {
		positions := make([]int64, len(r.events))
		for i, e := range r.events {
			if e.seq <= end || e.position <= position {
				return false, nil
			}
			end, position, positions[i] = e.seq, e.position, e.position
		}
		positions = slices.DeleteFunc(positions, known.Has)
		ok := r.before == count && end <= s.last
		count += int64(len(r.events))
		at, err := JournalAt(ctx, q, positions...)
		burns := slices.DeleteFunc(at, func(r JournalRow) bool { return r.Kind != kindBurn })
		return ok && len(burns) == len(positions), err
	}
	for {
		runs, err := All(ctx, q, scanRun, sqlRunsAfter, s.principal.Lower(), end, int64(auditSlice))
		if err != nil {
			return false, err
		}
		for i := range runs {
			if !s.ended(&runs[i]) { // made since the stream was read
				break
			}
			if ok, err := check(&runs[i]); !ok {
				return false, err
			}
		}
		if len(runs) < auditSlice || !s.ended(&runs[len(runs)-1]) {
			break
		}
	}
	ok, err := check(&s.tail)
	return ok && count == s.settled, err
}

// AuditOrders proves that money and credits agree: every paid order has its credits and no other has any; what delegations, permissions and
// plans count is what their orders took. It returns what does not hold, nil when all does. It goes through all accounts.
func AuditOrders(ctx context.Context, q Querier) ([]string, error) {
	return findAll(ctx, q, []finder{
		{"an order does not match the seller of its plan or the balance of its subscriber: ", auditSellers, nil},
		{"a delegation and its orders disagree: ", auditDelegations, nil},
		{"the sums of a delegation do not add up: ", auditSpending, nil},
		{"a plan has a wrong order count: ", auditPlaces, nil},
		{"an order and its credits disagree: ", auditMints, nil},
		{"an order and the credits taken back from it disagree: ", auditTakenBack, nil},
		{"an order and its refunds disagree: ", auditRefunded, nil},
		{"credits were taken back from an order that was neither refunded nor disputed: ", auditBack, nil},
		{"a permission has a wrong order count, scheme ", auditPermissions, nil},
		{"an order and the payment under its delegation disagree: ", auditTransactions, nil},
	})
}

// What is counted, with the position up to which it is, and what the journal says up to there: by plan and hour, and by plan, day and
// subscriber. The two are read one after the other, as a cluster has them in different places; rows up to a position never change.
const (
	auditUsageHours = `SELECT (SELECT pos FROM journal_cursors WHERE name = 'usage'), plan_id, hour, '', CAST(SUM(settled) AS BIGINT),
			CAST(SUM(credits_high) AS BIGINT), CAST(SUM(credits_low) AS BIGINT), 0
		FROM usage_hours GROUP BY plan_id, hour ORDER BY plan_id, hour`
	auditBurnHours = `SELECT a.plan_id, j.at - j.at % 3600000000 AS hour, '', COUNT(*), CAST(SUM(j.amount / 4294967296) AS BIGINT),
			CAST(SUM(j.amount % 4294967296) AS BIGINT), 0
		FROM journal j JOIN accounts a ON a.account_id = j.account_id WHERE j.kind = 2 AND j.pos <= $1
		GROUP BY a.plan_id, j.at - j.at % 3600000000 ORDER BY 1, 2`
	auditUsageDays = `SELECT (SELECT pos FROM journal_cursors WHERE name = 'usage'), plan_id, day, subscriber, settled, credits_high, credits_low,
			last_at
		FROM usage_days ORDER BY plan_id, day, subscriber`
	auditBurnDays = `SELECT a.plan_id, j.at - j.at % 86400000000 AS day, a.subscriber, COUNT(*), CAST(SUM(j.amount / 4294967296) AS BIGINT),
			CAST(SUM(j.amount % 4294967296) AS BIGINT), MAX(j.at)
		FROM journal j JOIN accounts a ON a.account_id = j.account_id WHERE j.kind = 2 AND j.pos <= $1
		GROUP BY a.plan_id, j.at - j.at % 86400000000, a.subscriber ORDER BY 1, 2, 3`
	auditUsageTook = `SELECT plan_id FROM usage_hours WHERE settled < took_0 + took_1 + took_2 + took_3 + took_4 + took_5 + took_6 + took_7
		+ took_8 + took_9 + took_10 + took_11`
	auditLabels = `SELECT plan_id FROM (SELECT plan_id, day, settled, credits_high, credits_low FROM usage_labels
			UNION ALL SELECT plan_id, day, -settled, -credits_high, -credits_low FROM usage_buyer_labels) sides
		WHERE (SELECT pos FROM journal_cursors WHERE name = 'usage') >= 0 GROUP BY plan_id, day HAVING SUM(settled) <> 0 OR SUM(credits_high) <> 0 OR SUM(credits_low) <> 0 ORDER BY plan_id`
	sqlMintsAfter = `SELECT ` + JournalColumns + ` FROM journal WHERE pos > $1 AND pos <= $2 AND kind = 1 ORDER BY pos LIMIT $3`
)

// AuditUsage proves that usage and revenue are what the journal says up to the cursor of both. It returns what does not hold, nil when
// all does, or while the tables are emptied.
func AuditUsage(ctx context.Context, q Querier) ([]string, error) {
	counted, err := JournalCursor(ctx, q, UsageCursor)
	if err != nil || counted < 0 {
		return nil, err
	}
	var found []string
	for _, statements := range [][2]string{{auditUsageHours, auditBurnHours}, {auditUsageDays, auditBurnDays}} {
		plans, err := auditCells(ctx, q, statements[0], statements[1], counted)
		if err != nil {
			return nil, err
		}
		for _, p := range slices.Compact(plans) {
			found = append(found, "the usage of a plan differs from its journal entries: "+p)
		}
	}
	took, err := values[string](ctx, q, auditUsageTook)
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Compact(took) {
		found = append(found, "the usage of a plan counts more settlement times than settlements: "+p)
	}
	labeled, err := values[string](ctx, q, auditLabels)
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Compact(labeled) {
		found = append(found, "the usage of a plan by label differs between its seller and its buyers: "+p)
	}
	plans, err := auditRevenue(ctx, q, counted)
	for _, p := range plans {
		found = append(found, "the revenue of a plan differs from its orders: "+string(p))
	}
	return found, err
}

type usageCell struct {
	plan               string
	at                 int64
	subscriber         string
	settled, high, low int64
	lastAt             int64
}

func (c *usageCell) dest() []any {
	return []any{&c.plan, &c.at, &c.subscriber, &c.settled, &c.high, &c.low, &c.lastAt}
}

// auditCells returns the plans, in order, of which a row differs from the entries. counted is the cursor where there are no rows. Both
// sides are read side by side, through two connections: there may be as many rows as subscribers and days.
func auditCells(ctx context.Context, q Querier, cells, entries string, counted int64) (plans []string, err error) {
	next, stop := iter.Pull2(func(yield func(usageCell, error) bool) {
		err := eachRow(ctx, q, cells, nil, func(scan func(dest ...any) error) (c usageCell, err error) {
			return c, scan(append([]any{&counted}, c.dest()...)...)
		}, func(c usageCell) error {
			if !yield(c, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(usageCell{}, err)
		}
	})
	defer stop()
	have, err, more := next()
	if err != nil || counted < 0 {
		return nil, err // it is being emptied
	}
	compare := func(a, b *usageCell) int {
		return cmp.Or(cmp.Compare(a.plan, b.plan), cmp.Compare(a.at, b.at), cmp.Compare(a.subscriber, b.subscriber))
	}
	step := func() (err error) {
		have, err, more = next()
		return err
	}
	err = eachRow(ctx, q, entries, []any{counted}, func(scan func(dest ...any) error) (c usageCell, err error) {
		return c, scan(c.dest()...)
	}, func(want usageCell) error {
		for more && compare(&have, &want) < 0 { // nothing was burned there
			plans = append(plans, have.plan)
			if err := step(); err != nil {
				return err
			}
		}
		if !more || have != want {
			plans = append(plans, want.plan)
		}
		if more && compare(&have, &want) == 0 {
			return step()
		}
		return nil
	})
	for err == nil && more {
		plans = append(plans, have.plan)
		err = step()
	}
	return plans, err
}

// errEnough ends a walk through rows.
var errEnough = errors.New("store: iteration stopped")

const sqlRevenueCounted = `SELECT (SELECT pos FROM journal_cursors WHERE name = 'usage'), plan_id, hour, currency, orders, amount FROM revenue_hours`

// auditRevenue returns the plans whose revenue differs from their orders. counted is the cursor where there is no revenue.
func auditRevenue(ctx context.Context, q Querier, counted int64) ([]toll.PlanID, error) {
	wrong := map[revenueKey]*big.Int{}
	differ := func(k revenueKey, orders int64, amount *big.Int) {
		if wrong[k] == nil {
			wrong[k] = new(big.Int)
		}
		// One number proves both: amounts are less than 2^512.
		n := new(big.Int).Lsh(big.NewInt(orders), 512)
		wrong[k].Add(wrong[k], n.Add(n, amount))
	}
	if _, err := All(ctx, q, func(scan func(dest ...any) error) (none struct{}, err error) {
		var k revenueKey
		var orders int64
		var amount string
		if err = scan(&counted, &k.plan, &k.hour, &k.currency, &orders, &amount); err != nil {
			return none, err
		}
		sum, err := toll.ParseSum(amount)
		differ(k, -orders, new(big.Int).Neg(sum.Int()))
		return none, err
	}, sqlRevenueCounted); err != nil || counted < 0 {
		return nil, err // it is being emptied
	}
	for pos := int64(0); pos < counted; {
		rows, err := All(ctx, q, ScanJournal, sqlMintsAfter, pos, counted, int64(1000))
		if err != nil {
			return nil, err
		}
		paid, err := paidOrders(ctx, q, rows)
		if err != nil {
			return nil, err
		}
		for _, o := range paid {
			at := Micros(o.CreatedAt)
			differ(revenueKey{o.Plan, at - at%microsOfHour, o.Currency}, 1, o.Amount.Int())
		}
		if pos = counted; len(rows) == 1000 {
			pos = rows[len(rows)-1].Pos
		}
	}
	var plans []toll.PlanID
	for k, n := range wrong {
		if n.Sign() != 0 {
			plans = append(plans, k.plan)
		}
	}
	slices.Sort(plans)
	return slices.Compact(plans), nil
}
