package chain_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

func TestSignatureRequest(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.rail()
	u := w.userHeld()
	d := u.delegation(500)
	d.AllowedRecipients = []toll.Address{toll.Address(receiver(1))}
	request, err := r.SignatureRequest(t.Context(), d)
	if err != nil || common.Address(request.Account) != u.account || !request.CodeRequired {
		t.Fatalf("SignatureRequest: %+v, %v", request, err)
	}
	// What a wallet signs is what the manager checks.
	text := must.Get(json.Marshal(request.TypedData))(t)
	var typed apitypes.TypedData
	must.Do(t, json.Unmarshal(text, &typed))
	hash, _, err := apitypes.TypedDataAndHash(typed)
	must.Do(t, err)
	is(t, "hash", common.BytesToHash(hash).Hex(), w.onChain(d).SigningHash(w.chainID()).Hex())
	d.Signature = u.keys.Sign(t, u.account, common.Hash(hash))
	must.Check(t, r.CheckSignature(t.Context(), d), "CheckSignature")

	w.send(u.account, nil, w.account()) // somebody else's
	if request, err = r.SignatureRequest(t.Context(), d); err != nil || !request.CodeRequired {
		t.Errorf("SignatureRequest: %+v, %v", request, err)
	}
	u.installs(contracts.AccountCode)
	if request, err = r.SignatureRequest(t.Context(), d); err != nil || request.CodeRequired {
		t.Errorf("with code: %+v, %v", request, err)
	}
	u.installs(contracts.DelegationManager)
	if _, err = r.SignatureRequest(t.Context(), d); err == nil || toll.AsError(err).Code != toll.CodeChainForeignCode {
		t.Errorf("with other code: %v", err)
	}
}

// installs has the user give the account a code.
func (u *user) installs(code common.Address) {
	u.w.Helper()
	a := must.Get(chain.ParseAuthorization(u.authorization(u.w.chainID(), code, u.w.nonce(u.account))))(u.w)
	u.w.sendWith(u.w.outside, nil, *a)
}

func TestCheckSignature(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.rail()
		u, stranger := w.userHeld(usdc, 1_000_000), w.userHeld()
		good := u.delegation(500)
		pinned := u.delegation(500)
		pinned.AllowedRecipients = []toll.Address{toll.Address(receiver(1))}
		u.sign(pinned)
		poor := w.userHeld().delegation(100)
		for what, d := range map[string]*rail.Delegation{"a limit": good, "pinned": pinned, "without money": poor} {
			must.Check(t, r.CheckSignature(t.Context(), d), what)
		}

		bad := func(what string, code toll.Code, change func(d *rail.Delegation)) {
			t.Helper()
			d := *good
			change(&d)
			err := r.CheckSignature(t.Context(), &d)
			if err == nil || toll.AsError(err).Code != code {
				t.Errorf("%s: %v, want %s", what, err, code)
			}
		}
		hash := w.onChain(good).SigningHash(w.chainID())
		signature := func(s []byte) func(d *rail.Delegation) { return func(d *rail.Delegation) { d.Signature = s } }
		bad("no signature", toll.CodeChainSignature, signature(nil))
		bad("short", toll.CodeChainSignature, signature(good.Signature[:64]))
		bad("another key", toll.CodeChainSignature, signature(stranger.keys.Sign(t, stranger.account, hash)))
		bad("another chain", toll.CodeChainSignature, signature(u.keys.Sign(t, u.account, w.onChain(good).SigningHash(big.NewInt(contracts.Base)))))
		bad("v of 0 or 1", toll.CodeChainSignature, func(d *rail.Delegation) {
			d.Signature = append([]byte(nil), d.Signature...)
			d.Signature[64] -= 27
		})
		bad("another limit", toll.CodeChainSignature, func(d *rail.Delegation) { d.LimitCents++ })
		bad("another id", toll.CodeChainSignature, func(d *rail.Delegation) { d.ID = toll.NewUUID() })
		bad("another end", toll.CodeChainSignature, func(d *rail.Delegation) { d.ExpiresAt = d.ExpiresAt.Add(time.Second) })
		bad("another receiver", toll.CodeChainSignature, func(d *rail.Delegation) { d.AllowedRecipients = pinned.AllowedRecipients })

		authorization := func(text []byte) func(d *rail.Delegation) {
			return func(d *rail.Delegation) { d.Authorization = text }
		}
		bad("no authorization", toll.CodeChainForeignCode, authorization(nil))
		bad("authorization for another chain", toll.CodeChainForeignCode, authorization(u.authorization(big.NewInt(contracts.Base), contracts.AccountCode, 0)))
		bad("authorization for all chains", toll.CodeChainForeignCode, authorization(u.authorization(new(big.Int), contracts.AccountCode, 0)))
		bad("authorization for other code", toll.CodeChainForeignCode, authorization(u.authorization(w.chainID(), contracts.EntryPoint, 0)))
		bad("authorization for a later nonce", toll.CodeChainForeignCode, authorization(u.authorization(w.chainID(), contracts.AccountCode, 1)))
		bad("authorization by another key", toll.CodeChainSignature, authorization(stranger.authorization(w.chainID(), contracts.AccountCode, 0)))
		bad("no JSON", toll.CodeChainSignature, authorization([]byte("nonsense")))

		// An order whose authorization was used up otherwise does not pay, and nothing is signed.
		u.installs(common.Address{})
		f := w.fails(r, by(good, purchase(u.owner, usdc, receiver(1), 1)), toll.CodeChainForeignCode)
		if f.Params["address"] != toll.Address(u.account).String() {
			t.Errorf("params: %v", f.Params)
		}
		u.installs(contracts.AccountCode)
		good.Authorization = nil
		must.Check(t, r.CheckSignature(t.Context(), good), "with code")
		w.paid(w.running(), by(good, purchase(u.owner, usdc, receiver(1), 1)))
		w.revokesAs(u, good)
		bad("revoked", toll.CodeDelegationRevoked, func(*rail.Delegation) {})
		u.installs(contracts.EntryPoint)
		bad("other code", toll.CodeChainForeignCode, func(*rail.Delegation) {})
	})
}

