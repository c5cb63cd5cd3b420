package gateway

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
)

// balance is the result of checkBalance.
type balance struct {
	PlanID       string `json:"planId"`
	PlanName     string `json:"planName"`
	Balance      string `json:"balance"` // including held credits
	Held         string `json:"held"`
	Available    string `json:"available"`
	IsSubscriber bool   `json:"isSubscriber"`
}

func runCheckBalance(ctx context.Context, c *call) (any, error) {
	id, err := c.planID()
	if err != nil {
		return nil, err
	}
	b, err := c.account.service.Balance(ctx, id)
	if err != nil {
		return nil, err
	}
	if warning := c.account.loginWarning(c.core.now()); warning != "" {
		c.warn(warning)
	}
	return balance{
		PlanID:       string(b.PlanID),
		PlanName:     plain.Name(b.PlanName),
		Balance:      b.Balance.String(),
		Held:         b.Held.String(),
		Available:    b.Available.String(),
		IsSubscriber: b.IsSubscriber,
	}, nil
}

// paymentMethods is the result of listPaymentMethods. It is an object because MCP requires one.
type paymentMethods struct {
	PaymentMethods []paymentMethod `json:"paymentMethods"`
}

type paymentMethod struct {
	ID       string `json:"id"`
	Type     string `json:"type"` // card or crypto_wallet
	Brand    string `json:"brand"`
	Last4    string `json:"last4"`
	ExpMonth int64  `json:"expMonth"` // 0 for the wallet
	ExpYear  int64  `json:"expYear"`
	Provider string `json:"provider"`
	Status   string `json:"status"`
}

func runListPaymentMethods(ctx context.Context, c *call) (any, error) {
	all, err := c.account.service.PaymentMethods(ctx)
	if err != nil {
		return nil, err
	}
	out := paymentMethods{PaymentMethods: []paymentMethod{}}
	for _, m := range all {
		out.PaymentMethods = append(out.PaymentMethods, paymentMethodOf(m))
	}
	return out, nil
}

func paymentMethodOf(m toll.PaymentMethod) paymentMethod {
	return paymentMethod{
		ID:       m.ID,
		Type:     m.Type,
		Brand:    plain.Text(m.Brand, 40),
		Last4:    plain.Text(m.Last4, 40),
		ExpMonth: m.ExpMonth,
		ExpYear:  m.ExpYear,
		Provider: string(m.Provider),
		Status:   string(m.Status),
	}
}

// planPage is the result of listPlans.
type planPage struct {
	Total  int64     `json:"total"`
	Page   int64     `json:"page"`
	Offset int64     `json:"offset"` // plans per page
	Plans  []planRow `json:"plans"`
}

type planRow struct {
	PlanID      string `json:"planId"`
	Name        string `json:"name"`
	Price       string `json:"price"` // for example "1.50 USDC"
	Credits     string `json:"credits"`
	AccessLimit string `json:"accessLimit"`
}

func runListPlans(ctx context.Context, c *call) (any, error) {
	out := planPage{
		Page:   c.args.integer("page", 1),
		Offset: c.args.integer("offset", 100),
		Plans:  []planRow{},
	}
	var found struct {
		Total int64       `json:"total"`
		Plans []toll.Plan `json:"plans"`
	}
	err := c.account.service.Call(ctx, http.MethodGet, "/api/v1/protocol/plans", url.Values{
		"page":   {strconv.FormatInt(out.Page, 10)},
		"offset": {strconv.FormatInt(out.Offset, 10)},
	}, nil, &found)
	if err != nil {
		return nil, err
	}
	out.Total = found.Total
	for _, p := range found.Plans {
		out.Plans = append(out.Plans, planRow{
			PlanID:      string(p.ID),
			Name:        plain.Name(p.Metadata.Name),
			Price:       readable(p.Price),
			Credits:     p.Credits.Amount.String(),
			AccessLimit: string(p.AccessLimit),
		})
	}
	return out, nil
}
