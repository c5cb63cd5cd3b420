package server

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// resealSlice is how many secrets are read at once.
const resealSlice = 100

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
		add("other master key", check.Warning, "%d secrets are still sealed with it: run toll keys rotate-master to reseal them", left)
		return
	}
	add("other master key", check.OK, "no secret is sealed with it any longer: start without TOLL_OTHER_MASTER_KEY_FILE (--other-master-key-file)")
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
