package ledger

import (
	"encoding/json"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const permissionColumns = `permission_hash, plan_id, subscriber, agent_id, allowed_agents, scheme, network, delegation_id,
	redemption_limit, order_limit, redeemed, held, open_holds, orders, metadata, api_key_id, created_at, expires_at, revoked_at,
	last_burn`

const (
	sqlPermission = `SELECT ` + permissionColumns + ` FROM permissions WHERE account_id = $1 AND permission_hash = $2`

	// Outside of the lock of the account.
	sqlPermissionNow = `SELECT ` + hotPermissionColumns + hotPermissions + ` WHERE p.account_id = $1 AND p.permission_hash = $2`

	sqlPermissionByHash = `SELECT ` + hotPermissionColumns + hotPermissions + ` WHERE p.permission_hash = $1`

	sqlPermissionsOfDelegation = `SELECT ` + hotPermissionColumns + hotPermissions + `
		WHERE p.subscriber = $1 AND p.delegation_id = $2 AND p.revoked_at = 0 LIMIT $3`

	// The first condition is that of the partial index permissions_key, without which SQLite does not use it.
	sqlPermissionsOfKey = `SELECT ` + hotPermissionColumns + hotPermissions + `
		WHERE p.api_key_id <> '' AND p.api_key_id = $1 AND p.permission_hash > $2 AND p.revoked_at = 0 AND p.expires_at > $3
		ORDER BY p.permission_hash LIMIT $4`
	sqlPermissionToKey = `UPDATE permissions SET api_key_id = $3 WHERE account_id = $1 AND permission_hash = $2`

	sqlPermissionAdd = `INSERT INTO permissions (account_id, ` + permissionColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, 0)`
	sqlPermissionSave = `UPDATE permissions SET redeemed = $3, held = $4, open_holds = $5, last_burn = $6
		WHERE account_id = $1 AND permission_hash = $2`
	sqlPermissionsSave = `UPDATE permissions p SET redeemed = u.redeemed, held = u.held, open_holds = u.open_holds,
			last_burn = u.last_burn
		FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
			AS u(account_id, permission_hash, redeemed, held, open_holds, last_burn)
		WHERE p.account_id = u.account_id AND p.permission_hash = u.permission_hash`

	sqlPermissionTerms  = `UPDATE permissions SET orders = $3, revoked_at = $4 WHERE account_id = $1 AND permission_hash = $2`
	sqlPermissionsTerms = `UPDATE permissions p SET orders = u.orders, revoked_at = u.revoked_at
		FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[]) AS u(account_id, permission_hash, orders, revoked_at)
		WHERE p.account_id = u.account_id AND p.permission_hash = u.permission_hash`
)

// What a reader of permissions outside of the lock of the account selects: see [scanHotPermission].
const (
	hotPermissionColumns = `p.permission_hash, p.plan_id, p.subscriber, p.agent_id, p.allowed_agents, p.scheme, p.network,
	p.delegation_id, p.redemption_limit, p.order_limit, p.redeemed, p.held, p.open_holds, p.orders, p.metadata, p.api_key_id,
	p.created_at, p.expires_at, p.revoked_at, p.last_burn, a.hot`
	// An account that never ordered may have permissions and no row.
	joinHot        = `permissions p LEFT JOIN accounts a ON a.account_id = p.account_id`
	hotPermissions = ` FROM ` + joinHot
)

// scanHotPermission reads a permission with hotPermissionColumns.
func scanHotPermission(scan scanFunc, p *Permission) error {
	var text []byte
	var h hot
	err := scanPermission(func(dest ...any) error { return scan(append(dest, &text)...) }, p, &h)
	if err == nil {
		h, err = parseHot(string(text))
	}
	h.ofPermission(p)
	return err
}

// scanPermission reads a permission with permissionColumns. h comes from the row of its account, read before.
func scanPermission(scan scanFunc, p *Permission, h *hot) error {
	var hash []byte
	var subscriber, agents, key, metadata string
	var limit *int64
	var created, expires, revoked int64
	err := scan(&hash, &p.Plan, &subscriber, &p.Agent, &agents, &p.Scheme, &p.Network, &p.DelegationID, &limit, &p.OrderLimit,
		&p.Redeemed, &p.Held, &p.OpenHolds, &p.Orders, &metadata, &key, &created, &expires, &revoked, &p.lastBurn)
	if err != nil {
		return err
	}
	copy(p.Hash[:], hash)
	if p.Subscriber, err = toll.ParseAddress(subscriber); err != nil {
		return err
	}
	if agents != "" {
		if err := json.Unmarshal([]byte(agents), &p.AllowedAgents); err != nil {
			return err
		}
	}
	if limit != nil {
		p.RedemptionLimit = toll.Credits(*limit).Ptr()
	}
	if metadata != "" {
		p.Metadata = []byte(metadata)
	}
	if key != "" {
		h, err := toll.ParseHash(key)
		if err != nil {
			return err
		}
		p.APIKeyID = &h
	}
	p.CreatedAt, p.ExpiresAt = micro(created), micro(expires)
	if revoked != 0 {
		p.RevokedAt = micro(revoked)
	}
	h.ofPermission(p)
	return nil
}

// row returns all columns, in the order of sqlPermissionAdd.
func (p *Permission) row() ([]any, error) {
	agents := ""
	if len(p.AllowedAgents) > 0 {
		b, err := json.Marshal(p.AllowedAgents)
		if err != nil {
			return nil, err
		}
		agents = string(b)
	}
	key := ""
	if p.APIKeyID != nil {
		key = p.APIKeyID.String()
	}
	var limit *int64
	if p.RedemptionLimit != nil {
		n := int64(*p.RedemptionLimit)
		limit = &n
	}
	id := p.Account()
	return []any{
		id[:], p.Hash[:], string(p.Plan), p.Subscriber.Lower(), string(p.Agent), agents, p.Scheme, p.Network, p.DelegationID,
		limit, p.OrderLimit, int64(p.Redeemed), int64(p.Held), p.OpenHolds, p.Orders, string(p.Metadata), key,
		p.CreatedAt.UnixMicro(), p.ExpiresAt.UnixMicro(), micros(p.RevokedAt, 0),
	}, nil
}

// Record returns the permission as it is read, at a time, with uses of it.
func (p *Permission) Record(now time.Time, uses []toll.PermissionUse) *toll.Permission {
	r := &toll.Permission{
		PermissionHash: p.Hash, PlanID: p.Plan, OwnerAddress: p.Subscriber, SubscriberAddress: p.Subscriber,
		AllowedAgents: p.AllowedAgents, Scheme: p.Scheme, Network: p.Network, MaxCredits: p.RedemptionLimit,
		UsedCredits: p.Redeemed, MaxOrders: p.OrderLimit, UsedOrders: p.Orders, Status: toll.StatusActive,
		Metadata: json.RawMessage(p.Metadata), Transactions: uses, CreatedAt: toll.At(p.CreatedAt),
		ExpiresAt: toll.At(p.ExpiresAt), APIKeyID: p.APIKeyID, Closed: p.Closed(now),
		AgentID: store.NonZero(p.Agent), DelegationID: store.NonZero(p.DelegationID),
	}
	if uses == nil {
		r.Transactions = []toll.PermissionUse{}
	}
	if p.RedemptionLimit != nil {
		r.RemainingCredits = (*p.RedemptionLimit - p.Redeemed).Ptr()
	}
	switch {
	case !p.RevokedAt.IsZero():
		r.Status = toll.StatusRevoked
	case !now.Before(p.ExpiresAt):
		r.Status = toll.StatusExpired
	case p.usedUp():
		r.Status = toll.StatusExhausted
	}
	return r
}
