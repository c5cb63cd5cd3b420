package ledger

import "strconv"

const lotColumns = `lot_id, ref, granted, remaining, ends_at, taken, old_end`

const (
	// The limit is not a parameter: SQLite plans a statement again whenever a bound limit changes hands.
	sqlLots     = `SELECT ` + lotColumns + ` FROM lots WHERE account_id = $1 AND open = 1 ORDER BY ends_at, lot_id LIMIT `
	sqlLotByRef = `SELECT ` + lotColumns + ` FROM lots WHERE account_id = $1 AND ref = $2`

	sqlLotLeft  = `UPDATE lots SET remaining = $3 WHERE account_id = $1 AND lot_id = $2`
	sqlLotsLeft = `UPDATE lots l SET remaining = u.remaining
		FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS u(account_id, lot_id, remaining)
		WHERE l.account_id = u.account_id AND l.lot_id = u.lot_id`

	sqlLotEnds = `SELECT lot_id, ends_at FROM lots WHERE account_id = $1`

	// fromUnpaid selects the lots that were minted by hand, and those of orders that no rail paid.
	fromUnpaid = `FROM lots l LEFT JOIN orders o ON o.account_id = l.account_id AND o.order_id = l.ref
		WHERE l.account_id = $1 AND (o.order_id IS NULL AND l.ref >= '` + MintRef + `' AND l.ref < 'mint;' OR o.order_id IS NOT NULL AND o.rail IS NULL)`
	sqlLotsUnpaid = `SELECT l.lot_id ` + fromUnpaid + ` AND l.open = 1`

	// sqlTakenByHand sums what lots lost with the money of their orders, what was granted without money, and what refunds did
	// not find any more.
	sqlTakenByHand = `SELECT CAST(COALESCE((SELECT SUM(taken) FROM lots WHERE account_id = $1), 0) AS BIGINT),
		CAST(COALESCE((SELECT SUM(l.granted) ` + fromUnpaid + `), 0) AS BIGINT),
		CAST(COALESCE((SELECT SUM(loss) FROM orders WHERE account_id = $1), 0) AS BIGINT)`

	sqlLotSave = `INSERT INTO lots (account_id, lot_id, ref, granted, remaining, ends_at, taken, old_end, open)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (account_id, lot_id) DO UPDATE SET remaining = excluded.remaining, ends_at = excluded.ends_at,
			taken = excluded.taken, old_end = excluded.old_end, open = excluded.open`
	sqlLotsSave = `INSERT INTO lots (account_id, lot_id, ref, granted, remaining, ends_at, taken, old_end, open)
		SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
			$9::bigint[])
		ON CONFLICT (account_id, lot_id) DO UPDATE SET remaining = excluded.remaining, ends_at = excluded.ends_at,
			taken = excluded.taken, old_end = excluded.old_end, open = excluded.open`
)

// sqlLotsTo are the statements that read the first lots, one for each of lotDepths.
var sqlLotsTo = func() map[int]string {
	m := make(map[int]string, len(lotDepths))
	for _, n := range lotDepths {
		m[n] = sqlLots + strconv.Itoa(n)
	}
	return m
}()

// scanLot reads a lot. h comes from the row of its account, read in the same statement or before.
func scanLot(scan scanFunc, h *hot) (*lotRow, error) {
	l := &lotRow{}
	if err := scan(&l.id, &l.ref, &l.granted, &l.remaining, &l.endsAt, &l.taken, &l.oldEnd); err != nil {
		return nil, err
	}
	l.open = l.remaining > 0
	h.ofLot(l)
	return l, nil
}

// mayBeHot reports whether the row of the lot may be stale: nothing but what remains was changed, and something does.
func (l *lotRow) mayBeHot() bool {
	return l.open && !l.cold && l.remaining > 0 && l.id > 0 && l.oldEnd == 0
}

func (l *lotRow) row(account []byte) []any {
	open := int64(0)
	if l.remaining > 0 {
		open = 1
	}
	return []any{account, l.id, l.ref, int64(l.granted), int64(l.remaining), l.endsAt, int64(l.taken), l.oldEnd, open}
}

// addRef keeps one value per lot, whichever query found it.
func (g *group) addRef(l *lotRow) {
	for _, known := range g.state.lots {
		if known.id == l.id {
			l = known
			break
		}
	}
	g.state.refs[l.ref] = l
}

// changedLots returns the lots to write, each once.
func (s *state) changedLots() []*lotRow {
	var out []*lotRow
	for _, l := range s.lots {
		if l.changed {
			out = append(out, l)
			l.changed = false
		}
	}
	for _, l := range s.refs {
		if l != nil && l.changed {
			out = append(out, l)
			l.changed = false
		}
	}
	return out
}
