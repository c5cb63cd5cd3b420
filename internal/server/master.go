package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web"
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
func RotateMaster(ctx context.Context, cfg Config, newKeyFile string) (out MasterRotation, err error) {
	if cfg.OtherMasterKeyFile != "" && cfg.OtherMasterKeyFile != newKeyFile {
		return out, errors.New("name the new key with --new-key-file alone")
	}
	next, err := seal.FromFile(newKeyFile, false)
	if err != nil {
		return out, err
	}
	cfg.OtherMasterKeyFile = newKeyFile
	err = administer(ctx, cfg, writing, func(cfg Config, f *foundation) error {
		out = MasterRotation{From: f.ring.KeyID(), To: next.KeyID(), Resealed: map[string]int64{}}
		if out.From == out.To {
			return errors.New("the new master key is the one in use")
		}
		r := resealer{f: f, to: next, failpoint: cfg.at}
		for _, c := range store.SealedColumns {
			n, err := r.column(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			if n > 0 {
				out.Resealed[c.Name] = n
			}
		}
		if len(out.Resealed) == 0 {
			return nil
		}
		return f.store.Tx(ctx, func(tx *store.Tx) error {
			return store.Audit(ctx, tx, store.Act{
				Act: "master_key.rotated", Object: out.To, At: f.clock.now(), Detail: store.Changed{Before: out.From, After: out.To},
			})
		})
	})
	return out, err
}

// resealer seals secrets with another key.
type resealer struct {
	f         *foundation
	to        *seal.Ring
	failpoint func(step string)
}

// column seals the secrets of a column, and returns how many were sealed with another key before.
func (r *resealer) column(ctx context.Context, c store.SealedColumn) (n int64, err error) {
	for after := ""; ; {
		rows, err := store.SealedAfter(ctx, r.f.store, c, after, resealSlice)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		after = rows[len(rows)-1].Key
		if r.failpoint != nil {
			r.failpoint("reseal " + c.Name)
		}
		err = r.f.store.Tx(ctx, func(tx *store.Tx) error {
			for _, v := range rows {
				if seal.SealedBy(v.Sealed) == r.to.KeyID() {
					continue
				}
				bound := boundTo(r.f.auth.Environment(), c.Name, v)
				plain, err := r.f.ring.Open(v.Sealed, bound)
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

// boundTo returns what an envelope is bound to: each room says it of its own.
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
		return web.AnswerOf([]byte(v.Key))
	}
	panic("nobody says what " + column + " is bound to")
}

// inspectMaster reports secrets that the master key does not open, while there is another one.
func inspectMaster(ctx context.Context, cfg Config, f *foundation, add check.Report) {
	if cfg.OtherMasterKeyFile == "" {
		return
	}
	left := 0
	for _, c := range store.SealedColumns {
		for after, more := "", true; more; {
			rows, err := store.SealedAfter(ctx, f.store, c, after, resealSlice)
			if err != nil {
				add("other master key", check.Failed, "%s", err)
				return
			}
			for _, v := range rows {
				if after = v.Key; seal.SealedBy(v.Sealed) != f.ring.KeyID() {
					left++
				}
			}
			more = len(rows) == resealSlice
		}
	}
	if left > 0 {
		add("other master key", check.Warning, "%d secrets are sealed with it: toll keys rotate-master seals them anew", left)
		return
	}
	add("other master key", check.OK, "nothing is sealed with it any more: start without TOLL_OTHER_MASTER_KEY_FILE (--other-master-key-file)")
}

// ownMasterKey reports whether the operator named a master key.
func (c Config) ownMasterKey() bool {
	return c.MasterKeyFile != "" || c.MasterKey != "" || c.KeyProvider != nil
}

// openRing returns the ring of the master key, and of the other one if there is one. With create, a missing file in the
// data directory is made.
func (c Config) openRing(create bool) (*seal.Ring, error) {
	ring, err := c.openMaster(create)
	if err != nil || c.OtherMasterKeyFile == "" {
		return ring, err
	}
	other, err := seal.FromFile(c.OtherMasterKeyFile, false)
	if err != nil {
		return nil, fmt.Errorf("TOLL_OTHER_MASTER_KEY_FILE (--other-master-key-file): %w", err)
	}
	return ring.With(other), nil
}

func (c Config) openMaster(create bool) (*seal.Ring, error) {
	switch {
	case c.KeyProvider != nil:
		return seal.NewRing(c.KeyProvider)
	case c.MasterKey != "":
		return seal.FromText(c.MasterKey, "TOLL_MASTER_KEY")
	}
	return seal.FromFile(c.masterKeyPath(), create && c.MasterKeyFile == "")
}

func (c Config) masterKeyPath() string {
	switch {
	case c.MasterKeyFile != "":
		return c.MasterKeyFile
	case c.Data != "":
		return filepath.Join(c.Data, masterKeyName)
	default:
		return ""
	}
}
