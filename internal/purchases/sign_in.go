package purchases

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
// [Purchases.Buy]. Everything else is an [*Unpaid] that says what to sign, and what the plan costs where it is sold.
func (s *Purchases) PlanToken(ctx context.Context, id toll.PlanID, payment, signIn string, wait time.Duration) (*Bought, *Admitted, error) {
	plan, e := s.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	if e != nil {
		return nil, nil, e
	}
	if s.Policy == ExactOff {
		return nil, nil, toll.NewError(toll.CodePathNotFound).WithHint("This service does not issue access tokens to wallets without an account.")
	}
	terms, notSold := s.saleTerms(plan)
	route := s.Auth.Issuer() + "/x402/plans/" + string(id) + "/token"
	if payment != "" {
		if notSold != nil {
			return nil, nil, notSold
		}
		b, err := s.sellPlan(ctx, plan, terms, s.saleRequired(ctx, plan, terms, route), payment, wait)
		return b, nil, s.withSignIn(plan, route, err)
	}
	refused := toll.Errorf(toll.CodePaymentRequired, "To get this access token, sign in with a wallet or pay.").
		WithHint("Sign the message in extensions.sign-in-with-x and repeat the call with the proof in the header sign-in-with-x, or pay an entry of accepts.")
	if signIn != "" {
		admitted, e := s.admit(ctx, plan, route, signIn)
		if e == nil {
			return nil, admitted, nil
		}
		if e.HTTPStatus() >= 500 {
			return nil, nil, e
		}
		refused = e
	}
	if notSold == nil && plan.IsListed {
		return nil, nil, s.withSignIn(plan, route, unpaid(s.saleRequired(ctx, plan, terms, route), refused))
	}
	return nil, nil, s.withSignIn(plan, route, s.creditsOnly(plan, route, refused))
}

// creditsOnly is the refusal of a wallet that cannot buy the plan here: what is asked for are its credits.
func (s *Purchases) creditsOnly(plan *toll.Plan, route string, e *toll.Error) *Unpaid {
	t := x402.Terms{PlanID: plan.ID, PayTo: plan.PayTo().String(), MaxAmount: plan.Credits.MaxAmount}
	t.Scheme, t.Network = s.brand.Scheme(plan)
	cause, text := paymentRequired(e, "Payment required")
	return &Unpaid{Cause: cause, Required: x402.NewPaymentRequired([]*x402.Terms{&t}, x402.Options{
		Namespace: s.brand.Names, Environment: s.brand.Environment, Endpoint: route, MimeType: "application/json", Error: text,
	})}
}

// withSignIn adds what a wallet signs to a refusal. Other errors stay as they are.
func (s *Purchases) withSignIn(plan *toll.Plan, route string, err error) error {
	u, ok := err.(*Unpaid)
	if !ok {
		return err
	}
	now := s.Clock().UTC()
	info := x402.SignInInfo{
		Domain: hostOf(route), URI: route, Version: "1", Nonce: newNonce(s.Auth.MACKey(), plan.ID, now), IssuedAt: x402.SignInTime(now),
		ExpirationTime: x402.SignInTime(now.Add(signInLife)), Statement: "Get an access token for this plan",
		Resources: []string{strings.TrimSuffix(route, "/token")},
	}
	declared, e := x402.Encode(x402.NewSignInExtension(info, s.brand.Environment.Network()))
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

// newNonce returns a nonce that proves itself: its time in seconds (4 bytes), random bits (4), and a MAC over both and the plan (8), in
// hex. Nothing is stored for it.
func newNonce(key []byte, plan toll.PlanID, at time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint32(b[:], uint32(at.Unix()))
	_, _ = rand.Read(b[4:8]) // never fails since Go 1.24
	copy(b[8:], nonceMAC(key, plan, b[:8]))
	return hex.EncodeToString(b[:])
}

func nonceMAC(key []byte, plan toll.PlanID, head []byte) []byte {
	derived := hmac.New(sha256.New, key)
	derived.Write([]byte("toll/sign-in-with-x"))
	mac := hmac.New(sha256.New, derived.Sum(nil))
	mac.Write(head)
	mac.Write([]byte(plan))
	return mac.Sum(nil)[:8]
}

// readNonce returns the bytes and the time of a nonce of this service for the plan.
func readNonce(key []byte, plan toll.PlanID, nonce string) (raw []byte, at time.Time, ok bool) {
	raw, err := hex.DecodeString(nonce)
	if err != nil || len(raw) != 16 || nonce != strings.ToLower(nonce) || !hmac.Equal(raw[8:], nonceMAC(key, plan, raw[:8])) {
		return nil, time.Time{}, false
	}
	return raw, time.Unix(int64(binary.BigEndian.Uint32(raw)), 0), true
}

// admit checks a proof, uses its nonce up, and makes an access token when the wallet has credits.
func (s *Purchases) admit(ctx context.Context, plan *toll.Plan, route, signIn string) (*Admitted, *toll.Error) {
	p, err := x402.DecodeSignIn(signIn)
	if err != nil {
		return nil, toll.AsError(err)
	}
	now := s.Clock().UTC()
	by, e := s.checkProof(ctx, plan, route, p, now)
	if e != nil {
		return nil, e
	}
	if w, err := store.PrincipalByAddress(ctx, s.Store, by.wallet); err == nil && len(w.SealedKey) > 0 {
		return nil, s.badProof("the address is a workspace wallet whose key this service holds: use an API key of the workspace")
	} else if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, toll.AsError(err)
	}
	var first bool
	err = s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		first, err = store.UseWalletNonce(ctx, tx, by.nonce, by.ends.Add(nonceGrace), now)
		return err
	})
	if err == nil && !first {
		return nil, s.badProof("the nonce was used before")
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	balance, err := s.Checkout.Balance(ctx, plan, by.wallet, false)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if has := balance.Balance > 0 && plan.Kind().Covers(balance.Balance, balance.IsSubscriber, 1); !has {
		return nil, refusal.New(toll.CodeInsufficientCredits, x402.ReasonInsufficientFunds, "This wallet has no credits for this plan.")
	}
	t, err := s.walletToken(ctx, plan.ID, by.wallet, nil)
	if err != nil {
		return nil, toll.AsError(err)
	}
	return &Admitted{by.wallet, balance.Balance, t}, nil
}

