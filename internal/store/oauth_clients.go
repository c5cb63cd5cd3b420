package store

import (
	"context"
	"strings"
	"time"
)

// OAuthClient is a program that registered itself.
type OAuthClient struct {
	ID         string
	Name       string
	AuthMethod string
	Secret     []byte   // SHA-256 of the client secret; empty for none
	Grants     []string // words of grants
	Scope      string
	Details    string // JSON of what is only shown
	CreatedAt  time.Time
}

// OAuthRedirect is where answers to a client may go, and how the program there calls itself.
type OAuthRedirect struct {
	URI    string
	Name   string
	Shared bool // the client has the addresses of many programs, and each goes when it is not used
}

// InsertOAuthClient adds a client. One that stands for something known, which many programs register for, may be there
// already, and stays as it is.
func InsertOAuthClient(ctx context.Context, tx *Tx, c OAuthClient) error {
	_, err := tx.Exec(ctx, `INSERT INTO oauth_clients (client_id, name, auth_method, secret, grants, scope, details, created_at, used_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT (client_id) DO NOTHING`,
		c.ID, c.Name, c.AuthMethod, blob(c.Secret), strings.Join(c.Grants, " "), c.Scope, c.Details, Micros(c.CreatedAt))
	return err
}

// InsertOAuthRedirect adds where answers to a client may go. What is there already stays as it is.
func InsertOAuthRedirect(ctx context.Context, tx *Tx, client string, r OAuthRedirect, now time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO oauth_redirects (client_id, redirect_uri, name, shared, used_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (client_id, redirect_uri) DO NOTHING`, client, r.URI, r.Name, r.Shared, Micros(now))
	return err
}

// OAuthClientByID returns a client, or [ErrNotFound].
func OAuthClientByID(ctx context.Context, q Querier, id string) (OAuthClient, error) {
	c := OAuthClient{ID: id}
	var grants string
	var created int64
	err := q.QueryRow(ctx, "SELECT name, auth_method, secret, grants, scope, details, created_at FROM oauth_clients WHERE client_id = $1", id).
		Scan(&c.Name, &c.AuthMethod, &c.Secret, &grants, &c.Scope, &c.Details, &created)
	c.Grants, c.CreatedAt = strings.Fields(grants), FromMicros(created)
	return c, err
}

// OAuthRedirects returns at most n of the addresses of a client, those that were used last first.
func OAuthRedirects(ctx context.Context, q Querier, client string, n int) ([]OAuthRedirect, error) {
	rows, err := q.Query(ctx, `SELECT redirect_uri, name, shared FROM oauth_redirects WHERE client_id = $1
		ORDER BY used_at DESC, redirect_uri LIMIT $2`, client, int64(n))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []OAuthRedirect
	for rows.Next() {
		var r OAuthRedirect
		if err := rows.Scan(&r.URI, &r.Name, &r.Shared); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// CountOAuthClients returns how many addresses of clients there are, counted up to most.
func CountOAuthClients(ctx context.Context, q Querier, most int64) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM oauth_redirects LIMIT $1) r", most).Scan(&n)
	return n, err
}

// CountOAuthRedirects returns how many addresses a client has, counted up to most.
func CountOAuthRedirects(ctx context.Context, q Querier, client string, most int64) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM oauth_redirects WHERE client_id = $1 LIMIT $2) r", client, most).Scan(&n)
	return n, err
}

// TouchOAuthClient notes that a client and one of its addresses, "" for none, are used.
func TouchOAuthClient(ctx context.Context, tx *Tx, client, redirect string, now time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE oauth_clients SET used_at = $2 WHERE client_id = $1 AND used_at < $2", client, Micros(now))
	if err != nil || redirect == "" {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE oauth_redirects SET used_at = $3 WHERE client_id = $1 AND redirect_uri = $2 AND used_at < $3",
		client, redirect, Micros(now))
	return err
}

// DropOAuthClients removes clients that were last used before a moment, at most n, and shared addresses. It returns how many
// clients.
func DropOAuthClients(ctx context.Context, s *Store, before time.Time, n int) (int, error) {
	dropped := 0
	err := s.Tx(ctx, func(tx *Tx) error {
		gone, err := texts(ctx, tx, "SELECT client_id FROM oauth_clients WHERE used_at < $1 LIMIT $2"+tx.ForUpdate(), Micros(before), int64(n))
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
		_, err = tx.Exec(ctx, "DELETE FROM oauth_redirects WHERE shared AND used_at < $1", Micros(before))
		return err
	})
	return dropped, err
}

func texts(ctx context.Context, tx *Tx, q string, args ...any) ([]string, error) {
	rows, err := tx.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}
