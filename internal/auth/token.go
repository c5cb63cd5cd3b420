package auth

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// aheadBy is how far iat and nbf may lie in the future, for clocks that differ. exp has no leeway.
const aheadBy = 60 * time.Second

var (
	errForeignIssuer = errors.New("auth: issued by another service or for another audience")
	errTooEarly      = errors.New("auth: issued in the future")
	errExpired       = toll.NewError(toll.CodePermissionExpired)
)

func audienceOf(issuer string) string { return issuer + "/x402" }

// SignToken signs an access token in its JWS form. An empty issuer is the current one; the audience of the issuer is
// added when missing; an issue time of zero is now. Fractions of seconds are cut off.
func (a *Auth) SignToken(c Claims) (string, error) {
	now := a.clock()
	c.Issuer = cmp.Or(c.Issuer, a.Issuer())
	if own := audienceOf(c.Issuer); !slices.Contains(c.Audience, own) {
		c.Audience = append([]string{own}, c.Audience...)
	}
	if c.IssuedAt.IsZero() {
		c.IssuedAt = now
	}
	payload, err := c.encode()
	if err != nil {
		return "", err
	}
	// What is signed can be verified: the reader's rules are the writer's.
	if _, err := decodeClaims(payload); err != nil {
		return "", err
	}
	jws, err := a.sign(payload)
	if err == nil && len(jws) > maxJWS {
		return "", toll.Errorf(toll.CodeBadRequest, "The access token would be longer than 8 KiB.")
	}
	return jws, err
}

// VerifyToken returns the claims of an access token in its JWS form, or a *toll.Error with [toll.CodeTokenSignature],
// [toll.CodePermissionExpired] or [toll.CodeDatabaseUnavailable], whose cause is for the log. An expired token that is good in everything
// else comes with its claims beside the error, as a held request settles after the end; every other error comes with nil. Whether the
// permission is known, revoked or exhausted is not looked at. The claims are shared with other callers: do not change them.
func (a *Auth) VerifyToken(jws string) (*Claims, error) {
	now := a.clock()
	ks := a.keys()
	if len(jws) > maxJWS {
		return nil, badToken(errNotJWS)
	}
	sum, known := a.tokenSums.Get(jws)
	if !known {
		sum = sumOf(jws)
	}
	if c, ok := ks.tokens.Get(sum, now); ok {
		if err := c.timely(now); err != nil {
			return nil, err
		}
		if !known {
			a.tokenSums.Put(jws, sum)
		}
		return c, nil
	}
	payload, key, err := ks.open(jws)
	if err != nil {
		return nil, badToken(err)
	}
	c, err := decodeClaims(payload)
	if err != nil {
		return nil, badToken(err)
	}
	if !key.passes(c.IssuedAt) {
		return nil, badToken(errRetiredKey)
	}
	if err := a.ours(ks, c); err != nil {
		return nil, err
	}
	if err := c.timely(now); err != nil {
		if errors.Is(err, errExpired) {
			return c, err
		}
		return nil, err
	}
	ks.tokens.Put(sum, c, c.ExpiresAt, now)
	return c, nil
}

func badToken(cause error) error { return toll.NewError(toll.CodeTokenSignature).WithCause(cause) }

// ours reports whether a token is of this service and environment. Issuer and audience then share the memory of the set.
func (a *Auth) ours(ks *keySet, c *Claims) error {
	switch ours, err := a.knows(ks, c.Issuer); {
	case err != nil:
		return err
	case !ours:
		return badToken(errForeignIssuer)
	}
	if !slices.Contains(c.Audience, audienceOf(c.Issuer)) {
		return badToken(errForeignIssuer)
	}
	if other := otherEnvironment(a.environment); c.Network == other.Network() || strings.EqualFold(c.Network, other.CardNetwork()) {
		return badToken(errForeignIssuer)
	}
	return nil
}

// timely puts expiry last: a token that is refused with it is good in everything else.
func (c *Claims) timely(now time.Time) error {
	if ahead := now.Add(aheadBy); c.IssuedAt.After(ahead) || c.NotBefore.After(ahead) {
		return badToken(errTooEarly)
	}
	if !now.Before(c.ExpiresAt) {
		return errExpired
	}
	return nil
}
