package double

// customer is a person or a firm that pays.
type customer struct {
	base
	Balance    int64             `json:"balance"`
	Delinquent bool              `json:"delinquent"`
	Email      text              `json:"email"`
	Livemode   bool              `json:"livemode"`
	Metadata   map[string]string `json:"metadata"`
	Name       text              `json:"name"`
	TaxExempt  string            `json:"tax_exempt"`
}

const customerParams = "email name metadata:map"

func (c *call) createCustomer() (any, error) { return c.newCustomer(), nil }

// newCustomer makes a customer with the parameters of the call, or of the form of a page.
func (c *call) newCustomer() *customer {
	u := &customer{
		base:      base{newID("cus_", 14), "customer", c.now},
		Email:     c.p.text("email"),
		Metadata:  c.p.metadata(),
		Name:      c.p.text("name"),
		TaxExempt: "none",
	}
	c.st.add(u)
	c.emit("customer.created", u)
	return u
}

func (c *call) customer(id, param string) (*customer, error) {
	if u, ok := find[*customer](c.st, id); ok {
		return u, nil
	}
	return nil, missing("customer", id, param)
}

func (c *call) getAccount() (any, error) {
	return map[string]any{
		"id":                c.st.Account,
		"object":            "account",
		"business_type":     "company",
		"capabilities":      map[string]string{"card_payments": "active", "transfers": "active"},
		"charges_enabled":   true,
		"country":           "US",
		"created":           c.st.Created,
		"default_currency":  "usd",
		"details_submitted": true,
		"email":             "double@example.com",
		"metadata":          map[string]string{},
		"payouts_enabled":   true,
		"type":              "standard",
	}, nil
}
