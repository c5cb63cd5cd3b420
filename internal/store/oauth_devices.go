package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// OAuthDevice is a device that waits for a person (RFC 8628). Of its two codes the SHA-256 is kept.
type OAuthDevice struct {
	Hash      []byte // of the code that the device keeps
	UserHash  []byte // of the code that the person types
	ClientID  string
	Scope     string
	Resource  string
	PlanID    toll.PlanID
	AgentID   toll.AgentID
	Source    string    // address of who asked
	GrantID   toll.Hash // zero: no person has agreed
	Denied    bool
	CreatedAt time.Time
	ExpiresAt time.Time
	PollAt    time.Time // when it asked last; zero: never
	PollSecs  int64     // how long it is to wait in between
	UsedAt    time.Time // zero: no token was issued
}

const oauthDeviceColumns = `hash, user_hash, client_id, scope, resource, plan_id, agent_id, source, grant_id, denied, created_at, expires_at,
	poll_at, poll_secs, used_at`

// InsertOAuthDevice adds a device. When its user code is taken the error is [IsUnique].
func InsertOAuthDevice(ctx context.Context, tx *Tx, d OAuthDevice) error {
	_, err := tx.Exec(ctx, "INSERT INTO oauth_devices ("+oauthDeviceColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
		blob(d.Hash), blob(d.UserHash), d.ClientID, d.Scope, d.Resource, string(d.PlanID), string(d.AgentID), d.Source, []byte{}, d.Denied,
		Micros(d.CreatedAt), Micros(d.ExpiresAt), Micros(d.PollAt), d.PollSecs, Micros(d.UsedAt))
	return err
}

// OAuthDeviceByHash returns a device, ended ones too, or [ErrNotFound].
func OAuthDeviceByHash(ctx context.Context, q Querier, hash []byte) (OAuthDevice, error) {
	return scanOAuthDevice(q.QueryRow(ctx, "SELECT "+oauthDeviceColumns+" FROM oauth_devices WHERE hash = $1", blob(hash)).Scan)
}

// OAuthDeviceByUserHash returns the device of a user code, ended ones too, or [ErrNotFound].
func OAuthDeviceByUserHash(ctx context.Context, q Querier, hash []byte) (OAuthDevice, error) {
	return scanOAuthDevice(q.QueryRow(ctx, "SELECT "+oauthDeviceColumns+" FROM oauth_devices WHERE user_hash = $1", blob(hash)).Scan)
}

// CountOAuthDevices returns how many devices wait, counted up to most.
func CountOAuthDevices(ctx context.Context, q Querier, now time.Time, most int64) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM oauth_devices WHERE expires_at > $1 LIMIT $2) d", Micros(now), most).Scan(&n)
	return n, err
}

// PollOAuthDevice notes that a device asked, and how long it is to wait from now on; false when another call was faster.
func PollOAuthDevice(ctx context.Context, tx *Tx, d OAuthDevice, now time.Time, secs int64) (bool, error) {
	n, err := tx.Exec(ctx, "UPDATE oauth_devices SET poll_at = $2, poll_secs = $3 WHERE hash = $1 AND poll_at = $4",
		blob(d.Hash), Micros(now), secs, Micros(d.PollAt))
	return n == 1, err
}

// DecideOAuthDevice notes what a person decided: the grant, or the zero hash for a refusal. It reports whether this call is
// the first: of several callers one is.
func DecideOAuthDevice(ctx context.Context, tx *Tx, hash []byte, grant toll.Hash) (first bool, err error) {
	id := grant[:]
	if grant.IsZero() {
		id = []byte{}
	}
	n, err := tx.Exec(ctx, "UPDATE oauth_devices SET grant_id = $2, denied = $3 WHERE hash = $1 AND NOT denied AND grant_id = $4",
		blob(hash), id, grant.IsZero(), []byte{})
	return n == 1, err
}

// UseOAuthDevice notes that a device got its tokens, and reports whether this call is the first: of several callers one is.
func UseOAuthDevice(ctx context.Context, tx *Tx, hash []byte, now time.Time) (first bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE oauth_devices SET used_at = $2 WHERE hash = $1 AND used_at = 0", blob(hash), Micros(now))
	return n == 1, err
}

// OAuthGuesses returns how many codes a person typed wrongly since a moment.
func OAuthGuesses(ctx context.Context, q Querier, owner toll.Address, since time.Time) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT COALESCE(SUM(wrong), 0) FROM oauth_guesses WHERE owner = $1 AND since > $2", owner.Lower(), Micros(since)).Scan(&n)
	return n, err
}

// CountOAuthGuess counts a code that a person typed wrongly. Counting begins anew when it began before since.
func CountOAuthGuess(ctx context.Context, tx *Tx, owner toll.Address, now, since time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO oauth_guesses (owner, wrong, since) VALUES ($1, 1, $2)
		ON CONFLICT (owner) DO UPDATE SET wrong = CASE WHEN oauth_guesses.since > $3 THEN oauth_guesses.wrong + 1 ELSE 1 END,
			since = CASE WHEN oauth_guesses.since > $3 THEN oauth_guesses.since ELSE $2 END`, owner.Lower(), Micros(now), Micros(since))
	return err
}

func scanOAuthDevice(scan func(dest ...any) error) (d OAuthDevice, err error) {
	var plan, agent string
	var grant []byte
	var created, expires, polled, used int64
	err = scan(&d.Hash, &d.UserHash, &d.ClientID, &d.Scope, &d.Resource, &plan, &agent, &d.Source, &grant, &d.Denied, &created, &expires,
		&polled, &d.PollSecs, &used)
	copy(d.GrantID[:], grant)
	d.PlanID, d.AgentID = toll.PlanID(plan), toll.AgentID(agent)
	d.CreatedAt, d.ExpiresAt, d.PollAt, d.UsedAt = FromMicros(created), FromMicros(expires), FromMicros(polled), FromMicros(used)
	return d, err
}
