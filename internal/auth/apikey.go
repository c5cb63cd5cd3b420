package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// KeyParams says what a new API key is like.
type KeyParams struct {
	Name string // at most 100 printable characters; empty = none
	// ExpiresAt is when the key ends, cut to whole seconds; zero = never.
	ExpiresAt time.Time
	// Version is the pinned API version, MAJOR.MINOR, checked by the caller; empty is [Config.Version].
	Version string
	// Form of the key; empty is the long form with a Prefix, else the form of the service.
	Form toll.KeyForm
	// Prefix of a long key, the environment or the prefix of the operator; empty is the latter.
	Prefix string
	// Issue is what the authorization server records with the key; nil: it is not made of a grant.
	Issue *store.OAuthIssue
	// Rights of the key; nil are all that its maker can give.
	Rights toll.Rights
}

// KeyUpdate names what changes of an API key. At least one member must be set.
type KeyUpdate struct {
	SetName bool    // change the name to Name
	Name    *string // nil clears the name
	Version *string // new pin, checked by the caller
}

// keyClaims is the payload of the JWT of an API key without the claim that names the environment: the name of that one is configuration.
type keyClaims struct {
	Issuer        string       `json:"iss"`
	Subject       toll.Address `json:"sub"`
	ID            toll.Hash    `json:"jti"`
	IssuedAt      *int64       `json:"iat"`
	ExpiresAt     *int64       `json:"exp,omitempty"`
	Observability string       `json:"o11y"`

	short *shortClaims // of a short key, which has only an ID beside it
}

type environmentClaim struct {
	Environment toll.Environment `json:"environment"`
}

// reserved are the members that a claim object cannot be named after.
var reserved = map[string]bool{
	"iss": true, "sub": true, "aud": true, "jti": true, "iat": true, "exp": true, "nbf": true, "o11y": true,
	"x402Version": true, "planId": true, "agentId": true, "authorization": true, "credits": true, "accepted": true,
}

func (a *Auth) encodeKey(c keyClaims) ([]byte, error) {
	head, err := encodeExact(c)
	if err != nil {
		return nil, err
	}
	tail, err := stdjson.Marshal(map[string]environmentClaim{a.claimObject: {a.environment}})
	if err != nil {
		return nil, err
	}
	return append(append(bytes.TrimSuffix(head, []byte("}")), ','), tail[1:]...), nil
}

// decodeKey reads the payload of an API key. The error is a *toll.Error.
func (a *Auth) decodeKey(payload []byte) (*keyClaims, toll.Environment, error) {
	var members map[string]json.RawMessage
	if err := decodeStrict(payload, &members); err != nil {
		return nil, "", toll.NewError(toll.CodeKeyMalformed)
	}
	if members["aud"] != nil || members["x402Version"] != nil {
		return nil, "", toll.NewError(toll.CodeKeyForeign).WithHint("This is an access token. Send an API key instead.")
	}
	var c keyClaims
	if err := decodeStrict(payload, &c); err != nil || c.Subject.IsZero() || c.ID.IsZero() || c.Observability == "" {
		return nil, "", toll.NewError(toll.CodeKeyMalformed)
	}
	var env environmentClaim
	raw := members[a.claimObject]
	if raw == nil {
		return nil, "", otherBrand(a.claimObject, members)
	}
	if decodeStrict(raw, &env) != nil || c.IssuedAt == nil {
		return nil, "", toll.NewError(toll.CodeKeyForeign)
	}
	return &c, env.Environment, nil
}

// otherBrand returns the error for a key without the claim of this namespace. If another claim names an environment, the error names its
// brand, which is not verified because the signature belongs to another service.
func otherBrand(ours string, members map[string]json.RawMessage) *toll.Error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var env environmentClaim
		if memberSyntax.MatchString(name) && !reserved[name] &&
			decodeStrict(members[name], &env) == nil &&
			(env.Environment == toll.Sandbox || env.Environment == toll.Live) {
			return toll.Errorf(toll.CodeKeyForeign, "This API key belongs to the namespace %q; the namespace here is %q.",
				name, ours).
				WithHint("Use an API key of this service, or call the service that created this key.")
		}
	}
	return toll.NewError(toll.CodeKeyForeign)
}

