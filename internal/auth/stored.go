package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// Stored is what a database says of itself. It is read from settings, which every schema has.
type Stored struct {
	Environment toll.Environment
	Issuer      string // of new tokens: {base_url} with /api/v1
	macKey      []byte
}

var errNoService = errors.New("auth: this database was never used by a service")

// ReadStored reads what a database says of itself, and changes nothing. It fails on a database on which no process has called [Bootstrap],
// and with a master key that does not open what is sealed there.
func ReadStored(ctx context.Context, q store.Querier, ring *seal.Ring) (s Stored, err error) {
	environment, err := store.Setting(ctx, q, settingEnvironment)
	if err != nil {
		return s, store.NotFoundAs(err, errNoService)
	}
	s.Environment = toll.Environment(environment)
	sealed, err := store.Setting(ctx, q, settingMACKey)
	if err != nil {
		return s, err
	}
	if s.macKey, err = ring.Open(sealed, aad(s.Environment, "mac-key", "")); err != nil {
		return s, otherMasterKey(err)
	}
	issuers, err := storedIssuers(ctx, q)
	if len(issuers) > 0 {
		s.Issuer = issuers[len(issuers)-1]
	}
	return s, err
}

// read is settle for a process that changes nothing.
func (a *Auth) read(ctx context.Context, env toll.Environment) error {
	s, err := ReadStored(ctx, a.store, a.ring)
	if err != nil {
		return err
	}
	a.environment, a.macKey = s.Environment, s.macKey
	return checkEnvironment(s.Environment, env)
}

// checkEnvironment refuses a database of another environment than the wanted one; "" takes any.
func checkEnvironment(is, wanted toll.Environment) error {
	if wanted == "" || is == wanted {
		return nil
	}
	return fmt.Errorf("this database belongs to the environment %q, not to %q: "+
		"use the database of that environment, or omit the environment", is, wanted)
}

func otherMasterKey(err error) error {
	return fmt.Errorf("the master key does not open this database: "+
		"use the master key file from its first start: %w", err)
}

// aad binds a sealed value to its use, its owner and the environment, so that it opens nowhere else.
func aad(environment toll.Environment, use, owner string) []byte {
	return []byte("toll/" + use + "/" + string(environment) + "/" + owner)
}