func TestParseAuthorization(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	u := w.userHeld()
	text := string(u.authorization(w.chainID(), contracts.AccountCode, 7))
	want, err := chain.ParseAuthorization([]byte(text))
	if err != nil || want.Nonce != 7 || want.ChainID.Uint64() != contracts.BaseSepolia || want.Address != contracts.AccountCode {
		t.Fatalf("%+v, %v", want, err)
	}
	if by, err := want.Authority(); err != nil || by != u.account {
		t.Errorf("Authority: %s, %v", by, err)
	}
	var parts map[string]any
	must.Do(t, json.Unmarshal([]byte(text), &parts))
	with := func(change func(m map[string]any)) []byte {
		m := map[string]any{}
		for k, v := range parts {
			m[k] = v
		}
		change(m)
		return must.Get(json.Marshal(m))(t)
	}
	for what, same := range map[string][]byte{
		"hexadecimal": with(func(m map[string]any) {
			m["chainId"], m["nonce"], m["yParity"] = "0x14a34", "0x7", fmt.Sprintf("0x%x", want.V)
		}),
		"decimal":     with(func(m map[string]any) { m["chainId"], m["nonce"] = "84532", "7" }),
		"v":           with(func(m map[string]any) { delete(m, "yParity"); m["v"] = 27 + int(want.V) }),
		"go-ethereum": func() []byte { b, _ := json.Marshal(want); return b }(),
	} {
		if got, err := chain.ParseAuthorization(same); err != nil || *got != *want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	for _, member := range []string{"chainId", "address", "nonce", "yParity", "r", "s"} {
		for what, change := range map[string]func(m map[string]any){
			"none":     func(m map[string]any) { delete(m, member) },
			"negative": func(m map[string]any) { m[member] = -1 },
			"signed":   func(m map[string]any) { m[member] = "+1" },
			"fraction": func(m map[string]any) { m[member] = 1.5 },
			"exponent": func(m map[string]any) { m[member] = json.Number("1e3") },
			"large":    func(m map[string]any) { m[member] = "0x1" + strings.Repeat("0", 64) },
			"empty":    func(m map[string]any) { m[member] = "" },
			"object":   func(m map[string]any) { m[member] = map[string]any{} },
		} {
			if got, err := chain.ParseAuthorization(with(change)); err == nil || toll.AsError(err).Code != toll.CodeChainSignature {
				t.Errorf("%s %s: %+v, %v", member, what, got, err)
			}
		}
	}
}

func TestRevoke(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		owner := w.account(usdc, 10_000_000)
		used, unused, outside := w.delegation(owner, 500), w.delegation(w.account(), 500), w.delegation(owner, 500)
		w.paid(r, by(used, purchase(owner, usdc, receiver(1), 1)))
		w.revokes(owner, outside)
		for range 2 {
			for _, d := range []*rail.Delegation{used, unused, outside} {
				if _, err := r.Revoke(t.Context(), d); err != nil {
					t.Fatalf("Revoke: %v", err)
				}
			}
		}
		w.eventually("the revocations are on the chain", func() bool {
			return w.op("revoke:"+used.ID).Position != chain.Position{} && w.op("revoke:"+unused.ID).Position != chain.Position{}
		})
		for _, d := range []*rail.Delegation{used, unused, outside} {
			if done, err := r.Revoke(t.Context(), d); err != nil || !done {
				t.Errorf("Revoke, when it is done: %t, %v", done, err)
			}
		}
		w.eventually("the sink heard it", func() bool {
			w.books.mu.Lock()
			defer w.books.mu.Unlock()
			return w.books.disabled[used.ID] && w.books.disabled[unused.ID]
		})
		is(t, "redemption", w.redeems(w.signedBy(owner, w.onChain(used)), simple, single(usdc, 0, move(transfer, receiver(1), 1))),
			"CannotUseADisabledDelegation()")
		w.fails(r, by(used, purchase(owner, usdc, receiver(1), 1)), toll.CodeDelegationRevoked)
		w.has(owner, usdc, 9_999_999)

		u := w.userHeld(usdc, 1_000_000)
		d := u.delegation(100)
		if _, err := r.Revoke(t.Context(), d); err != signer.ErrNoKey {
			t.Errorf("Revoke of an account that its user holds: %v", err)
		}
		call := must.Get(r.Revocation(t.Context(), d))(t)
		to := common.Address(call.To)
		is(t, "target", to.Hex(), contracts.DelegationManager.Hex())
		w.paid(r, by(d, purchase(u.owner, usdc, receiver(1), 1)))
		is(t, "the call by somebody else", w.reason(w.outside, to, call.Data), "InvalidDelegator()")
		is(t, "the call", w.reason(u.account, to, call.Data), "")
	})
}

