package store

import (
	"context"
	"time"
)

// OAuthClient is a program that registered itself.
type OAuthClient struct {
	ID         string    `db:"client_id"`
	Name       string    `db:"name"`
	AuthMethod string    `db:"auth_method"`
	Secret     []byte    `db:"secret"` // SHA-256 of the client secret; empty for none
	Grants     []string  `db:"grants"` // words of grants
	Scope      string    `db:"scope"`
	Details    string    `db:"details"` // JSON of what is only shown
	CreatedAt  time.Time `db:"created_at"`
	UsedAt     time.Time `db:"used_at"` // [InsertOAuthClient] sets it
}

var (
	oauthClients    = newRecord[OAuthClient]("oauth_clients")
	OAuthClientByID = by[string](oauthClients, "client_id = $1")
	// RenewOAuthClient notes that a person is asked to let a client in that nobody let in before, whose answer goes to one of its
	// addresses: it gives way as if it had registered now.
	RenewOAuthClient = runs3[string, string, time.Time](done,
		`UPDATE oauth_redirects SET used_at = $3 WHERE client_id = $1 AND NOT granted AND (NOT shared OR redirect_uri = $2)
		AND used_at < $3`)
)

// OAuthRedirect is where answers to a client may go, and how the program there calls itself.
type OAuthRedirect struct {
	URI    string
	Name   string
	Shared bool   // the client has the addresses of many programs, and each goes when it is not used
	Source string // network that registered it; "" for none. It is not read
}

// InsertOAuthClient adds a client. One that stands for something known, which many programs register for, may be there
// already, and stays as it is.
func InsertOAuthClient(ctx context.Context, tx *Tx, c OAuthClient) error {
	c.UsedAt = c.CreatedAt
	_, err := oauthClients.insertOr(ctx, tx, c, "ON CONFLICT (client_id) DO NOTHING")
	return err
}

// InsertOAuthRedirect adds where answers to a client may go. What is there already stays as it is.
func InsertOAuthRedirect(ctx context.Context, tx *Tx, client string, r OAuthRedirect, now time.Time) error {
	return done(tx.Exec(ctx, `INSERT INTO oauth_redirects (client_id, redirect_uri, name, shared, used_at, granted, source)
		VALUES ($1, $2, $3, $4, $5, FALSE, $6) ON CONFLICT (client_id, redirect_uri) DO NOTHING`,
		client, r.URI, r.Name, r.Shared, Micros(now), optional(r.Source)))
}

// OAuthRedirectsNear returns the address of a client that is uri, if it has it, and those that begin with prefix, none when that
// is empty: at most n, those first that somebody let in, and of them those that were used last.
func OAuthRedirectsNear(ctx context.Context, q Querier, client, uri, prefix string, n int) ([]OAuthRedirect, error) {
	after := prefix
	if last := len(prefix) - 1; last >= 0 {
		after = prefix[:last] + string(rune(prefix[last]+1))
	}
	rows, err := q.Query(ctx, `SELECT redirect_uri, name, shared FROM oauth_redirects
		WHERE client_id = $1 AND (redirect_uri = $2 OR redirect_uri >= $3 AND redirect_uri < $4)
		ORDER BY redirect_uri = $2 DESC, granted DESC, used_at DESC, redirect_uri LIMIT $5`, client, uri, prefix, after, int64(n))
	return scanAll(rows, err, func(scan func(dest ...any) error) (r OAuthRedirect, err error) {
		return r, scan(&r.URI, &r.Name, &r.Shared)
	})
}

// CountUnusedOAuthRedirects returns how many addresses there are of clients that nobody has let in, counted up to most: those
// that a source registered, or all with "".
func CountUnusedOAuthRedirects(ctx context.Context, q Querier, source string, most int64) (int64, error) {
	return value[int64](ctx, q, `SELECT COUNT(*) FROM (SELECT 1 FROM oauth_redirects
		WHERE NOT granted AND ($2 = '' OR source = $2) LIMIT $1) r`, most, source)
}

// DropUnusedOAuthRedirects removes the n oldest addresses of clients that nobody has let in, registered before a moment by a source, or
// by any with "". A client goes with all its addresses, one that is shared stays without them. It returns how many addresses.
func DropUnusedOAuthRedirects(ctx context.Context, tx *Tx, source string, before time.Time, n int64) (int64, error) {
	return dropOAuthRedirects(ctx, tx, `SELECT client_id, redirect_uri, shared FROM oauth_redirects
		WHERE NOT granted AND used_at < $1 AND ($3 = '' OR source = $3)
		ORDER BY used_at, client_id, redirect_uri LIMIT $2`+tx.ForUpdate(), Micros(before), n, source)
}

