package auth

import (
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// reference is the payload of a signed text that stands for a record. It is never an API key, as it has an audience, and never an access
// token, as that says which plan it is for; and the use is in the audience, so that one kind of reference is not another.
type reference struct {
	Issuer    string       `json:"iss"`
	Subject   toll.Address `json:"sub"`
	Audience  string       `json:"aud"`
	ID        string       `json:"jti"`
	IssuedAt  *int64       `json:"iat"`
	ExpiresAt *int64       `json:"exp"`
}

var errReference = errors.New("auth: the reference was not issued by this service for this use")

func referenceAudience(issuer, use string) string { return issuer + "/" + use }

// SignReference returns a signed text that stands for a record of the owner, for one use. It holds no secret and gives no
// right by itself. Fractions of seconds are cut off.
func (a *Auth) SignReference(use string, owner toll.Address, id string, ends time.Time) (string, error) {
	now := a.clock()
	issuer := a.Issuer()
	payload, err := encodeExact(reference{
		Issuer: issuer, Subject: owner, Audience: referenceAudience(issuer, use), ID: id, IssuedAt: unixPtr(now), ExpiresAt: unixPtr(ends),
	})
	if err != nil {
		return "", err
	}
	return a.sign(payload)
}

// OpenReference returns whose record a text of [Auth.SignReference] stands for. An ended one still tells: whether the record
// can be used is its own matter. An error that is [toll.CodeDatabaseUnavailable] says nothing of the text.
func (a *Auth) OpenReference(use, text string) (owner toll.Address, id string, err error) {
	owner, id, _, err = a.OpenLink(use, text)
	return owner, id, err
}

// OpenLink is [Auth.OpenReference] for references that count until they end, and returns when that is: zero for one without an
// end. The caller compares it with the clock by which the end was set.
func (a *Auth) OpenLink(use, text string) (owner toll.Address, id string, ends time.Time, err error) {
	ks := a.keys()
	payload, key, err := ks.open(text)
	if err != nil {
		return toll.Address{}, "", time.Time{}, err
	}
	var r reference
	if err := decodeStrict(payload, &r); err != nil || r.Subject.IsZero() || r.ID == "" || r.IssuedAt == nil {
		return toll.Address{}, "", time.Time{}, errReference
	}
	switch ours, err := a.knows(ks, r.Issuer); {
	case err != nil:
		return toll.Address{}, "", time.Time{}, err
	case !ours:
		return toll.Address{}, "", time.Time{}, errForeignIssuer
	}
	if r.Audience != referenceAudience(r.Issuer, use) || !key.passes(time.Unix(*r.IssuedAt, 0)) {
		return toll.Address{}, "", time.Time{}, errReference
	}
	if r.ExpiresAt != nil {
		ends = time.Unix(*r.ExpiresAt, 0)
	}
	return r.Subject, r.ID, ends, nil
}
