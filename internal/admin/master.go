package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/session"
)

// MasterRotation is what [RotateMaster] did.
type MasterRotation struct {
	From     string           `json:"from"` // ids of the keys
	To       string           `json:"to"`
	Resealed map[string]int64 `json:"resealed"` // by table and column
}

// resealSlice is how many secrets one transaction seals anew.
const resealSlice = 100

// RotateMaster seals all secrets of a database with the master key in a file, in small transactions,
// beside running services that have both keys. A repeat continues where a killed one stopped.
func RotateMaster(ctx context.Context, cfg server.Config, newKeyFile string) (MasterRotation, error) {
	if cfg.OtherMasterKeyFile != "" && cfg.OtherMasterKeyFile != newKeyFile {
		return MasterRotation{}, errors.New("TOLL_OTHER_MASTER_KEY_FILE (--other-master-key-file) must be unset or name the same file as --new-key-file")
	}
	next, err := seal.FromFile(newKeyFile, false)
	if err != nil {
		return MasterRotation{}, err
	}
	cfg.OtherMasterKeyFile = newKeyFile
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (MasterRotation, error) {
		out := MasterRotation{From: db.Ring.KeyID(), To: next.KeyID(), Resealed: map[string]int64{}}
		if out.From == out.To {
			return out, errors.New("the new master key is already in use")
		}
		r := resealer{db: db, to: next}
		for _, c := range store.SealedColumns {
			n, err := r.column(ctx, c)
			if err != nil {
				return out, fmt.Errorf("%s: %w", c.Name, err)
			}
			if n > 0 {
				out.Resealed[c.Name] = n
			}
		}
		if len(out.Resealed) == 0 {
			return out, nil
		}
		return out, db.Store.Tx(ctx, func(tx *store.Tx) error {
			return store.Audit(ctx, tx, store.Act{
				Act: "master_key.rotated", Object: out.To, At: db.Now(), Detail: store.Changed{Before: out.From, After: out.To},
			})
		})
	})
}

// resealer seals secrets with another key.
type resealer struct {
	db *server.Database
	to *seal.Ring
}

// column seals the secrets of a column, and returns how many were sealed with another key before.
func (r *resealer) column(ctx context.Context, c store.SealedColumn) (n int64, err error) {
	for after := ""; ; {
		rows, err := store.SealedAfter(ctx, r.db.Store, c, after, resealSlice)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		after = rows[len(rows)-1].Key
		if r.db.Step != nil {
			r.db.Step("reseal " + c.Name)
		}
		err = r.db.Store.Tx(ctx, func(tx *store.Tx) error {
			for _, v := range rows {
				if seal.SealedBy(v.Sealed) == r.to.KeyID() {
					continue
				}
				bound := boundTo(r.db.Auth.Environment(), c.Name, v)
				plain, err := r.db.Ring.Open(v.Sealed, bound)
				if err != nil {
					return err
				}
				sealed, err := r.to.Seal(plain, bound)
				clear(plain)
				if err != nil {
					return err
				}
				if err := store.PutSealed(ctx, tx, c, v, sealed); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		if err != nil {
			return n, err
		}
	}
}

// boundTo returns the additional data of the envelope of a value, as the package that seals the column defines it.
func boundTo(environment toll.Environment, column string, v store.SealedValue) []byte {
	macKey, wallet, signing := auth.Sealed(environment)
	switch column {
	case "settings.value":
		if v.Key == store.SettingMACKey {
			return macKey
		}
		return rails.DoubleOf()
	case "signing_keys.sealed":
		return signing(v.More, v.Key)
	case "principals.sealed_key":
		return wallet(v.Key)
	case "agents.sealed_credentials":
		return api.CredentialsOf(toll.AgentID(v.Key))
	case "webhooks.secret", "webhooks.old_secret":
		return events.SecretOf(v.Key)
	case "chain_keys.sealed_key":
		return rails.ChainKeyOf(environment, v.More, v.Key)
	case "idempotency_keys.answer":
		return api.AnswerOf(environment, toll.Hash([]byte(v.Key)))
	case "browser_answers.answer":
		return session.AnswerOf([]byte(v.Key))
	}
	panic("the column " + column + " has no additional data")
}
