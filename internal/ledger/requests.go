package ledger

// A request has a row here until it is settled. Then its burn in the journal stands for it.
const requestColumns = `account_id, agent_request_id, state, permission_hash, agent_id, resource, held, hold_ends_at, created_at,
	ended_at, order_tx`

const (
	sqlRequest = `SELECT ` + requestColumns + ` FROM requests WHERE account_id = $1 AND agent_request_id = $2`

	// Only what the party may see counts, so that a stranger who uses the same id cannot crowd it out.
	sqlRequestsByID = `SELECT r.account_id, r.agent_request_id, r.state, r.permission_hash, r.agent_id, r.resource, r.held, r.hold_ends_at, r.created_at,
			r.ended_at, r.order_tx
		FROM requests r JOIN accounts a ON a.account_id = r.account_id LEFT JOIN plans p ON p.plan_id = a.plan_id
		WHERE r.agent_request_id = $1 AND (a.subscriber = $2 OR p.owner = $2)
		ORDER BY r.created_at DESC LIMIT $3`
	sqlBurnsByID = `SELECT ` + burnColumns + ` FROM journal j JOIN accounts a ON a.account_id = j.account_id
		LEFT JOIN plans p ON p.plan_id = a.plan_id
		WHERE j.ref = $1 AND j.kind = 2 AND (a.subscriber = $2 OR p.owner = $2) ORDER BY j.pos DESC LIMIT $3`
	burnColumns = `j.pos, j.seq, j.kind, j.amount, j.balance_after, j.at, j.account_id, j.commitment, j.ref, j.body`

	sqlKey = `SELECT agent_request_id FROM request_keys WHERE account_id = $1 AND request_key = $2`

	sqlRequestsDue = `SELECT ` + requestColumns + ` FROM requests WHERE account_id = $1 AND state = 1 AND hold_ends_at <= $2
		ORDER BY hold_ends_at`
	sqlNextDue = `SELECT hold_ends_at FROM requests WHERE account_id = $1 AND state = 1 AND hold_ends_at > $2
		ORDER BY hold_ends_at LIMIT 1`

	sqlRequestAdd = `INSERT INTO requests (` + requestColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	// The end of a request without a burn names its parties, by which they list it: see [Ledger.History].
	sqlRequestEnd = `UPDATE requests SET state = $3, ended_at = $4, subscriber = $6, seller = (SELECT owner FROM plans WHERE plan_id = $5)
		WHERE account_id = $1 AND agent_request_id = $2`
	sqlRequestsAdd = `INSERT INTO requests (` + requestColumns + `)
		SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::bigint[], $11::text[])`
	sqlRequestsEnd = `UPDATE requests r SET state = u.state, ended_at = u.ended_at, subscriber = u.subscriber,
			seller = (SELECT p.owner FROM plans p WHERE p.plan_id = u.plan_id)
		FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])
			AS u(account_id, agent_request_id, state, ended_at, plan_id, subscriber)
		WHERE r.account_id = u.account_id AND r.agent_request_id = u.agent_request_id`
	sqlRequestRenew  = `UPDATE requests SET hold_ends_at = $3 WHERE account_id = $1 AND agent_request_id = $2`
	sqlRequestsRenew = `UPDATE requests r SET hold_ends_at = u.hold_ends_at
		FROM unnest($1::bytea[], $2::text[], $3::bigint[]) AS u(account_id, agent_request_id, hold_ends_at)
		WHERE r.account_id = u.account_id AND r.agent_request_id = u.agent_request_id`
	sqlRequestSettled  = `DELETE FROM requests WHERE account_id = $1 AND agent_request_id = $2`
	sqlRequestsSettled = `DELETE FROM requests r USING unnest($1::bytea[], $2::text[]) AS u(account_id, agent_request_id)
		WHERE r.account_id = u.account_id AND r.agent_request_id = u.agent_request_id`

	sqlKeyAdd  = `INSERT INTO request_keys (account_id, request_key, agent_request_id) VALUES ($1, $2, $3)`
	sqlKeysAdd = `INSERT INTO request_keys (account_id, request_key, agent_request_id)
		SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[])`
)

func scanRequest(scan scanFunc, r *Request) error {
	var account, permission []byte
	var holdEnds, created, ended int64
	err := scan(&account, &r.ID, &r.State, &permission, &r.Agent, &r.Resource, &r.Held, &holdEnds, &created, &ended, &r.OrderTx)
	if err != nil {
		return err
	}
	copy(r.Account[:], account)
	copy(r.Permission[:], permission)
	r.CreatedAt = micro(created)
	if holdEnds != 0 {
		r.HoldEndsAt = micro(holdEnds)
	}
	if ended != 0 {
		r.EndedAt = micro(ended)
	}
	return nil
}

// row returns all columns, in the order of requestColumns.
func (r *Request) row() []any {
	return []any{
		r.Account[:], r.ID, int64(r.State), r.Permission[:], string(r.Agent), r.Resource, int64(r.Held), micros(r.HoldEndsAt, 0),
		r.CreatedAt.UnixMicro(), micros(r.EndedAt, 0), r.OrderTx,
	}
}
