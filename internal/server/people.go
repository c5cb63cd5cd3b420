package server

import (
	"context"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/people"
)

// acceptsByCode returns what asks the chain for signatures of accounts with code, nil where there is no chain.
func (s *Server) acceptsByCode() func(context.Context, toll.Address, [32]byte, []byte) (bool, error) {
	if by := s.checkout.Seller(); by != nil {
		return by.Accepts
	}
	return nil
}

// FirstLink returns the address with which the first person signs up, who is an operator: once, within a day. "" when somebody has
// signed up. Links of earlier starts end.
func (s *Server) FirstLink(ctx context.Context) (string, error) {
	secret, err := s.people.Links.First(ctx)
	if secret == "" || err != nil {
		return "", err
	}
	return s.PublicURL() + "/sign-up?link=" + secret, nil
}

// LocalPerson returns a new API key of the own workspace of a person, by login name and password. An unknown login name signs up, as
// an operator if the key is one of an operator and nobody has signed up before.
func (s *Server) LocalPerson(ctx context.Context, name, login, password string, req KeyRequest) (toll.APIKey, error) {
	const source = "127.0.0.1"
	var at toll.Address
	u, err := s.people.Passwords.SignIn(ctx, source, login, password)
	if err == nil {
		var in []people.Workspace
		if in, err = s.people.Workspaces(ctx, u.ID); err == nil && len(in) == 0 {
			err = fmt.Errorf("%s has no workspace", login)
		}
		if err == nil {
			at = in[0].Address
		}
	} else {
		in := people.SignUp{Name: name, Login: login, Secret: password}
		if req.Operator {
			if in.Link, err = s.people.Links.First(ctx); err != nil {
				return toll.APIKey{}, err
			}
		}
		if _, at, err = s.people.Passwords.SignUp(ctx, source, in); err == nil {
			err = s.people.Members.Rename(ctx, auth.Caller{Address: at}, name+"'s workspace")
		}
	}
	if err != nil {
		return toll.APIKey{}, err
	}
	return createKeyAt(ctx, s.base.auth, s.cfg.Clock(), at, req)
}
