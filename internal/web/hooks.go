package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// hookPages are the webhooks of a workspace, and its events.
func hookPages() []areaPage {
	return []areaPage{
		{
			Path: "/webhooks", Title: "Webhooks", Template: "sheet", Group: groupDevelop, Nav: "Webhooks", Icon: "webhook", Key: "w",
			Right: toll.RightRead, Get: listHooks,
		},
		{
			Path: "/webhooks/new", Title: "Add a webhook", Template: "sheet", Under: "/webhooks", Right: toll.RightManage, Get: askHook,
			Post: makeHook,
		},
		{
			Path: "/webhooks/{webhook}", Template: "sheet", Under: "/webhooks", Right: toll.RightRead, Act: toll.RightManage,
			Get: showHook, Post: actOnHook,
		},
		{
			Path: "/webhooks/{webhook}/edit", Template: "sheet", Under: "/webhooks", Right: toll.RightManage, Get: askHookEdit,
			Post: editHook,
		},
		{
			Path: "/events", Title: "Events", Template: "sheet", Group: groupDevelop, Nav: "Events", Icon: "list", Key: "e",
			Right: toll.RightRead, Get: listEvents,
		},
		{Path: "/events/{event}", Template: "sheet", Under: "/events", Right: toll.RightRead, Get: showEvent},
	}
}

func listHooks(v *visit) {
	list, err := v.w.Events.Webhooks(v.ctx(), v.person.Address, "", v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Webhooks", Head: []column{{Text: "Address"}, {Text: "State"}, {Text: "Events"}, {Text: "Made"}},
		Empty: &empty{
			"webhook", "No webhooks yet", "A webhook tells a server of yours what happens here: orders, settlements, refunds.",
			v.to("webhooks", "new"), "Add a webhook", "toll webhooks create --help",
		},
		Pager: v.pagerOf(list.Total, list.Next, "webhook"),
	}
	for _, h := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{Text: plain.Name(h.URL), To: v.to("webhooks", h.ID), Sub: descriptionOf(h)}, {State: stateOfHook(h)}, {Text: typesOf(h)}, at(h.CreatedAt.Time),
		})
	}
	v.sheet("Webhooks", sheet{
		Lead: "Signed messages to servers of yours about what happens here.", Table: t, Links: mayBegin(v, "Add a webhook", "webhooks", "new"),
	})
}

func descriptionOf(h *toll.Webhook) string {
	if h.Description == nil {
		return ""
	}
	return plain.Name(*h.Description)
}

func stateOfHook(h *toll.Webhook) *state {
	switch {
	case h.Status == toll.WebhookPaused:
		return &state{"paused", "quiet"}
	case h.FailingSince != nil:
		return &state{"failing", "bad"}
	}
	return &state{"active", "good"}
}

func typesOf(h *toll.Webhook) string {
	switch len(h.Types) {
	case 0:
		return "all"
	case 1:
		return string(h.Types[0])
	}
	return string(h.Types[0]) + " and " + strconv.Itoa(len(h.Types)-1) + " more"
}

// hookFields are the fields of a webhook.
func hookFields(h *toll.Webhook) []group {
	types := field{Name: "types", Label: "Events", Type: "checks", Hint: "None chosen: every event, those of later releases too."}
	for _, t := range toll.EventTypes() {
		types.Options = append(types.Options, option{Value: string(t), Text: string(t), On: slices.Contains(h.Types, t)})
	}
	return []group{{Fields: []field{
		{Name: "url", Label: "Address", Value: h.URL, Type: "url", Required: true, Hint: "An https address that answers with 2xx within 10 seconds."},
		{Name: "description", Label: "Description", Value: descriptionOf(h)}, types,
	}}}
}

func askHook(v *visit) {
	f := v.formOf("make", "Add the webhook", hookFields(&toll.Webhook{})...)
	f.Cancel = v.to("webhooks")
	v.sheet("Add a webhook", sheet{Lead: "The secret that signs its messages is shown once, when it is made.", Forms: []*form{f}})
}

// eventTypes are the events that a form names.
func eventTypes(v *visit) []toll.EventType {
	out := []toll.EventType{}
	for _, t := range v.form["types"] {
		out = append(out, toll.EventType(t))
	}
	return out
}

func makeHook(v *visit) {
	v.finish(func() (outcome, error) {
		made, err := v.w.API.CreateWebhook(v.acting(), client.WebhookParams{
			URL: v.text("url"), Description: v.text("description"), Types: eventTypes(v),
		})
		if err != nil {
			return outcome{}, err
		}
		return outcome{
			To: v.to("webhooks", made.ID), Done: "The webhook is added.", Secret: &secret{"The secret of the webhook", made.Secret},
		}, nil
	})
}

// hook returns the webhook of the page. It has answered when that is nil.
func hook(v *visit) *toll.Webhook {
	h, err := v.w.Events.Webhook(v.ctx(), v.person.Address, v.param("webhook"))
	if err != nil && toll.AsError(err).HTTPStatus() < 500 {
		v.missing("webhook")
		return nil
	}
	if v.failed("webhook", err) {
		return nil
	}
	return h
}

