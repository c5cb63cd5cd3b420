package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// settingProvisional holds the public address that local administration wrote before any service was started, for which
// it could only guess. The first service replaces it by its own and empties the setting.
const settingProvisional = "provisional_issuer"

// foundation is what the service and local administration have in common.
type foundation struct {
	store *store.Store
	auth  *auth.Auth
	ring  *seal.Ring
	clock *clock
}

func (f *foundation) close(ctx context.Context) error {
	var errs []error
	if f.auth != nil {
		errs = append(errs, f.auth.Close(ctx))
	}
	return errors.Join(append(errs, f.store.Close())...)
}

// open opens database, master key and principals. Migrations have run when it returns.
func open(ctx context.Context, cfg Config, admin bool) (_ *foundation, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, store.Config{Data: cfg.Data, Database: cfg.Database, Admin: admin, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	f := &foundation{store: st}
	defer func() {
		if err != nil {
			_ = f.close(context.WithoutCancel(ctx)) // the first error counts
		}
	}()

	// What the database says of itself decides whether a master key may be made: one beside the right one would be junk.
	environment, err := setting(ctx, st, "environment")
	if err != nil {
		return nil, err
	}
	first := environment == ""
	if first {
		environment = string(cfg.Environment)
	}
	live := toll.Environment(environment) == toll.Live
	if live && !cfg.ownMasterKey() && !cfg.LocalMasterKey {
		return nil, cfg.checkLive(cfg.PublicURL)
	}
	ring, err := cfg.openRing(first)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: name the master key file of the first start with TOLL_MASTER_KEY_FILE (--master-key-file)", err)
	}
	if err != nil {
		return nil, err
	}
	f.ring = ring
	if f.clock, err = newClock(ctx, cfg.Clock, st, toll.Environment(environment)); err != nil {
		return nil, err
	}
	cfg.Clock = f.clock.now
	if f.auth, err = bootstrap(ctx, cfg, st, ring, admin); err != nil {
		return nil, err
	}
	if live && !admin {
		if err := cfg.checkLive(publicURL(f.auth.Issuer())); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func setting(ctx context.Context, q store.Querier, name string) (string, error) {
	v, err := store.Setting(ctx, q, name)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return string(v), err
}

func bootstrap(ctx context.Context, cfg Config, st *store.Store, ring *seal.Ring, admin bool) (*auth.Auth, error) {
	first := auth.Config{
		Environment: cfg.Environment, Issuer: cfg.listenURL() + api.Base, ClaimObject: cfg.Namespace.Scheme,
		Prefix: cfg.KeyPrefix, Version: gate.Current.String(), Clock: cfg.Clock, Log: cfg.Log,
	}
	if cfg.PublicURL != "" {
		first.Issuer = strings.TrimSuffix(strings.TrimRight(cfg.PublicURL, "/"), api.Base) + api.Base
		first.IssuerGiven = true
		return auth.Bootstrap(ctx, st, ring, first)
	}
	if admin {
		if err := noteGuess(ctx, st, first.Issuer); err != nil {
			return nil, err
		}
		return auth.Bootstrap(ctx, st, ring, first)
	}
	a, err := auth.Bootstrap(ctx, st, ring, first)
	if err != nil {
		return nil, err
	}
	guess, err := setting(ctx, st, settingProvisional)
	if err == nil && guess != "" {
		err = st.Tx(ctx, func(tx *store.Tx) error { return store.PutSetting(ctx, tx, settingProvisional, nil) })
	}
	if err == nil && (guess == "" || guess != a.Issuer() || guess == first.Issuer) {
		return a, nil
	}
	if e := a.Close(ctx); e != nil || err != nil {
		return nil, errors.Join(err, e)
	}
	first.IssuerGiven = true
	return auth.Bootstrap(ctx, st, ring, first)
}

// noteGuess marks the public address of a database that no service has seen yet as a guess.
func noteGuess(ctx context.Context, st *store.Store, issuer string) error {
	return st.Tx(ctx, func(tx *store.Tx) error {
		environment, err := setting(ctx, tx, "environment")
		if err != nil || environment != "" {
			return err
		}
		return store.PutSetting(ctx, tx, settingProvisional, []byte(issuer))
	})
}

func publicURL(issuer string) string { return strings.TrimSuffix(issuer, api.Base) }
