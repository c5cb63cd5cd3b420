package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// UsageCursor is the name of the cursor up to which the journal is counted in the tables of usage and revenue. A position below 0 says
// that the tables are being emptied, to be counted anew.
const UsageCursor = "usage"

const (
	microsOfHour = int64(time.Hour / time.Microsecond)
	microsOfDay  = 24 * microsOfHour
	tookBuckets  = len(toll.UsageTimes) + 1
)

// sums is a table of numbers that are added up. A row has the columns of its key, further texts that the key decides, and numbers.
type sums struct {
	table   string
	key     []string // text but for the second one, which is a time
	texts   []string
	added   []string
	highest string // a number of which the highest is kept; "" for none

	one, many string // statements, see prepare
}

func tookColumns() (all []string) {
	for i := range tookBuckets {
		all = append(all, fmt.Sprintf("took_%d", i))
	}
	return all
}

// hoursOf are sums by plan, hour and agent in a table, which may add up more.
func hoursOf(table string, more ...string) sums {
	return prepare(sums{
		table: table, key: []string{"plan_id", "hour", "agent_id"}, texts: []string{"owner"},
		added: slices.Concat([]string{"settled", "credits_high", "credits_low"}, tookColumns(), more),
	})
}

var (
	usageHours = hoursOf("usage_hours")
	usageKept  = hoursOf("usage_kept", "restored")

	usageDays = prepare(sums{
		table: "usage_days", key: []string{"plan_id", "day", "subscriber"},
		added: []string{"settled", "credits_high", "credits_low"}, highest: "last_at",
	})

	usageLabels = prepare(sums{
		table: "usage_labels", key: []string{"plan_id", "day", "upstream", "route", "model"}, texts: []string{"owner"},
		added: []string{"settled", "credits_high", "credits_low"},
	})
	usageBuyerLabels = prepare(sums{
		table: "usage_buyer_labels", key: []string{"plan_id", "day", "subscriber", "route", "model"},
		added: []string{"settled", "credits_high", "credits_low"},
	})
)

func (s sums) columns() []string {
	all := slices.Concat(s.key, s.texts, s.added)
	if s.highest != "" {
		all = append(all, s.highest)
	}
	return all
}

// prepare sets the statements that add one row, and many on PostgreSQL.
func prepare(s sums) sums {
	var arrays, sets []string
	for i := range s.columns() {
		kind := "bigint"
		if i < len(s.key)+len(s.texts) && i != 1 {
			kind = "text"
		}
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, kind))
	}
	for _, c := range s.added {
		sets = append(sets, fmt.Sprintf("%[2]s = %[1]s.%[2]s + excluded.%[2]s", s.table, c))
	}
	if s.highest != "" {
		sets = append(sets, fmt.Sprintf("%[2]s = CASE WHEN excluded.%[2]s > %[1]s.%[2]s THEN excluded.%[2]s ELSE %[1]s.%[2]s END", s.table, s.highest))
	}
	head := "INSERT INTO " + s.table + " (" + strings.Join(s.columns(), ", ") + ") "
	tail := " ON CONFLICT (" + strings.Join(s.key, ", ") + ") DO UPDATE SET " + strings.Join(sets, ", ")
	s.one = head + "VALUES " + tuples(1, len(arrays)) + tail
	s.many = head + "SELECT * FROM unnest(" + strings.Join(arrays, ", ") + ")" + tail
	return s
}

// add writes rows of a table, which have different keys. Their values are in the order of the columns, texts or int64.
func (s sums) add(ctx context.Context, tx *Tx, rows [][]any) error {
	return addRows(ctx, tx, s.one, s.many, rows)
}

// byKey sorts rows by their keys, so that neighbours share pages: two texts and the time between them.
func byKey(a, b []any) int {
	return cmp.Or(cmp.Compare(a[0].(string), b[0].(string)), cmp.Compare(a[1].(int64), b[1].(int64)), cmp.Compare(a[2].(string), b[2].(string)))
}

type usageSum struct {
	owner              string
	settled, high, low int64
	lastAt             int64
	took               [tookBuckets]int64
}

