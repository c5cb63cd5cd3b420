package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

const (
	// mailScheme begins the url of a webhook that is a mail address.
	mailScheme = "mailto:"
	// mailTimeout is how long the mail server has. It is less than [lease].
	mailTimeout = 20 * time.Second
)

// Mailer sends mails to people.
type Mailer interface {
	HasMail() bool
	// MailCredential returns the credential with which a person proved an address. [store.ErrNotFound] for one that is not theirs.
	MailCredential(ctx context.Context, user toll.UUID, address string) (toll.UUID, error)
	// MailReader returns the address of a credential whose person may read in a workspace now. [store.ErrNotFound] when nobody may.
	MailReader(ctx context.Context, workspace toll.Address, credential toll.UUID) (string, error)
	// TakeMail counts a mail to the address of a credential, and reports whether it may be sent now.
	TakeMail(credential toll.UUID) bool
	// SendMail returns when the server has the mail. The id is the same for a mail that is sent again.
	SendMail(ctx context.Context, id, to, subject, text string) error
}

// MailTypes returns the types of events that can be sent by mail: rare ones, about which a person does something.
func MailTypes() []toll.EventType {
	return []toll.EventType{
		toll.EventCreditsLow, toll.EventOrderFailed, toll.EventOrderDisputed, toll.EventOrderDisputeClosed, toll.EventDelegationExhausted,
		toll.EventDelegationFrozen, toll.EventDelegationExpired, toll.EventAPIKeyCreated, toll.EventWalletExported, toll.EventWebhookDisabled,
	}
}

func IsMailURL(url string) bool {
	return len(url) > len(mailScheme) && strings.EqualFold(url[:len(mailScheme)], mailScheme)
}

func isMail(w *store.Webhook) bool { return !w.Credential.IsZero() }

// mailFaults says which types of events cannot be sent by mail.
func mailFaults(types []toll.EventType) (faults []toll.Fault) {
	if len(types) == 0 {
		faults = append(faults, toll.Fault{Path: "types", Message: "must list at least one type of event to send by mail"})
	}
	for i, t := range types {
		if !slices.Contains(MailTypes(), t) {
			faults = append(faults, toll.Fault{Path: fmt.Sprintf("types.%d", i), Message: string(t) + " cannot be sent by mail"})
		}
	}
	return faults
}

// setMail lets a new webhook send mail to an address that the person has verified. Mail uses webhooks for their retries and lists.
func (e *Events) setMail(ctx context.Context, w *store.Webhook, p WebhookParams) error {
	refuse := func(text string) error { return toll.Errorf(toll.CodeWebhookURL, "%s", text).WithParam("path", "url") }
	if p.User.IsZero() {
		return toll.Errorf(toll.CodePersonNeeded, "An API key cannot create a webhook that sends mail. "+
			"Sign in as a person with a confirmed mail address.")
	}
	if e.cfg.Mail == nil || !e.cfg.Mail.HasMail() {
		return refuse("This service does not send mail: the operator has not set a mail server (--smtp-url).")
	}
	address := strings.ToLower((*p.URL)[len(mailScheme):])
	credential, err := e.cfg.Mail.MailCredential(ctx, p.User, address)
	if err != nil {
		return store.NotFoundAs(err, refuse("You have not confirmed this mail address. Add it on the page /account/security first."))
	}
	// Records of webhooks are read by keys and written into logs, where the address of a person has no place.
	name, host, _ := strings.Cut(address, "@")
	w.Credential, w.URL = credential, mailScheme+name[:1]+"***@"+host
	return nil
}

// MailsTo reports whether a webhook of an address sends mails to one of some credentials. Errors: [toll.CodeBadUUID],
// [toll.CodeWebhookNotFound].
func (e *Events) MailsTo(ctx context.Context, owner toll.Address, id string, credentials []toll.UUID) (bool, error) {
	w, err := e.own(ctx, owner, id)
	return err == nil && slices.Contains(credentials, w.Credential), err
}

