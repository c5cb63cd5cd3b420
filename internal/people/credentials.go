package people

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const recoveryCodes = 10

// Credentials keeps the credentials of people: what each is for is a matter of its kind.
type Credentials struct {
	store       *store.Store
	clock       func() time.Time
	limits      *limits
	notices     *Notices
	NoPasswords bool // passwords count for nothing
}

// List returns the credentials of a person, recovery codes among them, one each.
func (cs *Credentials) List(ctx context.Context, user toll.UUID) ([]toll.Credential, error) {
	rows, err := store.CredentialsOf(ctx, cs.store, user)
	return store.Mapped(rows, func(c store.Credential) toll.Credential {
		return toll.Credential{ID: c.ID, Kind: c.Kind, Name: c.Name, CreatedAt: toll.At(c.CreatedAt), UsedAt: toll.AtPtr(c.UsedAt)}
	}), err
}

// Has returns the kinds of credentials that a person can use.
func (cs *Credentials) Has(ctx context.Context, user toll.UUID) (kinds []string, err error) {
	rows, err := store.CredentialsOf(ctx, cs.store, user)
	for _, c := range rows {
		if !slices.Contains(kinds, c.Kind) && !(cs.NoPasswords && c.Kind == Password) {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds, err
}

// add stores another credential of a person. The error has [toll.CodeExists] when it is somebody's.
func (cs *Credentials) add(ctx context.Context, user toll.UUID, c store.Credential) error {
	now := cs.clock()
	c.ID, c.UserID, c.CreatedAt = toll.NewTimeUUID(now), user, now
	err := cs.store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := store.LockUser(ctx, tx, user); err != nil {
			return err
		}
		all, err := store.CredentialsOf(ctx, tx, user)
		if err != nil {
			return err
		}
		if len(all) >= mostCredentials {
			return toll.Errorf(toll.CodeForbidden, "You have reached the limit of sign-in methods. Remove a method first.")
		}
		if err := store.InsertCredential(ctx, tx, c); err != nil {
			return err
		}
		var made []store.Act
		if c.Kind == Wallet { // who adds a wallet owns its workspace
			at, err := toll.ParseAddress(c.Subject)
			if err == nil {
				made, err = ownWallet(ctx, tx, now, user, at, false)
			}
			if err != nil {
				return err
			}
		}
		return store.AuditAll(ctx, tx, cs.clock(), append(made, personal(ctx, tx, user, "credential.added", c.Kind)...)...)
	})
	if store.IsUnique(err) {
		return toll.Errorf(toll.CodeExists, "This sign-in method already belongs to an account.")
	}
	return err
}

// Remove deletes a credential, but not the last one that can sign in, and all sessions of the person except keep. Errors:
// [toll.CodePersonNotFound], [toll.CodeForbidden].
func (cs *Credentials) Remove(ctx context.Context, user, id toll.UUID, keep string) error {
	return cs.store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := store.LockUser(ctx, tx, user); err != nil {
			return err
		}
		all, err := store.CredentialsOf(ctx, tx, user)
		if err != nil {
			return err
		}
		kind, left := "", 0
		for _, c := range all {
			switch {
			case c.ID == id:
				kind = c.Kind
			case c.Kind != Recovery && !(cs.NoPasswords && c.Kind == Password):
				left++
			}
		}
		if kind == "" {
			return toll.NewError(toll.CodePersonNotFound)
		}
		if left == 0 {
			return toll.Errorf(toll.CodeForbidden, "This is your last sign-in method. Add another method first.")
		}
		if err := store.DeleteCredential(ctx, tx, id, user); err != nil {
			return err
		}
		if _, err := store.DeleteBrowserSessions(ctx, tx, user, "", keep); err != nil {
			return err
		}
		return store.AuditAll(ctx, tx, cs.clock(), personal(ctx, tx, user, "credential.removed", kind)...)
	})
}

// NewRecoveryCodes makes codes in the place of those that the person had. They are there once.
func (cs *Credentials) NewRecoveryCodes(ctx context.Context, user toll.UUID) ([]string, error) {
	codes := make([]string, recoveryCodes)
	now := cs.clock()
	rows := make([]store.Credential, recoveryCodes)
	for i := range codes {
		b := make([]byte, 10) // 80 bits: as good as a key, so a plain hash serves
		_, _ = rand.Read(b)   // never fails since Go 1.24
		text := strings.ToLower(base32.StdEncoding.EncodeToString(b))
		codes[i] = text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:]
		rows[i] = store.Credential{
			ID: toll.NewTimeUUID(now), UserID: user, Kind: Recovery, Subject: recoverySubject(codes[i]), CreatedAt: now,
		}
	}
	err := cs.store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := store.LockUser(ctx, tx, user); err != nil {
			return err
		}
		if err := store.DeleteCredentials(ctx, tx, user, Recovery); err != nil {
			return err
		}
		for _, c := range rows {
			if err := store.InsertCredential(ctx, tx, c); err != nil {
				return err
			}
		}
		return store.AuditAll(ctx, tx, cs.clock(), personal(ctx, tx, user, "credential.added", Recovery)...)
	})
	return codes, err
}

// recoverySubject is a code as it is stored: its hash. A code has 80 random bits, so it names its person.
func recoverySubject(code string) string {
	code = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r >= 'a' && r <= 'z' || r >= '2' && r <= '7' {
			return r
		}
		return -1
	}, code)
	return toll.Hash(sumOf("recovery " + code)).String()
}

// signedIn notes the use of a proved credential and returns its person. begins says that a session begins with it.
func (cs *Credentials) used(ctx context.Context, c store.Credential, begins bool) (toll.Person, error) {
	u, err := readUser(ctx, cs.store, c.UserID)
	if err != nil {
		return u, store.NotFoundAs(err, errSignIn)
	}
	if begins {
		if err := take(cs.limits.sessions, cs.limits.began, u.ID); err != nil {
			return u, err
		}
	}
	c.UsedAt = cs.clock()
	ctx = as(ctx, u.ID)
	err = cs.store.Tx(ctx, func(tx *store.Tx) error {
		return errors.Join(store.UpdateCredential(ctx, tx, c), store.AuditAll(ctx, tx, c.UsedAt, personal(ctx, tx, u.ID, "sign_in", c.Kind)...))
	})
	if err == nil && begins {
		cs.notices.noteSignIn(ctx, u.ID, c.Kind, c.UsedAt)
	}
	return u, err
}
