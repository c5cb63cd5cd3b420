package facilitator

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// signInLife is how long a wallet may take to sign in.
	signInLife = 5 * time.Minute
	// signInAhead is how far the clock of a wallet may be ahead.
	signInAhead = time.Minute
	// nonceGrace is how much longer than it counts a used nonce is remembered: the clocks of two machines differ.
	nonceGrace = time.Hour
)

// Admitted is the answer to a wallet that signed in.
type Admitted struct {
	Subscriber  toll.Address
	Balance     toll.Credits
	AccessToken *toll.AccessToken
}

// PlanToken gives an access token to a wallet that proves who it is and has credits of the plan: signIn is the value of
// sign-in-with-x. With payment, the value of payment-signature, the wallet buys the plan instead, as with
// [Facilitator.BuyPlan]. Everything else is an [*Unpaid] that says what to sign, and what the plan costs where it is sold.
func (f *Facilitator) PlanToken(ctx context.Context, id toll.PlanID, payment, signIn string, wait time.Duration) (*Bought, *Admitted, error) {
	plan, e := f.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	if e != nil {
		return nil, nil, e
	}
	if f.Exact == ExactOff {
		return nil, nil, toll.NewError(toll.CodePathNotFound).WithHint("This service knows no wallets without an account.")
	}
	terms, notSold := f.saleTerms(plan)
	route := f.Auth.Issuer() + "/x402/plans/" + string(id) + "/token"
	if payment != "" {
		if notSold != nil {
			return nil, nil, notSold
		}
		b, err := f.sellPlan(ctx, plan, terms, f.saleRequired(ctx, plan, terms, route), payment, wait)
		return b, nil, f.withSignIn(plan, route, err)
	}
	refused := toll.Errorf(toll.CodePaymentRequired, "This access token is for a wallet that signs in, or pays.").
		WithHint("Sign extensions.sign-in-with-x and repeat the call with the proof in sign-in-with-x; or pay an entry of accepts.")
	if signIn != "" {
		admitted, e := f.admit(ctx, plan, route, signIn)
		if e == nil {
			return nil, admitted, nil
		}
		if e.HTTPStatus() >= 500 {
			return nil, nil, e
		}
		refused = e
	}
	if notSold == nil && plan.IsListed {
		return nil, nil, f.withSignIn(plan, route, unpaid(f.saleRequired(ctx, plan, terms, route), refused))
	}
	return nil, nil, f.withSignIn(plan, route, f.creditsOnly(plan, route, refused))
}

// creditsOnly is the refusal of a wallet that cannot buy the plan here: what is asked for are its credits.
func (f *Facilitator) creditsOnly(plan *toll.Plan, route string, e *toll.Error) *Unpaid {
	t := x402.Terms{PlanID: plan.ID, PayTo: plan.PayTo().String(), MaxAmount: plan.Credits.MaxAmount}
	t.Scheme, t.Network = f.brand.Scheme(plan)
	cause, text := paymentRequired(e, "Payment required")
	return &Unpaid{Cause: cause, Required: x402.NewPaymentRequired([]*x402.Terms{&t}, x402.Options{
		Namespace: f.brand.Names, Environment: f.brand.Environment, Endpoint: route, MimeType: "application/json", Error: text,
	})}
}

