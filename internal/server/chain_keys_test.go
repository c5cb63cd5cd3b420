package server

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// base opens the foundation of a service on a fresh database.
func base(t *testing.T, cfg Config) *foundation {
	t.Helper()
	f, err := open(t.Context(), cfg.withDefaults(), founding)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// accountOf is the account of a key.
func accountOf(t *testing.T, key []byte) common.Address {
	t.Helper()
	private, err := crypto.ToECDSA(key)
	if err != nil {
		t.Fatal(err)
	}
	return crypto.PubkeyToAddress(private.PublicKey)
}

// However many processes start at once, the accounts of the service are made once, and all know them.
func TestChainKeysAreMadeOnce(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			db, master := storetest.Config(t, v), t.TempDir()+"/master.key"
			if _, err := seal.FromFile(master, true); err != nil {
				t.Fatal(err)
			}
			f := base(t, Config{Data: db.Data, Database: db.Database, MasterKeyFile: master, PublicURL: "https://pay.example.com"})
			var wg sync.WaitGroup
			found := make([]*chainKeys, 8)
			for i := range found {
				wg.Go(func() {
					var err error
					if found[i], err = openChainKeys(t.Context(), f, 3, true); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, k := range found {
				if k == nil || k.service != found[0].service || !slices.Equal(k.relayers, found[0].relayers) || len(k.relayers) != 3 {
					t.Fatalf("%+v and %+v", k, found[0])
				}
			}
			for _, a := range append(slices.Clone(found[0].relayers), found[0].service) {
				key, err := found[1].Open(t.Context(), a)
				if err != nil || accountOf(t, key) != a {
					t.Errorf("%s: %v", a, err)
				}
			}
			if _, err := found[0].Open(t.Context(), common.Address{1}); !errors.Is(err, signer.ErrNoKey) {
				t.Errorf("an account of nobody: %v", err)
			}
			wallet, err := f.auth.CreatePrincipal(t.Context(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			key, err := found[0].Open(t.Context(), common.Address(wallet))
			if err != nil || accountOf(t, key) != common.Address(wallet) {
				t.Errorf("a wallet: %v", err)
			}
		})
	}
}

// T72: the sealed key of an account of the service that was moved to another role, address or environment, or changed by one
// bit, does not open; nor does one that another master key sealed. No key lies in the database as it is.
func TestT72_SealedChainKeyMoved(t *testing.T) {
	dir := t.TempDir()
	f := base(t, Config{Data: dir})
	keys, err := openChainKeys(t.Context(), f, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	row := keys.own[keys.relayers[0]]
	plain, err := f.openChainKey(row)
	if err != nil || accountOf(t, plain) != keys.relayers[0] {
		t.Fatal(err)
	}
	wallet, err := f.auth.CreatePrincipal(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	principal, err := store.PrincipalByAddress(t.Context(), f.store, wallet)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(row.Sealed)
	flipped[len(flipped)/2] ^= 1
	for name, moved := range map[string]store.ChainKey{
		"another role":              {Role: roleService, Address: row.Address, Sealed: row.Sealed},
		"another relayer":           {Role: roleRelayer, Address: toll.Address(keys.relayers[1]), Sealed: row.Sealed},
		"the service account":       {Role: roleService, Address: toll.Address(keys.service), Sealed: row.Sealed},
		"a bit":                     {Role: roleRelayer, Address: row.Address, Sealed: flipped},
		"a wallet":                  {Role: roleRelayer, Address: wallet, Sealed: principal.SealedKey},
		"a wallet, the own address": {Role: roleRelayer, Address: row.Address, Sealed: principal.SealedKey},
	} {
		if key, err := f.openChainKey(moved); !errors.Is(err, seal.ErrDamaged) || key != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if key, err := f.ring.Open(row.Sealed, []byte(strings.Replace(string(f.chainKeyAAD(row.Role, row.Address)), "sandbox", "live", 1))); err == nil || key != nil {
		t.Error("opens in another environment")
	}
	stranger := *f
	if stranger.ring, err = seal.FromFile(filepath.Join(t.TempDir(), "other.key"), true); err != nil {
		t.Fatal(err)
	}
	if key, err := stranger.openChainKey(row); !errors.Is(err, seal.ErrOtherKey) || key != nil {
		t.Errorf("another master key: %v", err)
	}
	// A wallet that was moved to another principal does not open either, and nothing is signed with it.
	other, err := f.auth.CreatePrincipal(t.Context(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	err = f.store.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE principals SET sealed_key = $2 WHERE address = $1", other.Lower(), principal.SealedKey)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if key, err := keys.Open(t.Context(), common.Address(other)); !errors.Is(err, seal.ErrDamaged) || key != nil {
		t.Errorf("the wallet of somebody else: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "toll.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, plain) || bytes.Contains(text, []byte(common.Bytes2Hex(plain))) {
			t.Errorf("%s holds a key", name)
		}
	}
}
