package double

import (
	"cmp"
	"net/url"
)

// session is a Checkout Session: a page on which a person pays, or sets up a card.
type session struct {
	base
	AdaptivePricing struct {
		Enabled bool `json:"enabled"`
	} `json:"adaptive_pricing"`
	AmountSubtotal       *int64            `json:"amount_subtotal"`
	AmountTotal          *int64            `json:"amount_total"`
	AutomaticTax         automaticTax      `json:"automatic_tax"`
	CancelURL            text              `json:"cancel_url"`
	ClientReferenceID    text              `json:"client_reference_id"`
	ClientSecret         text              `json:"client_secret"`
	Currency             text              `json:"currency"`
	CustomFields         []any             `json:"custom_fields"`
	CustomText           struct{}          `json:"custom_text"`
	Customer             text              `json:"customer"`
	ExpiresAt            int64             `json:"expires_at"`
	InvoiceCreation      *invoiceCreation  `json:"invoice_creation"`
	Livemode             bool              `json:"livemode"`
	Metadata             map[string]string `json:"metadata"`
	Mode                 string            `json:"mode"`
	PaymentIntent        text              `json:"payment_intent"`
	PaymentMethodTypes   []string          `json:"payment_method_types"`
	PaymentStatus        string            `json:"payment_status"`
	RedirectOnCompletion string            `json:"redirect_on_completion,omitempty"`
	ReturnURL            string            `json:"return_url,omitempty"`
	SetupIntent          text              `json:"setup_intent"`
	ShippingOptions      []any             `json:"shipping_options"`
	Status               string            `json:"status"`
	SuccessURL           text              `json:"success_url"`
	TotalDetails         *totalDetails     `json:"total_details"`
	UIMode               string            `json:"ui_mode"`
	URL                  text              `json:"url"`
}

type automaticTax struct {
	Enabled bool `json:"enabled"`
	Status  text `json:"status"`
}

type invoiceCreation struct {
	Enabled     bool     `json:"enabled"`
	InvoiceData struct{} `json:"invoice_data"`
}

type totalDetails struct {
	AmountDiscount int64 `json:"amount_discount"`
	AmountShipping int64 `json:"amount_shipping"`
	AmountTax      int64 `json:"amount_tax"`
}

// sessionParams are those of a new session. Where the double can do only one thing, only its value is allowed.
const sessionParams = "mode:payment|setup! ui_mode:hosted_page|embedded_page metadata:map customer client_reference_id currency:currency " +
	"payment_method_types.* expires_at:int success_url cancel_url return_url adaptive_pricing.enabled:false automatic_tax.enabled:bool " +
	"invoice_creation.enabled:bool setup_intent_data.metadata:map payment_method_data.allow_redisplay:limited " +
	"payment_intent_data.metadata:map payment_intent_data.capture_method:automatic|automatic_async " +
	"payment_intent_data.statement_descriptor_suffix line_items.*.quantity:int line_items.*.price_data.currency:currency " +
	"line_items.*.price_data.unit_amount:int line_items.*.price_data.tax_behavior:inclusive line_items.*.price_data.product_data.name"

func (c *call) createSession() (any, error) {
	id := newID("cs_test_", 58)
	s := &session{
		base:               base{id, "checkout.session", c.now},
		AutomaticTax:       automaticTax{Enabled: c.p.flag("automatic_tax.enabled")},
		CancelURL:          c.p.text("cancel_url"),
		ClientReferenceID:  c.p.text("client_reference_id"),
		Currency:           c.p.text("currency"),
		CustomFields:       []any{},
		Customer:           c.p.text("customer"),
		ExpiresAt:          c.now + 24*60*60,
		Metadata:           c.p.metadata(),
		Mode:               string(c.p.text("mode")),
		PaymentMethodTypes: []string{"card"},
		ReturnURL:          string(c.p.text("return_url")),
		ShippingOptions:    []any{},
		Status:             "open",
		SuccessURL:         c.p.text("success_url"),
		UIMode:             cmp.Or(string(c.p.text("ui_mode")), "hosted_page"),
	}
	for _, check := range []func(*session) error{c.checkSession, c.checkURLs, c.checkMode} {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	if s.UIMode == "embedded_page" {
		s.ClientSecret = text(newID(id+"_secret_", 43))
		s.RedirectOnCompletion = "always"
	} else {
		s.URL = text(c.base + "/c/pay/" + id)
	}
	if s.Mode == "setup" {
		si := c.newSetupIntent(s.Customer, c.p.below("setup_intent_data").metadata())
		s.SetupIntent = text(si.ID)
	}
	c.st.hide(id).IntentData = c.p.below("payment_intent_data")
	c.st.add(s)
	c.at(s.ExpiresAt, "expire", id)
	return s, nil
}

func (c *call) checkSession(s *session) error {
	if err := c.checkTypes(); err != nil {
		return err
	}
	if c.p.has("expires_at") {
		s.ExpiresAt = c.p.number("expires_at")
		if s.ExpiresAt < c.now+30*60 || s.ExpiresAt > c.now+24*60*60 {
			return invalidParam("expires_at", "", "expires_at must be at least 30 minutes and at most 24 hours from now.")
		}
	}
	if s.Customer == "" {
		return nil
	}
	_, err := c.customer(string(s.Customer), "customer")
	return err
}

// checkURLs checks that the page can lead back, in the way of its kind.
func (c *call) checkURLs(s *session) error {
	need, not := "success_url", []string{"return_url"}
	if s.UIMode == "embedded_page" {
		need, not = "return_url", []string{"success_url", "cancel_url"}
	}
	if !c.p.has(need) {
		return invalidParam(need, "parameter_missing", "Missing required param: %s.", need)
	}
	for _, name := range not {
		if c.p.has(name) {
			return invalidParam(name, "", "You can not pass %s when ui_mode is %s.", name, s.UIMode)
		}
	}
	for _, name := range []string{need, "cancel_url"} {
		u, err := url.Parse(string(c.p.text(name)))
		web := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		if c.p.has(name) && !web {
			return invalidParam(name, "url_invalid", "Not a valid URL")
		}
	}
	return nil
}

// checkMode checks what one mode has and the other has not.
func (c *call) checkMode(s *session) error {
	wrong := []string{"setup_intent_data", "payment_method_data"}
	if s.Mode == "setup" {
		s.PaymentStatus = "no_payment_required"
		wrong = []string{"line_items", "payment_intent_data", "invoice_creation"}
	}
	for _, name := range wrong {
		if c.p.has(name) || len(c.p.below(name)) > 0 {
			return invalidParam(name, "", "You can not pass `%s` in `%s` mode.", name, s.Mode)
		}
	}
	if s.Mode == "setup" {
		return nil
	}
	s.PaymentStatus = "unpaid"
	s.InvoiceCreation = &invoiceCreation{Enabled: c.p.flag("invoice_creation.enabled")}
	if err := checkSuffix(c.p, "payment_intent_data.statement_descriptor_suffix"); err != nil {
		return err
	}
	items, total, err := c.items(s)
	if err != nil {
		return err
	}
	c.st.hide(s.ID).Items = items
	s.AmountSubtotal, s.AmountTotal, s.TotalDetails = &total, &total, &totalDetails{}
	return nil
}

func (c *call) expireSession() (any, error) {
	id := c.r.PathValue("id")
	s, ok := find[*session](c.st, id)
	switch {
	case !ok:
		return nil, missing("checkout.session", id, "id")
	case s.Status != "open":
		return nil, invalidRequest("", "", "Only a Checkout Session that is open can be expired. This one is %s.", s.Status)
	}
	c.expire(s)
	return s, nil
}
