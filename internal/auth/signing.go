package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/store"
)

const (
	// publishFirst is how long a key stands in the JWKS before it signs, when another one can sign meanwhile.
	publishFirst = 10 * time.Minute
	// retireGrace is how long before its moment a retirement is written: every process has read it by then, also one that
	// missed a reading or whose clock is half a minute behind.
	retireGrace = 2 * time.Minute
	// longestToken is the longest life of an access token; a retired key stays in the JWKS for it.
	longestToken = 365 * 24 * time.Hour
	// readTimeout bounds a read of signing keys and issuers. A database that stalls for 10 s (F15) refuses nobody falsely.
	readTimeout = 12 * time.Second
)

type signingKey struct {
	id        string // thumbprint
	kid       string // under which it is published: id, for a statement key a DID URL
	public    ed25519.PublicKey
	private   ed25519.PrivateKey
	short     shortKeys // unset for a statement key
	header    string    // first part of a JWS
	createdAt time.Time
	retiredAt time.Time // zero: not retired
}

// passes reports whether the key signs at this moment, and what it signed then is good: a retired key vouches only for what came before.
func (k *signingKey) passes(at time.Time) bool {
	return k.retiredAt.IsZero() || !k.ended() && at.Before(k.retiredAt)
}

// endedKey is the retirement of a key that is compromised. It lies before every time that a signature
// can carry, so that a release that does not know of [Auth.EndSigningKey] refuses them, too.
var endedKey = time.UnixMicro(-1 << 61)

// ended reports whether the key is compromised: nothing that it ever signed counts.
func (k *signingKey) ended() bool { return k.retiredAt.Equal(endedKey) }

// keySet is one reading of signing keys and issuers. Only its caches change.
type keySet struct {
	keys     []*signingKey // of API keys and access tokens, oldest first
	byID     map[string]*signingKey
	byHeader map[string]*signingKey
	// statements are the keys of offers and receipts, oldest first. They are in neither map, so that nothing that they signed
	// is ever taken for a credential.
	statements []*signingKey
	issuers    map[string]bool
	issuer     string // current
	jwks, did  []byte
	loadedAt   time.Time
	// tokens and signatures cache what the keys of the set verified. Sets with the same keys share them; other keys come with
	// empty ones, so that a check that began before a change of keys cannot add its result to those of later checks.
	tokens     *cache.Cache[[32]byte, *Claims]    // by SHA-256 of the JWS
	signatures *cache.Cache[[32]byte, *keyClaims] // by SHA-256 of the JWT or the short key
}

// signerOf returns the oldest key that signs, so that the next one has been published for long when its turn comes.
func signerOf(keys []*signingKey, now time.Time) (*signingKey, error) {
	for _, k := range keys {
		if k.passes(now) {
			return k, nil
		}
	}
	return nil, errors.New("auth: all signing keys are retired: add a signing key")
}

// keys returns the current set. One that is old is read again by whoever comes first; when that fails the old one serves for a while.
func (a *Auth) keys() *keySet {
	ks, now := a.set.Load(), a.clock()
	if !ks.olderThan(refreshEvery, now) {
		return ks
	}
	if !ks.olderThan(2*refreshEvery, now) {
		// A database that hangs holds up one caller, not all.
		if !a.refresh.TryLock() {
			return ks
		}
		defer a.refresh.Unlock()
		ks, _ = a.reread(refreshEvery)
		return ks
	}
	ks, _ = a.refreshKeys(refreshEvery)
	return ks
}

func (ks *keySet) olderThan(d time.Duration, now time.Time) bool {
	age := now.Sub(ks.loadedAt)
	return age >= d || age < -d
}

// knows reports whether this service signs, or signed, as an issuer. One that is new to us may be the address that another
// process has brought, so it is looked for again, at most once a second; while that cannot be done nothing is known against it,
// and the error is [toll.CodeDatabaseUnavailable].
func (a *Auth) knows(ks *keySet, issuer string) (bool, error) {
	if ks.issuers[issuer] {
		return true, nil
	}
	ks, err := a.refreshKeys(time.Second)
	if ks.issuers[issuer] {
		return true, nil
	}
	if err != nil {
		return false, toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err)
	}
	return false, nil
}

func (a *Auth) refreshKeys(age time.Duration) (*keySet, error) {
	a.refresh.Lock()
	defer a.refresh.Unlock()
	return a.reread(age)
}

