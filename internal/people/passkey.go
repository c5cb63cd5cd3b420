package people

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// ceremonyLife is how long a browser may take with a passkey.
const ceremonyLife = 10 * time.Minute

// newPasskeys returns what checks passkeys of the public address; nil where browsers take none: at an IP address, and without https
// but on this machine.
func newPasskeys(public string) (*webauthn.WebAuthn, error) {
	u, err := url.Parse(public)
	if err != nil {
		return nil, err
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil || host == "" || u.Scheme != "https" && host != "localhost" {
		return nil, nil
	}
	return webauthn.New(&webauthn.Config{
		RPID: host, RPDisplayName: host, RPOrigins: []string{u.Scheme + "://" + u.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationPreferred,
		},
	})
}

// HasPasskeys reports whether browsers take passkeys at the public address.
func (p *People) HasPasskeys() bool { return p.passkeys != nil }

// passkeyUser is a person as the library wants one.
type passkeyUser struct {
	id          toll.UUID
	name        string
	credentials []webauthn.Credential
}

func (u *passkeyUser) WebAuthnID() []byte                         { return u.id[:] }
func (u *passkeyUser) WebAuthnName() string                       { return u.name }
func (u *passkeyUser) WebAuthnDisplayName() string                { return u.name }
func (u *passkeyUser) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

func (p *People) passkeyUser(ctx context.Context, id toll.UUID) (*passkeyUser, error) {
	u, err := p.User(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &passkeyUser{id: id, name: u.Name}
	rows, err := store.CredentialsOf(ctx, p.Store, id)
	for _, c := range rows {
		if c.Kind != Passkey {
			continue
		}
		var one webauthn.Credential
		if err := json.Unmarshal(c.Secret, &one); err != nil {
			return nil, err
		}
		out.credentials = append(out.credentials, one)
	}
	return out, err
}

// Ceremony is one question to a browser: Options are for its script, State is sealed and comes back with the answer.
type Ceremony struct {
	Options string
	State   string
}

// forSignUp is what the ceremony of a new person is for, and forSignIn that of any person who is known.
const (
	forSignUp = "sign-up"
	forSignIn = "sign-in"
)

// seal returns the state of a ceremony, so that the browser can keep it. use is [forSignUp], [forSignIn] or the id of a person.
func (p *People) seal(options any, s *webauthn.SessionData, use string) (Ceremony, error) {
	s.Expires = p.Clock().Add(ceremonyLife)
	text, err1 := json.Marshal(options)
	state, err2 := json.Marshal(s)
	if err := errors.Join(err1, err2); err != nil {
		return Ceremony{}, err
	}
	sealed, err := p.Seal(state, []byte("passkey "+use))
	return Ceremony{string(text), stateText.EncodeToString(sealed)}, err
}

var errPasskey = toll.Errorf(toll.CodeNotAuthenticated, "The passkey was not taken. Start again, or sign in another way.")

// open returns the state of a ceremony that was sealed for the same use. It uses the challenge up.
func (p *People) open(ctx context.Context, state, use string) (s webauthn.SessionData, err error) {
	sealed, err := stateText.DecodeString(state)
	if err != nil {
		return s, errPasskey
	}
	plain, err := p.Open(sealed, []byte("passkey "+use))
	if err != nil || json.Unmarshal(plain, &s) != nil || !p.Clock().Before(s.Expires) {
		return s, errPasskey
	}
	sum := sha256.Sum256([]byte("passkey " + s.Challenge))
	now := p.Clock()
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		first, err := store.ClaimForm(ctx, tx, sum[:], now, s.Expires)
		if err == nil && !first {
			err = errPasskey
		}
		return err
	})
	// The library goes by the clock of the machine, which a sandbox may have left behind.
	s.Expires = time.Time{}
	return s, err
}

// BeginPasskey asks the browser of a person for a new passkey.
func (p *People) BeginPasskey(ctx context.Context, user toll.UUID) (Ceremony, error) {
	if p.passkeys == nil {
		return Ceremony{}, errPasskey
	}
	u, err := p.passkeyUser(ctx, user)
	if err != nil {
		return Ceremony{}, err
	}
	options, session, err := p.passkeys.BeginRegistration(u, webauthn.WithExclusions(webauthn.Credentials(u.credentials).CredentialDescriptors()))
	if err != nil {
		return Ceremony{}, err
	}
	return p.seal(options.Response, session, user.String())
}

// AddPasskey takes the answer of the browser to [People.BeginPasskey]. Errors are safe to show.
func (p *People) AddPasskey(ctx context.Context, user toll.UUID, name, state, answer string) error {
	if p.passkeys == nil {
		return errPasskey
	}
	s, err := p.open(ctx, state, user.String())
	if err != nil {
		return err
	}
	u, err := p.passkeyUser(ctx, user)
	if err != nil {
		return err
	}
	c, err := p.newPasskey(u, s, name, answer)
	if err != nil {
		return err
	}
	return p.add(ctx, user, c)
}

