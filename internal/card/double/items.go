package double

// item is a line of what a session sells.
type item struct {
	Name     text
	Quantity int64
}

// items reads what a new session sells, and returns the total in cents. It sets the currency of the session.
func (c *call) items(s *session) (items []item, total int64, err error) {
	for _, path := range c.p.entries("line_items") {
		if len(items) == 100 {
			return nil, 0, invalidParam("line_items", "", "You can pass at most 100 line items.")
		}
		p, at := c.p.below(path), bracketed(path)
		for _, name := range []string{"price_data.currency", "price_data.product_data.name",
			"price_data.unit_amount"} {
			if !p.has(name) {
				name = bracketed(path + "." + name)
				return nil, 0, invalidParam(name, "parameter_missing", "Missing required param: %s.", name)
			}
		}
		unit, quantity := p.number("price_data.unit_amount"), p.number("quantity")
		if !p.has("quantity") {
			return nil, 0, invalidParam(at, "", "Quantity is required. Add `quantity` to `%s`", at)
		}
		if unit < 0 || unit > maxAmount || quantity < 1 || quantity > 999_999 ||
			unit*quantity > maxAmount {
			return nil, 0, invalidParam(at, "amount_too_large",
				"Amount and quantity must be positive, and the total no more than %s",
				byNumber(maxAmount))
		}
		currency := p.text("price_data.currency")
		if s.Currency != "" && s.Currency != currency {
			return nil, 0, invalidParam("line_items", "", "All line items must have the currency of the session.")
		}
		s.Currency = currency
		total += unit * quantity
		items = append(items, item{p.text("price_data.product_data.name"), quantity})
	}
	if len(items) == 0 {
		return nil, 0, invalidParam("line_items", "parameter_missing", "Missing required param: line_items.")
	}
	return items, total, checkAmount("line_items", total, string(s.Currency))
}
