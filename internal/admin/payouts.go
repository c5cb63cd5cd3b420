package admin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

// Owed returns what is owed to builders of a month, YYYY-MM in UTC, "" for this one.
func Owed(ctx context.Context, cfg server.Config, month string) ([]card.Owed, error) {
	return server.Administer(ctx, cfg, server.Reading, func(db *server.Database) ([]card.Owed, error) {
		// The processor counts months by the clock of the machine.
		return card.OwedOf(ctx, db.Store, cmp.Or(month, db.Machine().UTC().Format("2006-01")))
	})
}

// MarkPayout records what was paid to a builder by other means. Errors: those of [rails.MarkPayout].
func MarkPayout(ctx context.Context, cfg server.Config, p rails.Payout, beyond bool) (rails.Payout, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (rails.Payout, error) {
		p.PaidAt = toll.At(db.Machine())
		return p, rails.MarkPayout(ctx, db.Store, p, beyond)
	})
}

const maxReceipts = 10_000

// OrderEvidence is the story of an order that was paid by card: what an answer to a dispute needs.
type OrderEvidence struct {
	OrderID         string              `json:"orderId"`
	PlanID          toll.PlanID         `json:"planId"`
	PlanName        string              `json:"planName"`
	Status          toll.OrderStatus    `json:"status"`
	CreditsGranted  toll.Credits        `json:"creditsGranted"`
	RefundedCents   toll.Cents          `json:"refundedCents"`
	RefundedCredits toll.Credits        `json:"refundedCredits"`
	Payment         *rails.CardEvidence `json:"payment"`
	Receipts        []Receipt           `json:"receipts"` // of the payer for this plan since the order; at most 10,000
	// TakenByHand are the credits of the payer for this plan that the builder took back since the order without a refund.
	TakenByHand []TakenByHand `json:"takenByHand"`
}

// TakenByHand is one act in which a builder took credits back without a refund.
type TakenByHand struct {
	Credits     toll.Credits `json:"credits"`
	Transaction toll.Hash    `json:"transaction"`
	At          toll.Time    `json:"at"`
}

// Receipt is a request that was answered, and what it burned.
type Receipt struct {
	AgentRequestID string       `json:"agentRequestId"`
	AgentID        toll.AgentID `json:"agentId,omitempty"`
	Resource       string       `json:"resource,omitempty"`
	Credits        toll.Credits `json:"creditsRedeemed"`
	Transaction    toll.Hash    `json:"transaction"`
	At             toll.Time    `json:"at"`
}

// Evidence returns what an answer to a dispute needs about an order. Errors: [toll.CodeOrderNotFound] for an order not paid by card.
func Evidence(ctx context.Context, cfg server.Config, orderID string) (*OrderEvidence, error) {
	orderID, err := toll.ParseUUID(orderID)
	if err != nil {
		return nil, err
	}
	out, err := withBooks(ctx, cfg, server.Reading, func(db *server.Database, books *ledger.Ledger) (*OrderEvidence, error) {
		return evidence(ctx, db.Store, books, orderID)
	})
	if errors.Is(err, store.ErrNotFound) {
		err = toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", orderID)
	}
	return out, err
}

func evidence(ctx context.Context, st *store.Store, books *ledger.Ledger, orderID string) (*OrderEvidence, error) {
	payment, err := rails.CardEvidenceOf(ctx, st, orderID)
	if err != nil {
		return nil, err
	}
	o, err := store.OrderByID(ctx, st, orderID)
	if err != nil {
		return nil, err
	}
	plan, err := store.PlanByID(ctx, st, o.Plan)
	if err != nil {
		return nil, err
	}
	receipts, byHand, err := books.BurnedSince(ctx, o.Account, o.CreatedAt, maxReceipts)
	if err != nil {
		return nil, err
	}
	out := &OrderEvidence{
		OrderID: o.ID, PlanID: o.Plan, PlanName: plan.Metadata.Name, Status: o.Status, CreditsGranted: o.Credits,
		RefundedCents: toll.Cents(o.RefundedCents), RefundedCredits: o.RefundedCredits, Payment: payment, Receipts: []Receipt{},
		TakenByHand: []TakenByHand{},
	}
	for _, r := range receipts {
		out.Receipts = append(out.Receipts, Receipt{r.Request, r.Agent, r.Resource, r.Credits, r.Transaction, toll.At(r.At)})
	}
	for _, e := range byHand {
		out.TakenByHand = append(out.TakenByHand, TakenByHand{e.Amount, e.Commitment, toll.At(time.UnixMicro(e.AtMicros).UTC())})
	}
	return out, nil
}
