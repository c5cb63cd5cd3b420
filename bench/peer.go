package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// peerRole settles as one would write it at first: a transaction for each request, and the same guarantees. A request id burns once and has
// one answer, the balance and the limit of the permission hold, entries are chained, a commit is on disk before its answer.
type peerRole struct {
	serviceRole
	Answer []byte
}

var peerTables = []string{
	`CREATE TABLE peer_accounts (account BYTEA PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0),
		seq BIGINT NOT NULL, commitment BYTEA NOT NULL)`,
	`CREATE TABLE peer_lots (account BYTEA NOT NULL, lot BIGINT NOT NULL, remaining BIGINT NOT NULL CHECK (remaining >= 0),
		PRIMARY KEY (account, lot))`,
	`CREATE TABLE peer_permissions (account BYTEA NOT NULL, hash BYTEA NOT NULL, redeemed BIGINT NOT NULL, most BIGINT NOT NULL,
		CHECK (redeemed <= most), PRIMARY KEY (account, hash))`,
	`CREATE TABLE peer_requests (account BYTEA NOT NULL, request TEXT NOT NULL, content BYTEA NOT NULL, seq BIGINT NOT NULL,
		answer BYTEA NOT NULL, PRIMARY KEY (account, request))`,
	`CREATE TABLE peer_entries (account BYTEA NOT NULL, seq BIGINT NOT NULL, amount BIGINT NOT NULL, balance BIGINT NOT NULL,
		ref TEXT NOT NULL, at BIGINT NOT NULL, commitment BYTEA NOT NULL UNIQUE, PRIMARY KEY (account, seq))`,
}

func peerCreate(ctx context.Context, tx *store.Tx) error {
	for _, table := range peerTables {
		if _, err := tx.Exec(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// peerOpen makes the account of a token at its first request. Of two first requests one fails, which the taste before the first
// slice prevents.
func peerOpen(ctx context.Context, tx *store.Tx, account []byte) error {
	return tx.Run(ctx,
		store.Stmt{SQL: "INSERT INTO peer_accounts VALUES ($1, $2, 0, $1)", Args: []any{account, int64(plenty)}},
		store.Stmt{SQL: "INSERT INTO peer_lots VALUES ($1, 1, $2)", Args: []any{account, int64(plenty)}},
		store.Stmt{SQL: "INSERT INTO peer_permissions VALUES ($1, $1, 0, $2)", Args: []any{account, int64(plenty)}},
	)
}

func (p *peerRole) open(ctx context.Context) (*underTest, error) {
	answer, err := echoAnswer(p.Answer)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, store.Config{Data: p.Data, Database: p.Database, Schema: store.MakeSchema, Log: logger()})
	if err != nil {
		return nil, err
	}
	if err := st.Tx(ctx, func(tx *store.Tx) error { return peerCreate(ctx, tx) }); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	u := plain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in echoRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = x402.Decode(body, &in)
		}
		if err != nil || in.MaxAmount == nil {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		out, err := answer(&in)
		if err == nil {
			out, err = peerSettle(r.Context(), st, &in, body, out)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out)
	}))
	u.end = func(context.Context, bool) (*audit, error) { return nil, st.Close() }
	return u, nil
}

func peerSettle(ctx context.Context, st *store.Store, in *echoRequest, body, answer []byte) (out []byte, err error) {
	sum, content := sha256.Sum256([]byte(in.AccessToken)), sha256.Sum256(body)
	account, amount := sum[:], int64(*in.MaxAmount)
	err = st.Tx(ctx, func(tx *store.Tx) error {
		var balance, seq, lot, redeemed, most int64
		var last, known []byte
		err := tx.QueryRow(ctx, "SELECT balance, seq, commitment FROM peer_accounts WHERE account = $1"+tx.ForUpdate(), account).
			Scan(&balance, &seq, &last)
		if errors.Is(err, store.ErrNotFound) {
			balance, last, err = int64(plenty), account, peerOpen(ctx, tx, account)
		}
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, "SELECT content, answer FROM peer_requests WHERE account = $1 AND request = $2", account, in.AgentRequestID).
			Scan(&known, &out)
		switch {
		case err == nil && string(known) == string(content[:]):
			return nil
		case err == nil:
			return errors.New("another request used this id")
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		err = errors.Join(
			tx.QueryRow(ctx, "SELECT redeemed, most FROM peer_permissions WHERE account = $1 AND hash = $2", account, account).
				Scan(&redeemed, &most),
			tx.QueryRow(ctx, "SELECT lot FROM peer_lots WHERE account = $1 AND remaining >= $2 ORDER BY lot LIMIT 1", account, amount).
				Scan(&lot),
		)
		if err != nil {
			return err
		}
		if balance < amount || most-redeemed < amount {
			return errors.New("not enough credits")
		}
		seq, balance = seq+1, balance-amount
		entry := binary.BigEndian.AppendUint64(append([]byte{}, last...), uint64(seq))
		commitment := sha256.Sum256(append(binary.BigEndian.AppendUint64(entry, uint64(amount)), in.AgentRequestID...))
		out = answer
		return tx.Run(ctx,
			store.Stmt{SQL: "UPDATE peer_accounts SET balance = $2, seq = $3, commitment = $4 WHERE account = $1",
				Args: []any{account, balance, seq, commitment[:]}},
			store.Stmt{SQL: "UPDATE peer_lots SET remaining = remaining - $3 WHERE account = $1 AND lot = $2",
				Args: []any{account, lot, amount}},
			store.Stmt{SQL: "UPDATE peer_permissions SET redeemed = redeemed + $3 WHERE account = $1 AND hash = $2",
				Args: []any{account, account, amount}},
			store.Stmt{SQL: "INSERT INTO peer_entries VALUES ($1, $2, $3, $4, $5, $6, $7)",
				Args: []any{account, seq, amount, balance, in.AgentRequestID, time.Now().UnixMicro(), commitment[:]}},
			store.Stmt{SQL: "INSERT INTO peer_requests VALUES ($1, $2, $3, $4, $5)",
				Args: []any{account, in.AgentRequestID, content[:], seq, answer}},
		)
	})
	return out, err
}
