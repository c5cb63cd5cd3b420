package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// User is a person.
type User struct {
	ID         toll.UUID `db:"user_id,key"`
	Name       string    `db:"name,set"`
	Operator   bool      `db:"is_operator,set"`
	CreatedAt  time.Time `db:"created_at"`
	DisabledAt time.Time `db:"disabled_at,set"` // zero: not disabled
}

// Credential is one way in which a person signs in. Subject is unique within a kind.
type Credential struct {
	ID        toll.UUID `db:"credential_id,key"`
	UserID    toll.UUID `db:"user_id"`
	Kind      string    `db:"kind"`
	Subject   string    `db:"subject"`
	Name      string    `db:"name"`
	Secret    []byte    `db:"secret,set,empty"`
	CreatedAt time.Time `db:"created_at"`
	UsedAt    time.Time `db:"used_at,set"` // zero: never
}

// Membership is the role of a person in a workspace.
type Membership struct {
	Workspace toll.Address `db:"workspace,key"`
	UserID    toll.UUID    `db:"user_id,key"`
	Role      toll.Role    `db:"role,set"`
	CreatedAt time.Time    `db:"created_at"`
	// SpendLimit is what the member may have the workspace pay in a month, in cents; nil: no limit.
	SpendLimit *toll.Cents `db:"spend_limit_cents,set"`
	// SessionsFrom ends the access of sessions that began no later; zero: of none.
	SessionsFrom time.Time `db:"sessions_from,null,set"`
}

// Admits reports whether a session that began at a moment has access to the workspace.
func (m Membership) Admits(since time.Time) bool {
	return m.SessionsFrom.IsZero() || since.After(m.SessionsFrom)
}

// Link works once, for who knows the secret in it. Hash is the SHA-256 of that.
type Link struct {
	Hash      []byte    `db:"hash,key"`
	Kind      string    `db:"kind"`
	Workspace string    `db:"workspace"` // address in lower case, "" for none
	Role      toll.Role `db:"role"`      // "" for none
	UserID    toll.UUID `db:"user_id,null"`
	MadeBy    toll.UUID `db:"made_by,null"`
	Note      string    `db:"note"` // for whom it is, as its maker wrote
	CreatedAt time.Time `db:"created_at"`
	EndsAt    time.Time `db:"ends_at,set"`
	UsedAt    time.Time `db:"used_at,set"` // zero: not used
	UsedBy    toll.UUID `db:"used_by,null,set"`
}

// MailCode is a code that was sent by mail and waits to be typed. ID, Mail and Code are hashes.
type MailCode struct {
	ID     []byte    `db:"code_id,key"`
	Mail   []byte    `db:"mail"`
	Code   []byte    `db:"code"`
	Tries  int64     `db:"tries,set"` // wrong ones
	EndsAt time.Time `db:"ends_at"`
}

var (
	mailCodes      = newRecord[MailCode]("mail_codes")
	InsertMailCode = mailCodes.insert
	UpdateMailCode = mailCodes.update
	LockMailCode   = locked[[]byte](mailCodes, "code_id = $1")
	// MailCodesOf returns the codes of an address that end after a moment.
	MailCodesOf = listBy2[[]byte, time.Time](mailCodes, "mail = $1 AND ends_at > $2")

	users      = newRecord[User]("users")
	InsertUser = users.insert
	UpdateUser = users.update
	UserByID   = by[toll.UUID](users, "user_id = $1")

	credentials         = newRecord[Credential]("credentials")
	InsertCredential    = credentials.insert // [IsUnique] when the subject is taken
	UpdateCredential    = credentials.update
	CredentialByID      = by[toll.UUID](credentials, "credential_id = $1")
	CredentialBySubject = by2[string, string](credentials, "kind = $1 AND subject = $2")
	CredentialsOf       = listBy[toll.UUID](credentials, "user_id = $1 ORDER BY created_at, credential_id")

	memberships      = newRecord[Membership]("memberships")
	InsertMembership = memberships.insert // [IsUnique] for a person who is in already
	UpdateMembership = memberships.update
	MembershipOf     = by2[toll.Address, toll.UUID](memberships, "workspace = $1 AND user_id = $2")
	// LockMembership is [MembershipOf] for a member whose spending is counted: nobody else changes it, or adds to it, meanwhile. It comes
	// after the row of the account, and before that of the plan's orders.
	LockMembership = locked2[toll.Address, toll.UUID](memberships, "workspace = $1 AND user_id = $2")
	MembersOf      = listBy[toll.Address](memberships, "workspace = $1 ORDER BY created_at, user_id")
	MembershipsOf  = listBy[toll.UUID](memberships, "user_id = $1 ORDER BY created_at, workspace")

	links      = newRecord[Link]("links")
	InsertLink = links.insert
	UpdateLink = links.update
	LinkByHash = by[[]byte](links, "hash = $1")
	LockLink   = locked[[]byte](links, "hash = $1")
	// LinksOf returns the links of a workspace that are neither used nor over.
	LinksOf = listBy2[string, time.Time](links, "workspace = $1 AND used_at = 0 AND ends_at > $2 ORDER BY created_at, hash")
	// DeleteMembership removes a person from a workspace.
	DeleteMembership = runs2[toll.Address, toll.UUID](found, "DELETE FROM memberships WHERE workspace = $1 AND user_id = $2")
	// DeleteCredential removes a credential of a person; [ErrNotFound] for one of somebody else.
	DeleteCredential = runs2[toll.UUID, toll.UUID](found, "DELETE FROM credentials WHERE credential_id = $1 AND user_id = $2")
	// DeleteCredentials removes the credentials of a person of one kind.
	DeleteCredentials = runs2[toll.UUID, string](done, "DELETE FROM credentials WHERE user_id = $1 AND kind = $2")
	// LockUser returns a person, whose credentials nobody else changes until the transaction ends.
	LockUser = locked[toll.UUID](users, "user_id = $1")
	// SetUserOfKey puts a key under the membership of another person, with these rights.
	SetUserOfKey = runs3[toll.Hash, toll.UUID, toll.Rights](done,
		"UPDATE api_keys SET user_id = $2, rights = $3 WHERE id = $1")
	// SetUserOfOAuthGrant puts a consent under the membership of another person, with these rights.
	SetUserOfOAuthGrant = runs3[toll.Hash, toll.UUID, toll.Rights](done,
		"UPDATE oauth_grants SET user_id = $2, rights = $3 WHERE grant_id = $1")
	// EndLinks ends the links of a kind that are neither used nor over.
	EndLinks = runs2[string, time.Time](done, "UPDATE links SET ends_at = $2 WHERE kind = $1 AND used_at = 0 AND ends_at > $2")
	// DropLinks removes links that were over before a moment.
	DropLinks      = runs[time.Time](done, "DELETE FROM links WHERE ends_at < $1")
	DeleteMailCode = runs[[]byte](found, "DELETE FROM mail_codes WHERE code_id = $1")
	// PutMailStop stops codes to an address. A repeat changes nothing.
	PutMailStop = runs2[[]byte, time.Time](done, "INSERT INTO mail_stops (mail, created_at) VALUES ($1, $2) ON CONFLICT (mail) DO NOTHING")
	// DeleteMailStop allows codes to an address again.
	DeleteMailStop = runs[[]byte](done, "DELETE FROM mail_stops WHERE mail = $1")
	// DropMailCodes removes codes that ended before a moment.
	DropMailCodes = runs[time.Time](done, "DELETE FROM mail_codes WHERE ends_at < $1")
)