// MailWebhook returns the webhook that sends mails to one of some credentials in a workspace, and that credential; nil for none.
func (e *Events) MailWebhook(ctx context.Context, owner toll.Address, credentials []toll.UUID) (*toll.Webhook, toll.UUID, error) {
	all, err := store.MailWebhooksOf(ctx, e.st, owner)
	for _, w := range all {
		if slices.Contains(credentials, w.Credential) {
			return record(w), w.Credential, err
		}
	}
	return nil, toll.UUID{}, err
}

// countMails returns how many webhooks of a workspace send mails. A second one to the same address is refused.
func countMails(ctx context.Context, tx *store.Tx, w *store.Webhook) (int64, error) {
	all, err := store.MailWebhooksOf(ctx, tx, w.Principal)
	if slices.ContainsFunc(all, func(other *store.Webhook) bool { return other.Credential == w.Credential }) {
		return 0, toll.Errorf(toll.CodeWebhookTooMany, "This mail address already gets mail about the workspace. Change the existing webhook.").
			WithParam("limit", 1)
	}
	return int64(len(all)), err
}

// concerns reports whether an event is for the people of a workspace: its own credits and orders, and not those of each of its
// customers, who could have mails sent at will.
func concerns(workspace toll.Address, ev *store.Event) bool {
	switch ev.Type {
	case toll.EventCreditsLow:
		_, holder, _ := strings.Cut(ev.Object, "/")
		return strings.EqualFold(holder, workspace.String())
	case toll.EventOrderFailed:
		var o toll.Order
		return json.Unmarshal([]byte(ev.Data), &o) == nil && o.SubscriberAddress == workspace
	}
	return true
}

const (
	noMail   = "the mail server rejected the mail or is unreachable"
	noReader = "the mail address no longer belongs to a member who can read this workspace"
)

// mail sends a delivery as a mail and returns what went wrong.
func (e *Events) mail(ctx context.Context, w *store.Webhook, d *store.Delivery) (problem string) {
	if e.cfg.Mail == nil {
		return noMail
	}
	to, err := e.cfg.Mail.MailReader(ctx, w.Principal, w.Credential)
	if errors.Is(err, store.ErrNotFound) {
		return noReader
	}
	var ev toll.Event
	if err == nil {
		var body []byte
		if body, err = e.body(ctx, w, d); err == nil {
			err = json.Unmarshal(body, &ev)
		}
	}
	if err != nil {
		e.warn(ctx, "cannot create the mail for an event", err)
		return "the event could not be read"
	}
	subject, text := e.letter(ctx, w.Principal, &ev)
	ctx, cancel := context.WithTimeout(ctx, mailTimeout)
	defer cancel()
	if err := e.cfg.Mail.SendMail(ctx, d.EventID, to, subject, text); err != nil {
		e.warn(ctx, "cannot send the mail for an event", err)
		return noMail
	}
	return ""
}

// mailName is a name as it may stand in a mail: what a mail program could take for a link is left out.
var mailName = regexp.MustCompile(`^(?:[\pL\pM\pN _'()+&,#!-]|\.(?:[0-9 ]|$))+$`)

// named returns a name in quotes with its id in parentheses, or the id alone if a mail program could take part of the name for a link.
func named(name, id string) string {
	if name = plain.Name(name); mailName.MatchString(name) {
		return `"` + name + `" (` + id + ")"
	}
	return id
}

