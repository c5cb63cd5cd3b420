package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Settings of a database that every process must share. Values are permanent: later releases read
// them.
const (
	settingNamespace = "namespace"  // as [x402.ParseNamespace] reads it
	settingKeyPrefix = "key_prefix" // of new API keys
)

// ownKeyPrefix is the default prefix of API keys under a namespace of one's own. Deployed clients
// send a key with the prefix sandbox or live to a fixed address of theirs, whatever address they
// are configured with.
const ownKeyPrefix = "local"

// withBrand returns the configuration with the namespace and the key prefix of the database; what
// it does not hold yet is as given, else the default. Errors name both where something else is
// given.
func (c Config) withBrand(
	ctx context.Context,
	q store.Querier,
	environment toll.Environment,
) (Config, error) {
	names, err := setting(ctx, q, settingNamespace)
	if err != nil {
		return c, err
	}
	prefix, err := setting(ctx, q, settingKeyPrefix)
	if err != nil {
		return c, err
	}
	given := c.Namespace
	if c.Namespace, err = x402.ParseNamespace(cmp.Or(names, given.String())); err != nil {
		return c, fmt.Errorf("the namespace of the database: %w", err)
	}
	if given != (x402.Namespace{}) && given != c.Namespace {
		return c, fmt.Errorf(
			"this database has the namespace %s, and %s is given: leave --namespace (TOLL_NAMESPACE) out, or name the right "+
				"database; a database keeps its namespace, as its API keys and access tokens are signed with it",
			c.Namespace.String(),
			given.String(),
		)
	}
	if prefix != "" && c.KeyPrefix != "" && c.KeyPrefix != prefix {
		return c, fmt.Errorf(
			"new API keys of this database have the prefix %q, and %q is given: leave --key-prefix (TOLL_KEY_PREFIX) out, "+
				"or change it with: toll keys set-prefix %s --local",
			prefix,
			c.KeyPrefix,
			c.KeyPrefix,
		)
	}
	c.KeyPrefix = cmp.Or(prefix, c.KeyPrefix)
	if c.KeyPrefix == "" {
		c.KeyPrefix = string(cmp.Or(environment, toll.Sandbox))
		if c.Namespace != x402.Default {
			c.KeyPrefix = ownKeyPrefix
		}
	}
	return c, nil
}

// keepBrand stores namespace and key prefix, or checks them against those that another process
// stored meanwhile.
func (c Config) keepBrand(
	ctx context.Context,
	st *store.Store,
	environment toll.Environment,
) error {
	return st.Tx(ctx, func(tx *store.Tx) error {
		for name, value := range map[string]string{settingNamespace: c.Namespace.String(), settingKeyPrefix: c.KeyPrefix} {
			if _, err := store.PutSettingIfAbsent(ctx, tx, name, []byte(value)); err != nil {
				return err
			}
		}
		_, err := c.withBrand(ctx, tx, environment)
		return err
	})
}

// SetKeyPrefix changes the prefix of new API keys, for services from their next start on. Keys that
// exist stay valid: a prefix is not signed and carries no authority.
//
// Errors: a prefix that is not 1 to 32 of a-z, 0-9 and hyphen, or the name of the other
// environment.
func SetKeyPrefix(ctx context.Context, cfg Config, prefix string) error {
	return administer(ctx, cfg, writing, func(cfg Config, f *foundation) error {
		if err := auth.CheckPrefix(prefix, f.auth.Environment()); err != nil {
			return err
		}
		return f.store.Tx(
			ctx,
			func(tx *store.Tx) error {
				before, err := store.Setting(ctx, tx, settingKeyPrefix)
				if err == nil || errors.Is(err, store.ErrNotFound) {
					err = store.PutSetting(ctx, tx, settingKeyPrefix, []byte(prefix))
				}
				if err != nil {
					return err
				}
				return store.Audit(ctx, tx, store.Act{
					Act: "setting.changed", Object: settingKeyPrefix, At: cfg.Clock(),
					Detail: store.Changed{Before: string(before), After: prefix},
				})
			},
		)
	})
}
