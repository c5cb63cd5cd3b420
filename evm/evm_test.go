package evm_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/must"
)

// walletKey is the first account of a public mnemonic of development chains.
const walletKey = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	return must.Get(hex.DecodeString(strings.TrimPrefix(s, "0x")))(t)
}

func key(t *testing.T, s string) *evm.Key {
	t.Helper()
	return must.Get(evm.ParseKey(s))(t)
}

// usdc is the domain of USDC on Base Sepolia.
func usdc() evm.Domain {
	return evm.Domain{Name: "USDC", Version: "2", ChainID: big.NewInt(84532), Contract: toll.MustAddress("0x036CbD53842c5426634e7929541eC2318f3dCF7e")}
}

// payment is one that an independent wallet signed for [usdc], with its signature.
func payment(t *testing.T) (*evm.Authorization, []byte) {
	t.Helper()
	return &evm.Authorization{
			From:        toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
			To:          toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
			Value:       big.NewInt(1_000_000),
			ValidBefore: 1795226520,
			Nonce:       [32]byte(unhex(t, "0x676b8bb84ce7267dd520deca4811c8f10a53e636352f06987f42fe425acedd80")),
		}, unhex(t, "0x2b34badec3e8bddf645dfd12db3c2e0ac5585b86ed41dcc0be7624fdec89b323"+
			"3ef39f4db606bd0e3b32bd202ddca4e92d7218f5daa4677bc4581cc274c9402a1b")
}

func TestAuthorization_Vector(t *testing.T) {
	a, want := payment(t)
	got, err := a.Sign(key(t, walletKey), usdc())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("signature %x, %v, want %x", got, err, want)
	}
	if from, err := evm.Recover(a.Digest(usdc()), want); err != nil || from != a.From {
		t.Errorf("Recover = %s, %v, want %s", from, err, a.From)
	}
}

// The separators that USDC answers on Base and on Base Sepolia (DOMAIN_SEPARATOR).
func TestDomain_USDC(t *testing.T) {
	base := evm.Domain{Name: "USD Coin", Version: "2", ChainID: big.NewInt(8453), Contract: toll.USDCLive}
	for want, d := range map[string]evm.Domain{
		"71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818": usdc(),
		"02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f": base,
	} {
		if got := d.Separator(); hex.EncodeToString(got[:]) != want {
			t.Errorf("separator %x, want %s", got, want)
		}
	}
}

// The example of EIP-712.
func TestDomain_Vector(t *testing.T) {
	d := evm.Domain{Name: "Ether Mail", Version: "1", ChainID: big.NewInt(1), Contract: toll.MustAddress("0xCcCCccccCCCCcCCCCCCcCcCccCcCCCcCcccccccC")}
	if got := d.Separator(); hex.EncodeToString(got[:]) != "f2cee375fa42b42143804025fc449deafd50cc031ca257e0b194a650a912090f" {
		t.Errorf("separator %x", got)
	}
}

// The example of the documentation of web3.js.
func TestWrapped(t *testing.T) {
	suffix := strings.Repeat("6492", 16)
	for signature, want := range map[string]bool{
		suffix: true, "01" + suffix: true, "": false, suffix[2:]: false, suffix + "00": false, suffix[:62] + "93": false,
	} {
		if got := evm.Wrapped(unhex(t, signature)); got != want {
			t.Errorf("%s: %v", signature, got)
		}
	}
}

func TestPersonalDigest_Vector(t *testing.T) {
	k := key(t, "0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318")
	digest := evm.PersonalDigest("Some data")
	if hex.EncodeToString(digest[:]) != "1da44b586eb0729ff70a73c326926f6ed5a25f5b056e7f47fbc6e58d86871655" {
		t.Errorf("digest %x", digest)
	}
	want := unhex(t, "b91467e570a6466aa9e9876cbcd013baba02900b8979d43fe208a4a4f339f5fd6007e74cd82e037b800186422fc2da167c747ef045e5d18a5f5d4300f8e1a0291c")
	if got, err := k.Sign(digest); err != nil || !slices.Equal(got, want) {
		t.Errorf("signature %x, %v", got, err)
	}
	if got := k.Address(); got != toll.MustAddress("0x2c7536E3605D9C16a7a3D7b1898e529396a65c23") {
		t.Errorf("address %s", got)
	}
	// The length is that of the bytes, not of the characters.
	if evm.PersonalDigest("ä") == evm.PersonalDigest("a") || evm.PersonalDigest("ä") != toll.Keccak256([]byte("\x19Ethereum Signed Message:\n2ä")) {
		t.Error("the length of a text is not its bytes")
	}
}

// order is that of secp256k1.
var order, _ = new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)

