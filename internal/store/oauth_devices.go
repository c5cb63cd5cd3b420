package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// OAuthDevice is a device that waits for a person (RFC 8628). Of its two codes the SHA-256 is kept.
type OAuthDevice struct {
	Hash      []byte       `db:"hash"`      // of the code that the device keeps
	UserHash  []byte       `db:"user_hash"` // of the code that the person types
	ClientID  string       `db:"client_id"`
	Scope     string       `db:"scope"`
	Resource  string       `db:"resource"`
	PlanID    toll.PlanID  `db:"plan_id"`
	AgentID   toll.AgentID `db:"agent_id"`
	Source    string       `db:"source"`              // address of who asked
	Counted   string       `db:"counted_source,null"` // the network whose devices are counted together
	GrantID   toll.Hash    `db:"grant_id,empty"`      // zero: no person has agreed
	Denied    bool         `db:"denied"`
	CreatedAt time.Time    `db:"created_at"`
	ExpiresAt time.Time    `db:"expires_at"`
	PollAt    time.Time    `db:"poll_at"`   // when it asked last; zero: never
	PollSecs  int64        `db:"poll_secs"` // how long it is to wait in between
	UsedAt    time.Time    `db:"used_at"`   // zero: no token was issued
}

var (
	oauthDevices          = newRecord[OAuthDevice]("oauth_devices")
	InsertOAuthDevice     = oauthDevices.insert                        // [IsUnique] when its user code is taken
	OAuthDeviceByHash     = by[[]byte](oauthDevices, "hash = $1")      // ended ones too
	OAuthDeviceByUserHash = by[[]byte](oauthDevices, "user_hash = $1") // ended ones too
	// UseOAuthDevice notes that a device got its tokens, and reports whether this call is the first: of several callers one is.
	UseOAuthDevice = first2[[]byte, time.Time]("UPDATE oauth_devices SET used_at = $2 WHERE hash = $1 AND used_at = 0")
	// CountOAuthGuess counts a code that a person typed wrongly. Counting begins anew when it began before since.
	CountOAuthGuess = runs3[toll.Address, time.Time, time.Time](done,
		`INSERT INTO oauth_guesses (owner, wrong, since) VALUES ($1, 1, $2)
		ON CONFLICT (owner) DO UPDATE SET wrong = CASE WHEN oauth_guesses.since > $3 THEN oauth_guesses.wrong + 1 ELSE 1 END,
			since = CASE WHEN oauth_guesses.since > $3 THEN oauth_guesses.since ELSE $2 END`)
)

// CountOAuthDevices returns how many devices wait, and how many of them one source has, each counted up to its limit.
func CountOAuthDevices(ctx context.Context, q Querier, now time.Time, most int64, source string, mostOfSource int64) (all, of int64, err error) {
	all, err = value[int64](ctx, q, "SELECT COUNT(*) FROM (SELECT 1 FROM oauth_devices WHERE expires_at > $1 LIMIT $2) d", Micros(now), most)
	if err == nil {
		of, err = value[int64](ctx, q, "SELECT COUNT(*) FROM (SELECT 1 FROM oauth_devices WHERE counted_source = $1 AND expires_at > $2 AND used_at = 0 AND NOT denied LIMIT $3) d",
			source, Micros(now), mostOfSource)
	}
	return all, of, err
}

// PollOAuthDevice notes that a device asked, and how long it is to wait from now on; false when another call was faster.
func PollOAuthDevice(ctx context.Context, tx *Tx, d OAuthDevice, now time.Time, secs int64) (bool, error) {
	return changed(tx.Exec(ctx, "UPDATE oauth_devices SET poll_at = $2, poll_secs = $3 WHERE hash = $1 AND poll_at = $4",
		blob(d.Hash), Micros(now), secs, Micros(d.PollAt)))
}

// DecideOAuthDevice notes what a person decided: the grant, or the zero hash for a refusal. It reports whether this call is
// the first: of several callers one is.
func DecideOAuthDevice(ctx context.Context, tx *Tx, hash []byte, grant toll.Hash) (first bool, err error) {
	id := grant[:]
	if grant.IsZero() {
		id = []byte{}
	}
	return changed(tx.Exec(ctx, "UPDATE oauth_devices SET grant_id = $2, denied = $3 WHERE hash = $1 AND NOT denied AND grant_id = $4",
		blob(hash), id, grant.IsZero(), []byte{}))
}

// OAuthGuesses returns how many codes a person typed wrongly since a moment.
func OAuthGuesses(ctx context.Context, q Querier, owner toll.Address, since time.Time) (int64, error) {
	return value[int64](ctx, q, "SELECT COALESCE(SUM(wrong), 0) FROM oauth_guesses WHERE owner = $1 AND since > $2",
		owner.Lower(), Micros(since))
}
