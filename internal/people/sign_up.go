package people

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

type SignUp struct {
	Name      string // shown to others; at most 100 printable characters
	Workspace string // name of the person's workspace, as in [Members.Rename]; may be empty
	Login     string // with which the person signs in by password
	Secret    string // the password
	Link      string // secret of a link that lets the person in; may be empty where registration is open
}

// SignUps lets new people in.
type SignUps struct {
	store        *store.Store
	auth         *auth.Auth
	clock        func() time.Time
	states       *states
	limits       *limits
	Registration Registration
}

// errClosed means that sign-up requires a link.
var errClosed = toll.Errorf(toll.CodeForbidden, "Sign-up requires an invitation.").
	WithHint("Ask the operator of this service, or the owner of a workspace, for a link.")

// MaySignUp returns nil when a person with this link ("" for none) may sign up. The error is safe to show.
func (su *SignUps) MaySignUp(ctx context.Context, secret string) error {
	if secret == "" {
		if su.Registration != Open {
			return errClosed
		}
		return nil
	}
	l, err := store.LinkByHash(ctx, su.store, sumOf(secret))
	return usable(l, err, su.clock(), linkSignUp, linkOperator, linkJoin)
}

// admit is [SignUps.MaySignUp], and counts a sign-up of the source.
func (su *SignUps) admit(ctx context.Context, source, secret string) error {
	if err := su.MaySignUp(ctx, secret); err != nil {
		return err
	}
	return su.limits.signUp(source)
}

type newPerson struct {
	id         toll.UUID // zero: a new one
	name, link string
	workspace  string // name of the person's workspace; may be empty
	first      store.Credential
	state      string // with which the person came, which is used up; "" for none
	ends       time.Time
}

func (su *SignUps) insert(ctx context.Context, n newPerson) (toll.Person, toll.Address, error) {
	link, first := n.link, n.first
	now := su.clock()
	u := store.User{ID: cmp.Or(n.id, toll.NewTimeUUID(now)), Name: n.name, CreatedAt: now}
	var w store.Principal
	var err error
	if first.Kind == Wallet { // its address is the workspace
		w.Address, err = toll.ParseAddress(first.Subject)
	} else {
		w, err = su.auth.NewPrincipal("")
	}
	if err == nil {
		n.workspace, err = checkTitle("workspace", n.workspace)
	}
	if err != nil {
		return toll.Person{}, toll.Address{}, err
	}
	first.ID, first.UserID, first.CreatedAt, first.UsedAt = toll.NewTimeUUID(now), u.ID, now, now
	at := w.Address
	ctx = as(ctx, u.ID)
	err = su.store.Tx(ctx, func(tx *store.Tx) error {
		if n.state != "" {
			if err := su.states.claim(ctx, tx, n.state, n.ends); err != nil {
				return err
			}
		}
		u.Operator, at = false, w.Address
		var acts []store.Act
		if link != "" {
			l, err := store.LockLink(ctx, tx, sumOf(link))
			if err := usable(l, err, su.clock(), linkSignUp, linkOperator, linkJoin); err != nil {
				return err
			}
			u.Operator = l.Kind == linkOperator
			l.UsedAt, l.UsedBy = now, u.ID
			if err := store.UpdateLink(ctx, tx, l); err != nil {
				return err
			}
			if l.Kind == linkJoin {
				act, err := join(ctx, tx, su.clock(), l, u.ID)
				if err != nil {
					return err
				}
				acts = append(acts, act)
				at, _ = toll.ParseAddress(l.Workspace)
			}
		}
		if err := errors.Join(store.InsertUser(ctx, tx, u), store.InsertCredential(ctx, tx, first)); err != nil {
			return err
		}
		made, err := ownWorkspace(ctx, tx, su.clock(), w, u)
		if err == nil && n.workspace != "" {
			err = store.SetTitle(ctx, tx, w.Address, n.workspace)
		}
		if err != nil {
			return err
		}
		acts = append(acts, made...)
		return store.AuditAll(ctx, tx, su.clock(), acts...)
	})
	if store.IsUnique(err) {
		return toll.Person{}, toll.Address{}, errTaken
	}
	return userOf(u), at, err
}

// ownWorkspace makes the workspace of a new person.
func ownWorkspace(ctx context.Context, tx *store.Tx, now time.Time, w store.Principal, u store.User) ([]store.Act, error) {
	if len(w.SealedKey) == 0 {
		return ownWallet(ctx, tx, now, u.ID, w.Address, u.Operator)
	}
	w.Operator = u.Operator
	if err := store.InsertPrincipal(ctx, tx, w); err != nil {
		return nil, err
	}
	own := store.Membership{Workspace: w.Address, UserID: u.ID, Role: toll.RoleOwner, CreatedAt: u.CreatedAt}
	return []store.Act{{Workspace: w.Address.Lower(), Act: "workspace.created", Object: w.Address.Lower()}}, addMember(ctx, tx, own)
}

var errTaken = toll.Errorf(toll.CodeExists, "This login name is taken.").WithHint("Choose another login name, or sign in.")
