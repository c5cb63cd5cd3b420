package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// settingProvisional holds the public address that local administration wrote before any service was started, for which
// it could only guess. The first service replaces it by its own and empties the setting.
const settingProvisional = "provisional_issuer"

// Access says what a process does with a database.
type Access int

// Kinds of access.
const (
	Writing  Access = iota // from the shell
	Reading                // from the shell, without changes
	serving                // as the service, which migrates
	founding               // from the shell, which makes the schema of an empty database
)

// foundation is what the service and local administration have in common.
type foundation struct {
	names x402.Namespace // brand words of the database
	store *store.Store
	auth  *auth.Auth
	ring  *seal.Ring
	clock *clock
}

func (f *foundation) close() error { return f.store.Close() }

func (c Config) storeConfig(as Access) store.Config {
	out := store.Config{Data: c.Data, Database: c.Database, Release: c.Release, Log: c.Log, Admin: as != serving}
	switch as {
	case serving:
		out.Schema = store.UpgradeSchema
	case Writing:
		out.Schema = store.NeedSchema
	case founding:
		out.Schema = store.MakeSchema
	case Reading:
		out.Schema, out.ReadOnly = store.NeedSchema, true
	}
	return out
}

// open opens database, master key and principals.
func open(ctx context.Context, cfg Config, as Access) (_ *foundation, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	wanted := cmp.Or(cfg.Environment, toll.Sandbox)
	if as == serving && errors.Is(cfg.existing(), ErrNoDatabase) { // a refusal leaves nothing behind
		if err := cfg.Rails.CheckIn(wanted); err != nil {
			return nil, err
		}
	}
	st, err := store.Open(ctx, cfg.storeConfig(as))
	if err != nil {
		return nil, err
	}
	f := &foundation{store: st}
	defer func() {
		if err != nil {
			_ = f.close() // the first error counts
		}
	}()
	if as == serving && cfg.Data != "" {
		cfg.removeLeft()
	}

	// What the database says of itself decides whether a master key may be made: one beside the right one would be junk.
	environment, err := setting(ctx, st, "environment")
	if err != nil {
		return nil, err
	}
	first := environment == ""
	if first && as == Reading {
		return nil, fmt.Errorf("%w: no service has been started here", ErrNoDatabase)
	}
	if first {
		environment = string(cfg.Environment)
	}
	if as == serving {
		if err := cfg.Rails.CheckIn(toll.Environment(cmp.Or(environment, string(wanted)))); err != nil {
			return nil, err
		}
	}
	if f.ring, err = cfg.ringOf(toll.Environment(environment), first); err != nil {
		return nil, err
	}
	if f.clock, err = newClock(ctx, cfg.Clock, st, toll.Environment(environment)); err != nil {
		return nil, err
	}
	cfg.Clock = f.clock.now
	if cfg, err = cfg.withBrand(ctx, st, toll.Environment(environment)); err != nil {
		return nil, err
	}
	f.names = cfg.Namespace
	if f.auth, err = bootstrap(ctx, cfg, st, f.ring, as); err != nil {
		return nil, err
	}
	// Local administration writes the brand of a new database only. A first start that failed may have written none.
	if first || as == serving {
		if err := cfg.keepBrand(ctx, st, f.auth.Environment()); err != nil {
			return nil, err
		}
	}
	if toll.Environment(environment) == toll.Live && as == serving {
		if err := cfg.checkLive(publicURL(f.auth.Issuer())); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// ringOf returns the ring of the master key for a database of an environment. With create, a missing file in the data directory is made.
func (c Config) ringOf(environment toll.Environment, create bool) (*seal.Ring, error) {
	if environment == toll.Live && !c.ownMasterKey() && !c.LocalMasterKey {
		return nil, c.checkLive(c.PublicURL)
	}
	ring, err := c.openRing(create)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: set TOLL_MASTER_KEY_FILE (--master-key-file) to the master key file that the first start used", err)
	}
	return ring, err
}

func setting(ctx context.Context, q store.Querier, name string) (string, error) {
	v, err := store.Setting(ctx, q, name)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return string(v), err
}

func bootstrap(ctx context.Context, cfg Config, st *store.Store, ring *seal.Ring, as Access) (*auth.Auth, error) {
	first := auth.Config{
		Environment: cfg.Environment, Issuer: cfg.listenURL() + api.Base, ClaimObject: cfg.Namespace.Scheme,
		Prefix: cfg.KeyPrefix, ShortKeys: cfg.Namespace == x402.Default, Version: apiversion.Current.String(), Clock: cfg.Clock, Log: cfg.Log,
	}
	if as == Reading {
		first.ReadOnly = true
		return auth.Bootstrap(ctx, st, ring, first)
	}
	if cfg.PublicURL != "" {
		first.Issuer = strings.TrimSuffix(strings.TrimRight(cfg.PublicURL, "/"), api.Base) + api.Base
		first.IssuerGiven = true
		return auth.Bootstrap(ctx, st, ring, first)
	}
	if as != serving {
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
	if err != nil {
		return nil, err
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
