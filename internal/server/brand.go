package server

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// SettingKeyPrefix is the prefix of new API keys, and settingNamespace the brand words, see [x402.ParseNamespace]. Every process of a
// database shares them. Values are permanent: later releases read them.
const (
	SettingKeyPrefix = "key_prefix"
	settingNamespace = "namespace"
)

// ownKeyPrefix is the default prefix of API keys under a namespace of one's own. Deployed clients send a key with the prefix sandbox or
// live to a fixed address of theirs, whatever address they are configured with.
const ownKeyPrefix = "local"

// withBrand returns the configuration with the namespace and the key prefix of the database; what it does not hold yet is as given, else
// the default. Errors name both where something else is given.
func (c Config) withBrand(ctx context.Context, q store.Querier, environment toll.Environment) (Config, error) {
	names, err := setting(ctx, q, settingNamespace)
	if err != nil {
		return c, err
	}
	prefix, err := setting(ctx, q, SettingKeyPrefix)
	if err != nil {
		return c, err
	}
	given := c.Namespace
	if c.Namespace, err = x402.ParseNamespace(cmp.Or(names, given.String())); err != nil {
		return c, fmt.Errorf("the namespace of the database: %w", err)
	}
	if given != (x402.Namespace{}) && given != c.Namespace {
		return c, fmt.Errorf(
			"this database has the namespace %s, not %s: omit --namespace (TOLL_NAMESPACE), or choose the right "+
				"database; the namespace of a database cannot change, because its API keys and access tokens are signed with it",
			c.Namespace.String(), given.String())
	}
	if prefix != "" && c.KeyPrefix != "" && c.KeyPrefix != prefix {
		return c, fmt.Errorf(
			"new API keys of this database have the prefix %q, not %q: omit --key-prefix (TOLL_KEY_PREFIX), "+
				"or change the prefix with: toll keys set-prefix %s --local",
			prefix, c.KeyPrefix, c.KeyPrefix)
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

// keepBrand stores namespace and key prefix, or checks them against those that another process stored meanwhile.
func (c Config) keepBrand(ctx context.Context, st *store.Store, environment toll.Environment) error {
	return st.Tx(ctx, func(tx *store.Tx) error {
		for name, value := range map[string]string{settingNamespace: c.Namespace.String(), SettingKeyPrefix: c.KeyPrefix} {
			if _, err := store.PutSettingIfAbsent(ctx, tx, name, []byte(value)); err != nil {
				return err
			}
		}
		_, err := c.withBrand(ctx, tx, environment)
		return err
	})
}