// letter returns the mail of an event: a sentence and a link to its page.
func (e *Events) letter(ctx context.Context, workspace toll.Address, ev *toll.Event) (subject, text string) {
	var d struct {
		PlanID  string       `json:"planId"`
		Balance toll.Credits `json:"balance"`
		Inquiry bool         `json:"inquiry"`
		Outcome string       `json:"outcome"`
		Limit   toll.Cents   `json:"spendingLimitCents"`
		Spent   toll.Cents   `json:"amountSpentCents"`
		Unit    string       `json:"currency"`
		Name    string       `json:"name"`
	}
	decoded := json.Unmarshal(ev.Data, &d)
	id, page := ev.Object.ID, ""
	plan := func() string {
		if p, err := store.PlanByID(ctx, e.st, toll.PlanID(d.PlanID)); err == nil {
			return "the plan " + named(p.Metadata.Name, d.PlanID)
		}
		return "a plan"
	}
	switch ev.Type {
	case toll.EventCreditsLow:
		subject, page = "Credits are low", "holdings/"+d.PlanID
		text = fmt.Sprintf("Your balance for %s is low: %s left, less than a tenth of the credits last added.", plan(), d.Balance.Text())
	case toll.EventOrderFailed:
		subject, page = "Order failed", "holdings"
		text = fmt.Sprintf("The order %s for %s failed.", id, plan())
	case toll.EventOrderDisputed:
		subject, page = "Payment disputed", "orders/"+id
		text = fmt.Sprintf("The cardholder disputed the payment of the order %s for %s.", id, plan())
		if d.Inquiry {
			text = fmt.Sprintf("The bank opened an inquiry about the payment of the order %s for %s. No money has moved.", id, plan())
		}
	case toll.EventOrderDisputeClosed:
		subject, page = "Payment dispute closed", "orders/"+id
		text = fmt.Sprintf("The dispute about the payment of the order %s for %s is closed.", id, plan())
		if d.Outcome == "won" || d.Outcome == "lost" {
			text = fmt.Sprintf("The dispute about the payment of the order %s for %s is closed: %s by the seller.", id, plan(), d.Outcome)
		}
	case toll.EventDelegationExhausted:
		subject, page = "Delegation used up", "delegations/"+id
		spent := fmt.Sprintf("%s of %s %s spent", amount(d.Spent), amount(d.Limit), strings.ToUpper(d.Unit))
		text = fmt.Sprintf("The delegation %s can no longer pay: %s.", id, spent)
	case toll.EventDelegationFrozen:
		subject, page = "Delegation frozen", "delegations/"+id
		text = fmt.Sprintf("The delegation %s is frozen and cannot pay until it is unfrozen.", id)
	case toll.EventDelegationExpired:
		subject, page = "Delegation expired", "delegations/"+id
		text = fmt.Sprintf("The delegation %s has expired and can no longer pay.", id)
	case toll.EventAPIKeyCreated:
		subject, page = "New API key", "keys/"+id
		text = fmt.Sprintf("An API key was created: %s. If no member of your workspace created it, revoke it.", named(d.Name, id))
	case toll.EventWalletExported:
		subject, page = "Wallet key exported", "wallet"
		text = fmt.Sprintf("The private key of the wallet %s was exported. Its holder can move the money of the workspace.", id)
	case toll.EventWebhookDisabled:
		subject, page = "Webhook paused", "webhooks/"+id
		text = fmt.Sprintf("The webhook %s is paused until you resume it. "+
			"All deliveries failed for three days, or its mail address no longer belongs to a member.", id)
	case toll.EventWebhookTest:
		subject, page = "Test notification", "webhooks/"+id
		text = "This is a test of your mail notifications."
	default:
		subject, page, text = "New event", "events", "New event: "+string(ev.Type)+"."
	}
	if decoded != nil && ev.Type != toll.EventWebhookTest { // the sentence would have wrong numbers
		text = "New event: " + string(ev.Type) + "."
	}
	base := e.cfg.PublicURL + "/w/" + workspace.String() + "/"
	return subject, text + "\r\n\r\n" + base + page + "\r\n\r\nWorkspace: " + workspace.String() + "\r\nTime: " +
		ev.CreatedAt.UTC().Format("2006-01-02 15:04 UTC") + "\r\n\r\nChange or turn off these notifications:\r\n" + base + "notifications\r\n"
}

func amount(c toll.Cents) string { return toll.FormatAmount(toll.UnitsOf(int64(c)), 2) }
