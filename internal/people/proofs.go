package people

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Proved is what a person proved to have: a mail address or an account of a provider.
type Proved struct {
	Kind    string `json:"kind"`    // [Mail], [OIDC] or [Wallet]
	Subject string `json:"subject"` // unique within the kind
	Name    string `json:"name"`    // as pages show it
	// Contract says that code of an account took the signature of a wallet. Its sessions end after [ContractLife].
	Contract bool `json:"contract,omitzero"`
}

// provedLife is how long a person without an account may take to make one.
const provedLife = 10 * time.Minute

// provedState is a proof that waits for a person to make an account, sealed.
type provedState struct {
	Proved
	Link string    `json:"link"` // secret of a link that lets the person in
	Ends time.Time `json:"ends"`
}

var errProved = toll.Errorf(toll.CodeNotAuthenticated, "This sign-in has ended or was used. Start again.")

// stateText is the base64 of sealed states. Strict refuses bits behind the last byte.
var stateText = base64.RawURLEncoding.Strict()

// sealState returns what a page keeps, so that nobody can read or change it.
func (p *People) sealState(s any, use string) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	sealed, err := p.Seal(text, []byte("people "+use))
	return stateText.EncodeToString(sealed), err
}

// openState reads what [People.sealState] made for the same use, and reports whether it did.
func (p *People) openState(state, use string, s any) bool {
	sealed, err := stateText.DecodeString(state)
	if err != nil {
		return false
	}
	plain, err := p.Open(sealed, []byte("people "+use))
	return err == nil && json.Unmarshal(plain, s) == nil
}

// claimState returns an error when an open state was used before. It goes by the sealed bytes: the decoder of base64 skips line
// breaks, so that one state has many texts.
func (p *People) claimState(ctx context.Context, tx *store.Tx, state string, ends time.Time) error {
	sealed, err := stateText.DecodeString(state)
	if err != nil {
		return errProved
	}
	sum := sha256.Sum256(append([]byte("people "), sealed...))
	first, err := store.ClaimForm(ctx, tx, sum[:], p.Clock(), ends)
	if err == nil && !first {
		err = errProved
	}
	return err
}

// SignInProved returns the person of what was proved. [store.ErrNotFound] when it is nobody's.
func (p *People) SignInProved(ctx context.Context, pr Proved) (User, error) {
	c, err := store.CredentialBySubject(ctx, p.Store, pr.Kind, pr.Subject)
	if err != nil {
		return User{}, err
	}
	u, err := p.signedIn(ctx, c, true)
	if errors.Is(err, errSignIn) {
		err = errProved
	}
	return u, err
}

// KeepProved returns the state with which a person who is not known yet makes an account of what they proved. The error is safe to
// show: [toll.CodeForbidden] where registration is closed.
func (p *People) KeepProved(ctx context.Context, pr Proved, link string) (state string, err error) {
	if err := p.MaySignUp(ctx, link); err != nil {
		return "", err
	}
	return p.sealState(provedState{pr, link, p.Clock().Add(provedLife)}, "proved")
}

// ReadProved returns what a person proved who makes an account. The error is safe to show.
func (p *People) ReadProved(state string) (Proved, error) {
	s, err := p.openProved(state)
	return s.Proved, err
}

func (p *People) openProved(state string) (s provedState, err error) {
	if !p.openState(state, "proved", &s) || !p.Clock().Before(s.Ends) {
		return s, errProved
	}
	return s, nil
}

// SignUpProved is [People.SignUp] with what was proved in the place of a password. Errors are safe to show.
func (p *People) SignUpProved(ctx context.Context, source, state, name string) (User, string, toll.Address, error) {
	s, err := p.openProved(state)
	if err == nil {
		err = p.MaySignUp(ctx, s.Link)
	}
	if err == nil {
		err = p.limits.signUp(source)
	}
	if err != nil {
		return User{}, "", toll.Address{}, err
	}
	first := store.Credential{Kind: s.Kind, Subject: s.Subject, Name: s.Name}
	u, at, err := p.insert(ctx, newPerson{name: cleanName(name, "A person"), link: s.Link, first: first, state: state, ends: s.Ends})
	if errors.Is(err, errTaken) {
		err = errProved // it has an account meanwhile
	}
	return u, s.Kind, at, err
}

// ConfirmProved notes that a person proved once more what they have. The error is safe to show.
func (p *People) ConfirmProved(ctx context.Context, user toll.UUID, pr Proved) error {
	c, err := store.CredentialBySubject(ctx, p.Store, pr.Kind, pr.Subject)
	if err == nil && c.UserID != user {
		err = store.ErrNotFound
	}
	if err == nil {
		_, err = p.signedIn(ctx, c, false)
	}
	return store.NotFoundAs(err, toll.Errorf(toll.CodeNotAuthenticated, "%s is not yours here.", pr.Name))
}

// AddProved makes what was proved a credential of a person. Errors: [toll.CodeExists] when it is somebody's.
func (p *People) AddProved(ctx context.Context, user toll.UUID, pr Proved) error {
	return p.add(ctx, user, store.Credential{Kind: pr.Kind, Subject: pr.Subject, Name: pr.Name})
}

// Has returns which kinds of credentials a person can use.
func (p *People) Has(ctx context.Context, user toll.UUID) (kinds []string, err error) {
	rows, err := store.CredentialsOf(ctx, p.Store, user)
	for _, c := range rows {
		if !slices.Contains(kinds, c.Kind) && !(p.NoPasswords && c.Kind == Password) {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds, err
}