func (s *Purchases) badProof(why string) *toll.Error {
	return refusal.New(toll.CodePaymentRequired, s.brand.Names.ReasonSignIn(), "The sign-in was rejected: "+why+".")
}

type proof struct {
	wallet toll.Address
	nonce  []byte
	ends   time.Time
}

// checkProof checks a proof for this route. If the key of the wallet has not signed it, it asks code of the wallet, after everything
// else; errors of that have status 503.
func (s *Purchases) checkProof(ctx context.Context, plan *toll.Plan, route string, p *x402.SignIn, now time.Time) (*proof, *toll.Error) {
	nonce, made, ok := readNonce(s.Auth.MACKey(), plan.ID, p.Nonce)
	issued, err := toll.ParseTime(p.IssuedAt)
	ends := made.Add(signInLife)
	switch {
	case !ok:
		return nil, s.badProof("the nonce was not issued for this route")
	case p.Domain != hostOf(route), p.URI != route, p.Version != "1":
		return nil, s.badProof("the domain, URI, or version does not match this route")
	case p.ChainID != s.brand.Environment.Network(), p.Type != x402.TypeEIP191, !x402.KnownSignature(p.SignatureScheme):
		return nil, s.badProof("the chain or signature type is not supported")
	case err != nil:
		return nil, s.badProof("issuedAt is not a valid time")
	case !now.Before(ends), made.After(now.Add(signInAhead)), !now.Before(issued.Add(signInLife)), issued.After(now.Add(signInAhead)):
		return nil, s.badProof("the proof is too old or dated in the future")
	}
	if p.ExpirationTime != "" {
		if t, err := toll.ParseTime(p.ExpirationTime); err != nil || !now.Before(t) {
			return nil, s.badProof("the proof has expired")
		}
	}
	if p.NotBefore != "" {
		if t, err := toll.ParseTime(p.NotBefore); err != nil || now.Before(t) {
			return nil, s.badProof("the proof is not valid yet")
		}
	}
	wallet, err := toll.ParseAddress(p.Address)
	if err != nil {
		return nil, s.badProof("the address is not valid")
	}
	digest, signature := evm.PersonalDigest(p.Text()), p.SignatureBytes()
	if signer, err := evm.Recover(digest, signature); err == nil && signer == wallet {
		return &proof{wallet, nonce, ends}, nil
	}
	if evm.Wrapped(signature) {
		return nil, s.badProof("the account is not on the chain yet (ERC-6492)")
	}
	if ok, err = s.signatures.accepts(ctx, wallet, digest, signature); err == nil && !ok {
		return nil, s.badProof("the signature does not match the address")
	}
	return &proof{wallet, nonce, ends}, toll.AsError(err)
}
