package people

import (
	"context"
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

// newPasskeys returns nil where browsers accept no passkeys: at an IP address, and without https except on localhost.
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

// Passkeys registers passkeys and signs people in with them.
type Passkeys struct {
	store       *store.Store
	states      *states
	limits      *limits
	signUps     *SignUps
	credentials *Credentials
	library     *webauthn.WebAuthn // nil: browsers accept no passkeys at the public address
}

// Supported reports whether browsers accept passkeys at the public address.
func (pk *Passkeys) Supported() bool { return pk.library != nil }

type passkeyUser struct {
	id          toll.UUID
	name        string
	credentials []webauthn.Credential
}

func (u *passkeyUser) WebAuthnID() []byte                         { return u.id[:] }
func (u *passkeyUser) WebAuthnName() string                       { return u.name }
func (u *passkeyUser) WebAuthnDisplayName() string                { return u.name }
func (u *passkeyUser) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

func (pk *Passkeys) user(ctx context.Context, id toll.UUID) (*passkeyUser, error) {
	u, err := readUser(ctx, pk.store, id)
	if err != nil {
		return nil, err
	}
	out := &passkeyUser{id: id, name: u.Name}
	rows, err := store.CredentialsOf(ctx, pk.store, id)
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
func (pk *Passkeys) seal(options any, s *webauthn.SessionData, use string) (Ceremony, error) {
	s.Expires = pk.states.clock().Add(ceremonyLife)
	text, err1 := json.Marshal(options)
	state, err2 := pk.states.seal(s, "passkey "+use)
	return Ceremony{string(text), state}, errors.Join(err1, err2)
}

var errPasskey = toll.Errorf(toll.CodeNotAuthenticated, "The passkey was not accepted. Start again, or sign in another way.")

// open returns the state of a ceremony that was sealed for the same use. It uses the challenge up.
func (pk *Passkeys) open(ctx context.Context, state, use string) (s webauthn.SessionData, err error) {
	if now := pk.states.clock(); !pk.states.open(state, "passkey "+use, &s) || !now.Before(s.Expires) {
		return s, errPasskey
	}
	err = pk.store.Tx(ctx, func(tx *store.Tx) error {
		return claim(ctx, tx, "passkey "+s.Challenge, pk.states.clock(), s.Expires, errPasskey)
	})
	// The library goes by the clock of the machine, which a sandbox may have left behind.
	s.Expires = time.Time{}
	return s, err
}

// Begin asks the browser of a person for a new passkey.
func (pk *Passkeys) Begin(ctx context.Context, user toll.UUID) (Ceremony, error) {
	if pk.library == nil {
		return Ceremony{}, errPasskey
	}
	u, err := pk.user(ctx, user)
	if err != nil {
		return Ceremony{}, err
	}
	options, session, err := pk.library.BeginRegistration(u, webauthn.WithExclusions(webauthn.Credentials(u.credentials).CredentialDescriptors()))
	if err != nil {
		return Ceremony{}, err
	}
	return pk.seal(options.Response, session, user.String())
}

// Add takes the answer of the browser to [Passkeys.Begin]. Errors are safe to show.
func (pk *Passkeys) Add(ctx context.Context, user toll.UUID, name, state, answer string) error {
	if pk.library == nil {
		return errPasskey
	}
	s, err := pk.open(ctx, state, user.String())
	if err != nil {
		return err
	}
	u, err := pk.user(ctx, user)
	if err != nil {
		return err
	}
	c, err := pk.credential(u, s, name, answer)
	if err != nil {
		return err
	}
	return pk.credentials.add(ctx, user, c)
}

// credential returns the credential with which a browser answered a registration.
func (pk *Passkeys) credential(u *passkeyUser, s webauthn.SessionData, name, answer string) (store.Credential, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(answer))
	if err != nil {
		return store.Credential{}, errPasskey
	}
	c, err := pk.library.CreateCredential(u, s, parsed)
	if err != nil {
		return store.Credential{}, errPasskey
	}
	secret, err := json.Marshal(c)
	return store.Credential{
		Kind: Passkey, Subject: base64.RawURLEncoding.EncodeToString(c.ID), Name: cleanName(name, "passkey"), Secret: secret,
	}, err
}

// BeginSignUp asks a browser for the first passkey of a new person. The name in the options is empty: the page asks for it.
func (pk *Passkeys) BeginSignUp() (Ceremony, error) {
	if pk.library == nil {
		return Ceremony{}, errPasskey
	}
	options, session, err := pk.library.BeginRegistration(&passkeyUser{id: toll.NewTimeUUID(pk.states.clock())})
	if err != nil {
		return Ceremony{}, err
	}
	return pk.seal(options.Response, session, forSignUp)
}

// SignUp is [Passwords.SignUp] with the answer to [Passkeys.BeginSignUp] in place of a password. Errors are safe to show.
func (pk *Passkeys) SignUp(ctx context.Context, source string, in SignUp, state, answer string) (toll.Person, toll.Address, error) {
	if pk.library == nil {
		return toll.Person{}, toll.Address{}, errPasskey
	}
	if err := pk.signUps.admit(ctx, source, in.Link); err != nil {
		return toll.Person{}, toll.Address{}, err
	}
	s, err := pk.open(ctx, state, forSignUp)
	if err != nil {
		return toll.Person{}, toll.Address{}, err
	}
	if len(s.UserID) != len(toll.UUID{}) {
		return toll.Person{}, toll.Address{}, errPasskey
	}
	u := &passkeyUser{id: toll.UUID(s.UserID)}
	first, err := pk.credential(u, s, "from sign-up", answer)
	if err != nil {
		return toll.Person{}, toll.Address{}, err
	}
	made, at, err := pk.signUps.insert(ctx, newPerson{id: u.id, name: cleanName(in.Name, "A person"), workspace: in.Workspace, link: in.Link, first: first})
	if errors.Is(err, errTaken) {
		err = errPasskey // somebody has this passkey
	}
	return made, at, err
}

// BeginSignIn asks a browser for any passkey of this service.
func (pk *Passkeys) BeginSignIn() (Ceremony, error) {
	if pk.library == nil {
		return Ceremony{}, errPasskey
	}
	options, session, err := pk.library.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationPreferred))
	if err != nil {
		return Ceremony{}, err
	}
	return pk.seal(options.Response, session, forSignIn)
}

