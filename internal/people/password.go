package people

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/binary"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// Parameters of argon2id (RFC 9106; OWASP, 19 MiB and 2 passes). They are stored with each hash.
	argonTime, argonMemory = 2, 19 << 10
	saltSize, hashSize     = 16, 32
	// hashesAtOnce bounds the memory of hashes at 80 MiB.
	hashesAtOnce = 4

	shortestPassword, longestPassword = 8, 256
)

//go:embed bad_passwords.txt
var badList string

// badPasswords are the first that somebody tries.
var badPasswords = func() map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(badList) {
		out[w] = true
	}
	return out
}()

var loginSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._+@-]{1,62}[a-z0-9]$`)

// parseLogin returns a login name in lower case.
func parseLogin(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	if !loginSyntax.MatchString(s) {
		return "", toll.Errorf(toll.CodeBadRequest, "A login name must have 3 to 64 characters from a-z, 0-9, and . _ + @ -, and must begin and end with a letter or digit.")
	}
	return s, nil
}

// checkPassword refuses a password that is easy to guess. It removes the login from the password and checks the remaining text too,
// because a long random text may contain a short login by chance.
func checkPassword(s, login string) error {
	lower := strings.ToLower(s)
	without := strings.ReplaceAll(lower, login, "")
	switch {
	case !utf8.ValidString(s) || utf8.RuneCountInString(s) < shortestPassword || len(s) > longestPassword:
		return toll.Errorf(toll.CodeBadRequest, "A password must have at least 8 characters and at most 256 bytes.")
	case isGuessed(lower), utf8.RuneCountInString(without) < shortestPassword, isGuessed(without):
		return toll.Errorf(toll.CodeBadRequest, "This password is easy to guess. Choose another password, such as four random words.")
	}
	return nil
}

// isGuessed reports whether a text in lower case is a common password, alone or before digits, or one repeated character.
func isGuessed(s string) bool {
	return badPasswords[s] || badPasswords[strings.TrimRight(s, "0123456789!.?")] || strings.Trim(s, s[:1]) == ""
}

type Passwords struct {
	store       *store.Store
	clock       func() time.Time
	limits      *limits
	signUps     *SignUps
	credentials *Credentials
	hashing     chan struct{} // bounds the memory of hashes
}

// hash returns the hash of a password: version, passes, memory, salt, hash. It waits while others hash.
func (pw *Passwords) hash(ctx context.Context, password string) ([]byte, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails since Go 1.24
	out := []byte{1}
	out = binary.BigEndian.AppendUint32(out, argonTime)
	out = binary.BigEndian.AppendUint32(out, argonMemory)
	out = append(out, salt...)
	sum, err := pw.argon(ctx, password, salt, argonTime, argonMemory)
	return append(out, sum...), err
}

func (pw *Passwords) argon(ctx context.Context, password string, salt []byte, time, memory uint32) ([]byte, error) {
	select {
	case pw.hashing <- struct{}{}:
		defer func() { <-pw.hashing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return argon2.IDKey([]byte(password), salt, time, memory, 1, hashSize), nil
}

// matches reports whether a password has a hash. A nil hash costs the same time, and nothing matches it.
func (pw *Passwords) matches(ctx context.Context, password string, hash []byte) (bool, error) {
	known := len(hash) == 1+8+saltSize+hashSize && hash[0] == 1
	if !known {
		hash = make([]byte, 1+8+saltSize+hashSize)
		binary.BigEndian.PutUint32(hash[1:], argonTime)
		binary.BigEndian.PutUint32(hash[5:], argonMemory)
	}
	sum, err := pw.argon(ctx, password, hash[9:9+saltSize], binary.BigEndian.Uint32(hash[1:]), binary.BigEndian.Uint32(hash[5:]))
	return known && subtle.ConstantTimeCompare(sum, hash[9+saltSize:]) == 1, err
}

// errSignIn is the one answer to every sign-in that fails: it does not tell whether the person is known.
var errSignIn = toll.Errorf(toll.CodeNotAuthenticated, "The login name or the password is wrong.")

// SignIn returns the person of a login name and a password. An unknown name, a wrong password and a disabled person get the same
// answer in the same time. Errors are safe to show: [toll.CodeNotAuthenticated], [toll.CodeRateLimited].
func (pw *Passwords) SignIn(ctx context.Context, source, login, password string) (toll.Person, error) {
	if pw.credentials.NoPasswords {
		return toll.Person{}, errPasswordsOff
	}
	name, invalid := parseLogin(login)
	c, err := store.CredentialBySubject(ctx, pw.store, Password, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return toll.Person{}, err
	}
	give, err := pw.limits.try(ctx, source, name, c.UserID)
	if err != nil {
		return toll.Person{}, err
	}
	if invalid != nil {
		return toll.Person{}, errSignIn
	}
	return pw.checked(ctx, c, password, true, give)
}

// checked returns the person of a password after a try was taken, which a success gives back.
func (pw *Passwords) checked(ctx context.Context, c store.Credential, password string, begins bool, give func()) (toll.Person, error) {
	if len(password) > longestPassword {
		return toll.Person{}, errSignIn
	}
	ok, err := pw.matches(ctx, password, c.Secret)
	if err != nil {
		return toll.Person{}, err
	}
	if !ok {
		return toll.Person{}, errSignIn
	}
	u, err := pw.credentials.used(ctx, c, begins)
	if err == nil {
		give()
	}
	return u, err
}

// errPasswordsOff refuses a password where the service takes none.
var errPasswordsOff = toll.NewError(toll.CodePasswordsOff)

// SignUp adds a person with a password, as owner of a new workspace, and as member of the workspace of an invitation, which it returns
// then. Errors are safe to show: [toll.CodeBadRequest], [toll.CodeForbidden], [toll.CodeExists] for a login name that is taken,
// [toll.CodeRateLimited], [toll.CodePasswordsOff].
func (pw *Passwords) SignUp(ctx context.Context, source string, in SignUp) (toll.Person, toll.Address, error) {
	if pw.credentials.NoPasswords {
		return toll.Person{}, toll.Address{}, errPasswordsOff
	}
	login, err := parseLogin(in.Login)
	if err == nil {
		err = checkPassword(in.Secret, login)
	}
	if err == nil {
		err = pw.signUps.admit(ctx, source, in.Link)
	}
	if err != nil {
		return toll.Person{}, toll.Address{}, err
	}
	hash, err := pw.hash(ctx, in.Secret)
	if err != nil {
		return toll.Person{}, toll.Address{}, err
	}
	first := store.Credential{Kind: Password, Subject: login, Name: login, Secret: hash}
	return pw.signUps.insert(ctx, newPerson{name: cleanName(in.Name, login), workspace: in.Workspace, link: in.Link, first: first})
}

// Prove checks the password of a person who is signed in. Only sessions of the person use up its tries. Errors:
// [toll.CodeNotAuthenticated], [toll.CodeRateLimited], [toll.CodePasswordsOff].
func (pw *Passwords) Prove(ctx context.Context, user toll.UUID, password string) error {
	if pw.credentials.NoPasswords {
		return errPasswordsOff
	}
	c, err := passwordOf(ctx, pw.store, user)
	if err != nil {
		return err
	}
	give, err := pw.limits.take(ctx, "", user, bucket{pw.limits.names, "confirm " + user.String()})
	if err != nil {
		return err
	}
	_, err = pw.checked(ctx, c, password, false, give)
	if errors.Is(err, errSignIn) {
		return toll.Errorf(toll.CodeNotAuthenticated, "The password is wrong.")
	}
	return err
}

// Set sets the password of a person, the first one with a login name, and ends all sessions but keep. Errors are safe to show.
func (pw *Passwords) Set(ctx context.Context, user toll.UUID, login, password, keep string) error {
	if pw.credentials.NoPasswords {
		return errPasswordsOff
	}
	old, err := passwordOf(ctx, pw.store, user)
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
	hash, err := pw.hash(ctx, password)
	if err != nil {
		return err
	}
	return pw.store.Tx(ctx, func(tx *store.Tx) error { return pw.put(ctx, tx, user, login, hash, keep) })
}

// put stores a password and ends the sessions that were begun with another one.
func (pw *Passwords) put(ctx context.Context, tx *store.Tx, user toll.UUID, login string, hash []byte, keep string) error {
	if _, err := store.LockUser(ctx, tx, user); err != nil {
		return err
	}
	if err := store.DeleteCredentials(ctx, tx, user, Password); err != nil {
		return err
	}
	now := pw.clock()
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
	return store.AuditAll(ctx, tx, pw.clock(), personal(ctx, tx, user, "credential.added", Password)...)
}

// passwordOf returns the password of a person; the subject is empty for who has none.
func passwordOf(ctx context.Context, q store.Querier, user toll.UUID) (store.Credential, error) {
	rows, err := store.CredentialsOf(ctx, q, user)
	for _, c := range rows {
		if c.Kind == Password {
			return c, err
		}
	}
	return store.Credential{}, err
}

// Recover signs in a person by a recovery code or a link of the operator and sets a password, the first one with a login name. Without
// passwords it removes the old one. All sessions end, and with a link all recovery codes. Errors are safe to show:
// [toll.CodeNotAuthenticated], [toll.CodeBadRequest], [toll.CodeExists] for a login name that is taken.
func (pw *Passwords) Recover(ctx context.Context, source, link, login, code, password string) (toll.Person, error) {
	give, err := pw.limits.try(ctx, source, "", toll.UUID{}) // by source alone: a code has 80 random bits, a link 256
	if err != nil {
		return toll.Person{}, err
	}
	user, err := pw.recoverable(ctx, link, code)
	if err != nil {
		return toll.Person{}, err
	}
	old, err := passwordOf(ctx, pw.store, user)
	if err != nil {
		return toll.Person{}, err
	}
	name, err := parseLogin(login)
	switch {
	case old.Subject == "" && err != nil && !pw.credentials.NoPasswords:
		return toll.Person{}, err
	case old.Subject != "" && link == "" && name != old.Subject:
		return toll.Person{}, errRecovery
	case old.Subject != "":
		name = old.Subject
	}
	if pw.credentials.NoPasswords {
		password = rand.Text() // nobody knows it: the one before ends as well, and the login name stays
	} else if err := checkPassword(password, name); err != nil {
		return toll.Person{}, err
	}
	hash, err := pw.hash(ctx, password)
	if err != nil {
		return toll.Person{}, err
	}
	ctx = as(ctx, user)
	err = pw.store.Tx(ctx, func(tx *store.Tx) error {
		if link != "" {
			l, err := store.LockLink(ctx, tx, sumOf(link))
			if err := usable(l, err, pw.clock(), linkRecover); err != nil {
				return err
			}
			l.UsedAt, l.UsedBy = pw.clock(), user
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
		if pw.credentials.NoPasswords && old.Subject == "" {
			_, err := store.DeleteBrowserSessions(ctx, tx, user, "", "")
			return err
		}
		return pw.put(ctx, tx, user, name, hash, "")
	})
	if err != nil {
		return toll.Person{}, err
	}
	give()
	pw.credentials.notices.noteSignIn(ctx, user, Recovery, pw.clock())
	return readUser(ctx, pw.store, user)
}

// recoverable returns the person of a link of the operator or, without one, of a recovery code.
func (pw *Passwords) recoverable(ctx context.Context, link, code string) (toll.UUID, error) {
	if link == "" {
		c, err := store.CredentialBySubject(ctx, pw.store, Recovery, recoverySubject(code))
		return c.UserID, store.NotFoundAs(err, errRecovery)
	}
	l, err := store.LinkByHash(ctx, pw.store, sumOf(link))
	return l.UserID, usable(l, err, pw.clock(), linkRecover)
}

var errRecovery = toll.Errorf(toll.CodeNotAuthenticated, "The login name or the recovery code is wrong.")