// CreateKey makes an API key: its rights are rights of the maker, and it ends no later. The answer is the only place where its
// text ever is. once may be nil. Errors: [toll.CodeKeyExpiryPast], [toll.CodeBadRequest], [toll.CodeRightMissing]; [toll.CodeForbidden] for a key that
// would end later than its maker; [toll.CodeNotAuthenticated] when that has ended meanwhile.
func (a *Auth) CreateKey(ctx context.Context, m Maker, p KeyParams, once *store.Once) (toll.APIKey, error) {
	now := a.clock()
	if !validName(p.Name) {
		return toll.APIKey{}, toll.Errorf(toll.CodeBadRequest, "A name must be at most 100 printable characters.")
	}
	p.Version = cmp.Or(p.Version, a.version)
	prefix, err := prefixFor(a, p)
	if err != nil {
		return toll.APIKey{}, err
	}
	ends := p.ExpiresAt.Truncate(time.Second)
	if !p.ExpiresAt.IsZero() && (!ends.After(now) || ends.Unix() > lastSecond) {
		return toll.APIKey{}, toll.NewError(toll.CodeKeyExpiryPast)
	}
	rights, ends, err := m.bound(p.Rights, ends)
	if err != nil {
		return toll.APIKey{}, err
	}

	row := store.APIKey{
		ID: toll.NewHash(), Address: m.Address, Name: p.Name, Prefix: prefix, Version: p.Version, CreatedAt: now, ExpiresAt: ends,
		MadeBy: m.By, Parent: m.Parent, Rights: rights, UserID: m.UserID,
	}
	text, err := a.signKey(&row)
	if err != nil {
		return toll.APIKey{}, err
	}
	k := a.record(&row)
	k.Key = text
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		maker := Caller{Address: m.Address, UserID: m.UserID}
		if m.By == toll.MadeByKey {
			maker.KeyID = m.Parent
		}
		if err := a.Lock(ctx, tx, maker); err != nil {
			return err
		}
		if err := store.InsertAPIKey(ctx, tx, row); err != nil {
			return err
		}
		if err := store.PutOAuthIssue(ctx, tx, p.Issue, k.ID); err != nil {
			return err
		}
		if err := store.PutAnswer(ctx, tx, once, &k); err != nil {
			return err
		}
		return a.notify(ctx, tx, toll.EventAPIKeyCreated, row)
	})
	if err != nil {
		return toll.APIKey{}, err
	}
	return k, nil
}

// prefixFor returns the prefix of a new key, which determines its form. Errors: [toll.CodeBadRequest].
func prefixFor(a *Auth, p KeyParams) (string, error) {
	short, form := a.environment.ShortKeyPrefix(), p.Form
	if form == "" && p.Prefix == "" {
		form = a.KeyForm()
	}
	switch {
	case form != "" && form != toll.KeyShort && form != toll.KeyLong:
		return "", toll.Faults([]toll.Fault{{Path: "form", Message: "must be short or long"}})
	case form == toll.KeyShort && p.Prefix != "":
		return "", toll.Faults([]toll.Fault{{Path: "prefix", Message: "cannot be combined with the short form, whose prefix is " + short}})
	case form == toll.KeyShort:
		return short, nil
	}
	prefix := cmp.Or(p.Prefix, a.prefix)
	if prefix != a.prefix && prefix != string(a.environment) {
		return "", toll.Errorf(toll.CodeBadRequest, "The prefix must be the configured key prefix or the environment of this service.")
	}
	return prefix, nil
}

// signKey returns the text of a key with its prefix, and sets what the row keeps of it; for a short key, that includes the id.
func (a *Auth) signKey(row *store.APIKey) (string, error) {
	if strings.HasPrefix(row.Prefix, shortMark) {
		key, err := signerOf(a.keys().keys, row.CreatedAt)
		if err != nil {
			return "", err
		}
		return key.newShortKey(row), nil
	}
	word := make([]byte, 8)
	_, _ = rand.Read(word) // never fails since Go 1.24
	payload, err := a.encodeKey(keyClaims{
		Issuer: a.Issuer(), Subject: row.Address, ID: row.ID, IssuedAt: unixPtr(row.CreatedAt), ExpiresAt: unixPtr(row.ExpiresAt),
		Observability: hex.EncodeToString(word),
	})
	if err != nil {
		return "", err
	}
	jwt, err := a.sign(payload)
	if err != nil {
		return "", err
	}
	sum := sumOf(jwt)
	row.Hash, row.Tail = sum[:], jwt[len(jwt)-6:]
	return row.Prefix + ":" + jwt, nil
}

func (a *Auth) record(row *store.APIKey) toll.APIKey {
	k := toll.APIKey{
		ID: row.ID, Prefix: row.Prefix, Tail: row.Tail, Address: row.Address, Version: row.Version,
		Status: keyStatus(row, a.clock()), CreatedAt: toll.At(row.CreatedAt),
		ExpiresAt: toll.AtPtr(row.ExpiresAt), LastUsedAt: toll.AtPtr(row.LastUsedAt), MadeBy: row.MadeBy, Rights: row.Rights,
		Parent: store.NonZero(row.Parent), Name: store.NonZero(row.Name),
	}
	if !row.UserID.IsZero() {
		k.UserID = row.UserID.String()
	}
	return k
}

