package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

// hookPages are the webhooks of a workspace, and its events.
func hookPages() []page.Area {
	return []page.Area{
		{
			Path: "/webhooks", Title: "Webhooks", Template: "sheet", Group: page.GroupDevelop, Nav: "Webhooks", Icon: "webhook", Key: "w",
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
			Path: "/events", Title: "Events", Template: "sheet", Group: page.GroupDevelop, Nav: "Events", Icon: "list", Key: "e",
			Right: toll.RightRead, Get: listEvents,
		},
		{Path: "/events/{event}", Template: "sheet", Under: "/events", Right: toll.RightRead, Get: showEvent},
	}
}

func listHooks(v *page.Context) (page.View, error) {
	list, err := page.ListOf[*toll.Webhook](v, "/webhooks", "webhooks", nil)
	if err != nil {
		return nil, v.Failed("part of the list", err)
	}
	t := &page.Table{
		Caption: "Webhooks", Head: []page.Column{{Text: "Address"}, {Text: "State"}, {Text: "Events"}, {Text: "Made"}},
		Empty: &page.Empty{
			"webhook", "No webhooks yet", "A webhook tells a server of yours what happens here: orders, settlements, refunds.",
			v.To("webhooks", "new"), "Add a webhook", "toll webhooks create --help",
		},
		Pager: v.PagerOf(list.Total, list.Next, "webhook"),
	}
	for _, h := range list.Items {
		t.Rows = append(t.Rows, []page.Cell{
			{Text: plain.Name(h.URL), To: v.To("webhooks", h.ID), Sub: descriptionOf(h)}, {State: stateOfHook(h)}, {Text: typesOf(h)}, page.At(h.CreatedAt.Time),
		})
	}
	return v.Record("Webhooks", page.Record{
		Lead: "Signed messages to servers of yours about what happens here.", Table: t, Links: mayBegin(v, "Add a webhook", "webhooks", "new"),
	})
}

func descriptionOf(h *toll.Webhook) string {
	if h.Description == nil {
		return ""
	}
	return plain.Name(*h.Description)
}