// add adds the settlements of another sum, or with -1 takes them away. Times stay where they are.
func (s *usageSum) add(o *usageSum, sign int64) {
	s.settled += sign * o.settled
	s.high += sign * o.high
	s.low += sign * o.low
}

func (s *usageSum) count(r *JournalRow) {
	s.settled++
	s.high += int64(r.Amount) >> 32
	s.low += int64(r.Amount) & (1<<32 - 1)
	s.lastAt = max(s.lastAt, r.At)
}

// tookBucket returns the bucket of a time from hold to settlement in microseconds.
func tookBucket(micros int64) int {
	for i, end := range toll.UsageTimes {
		if micros < int64(end/time.Microsecond) {
			return i
		}
	}
	return len(toll.UsageTimes)
}

// AddUsage counts the burns among rows of the journal by plan, agent and hour, and by subscriber and day. It is called once for each row,
// in the transaction that moves [UsageCursor]. A burn whose request was removed names no agent, and had no hold, until [RestoreUsage].
func AddUsage(ctx context.Context, tx *Tx, rows []JournalRow, sides map[[16]byte]Sides) error {
	type dayKey struct {
		plan, subscriber string
		day              int64
	}
	days := map[dayKey]*usageSum{}
	for i := range rows {
		r := &rows[i]
		if r.Kind != kindBurn {
			continue
		}
		of := sides[r.Account]
		dk := dayKey{string(of.Plan), of.Subscriber.Lower(), r.At - r.At%microsOfDay}
		d := days[dk]
		if d == nil {
			d = &usageSum{}
			days[dk] = d
		}
		d.count(r)
	}
	if err := usageHours.add(ctx, tx, cellsOf(hoursIn(rows, sides))); err != nil {
		return err
	}
	var cells [][]any
	for k, s := range days {
		cells = append(cells, []any{k.plan, k.day, k.subscriber, s.settled, s.high, s.low, s.lastAt})
	}
	slices.SortFunc(cells, byKey)
	if err := usageDays.add(ctx, tx, cells); err != nil {
		return err
	}
	return addLabels(ctx, tx, rows, sides)
}

// maxLabels bounds the distinct labels of a plan in a day. The gate takes model names from buyers. Settlements with further labels
// count as otherLabels.
const maxLabels = 100

var otherLabels = toll.UsageLabels{Upstream: "other", Route: "other", Model: "other"}

// addLabels counts the burns with labels by plan, day, and label, and without the upstream by subscriber.
func addLabels(ctx context.Context, tx *Tx, rows []JournalRow, sides map[[16]byte]Sides) error {
	type planDay struct {
		plan string
		day  int64
	}
	type label struct {
		planDay
		toll.UsageLabels
	}
	type buyerLabel struct {
		planDay
		subscriber, route, model string
	}
	known := map[planDay]map[toll.UsageLabels]bool{}
	sold, bought := map[label]*usageSum{}, map[buyerLabel]*usageSum{}
	for i := range rows {
		r := &rows[i]
		if r.Kind != kindBurn || r.Labels == (toll.UsageLabels{}) {
			continue
		}
		of := sides[r.Account]
		d := planDay{string(of.Plan), r.At - r.At%microsOfDay}
		if known[d] == nil {
			known[d] = map[toll.UsageLabels]bool{}
			all, err := All(ctx, tx, func(scan func(dest ...any) error) (l toll.UsageLabels, err error) {
				err = scan(&l.Upstream, &l.Route, &l.Model)
				return l, err
			}, "SELECT upstream, route, model FROM usage_labels WHERE plan_id = $1 AND day = $2", d.plan, d.day)
			if err != nil {
				return err
			}
			for _, l := range all {
				known[d][l] = true
			}
		}
		l := r.Labels
		if !known[d][l] && len(known[d]) >= maxLabels {
			l = otherLabels
		}
		known[d][l] = true
		sale, purchase := label{d, l}, buyerLabel{d, of.Subscriber.Lower(), l.Route, l.Model}
		if sold[sale] == nil {
			sold[sale] = &usageSum{}
			if !of.Owner.IsZero() {
				sold[sale].owner = of.Owner.Lower()
			}
		}
		if bought[purchase] == nil {
			bought[purchase] = &usageSum{}
		}
		sold[sale].count(r)
		bought[purchase].count(r)
	}
	var cells [][]any
	for k, s := range sold {
		cells = append(cells, []any{k.plan, k.day, k.Upstream, k.Route, k.Model, s.owner, s.settled, s.high, s.low})
	}
	slices.SortFunc(cells, byKey)
	if err := usageLabels.add(ctx, tx, cells); err != nil {
		return err
	}
	cells = nil
	for k, s := range bought {
		cells = append(cells, []any{k.plan, k.day, k.subscriber, k.route, k.model, s.settled, s.high, s.low})
	}
	slices.SortFunc(cells, byKey)
	return usageBuyerLabels.add(ctx, tx, cells)
}

