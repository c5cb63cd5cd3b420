package people

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// recoveryCodes is how many codes a person gets at a time.
const recoveryCodes = 10

// Credentials lists the credentials of a person. Recovery codes are among them, one each.
func (p *People) Credentials(ctx context.Context, user toll.UUID) ([]toll.Credential, error) {
	rows, err := store.CredentialsOf(ctx, p.Store, user)
	return store.Mapped(rows, func(c store.Credential) toll.Credential {
		return toll.Credential{ID: c.ID, Kind: c.Kind, Name: c.Name, CreatedAt: toll.At(c.CreatedAt), UsedAt: toll.AtPtr(c.UsedAt)}
	}), err
}

// Sessions lists the sessions of a person that go on, newest first.
func (p *People) Sessions(ctx context.Context, user toll.UUID) ([]toll.Session, error) {
	rows, err := store.BrowserSessionsOf(ctx, p.Store, user, p.Clock())
	return store.Mapped(rows, sessionOf), err
}

// SessionList is a part of [People.Sessions].
func (p *People) SessionList(ctx context.Context, user toll.UUID, page store.Page) (store.List[toll.Session], error) {
	rows, err := store.BrowserSessionList(ctx, p.Store, user, p.Clock(), page)
	return store.Map(rows, sessionOf), err
}

// EndSession ends one session of a person. Errors: [toll.CodePersonNotFound].
func (p *People) EndSession(ctx context.Context, user toll.UUID, id string) error {
	if id == "" {
		return toll.NewError(toll.CodePersonNotFound)
	}
	return p.Store.Tx(ctx, func(tx *store.Tx) error {
		n, err := store.DeleteBrowserSessions(ctx, tx, user, id, "")
		if err == nil && n == 0 {
			err = toll.NewError(toll.CodePersonNotFound)
		}
		return err
	})
}

// Prove proves a person who signed in once more by the password. Tries count by person: only sessions of the person use them up.
// Errors: [toll.CodeNotAuthenticated], [toll.CodeRateLimited], [toll.CodePasswordsOff].
func (p *People) Prove(ctx context.Context, user toll.UUID, password string) error {
	if p.NoPasswords {
		return errPasswordsOff
	}
	c, err := p.passwordOf(ctx, p.Store, user)
	if err != nil {
		return err
	}
	give, err := p.take(ctx, "", user, bucket{p.limits.names, "confirm " + user.String()})
	if err != nil {
		return err
	}
	_, err = p.checked(ctx, c, password, false, give)
	if errors.Is(err, errSignIn) {
		return toll.Errorf(toll.CodeNotAuthenticated, "The password is wrong.")
	}
	return err
}

// passwordOf returns the password of a person; the subject is empty for who has none.
func (p *People) passwordOf(ctx context.Context, q store.Querier, user toll.UUID) (store.Credential, error) {
	rows, err := store.CredentialsOf(ctx, q, user)
	for _, c := range rows {
		if c.Kind == Password {
			return c, err
		}
	}
	return store.Credential{}, err
}

// SetPassword gives a person another password, or the first one with a login name; keep is the token of the session that goes on: all
// others end. Errors are safe to show.
func (p *People) SetPassword(ctx context.Context, user toll.UUID, login, password, keep string) error {
	if p.NoPasswords {
		return errPasswordsOff
	}
	old, err := p.passwordOf(ctx, p.Store, user)
	if err != nil {
		return err
	}
	if old.Subject != "" {
		login = old.Subject
	}
	if login, err = parseLogin(login); err == nil {
		err = checkPassword(password, login)
	}
	if err != nil {
		return err
	}
	hash, err := p.hash(ctx, password)
	if err != nil {
		return err
	}
	return p.Store.Tx(ctx, func(tx *store.Tx) error { return p.putPassword(ctx, tx, user, login, hash, keep) })
}

// putPassword stores a password and ends the sessions that were begun with another one.
func (p *People) putPassword(ctx context.Context, tx *store.Tx, user toll.UUID, login string, hash []byte, keep string) error {
	if _, err := store.LockUser(ctx, tx, user); err != nil {
		return err
	}
	if err := store.DeleteCredentials(ctx, tx, user, Password); err != nil {
		return err
	}
	now := p.Clock()
	c := store.Credential{ID: toll.NewTimeUUID(now), UserID: user, Kind: Password, Subject: login, Name: login, Secret: hash, CreatedAt: now, UsedAt: now}
	if err := store.InsertCredential(ctx, tx, c); err != nil {
		if store.IsUnique(err) {
			return errTaken
		}
		return err
	}
	if _, err := store.DeleteBrowserSessions(ctx, tx, user, "", keep); err != nil {
		return err
	}
	return p.audit(ctx, tx, p.personal(ctx, tx, user, "credential.added", Password)...)
}

// add stores another credential of a person. The error has [toll.CodeExists] when it is somebody's.
func (p *People) add(ctx context.Context, user toll.UUID, c store.Credential) error {
	now := p.Clock()
	c.ID, c.UserID, c.CreatedAt = toll.NewTimeUUID(now), user, now
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := store.LockUser(ctx, tx, user); err != nil {
			return err
		}
		all, err := store.CredentialsOf(ctx, tx, user)
		if err != nil {
			return err
		}
		if len(all) >= mostCredentials {
			return toll.Errorf(toll.CodeForbidden, "You have as many credentials as a person may have. Remove one first.")
		}
		if err := store.InsertCredential(ctx, tx, c); err != nil {
			return err
		}
		var made []store.Act
		if c.Kind == Wallet { // who adds a wallet owns its workspace
			at, err := toll.ParseAddress(c.Subject)
			if err == nil {
				made, err = p.ownWallet(ctx, tx, user, at, false)
			}
			if err != nil {
				return err
			}
		}
		return p.audit(ctx, tx, append(made, p.personal(ctx, tx, user, "credential.added", c.Kind)...)...)
	})
	if store.IsUnique(err) {
		return toll.Errorf(toll.CodeExists, "This is a credential of somebody already.")
	}
	return err
}