// reread returns a set that is younger than age, or the earlier one beside the error with which it could not be read again.
func (a *Auth) reread(age time.Duration) (*keySet, error) {
	old, now := a.set.Load(), a.clock()
	if !old.olderThan(age, now) {
		return old, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	set, err := a.load(ctx, old)
	if err == nil && (len(set.keys) == 0 || set.issuer == "") {
		err = errors.New("auth: the database has no issuer or no signing key")
	}
	if err != nil {
		a.log.Warn("signing keys could not be reloaded; still using the previous keys", "error", err)
		again := *old
		again.loadedAt = a.clock().Add(-refreshEvery + 2*time.Second)
		a.set.Store(&again)
		return &again, err
	}
	a.set.Store(set)
	return set, nil
}

// load reads keys and issuers. It takes opened private keys from the old set, and the caches if the keys are the same.
func (a *Auth) load(ctx context.Context, old *keySet) (*keySet, error) {
	set := &keySet{
		byID: make(map[string]*signingKey), byHeader: make(map[string]*signingKey), issuers: make(map[string]bool),
		loadedAt: a.clock(),
	}
	issuers, err := storedIssuers(ctx, a.store)
	if err != nil {
		return nil, err
	}
	for _, iss := range issuers {
		set.issuers[iss] = true
		set.issuer = iss
	}
	did := didOf(cmp.Or(a.given, set.issuer))
	rows, err := store.SigningKeys(ctx, a.store)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		k := &signingKey{
			id: row.KID, kid: row.KID, public: row.Public, private: old.opened(row), header: headerSegment(`"typ":"JWT",`, row.KID),
			createdAt: row.CreatedAt, retiredAt: row.RetiredAt,
		}
		if k.private == nil {
			if k.private, err = a.openSigningKey(row); err != nil {
				return nil, err
			}
		}
		if row.Purpose == store.StatementKey {
			k.kid = did + "#" + k.id
			k.header = headerSegment("", k.kid)
			set.statements = append(set.statements, k)
			continue
		}
		if k.short, err = shortKeysOf(k.private); err != nil {
			return nil, err
		}
		set.keys = append(set.keys, k)
		set.byID[k.id] = k
		set.byHeader[k.header] = k
	}
	slices.SortFunc(set.keys, compareSigningKeys)
	slices.SortFunc(set.statements, compareSigningKeys)
	same := func(x, y *signingKey) bool { return x.id == y.id && x.retiredAt.Equal(y.retiredAt) }
	if old != nil && slices.EqualFunc(old.keys, set.keys, same) {
		set.tokens, set.signatures = old.tokens, old.signatures
	} else {
		set.tokens, set.signatures = cache.OfHashes[*Claims](tokenCacheEntries), cache.OfHashes[*keyClaims](keyCacheEntries)
	}
	set.did = didDocument(did, published(set.statements, set.loadedAt))
	set.jwks, err = publicKeys(slices.Concat(published(set.keys, set.loadedAt), published(set.statements, set.loadedAt)))
	return set, err
}

func compareSigningKeys(x, y *signingKey) int {
	return cmp.Or(x.createdAt.Compare(y.createdAt), strings.Compare(x.id, y.id))
}

// opened returns the private key that an earlier reading has for the purpose of a row, nil when it has none.
func (ks *keySet) opened(row store.SigningKey) ed25519.PrivateKey {
	if ks == nil {
		return nil
	}
	keys := ks.keys
	if row.Purpose == store.StatementKey {
		keys = ks.statements
	}
	if i := slices.IndexFunc(keys, func(k *signingKey) bool { return k.id == row.KID }); i >= 0 {
		return keys[i].private
	}
	return nil
}

// openSigningKey checks that the stored public key and key id are those of the sealed seed: whoever can write to the
// database but lacks the master key cannot bring in a key.
func (a *Auth) openSigningKey(row store.SigningKey) (ed25519.PrivateKey, error) {
	seed, err := a.ring.Open(row.Sealed, a.aad(sealedAs(row.Purpose), row.KID))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("the master key does not open signing key %s: use the master key file from the first start", row.KID)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	kid, err := thumbprint(public)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(public, row.Public) || kid != row.KID {
		return nil, fmt.Errorf("signing key %s was changed in the database", row.KID)
	}
	return private, nil
}

// thumbprint returns the key id of a public key (RFC 7638 with SHA-256).
func thumbprint(public ed25519.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

// published returns the keys that a public document has: those that sign, those that will, and those whose signatures may still count.
func published(keys []*signingKey, now time.Time) []*signingKey {
	return slices.DeleteFunc(slices.Clone(keys), func(k *signingKey) bool {
		return !k.retiredAt.IsZero() && !now.Before(k.retiredAt.Add(longestToken))
	})
}

func publicKeys(keys []*signingKey) ([]byte, error) {
	doc := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		doc.Keys = append(doc.Keys, jose.JSONWebKey{Key: k.public, KeyID: k.kid, Use: "sig", Algorithm: string(jose.EdDSA)})
	}
	return stdjson.Marshal(doc)
}

// JWKS returns the document of public keys: those that sign, those that will, and those whose tokens may still be valid;
// first those of API keys and access tokens, then those of offers and receipts, whose ids are DID URLs.
func (a *Auth) JWKS() []byte { return a.keys().jwks }

// sealedAs is the use that a key is sealed for, so that a row whose purpose was changed in the database does not open.
func sealedAs(purpose string) string {
	if purpose == store.StatementKey {
		return "statement-key"
	}
	return "signing-key"
}

func (a *Auth) newSigningKey(ctx context.Context, tx *store.Tx, purpose string, now time.Time) (string, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails since Go 1.24
	return a.putSigningKey(ctx, tx, purpose, seed, now)
}