// T61
func TestStrictRecovery(t *testing.T) {
	a, good := payment(t)
	d := usdc()
	with := func(change func(s []byte)) []byte {
		s := slices.Clone(good)
		change(s)
		return s
	}
	word := func(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
	high := new(big.Int).Sub(order, new(big.Int).SetBytes(good[32:64]))
	for name, s := range map[string][]byte{
		"high s":             with(func(s []byte) { copy(s[32:], word(high)); s[64] ^= 27 ^ 28 }),
		"high s, same v":     with(func(s []byte) { copy(s[32:], word(high)) }),
		"s of half and one":  with(func(s []byte) { n := new(big.Int).Rsh(order, 1); copy(s[32:], word(n.Add(n, big.NewInt(1)))) }),
		"v 0":                with(func(s []byte) { s[64] = 0 }),
		"v 1":                with(func(s []byte) { s[64] = 1 }),
		"v 26":               with(func(s []byte) { s[64] = 26 }),
		"v 29":               with(func(s []byte) { s[64] = 29 }),
		"v 31":               with(func(s []byte) { s[64] = 31 }), // the form of compressed keys
		"v with a chain id":  with(func(s []byte) { s[64] = 37 }),
		"64 bytes":           good[:64],
		"66 bytes":           append(slices.Clone(good), 0),
		"no bytes":           nil,
		"r 0":                with(func(s []byte) { clear(s[:32]) }),
		"s 0":                with(func(s []byte) { clear(s[32:64]) }),
		"r of the order":     with(func(s []byte) { copy(s, word(order)) }),
		"s of the order":     with(func(s []byte) { copy(s[32:], word(order)) }),
		"r that is no point": with(func(s []byte) { copy(s, word(big.NewInt(5))) }),
	} {
		if from, err := evm.Recover(a.Digest(d), s); !errors.Is(err, evm.ErrSignature) || !from.IsZero() {
			t.Errorf("%s: %s, %v", name, from, err)
		}
	}

	for name, other := range map[string]evm.Domain{
		"other chain":    {d.Name, d.Version, big.NewInt(8453), d.Contract},
		"other contract": {d.Name, d.Version, d.ChainID, toll.MustAddress("0x808456652fdb597867f38412077A9182bf77359F")},
		"other name":     {"USD Coin", d.Version, d.ChainID, d.Contract},
		"other version":  {d.Name, "1", d.ChainID, d.Contract},
	} {
		if from, err := evm.Recover(a.Digest(other), good); err == nil && from == a.From {
			t.Errorf("%s: it is of the same account", name)
		}
	}
	for name, change := range map[string]func(a *evm.Authorization){
		"other sender":   func(a *evm.Authorization) { a.From = a.To },
		"other receiver": func(a *evm.Authorization) { a.To[19]++ },
		"other value":    func(a *evm.Authorization) { a.Value = big.NewInt(1_000_001) },
		"other start":    func(a *evm.Authorization) { a.ValidAfter = 1 },
		"other end":      func(a *evm.Authorization) { a.ValidBefore++ },
		"other nonce":    func(a *evm.Authorization) { a.Nonce[31]++ },
	} {
		changed := *a
		change(&changed)
		if from, err := evm.Recover(changed.Digest(d), good); err == nil && from == a.From {
			t.Errorf("%s: it is of the same account", name)
		}
	}
}

func TestAuthorization_Sign(t *testing.T) {
	k := must.Get(evm.NewKey())(t)
	most := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))
	a := &evm.Authorization{From: k.Address(), To: toll.Address{1}, Value: most, ValidAfter: 1<<64 - 1, ValidBefore: 1<<64 - 1, Nonce: [32]byte{9}}
	signature := must.Get(a.Sign(k, usdc()))(t)
	if from, err := evm.Recover(a.Digest(usdc()), signature); err != nil || from != k.Address() {
		t.Errorf("Recover = %s, %v", from, err)
	}
	for name, change := range map[string]func(a *evm.Authorization, d *evm.Domain){
		"another account":  func(a *evm.Authorization, _ *evm.Domain) { a.From[0]++ },
		"no value":         func(a *evm.Authorization, _ *evm.Domain) { a.Value = nil },
		"a negative value": func(a *evm.Authorization, _ *evm.Domain) { a.Value = big.NewInt(-1) },
		"2^256":            func(a *evm.Authorization, _ *evm.Domain) { a.Value = new(big.Int).Lsh(big.NewInt(1), 256) },
		"no chain":         func(_ *evm.Authorization, d *evm.Domain) { d.ChainID = nil },
	} {
		bad, d := *a, usdc()
		change(&bad, &d)
		if _, err := bad.Sign(k, d); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
}

func TestParseKey(t *testing.T) {
	if got := key(t, strings.Repeat("01", 32)).Address(); got != toll.MustAddress("0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1") {
		t.Errorf("address %s", got)
	}
	for name, s := range map[string]string{
		"nothing": "", "too short": walletKey[:65], "too long": walletKey + "00", "no digits": strings.Repeat("zz", 32),
		"0": strings.Repeat("00", 32), "the order": hex.EncodeToString(order.Bytes()), "the largest": strings.Repeat("ff", 32),
	} {
		if k, err := evm.ParseKey(s); err == nil {
			t.Errorf("%s: %s", name, k)
		} else if len(s) > 4 && strings.Contains(err.Error(), s[2:]) {
			t.Errorf("%s: the error holds what was read: %v", name, err)
		}
	}
}

func TestKey_IsNotPrinted(t *testing.T) {
	k := key(t, walletKey)
	text := must.Get(json.Marshal(struct{ Key *evm.Key }{k}))(t)
	number, _ := new(big.Int).SetString(walletKey[2:], 16)
	for _, out := range []string{
		fmt.Sprintf("%v %+v %#v %s %q %x %X %d %o %b %t", k, k, k, k, k, k, k, k, k, k, k), fmt.Sprint(*k, []*evm.Key{k}, struct{ K *evm.Key }{k}), string(text),
	} {
		low := strings.ToLower(out)
		for _, secret := range []string{walletKey[2:], walletKey[4:20], number.String(), number.Text(8), number.Text(2)} {
			if strings.Contains(low, secret) {
				t.Errorf("the key is in %s", out)
			}
		}
	}
	if got := fmt.Sprintf("%v %x", k, k); got != k.Address().String()+" "+k.Address().String() {
		t.Errorf("it prints as %s", got)
	}
}
