package store

import (
	"context"
	"time"
)

// Kinds of jobs. Their keys are the ids of what they are about.
const (
	JobEndKey   = "auth.end_key"    // ends what a revoked API key made
	JobEndGrant = "oauth.end_grant" // ends what was issued because of a revoked consent
	// JobPay and the rail of an order has a rail carry on with the order. The decision removes it.
	JobPay = "checkout.pay."
	// JobEndDelegation revokes the permissions that name a revoked delegation, JobDisable disables it on the chain.
	JobEndDelegation = "checkout.end_delegation"
	JobDisable       = "checkout.disable"
	// JobTakeBack takes back the credits of an undone order that holds have kept.
	JobTakeBack = "checkout.take_back"
)

// callerTime is how long the call that wrote a job of its own has to finish it before the queue does.
const callerTime = time.Minute

// Job is work that is due at a time. Kind and Key name it.
type Job struct {
	Kind    string    `db:"kind"`
	Key     []byte    `db:"key"`
	Due     time.Time `db:"due"`
	Attempt int64     `db:"attempt"`    // claims so far, this one included
	Holder  string    `db:"holder"`     // "" for none
	Until   time.Time `db:"held_until"` // nobody else claims it before
}

var (
	jobs = newRecord[Job]("jobs")
	// PutJob adds a job, or makes the one that is there due at j.Due. A run that is under way then does not end it.
	PutJob = jobs.puts("ON CONFLICT (kind, key) DO UPDATE SET due = excluded.due, attempt = jobs.attempt + 1")
	// DropJob removes a job whose work is done in this transaction, whoever holds it.
	DropJob = runs2[string, []byte](done, "DELETE FROM jobs WHERE kind = $1 AND key = $2")
)

// putOwnJob adds a job that the caller finishes with [DropJob] itself, unless it dies.
func putOwnJob(ctx context.Context, tx *Tx, kind string, key []byte, now time.Time) error {
	return PutJob(ctx, tx, Job{Kind: kind, Key: key, Due: now, Until: now.Add(callerTime)})
}

// DueJobs returns the kinds of which something can be claimed.
func DueJobs(ctx context.Context, q Querier, now time.Time) ([]string, error) {
	return values[string](ctx, q, "SELECT DISTINCT kind FROM jobs WHERE due <= $1 AND held_until <= $1", Micros(now))
}

// ClaimJobs gives a holder at most n jobs of a kind that are due, until a time. No two holders get the same, and none waits for another.
func ClaimJobs(ctx context.Context, tx *Tx, kind, holder string, now, until time.Time, n int) ([]Job, error) {
	lock := tx.ForUpdate()
	if lock != "" {
		lock += " SKIP LOCKED"
	}
	// A subquery that PostgreSQL runs once for each row passes over the rows that it has locked before, and so beyond its limit.
	rows, err := tx.Query(ctx, `WITH claimed AS MATERIALIZED (
		SELECT key AS claim FROM jobs WHERE kind = $1 AND due <= $4 AND held_until <= $4 ORDER BY due LIMIT $5`+lock+`)
		UPDATE jobs SET holder = $2, held_until = $3, attempt = attempt + 1 WHERE kind = $1 AND key IN (SELECT claim FROM claimed)
		RETURNING `+jobs.columns,
		kind, holder, Micros(until), Micros(now), int64(n))
	return scanAll(rows, err, jobs.scan)
}

// TakeJob is [ClaimJobs] for one job, which need not be due.
func TakeJob(ctx context.Context, tx *Tx, kind string, key []byte, holder string, now, until time.Time) ([]Job, error) {
	rows, err := tx.Query(ctx, "UPDATE jobs SET holder = $3, held_until = $4, attempt = attempt + 1 WHERE kind = $1 AND key = $2 AND held_until <= $5 "+
		"RETURNING "+jobs.columns, kind, key, holder, Micros(until), Micros(now))
	return scanAll(rows, err, jobs.scan)
}

// EndJob removes a claimed job, unless another holder has it or it was put again meanwhile.
func EndJob(ctx context.Context, tx *Tx, j Job) (ended bool, err error) {
	return changed(tx.Exec(ctx, "DELETE FROM jobs WHERE kind = $1 AND key = $2 AND holder = $3 AND attempt = $4", j.Kind, j.Key, j.Holder, j.Attempt))
}

// ReleaseJob gives a claimed job back. It is due again at the given time, or when it was put again meanwhile; nobody claims or takes it
// while it is idle.
func ReleaseJob(ctx context.Context, tx *Tx, j Job, due, idle time.Time) error {
	return done(tx.Exec(ctx, `UPDATE jobs SET holder = '', held_until = $6, due = CASE WHEN attempt = $4 THEN $5 ELSE due END
		WHERE kind = $1 AND key = $2 AND holder = $3`, j.Kind, j.Key, j.Holder, j.Attempt, Micros(due), Micros(idle)))
}