// hourKey names a row of usage_hours.
type hourKey struct {
	plan, agent string
	hour        int64
}

// hoursIn sums the burns among rows by plan, agent and hour.
func hoursIn(rows []JournalRow, sides map[[16]byte]Sides) map[hourKey]*usageSum {
	hours := map[hourKey]*usageSum{}
	for i := range rows {
		r := &rows[i]
		if r.Kind != kindBurn {
			continue
		}
		of, agent := sides[r.Account], ""
		if r.Burn != nil {
			agent = string(r.Burn.Agent)
		}
		k := hourKey{string(of.Plan), agent, r.At - r.At%microsOfHour}
		h := hours[k]
		if h == nil {
			h = &usageSum{}
			if !of.Owner.IsZero() {
				h.owner = of.Owner.Lower()
			}
			hours[k] = h
		}
		h.count(r)
		if r.Burn != nil && r.Burn.HoldEndsAt != 0 {
			h.took[tookBucket(r.At-r.Burn.CreatedAt)]++
		}
	}
	return hours
}

// cellsOf returns sums as rows of usage_hours, in the order of their keys.
func cellsOf(hours map[hourKey]*usageSum) [][]any {
	var cells [][]any
	for k, s := range hours {
		row := []any{k.plan, k.hour, k.agent, s.owner, s.settled, s.high, s.low}
		for _, n := range s.took {
			row = append(row, n)
		}
		cells = append(cells, row)
	}
	slices.SortFunc(cells, byKey)
	return cells
}

// KeepUsage keeps what usage has of burns whose requests the same transaction removes, for a rebuild. It reports false, and writes nothing, when
// they are not counted yet or a rebuild is under way: then they must not be removed.
func KeepUsage(ctx context.Context, tx *Tx, burns []JournalRow, sides map[[16]byte]Sides) (bool, error) {
	counted, err := LockJournalCursor(ctx, tx, UsageCursor)
	if err != nil || slices.ContainsFunc(burns, func(r JournalRow) bool { return r.Pos > counted }) {
		return false, err
	}
	if open, err := UsageToRestore(ctx, tx); err != nil || open {
		return false, err
	}
	hours := hoursIn(burns, sides)
	maps.DeleteFunc(hours, func(k hourKey, s *usageSum) bool { return k.agent == "" && s.took == [tookBuckets]int64{} }) // nothing is lost
	cells := cellsOf(hours)
	for i := range cells {
		cells[i] = append(cells[i], int64(1))
	}
	return true, usageKept.add(ctx, tx, cells)
}

// UsageToRestore reports whether a rebuild has something left for [RestoreUsage].
func UsageToRestore(ctx context.Context, q Querier) (bool, error) {
	n, err := value[int64](ctx, q, "SELECT COUNT(*) FROM (SELECT 1 FROM usage_kept WHERE restored = 0 LIMIT 1) kept")
	return n > 0, err
}

var sqlKeptOpen = "SELECT " + strings.Join(usageHours.columns(), ", ") + " FROM usage_kept WHERE restored = 0 ORDER BY plan_id, hour, agent_id LIMIT $1"

