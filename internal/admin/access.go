package admin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

// ExportLocalWallet returns the private key of the wallet of a named account, once. The custody of the account is shared from then on.
// The error of a second call has the code [toll.CodeExists].
func ExportLocalWallet(ctx context.Context, cfg server.Config, account string) (toll.WalletKey, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (out toll.WalletKey, err error) {
		address, err := db.Auth.Principal(ctx, account)
		if errors.Is(err, store.ErrNotFound) {
			return out, fmt.Errorf("no workspace is named %q", account)
		}
		if err != nil {
			return out, err
		}
		key, err := db.Auth.ExportLocalWallet(ctx, address)
		if err != nil {
			return out, err
		}
		defer clear(key)
		return toll.WalletKey{Address: address, PrivateKey: "0x" + hex.EncodeToString(key), Custody: toll.CustodyShared}, nil
	})
}

// purposeOf returns the purpose of a signing key: statements (offers and receipts), or access tokens.
func purposeOf(statements bool) string {
	if statements {
		return store.StatementKey
	}
	return ""
}

// EndSigningKey ends a compromised signing key, beside running services. An empty kid names the current key. See [auth.Auth.EndSigningKey].
func EndSigningKey(ctx context.Context, cfg server.Config, statements bool, kid string) (auth.EndedKey, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (auth.EndedKey, error) {
		return db.Auth.EndSigningKey(ctx, purposeOf(statements), kid)
	})
}

// RotateKey starts the rotation to the next signing key, of access tokens or of offers and receipts. Running services learn of it within
// half a minute, minutes before the new key signs.
func RotateKey(ctx context.Context, cfg server.Config, statements bool) (auth.Rotation, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (auth.Rotation, error) {
		return db.Auth.RotateKey(ctx, purposeOf(statements))
	})
}

// DisablePerson disables a person, or enables them again. login is a login name or an id.
func DisablePerson(ctx context.Context, cfg server.Config, login string, disabled bool) (toll.Person, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (out toll.Person, err error) {
		p, err := people.New(people.Deps{Store: db.Store, Auth: db.Auth, Clock: db.Now, Log: db.Log})
		if err == nil {
			out, err = p.Disable(ctx, login, disabled)
		}
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("no person signs in as %q", login)
		}
		return out, err
	})
}

// Suspend suspends or resumes a workspace, a plan or an API key; see [auth.Auth.Suspend].
func Suspend(ctx context.Context, cfg server.Config, id string, suspended bool) (auth.Suspension, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (auth.Suspension, error) {
		out, err := db.Auth.Suspend(ctx, id, suspended)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("no workspace, plan, or API key has the id %q", id)
		}
		return out, err
	})
}

// LocalLink is a link for a person that was made on the database itself.
type LocalLink struct {
	Link string    `json:"link"`
	Ends time.Time `json:"ends"`
}

// MakeLocalLink makes a link to recover the person of a login name, or, with "", to sign up.
func MakeLocalLink(ctx context.Context, cfg server.Config, login string) (LocalLink, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (out LocalLink, err error) {
		p, err := people.New(people.Deps{Store: db.Store, Auth: db.Auth, Clock: db.Now, Log: db.Log})
		if err != nil {
			return out, err
		}
		path, ends, err := p.Links.Local(ctx, login)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("no person signs in as %q", login)
		}
		return LocalLink{Link: db.PublicURL + path, Ends: ends.UTC().Truncate(time.Second)}, err
	})
}

// SetKeyPrefix changes the prefix of new API keys, for services from their next start on. Keys that exist stay valid: a prefix is not
// signed and carries no authority. Errors: a prefix that is not 1 to 32 of a-z, 0-9 and hyphen, or the name of the other environment.
func SetKeyPrefix(ctx context.Context, cfg server.Config, prefix string) error {
	return inTx(ctx, cfg, func(db *server.Database, tx *store.Tx) error {
		if err := auth.CheckPrefix(prefix, db.Auth.Environment()); err != nil {
			return err
		}
		before, err := store.Setting(ctx, tx, server.SettingKeyPrefix)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			err = store.PutSetting(ctx, tx, server.SettingKeyPrefix, []byte(prefix))
		}
		if err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.Act{
			Act: "setting.changed", Object: server.SettingKeyPrefix, At: db.Now(), Detail: store.Changed{Before: string(before), After: prefix},
		})
	})
}
