package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// SaleRequest buys a plan for the account that signed an authorization, with the money of it.
type SaleRequest struct {
	Plan *toll.Plan
	Sale rail.Sale // without OrderID; its signature is known to be good
	// ChainID is that of the chain of Sale.Token.
	ChainID int64
	// Identifier is the name that the wallet gave to the purchase, "" for none. Under one name of a wallet one thing is bought: Content.
	Identifier string
	Content    toll.Hash
	// Check says whether the authorization pays the price now, in less than 2^63 seconds since 1970. It is asked unless the
	// authorization has bought before: what is paid stays paid, whatever becomes of the price and of the time.
	Check func() error
	Wait  time.Duration // how long the answer may wait for the credits
}

// Sold is what became of a sale.
type Sold struct {
	Order    *toll.Order // its status is 202 while the payment is not decided
	Recorded bool        // by this call; else an earlier one, or one at the same time, has bought
	// First says that this call recorded the order before the authorization was on the chain, where everybody can read it. Only
	// then does the call prove that its caller is the wallet.
	First bool
}

// saleTries bounds how often a sale is begun anew because another one of the same authorization was recorded meanwhile.
const saleTries = 4

// Sell sells a plan for an authorization, once: a repeat returns the same order. Before it writes, it asks the chain whether it pays.
// Errors: [toll.CodeRequestUsed] when the authorization paid another order, [toll.CodeSettleConflict] when the identifier names another
// purchase, [toll.CodePlanUnlisted], [toll.CodePlanSoldOut], [toll.CodeCreditsOverflow], those of [Seller], and those of the payment.
func (c *Checkout) Sell(ctx context.Context, r SaleRequest) (*Sold, error) {
	seller := c.Seller()
	if seller == nil {
		return nil, railMissing(rail.Crypto)
	}
	for try := 1; ; try++ {
		o, err := c.soldBefore(ctx, c.store, &r)
		if err != nil {
			return nil, Fault(err)
		}
		out := &Sold{}
		if o == nil {
			if o, err = c.sell(ctx, seller, &r, out); err != nil {
				// Another call may have recorded the authorization meanwhile, and may have moved its money.
				earlier, e := c.soldBefore(ctx, c.store, &r)
				switch {
				case e != nil:
					return nil, Fault(e)
				case earlier != nil:
					o = earlier
				case raced(err) && try < saleTries:
					continue
				default:
					return nil, err
				}
			}
		}
		if o.Status == toll.OrderFailed && o.TxHash == "" {
			o = c.landed(ctx, seller, o, r.Wait)
		}
		out.Order, err = c.answer(ctx, r.Plan, o, r.Wait)
		return out, err
	}
}

// landed has the rail check an unsent failed sale again, because others may have sent the authorization, and returns the order.
func (c *Checkout) landed(ctx context.Context, seller rail.Seller, o *store.Order, wait time.Duration) *store.Order {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if again, err := seller.Recheck(ctx, o.ID); err != nil || !again {
		return o // when it is paid later, the rail says so by itself
	}
	now, _, err := c.waits.awaitWhile(ctx, o, wait, func(o *store.Order) bool { return !isPaid(o.Status) })
	if err != nil {
		return o
	}
	return now
}

// Seller returns the rail on which plans are sold for authorizations, nil when there is none.
func (c *Checkout) Seller() rail.Seller {
	seller, _ := c.rails[rail.Crypto].(rail.Seller)
	return seller
}

// sell checks a payment and records its order.
func (c *Checkout) sell(ctx context.Context, seller rail.Seller, r *SaleRequest, out *Sold) (*store.Order, error) {
	if err := onSale(r.Plan); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	used, err := seller.CheckSale(ctx, r.Sale)
	if err != nil {
		return nil, err
	}
	in := intent{
		plan: r.Plan, subscriber: r.Sale.Authorization.From, credits: r.Plan.Credits.Amount, amount: r.Plan.Price.Total(), sale: r,
		Means: rail.Means{Rail: rail.Crypto},
	}
	o, err := c.place(ctx, &in)
	out.Recorded, out.First = in.recorded, in.recorded && !used
	return o, err
}

// soldBefore returns the order that an authorization, or the name of the purchase, stands for already; nil when there is none.
func (c *Checkout) soldBefore(ctx context.Context, q store.Querier, r *SaleRequest) (*store.Order, error) {
	signed := &r.Sale.Authorization
	account := ledger.NewAccountID(r.Plan.ID, signed.From)
	known, err := store.AuthorizationByNonce(ctx, q, r.ChainID, r.Sale.Token, signed.From, signed.Nonce)
	if err == nil {
		o, err := store.OrderOfAccount(ctx, q, account, known.OrderID)
		if errors.Is(err, store.ErrNotFound) || err == nil && !sameAuthorization(known, signed) {
			return nil, toll.Errorf(toll.CodeRequestUsed, "This authorization was already used for another payment.")
		}
		return o, err
	}
	if !errors.Is(err, store.ErrNotFound) || r.Identifier == "" {
		return nil, store.NotFoundAs(err, nil)
	}
	named, err := store.SaleByIdentifier(ctx, q, signed.From, r.Identifier)
	if err != nil {
		return nil, store.NotFoundAs(err, nil)
	}
	if named.Content != r.Content {
		return nil, toll.Errorf(toll.CodeSettleConflict, "This payment identifier was already used for another purchase.")
	}
	return store.OrderOfAccount(ctx, q, account, named.OrderID)
}

// raced reports whether another order took the authorization, or the name of the purchase, at the same time.
func raced(err error) bool {
	_, taken := errors.AsType[*store.AuthorizationTaken](err)
	return taken || store.IsUnique(err)
}

func sameAuthorization(a *store.Authorization, b *evm.Authorization) bool {
	return a.Receiver == b.To && a.Value.Int().Cmp(b.Value) == 0 &&
		uint64(a.ValidAfter) == b.ValidAfter && uint64(a.ValidBefore) == b.ValidBefore
}

func insertSale(ctx context.Context, tx *store.Tx, r *SaleRequest, o *store.Order) error {
	signed := &r.Sale.Authorization
	value, err := toll.ParseUnits(signed.Value.String())
	if err != nil {
		return err
	}
	if err := store.InsertAuthorization(ctx, tx, &store.Authorization{
		ChainID: r.ChainID, Asset: r.Sale.Token, Payer: signed.From, Nonce: signed.Nonce, OrderID: o.ID,
		Receiver: signed.To, Value: value, ValidAfter: int64(signed.ValidAfter), ValidBefore: int64(signed.ValidBefore),
		Signature: r.Sale.Signature, CreatedAt: o.CreatedAt,
	}); err != nil || r.Identifier == "" {
		return err
	}
	return store.PutSaleIdentifier(ctx, tx, &store.SaleIdentifier{
		Subscriber: signed.From, Identifier: r.Identifier, Content: r.Content, OrderID: o.ID,
	})
}

// saleKey begins the open key of an order that an authorization pays.
const saleKey = "sale/"

// SaleOf returns what a recorded authorization pays for.
func SaleOf(a *store.Authorization) rail.Sale {
	return rail.Sale{
		OrderID: a.OrderID, OrderedAt: a.CreatedAt, Token: a.Asset, Signature: a.Signature, Authorization: evm.Authorization{
			From: a.Payer, To: a.Receiver, Value: a.Value.Int(), ValidAfter: uint64(a.ValidAfter), ValidBefore: uint64(a.ValidBefore),
			Nonce: a.Nonce,
		},
	}
}
