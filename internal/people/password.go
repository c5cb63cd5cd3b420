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
		return "", toll.Errorf(toll.CodeBadRequest, "A login name has 3 to 64 of a-z, 0-9 and . _ + @ -, and begins and ends with a letter or a digit.")
	}
	return s, nil
}

// checkPassword refuses a password that is easy to guess.
func checkPassword(s, login string) error {
	n, lower := utf8.RuneCountInString(s), strings.ToLower(s)
	switch {
	case !utf8.ValidString(s) || n < shortestPassword || len(s) > longestPassword:
		return toll.Errorf(toll.CodeBadRequest, "A password has 8 characters at least and 256 bytes at most.")
	case badPasswords[lower], badPasswords[strings.TrimRight(lower, "0123456789!.?")], strings.Contains(lower, login), oneCharacter(lower):
		return toll.Errorf(toll.CodeBadRequest, "This password is easy to guess. Choose another one, such as four words.")
	}
	return nil
}

func oneCharacter(s string) bool { return strings.Trim(s, s[:1]) == "" }

// hash returns the hash of a password: version, passes, memory, salt, hash. It waits while others hash.
func (p *People) hash(ctx context.Context, password string) ([]byte, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails since Go 1.24
	out := []byte{1}
	out = binary.BigEndian.AppendUint32(out, argonTime)
	out = binary.BigEndian.AppendUint32(out, argonMemory)
	out = append(out, salt...)
	sum, err := p.argon(ctx, password, salt, argonTime, argonMemory)
	return append(out, sum...), err
}

func (p *People) argon(ctx context.Context, password string, salt []byte, time, memory uint32) ([]byte, error) {
	select {
	case p.hashing <- struct{}{}:
		defer func() { <-p.hashing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return argon2.IDKey([]byte(password), salt, time, memory, 1, hashSize), nil
}

// matches reports whether a password has a hash. A nil hash costs the same time, and nothing matches it.
func (p *People) matches(ctx context.Context, password string, hash []byte) (bool, error) {
	known := len(hash) == 1+8+saltSize+hashSize && hash[0] == 1
	if !known {
		hash = make([]byte, 1+8+saltSize+hashSize)
		binary.BigEndian.PutUint32(hash[1:], argonTime)
		binary.BigEndian.PutUint32(hash[5:], argonMemory)
	}
	sum, err := p.argon(ctx, password, hash[9:9+saltSize], binary.BigEndian.Uint32(hash[1:]), binary.BigEndian.Uint32(hash[5:]))
	return known && subtle.ConstantTimeCompare(sum, hash[9+saltSize:]) == 1, err
}

// errSignIn is the one answer to every sign-in that fails: it does not tell whether the person is known.
var errSignIn = toll.Errorf(toll.CodeNotAuthenticated, "The login name or the password is wrong.")

// SignIn returns the person of a login name and a password. An unknown name, a wrong password and a disabled person get the same
// answer in the same time. Errors are safe to show: [toll.CodeNotAuthenticated], [toll.CodeRateLimited].
func (p *People) SignIn(ctx context.Context, source, login, password string) (toll.Person, error) {
	if p.NoPasswords {
		return toll.Person{}, errPasswordsOff
	}
	name, invalid := parseLogin(login)
	c, err := store.CredentialBySubject(ctx, p.Store, Password, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return toll.Person{}, err
	}
	give, err := p.try(ctx, source, name, c.UserID)
	if err != nil {
		return toll.Person{}, err
	}
	if invalid != nil {
		return toll.Person{}, errSignIn
	}
	return p.checked(ctx, c, password, true, give)
}

// checked returns the person of a password after a try was taken, which a success gives back.
func (p *People) checked(ctx context.Context, c store.Credential, password string, begins bool, give func()) (toll.Person, error) {
	if len(password) > longestPassword {
		return toll.Person{}, errSignIn
	}
	ok, err := p.matches(ctx, password, c.Secret)
	if err != nil {
		return toll.Person{}, err
	}
	if !ok {
		return toll.Person{}, errSignIn
	}
	u, err := p.signedIn(ctx, c, begins)
	if err == nil {
		give()
	}
	return u, err
}

// signedIn notes the use of a proved credential and returns its person. begins says that a session begins with it.
func (p *People) signedIn(ctx context.Context, c store.Credential, begins bool) (toll.Person, error) {
	u, err := p.User(ctx, c.UserID)
	if err != nil {
		return u, store.NotFoundAs(err, errSignIn)
	}
	if begins {
		if err := take(p.limits.sessions, p.limits.began, u.ID); err != nil {
			return u, err
		}
	}
	c.UsedAt = p.Clock()
	ctx = p.as(ctx, u.ID)
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.UpdateCredential(ctx, tx, c); err != nil {
			return err
		}
		return store.AuditAll(ctx, tx, c.UsedAt, p.personal(ctx, tx, u.ID, "sign_in", c.Kind)...)
	})
	if err == nil && begins {
		p.noteSignIn(ctx, u.ID, c.Kind, c.UsedAt)
	}
	return u, err
}