// withSignIn adds what a wallet signs to a refusal. Other errors stay as they are.
func (f *Facilitator) withSignIn(plan *toll.Plan, route string, err error) error {
	u, ok := err.(*Unpaid)
	if !ok {
		return err
	}
	now := f.Clock().UTC()
	info := x402.SignInInfo{
		Domain: hostOf(route), URI: route, Version: "1", Nonce: f.signInNonce(plan.ID, now), IssuedAt: x402.SignInTime(now),
		ExpirationTime: x402.SignInTime(now.Add(signInLife)), Statement: "Get an access token for this plan",
		Resources: []string{strings.TrimSuffix(route, "/token")},
	}
	declared, e := x402.Encode(x402.NewSignInExtension(info, f.brand.Environment.Network()))
	if e != nil {
		return e
	}
	switch r := u.Required.(type) {
	case *x402.SaleRequired:
		r.Extensions[x402.ExtensionSignIn] = declared
	case *x402.PaymentRequired:
		r.Extensions[x402.ExtensionSignIn] = declared
	}
	return u
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// signInNonce returns a nonce that proves itself: its time in seconds (4 bytes), random bits (4), and a MAC over both and the
// plan (8), in hex. Nothing is stored for it.
func (f *Facilitator) signInNonce(plan toll.PlanID, at time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint32(b[:], uint32(at.Unix()))
	_, _ = rand.Read(b[4:8]) // never fails since Go 1.24
	copy(b[8:], f.signInMAC(plan, b[:8]))
	return hex.EncodeToString(b[:])
}

func (f *Facilitator) signInMAC(plan toll.PlanID, head []byte) []byte {
	key := hmac.New(sha256.New, f.Auth.MACKey())
	key.Write([]byte("toll/sign-in-with-x"))
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write(head)
	mac.Write([]byte(plan))
	return mac.Sum(nil)[:8]
}

// nonceTime returns when a nonce was made, when it is ours and for the plan.
func (f *Facilitator) nonceTime(plan toll.PlanID, nonce string) (raw []byte, at time.Time, ok bool) {
	raw, err := hex.DecodeString(nonce)
	if err != nil || len(raw) != 16 || nonce != strings.ToLower(nonce) || !hmac.Equal(raw[8:], f.signInMAC(plan, raw[:8])) {
		return nil, time.Time{}, false
	}
	return raw, time.Unix(int64(binary.BigEndian.Uint32(raw)), 0), true
}

// admit checks a proof, uses its nonce up, and makes an access token when the wallet has credits.
func (f *Facilitator) admit(ctx context.Context, plan *toll.Plan, route, signIn string) (*Admitted, *toll.Error) {
	p, err := x402.DecodeSignIn(signIn)
	if err != nil {
		return nil, toll.AsError(err)
	}
	now := f.Clock().UTC()
	wallet, nonce, ends, e := f.proved(ctx, plan, route, p, now)
	if e != nil {
		return nil, e
	}
	if w, err := store.PrincipalByAddress(ctx, f.Store, wallet); err == nil && len(w.SealedKey) > 0 {
		return nil, f.badProof("its address is a workspace whose key the service holds: use an API key of it")
	} else if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, toll.AsError(err)
	}
	var first bool
	err = f.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		first, err = store.UseWalletNonce(ctx, tx, nonce, ends.Add(nonceGrace), now)
		return err
	})
	if err != nil {
		return nil, toll.AsError(err)
	}
	if !first {
		return nil, f.badProof("its nonce was used before")
	}
	balance, err := f.Checkout.Balance(ctx, plan, wallet, false)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if has := balance.Balance > 0 && plan.Kind().Covers(balance.Balance, balance.IsSubscriber, 1); !has {
		return nil, refusal.New(toll.CodeInsufficientCredits, x402.ReasonInsufficientFunds, "This wallet has no credits of the plan.")
	}
	t, err := f.walletToken(ctx, plan.ID, wallet, nil)
	if err != nil {
		return nil, toll.AsError(err)
	}
	return &Admitted{wallet, balance.Balance, t}, nil
}

func (f *Facilitator) badProof(why string) *toll.Error {
	return refusal.New(toll.CodePaymentRequired, f.brand.Names.ReasonSignIn(), "The sign-in is not taken: "+why+".")
}

// proved returns the wallet that made a proof for this route, the nonce of the proof, and when that ends. Where its key has not
// signed, code of the wallet is asked, after everything else; errors of that have status 503.
func (f *Facilitator) proved(ctx context.Context, plan *toll.Plan, route string, p *x402.SignIn, now time.Time) (toll.Address, []byte, time.Time, *toll.Error) {
	not := func(why string) (toll.Address, []byte, time.Time, *toll.Error) {
		return toll.Address{}, nil, time.Time{}, f.badProof(why)
	}
	nonce, made, ok := f.nonceTime(plan.ID, p.Nonce)
	issued, err := toll.ParseTime(p.IssuedAt)
	ends := made.Add(signInLife)
	switch {
	case !ok:
		return not("its nonce is not one of this route")
	case p.Domain != hostOf(route), p.URI != route, p.Version != "1":
		return not("it is for another place")
	case p.ChainID != f.brand.Environment.Network(), p.Type != x402.TypeEIP191, !x402.KnownSignature(p.SignatureScheme):
		return not("its chain or its kind of signature is not served")
	case err != nil:
		return not("issuedAt is no time")
	case !now.Before(ends), made.After(now.Add(signInAhead)), !now.Before(issued.Add(signInLife)), issued.After(now.Add(signInAhead)):
		return not("it is too old, or of the future")
	}
	if p.ExpirationTime != "" {
		if t, err := toll.ParseTime(p.ExpirationTime); err != nil || !now.Before(t) {
			return not("it has expired")
		}
	}
	if p.NotBefore != "" {
		if t, err := toll.ParseTime(p.NotBefore); err != nil || now.Before(t) {
			return not("it does not count yet")
		}
	}
	wallet, err := toll.ParseAddress(p.Address)
	if err != nil {
		return not("its address is none")
	}
	digest, signature := evm.PersonalDigest(p.Text()), p.SignatureBytes()
	if signer, err := evm.Recover(digest, signature); err == nil && signer == wallet {
		return wallet, nonce, ends, nil
	}
	if evm.Wrapped(signature) {
		return not("its signature is one of an account that is not on the chain yet (ERC-6492)")
	}
	ok, err = f.accepts(ctx, wallet, digest, signature)
	switch {
	case err != nil:
		return toll.Address{}, nil, time.Time{}, toll.AsError(err)
	case !ok:
		return not("its signature is not that of its address")
	}
	return wallet, nonce, ends, nil
}