// RestoreUsage gives the next kept settlements back to their agents, after a rebuild counted all of them without one. It is called in the
// transaction that locks [UsageCursor], and reports whether there are more.
func RestoreUsage(ctx context.Context, tx *Tx) (more bool, err error) {
	hours := map[hourKey]*usageSum{}
	of := func(k hourKey, owner string) *usageSum {
		if hours[k] == nil {
			hours[k] = &usageSum{owner: owner}
		}
		return hours[k]
	}
	var last hourKey
	rows, err := All(ctx, tx, func(scan func(dest ...any) error) (none struct{}, err error) {
		var s usageSum
		dest := []any{&last.plan, &last.hour, &last.agent, &s.owner, &s.settled, &s.high, &s.low}
		for i := range s.took {
			dest = append(dest, &s.took[i])
		}
		if err := scan(dest...); err != nil {
			return none, err
		}
		named := of(last, s.owner)
		named.add(&s, 1)
		for i, n := range s.took {
			named.took[i] += n
		}
		of(hourKey{plan: last.plan, hour: last.hour}, s.owner).add(&s, -1)
		return none, nil
	}, sqlKeptOpen, int64(emptySlice))
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if err := usageHours.add(ctx, tx, cellsOf(hours)); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, "UPDATE usage_kept SET restored = 1 WHERE restored = 0 AND (plan_id, hour, agent_id) <= ($1, $2, $3)",
		last.plan, last.hour, last.agent)
	return len(rows) == emptySlice, err
}

// revenueKey names a row of revenue_hours.
type revenueKey struct {
	plan     toll.PlanID
	hour     int64
	currency string
}

type revenueSum struct {
	owner  string
	orders int64
	amount *big.Int
}

const (
	sqlRevenue = `SELECT orders, amount FROM revenue_hours WHERE plan_id = $1 AND hour = $2 AND currency = $3`
	// Nobody else changes a row: the cursor is locked.
	sqlRevenueSet = `INSERT INTO revenue_hours (plan_id, hour, currency, owner, orders, amount) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (plan_id, hour, currency) DO UPDATE SET orders = excluded.orders, amount = excluded.amount`
)

// AddRevenue counts the paid orders whose credits rows of the journal mint, as [AddUsage] does burns.
func AddRevenue(ctx context.Context, tx *Tx, rows []JournalRow) error {
	paid, err := paidOrders(ctx, tx, rows)
	if err != nil {
		return err
	}
	cells := map[revenueKey]*revenueSum{}
	for _, o := range paid {
		addRevenue(cells, o)
	}
	for k, c := range cells {
		var orders int64
		var amount string
		err := tx.QueryRow(ctx, sqlRevenue, string(k.plan), k.hour, k.currency).Scan(&orders, &amount)
		if errors.Is(err, ErrNotFound) {
			err, amount = nil, "0"
		}
		if err != nil {
			return err
		}
		before, err := toll.ParseSum(amount)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlRevenueSet,
			string(k.plan), k.hour, k.currency, c.owner, orders+c.orders, before.Add(c.amount).String()); err != nil {
			return err
		}
	}
	return nil
}

func addRevenue(cells map[revenueKey]*revenueSum, o *Order) {
	at := Micros(o.CreatedAt)
	k := revenueKey{o.Plan, at - at%microsOfHour, o.Currency}
	c := cells[k]
	if c == nil {
		c = &revenueSum{owner: o.Seller.Lower(), amount: new(big.Int)}
		cells[k] = c
	}
	c.orders++
	c.amount.Add(c.amount, o.Amount.Int())
}

// kindMint is the kind of a grant. It is permanent, as [kindBurn] is.
const kindMint = 1

// paidOrders returns the orders with a price whose credits are minted by rows of the journal. Grants without an order are left out.
func paidOrders(ctx context.Context, q Querier, rows []JournalRow) (paid []*Order, err error) {
	accounts := map[string][16]byte{}
	var ids []string
	for i := range rows {
		if r := &rows[i]; r.Kind == kindMint {
			ids = append(ids, r.Ref)
			accounts[r.Ref] = r.Account
		}
	}
	found := map[string]bool{}
	for args := range lists(ids) {
		list, err := orders.all(ctx, q, "WHERE order_id IN "+tuples(1, len(args)), args...)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if accounts[o.ID] == o.Account && !o.Amount.IsZero() && !found[o.ID] {
				paid = append(paid, o)
				found[o.ID] = true
			}
		}
	}
	return paid, nil
}

// emptySlice is how many rows of a table one transaction removes.
const emptySlice = 5000

