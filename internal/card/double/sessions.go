package double

import (
	"cmp"
	"net/url"
)

// session is a Checkout Session: a page on which a person pays, or sets up a card.
type session struct {
	base
	AdaptivePricing           enabled           `json:"adaptive_pricing"`
	AllowPromotionCodes       bool              `json:"allow_promotion_codes"`
	AmountSubtotal            *int64            `json:"amount_subtotal"`
	AmountTotal               *int64            `json:"amount_total"`
	AutomaticTax              automaticTax      `json:"automatic_tax"`
	BillingAddressCollection  text              `json:"billing_address_collection"`
	CancelURL                 text              `json:"cancel_url"`
	ClientReferenceID         text              `json:"client_reference_id"`
	ClientSecret              text              `json:"client_secret"`
	Currency                  text              `json:"currency"`
	CustomFields              []any             `json:"custom_fields"`
	CustomText                customText        `json:"custom_text"`
	Customer                  text              `json:"customer"`
	CustomerCreation          text              `json:"customer_creation"`
	CustomerDetails           *customerDetails  `json:"customer_details"`
	CustomerEmail             text              `json:"customer_email"`
	ExpiresAt                 int64             `json:"expires_at"`
	InvoiceCreation           *invoiceCreation  `json:"invoice_creation"`
	Livemode                  bool              `json:"livemode"`
	Locale                    text              `json:"locale"`
	Metadata                  map[string]string `json:"metadata"`
	Mode                      string            `json:"mode"`
	PaymentIntent             text              `json:"payment_intent"`
	PaymentMethodTypes        []string          `json:"payment_method_types"`
	PaymentStatus             string            `json:"payment_status"`
	RedirectOnCompletion      string            `json:"redirect_on_completion,omitempty"`
	ReturnURL                 string            `json:"return_url,omitempty"`
	SavedPaymentMethodOptions *savedOptions     `json:"saved_payment_method_options"`
	SetupIntent               text              `json:"setup_intent"`
	ShippingOptions           []any             `json:"shipping_options"`
	Status                    string            `json:"status"`
	SubmitType                text              `json:"submit_type"`
	SuccessURL                text              `json:"success_url"`
	TotalDetails              *totalDetails     `json:"total_details"`
	UIMode                    string            `json:"ui_mode"`
	URL                       text              `json:"url"`
}

type enabled struct {
	Enabled bool `json:"enabled"`
}

type automaticTax struct {
	Enabled bool `json:"enabled"`
	Status  text `json:"status"`
}

type invoiceCreation struct {
	Enabled     bool     `json:"enabled"`
	InvoiceData struct{} `json:"invoice_data"`
}

type customText struct {
	Submit *message `json:"submit"`
}

type message struct {
	Message string `json:"message"`
}

type customerDetails struct {
	Email text `json:"email"`
	Name  text `json:"name"`
}

type savedOptions struct {
	AllowRedisplayFilters []string `json:"allow_redisplay_filters"`
	PaymentMethodSave     text     `json:"payment_method_save"`
}

type totalDetails struct {
	AmountDiscount int64 `json:"amount_discount"`
	AmountShipping int64 `json:"amount_shipping"`
	AmountTax      int64 `json:"amount_tax"`
}

const sessionParams = "mode:payment|setup! ui_mode:hosted_page|embedded_page metadata:map " +
	"customer customer_email customer_creation:always|if_required client_reference_id " +
	"currency:currency payment_method_types.* expires_at:int locale " +
	"success_url cancel_url return_url redirect_on_completion:always " +
	"adaptive_pricing.enabled:bool allow_promotion_codes:bool automatic_tax.enabled:bool " +
	"billing_address_collection:auto|required submit_type:auto|book|donate|pay " +
	"invoice_creation.enabled:bool custom_text.submit.message " +
	"saved_payment_method_options.allow_redisplay_filters.*:always|limited|unspecified " +
	"saved_payment_method_options.payment_method_save:enabled|disabled " +
	"setup_intent_data.description setup_intent_data.metadata:map " +
	"payment_method_data.allow_redisplay:always|limited|unspecified " +
	"line_items.*.quantity:int line_items.*.adjustable_quantity.enabled:bool " +
	"line_items.*.price_data.currency:currency line_items.*.price_data.unit_amount:int " +
	"line_items.*.price_data.tax_behavior:exclusive|inclusive|unspecified " +
	"line_items.*.price_data.product_data.name line_items.*.price_data.product_data.description"

const sessionFilters = "customer payment_intent status:open|complete|expired"

// takesSession is what the creation of a session takes, payment_intent_data included.
func takesSession() schema {
	s := takes(sessionParams)
	for path, r := range takes(intentDataParams) {
		if path != "expand.*" {
			s["payment_intent_data."+path] = r
		}
	}
	return s
}