// newPasskey returns the credential with which a browser answered a registration.
func (p *People) newPasskey(u *passkeyUser, s webauthn.SessionData, name, answer string) (store.Credential, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(answer))
	if err != nil {
		return store.Credential{}, errPasskey
	}
	c, err := p.passkeys.CreateCredential(u, s, parsed)
	if err != nil {
		return store.Credential{}, errPasskey
	}
	secret, err := json.Marshal(c)
	return store.Credential{
		Kind: Passkey, Subject: base64.RawURLEncoding.EncodeToString(c.ID), Name: cleanName(name, "passkey"), Secret: secret,
	}, err
}

// BeginPasskeySignUp asks a browser for the first passkey of a new person. The name in the options is empty: the page asks for it.
func (p *People) BeginPasskeySignUp() (Ceremony, error) {
	if p.passkeys == nil {
		return Ceremony{}, errPasskey
	}
	options, session, err := p.passkeys.BeginRegistration(&passkeyUser{id: toll.NewTimeUUID(p.Clock())})
	if err != nil {
		return Ceremony{}, err
	}
	return p.seal(options.Response, session, forSignUp)
}

// SignUpPasskey is [People.SignUp] with the answer of the browser to [People.BeginPasskeySignUp] in the place of login name and
// password. Errors are safe to show.
func (p *People) SignUpPasskey(ctx context.Context, source string, in SignUp, state, answer string) (User, toll.Address, error) {
	if p.passkeys == nil {
		return User{}, toll.Address{}, errPasskey
	}
	err := p.MaySignUp(ctx, in.Link)
	if err == nil {
		err = p.limits.signUp(source)
	}
	if err != nil {
		return User{}, toll.Address{}, err
	}
	s, err := p.open(ctx, state, forSignUp)
	if err != nil {
		return User{}, toll.Address{}, err
	}
	if len(s.UserID) != len(toll.UUID{}) {
		return User{}, toll.Address{}, errPasskey
	}
	u := &passkeyUser{id: toll.UUID(s.UserID)}
	first, err := p.newPasskey(u, s, "of the sign-up", answer)
	if err != nil {
		return User{}, toll.Address{}, err
	}
	made, at, err := p.insert(ctx, newPerson{id: u.id, name: cleanName(in.Name, "A person"), link: in.Link, first: first})
	if errors.Is(err, errTaken) {
		err = errPasskey // somebody has this passkey
	}
	return made, at, err
}

// BeginPasskeySignIn asks a browser for any passkey of this service.
func (p *People) BeginPasskeySignIn() (Ceremony, error) {
	if p.passkeys == nil {
		return Ceremony{}, errPasskey
	}
	options, session, err := p.passkeys.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationPreferred))
	if err != nil {
		return Ceremony{}, err
	}
	return p.seal(options.Response, session, forSignIn)
}

// ProvePasskey proves a person once more by a passkey of theirs.
func (p *People) ProvePasskey(ctx context.Context, source string, user toll.UUID, state, answer string) error {
	u, err := p.signInPasskey(ctx, source, state, answer, false)
	if err == nil && u.ID != user {
		err = errPasskey
	}
	return err
}

// SignInPasskey returns the person of the passkey with which a browser answered [People.BeginPasskeySignIn]. Errors are safe to show.
func (p *People) SignInPasskey(ctx context.Context, source, state, answer string) (toll.Person, error) {
	return p.signInPasskey(ctx, source, state, answer, true)
}

func (p *People) signInPasskey(ctx context.Context, source, state, answer string, begins bool) (toll.Person, error) {
	if p.passkeys == nil {
		return toll.Person{}, errPasskey
	}
	give, err := p.try(ctx, source, "", toll.UUID{})
	if err != nil {
		return toll.Person{}, err
	}
	s, err := p.open(ctx, state, forSignIn)
	if err != nil {
		return toll.Person{}, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(answer))
	if err != nil {
		return toll.Person{}, errPasskey
	}
	var failed error
	find := func(_, handle []byte) (webauthn.User, error) {
		if len(handle) != len(toll.UUID{}) {
			return nil, errPasskey
		}
		u, err := p.passkeyUser(ctx, toll.UUID(handle))
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) {
				failed = err
			}
			return nil, err
		}
		return u, nil
	}
	c, err := p.passkeys.ValidateDiscoverableLogin(find, s, parsed)
	if failed != nil {
		return toll.Person{}, failed
	}
	// A counter that went back says that somebody has a copy of the passkey.
	if err != nil || c.Authenticator.CloneWarning {
		return toll.Person{}, errPasskey
	}
	row, err := store.CredentialBySubject(ctx, p.Store, Passkey, base64.RawURLEncoding.EncodeToString(c.ID))
	if err != nil {
		return toll.Person{}, store.NotFoundAs(err, errPasskey)
	}
	if row.Secret, err = json.Marshal(c); err != nil {
		return toll.Person{}, err
	}
	u, err := p.signedIn(ctx, row, begins)
	if err == nil {
		give()
	}
	return u, err
}