func stateOfHook(h *toll.Webhook) *page.State {
	switch {
	case h.Status == toll.WebhookPaused:
		return &page.State{"paused", "quiet"}
	case h.FailingSince != nil:
		return &page.State{"failing", "bad"}
	}
	return &page.State{"active", "good"}
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
func hookFields(h *toll.Webhook) []page.Group {
	types := page.Field{Name: "types", Label: "Events", Type: "checks", Hint: "None chosen: every event, those of later releases too."}
	for _, t := range toll.EventTypes() {
		types.Options = append(types.Options, page.Option{Value: string(t), Text: string(t), On: slices.Contains(h.Types, t)})
	}
	return []page.Group{{Fields: []page.Field{
		{Name: "url", Label: "Address", Value: h.URL, Type: "url", Required: true, Hint: "An https address that answers with 2xx within 10 seconds."},
		{Name: "description", Label: "Description", Value: descriptionOf(h)}, types,
	}}}
}

func askHook(v *page.Context) (page.View, error) {
	f := v.FormOf("make", "Add the webhook", hookFields(&toll.Webhook{})...)
	f.Cancel = v.To("webhooks")
	return v.Record("Add a webhook", page.Record{Lead: "The secret that signs its messages is shown once, when it is made.", Forms: []*page.Form{f}})
}

// eventTypes are the events that a form names.
func eventTypes(v *page.Context) []toll.EventType {
	out := []toll.EventType{}
	for _, t := range v.Form["types"] {
		out = append(out, toll.EventType(t))
	}
	return out
}

func makeHook(v *page.Context) (page.View, error) {
	return v.Finish(func() (page.Outcome, error) {
		made, err := v.API.CreateWebhook(v.Acting(), client.WebhookParams{
			URL: v.Text("url"), Description: v.Text("description"), Types: eventTypes(v),
		})
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{
			To: v.To("webhooks", made.ID), Done: "The webhook is added.", Secret: &page.Secret{"The secret of the webhook", made.Secret},
		}, nil
	})
}

// hook returns the webhook of the page.
func hook(v *page.Context) (*toll.Webhook, error) {
	h, err := v.API.Webhook(v.Acting(), v.Param("webhook"))
	if err != nil && toll.AsError(err).HTTPStatus() == http.StatusBadRequest {
		return nil, v.Missing("webhook")
	}
	if err != nil {
		return nil, v.Failed("webhook", err)
	}
	return h, nil
}

func askHookEdit(v *page.Context) (page.View, error) {
	h, err := hook(v)
	if err != nil {
		return nil, err
	}
	f := v.FormOf("edit", "Save", hookFields(h)...)
	f.Cancel = v.To("webhooks", h.ID)
	return v.Record("Edit the webhook", page.Record{Forms: []*page.Form{f}})
}

func editHook(v *page.Context) (page.View, error) {
	h, err := hook(v)
	if err != nil {
		return nil, err
	}
	return v.Finish(func() (page.Outcome, error) {
		_, err := v.API.UpdateWebhook(v.Acting(), h.ID, client.WebhookUpdate{
			URL: toll.SetTo(v.Text("url")), Description: toll.SetTo(v.Text("description")), Types: toll.SetTo(eventTypes(v)),
		})
		return page.Outcome{To: v.To("webhooks", h.ID), Done: "The webhook is saved."}, err
	})
}

func actOnHook(v *page.Context) (page.View, error) {
	h, err := hook(v)
	if err != nil {
		return nil, err
	}
	return v.Finish(func() (out page.Outcome, err error) {
		out.To = v.To("webhooks", h.ID)
		status := func(s toll.WebhookStatus) error {
			_, err := v.API.UpdateWebhook(v.Acting(), h.ID, client.WebhookUpdate{Status: toll.SetTo(s)})
			return err
		}
		switch v.Form.Get("act") {
		case "test":
			out.Done, err = "A test event is on its way.", v.API.TestWebhook(v.Acting(), h.ID)
		case "pause":
			out.Done, err = "The webhook is paused. It keeps its place among the events.", status(toll.WebhookPaused)
		case "resume":
			out.Done, err = "The webhook is active again.", status(toll.WebhookActive)
		case "rotate":
			made, err := v.API.RotateWebhook(v.Acting(), h.ID)
			if err != nil {
				return out, err
			}
			out.Done, out.Secret = "The secret is new. For 24 hours messages are signed with both.", &page.Secret{"The new secret", made.Secret}
		case "delete":
			out.To, out.Done, err = v.To("webhooks"), "The webhook is deleted.", v.API.DeleteWebhook(v.Acting(), h.ID)
		case "resend":
			out.Done, err = "The message is on its way again.", v.API.ResendDelivery(v.Acting(), h.ID, v.Form.Get("delivery"))
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func showHook(v *page.Context) (page.View, error) {
	h, err := hook(v)
	if err != nil {
		return nil, err
	}
	status, q := v.R.URL.Query().Get("status"), url.Values{}
	if status != "" {
		q.Set("status", status)
	}
	list, err := page.ListOf[*toll.WebhookDelivery](v, "/webhooks/"+h.ID+"/deliveries", "deliveries", q)
	if err != nil {
		return nil, v.Failed("part of the list", err)
	}
	t := &page.Table{
		Caption: "Deliveries",
		Head: []page.Column{
			{Text: "Event"}, {Text: "State"}, {Text: "Tries", Num: true}, {Text: "Answer"}, {Text: "Last try"}, {Text: "Next try"}, {Text: "Again"},
		},
		Empty: &page.Empty{Icon: "send", Title: "Nothing was sent", Text: "Each event for this webhook appears here, with what your server answered."},
		Pager: v.PagerOf(list.Total, list.Next, "message"),
	}
	may := v.Person.Rights.Has(toll.RightManage)
	for _, d := range list.Items {
		answer := page.Cell{Text: "none"}
		if d.LastStatus != nil {
			answer.Text = strconv.FormatInt(*d.LastStatus, 10)
		}
		if d.LastError != nil {
			answer.Sub = plain.Name(*d.LastError)
		}
		again := page.Cell{}
		if may && d.Status != toll.DeliveryPending {
			again.Form = &page.Form{
				Action: v.R.URL.Path, Ticket: v.Ticket(v.R.URL.Path), Act: "resend", Button: "Send again",
				Hidden: []page.Option{{Value: "delivery", Text: d.ID}},
			}
		}
		event := page.Cell{Text: string(d.Type), Sub: "test"}
		if d.Sequence > 0 {
			event.To, event.Sub = v.To("events", strconv.FormatInt(d.Sequence, 10)), "number "+strconv.FormatInt(d.Sequence, 10)
		}
		t.Rows = append(t.Rows, []page.Cell{
			event, {State: stateOfDelivery(d.Status)}, page.Credits(toll.Credits(d.Attempts)), answer,
			page.AtOr(d.LastAttemptAt, "not yet"), page.AtOr(d.NextAttemptAt, "none"), again,
		})
	}
	facts := []page.Fact{
		{"Id", page.Cell{ID: h.ID}}, {"Address", page.Cell{Text: plain.Name(h.URL)}}, {"State", page.Cell{State: stateOfHook(h)}}, {"Events", page.Cell{Text: allTypesOf(h)}},
		{"Made", page.At(h.CreatedAt.Time)}, {"Changed", page.At(h.UpdatedAt.Time)},
	}
	if h.FailingSince != nil {
		facts = slices.Insert(facts, 3, page.Fact{"Failing since", page.At(h.FailingSince.Time)})
	}
	s := page.Record{
		Lead: descriptionOf(h), Links: mayBegin(v, "Edit", "webhooks", h.ID, "edit"), Facts: facts, Table: t,
		Filter: []page.Field{{Name: "status", Label: "State", Value: string(status), Options: []page.Option{
			{Text: "All"}, {Value: "pending", Text: "pending"}, {Value: "succeeded", Text: "succeeded"}, {Value: "failed", Text: "failed"},
		}}},
	}
	if may {
		s.Acts = []page.Dialog{v.DialogOf("test", "Send a test event", "A message of the type webhook.test goes to the address.")}
		if h.Status == toll.WebhookPaused {
			s.Acts = append(s.Acts, v.DialogOf("resume", "Resume", "Everything since the pause is sent."))
		} else {
			s.Acts = append(s.Acts, v.DialogOf("pause", "Pause", "Nothing is sent until you resume it. Then everything since follows."))
		}
		if !strings.HasPrefix(h.URL, "mailto:") { // nothing is signed
			s.Acts = append(s.Acts,
				v.DialogOf("rotate", "New secret", "For 24 hours messages are signed with both secrets. The new one is shown once."))
		}
		s.Acts = append(s.Acts,
			v.DangerOf("delete", "Delete", "What is on its way is not sent any more."))
	}
	return v.Record("Webhook", s)
}

func stateOfDelivery(s toll.DeliveryStatus) *page.State {
	tone := map[toll.DeliveryStatus]string{toll.DeliverySucceeded: "good", toll.DeliveryFailed: "bad"}[s]
	if tone == "" {
		tone = "warn"
	}
	return &page.State{string(s), tone}
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

func listEvents(v *page.Context) (page.View, error) {
	kind, q := v.R.URL.Query().Get("type"), url.Values{}
	if kind != "" {
		q.Set("type", kind)
	}
	if kind != "" && !slices.Contains(toll.EventTypes(), toll.EventType(kind)) {
		return nil, v.Missing("type of event")
	}
	day := v.R.URL.Query().Get("since")
	if day != "" {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			return nil, v.Missing("day")
		}
		q.Set("since", day+"T00:00:00.000Z")
	}
	list, err := page.ListOf[*toll.Event](v, "/events", "events", q)
	if err != nil {
		return nil, v.Failed("part of the list", err)
	}
	t := &page.Table{
		Caption: "Events", Head: []page.Column{{Text: "Number"}, {Text: "Type", Stays: true}, {Text: "About"}, {Text: "Happened"}},
		Empty: &page.Empty{
			"list", "No events yet", "Each change of a record of this workspace is an event. Your programs read them, and webhooks send them.",
			"", "", "toll events list --follow",
		},
		Pager: v.PagerOf(list.Total, list.Next, "event"),
	}
	for _, e := range list.Items {
		t.Rows = append(t.Rows, []page.Cell{
			{Number: strconv.FormatInt(e.Sequence, 10)}, {Text: string(e.Type), To: v.To("events", strconv.FormatInt(e.Sequence, 10))},
			aboutCell(v, e.Object), page.At(e.CreatedAt.Time),
		})
	}
	types := page.Field{Name: "type", Label: "Type", Value: kind, Options: []page.Option{{Text: "All types"}}}
	for _, w := range toll.EventTypes() {
		types.Options = append(types.Options, page.Option{Value: string(w), Text: string(w)})
	}
	narrow := url.Values{}
	for name, value := range map[string]string{"type": string(kind), "since": day} {
		if value != "" {
			narrow.Set(name, value)
		}
	}
	s := page.Record{Lead: "Everything that happened to what this workspace has.", Links: file(v, "events", narrow), Table: t, Filter: []page.Field{
		types, {Name: "since", Label: "From", Type: "date", Value: day},
	}}
	if v.Environment != toll.Live {
		s.Links = append(s.Links, page.Link{Text: "Test clock", To: v.To("clock"), Plain: true})
	}
	if v.R.URL.Query().Get("cursor") == "" {
		if s.Live, err = liveOf(v); err != nil {
			return nil, v.Failed("page", err)
		}
	}
	return v.Record("Events", s)
}

// aboutCell names the record of an event, and leads to it where it has a page.
func aboutCell(v *page.Context, o toll.EventObject) page.Cell {
	c := page.Cell{ID: o.ID, Sub: strings.ReplaceAll(o.Kind, "_", " ")}
	area := map[string]string{"agent": "agents", "plan": "plans", "order": "orders", "api_key": "keys", "webhook": "webhooks"}[o.Kind]
	if area != "" {
		c.To = v.To(area, o.ID)
	}
	return c
}

func showEvent(v *page.Context) (page.View, error) {
	seq, err := strconv.ParseInt(v.Param("event"), 10, 64)
	if err != nil || seq < 1 {
		return nil, v.Missing("event")
	}
	e, err := deps(v).Events.BySequence(v.Ctx(), v.Person.Address, seq)
	if session.IsUnknown(err) {
		return nil, v.Missing("event")
	}
	if err != nil {
		return nil, v.Failed("event", err)
	}
	var data bytes.Buffer
	if json.Indent(&data, e.Data, "", "  ") != nil {
		data.Write(e.Data)
	}
	about := aboutCell(v, e.Object)
	return v.Record(string(e.Type), page.Record{
		Facts: []page.Fact{
			{"Id", page.Cell{ID: e.ID}}, {"Number", page.Cell{Number: strconv.FormatInt(e.Sequence, 10)}}, {"About", about}, {"Happened", page.At(e.CreatedAt.Time)},
		},
		Snippets: []page.Snippet{{"What webhooks and programs get", data.String()}},
	})
}

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
func noticePages() []page.Area {
	return []page.Area{{
		Path: "/notifications", Title: "Notifications", Template: "sheet", Group: page.GroupManage, Nav: "Notifications", Icon: "bell",
		Right: toll.RightRead, Persons: true, Get: askNotices, Post: chooseNotices,
	}}
}

// mailed returns the mail addresses that the visitor proved, with the ids of their credentials, and the webhook that sends mails to
// one of them, nil for none.
func mailed(v *page.Context) (addresses []page.Option, ids []toll.UUID, hook *toll.Webhook, err error) {
	all, err := deps(v).People.Credentials.List(v.Ctx(), v.Person.User.ID)
	if err != nil {
		return nil, nil, nil, v.Failed("list of credentials", err)
	}
	for _, c := range all {
		if c.Kind == people.Mail {
			ids = append(ids, c.ID)
			addresses = append(addresses, page.Option{Value: c.Name, Text: plain.Name(c.Name)})
		}
	}
	hook, to, err := deps(v).Events.MailWebhook(v.Ctx(), v.Person.Address, ids)
	if err != nil {
		return nil, nil, nil, v.Failed("webhook", err)
	}
	for i := range addresses {
		addresses[i].On = hook != nil && ids[i] == to
	}
	return addresses, ids, hook, nil
}

func askNotices(v *page.Context) (page.View, error) {
	s := page.Record{Lead: "What you are told by mail about this workspace. Each member chooses for themselves."}
	addresses, _, hook, err := mailed(v)
	switch {
	case err != nil:
		return nil, err
	case !deps(v).People.Notices.HasMail():
		s.Note = "This service sends no mail: its operator has set no mail server."
	case len(addresses) == 0:
		s.Note = "You have proved no mail address yet. Add one under Your account."
		s.Links = []page.Link{{Text: "Add a mail address", To: page.PathSecurity}}
	default:
		to := page.Field{Name: "to", Label: "Mail address", Options: addresses, Value: addresses[0].Value}
		tells := page.Field{Name: "tells", Label: "Tell me when", Type: "checks", Hint: "None chosen: no mails."}
		if i := slices.IndexFunc(addresses, func(o page.Option) bool { return o.On }); i >= 0 {
			to.Value = addresses[i].Value
		}
		for _, n := range notices {
			on := hook != nil && !slices.ContainsFunc(n.types, func(t toll.EventType) bool { return !slices.Contains(hook.Types, t) })
			tells.Options = append(tells.Options, page.Option{Value: n.name, Text: n.text, On: on})
		}
		s.Forms = []*page.Form{v.FormOf("choose", "Save", page.Group{Fields: []page.Field{to, tells}})}
		if hook != nil {
			s.Facts = []page.Fact{{"Mails", page.Cell{State: stateOfHook(hook), To: v.To("webhooks", hook.ID), Text: "What was sent"}}}
		}
	}
	return v.Record("Notifications", s)
}

func chooseNotices(v *page.Context) (page.View, error) {
	addresses, _, hook, err := mailed(v)
	if err != nil {
		return nil, err
	}
	return v.Finish(func() (out page.Outcome, err error) {
		out = page.Outcome{To: v.To("notifications"), Done: "Your choice is saved."}
		types := []toll.EventType{}
		for _, n := range notices {
			if slices.Contains(v.Form["tells"], n.name) {
				types = append(types, n.types...)
			}
		}
		to := v.Text("to")
		moves := hook != nil && !slices.ContainsFunc(addresses, func(o page.Option) bool { return o.On && o.Value == to })
		if len(types) > 0 && (hook == nil || moves) {
			// The new one comes first: of a refusal nothing is left.
			_, err = v.API.CreateWebhook(v.Acting(), client.WebhookParams{URL: "mailto:" + to, Types: types, Description: "Notifications"})
		} else if len(types) > 0 {
			change := client.WebhookUpdate{Types: toll.SetTo(types), Status: toll.SetTo(toll.WebhookActive)}
			_, err = v.API.UpdateWebhook(v.Acting(), hook.ID, change)
		}
		if err == nil && hook != nil && (moves || len(types) == 0) {
			err = v.API.DeleteWebhook(v.Acting(), hook.ID)
		}
		return out, err
	})
}