// EndLinksOf ends the links of a workspace that are neither used nor over, and returns how many.
func EndLinksOf(ctx context.Context, tx *Tx, workspace string, now time.Time) (int64, error) {
	return tx.Exec(ctx, "UPDATE links SET ends_at = $2 WHERE workspace = $1 AND used_at = 0 AND ends_at > $2", workspace, Micros(now))
}

func MemberList(ctx context.Context, q Querier, workspace toll.Address, p Page) (List[Membership], error) {
	return memberships.list(ctx, q, Listing{
		Where: "workspace = $1", Args: []any{workspace.Lower()}, ID: "user_id", Sorts: map[Sort]string{SortCreated: "created_at"},
	}, p)
}

// LockMembers returns the people of a workspace, whom nobody else changes until the transaction ends.
func LockMembers(ctx context.Context, tx *Tx, workspace toll.Address) ([]Membership, error) {
	return memberships.all(ctx, tx, "WHERE workspace = $1 ORDER BY user_id"+tx.ForUpdate(), workspace.Lower())
}

// ShareMembership returns the membership of a person, who stays what they are until the transaction ends, so that nothing is made
// by a person who leaves meanwhile. [ErrNotFound] for who is not in.
func ShareMembership(ctx context.Context, tx *Tx, workspace toll.Address, user toll.UUID) (Membership, error) {
	return memberships.one(ctx, tx, "WHERE workspace = $1 AND user_id = $2"+tx.ForShare(), workspace.Lower(), user[:])
}

// HasMailStop reports whether codes to an address are stopped; mail is the hash of the address.
func HasMailStop(ctx context.Context, q Querier, mail []byte) (bool, error) {
	rows, err := values[int64](ctx, q, "SELECT created_at FROM mail_stops WHERE mail = $1", blob(mail))
	return len(rows) > 0, err
}

// AnyUser reports whether somebody has signed up.
func AnyUser(ctx context.Context, q Querier) (bool, error) {
	ids, err := values[[]byte](ctx, q, "SELECT user_id FROM users LIMIT 1")
	return len(ids) > 0, err
}

func AnyMember(ctx context.Context, q Querier, workspace toll.Address) (bool, error) {
	ids, err := values[[]byte](ctx, q, "SELECT user_id FROM memberships WHERE workspace = $1 LIMIT 1", workspace.Lower())
	return len(ids) > 0, err
}

// KeysOf returns the keys of a workspace that are neither revoked nor over.
func KeysOf(ctx context.Context, q Querier, workspace toll.Address, now time.Time) ([]APIKey, error) {
	return apiKeys.all(ctx, q, "WHERE address = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2) ORDER BY id", workspace.Lower(), Micros(now))
}

// KeysOfUser returns the keys that stand under the membership of a person and are neither revoked nor over.
func KeysOfUser(ctx context.Context, q Querier, workspace toll.Address, user toll.UUID, now time.Time) ([]APIKey, error) {
	return apiKeys.all(ctx, q, "WHERE user_id = $1 AND address = $2 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $3) ORDER BY id",
		user[:], workspace.Lower(), Micros(now))
}

// OAuthGrantsOfUser returns the consents that stand under the membership of a person and are neither revoked nor over.
func OAuthGrantsOfUser(ctx context.Context, q Querier, workspace toll.Address, user toll.UUID, now time.Time) ([]OAuthGrant, error) {
	return oauthGrants.all(ctx, q, "WHERE user_id = $1 AND owner = $2 AND revoked_at = 0 AND ends_at > $3 ORDER BY grant_id",
		user[:], workspace.Lower(), Micros(now))
}