// A revocation fails because the account has other code when it is to be sent, and the next one because the account has used its
// nonce: a third one disables the delegation.
func TestRevoke_Again(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 1_000_000)
	d := w.delegation(owner, 500)
	if done, err := w.rail().Revoke(t.Context(), d); err != nil || done {
		t.Fatalf("Revoke: %t, %v", done, err)
	}
	w.redelegates(owner)
	w.until("it fails", func() bool { return w.op("revoke:"+d.ID).State == chain.Failed })
	w.sendWith(w.outside, nil, w.authorization(owner, w.nonce(owner)))
	w.countsUp(owner, userop.RevokeKey(d.ID, 1))
	r := w.running()
	w.eventually("it is done", func() bool {
		done, err := r.Revoke(t.Context(), d)
		must.Do(t, err, "Revoke")
		return done
	})
	is(t, "redemption", w.redeems(w.signedBy(owner, w.onChain(d)), simple, single(usdc, 0, move(transfer, receiver(1), 1))),
		"CannotUseADisabledDelegation()")
	if third := w.op("revoke:" + d.ID + ":2"); third.Failure != nil || third.NonceKey != userop.RevokeKey(d.ID, 2) {
		t.Errorf("the third revocation: %+v", third)
	}
}

func TestWallet(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		a := w.account(usdc, 3_000_000, eurc, 2, wei, 1)
		got := w.wallet(r, a)
		is(t, "wallet", fmt.Sprint(got), fmt.Sprint(chain.Wallet{
			Account: a, Code: "none", Native: big.NewInt(1), USDC: big.NewInt(3_000_000), EURC: big.NewInt(2),
		}))
		w.paid(r, purchase(a, usdc, receiver(1), 3_000_000))
		got = w.wallet(r, a)
		is(t, "after an order", got.Code+" "+got.USDC.String(), "account 0")
		is(t, "a contract", w.wallet(r, contracts.EntryPoint).Code, "foreign")
	})
}

// revokesAs has the user disable a delegation.
func (w *world) revokesAs(u *user, d *rail.Delegation) {
	w.Helper()
	op := userop.New(u.account, userop.OrderKey("outside "+d.ID), userop.RevokeCall(*w.onChain(d)), 1_000_000)
	op.Signature = u.keys.Sign(w, u.account, op.SigningHash(w.chainID()))
	if e := w.lands(op); !e.success {
		w.Fatalf("the revocation: %+v", e)
	}
}