// EmptyUsage removes rows of usage and revenue, has [RestoreUsage] restore what was kept, and reports whether there are more.
func EmptyUsage(ctx context.Context, tx *Tx) (more bool, err error) {
	for _, statement := range []string{
		"DELETE FROM usage_hours WHERE (plan_id, hour, agent_id) IN (SELECT plan_id, hour, agent_id FROM usage_hours LIMIT $1)",
		"DELETE FROM usage_days WHERE (plan_id, day, subscriber) IN (SELECT plan_id, day, subscriber FROM usage_days LIMIT $1)",
		`DELETE FROM usage_labels WHERE (plan_id, day, upstream, route, model) IN
			(SELECT plan_id, day, upstream, route, model FROM usage_labels LIMIT $1)`,
		`DELETE FROM usage_buyer_labels WHERE (plan_id, day, subscriber, route, model) IN
			(SELECT plan_id, day, subscriber, route, model FROM usage_buyer_labels LIMIT $1)`,
		"DELETE FROM revenue_hours WHERE (plan_id, hour, currency) IN (SELECT plan_id, hour, currency FROM revenue_hours LIMIT $1)",
		`UPDATE usage_kept SET restored = 0 WHERE (plan_id, hour, agent_id) IN
			(SELECT plan_id, hour, agent_id FROM usage_kept WHERE restored <> 0 LIMIT $1)`,
	} {
		n, err := tx.Exec(ctx, statement, int64(emptySlice))
		if err != nil || n == emptySlice {
			return true, err
		}
	}
	return false, nil
}

type UsageBy string

// Dimensions of usage. Revenue has only hour, day, and plan.
const (
	ByHour       UsageBy = "hour"
	ByDay        UsageBy = "day"
	ByPlan       UsageBy = "plan"
	ByAgent      UsageBy = "agent"
	BySubscriber UsageBy = "subscriber"
	ByUpstream   UsageBy = "upstream"
	ByRoute      UsageBy = "route"
	ByModel      UsageBy = "model"
)

// Labeled reports whether usage is summed by a label, which is counted by days.
func (by UsageBy) Labeled() bool { return by == ByUpstream || by == ByRoute || by == ByModel }

// UsageFilter selects what is summed: of the plans of Owner, or of Subscriber, or of Plan, as far as they are given.
type UsageFilter struct {
	By           UsageBy
	Owner        toll.Address
	Plan         toll.PlanID
	Agent        *toll.AgentID // "": settlements that name no agent
	Subscriber   toll.Address
	Since, Until time.Time // from the hour or day of Since to before that of Until
}

func (f *UsageFilter) timed() bool { return f.By == ByHour || f.By == ByDay }

// sums returns the table that has what the filter selects.
func (f *UsageFilter) sums() sums {
	switch {
	case f.By.Labeled() && !f.Subscriber.IsZero():
		return usageBuyerLabels
	case f.By.Labeled():
		return usageLabels
	case f.By == BySubscriber || !f.Subscriber.IsZero():
		return usageDays
	}
	return usageHours
}

// Usage lists what was settled, summed, by time or by the text of the id.
func Usage(ctx context.Context, q Querier, f UsageFilter, p Page) (List[*toll.Usage], error) {
	sums := f.sums()
	at := sums.key[1]
	l := Listing{ID: "k", Sorts: map[Sort]string{SortGroup: "k"}}
	key := map[UsageBy]string{
		ByHour: "hour", ByDay: "day", ByPlan: "plan_id", ByAgent: "agent_id", BySubscriber: "subscriber", ByUpstream: "upstream",
		ByRoute: "route", ByModel: "model",
	}[f.By]
	if f.By == ByDay && at == "hour" {
		key = fmt.Sprintf("hour - hour %% %d", microsOfDay)
	}
	if f.timed() {
		l.Sorts = map[Sort]string{SortTime: "k"}
	}
	columns := []string{key + " AS k"}
	for _, c := range sums.added {
		columns = append(columns, fmt.Sprintf("CAST(SUM(%[1]s) AS BIGINT) AS %[1]s", c))
	}
	l.Columns = "k, " + strings.Join(sums.added, ", ")
	if sums.highest != "" {
		columns = append(columns, "MAX(last_at) AS last_at")
		l.Columns += ", last_at"
	}
	l.Args = []any{Micros(f.Since), Micros(f.Until)}
	where := at + " >= $1 AND " + at + " < $2"
	is := func(column, value string) {
		l.Args = append(l.Args, value)
		where += fmt.Sprintf(" AND %s = $%d", column, len(l.Args))
	}
	if f.Plan != "" {
		is("plan_id", string(f.Plan))
	}
	if f.Agent != nil {
		is("agent_id", string(*f.Agent))
	}
	if !f.Subscriber.IsZero() {
		is("subscriber", f.Subscriber.Lower())
	} else if f.Plan == "" {
		is("owner", f.Owner.Lower())
	}
	l.Table = "(SELECT " + strings.Join(columns, ", ") + " FROM " + sums.table + " WHERE " + where + " GROUP BY 1) sums"
	p.Sort = "" // there is one
	return Select(ctx, q, l, p, func(scan func(dest ...any) error) (*toll.Usage, error) { return scanUsage(scan, &f, sums) })
}