func keyStatus(row *store.APIKey, now time.Time) toll.PermissionStatus {
	switch {
	case !row.RevokedAt.IsZero():
		return toll.StatusRevoked
	case !row.ExpiresAt.IsZero() && !now.Before(row.ExpiresAt):
		return toll.StatusExpired
	}
	return toll.StatusActive
}

// Key returns an API key of the owner, or an error with [toll.CodeKeyNotFound], for a key of someone else too.
func (a *Auth) Key(ctx context.Context, owner toll.Address, id toll.Hash) (toll.APIKey, error) {
	row, err := ownedKey(ctx, a.store, owner, id)
	if err != nil {
		return toll.APIKey{}, err
	}
	return a.record(&row), nil
}

// Keys lists the API keys of the owner, revoked and expired ones too.
func (a *Auth) Keys(ctx context.Context, owner toll.Address, page store.Page) (store.List[toll.APIKey], error) {
	rows, err := store.APIKeys(ctx, a.store, owner, page)
	return store.Map(rows, func(k store.APIKey) toll.APIKey { return a.record(&k) }), err
}

// KeysOf returns the API keys that a key made and that still work.
func (a *Auth) KeysOf(ctx context.Context, id toll.Hash) ([]toll.APIKey, error) {
	rows, err := store.KeysOfParent(ctx, a.store, id, a.clock())
	return store.Mapped(rows, func(k store.APIKey) toll.APIKey { return a.record(&k) }), err
}

func ownedKey(ctx context.Context, q store.Querier, owner toll.Address, id toll.Hash) (store.APIKey, error) {
	row, err := store.APIKeyByID(ctx, q, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.Address != owner {
		return store.APIKey{}, toll.NewError(toll.CodeKeyNotFound).WithDetails("id %s", id)
	}
	return row, err
}

// UpdateKey changes name and pin of an API key. Errors: [toll.CodeKeyNothingToUpdate], [toll.CodeKeyNotFound], [toll.CodeBadRequest].
func (a *Auth) UpdateKey(ctx context.Context, owner toll.Address, id toll.Hash, u KeyUpdate) (toll.APIKey, error) {
	if !u.SetName && u.Version == nil {
		return toll.APIKey{}, toll.NewError(toll.CodeKeyNothingToUpdate)
	}
	if u.SetName && u.Name != nil && !validName(*u.Name) {
		return toll.APIKey{}, toll.Errorf(toll.CodeBadRequest, "A name must be at most 100 printable characters.")
	}
	return a.changeKey(ctx, owner, id, func(tx *store.Tx, row *store.APIKey) error {
		before := map[string]string{"name": row.Name, "version": row.Version}
		if u.SetName {
			row.Name = ""
			if u.Name != nil {
				row.Name = *u.Name
			}
		}
		if u.Version != nil {
			row.Version = *u.Version
		}
		if err := store.UpdateAPIKey(ctx, tx, id, row.Name, row.Version); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.Act{
			Workspace: owner.Lower(), Act: "api_key.updated", Object: id.String(), At: a.clock(),
			Detail: store.Changed{Before: before, After: map[string]string{"name": row.Name, "version": row.Version}},
		})
	})
}

// notify writes the event of each key. It comes last in the transaction.
func (a *Auth) notify(ctx context.Context, tx *store.Tx, t toll.EventType, rows ...store.APIKey) error {
	events := make([]store.NewEvent, len(rows))
	for i := range rows {
		row := &rows[i]
		at := row.RevokedAt
		if at.IsZero() {
			at = row.CreatedAt
		}
		events[i] = store.NewEvent{Principal: row.Address, Type: t, Kind: "api_key", ID: row.ID.String(), Data: a.record(row), At: at}
	}
	return store.InsertEvent(ctx, tx, events...)
}

// changeKey runs a change while no read of the key can bring an older row into the cache.
func (a *Auth) changeKey(ctx context.Context, owner toll.Address, id toll.Hash, change func(*store.Tx, *store.APIKey) error) (toll.APIKey, error) {
	var row store.APIKey
	err := a.alone(ctx, id, func() error {
		defer a.records.Drop(id) // also after an error: the commit may have happened
		return a.store.Tx(ctx, func(tx *store.Tx) error {
			var err error
			if row, err = ownedKey(ctx, tx, owner, id); err != nil {
				return err
			}
			return change(tx, &row)
		})
	})
	if err != nil {
		return toll.APIKey{}, err
	}
	return a.record(&row), nil
}
