package auth

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// maxAuthorization bounds the line in bytes, as the header block of a request is bounded.
const maxAuthorization = 16 << 10

// signatureLife is how long a good signature of an API key is remembered.
const signatureLife = time.Hour

// Caller is who sent a request.
type Caller struct {
	Address toll.Address
	KeyID   toll.Hash
	Version string // API version pinned on the key, MAJOR.MINOR
	Rights  toll.Rights
	MadeBy  toll.KeyMaker // how the key was made
	Ends    time.Time     // of the key; zero: never
	UserID  toll.UUID     // the person under whose membership the key stands, or who signed in; zero: none
}

// errKey is the one answer to a key of ours that is not good any more, or never was: it does not tell which.
var errKey = toll.NewError(toll.CodeNotAuthenticated)

// Authenticate returns who sent the Authorization lines of a request. It makes no query for a key that this service
// did not sign, and at most one a second for one that it did. Errors are *toll.Error: 400 for two lines and for NUL,
// [toll.CodeHeadersTooLarge], [toll.CodeNotAuthenticated] (also without a line), [toll.CodeBadAuthorization],
// [toll.CodeKeyWrongEnvironment], [toll.CodeKeyMalformed], [toll.CodeKeyForeign], [toll.CodeDatabaseUnavailable].
func (a *Auth) Authenticate(ctx context.Context, authorization []string) (Caller, error) {
	now := a.clock()
	claims, sum, known, err := a.keyOf(authorization, now)
	if err != nil {
		return Caller{}, err
	}
	row, err := a.keyRecord(ctx, claims.ID, now)
	if err != nil {
		return Caller{}, err
	}
	// One test of all reasons, so that each takes the same way to the same answer.
	if row == nil || !claims.of(row, sum, now) || keyStatus(row, now) != toll.StatusActive || !row.SuspendedAt.IsZero() {
		return Caller{}, errKey
	}
	if !known {
		a.lineSums.Put(authorization[0], sum)
	}
	a.noteUse(row, now)
	return callerOf(row), nil
}

func callerOf(row *store.APIKey) Caller {
	return Caller{
		Address: row.Address, KeyID: row.ID, Version: row.Version, Rights: row.Rights, MadeBy: row.MadeBy, Ends: row.ExpiresAt, UserID: row.UserID,
	}
}

// CallerOf returns who calls with an API key that was authenticated before, as [Auth.Authenticate] would now. Errors:
// [toll.CodeNotAuthenticated] for a key that is over, or of another account, and [toll.CodeDatabaseUnavailable].
func (a *Auth) CallerOf(ctx context.Context, address toll.Address, id toll.Hash) (Caller, error) {
	now := a.clock()
	row, err := a.keyRecord(ctx, id, now)
	if err != nil {
		return Caller{}, err
	}
	if row == nil || row.Address != address || keyStatus(row, now) != toll.StatusActive || !row.SuspendedAt.IsZero() {
		return Caller{}, errKey
	}
	return callerOf(row), nil
}

// keyOf returns the claims of the API key in the Authorization lines, and the SHA-256 of its JWT or short key. known reports whether
// the line was accepted before, in which case its text was not parsed again.
func (a *Auth) keyOf(lines []string, now time.Time) (c *keyClaims, sum [32]byte, known bool, err error) {
	if len(lines) == 1 {
		sum, known = a.lineSums.Get(lines[0])
	}
	var jwt string
	if !known {
		if jwt, err = a.bearer(lines); err != nil {
			return nil, sum, false, err
		}
		sum = sumOf(jwt)
	}
	ks := a.keys()
	if c, ok := ks.signatures.Get(sum, now); ok {
		return c, sum, known, nil
	}
	if known {
		if jwt, err = a.bearer(lines); err != nil {
			return nil, sum, false, err
		}
	}
	if strings.HasPrefix(jwt, shortMark) {
		c, err = ks.shortKey(a.environment, jwt)
	} else {
		c, err = a.keySigned(ks, jwt)
	}
	if err == nil {
		ks.signatures.Put(sum, c, now.Add(signatureLife), now)
	}
	return c, sum, known, err
}

