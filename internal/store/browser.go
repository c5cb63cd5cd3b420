package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// BrowserSession is what is kept of a browser in which a person signed in.
type BrowserSession struct {
	Token     string    `db:"token,key"` // a hash of what the cookie holds
	Data      []byte    `db:"data,set"`
	ExpiresAt time.Time `db:"expires_at,set"`
	// Of a person; zero for the session of an API key.
	UserID          toll.UUID `db:"user_id,null,set"`
	ID              string    `db:"session_id,null,set"` // names the session on pages, and opens nothing
	Agent           string    `db:"agent,null,set"`      // program of the browser, as it says
	Since           time.Time `db:"since,set"`
	UsedAt          time.Time `db:"used_at,set"`
	Proof           string    `db:"proof,null,set"` // kind of the credential that was proved last
	AuthenticatedAt time.Time `db:"proved_at,set"`
}

var (
	browserSessions       = newRecord[BrowserSession]("browser_sessions")
	BrowserSessionByToken = by[string](browserSessions, "token = $1") // ended ones too
	// BrowserSessionsOf returns the sessions of a person that go on, newest first.
	BrowserSessionsOf = listBy2[toll.UUID, time.Time](browserSessions, "user_id = $1 AND expires_at > $2 ORDER BY since DESC, token")
	// DeleteBrowserSession removes a session, if it is there.
	DeleteBrowserSession = runs[string](done, "DELETE FROM browser_sessions WHERE token = $1")
	PutFormAnswer        = runs2[[]byte, []byte](found, "UPDATE browser_answers SET answer = $2 WHERE form = $1")
	// ReleaseForm forgets that a form was claimed: nothing came of it.
	ReleaseForm = runs[[]byte](done, "DELETE FROM browser_answers WHERE form = $1")
	// FormAnswer returns the sealed answer to a form, empty while it is not known; [ErrNotFound] when nobody claimed the form.
	FormAnswer = valueBy[[]byte, []byte]("SELECT answer FROM browser_answers WHERE form = $1")
)

// BrowserSessionList lists the sessions of a person that are not over.
func BrowserSessionList(ctx context.Context, q Querier, user toll.UUID, now time.Time, p Page) (List[BrowserSession], error) {
	return browserSessions.list(ctx, q, Listing{
		Where: "user_id = $1 AND expires_at > $2", Args: []any{user[:], Micros(now)}, ID: "token", Sorts: map[Sort]string{SortCreated: "since"},
	}, p)
}

type SessionUse struct {
	Session   string       `db:"session_id,key"`
	Workspace toll.Address `db:"workspace,key"`
	UsedAt    time.Time    `db:"used_at,set"`
}

var (
	sessionUses   = newRecord[SessionUse]("session_uses")
	PutSessionUse = sessionUses.puts("ON CONFLICT (session_id, workspace) DO UPDATE SET used_at = excluded.used_at")
	// SessionUseOf returns the last use of a session in a workspace, or [ErrNotFound].
	SessionUseOf = by2[string, toll.Address](sessionUses, "session_id = $1 AND workspace = $2")
	// DropSessionUses removes uses before a moment.
	DropSessionUses = runs[time.Time](done, "DELETE FROM session_uses WHERE used_at < $1")
)

// memberSessions are the sessions of a member. Each looks its own use up: a set of all uses would be read for the few that it has.
const memberSessions = `user_id = $1 AND expires_at > $2 AND since > $3
	AND EXISTS (SELECT 1 FROM session_uses u WHERE u.session_id = browser_sessions.session_id AND u.workspace = $4)`

// MemberSessionList lists the sessions of a member that are not over and were used in the workspace.
func MemberSessionList(ctx context.Context, q Querier, m Membership, now time.Time, p Page) (List[BrowserSession], error) {
	return browserSessions.list(ctx, q, Listing{
		Where: memberSessions,
		Args:  []any{m.UserID[:], Micros(now), Micros(m.SessionsFrom), m.Workspace.Lower()}, ID: "token", Sorts: map[Sort]string{SortCreated: "since"},
	}, p)
}

// InsertBrowserSession adds a session, and removes those that ended before this moment.
func InsertBrowserSession(ctx context.Context, tx *Tx, s BrowserSession, now time.Time) error {
	if _, err := tx.Exec(ctx, "DELETE FROM browser_sessions WHERE expires_at <= $1", Micros(now)); err != nil {
		return err
	}
	return browserSessions.insert(ctx, tx, s)
}

// UpdateBrowserSession changes a session; one that is gone stays gone.
func UpdateBrowserSession(ctx context.Context, tx *Tx, s BrowserSession) error {
	if err := browserSessions.update(ctx, tx, s); !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// DeleteBrowserSessions removes the sessions of a person: the one with an id, or, with "", all but the one with the token keep. It
// returns how many.
func DeleteBrowserSessions(ctx context.Context, tx *Tx, user toll.UUID, id, keep string) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM browser_sessions WHERE user_id = $1 AND (session_id = $2 OR $2 = '') AND token <> $3", user[:], id, keep)
}

// ClaimForm notes that the form is being answered, and removes notes that ended before this moment. It reports false when
// it was claimed before: of several callers one answers it.
func ClaimForm(ctx context.Context, tx *Tx, form []byte, now, until time.Time) (bool, error) {
	if _, err := tx.Exec(ctx, "DELETE FROM browser_answers WHERE expires_at <= $1", Micros(now)); err != nil {
		return false, err
	}
	return changed(tx.Exec(ctx, "INSERT INTO browser_answers (form, answer, expires_at) VALUES ($1, $2, $3) ON CONFLICT (form) DO NOTHING",
		blob(form), []byte{}, Micros(until)))
}

// SwapFormAnswer replaces one sealed answer by another. It reports false if another call did so before.
func SwapFormAnswer(ctx context.Context, tx *Tx, form, from, to []byte) (bool, error) {
	return changed(tx.Exec(ctx, "UPDATE browser_answers SET answer = $3 WHERE form = $1 AND answer = $2",
		blob(form), blob(from), blob(to)))
}