func (a *Auth) putSigningKey(ctx context.Context, tx *store.Tx, purpose string, seed []byte, now time.Time) (string, error) {
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	kid, err := thumbprint(public)
	if err != nil {
		return "", err
	}
	sealed, err := a.ring.Seal(seed, a.aad(sealedAs(purpose), kid))
	if err != nil {
		return "", err
	}
	return kid, store.InsertSigningKey(ctx, tx, store.SigningKey{KID: kid, Purpose: purpose, Public: public, Sealed: sealed, CreatedAt: now})
}

// keysFor returns the keys of a purpose, oldest first.
func keysFor(ctx context.Context, q store.Querier, purpose string) ([]store.SigningKey, error) {
	rows, err := store.SigningKeys(ctx, q)
	return slices.DeleteFunc(rows, func(k store.SigningKey) bool { return k.Purpose != purpose }), err
}

var errAllRetired = errors.New("auth: all signing keys are retired: add a signing key")

// signs reports whether a key may sign at a moment, now or after others.
func signs(k store.SigningKey, now time.Time) bool {
	return k.RetiredAt.IsZero() || now.Before(k.RetiredAt)
}

// addSigningKey adds a key behind those of its purpose. Keys sign in the order of their times, also
// when this clock is behind that of another process.
func (a *Auth) addSigningKey(ctx context.Context, tx *store.Tx, rows []store.SigningKey) (kid string, created time.Time, err error) {
	last := rows[len(rows)-1]
	if created = a.clock(); !last.CreatedAt.Before(created) {
		created = last.CreatedAt.Add(time.Microsecond)
	}
	kid, err = a.newSigningKey(ctx, tx, last.Purpose, created)
	return kid, created, err
}

func auditKey(ctx context.Context, tx *store.Tx, act, kid, next string, now time.Time) error {
	return store.Audit(ctx, tx, store.Act{Act: act, Object: kid, At: now, Detail: store.Changed{Before: kid, After: next}})
}

// Sealed returns what the sealed secrets of this room are bound to: of a setting, a wallet by its
// address, a signing key by its purpose and id.
func Sealed(environment toll.Environment) (macKey []byte, wallet func(address string) []byte, signing func(purpose, kid string) []byte) {
	return aad(environment, "mac-key", ""),
		func(address string) []byte { return aad(environment, "wallet", address) },
		func(purpose, kid string) []byte { return aad(environment, sealedAs(purpose), kid) }
}

// unnoticed is the first moment at which a key that was published at a time can take over.
func (a *Auth) unnoticed(published time.Time) time.Time {
	when := a.clock()
	if ready := published.Add(publishFirst); when.Before(ready) {
		when = ready
	}
	return when.Add(retireGrace)
}

// Rotation is a change of the signing key.
type Rotation struct {
	Retiring string    `json:"retiring"` // signs until At, and vouches after it for what it signed before
	At       toll.Time `json:"at"`
	Next     string    `json:"next"`            // signs from At on
	Added    string    `json:"added,omitempty"` // published now, to sign after Next; none while a rotation is under way
}

// RotateKey lets the next signing key of a purpose take over from the one that signs, and publishes another one for the time
// after. No key signs before it has been published for ten minutes. While a rotation is under way, that one is told and
// nothing changes. The purpose is "" for API keys and access tokens, [store.StatementKey] for offers and receipts.
func (a *Auth) RotateKey(ctx context.Context, purpose string) (Rotation, error) {
	var r Rotation
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		rows, err := keysFor(ctx, tx, purpose)
		if err != nil {
			return err
		}
		now := a.clock()
		rows = slices.DeleteFunc(rows, func(k store.SigningKey) bool { return !signs(k, now) })
		if len(rows) == 0 {
			return errAllRetired
		}
		current := rows[0]
		r = Rotation{Retiring: current.KID, At: toll.At(current.RetiredAt)}
		if !current.RetiredAt.IsZero() && len(rows) > 1 {
			r.Next = rows[1].KID
			return nil
		}
		var next time.Time
		if r.Added, next, err = a.addSigningKey(ctx, tx, rows); err != nil {
			return err
		}
		if r.Next = r.Added; len(rows) > 1 {
			r.Next, next = rows[1].KID, rows[1].CreatedAt
		}
		when := a.unnoticed(next)
		r.At = toll.At(when)
		if err := store.RetireSigningKey(ctx, tx, current.KID, when); err != nil {
			return err
		}
		return auditKey(ctx, tx, "signing_key.rotated", current.KID, r.Next, now)
	})
	if err != nil {
		return Rotation{}, err
	}
	return r, a.readKeysNow(ctx)
}

// readKeysNow shows this instance's own change at once.
func (a *Auth) readKeysNow(ctx context.Context) error {
	a.refresh.Lock()
	defer a.refresh.Unlock()
	old := a.set.Load()
	set, err := a.load(ctx, old)
	if err == nil {
		a.set.Store(set)
	}
	return err
}