func (a *Auth) bearer(lines []string) (string, error) {
	switch len(lines) {
	case 0:
		return "", errKey
	case 1:
	default:
		return "", toll.Errorf(toll.CodeBadRequest, "Send only one Authorization header.")
	}
	line := lines[0]
	if strings.IndexByte(line, 0) >= 0 {
		return "", toll.Errorf(toll.CodeBadRequest, "The Authorization header must not contain a NUL byte.")
	}
	if len(line) > maxAuthorization {
		return "", toll.NewError(toll.CodeHeadersTooLarge)
	}
	scheme, key, ok := strings.Cut(line, " ")
	key = strings.Trim(key, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || key == "" || strings.ContainsAny(key, " \t") {
		return "", toll.NewError(toll.CodeBadAuthorization)
	}
	prefix, jwt, ok := strings.Cut(key, ":")
	if !ok {
		return key, nil
	}
	if prefix == string(otherEnvironment(a.environment)) {
		return "", toll.NewError(toll.CodeKeyWrongEnvironment)
	}
	if !prefixSyntax.MatchString(prefix) || strings.HasPrefix(jwt, shortMark) { // a short key has one form, without another prefix
		return "", toll.NewError(toll.CodeKeyMalformed)
	}
	return jwt, nil
}

// keySigned returns the claims of a long API key that this service signed for this environment, without a query.
func (a *Auth) keySigned(ks *keySet, jwt string) (*keyClaims, error) {
	_, segment, _, ok := splitCompact(jwt)
	if !ok {
		return nil, toll.NewError(toll.CodeKeyMalformed)
	}
	payload, ok := decodeSegment(segment)
	if !ok {
		return nil, toll.NewError(toll.CodeKeyMalformed)
	}
	claims, env, err := a.decodeKey(payload)
	if err != nil {
		return nil, err
	}
	_, key, err := ks.open(jwt)
	if err != nil {
		return nil, toll.NewError(toll.CodeKeyForeign).WithCause(err)
	}
	if env != a.environment {
		return nil, toll.NewError(toll.CodeKeyWrongEnvironment)
	}
	switch ours, err := a.knows(ks, claims.Issuer); {
	case err != nil:
		return nil, err
	case !ours:
		return nil, toll.NewError(toll.CodeKeyForeign).WithCause(errForeignIssuer)
	}
	if !key.passes(time.Unix(*claims.IssuedAt, 0)) {
		return nil, toll.NewError(toll.CodeKeyForeign).WithCause(errRetiredKey)
	}
	return claims, nil
}

// keyRecord returns the row of an API key, at most a second old; nil when there is none.
func (a *Auth) keyRecord(ctx context.Context, id toll.Hash, now time.Time) (*store.APIKey, error) {
	if row, ok := a.records.Get(id, now); ok {
		return row, nil
	}
	var row *store.APIKey
	err := a.alone(ctx, id, func() error {
		now := a.clock()
		var ok bool
		if row, ok = a.records.Get(id, now); ok {
			return nil // read by whoever was first
		}
		found, err := store.APIKeyByID(ctx, a.store, id)
		if err == nil {
			found.Rights, err = a.presentRights(ctx, &found)
		}
		switch {
		case err == nil:
			row = &found
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		a.records.Put(id, row, now.Add(snapshotLife), now)
		return nil
	})
	return row, err
}

// presentRights returns the rights of a key that its person has now. [store.ErrNotFound] when the person has left the workspace.
func (a *Auth) presentRights(ctx context.Context, row *store.APIKey) (toll.Rights, error) {
	if row.UserID.IsZero() {
		return row.Rights, nil
	}
	role, err := a.RoleOf(ctx, a.store, row.Address, row.UserID)
	return row.Rights.Within(role.Rights()), err
}

// RoleOf returns what a person is in a workspace now. [store.ErrNotFound] for who is not in, and for who is disabled.
func (a *Auth) RoleOf(ctx context.Context, q store.Querier, workspace toll.Address, user toll.UUID) (toll.Role, error) {
	m, err := store.MembershipOf(ctx, q, workspace, user)
	if err != nil {
		return "", err
	}
	u, err := store.UserByID(ctx, q, user)
	if err == nil && !u.DisabledAt.IsZero() {
		err = store.ErrNotFound
	}
	return m.Role, err
}

// alone runs f while no other call reads or changes a key of the same shard.
func (a *Auth) alone(ctx context.Context, id toll.Hash, f func() error) error {
	slot := a.reads[id[0]%keyLocks]
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-slot }()
	return f()
}
