package people

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Proof is what a person proved to have: a mail address or an account of a provider.
type Proof struct {
	Kind    string `json:"kind"`    // [Mail], [OIDC] or [Wallet]
	Subject string `json:"subject"` // unique within the kind
	Name    string `json:"name"`    // as pages show it
	// Contract says that code of an account took the signature of a wallet. Its sessions end after [ContractLife].
	Contract bool `json:"contract,omitzero"`
}

// proofLife is how long a person without an account may take to make one.
const proofLife = 10 * time.Minute

// proofState is a proof that waits for a person to make an account, sealed.
type proofState struct {
	Proof
	Link string    `json:"link"` // secret of a link that lets the person in
	Ends time.Time `json:"ends"`
}

var errProof = toll.Errorf(toll.CodeNotAuthenticated, "This sign-in has expired or was already used. Start again.")

// stateText is the base64 of sealed states. Strict refuses bits behind the last byte.
var stateText = base64.RawURLEncoding.Strict()

// states seals values that pages keep between two requests, so that a browser can neither read nor change them.
type states struct {
	Seal, Open func(text, aad []byte) ([]byte, error)
	clock      func() time.Time
}

func (s *states) seal(v any, use string) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sealed, err := s.Seal(text, []byte(use))
	return stateText.EncodeToString(sealed), err
}

// open reads into v what [states.seal] sealed for the same use, and reports whether it could.
func (s *states) open(state, use string, v any) bool {
	sealed, err := stateText.DecodeString(state)
	if err != nil {
		return false
	}
	text, err := s.Open(sealed, []byte(use))
	return err == nil && json.Unmarshal(text, v) == nil
}

// claim uses up an open state. It hashes the sealed bytes, because line breaks in base64 give one state many texts.
func (s *states) claim(ctx context.Context, tx *store.Tx, state string, ends time.Time) error {
	sealed, err := stateText.DecodeString(state)
	if err != nil {
		return errProof
	}
	return claim(ctx, tx, "people "+string(sealed), s.clock(), ends, errProof)
}

// claim uses up a key until it ends, and returns used for a second use.
func claim(ctx context.Context, tx *store.Tx, key string, now, ends time.Time, used error) error {
	first, err := store.ClaimForm(ctx, tx, sumOf(key), now, ends)
	if err == nil && !first {
		return used
	}
	return err
}

// Proofs signs people in, and signs them up, with what they proved to have.
type Proofs struct {
	store       *store.Store
	states      *states
	signUps     *SignUps
	credentials *Credentials
}

// SignIn returns the person of a proof. [store.ErrNotFound] when no person has it as a credential.
func (ps *Proofs) SignIn(ctx context.Context, pr Proof) (toll.Person, error) {
	c, err := store.CredentialBySubject(ctx, ps.store, pr.Kind, pr.Subject)
	if err != nil {
		return toll.Person{}, err
	}
	u, err := ps.credentials.used(ctx, c, true)
	if errors.Is(err, errSignIn) {
		err = errProof
	}
	return u, err
}

// Keep returns the state with which a new person signs up with a proof. The error is safe to show: [toll.CodeForbidden] if closed.
func (ps *Proofs) Keep(ctx context.Context, pr Proof, link string) (state string, err error) {
	if err := ps.signUps.MaySignUp(ctx, link); err != nil {
		return "", err
	}
	return ps.states.seal(proofState{pr, link, ps.states.clock().Add(proofLife)}, "people proved")
}

// Read returns the proof of a state. The error is safe to show.
func (ps *Proofs) Read(state string) (Proof, error) {
	s, err := ps.open(state)
	return s.Proof, err
}

func (ps *Proofs) open(state string) (s proofState, err error) {
	if !ps.states.open(state, "people proved", &s) || !ps.states.clock().Before(s.Ends) {
		return s, errProof
	}
	return s, nil
}

// SignUp is [Passwords.SignUp] with the proof of a state in place of a password. Errors are safe to show.
func (ps *Proofs) SignUp(ctx context.Context, source, state, name, workspace string) (toll.Person, string, toll.Address, error) {
	s, err := ps.open(state)
	if err == nil {
		err = ps.signUps.admit(ctx, source, s.Link)
	}
	if err != nil {
		return toll.Person{}, "", toll.Address{}, err
	}
	first := store.Credential{Kind: s.Kind, Subject: s.Subject, Name: s.Name}
	u, at, err := ps.signUps.insert(ctx, newPerson{name: cleanName(name, "A person"), workspace: workspace, link: s.Link, first: first, state: state, ends: s.Ends})
	if errors.Is(err, errTaken) {
		err = errProof // it has an account meanwhile
	}
	return u, s.Kind, at, err
}

// Confirm records that a person proved a credential once more. The error is safe to show.
func (ps *Proofs) Confirm(ctx context.Context, user toll.UUID, pr Proof) error {
	c, err := store.CredentialBySubject(ctx, ps.store, pr.Kind, pr.Subject)
	if err == nil && c.UserID != user {
		err = store.ErrNotFound
	}
	if err == nil {
		_, err = ps.credentials.used(ctx, c, false)
	}
	return store.NotFoundAs(err, toll.Errorf(toll.CodeNotAuthenticated, "%s is not a sign-in method of your account.", pr.Name))
}

// Add makes a proof a credential of a person. Errors: [toll.CodeExists] when it is a credential already.
func (ps *Proofs) Add(ctx context.Context, user toll.UUID, pr Proof) error {
	return ps.credentials.add(ctx, user, store.Credential{Kind: pr.Kind, Subject: pr.Subject, Name: pr.Name})
}