func askHookEdit(v *visit) {
	h := hook(v)
	if h == nil {
		return
	}
	f := v.formOf("edit", "Save", hookFields(h)...)
	f.Cancel = v.to("webhooks", h.ID)
	v.sheet("Edit the webhook", sheet{Forms: []*form{f}})
}

func editHook(v *visit) {
	h := hook(v)
	if h == nil {
		return
	}
	v.finish(func() (outcome, error) {
		_, err := v.w.API.UpdateWebhook(v.acting(), h.ID, client.WebhookUpdate{
			URL: toll.SetTo(v.text("url")), Description: toll.SetTo(v.text("description")), Types: toll.SetTo(eventTypes(v)),
		})
		return outcome{To: v.to("webhooks", h.ID), Done: "The webhook is saved."}, err
	})
}

func actOnHook(v *visit) {
	h := hook(v)
	if h == nil {
		return
	}
	v.finish(func() (out outcome, err error) {
		out.To = v.to("webhooks", h.ID)
		status := func(s toll.WebhookStatus) error {
			_, err := v.w.API.UpdateWebhook(v.acting(), h.ID, client.WebhookUpdate{Status: toll.SetTo(s)})
			return err
		}
		switch v.form.Get("act") {
		case "test":
			out.Done, err = "A test event is on its way.", v.w.API.TestWebhook(v.acting(), h.ID)
		case "pause":
			out.Done, err = "The webhook is paused. It keeps its place among the events.", status(toll.WebhookPaused)
		case "resume":
			out.Done, err = "The webhook is active again.", status(toll.WebhookActive)
		case "rotate":
			made, err := v.w.API.RotateWebhook(v.acting(), h.ID)
			if err != nil {
				return out, err
			}
			out.Done, out.Secret = "The secret is new. For 24 hours messages are signed with both.", &secret{"The new secret", made.Secret}
		case "delete":
			out.To, out.Done, err = v.to("webhooks"), "The webhook is deleted.", v.w.API.DeleteWebhook(v.acting(), h.ID)
		case "resend":
			out.Done, err = "The message is on its way again.", v.w.API.ResendDelivery(v.acting(), h.ID, v.form.Get("delivery"))
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func showHook(v *visit) {
	h := hook(v)
	if h == nil {
		return
	}
	status := toll.DeliveryStatus(v.r.URL.Query().Get("status"))
	list, err := v.w.Events.Deliveries(v.ctx(), v.person.Address, h.ID, status, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Deliveries",
		Head: []column{
			{Text: "Event"}, {Text: "State"}, {Text: "Tries", Num: true}, {Text: "Answer"}, {Text: "Last try"}, {Text: "Next try"}, {Text: "Again"},
		},
		Empty: &empty{Icon: "send", Title: "Nothing was sent", Text: "Each event for this webhook appears here, with what your server answered."},
		Pager: v.pagerOf(list.Total, list.Next, "message"),
	}
	may := v.person.Rights.Has(toll.RightManage)
	for _, d := range list.Items {
		answer := cell{Text: "none"}
		if d.LastStatus != nil {
			answer.Text = strconv.FormatInt(*d.LastStatus, 10)
		}
		if d.LastError != nil {
			answer.Sub = plain.Name(*d.LastError)
		}
		again := cell{}
		if may && d.Status != toll.DeliveryPending {
			again.Form = &form{
				Action: v.r.URL.Path, Ticket: v.ticket(v.r.URL.Path), Act: "resend", Button: "Send again",
				Hidden: []option{{Value: "delivery", Text: d.ID}},
			}
		}
		event := cell{Text: string(d.Type), Sub: "test"}
		if d.Sequence > 0 {
			event.To, event.Sub = v.to("events", strconv.FormatInt(d.Sequence, 10)), "number "+strconv.FormatInt(d.Sequence, 10)
		}
		t.Rows = append(t.Rows, []cell{
			event, {State: stateOfDelivery(d.Status)}, credits(toll.Credits(d.Attempts)), answer,
			atOr(d.LastAttemptAt, "not yet"), atOr(d.NextAttemptAt, "none"), again,
		})
	}
	facts := []fact{
		{"Id", cell{ID: h.ID}}, {"Address", cell{Text: plain.Name(h.URL)}}, {"State", cell{State: stateOfHook(h)}}, {"Events", cell{Text: allTypesOf(h)}},
		{"Made", at(h.CreatedAt.Time)}, {"Changed", at(h.UpdatedAt.Time)},
	}
	if h.FailingSince != nil {
		facts = slices.Insert(facts, 3, fact{"Failing since", at(h.FailingSince.Time)})
	}
	s := sheet{
		Lead: descriptionOf(h), Links: mayBegin(v, "Edit", "webhooks", h.ID, "edit"), Facts: facts, Table: t,
		Filter: []field{{Name: "status", Label: "State", Value: string(status), Options: []option{
			{Text: "All"}, {Value: "pending", Text: "pending"}, {Value: "succeeded", Text: "succeeded"}, {Value: "failed", Text: "failed"},
		}}},
	}
	if may {
		s.Acts = []dialog{v.dialogOf("test", "Send a test event", "A message of the type webhook.test goes to the address.")}
		if h.Status == toll.WebhookPaused {
			s.Acts = append(s.Acts, v.dialogOf("resume", "Resume", "Everything since the pause is sent."))
		} else {
			s.Acts = append(s.Acts, v.dialogOf("pause", "Pause", "Nothing is sent until you resume it. Then everything since follows."))
		}
		if !strings.HasPrefix(h.URL, "mailto:") { // nothing is signed
			s.Acts = append(s.Acts,
				v.dialogOf("rotate", "New secret", "For 24 hours messages are signed with both secrets. The new one is shown once."))
		}
		s.Acts = append(s.Acts,
			v.dangerOf("delete", "Delete", "What is on its way is not sent any more."))
	}
	v.sheet("Webhook", s)
}

func stateOfDelivery(s toll.DeliveryStatus) *state {
	tone := map[toll.DeliveryStatus]string{toll.DeliverySucceeded: "good", toll.DeliveryFailed: "bad"}[s]
	if tone == "" {
		tone = "warn"
	}
	return &state{string(s), tone}
}

func allTypesOf(h *toll.Webhook) string {
	var out []string
	for _, t := range h.Types {
		out = append(out, string(t))
	}
	if len(out) == 0 {
		return "all"
	}
	return strings.Join(out, ", ")
}

func listEvents(v *visit) {
	f := store.EventFilter{Principal: v.person.Address, Type: toll.EventType(v.r.URL.Query().Get("type"))}
	if f.Type != "" && !slices.Contains(toll.EventTypes(), f.Type) {
		v.missing("type of event")
		return
	}
	day := v.r.URL.Query().Get("since")
	if day != "" {
		var err error
		if f.Since, err = time.Parse(time.DateOnly, day); err != nil {
			v.missing("day")
			return
		}
	}
	list, err := v.w.Events.List(v.ctx(), f, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Events", Head: []column{{Text: "Number"}, {Text: "Type", Stays: true}, {Text: "About"}, {Text: "Happened"}},
		Empty: &empty{
			"list", "No events yet", "Each change of a record of this workspace is an event. Your programs read them, and webhooks send them.",
			"", "", "toll events list --follow",
		},
		Pager: v.pagerOf(list.Total, list.Next, "event"),
	}
	for _, e := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{Number: strconv.FormatInt(e.Sequence, 10)}, {Text: string(e.Type), To: v.to("events", strconv.FormatInt(e.Sequence, 10))},
			aboutCell(v, e.Object), at(e.CreatedAt.Time),
		})
	}
	types := field{Name: "type", Label: "Type", Value: string(f.Type), Options: []option{{Text: "All types"}}}
	for _, w := range toll.EventTypes() {
		types.Options = append(types.Options, option{Value: string(w), Text: string(w)})
	}
	narrow := url.Values{}
	for name, value := range map[string]string{"type": string(f.Type), "since": day} {
		if value != "" {
			narrow.Set(name, value)
		}
	}
	s := sheet{Lead: "Everything that happened to what this workspace has.", Links: file(v, "events", narrow), Table: t, Filter: []field{
		types, {Name: "since", Label: "From", Type: "date", Value: day},
	}}
	if v.w.Environment != toll.Live {
		s.Links = append(s.Links, link{Text: "Test clock", To: v.to("clock"), Plain: true})
	}
	if v.r.URL.Query().Get("cursor") == "" {
		if s.Live, err = liveOf(v); v.failed("page", err) {
			return
		}
	}
	v.sheet("Events", s)
}

// aboutCell names the record of an event, and leads to it where it has a page.
func aboutCell(v *visit, o toll.EventObject) cell {
	c := cell{ID: o.ID, Sub: strings.ReplaceAll(o.Kind, "_", " ")}
	area := map[string]string{"agent": "agents", "plan": "plans", "order": "orders", "api_key": "keys", "webhook": "webhooks"}[o.Kind]
	if area != "" {
		c.To = v.to(area, o.ID)
	}
	return c
}

func showEvent(v *visit) {
	seq, err := strconv.ParseInt(v.param("event"), 10, 64)
	if err != nil || seq < 1 {
		v.missing("event")
		return
	}
	e, err := v.w.Events.BySequence(v.ctx(), v.person.Address, seq)
	if errors.Is(err, store.ErrNotFound) {
		v.missing("event")
		return
	}
	if v.failed("event", err) {
		return
	}
	var data bytes.Buffer
	if json.Indent(&data, e.Data, "", "  ") != nil {
		data.Write(e.Data)
	}
	about := aboutCell(v, e.Object)
	v.sheet(string(e.Type), sheet{
		Facts: []fact{
			{"Id", cell{ID: e.ID}}, {"Number", cell{Number: strconv.FormatInt(e.Sequence, 10)}}, {"About", about}, {"Happened", at(e.CreatedAt.Time)},
		},
		Snippets: []snippet{{"What webhooks and programs get", data.String()}},
	})
}
