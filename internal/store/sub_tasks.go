package store

import (
	"context"
	"encoding/json"
	"math/big"

	"github.com/tollhq/toll"
)

// InsertSubTask adds a part of the work for a request of an account.
func InsertSubTask(ctx context.Context, tx *Tx, account [16]byte, t *toll.SubTask) error {
	_, err := tx.Exec(ctx, `INSERT INTO sub_tasks (account_id, agent_request_id, sub_task_id, credits, tag, description, status, metadata,
		created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		account[:], t.AgentRequestID, t.ID, int64(t.Credits), t.Tag, t.Description, string(t.Status), string(t.Metadata), Micros(t.CreatedAt.Time))
	return err
}

// CountSubTasks returns how many parts of a request are recorded, counted up to most.
func CountSubTasks(ctx context.Context, q Querier, account [16]byte, requestID string, most int64) (n int64, err error) {
	err = q.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM sub_tasks WHERE account_id = $1 AND agent_request_id = $2 LIMIT $3) t`,
		account[:], requestID, most).Scan(&n)
	return n, err
}

// SubTasks lists the recorded parts of a request. They sort by time of creation only.
func SubTasks(ctx context.Context, q Querier, account [16]byte, requestID string, p Page) (List[*toll.SubTask], error) {
	l := Listing{
		Table: "sub_tasks", Columns: "sub_task_id, agent_request_id, credits, tag, description, status, metadata, created_at",
		Where: "account_id = $1 AND agent_request_id = $2", Args: []any{account[:], requestID}, ID: "sub_task_id",
		Sorts: map[Sort]string{SortCreated: "created_at"},
	}
	return Select(ctx, q, l, p, func(scan func(dest ...any) error) (*toll.SubTask, error) {
		var t toll.SubTask
		var metadata string
		var created int64
		if err := scan(&t.ID, &t.AgentRequestID, &t.Credits, &t.Tag, &t.Description, &t.Status, &metadata, &created); err != nil {
			return nil, err
		}
		if metadata != "" {
			t.Metadata = json.RawMessage(metadata)
		}
		t.CreatedAt = toll.At(FromMicros(created))
		return &t, nil
	})
}

// SubTaskCredits returns the credits of all parts of a request, at most [toll.MaxCredits].
func SubTaskCredits(ctx context.Context, q Querier, account [16]byte, requestID string) (toll.Credits, error) {
	// Two sums, as one of them could leave the 64 bits of the engines.
	const half = 1 << 32
	var high, low int64
	err := q.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(credits / 4294967296), 0) AS BIGINT), CAST(COALESCE(SUM(credits % 4294967296), 0) AS BIGINT)
		FROM sub_tasks WHERE account_id = $1 AND agent_request_id = $2`, account[:], requestID).Scan(&high, &low)
	if err != nil {
		return 0, err
	}
	sum := new(big.Int).Mul(big.NewInt(high), big.NewInt(half))
	if sum.Add(sum, big.NewInt(low)); !sum.IsInt64() {
		return toll.MaxCredits, nil
	}
	return toll.Credits(sum.Int64()), nil
}
