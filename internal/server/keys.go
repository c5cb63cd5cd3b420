package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// KeyRequest asks for an API key of an account that is known by its name.
type KeyRequest struct {
	// Account is the name of the account, which is made on its first use; 1 to 100 printable characters. Or the address of one that exists.
	Account string
	// Name of the key, may be empty.
	Name string
	// ExpiresIn is the life of the key, at least 60 s; 0 = it does not end.
	ExpiresIn time.Duration
	// Version is the pinned API version; empty is the current one.
	Version string
	// Short asks for a short key. The default is a long one, which deployed clients decode.
	Short bool
	// Prefix of a long key, empty for the one of the service.
	Prefix string
	// Rights of the key; nil: all.
	Rights toll.Rights
	// Ends is when the key ends, in place of ExpiresIn; zero = see there.
	Ends time.Time
	// Operator makes the account an operator, who may move the clock of a sandbox.
	Operator bool
	// Init lets [CreateLocalKey] make a database that does not exist. Without it a directory that holds none is refused with
	// [ErrNoDatabase]: it may be mistyped. An older schema is never changed.
	Init bool
}

// CreateLocalKey makes an API key on the database itself: the first one, or one for an operator who has none. It works
// before the first start and beside a running service.
func CreateLocalKey(ctx context.Context, cfg Config, req KeyRequest) (toll.APIKey, error) {
	cfg = cfg.withDefaults()
	if err := req.check(); err != nil {
		return toll.APIKey{}, err
	}
	var f *foundation
	var err error
	if req.Init {
		if errors.Is(cfg.existing(), ErrNoDatabase) {
			cfg.KeyPrefix = cmp.Or(cfg.KeyPrefix, req.Prefix)
		}
		f, err = open(ctx, cfg, founding)
	} else {
		f, err = cfg.await(ctx, Writing)
	}
	if err != nil {
		return toll.APIKey{}, err
	}
	key, err := createKey(ctx, f.auth, f.clock.now(), req)
	return key, errors.Join(err, f.close())
}

// CreateKey makes an API key of a named account of the running service.
func (s *Server) CreateKey(ctx context.Context, req KeyRequest) (toll.APIKey, error) {
	if err := req.check(); err != nil {
		return toll.APIKey{}, err
	}
	return createKey(ctx, s.base.auth, s.cfg.Clock(), req)
}

func (r KeyRequest) check() error {
	if r.Account == "" {
		return errors.New("the name of the workspace is empty")
	}
	if r.ExpiresIn != 0 && r.ExpiresIn < time.Minute {
		return toll.NewError(toll.CodeKeyExpiryPast).WithDetails("a key must be valid for at least 60 seconds")
	}
	if r.Version != "" {
		if _, err := apiversion.Parse(r.Version); err != nil {
			return toll.NewError(toll.CodeVersionUnknown).WithCause(err)
		}
	}
	return nil
}

func createKey(ctx context.Context, a *auth.Auth, now time.Time, req KeyRequest) (toll.APIKey, error) {
	address, err := a.CreatePrincipal(ctx, req.Account)
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("no workspace has the address %s", req.Account)
	}
	if err != nil {
		return toll.APIKey{}, err
	}
	return createKeyAt(ctx, a, now, address, req)
}

func createKeyAt(ctx context.Context, a *auth.Auth, now time.Time, at toll.Address, req KeyRequest) (toll.APIKey, error) {
	params := auth.KeyParams{Name: req.Name, Form: toll.KeyLong, Prefix: req.Prefix, Rights: req.Rights, ExpiresAt: req.Ends}
	if req.Short {
		params.Form = toll.KeyShort
	}
	if req.Version != "" {
		v, err := apiversion.Parse(req.Version)
		if err != nil {
			return toll.APIKey{}, toll.NewError(toll.CodeVersionUnknown).WithCause(err)
		}
		params.Version = v.String()
	}
	if req.ExpiresIn > 0 {
		params.ExpiresAt = now.Add(req.ExpiresIn)
	}
	if req.Operator {
		if err := a.MakeOperator(ctx, at); err != nil {
			return toll.APIKey{}, err
		}
	}
	return a.CreateKey(ctx, auth.Local(at), params, nil)
}
