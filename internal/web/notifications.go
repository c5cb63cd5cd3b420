package web

import (
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
)

// notices are what a person can be told by mail: boxes of the page, and the events that each stands for.
var notices = []struct {
	name, text string
	types      []toll.EventType
}{
	{"low", "Credits are low", []toll.EventType{toll.EventCreditsLow}},
	{"hooks", "A webhook is paused after failures", []toll.EventType{toll.EventWebhookDisabled}},
	{"orders", "An order fails, or its payment is contested", []toll.EventType{
		toll.EventOrderFailed, toll.EventOrderDisputed, toll.EventOrderDisputeClosed,
	}},
	{"limits", "A delegation is used up, frozen or over", []toll.EventType{
		toll.EventDelegationExhausted, toll.EventDelegationFrozen, toll.EventDelegationExpired,
	}},
	{"keys", "An API key is made, or the key of the wallet given out", []toll.EventType{toll.EventAPIKeyCreated, toll.EventWalletExported}},
}

// noticePages choose what a person is told by mail.
func noticePages() []areaPage {
	return []areaPage{{
		Path: "/notifications", Title: "Notifications", Template: "sheet", Group: groupManage, Nav: "Notifications", Icon: "bell",
		Right: toll.RightRead, Persons: true, Get: askNotices, Post: chooseNotices,
	}}
}

// mailed returns the mail addresses that the visitor proved, with the ids of their credentials, and the webhook that sends mails to
// one of them, nil for none. It has answered when ok is false.
func mailed(v *visit) (addresses []option, ids []toll.UUID, hook *toll.Webhook, ok bool) {
	all, err := v.w.People.Credentials.List(v.ctx(), v.person.User.ID)
	if v.failed("list of credentials", err) {
		return nil, nil, nil, false
	}
	for _, c := range all {
		if c.Kind == people.Mail {
			ids = append(ids, c.ID)
			addresses = append(addresses, option{Value: c.Name, Text: plain.Name(c.Name)})
		}
	}
	hook, to, err := v.w.Events.MailWebhook(v.ctx(), v.person.Address, ids)
	if v.failed("webhook", err) {
		return nil, nil, nil, false
	}
	for i := range addresses {
		addresses[i].On = hook != nil && ids[i] == to
	}
	return addresses, ids, hook, true
}

func askNotices(v *visit) {
	s := sheet{Lead: "What you are told by mail about this workspace. Each member chooses for themselves."}
	addresses, _, hook, ok := mailed(v)
	switch {
	case !ok:
		return
	case !v.w.People.Notices.HasMail():
		s.Note = "This service sends no mail: its operator has set no mail server."
	case len(addresses) == 0:
		s.Note = "You have proved no mail address yet. Add one under Your account."
		s.Links = []link{{Text: "Add a mail address", To: PathSecurity}}
	default:
		to := field{Name: "to", Label: "Mail address", Options: addresses, Value: addresses[0].Value}
		tells := field{Name: "tells", Label: "Tell me when", Type: "checks", Hint: "None chosen: no mails."}
		if i := slices.IndexFunc(addresses, func(o option) bool { return o.On }); i >= 0 {
			to.Value = addresses[i].Value
		}
		for _, n := range notices {
			on := hook != nil && !slices.ContainsFunc(n.types, func(t toll.EventType) bool { return !slices.Contains(hook.Types, t) })
			tells.Options = append(tells.Options, option{Value: n.name, Text: n.text, On: on})
		}
		s.Forms = []*form{v.formOf("choose", "Save", group{Fields: []field{to, tells}})}
		if hook != nil {
			s.Facts = []fact{{"Mails", cell{State: stateOfHook(hook), To: v.to("webhooks", hook.ID), Text: "What was sent"}}}
		}
	}
	v.sheet("Notifications", s)
}

func chooseNotices(v *visit) {
	addresses, _, hook, ok := mailed(v)
	if !ok {
		return
	}
	v.finish(func() (out outcome, err error) {
		out = outcome{To: v.to("notifications"), Done: "Your choice is saved."}
		types := []toll.EventType{}
		for _, n := range notices {
			if slices.Contains(v.form["tells"], n.name) {
				types = append(types, n.types...)
			}
		}
		to := v.text("to")
		moves := hook != nil && !slices.ContainsFunc(addresses, func(o option) bool { return o.On && o.Value == to })
		if len(types) > 0 && (hook == nil || moves) {
			// The new one comes first: of a refusal nothing is left.
			_, err = v.w.API.CreateWebhook(v.acting(), client.WebhookParams{URL: "mailto:" + to, Types: types, Description: "Notifications"})
		} else if len(types) > 0 {
			change := client.WebhookUpdate{Types: toll.SetTo(types), Status: toll.SetTo(toll.WebhookActive)}
			_, err = v.w.API.UpdateWebhook(v.acting(), hook.ID, change)
		}
		if err == nil && hook != nil && (moves || len(types) == 0) {
			err = v.w.API.DeleteWebhook(v.acting(), hook.ID)
		}
		return out, err
	})
}