// PlanSubscriber is a subscriber of a plan.
type PlanSubscriber struct {
	Plan       toll.PlanID
	Subscriber toll.Address
}

// LastSettled returns when each subscriber last settled a request of the plan, from the day of since. It leaves out the others.
func LastSettled(ctx context.Context, q Querier, of []PlanSubscriber, since time.Time) (map[PlanSubscriber]time.Time, error) {
	last := make(map[PlanSubscriber]time.Time, len(of))
	if len(of) == 0 {
		return last, nil
	}
	var args []any
	for _, s := range of {
		args = append(args, string(s.Plan), s.Subscriber.Lower())
	}
	rows, err := q.Query(ctx, `SELECT plan_id, subscriber, MAX(last_at) FROM usage_days WHERE (plan_id, subscriber) IN (VALUES `+
		tuples(len(of), 2)+`) AND day >= $`+strconv.Itoa(len(args)+1)+` GROUP BY 1, 2`, append(args, Micros(since))...)
	return last, each(rows, err, func(scan func(dest ...any) error) error {
		var plan, subscriber string
		var at int64
		if err := scan(&plan, &subscriber, &at); err != nil {
			return err
		}
		who, err := toll.ParseAddress(subscriber)
		last[PlanSubscriber{Plan: toll.PlanID(plan), Subscriber: who}] = FromMicros(at)
		return err
	})
}

// scanUsage reads the key of a row and its numbers.
func scanUsage(scan func(dest ...any) error, f *UsageFilter, of sums) (*toll.Usage, error) {
	var u toll.Usage
	var at, high, low, last int64
	var id string
	dest := []any{&id, &u.Settled, &high, &low}
	if f.timed() {
		dest[0] = &at
	}
	switch of.table {
	case usageDays.table:
		dest = append(dest, &last)
	case usageHours.table:
		u.HoldToSettle = make([]int64, tookBuckets)
		for i := range u.HoldToSettle {
			dest = append(dest, &u.HoldToSettle[i])
		}
	}
	if err := scan(dest...); err != nil {
		return nil, err
	}
	sum := new(big.Int).Lsh(big.NewInt(high), 32)
	u.Credits = toll.SumOf(sum.Add(sum, big.NewInt(low)))
	if last != 0 {
		u.LastSettledAt = toll.AtPtr(FromMicros(last))
	}
	var err error
	switch f.By {
	case ByPlan:
		u.PlanID = toll.PlanID(id)
	case ByAgent:
		u.AgentID = toll.AgentID(id)
	case BySubscriber:
		var subscriber toll.Address
		subscriber, err = toll.ParseAddress(id)
		u.SubscriberAddress = &subscriber
	case ByUpstream:
		u.Upstream = id
	case ByRoute:
		u.Route = id
	case ByModel:
		u.Model = id
	default:
		u.Start = toll.AtPtr(FromMicros(at))
	}
	return &u, err
}

const (
	sqlRevenueAll = `SELECT plan_id, hour, currency, orders, amount FROM revenue_hours`
	// The condition is that of the index.
	sqlReturned = `WHERE seller = $1 AND created_at >= $2 AND created_at < $3 AND (refunded_cents > 0 OR reversed = 1 OR dispute IS NOT NULL)`
)

