package rails

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// deps returns the records of a fresh service in a sandbox, sealed by the master key.
func deps(t *testing.T, st *store.Store, master *seal.Ring) *Deps {
	t.Helper()
	a := must.Get(auth.Bootstrap(t.Context(), st, master, auth.Config{
		Environment: toll.Sandbox, Issuer: "https://pay.example.com/api/v1", ClaimObject: "nvm",
	}))(t)
	return &Deps{Store: st, Ring: master, Auth: a, Clock: time.Now}
}

// accountOf is the account of a key.
func accountOf(t *testing.T, key []byte) common.Address {
	t.Helper()
	private := must.Get(crypto.ToECDSA(key))(t)
	return crypto.PubkeyToAddress(private.PublicKey)
}

// However many processes start at once, the accounts of the service are made once, and all know them.
func TestChainKeysAreMadeOnce(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			st, _ := storetest.OpenVariant(t, v)
			d := deps(t, st, seal.New([32]byte{1}))
			var wg sync.WaitGroup
			found := make([]*chainKeys, 8)
			for i := range found {
				wg.Go(func() {
					var err error
					if found[i], err = openKeys(t.Context(), d, 3, true); err != nil {
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
			wallet := must.Get(d.Auth.CreatePrincipal(t.Context(), "alice"))(t)
			key, err := found[0].Open(t.Context(), common.Address(wallet))
			if err != nil || accountOf(t, key) != common.Address(wallet) {
				t.Errorf("a wallet: %v", err)
			}
		})
	}
}

// T72: the sealed key of an account of the service that was moved to another role, address or environment, or changed by one
// bit, does not open; nor does one that another master key sealed. No key lies in the database as it is.
// T72
func TestSealedChainKeyMoved(t *testing.T) {
	st, cfg := storetest.OpenVariant(t, storetest.SQLite)
	d := deps(t, st, seal.New([32]byte{1}))
	keys := must.Get(openKeys(t.Context(), d, 2, false))(t)
	row := keys.own[keys.relayers[0]]
	plain, err := d.openChainKey(row)
	if err != nil || accountOf(t, plain) != keys.relayers[0] {
		t.Fatal(err)
	}
	wallet := must.Get(d.Auth.CreatePrincipal(t.Context(), "alice"))(t)
	principal := must.Get(store.PrincipalByAddress(t.Context(), st, wallet))(t)
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
		if key, err := d.openChainKey(moved); !errors.Is(err, seal.ErrDamaged) || key != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if key, err := d.Ring.Open(row.Sealed, []byte(strings.Replace(string(d.chainKeyAAD(row.Role, row.Address)), "sandbox", "live", 1))); err == nil || key != nil {
		t.Error("opens in another environment")
	}
	stranger := *d
	stranger.Ring = seal.New([32]byte{2})
	if key, err := stranger.openChainKey(row); !errors.Is(err, seal.ErrOtherKey) || key != nil {
		t.Errorf("another master key: %v", err)
	}
	// A wallet that was moved to another principal does not open either, and nothing is signed with it.
	other := must.Get(d.Auth.CreatePrincipal(t.Context(), "bob"))(t)
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE principals SET sealed_key = $2 WHERE address = $1", other.Lower(), principal.SealedKey)
		return err
	}))
	if key, err := keys.Open(t.Context(), common.Address(other)); !errors.Is(err, seal.ErrDamaged) || key != nil {
		t.Errorf("the wallet of somebody else: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Data, "toll.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text := must.Get(os.ReadFile(name))(t)
		if bytes.Contains(text, plain) || bytes.Contains(text, []byte(common.Bytes2Hex(plain))) {
			t.Errorf("%s holds a key", name)
		}
	}
}
