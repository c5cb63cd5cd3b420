package double

// setupIntent is the wish to keep a card for later.
type setupIntent struct {
	base
	CancellationReason text              `json:"cancellation_reason"`
	ClientSecret       string            `json:"client_secret"`
	Customer           text              `json:"customer"`
	LastSetupError     *failure          `json:"last_setup_error"`
	LatestAttempt      text              `json:"latest_attempt"`
	Livemode           bool              `json:"livemode"`
	Metadata           map[string]string `json:"metadata"`
	NextAction         *nextAction       `json:"next_action"`
	PaymentMethod      text              `json:"payment_method"`
	PaymentMethodTypes []string          `json:"payment_method_types"`
	Status             string            `json:"status"`
	Usage              string            `json:"usage"`
}

// setupAttempt is one try with one card.
type setupAttempt struct {
	base
	Customer             text           `json:"customer"`
	Livemode             bool           `json:"livemode"`
	PaymentMethod        string         `json:"payment_method"`
	PaymentMethodDetails attemptDetails `json:"payment_method_details"`
	SetupError           *failure       `json:"setup_error"`
	SetupIntent          string         `json:"setup_intent"`
	Status               string         `json:"status"`
	Usage                string         `json:"usage"`
}

type attemptDetails struct {
	Card struct{} `json:"card"`
	Type string   `json:"type"`
}

// nextAction sends a person to the page of the 3-D Secure step.
type nextAction struct {
	RedirectToURL redirectToURL `json:"redirect_to_url"`
	Type          string        `json:"type"`
}

type redirectToURL struct {
	URL string `json:"url"`
}

func (c *call) authenticateAt(secret string) *nextAction {
	return &nextAction{redirectToURL{c.base + "/c/authenticate/" + secret}, "redirect_to_url"}
}

func (c *call) newSetupIntent(customer text, metadata map[string]string) *setupIntent {
	id := newID("seti_1", 23)
	si := &setupIntent{
		base:               base{id, "setup_intent", c.now},
		ClientSecret:       newID(id+"_secret_", 25),
		Customer:           customer,
		Metadata:           metadata,
		PaymentMethodTypes: []string{"card"},
		Status:             "requires_payment_method",
		Usage:              "off_session",
	}
	c.st.add(si)
	c.emit("setup_intent.created", si)
	return si
}

// setUp tries a card for a setup intent. The status of the intent says whether its owner has to authenticate.
func (c *call) setUp(si *setupIntent, m *paymentMethod) *failure {
	t := c.testCard(m)
	a := &setupAttempt{
		base:                 base{newID("setatt_1", 23), "setup_attempt", c.now},
		Customer:             si.Customer,
		PaymentMethod:        m.ID,
		PaymentMethodDetails: attemptDetails{Type: "card"},
		SetupIntent:          si.ID,
		Status:               "requires_action",
		Usage:                si.Usage,
	}
	c.st.add(a)
	si.LatestAttempt, si.PaymentMethod = text(a.ID), text(m.ID)
	if f := t.decline(); f != nil && !t.attaches {
		c.setupFailed(si, f)
		return f
	}
	if t.auth != authNever {
		si.Status, si.NextAction = "requires_action", c.authenticateAt(si.ClientSecret)
		c.emit("setup_intent.requires_action", si)
		return nil
	}
	c.setupSucceeded(si)
	return nil
}

func (c *call) setupFailed(si *setupIntent, f *failure) {
	a, _ := find[*setupAttempt](c.st, string(si.LatestAttempt))
	m, _ := find[*paymentMethod](c.st, string(si.PaymentMethod))
	kept := new(*f)
	kept.PaymentMethod = new(*m)
	a.Status, a.SetupError = "failed", kept
	si.Status, si.PaymentMethod, si.NextAction = "requires_payment_method", "", nil
	si.LastSetupError = kept
	c.emit("setup_intent.setup_failed", si)
}

func (c *call) setupSucceeded(si *setupIntent) {
	a, _ := find[*setupAttempt](c.st, string(si.LatestAttempt))
	m, _ := find[*paymentMethod](c.st, string(si.PaymentMethod))
	a.Status = "succeeded"
	c.st.hide(m.ID).SetUp = true
	if si.Customer != "" {
		c.attach(m, string(si.Customer))
	}
	si.Status, si.NextAction, si.LastSetupError = "succeeded", nil, nil
	c.emit("setup_intent.succeeded", si)
}

func (c *call) cancelSetup(si *setupIntent, reason text) {
	si.Status, si.CancellationReason, si.NextAction = "canceled", reason, nil
	c.emit("setup_intent.canceled", si)
}