// TrimOAuthClients removes clients that somebody let in while there are more than most addresses of them: those first that have no
// consent which holds at now, and of them, and of the others, those first that were not used for the longest time. What was used since
// before stays. A client goes with all its addresses, a shared one stays without those that go. It removes about n addresses, and
// returns how many.
func TrimOAuthClients(ctx context.Context, s *Store, now, before time.Time, most, n int64) (dropped int64, err error) {
	var known int64
	err = s.QueryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM oauth_redirects WHERE granted LIMIT $1) r", most+n).Scan(&known)
	if err != nil || known <= most {
		return 0, err
	}
	err = s.Tx(ctx, func(tx *Tx) error {
		dropped, err = dropOAuthRedirects(ctx, tx, `SELECT r.client_id, r.redirect_uri, r.shared FROM oauth_redirects r
			JOIN oauth_clients c ON c.client_id = r.client_id
			WHERE r.granted AND CASE WHEN r.shared THEN r.used_at ELSE c.used_at END < $2
			ORDER BY r.client_id IN (SELECT client_id FROM oauth_grants WHERE ends_at > $1 AND revoked_at = 0),
				CASE WHEN r.shared THEN r.used_at ELSE c.used_at END, r.client_id, r.redirect_uri LIMIT $3`+tx.ForUpdate(),
			Micros(now), Micros(before), known-most)
		return err
	})
	return dropped, err
}

// dropOAuthRedirects removes the addresses that a query gives, with its client, and whether it is shared: one that is not goes whole.
func dropOAuthRedirects(ctx context.Context, tx *Tx, q string, args ...any) (int64, error) {
	type address struct {
		client, uri string
		shared      bool
	}
	list, err := All(ctx, tx, func(scan func(dest ...any) error) (a address, err error) {
		return a, scan(&a.client, &a.uri, &a.shared)
	}, q, args...)
	if err != nil {
		return 0, err
	}
	dropped := int64(0)
	for _, a := range list {
		gone, err := tx.Exec(ctx, "DELETE FROM oauth_redirects WHERE client_id = $1 AND (NOT shared OR redirect_uri = $2)", a.client, a.uri)
		if err != nil {
			return 0, err
		}
		dropped += gone
		if a.shared {
			continue
		}
		if _, err := tx.Exec(ctx, "DELETE FROM oauth_clients WHERE client_id = $1", a.client); err != nil {
			return 0, err
		}
	}
	return dropped, nil
}

// TouchOAuthClient notes that a client and one of its addresses, "" for none, are used.
func TouchOAuthClient(ctx context.Context, tx *Tx, client, redirect string, now time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE oauth_clients SET used_at = $2 WHERE client_id = $1 AND used_at < $2", client, Micros(now))
	if err != nil || redirect == "" {
		return err
	}
	return done(tx.Exec(ctx, "UPDATE oauth_redirects SET used_at = $3 WHERE client_id = $1 AND redirect_uri = $2 AND used_at < $3",
		client, redirect, Micros(now)))
}

// GrantOAuthClient notes that somebody let a client in, whose answer goes to one of its addresses, "" for none. From then on
// it does not give way to others.
func GrantOAuthClient(ctx context.Context, tx *Tx, client, redirect string, now time.Time) error {
	if err := TouchOAuthClient(ctx, tx, client, redirect, now); err != nil {
		return err
	}
	return done(tx.Exec(ctx, "UPDATE oauth_redirects SET granted = TRUE WHERE client_id = $1 AND NOT granted AND (NOT shared OR redirect_uri = $2)",
		client, redirect))
}

// DropOAuthClients removes clients that were last used before a moment, at most n, and shared addresses. It returns how many clients.
func DropOAuthClients(ctx context.Context, s *Store, before time.Time, n int) (int, error) {
	dropped := 0
	err := s.Tx(ctx, func(tx *Tx) error {
		gone, err := values[string](ctx, tx, "SELECT client_id FROM oauth_clients WHERE used_at < $1 LIMIT $2"+tx.ForUpdate(), Micros(before), int64(n))
		if err != nil {
			return err
		}
		for _, id := range gone {
			if _, err := tx.Exec(ctx, "DELETE FROM oauth_redirects WHERE client_id = $1", id); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "DELETE FROM oauth_clients WHERE client_id = $1", id); err != nil {
				return err
			}
		}
		dropped = len(gone)
		return done(tx.Exec(ctx, "DELETE FROM oauth_redirects WHERE shared AND used_at < $1", Micros(before)))
	})
	return dropped, err
}