// maxRevenue bounds the rows of revenue that are summed for one answer.
const maxRevenue = 100_000

// Revenue lists what was paid for orders of the plans of an owner, or of one of them, summed by f.By and by currency.
func Revenue(ctx context.Context, q Querier, f UsageFilter, p Page) (List[*toll.Revenue], error) {
	where, args := "owner = $1", []any{f.Owner.Lower(), Micros(f.Since), Micros(f.Until), int64(maxRevenue + 1)}
	if f.Plan != "" {
		where, args[0] = "plan_id = $1", string(f.Plan)
	}
	groups := map[string]*toll.Revenue{}
	group := func(k revenueKey) *toll.Revenue {
		r := toll.Revenue{Currency: k.currency}
		key := string(k.plan)
		if f.By == ByPlan {
			r.PlanID = k.plan
		} else {
			at := k.hour
			if f.By == ByDay {
				at -= at % microsOfDay
			}
			r.Start = toll.AtPtr(FromMicros(at))
			key = fmt.Sprintf("%020d", at)
		}
		key += " " + k.currency
		if groups[key] == nil {
			groups[key] = &r
		}
		return groups[key]
	}
	n := 0
	_, err := All(ctx, q, func(scan func(dest ...any) error) (none struct{}, err error) {
		var k revenueKey
		var orders int64
		var amount string
		if err = scan(&k.plan, &k.hour, &k.currency, &orders, &amount); err != nil {
			return none, err
		}
		sum, err := toll.ParseSum(amount)
		r := group(k)
		r.Orders, r.Amount = r.Orders+orders, r.Amount.Add(sum.Int())
		n++
		return none, err
	}, sqlRevenueAll+" WHERE "+where+" AND hour >= $2 AND hour < $3 LIMIT $4", args...)
	if err == nil && n > maxRevenue {
		err = toll.Errorf(toll.CodeBadRequest, "The range covers more than %d revenue records. Request a shorter range or a single plan.",
			maxRevenue)
	}
	if err != nil {
		return List[*toll.Revenue]{}, err
	}
	returned, err := orders.all(ctx, q, sqlReturned, f.Owner.Lower(), Micros(f.Since), Micros(f.Until))
	if err != nil {
		return List[*toll.Revenue]{}, err
	}
	for _, o := range returned {
		at := Micros(o.CreatedAt)
		if f.Plan != "" && o.Plan != f.Plan || o.Amount.IsZero() {
			continue
		}
		r := group(revenueKey{o.Plan, at - at%microsOfHour, o.Currency})
		r.ReturnedOrders++
		r.Returned = r.Returned.Add(o.returned())
	}
	return pageOf(groups, p)
}

// returned is what went back of the amount of a paid order, in base units.
func (o *Order) returned() *big.Int {
	if o.Reversed {
		return o.Amount.Int()
	}
	cents := new(big.Int).Quo(o.Amount.Int(), toll.UnitsOfCents(1).Int()) // the card rail takes whole cents
	return toll.UnitsOfCents(o.CentsBack(cents.Int64())).Int()
}

// pageOf is [Select] for values in memory, by the text of their keys.
func pageOf[T any](all map[string]T, p Page) (List[T], error) {
	list := List[T]{Items: []T{}, Total: int64(len(all))}
	p.Sort = SortGroup
	p, from, err := p.checked()
	if err != nil {
		return list, err
	}
	keys := slices.Sorted(maps.Keys(all))
	if !p.Ascending {
		slices.Reverse(keys)
	}
	start := (p.Number - 1) * p.Size
	if from != nil {
		beyond := func(k string) bool { return (k > from.Key) == p.Ascending && k != from.Key }
		if start = slices.IndexFunc(keys, beyond); start < 0 {
			start = len(keys)
		}
	}
	for _, k := range keys[min(start, len(keys)):] {
		if len(list.Items) == p.Size {
			break
		}
		list.Items = append(list.Items, all[k])
	}
	if end := start + len(list.Items); len(list.Items) > 0 && end < len(keys) {
		list.Next = encodeCursor(p, keys[end-1], keys[end-1])
	}
	return list, nil
}