// Prove proves a person once more by a passkey of theirs.
func (pk *Passkeys) Prove(ctx context.Context, source string, user toll.UUID, state, answer string) error {
	u, err := pk.signIn(ctx, source, state, answer, false)
	if err == nil && u.ID != user {
		err = errPasskey
	}
	return err
}

// SignIn returns the person of the passkey with which a browser answered [Passkeys.BeginSignIn]. Errors are safe to show.
func (pk *Passkeys) SignIn(ctx context.Context, source, state, answer string) (toll.Person, error) {
	return pk.signIn(ctx, source, state, answer, true)
}

func (pk *Passkeys) signIn(ctx context.Context, source, state, answer string, begins bool) (toll.Person, error) {
	if pk.library == nil {
		return toll.Person{}, errPasskey
	}
	give, err := pk.limits.try(ctx, source, "", toll.UUID{})
	if err != nil {
		return toll.Person{}, err
	}
	s, err := pk.open(ctx, state, forSignIn)
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
		u, err := pk.user(ctx, toll.UUID(handle))
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) {
				failed = err
			}
			return nil, err
		}
		return u, nil
	}
	c, err := pk.library.ValidateDiscoverableLogin(find, s, parsed)
	if failed != nil {
		return toll.Person{}, failed
	}
	// A counter that went back says that somebody has a copy of the passkey.
	if err != nil || c.Authenticator.CloneWarning {
		return toll.Person{}, errPasskey
	}
	row, err := store.CredentialBySubject(ctx, pk.store, Passkey, base64.RawURLEncoding.EncodeToString(c.ID))
	if err != nil {
		return toll.Person{}, store.NotFoundAs(err, errPasskey)
	}
	if row.Secret, err = json.Marshal(c); err != nil {
		return toll.Person{}, err
	}
	u, err := pk.credentials.used(ctx, row, begins)
	if err == nil {
		give()
	}
	return u, err
}