func (c *call) createSession() (any, error) {
	id := newID("cs_test_", 58)
	s := &session{
		base:                     base{id, "checkout.session", c.now},
		AdaptivePricing:          enabled{c.p.flag("adaptive_pricing.enabled")},
		AllowPromotionCodes:      c.p.flag("allow_promotion_codes"),
		AutomaticTax:             automaticTax{Enabled: c.p.flag("automatic_tax.enabled")},
		BillingAddressCollection: c.p.text("billing_address_collection"),
		CancelURL:                c.p.text("cancel_url"),
		ClientReferenceID:        c.p.text("client_reference_id"),
		Currency:                 c.p.text("currency"),
		CustomFields:             []any{},
		Customer:                 c.p.text("customer"),
		CustomerEmail:            c.p.text("customer_email"),
		ExpiresAt:                c.now + 24*60*60,
		Locale:                   c.p.text("locale"),
		Metadata:                 c.p.setMetadata(nil),
		Mode:                     string(c.p.text("mode")),
		PaymentMethodTypes:       []string{"card"},
		ReturnURL:                string(c.p.text("return_url")),
		ShippingOptions:          []any{},
		Status:                   "open",
		SubmitType:               c.p.text("submit_type"),
		SuccessURL:               c.p.text("success_url"),
		UIMode:                   cmp.Or(string(c.p.text("ui_mode")), "hosted_page"),
	}
	if text := c.p.text("custom_text.submit.message"); text != "" {
		s.CustomText.Submit = &message{string(text)}
	}
	if options := c.p.below("saved_payment_method_options"); len(options) > 0 {
		s.SavedPaymentMethodOptions = &savedOptions{
			AllowRedisplayFilters: options.list("allow_redisplay_filters"),
			PaymentMethodSave:     options.text("payment_method_save"),
		}
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
		data := c.p.below("setup_intent_data")
		si := c.newSetupIntent(s.Customer, data.setMetadata(nil))
		si.Description = data.text("description")
		s.SetupIntent = text(si.ID)
	}
	c.st.hide(id).IntentData = c.p.below("payment_intent_data")
	c.st.hide(id).Redisplay = string(c.p.text("payment_method_data.allow_redisplay"))
	c.st.add(s)
	c.at(s.ExpiresAt, "expire", id)
	return s, nil
}

// checkSession checks what both modes have.
func (c *call) checkSession(s *session) error {
	for _, kind := range c.p.list("payment_method_types") {
		if kind != "card" {
			return invalidParam("payment_method_types", "",
				"The payment method type provided: %s is invalid. Use card", kind)
		}
	}
	if c.p.has("expires_at") {
		s.ExpiresAt = c.p.number("expires_at")
		if s.ExpiresAt < c.now+30*60 || s.ExpiresAt > c.now+24*60*60 {
			return invalidParam("expires_at", "",
				"expires_at must be at least 30 minutes and at most 24 hours from now.")
		}
	}
	if s.Customer == "" {
		return nil
	}
	if s.CustomerEmail != "" {
		return invalidParam("customer_email", "",
			"You may only specify one of these parameters: customer, customer_email.")
	}
	_, err := c.customer(string(s.Customer), "customer")
	return err
}

// checkURLs checks that the page can lead back, in the way of its kind.
func (c *call) checkURLs(s *session) error {
	need, not := "success_url", []string{"return_url", "redirect_on_completion"}
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
	wrong := []string{"setup_intent_data"}
	if s.Mode == "setup" {
		s.PaymentStatus = "no_payment_required"
		wrong = []string{"line_items", "payment_intent_data", "submit_type",
			"saved_payment_method_options", "invoice_creation"}
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
	s.CustomerCreation = text(cmp.Or(string(c.p.text("customer_creation")), "if_required"))
	if s.Customer != "" {
		s.CustomerCreation = ""
	}
	s.InvoiceCreation = &invoiceCreation{Enabled: c.p.flag("invoice_creation.enabled")}
	if err := checkSuffix(c.p, "payment_intent_data.statement_descriptor_suffix"); err != nil {
		return err
	}
	items, err := c.lineItems()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, item := range items {
		total += item.AmountTotal
		if s.Currency != "" && string(s.Currency) != item.Currency {
			return invalidParam("line_items", "",
				"All line items must have the same currency, which is that of the session.")
		}
		s.Currency = text(item.Currency)
	}
	if err := checkAmount("line_items", total, string(s.Currency)); err != nil {
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
		return nil, invalidRequest("", "",
			"Only a Checkout Session that is open can be expired. This one is %s.", s.Status)
	}
	c.expire(s)
	return s, nil
}
