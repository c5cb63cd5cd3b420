package store

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// Kinds of records that [Search] finds.
const (
	FoundPlan       = "plan"
	FoundAgent      = "agent"
	FoundOrder      = "order"
	FoundKey        = "apiKey"
	FoundPermission = "permission"
	FoundDelegation = "delegation"
	FoundWebhook    = "webhook"
)

type Found struct {
	ID        string // as the API names the record
	Name      string // "" for none
	CreatedAt time.Time
}

// Shortest prefixes, in characters, of ids that are found through an index of all accounts: of these one prefix leads to
// few rows. The first 13 characters of the id of an order are the time of its making in milliseconds.
const (
	minOrderPrefix = 13
	minHashPrefix  = 6 // "0x" and two bytes
)

// Search returns records of one kind of an address whose id begins with a text or, of plans, agents and API keys, whose
// name does in any case of ASCII letters: at most limit, in the order of their ids. An order belongs to its buyer and to
// its seller; its id is found from 13 characters on, and that of a permission from 6. The zero address searches the plans or the agents
// of all addresses.
func Search(ctx context.Context, q Querier, kind string, owner toll.Address, text string, limit int) ([]Found, error) {
	var statement string
	who, id := owner.Lower(), strings.ToLower(text)
	args := []any{who, id, id + "\x7f", int64(limit)}
	switch kind {
	case FoundPlan, FoundAgent:
		compare := "="
		if owner.IsZero() {
			compare = "<>" // no record has this owner
		}
		statement = "SELECT " + kind + "_id, name, created_at FROM " + kind + "s WHERE owner " + compare + " $1 AND (" + kind + "_id >= $2 AND " +
			kind + "_id < $3 OR substr(lower(name), 1, length(CAST($5 AS TEXT))) = CAST($5 AS TEXT)) ORDER BY " + kind + "_id LIMIT $4"
		args = append(args, id)
	case FoundKey:
		statement = `SELECT id, COALESCE(name, ''), created_at FROM api_keys WHERE address = $1 AND (id >= $2 AND id <= $3
			OR substr(lower(name), 1, length(CAST($5 AS TEXT))) = CAST($5 AS TEXT)) ORDER BY id LIMIT $4`
		from, to, ok := hashRange(id)
		if !ok {
			from, to = []byte{1}, []byte{0} // no hash is between
		}
		args = []any{who, from, to, int64(limit), id}
	case FoundPermission:
		statement = `SELECT permission_hash, '', created_at FROM permissions WHERE permission_hash >= $2 AND permission_hash <= $3
			AND subscriber = $1 ORDER BY permission_hash LIMIT $4`
		from, to, ok := hashRange(id)
		if !ok || len(id) < minHashPrefix {
			return nil, nil
		}
		args[1], args[2] = from, to
	case FoundOrder:
		statement = `SELECT order_id, '', created_at FROM orders WHERE order_id >= $2 AND order_id < $3
			AND (seller = $1 OR subscriber = $1) ORDER BY order_id LIMIT $4`
		if len(id) < minOrderPrefix {
			return nil, nil
		}
	case FoundDelegation:
		statement = `SELECT delegation_id, '', created_at FROM delegations WHERE owner = $1 AND delegation_id >= $2 AND delegation_id < $3
			ORDER BY delegation_id LIMIT $4`
	case FoundWebhook:
		statement = `SELECT webhook_id, url, created_at FROM webhooks WHERE principal = $1 AND webhook_id >= $2 AND webhook_id < $3
			ORDER BY webhook_id LIMIT $4`
	}
	return All(ctx, q, func(scan func(dest ...any) error) (f Found, err error) {
		var at int64
		if kind == FoundKey || kind == FoundPermission {
			var raw []byte
			err = scan(&raw, &f.Name, &at)
			f.ID = "0x" + hex.EncodeToString(raw)
		} else {
			err = scan(&f.ID, &f.Name, &at)
		}
		f.CreatedAt = FromMicros(at)
		return f, err
	}, statement, args...)
}

// hashRange returns the first and the last hash that begin with a text, false when none does.
func hashRange(text string) (from, to []byte, ok bool) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok || len(digits) > 64 {
		return nil, nil, false
	}
	from, err := hex.DecodeString(digits + strings.Repeat("0", 64-len(digits)))
	if err != nil {
		return nil, nil, false
	}
	to, err = hex.DecodeString(digits + strings.Repeat("f", 64-len(digits)))
	return from, to, err == nil
}
