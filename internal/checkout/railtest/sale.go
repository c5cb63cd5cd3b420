package railtest

import (
	"context"
	"math/big"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/rail"
)

// purse is what an account has of a token.
type purse struct{ account, token toll.Address }

// nonce is one of an account at a token.
type nonce struct {
	purse
	nonce [32]byte
}

// Fund gives an account base units of a token, which sales are paid from.
func (r *Rail) Fund(account, token toll.Address, units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.move(purse{account, token}, big.NewInt(units))
}

func (r *Rail) Has(account, token toll.Address) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.purses[purse{account, token}]; b != nil {
		return b.Int64()
	}
	return 0
}

func (r *Rail) move(to purse, units *big.Int) {
	b := r.purses[to]
	if b == nil {
		b = new(big.Int)
	}
	r.purses[to] = new(big.Int).Add(b, units)
}

// Submit has the token carry out an authorization, as anybody can.
func (r *Rail) Submit(token toll.Address, a *evm.Authorization) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.carryOut(rail.Sale{Token: token, Authorization: *a})
}

// carryOut moves the money of an authorization, once.
func (r *Rail) carryOut(s rail.Sale) {
	a := &s.Authorization
	r.move(purse{a.From, s.Token}, new(big.Int).Neg(a.Value))
	r.move(purse{a.To, s.Token}, a.Value)
	r.spent[nonceOf(s)] = s
	r.transfers++
}

func nonceOf(s rail.Sale) nonce {
	return nonce{purse{s.Authorization.From, s.Token}, s.Authorization.Nonce}
}

// Transfers returns how often a token has moved money for an authorization.
func (r *Rail) Transfers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.transfers
}

// Domain implements rail.Seller for the tokens of the sandbox.
func (r *Rail) Domain(token toll.Address) (evm.Domain, bool) {
	name := map[toll.Address]string{toll.USDCSandbox: toll.CurrencyUSDC, toll.EURCSandbox: toll.CurrencyEURC}[token]
	return evm.Domain{Name: name, Version: "2", ChainID: big.NewInt(toll.Sandbox.ChainID()), Contract: token}, name != ""
}

// Code gives an account code that says which signatures it takes.
func (r *Rail) Code(account toll.Address, takes func(digest [32]byte, signature []byte) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code[account] = takes
}

// Asked returns how often accounts were asked about signatures.
func (r *Rail) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *Rail) Accepts(_ context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.now.Unreachable != "" {
		return false, toll.NewError(r.now.Unreachable)
	}
	takes := r.code[account]
	return takes != nil && takes(digest, signature), nil
}

func (r *Rail) CheckSale(_ context.Context, s rail.Sale) (used bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Unreachable != "" {
		return false, toll.NewError(r.now.Unreachable)
	}
	return r.payable(s)
}

// payable is what the token says of an authorization.
func (r *Rail) payable(s rail.Sale) (used bool, err error) {
	if by, ok := r.spent[nonceOf(s)]; ok {
		if by.Authorization.To != s.Authorization.To || by.Authorization.Value.Cmp(s.Authorization.Value) != 0 {
			return false, toll.NewError(toll.CodeRequestUsed)
		}
		return true, nil
	}
	if b := r.purses[purse{s.Authorization.From, s.Token}]; b == nil || b.Cmp(s.Authorization.Value) < 0 {
		return false, toll.NewError(toll.CodeChainBalance)
	}
	return false, nil
}

func (r *Rail) Sell(ctx context.Context, s rail.Sale) (rail.Payment, error) {
	total, err := toll.ParseUnits(s.Authorization.Value.String())
	if err != nil {
		return rail.Payment{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.order(ctx, &rail.Purchase{OrderID: s.OrderID, Subscriber: s.Authorization.From, Total: total, Sale: &s})
	if err != nil {
		return rail.Payment{}, err
	}
	r.act(o)
	r.landed(o)
	return r.answer(o)
}

func (r *Rail) Recheck(ctx context.Context, orderID string) (bool, error) {
	r.mu.Lock()
	o := r.orders[orderID]
	if r.now.Unreachable != "" || o == nil {
		defer r.mu.Unlock()
		return false, toll.NewError(toll.CodeChainUnreachable)
	}
	again := r.landed(o)
	way, payment := r.way, o.payment
	r.mu.Unlock()
	if !again {
		return false, nil
	}
	return true, write(ctx, way, orderID, o.purchase.Account, payment)
}

// landed pays a sale that had failed when others had its authorization carried out since.
func (r *Rail) landed(o *order) bool {
	if _, carriedOut := r.spent[nonceOf(*o.purchase.Sale)]; !carriedOut || o.payment.Status != toll.OrderFailed {
		return false
	}
	o.payment.Outcome = rail.Outcome{}
	charge(o)
	return true
}

func (r *Rail) sell(o *order, s rail.Sale) {
	fail := func(code toll.Code, reason string) {
		o.payment.Status, o.payment.FailureCode, o.payment.FailureReason = toll.OrderFailed, code, reason
	}
	used, err := r.payable(s)
	switch {
	case r.now.Decline:
		r.decline(o)
	case err != nil:
		fail(toll.AsError(err).Code, toll.AsError(err).Text())
	case o.steps > 0:
		o.steps--
		o.payment.Status, o.payment.TxHash = toll.OrderSent, transaction(o)
	case used:
		charge(o)
	case s.Authorization.ValidBefore < uint64(r.at().Unix()):
		fail(toll.CodeChainFailed, "the authorization has expired")
	default:
		r.carryOut(s)
		charge(o)
	}
}

func (r *Rail) at() time.Time {
	if r.now.Time != nil {
		return r.now.Time()
	}
	return time.Unix(0, 0)
}
