package double

import (
	"strconv"
)

// lineItem is what a session sells.
type lineItem struct {
	ID             string `json:"id"`
	Object         string `json:"object"`
	AmountDiscount int64  `json:"amount_discount"`
	AmountSubtotal int64  `json:"amount_subtotal"`
	AmountTax      int64  `json:"amount_tax"`
	AmountTotal    int64  `json:"amount_total"`
	Currency       string `json:"currency"`
	Description    text   `json:"description"`
	Price          price  `json:"price"`
	Quantity       int64  `json:"quantity"`
}

type price struct {
	base
	Active            bool              `json:"active"`
	BillingScheme     string            `json:"billing_scheme"`
	Currency          string            `json:"currency"`
	Livemode          bool              `json:"livemode"`
	Metadata          map[string]string `json:"metadata"`
	Product           string            `json:"product"`
	TaxBehavior       text              `json:"tax_behavior"`
	Type              string            `json:"type"`
	UnitAmount        int64             `json:"unit_amount"`
	UnitAmountDecimal string            `json:"unit_amount_decimal"`
}

// lineItems reads the items of a new session.
func (c *call) lineItems() ([]*lineItem, error) {
	var items []*lineItem
	for _, path := range c.p.entries("line_items") {
		if len(items) == 100 {
			return nil, invalidParam("line_items", "", "You can pass at most 100 line items.")
		}
		p, at := c.p.below(path), bracketed(path)
		for _, name := range []string{"price_data.currency", "price_data.product_data.name",
			"price_data.unit_amount"} {
			if !p.has(name) {
				name = bracketed(path + "." + name)
				return nil, invalidParam(name, "parameter_missing", "Missing required param: %s.",
					name)
			}
		}
		unit, quantity := p.number("price_data.unit_amount"), p.number("quantity")
		if !p.has("quantity") {
			return nil, invalidParam(at, "", "Quantity is required. Add `quantity` to `%s`", at)
		}
		if unit < 0 || unit > maxAmount || quantity < 1 || quantity > 999_999 ||
			unit*quantity > maxAmount {
			return nil, invalidParam(at, "amount_too_large",
				"Amount and quantity must be positive, and the total no more than %s",
				byNumber(maxAmount))
		}
		items = append(items, c.lineItem(p, unit, quantity))
	}
	if len(items) == 0 {
		return nil, invalidParam("line_items", "parameter_missing",
			"Missing required param: line_items.")
	}
	return items, nil
}

func (c *call) lineItem(p params, unit, quantity int64) *lineItem {
	currency := string(p.text("price_data.currency"))
	return &lineItem{
		ID:             newID("li_1", 23),
		Object:         "item",
		AmountSubtotal: unit * quantity,
		AmountTotal:    unit * quantity,
		Currency:       currency,
		Description:    p.text("price_data.product_data.name"),
		Quantity:       quantity,
		Price: price{
			base:              base{newID("price_1", 23), "price", c.now},
			BillingScheme:     "per_unit",
			Currency:          currency,
			Metadata:          map[string]string{},
			Product:           newID("prod_", 14),
			TaxBehavior:       p.text("price_data.tax_behavior"),
			Type:              "one_time",
			UnitAmount:        unit,
			UnitAmountDecimal: strconv.FormatInt(unit, 10),
		},
	}
}
