package server

import (
	"cmp"
	"context"
	"encoding/hex"
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
	// Prefix of the key, empty for the one of the service.
	Prefix string
	// Rights of the key; nil: all.
	Rights toll.Rights
	// Ends is when the key ends, in place of ExpiresIn; zero = see there.
	Ends time.Time
	// Operator makes the account an operator, who may move the clock of a sandbox.
	Operator bool
	// Init lets [CreateLocalKey] make a database that does not exist. Without it a directory that
	// holds none is refused with [ErrNoDatabase]: it may be mistyped. An older schema is never
	// changed.
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
		f, err = cfg.await(ctx, writing)
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
		return errors.New("the account has no name")
	}
	if r.ExpiresIn != 0 && r.ExpiresIn < time.Minute {
		return toll.NewError(toll.CodeKeyExpiryPast).WithDetails("a key lives at least 60 seconds")
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
		err = fmt.Errorf("no account has the address %s", req.Account)
	}
	if err != nil {
		return toll.APIKey{}, err
	}
	return createKeyAt(ctx, a, now, address, req)
}

func createKeyAt(ctx context.Context, a *auth.Auth, now time.Time, at toll.Address, req KeyRequest) (toll.APIKey, error) {
	params := auth.KeyParams{Name: req.Name, Prefix: req.Prefix, Rights: req.Rights, ExpiresAt: req.Ends}
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

// ExportLocalWallet gives the private key of the wallet of a named account out, once, on the database itself. The custody of the
// account is shared from then on. The error of a second time has the code [toll.CodeExists].
func ExportLocalWallet(ctx context.Context, cfg Config, account string) (out toll.WalletKey, err error) {
	err = administer(ctx, cfg, writing, func(_ Config, f *foundation) error {
		address, err := f.auth.Principal(ctx, account)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("no account is called %q", account)
		}
		if err != nil {
			return err
		}
		key, err := f.auth.ExportLocalWallet(ctx, address)
		if err != nil {
			return err
		}
		defer clear(key)
		out = toll.WalletKey{Address: address, PrivateKey: "0x" + hex.EncodeToString(key), Custody: toll.CustodyShared}
		return nil
	})
	return out, err
}

// EndSigningKey ends a signing key that others may have, on the database itself and beside running
// services. kid is "" for the one that signs. See [auth.Auth.EndSigningKey].
func EndSigningKey(ctx context.Context, cfg Config, statements bool, kid string) (out auth.EndedKey, err error) {
	purpose := ""
	if statements {
		purpose = store.StatementKey
	}
	err = administer(ctx, cfg, writing, func(_ Config, f *foundation) error {
		out, err = f.auth.EndSigningKey(ctx, purpose, kid)
		return err
	})
	return out, err
}

// RotateKey lets the next signing key take over, of offers and receipts with statements, on the database itself and beside
// running services: they read of it within half a minute, minutes before it happens.
func RotateKey(ctx context.Context, cfg Config, statements bool) (r auth.Rotation, err error) {
	purpose := ""
	if statements {
		purpose = store.StatementKey
	}
	err = administer(ctx, cfg, writing, func(_ Config, f *foundation) error {
		r, err = f.auth.RotateKey(ctx, purpose)
		return err
	})
	return r, err
}
