package double

// customer is a person or a firm that pays.
type customer struct {
	base
	Balance     int64             `json:"balance"`
	Delinquent  bool              `json:"delinquent"`
	Description text              `json:"description"`
	Email       text              `json:"email"`
	Livemode    bool              `json:"livemode"`
	Metadata    map[string]string `json:"metadata"`
	Name        text              `json:"name"`
	Phone       text              `json:"phone"`
	TaxExempt   string            `json:"tax_exempt"`
}

const customerParams = "description email name phone metadata:map "

func (c *call) createCustomer() (any, error) { return c.newCustomer(), nil }

func (c *call) newCustomer() *customer {
	u := &customer{base: base{newID("cus_", 14), "customer", c.now}, TaxExempt: "none"}
	c.setCustomer(u)
	c.st.add(u)
	c.emit("customer.created", u)
	return u
}

func (c *call) setCustomer(u *customer) {
	for name, field := range map[string]*text{
		"description": &u.Description, "email": &u.Email, "name": &u.Name, "phone": &u.Phone,
	} {
		if c.p.has(name) {
			*field = c.p.text(name)
		}
	}
	u.Metadata = c.p.setMetadata(u.Metadata)
}

func (c *call) customer(id, param string) (*customer, error) {
	if u, ok := find[*customer](c.st, id); ok {
		return u, nil
	}
	return nil, missing("customer", id, param)
}

func (c *call) updateCustomer() (any, error) {
	u, err := c.customer(c.r.PathValue("id"), "id")
	if err == nil {
		c.setCustomer(u)
		c.emit("customer.updated", u)
	}
	return u, err
}

// account answers what the program asks about the account and its key.
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