// RemoveCredential removes a credential of a person, who keeps one at least that signs in by itself. All sessions but the one with the
// token keep end. Errors: [toll.CodePersonNotFound], [toll.CodeForbidden].
func (p *People) RemoveCredential(ctx context.Context, user, id toll.UUID, keep string) error {
	return p.Store.Tx(ctx, func(tx *store.Tx) error {
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
			case c.Kind != Recovery && !(p.NoPasswords && c.Kind == Password):
				left++
			}
		}
		if kind == "" {
			return toll.NewError(toll.CodePersonNotFound)
		}
		if left == 0 {
			return toll.Errorf(toll.CodeForbidden, "This is your last way to sign in. Add another one first.")
		}
		if err := store.DeleteCredential(ctx, tx, id, user); err != nil {
			return err
		}
		if _, err := store.DeleteBrowserSessions(ctx, tx, user, "", keep); err != nil {
			return err
		}
		return p.audit(ctx, tx, p.personal(ctx, tx, user, "credential.removed", kind)...)
	})
}

// NewRecoveryCodes makes codes in the place of those that the person had. They are there once.
func (p *People) NewRecoveryCodes(ctx context.Context, user toll.UUID) ([]string, error) {
	codes := make([]string, recoveryCodes)
	now := p.Clock()
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
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
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
		return p.audit(ctx, tx, p.personal(ctx, tx, user, "credential.added", Recovery)...)
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

// Recover lets a person in who lost all credentials, by one of their recovery codes or by a link of the operator. The person gets
// another password, and with a first one the login name. Where the service takes no passwords, the old one ends and password is not
// used. All sessions, and with a link all recovery codes, end. Errors are safe to show: [toll.CodeNotAuthenticated], [toll.CodeBadRequest], [toll.CodeExists] for a login name that is taken.
func (p *People) Recover(ctx context.Context, source, link, login, code, password string) (toll.Person, error) {
	give, err := p.try(ctx, source, "", toll.UUID{}) // by source alone: a code has 80 random bits, a link 256
	if err != nil {
		return toll.Person{}, err
	}
	user, err := p.recoverable(ctx, link, code)
	if err != nil {
		return toll.Person{}, err
	}
	old, err := p.passwordOf(ctx, p.Store, user)
	if err != nil {
		return toll.Person{}, err
	}
	name, err := parseLogin(login)
	switch {
	case old.Subject == "" && err != nil && !p.NoPasswords:
		return toll.Person{}, err
	case old.Subject != "" && link == "" && name != old.Subject:
		return toll.Person{}, errRecovery
	case old.Subject != "":
		name = old.Subject
	}
	if p.NoPasswords {
		password = rand.Text() // nobody knows it: the one before ends as well, and the login name stays
	} else if err := checkPassword(password, name); err != nil {
		return toll.Person{}, err
	}
	hash, err := p.hash(ctx, password)
	if err != nil {
		return toll.Person{}, err
	}
	ctx = p.as(ctx, user)
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		if link != "" {
			l, err := store.LockLink(ctx, tx, sumOf(link))
			if err := p.usable(l, err, linkRecover); err != nil {
				return err
			}
			l.UsedAt, l.UsedBy = p.Clock(), user
			if err := errors.Join(store.UpdateLink(ctx, tx, l), store.DeleteCredentials(ctx, tx, user, Recovery)); err != nil {
				return err
			}
		} else {
			c, err := store.CredentialBySubject(ctx, tx, Recovery, recoverySubject(code))
			if err == nil {
				err = store.DeleteCredential(ctx, tx, c.ID, user)
			}
			if err != nil {
				return store.NotFoundAs(err, errRecovery)
			}
		}
		if p.NoPasswords && old.Subject == "" {
			_, err := store.DeleteBrowserSessions(ctx, tx, user, "", "")
			return err
		}
		return p.putPassword(ctx, tx, user, name, hash, "")
	})
	if err != nil {
		return toll.Person{}, err
	}
	give()
	p.noteSignIn(ctx, user, Recovery, p.Clock())
	return p.User(ctx, user)
}

// recoverable returns the person of a link of the operator or, without one, of a recovery code.
func (p *People) recoverable(ctx context.Context, link, code string) (toll.UUID, error) {
	if link == "" {
		c, err := store.CredentialBySubject(ctx, p.Store, Recovery, recoverySubject(code))
		return c.UserID, store.NotFoundAs(err, errRecovery)
	}
	l, err := store.LinkByHash(ctx, p.Store, sumOf(link))
	return l.UserID, p.usable(l, err, linkRecover)
}

var errRecovery = toll.Errorf(toll.CodeNotAuthenticated, "The login name or the recovery code is wrong.")

// Sweep drops what nobody needs any more: codes that were sent a day ago, links that ended a month ago, and the addresses of people in the audit log after 90 days.
// It reports whether there may be more.
func (p *People) Sweep(ctx context.Context) (bool, error) {
	const slice = 500
	now := p.Clock()
	if err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		return errors.Join(store.DropMailCodes(ctx, tx, now.Add(-mailDay)), store.DropLinks(ctx, tx, now.Add(-30*24*time.Hour)),
			store.DropSessionUses(ctx, tx, now.Add(-useLife)))
	}); err != nil {
		return false, err
	}
	n, err := store.DropAuditSources(ctx, p.Store, now.Add(-90*24*time.Hour), slice)
	return n == slice, err
}
