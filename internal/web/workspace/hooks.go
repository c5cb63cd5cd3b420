package workspace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

func listHooks(c *page.Context) (page.View, error) {
	hooks, err := page.ListOf[*toll.Webhook](c, list.Webhooks, nil)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	t := page.TableOf(c, list.Webhooks.Show("url", "status", "types", "createdAt"), "webhook", hooks, func(h *toll.Webhook, cell page.Cells) {
		cell["url"].To, cell["url"].Sub = c.To("webhooks", h.ID), descriptionOf(h)
		cell["status"].State, cell["types"].Text = stateOfHook(h), typesOf(h)
	})
	t.Empty = &page.Empty{
		Icon: "webhook", Title: "No webhooks yet", Text: "A webhook notifies your server of events in this workspace, such as orders, settlements, and refunds.",
		To: c.To("webhooks", "new"), Button: "Create webhook", Command: "toll webhooks create --help",
	}
	return c.Record("Webhooks", page.Record{
		Lead: "Signed messages that notify your servers of events in this workspace.", Table: t, Links: mayBegin(c, "Create webhook", "webhooks", "new"),
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
		return &page.State{Text: "paused", Tone: "quiet"}
	case h.FailingSince != nil:
		return &page.State{Text: "failing", Tone: "bad"}
	}
	return &page.State{Text: "active", Tone: "good"}
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
	types := page.Field{Name: "types", Label: "Events", Type: "checks", Hint: "If you select no events, the webhook receives all events, including event types added later."}
	for _, t := range toll.EventTypes() {
		types.Options = append(types.Options, page.Option{Value: string(t), Text: string(t), On: slices.Contains(h.Types, t)})
	}
	return []page.Group{{Fields: []page.Field{
		{Name: "url", Label: "URL", Value: h.URL, Type: "url", Required: true, Hint: "An https URL that answers with 2xx within 10 seconds."},
		{Name: "description", Label: "Description", Value: descriptionOf(h)}, types,
	}}}
}

func askHook(c *page.Context) (page.View, error) {
	f := c.FormOf("make", "Create webhook", hookFields(&toll.Webhook{})...)
	f.Cancel = c.To("webhooks")
	return c.Record("Create webhook", page.Record{Lead: "You can see the signing secret only once, after you create the webhook.", Forms: []*page.Form{f}})
}

// eventTypes are the events that a form names.
func eventTypes(c *page.Context) []toll.EventType {
	out := []toll.EventType{}
	for _, t := range c.Form["types"] {
		out = append(out, toll.EventType(t))
	}
	return out
}

func makeHook(c *page.Context) (page.View, error) {
	return c.Finish(func() (page.Outcome, error) {
		made, err := c.API.CreateWebhook(c.Acting(), client.WebhookParams{
			URL: c.Text("url"), Description: c.Text("description"), Types: eventTypes(c),
		})
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{
			To: c.To("webhooks", made.ID), Done: "Webhook created.", Secret: &page.Secret{Label: "Signing secret", Text: made.Secret},
		}, nil
	})
}

// hook returns the webhook of the page.
func hook(c *page.Context) (*toll.Webhook, error) {
	h, err := c.API.Webhook(c.Acting(), c.Param("webhook"))
	if err != nil && toll.AsError(err).HTTPStatus() == http.StatusBadRequest {
		return nil, c.Missing("webhook")
	}
	if err != nil {
		return nil, c.Failed("webhook", err)
	}
	return h, nil
}

func askHookEdit(c *page.Context) (page.View, error) {
	h, err := hook(c)
	if err != nil {
		return nil, err
	}
	f := c.FormOf("edit", "Save", hookFields(h)...)
	f.Cancel = c.To("webhooks", h.ID)
	return c.Record("Edit webhook", page.Record{Forms: []*page.Form{f}})
}

func editHook(c *page.Context) (page.View, error) {
	h, err := hook(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		_, err := c.API.UpdateWebhook(c.Acting(), h.ID, client.WebhookUpdate{
			URL: toll.SetTo(c.Text("url")), Description: toll.SetTo(c.Text("description")), Types: toll.SetTo(eventTypes(c)),
		})
		return page.Outcome{To: c.To("webhooks", h.ID), Done: "Webhook saved."}, err
	})
}

func actOnHook(c *page.Context) (page.View, error) {
	h, err := hook(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (out page.Outcome, err error) {
		out.To = c.To("webhooks", h.ID)
		status := func(s toll.WebhookStatus) error {
			_, err := c.API.UpdateWebhook(c.Acting(), h.ID, client.WebhookUpdate{Status: toll.SetTo(s)})
			return err
		}
		switch c.Form.Get("act") {
		case "test":
			out.Done, err = "Test event queued.", c.API.TestWebhook(c.Acting(), h.ID)
		case "pause":
			out.Done, err = "Webhook paused. Events since the pause are sent when you resume it.", status(toll.WebhookPaused)
		case "resume":
			out.Done, err = "Webhook resumed.", status(toll.WebhookActive)
		case "rotate":
			made, err := c.API.RotateWebhook(c.Acting(), h.ID)
			if err != nil {
				return out, err
			}
			out.Done, out.Secret = "Secret rotated. For 24 hours, messages are signed with both secrets.", &page.Secret{Label: "New signing secret", Text: made.Secret}
		case "delete":
			out.To, out.Done, err = c.To("webhooks"), "Webhook deleted.", c.API.DeleteWebhook(c.Acting(), h.ID)
		case "resend":
			out.Done, err = "The message is queued again.", c.API.ResendDelivery(c.Acting(), h.ID, c.Form.Get("delivery"))
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func showHook(c *page.Context) (page.View, error) {
	h, err := hook(c)
	if err != nil {
		return nil, err
	}
	status, q := c.R.URL.Query().Get("status"), url.Values{}
	if status != "" {
		q.Set("status", status)
	}
	deliveries, err := page.ListOf[*toll.WebhookDelivery](c, list.Deliveries.Under(h.ID), q)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	may := c.Person.Rights.Has(toll.RightManage)
	of := list.Deliveries.And(list.Time("lastAttemptAt", "Last attempt"), list.Text("again", "Action")).
		Show("type", "status", "attempts", "lastStatus", "lastAttemptAt", "nextAttemptAt", "again")
	t := page.TableOf(c, of, "message", deliveries, func(d *toll.WebhookDelivery, cell page.Cells) {
		*cell["type"] = page.Cell{Text: string(d.Type), Sub: "test"}
		if d.Sequence > 0 {
			number := strconv.FormatInt(d.Sequence, 10)
			cell["type"].To, cell["type"].Sub = c.To("events", number), "sequence number "+number
		}
		cell["lastStatus"].Text = cmp.Or(cell["lastStatus"].Text, "none")
		if d.LastError != nil {
			cell["lastStatus"].Sub = plain.Name(*d.LastError)
		}
		*cell["nextAttemptAt"] = page.AtOr(d.NextAttemptAt, "none")
		if may && d.Status != toll.DeliveryPending {
			cell["again"].Form = &page.Form{
				Action: c.R.URL.Path, Ticket: c.Ticket(c.R.URL.Path), Act: "resend", Button: "Send again",
				Hidden: []page.Option{{Value: "delivery", Text: d.ID}},
			}
		}
	})
	t.Empty = &page.Empty{Icon: "send", Title: "No messages yet", Text: "Events sent to this webhook appear here with the response of your server."}
	facts := []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: h.ID}}, {Label: "URL", Cell: page.Cell{Text: plain.Name(h.URL)}}, {Label: "Status", Cell: page.Cell{State: stateOfHook(h)}}, {Label: "Events", Cell: page.Cell{Text: allTypesOf(h)}},
		{Label: "Created", Cell: page.At(h.CreatedAt.Time)}, {Label: "Updated", Cell: page.At(h.UpdatedAt.Time)},
	}
	if h.FailingSince != nil {
		facts = slices.Insert(facts, 3, page.Fact{Label: "Failing since", Cell: page.At(h.FailingSince.Time)})
	}
	s := page.Record{
		Lead: descriptionOf(h), Links: mayBegin(c, "Edit", "webhooks", h.ID, "edit"), Facts: facts, Table: t,
		Filter: []page.Field{{Name: "status", Label: "Status", Value: string(status), Options: []page.Option{
			{Text: "All"}, {Value: "pending", Text: "pending"}, {Value: "succeeded", Text: "succeeded"}, {Value: "failed", Text: "failed"},
		}}},
	}
	if may {
		s.Acts = []page.Dialog{c.DialogOf("test", "Send test event", "Sends a message of type webhook.test to the URL.")}
		if h.Status == toll.WebhookPaused {
			s.Acts = append(s.Acts, c.DialogOf("resume", "Resume", "All events since the pause are sent."))
		} else {
			s.Acts = append(s.Acts, c.DialogOf("pause", "Pause", "Nothing is sent until you resume the webhook. Then all events since the pause are sent."))
		}
		if !strings.HasPrefix(h.URL, "mailto:") { // nothing is signed
			s.Acts = append(s.Acts,
				c.DialogOf("rotate", "Rotate secret", "For 24 hours, messages are signed with both secrets. You can see the new secret only once."))
		}
		s.Acts = append(s.Acts, c.DangerOf("delete", "Delete", "Queued messages are not sent."))
	}
	return c.Record("Webhook", s)
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

func (w *pages) listEvents(c *page.Context) (page.View, error) {
	kind, q := c.R.URL.Query().Get("type"), url.Values{}
	if kind != "" {
		q.Set("type", kind)
	}
	if kind != "" && !slices.Contains(toll.EventTypes(), toll.EventType(kind)) {
		return nil, c.Missing("event type")
	}
	day := c.R.URL.Query().Get("since")
	if day != "" {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			return nil, c.RefuseNext(http.StatusNotFound, "The date must have the form YYYY-MM-DD.", "")
		}
		q.Set("since", day+"T00:00:00.000Z")
	}
	events, err := page.ListOf[*toll.Event](c, list.Events, q)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	t := page.TableOf(c, list.Events.Show("sequence", "type", "object.id", "createdAt"), "event", events, func(e *toll.Event, cell page.Cells) {
		*cell["type"] = page.Cell{Text: string(e.Type), To: c.To("events", strconv.FormatInt(e.Sequence, 10))}
		*cell["object.id"] = aboutCell(c, e.Object)
	})
	t.Empty = &page.Empty{
		Icon: "list", Title: "No events yet", Text: "Each change to a record of this workspace appears here as an event. Your programs can read events, and webhooks send them.",
		To: "", Button: "", Command: "toll events list --follow",
	}
	types := page.Field{Name: "type", Label: "Type", Value: kind, Options: []page.Option{{Text: "All types"}}}
	for _, t := range toll.EventTypes() {
		types.Options = append(types.Options, page.Option{Value: string(t), Text: string(t)})
	}
	narrow := url.Values{}
	for name, value := range map[string]string{"type": string(kind), "since": day} {
		if value != "" {
			narrow.Set(name, value)
		}
	}
	s := page.Record{Lead: "All changes to the records of this workspace.", Links: file(c, "events", narrow), Table: t, Filter: []page.Field{
		types, {Name: "since", Label: "From", Type: "date", Value: day},
	}}
	if c.Environment != toll.Live {
		s.Links = append(s.Links, page.Link{Text: "Test clock", To: c.To("clock"), Plain: true})
	}
	if c.R.URL.Query().Get("cursor") == "" {
		if s.Live, err = w.liveOf(c); err != nil {
			return nil, c.Failed("page", err)
		}
	}
	return c.Record("Events", s)
}

// aboutCell names the record of an event, and leads to it where it has a page.
func aboutCell(c *page.Context, o toll.EventObject) page.Cell {
	cell := page.Cell{ID: o.ID, Sub: strings.ReplaceAll(o.Kind, "_", " ")}
	area := map[string]string{"agent": "agents", "plan": "plans", "order": "orders", "api_key": "keys", "webhook": "webhooks"}[o.Kind]
	if area != "" {
		cell.To = c.To(area, o.ID)
	}
	return cell
}

func (w *pages) showEvent(c *page.Context) (page.View, error) {
	seq, err := strconv.ParseInt(c.Param("event"), 10, 64)
	if err != nil || seq < 1 {
		return nil, c.Missing("event")
	}
	e, err := w.Events.BySequence(c.Ctx(), c.Person.Address, seq)
	if session.IsUnknown(err) {
		return nil, c.Missing("event")
	}
	if err != nil {
		return nil, c.Failed("event", err)
	}
	var data bytes.Buffer
	if json.Indent(&data, e.Data, "", "  ") != nil {
		data.Write(e.Data)
	}
	about := aboutCell(c, e.Object)
	return c.Record(string(e.Type), page.Record{
		Facts: []page.Fact{
			{Label: "ID", Cell: page.Cell{ID: e.ID}}, {Label: "Sequence", Cell: page.Cell{Number: strconv.FormatInt(e.Sequence, 10)}}, {Label: "Object", Cell: about}, {Label: "Created", Cell: page.At(e.CreatedAt.Time)},
		},
		Snippets: []page.Snippet{{Name: "Payload", Text: data.String()}},
	})
}

// notices are the notifications that a person can get by mail: the checkboxes of the page, and the event types of each.
var notices = []struct {
	name, text string
	types      []toll.EventType
}{
	{"low", "Credits are low", []toll.EventType{toll.EventCreditsLow}},
	{"hooks", "A webhook is paused after failures", []toll.EventType{toll.EventWebhookDisabled}},
	{"orders", "An order fails, or its payment is disputed", []toll.EventType{
		toll.EventOrderFailed, toll.EventOrderDisputed, toll.EventOrderDisputeClosed,
	}},
	{"limits", "A delegation is used up, frozen, or expired", []toll.EventType{
		toll.EventDelegationExhausted, toll.EventDelegationFrozen, toll.EventDelegationExpired,
	}},
	{"keys", "An API key is created, or the wallet key is exported", []toll.EventType{toll.EventAPIKeyCreated, toll.EventWalletExported}},
}

// mailed returns the mail addresses that the visitor proved, with the ids of their credentials, and the webhook that sends mails to
// one of them, nil for none.
func (w *pages) mailed(c *page.Context) (addresses []page.Option, ids []toll.UUID, hook *toll.Webhook, err error) {
	all, err := w.People.Credentials.List(c.Ctx(), c.Person.User.ID)
	if err != nil {
		return nil, nil, nil, c.Failed("list of credentials", err)
	}
	for _, credential := range all {
		if credential.Kind == people.Mail {
			ids = append(ids, credential.ID)
			addresses = append(addresses, page.Option{Value: credential.Name, Text: plain.Name(credential.Name)})
		}
	}
	hook, to, err := w.Events.MailWebhook(c.Ctx(), c.Person.Address, ids)
	if err != nil {
		return nil, nil, nil, c.Failed("webhook", err)
	}
	for i := range addresses {
		addresses[i].On = hook != nil && ids[i] == to
	}
	return addresses, ids, hook, nil
}

func (w *pages) askNotices(c *page.Context) (page.View, error) {
	s := page.Record{Lead: "Notifications about this workspace that you get by mail. Each member has their own settings."}
	addresses, _, hook, err := w.mailed(c)
	switch {
	case err != nil:
		return nil, err
	case !w.People.Notices.HasMail():
		s.Note = "This service cannot send mail because the operator has not configured a mail server."
	case len(addresses) == 0:
		s.Note = "You have no confirmed mail address yet. Add an address in your account."
		s.Links = []page.Link{{Text: "Add mail address", To: page.PathSecurity}}
	default:
		to := page.Field{Name: "to", Label: "Mail address", Options: addresses, Value: addresses[0].Value}
		tells := page.Field{Name: "tells", Label: "Notify me when", Type: "checks", Hint: "Clear all boxes to turn off notifications."}
		if i := slices.IndexFunc(addresses, func(o page.Option) bool { return o.On }); i >= 0 {
			to.Value = addresses[i].Value
		}
		for _, n := range notices {
			on := hook != nil && !slices.ContainsFunc(n.types, func(t toll.EventType) bool { return !slices.Contains(hook.Types, t) })
			tells.Options = append(tells.Options, page.Option{Value: n.name, Text: n.text, On: on})
		}
		s.Forms = []*page.Form{c.FormOf("choose", "Save", page.Group{Fields: []page.Field{to, tells}})}
		if hook != nil {
			s.Facts = []page.Fact{{Label: "Delivery", Cell: page.Cell{State: stateOfHook(hook), To: c.To("webhooks", hook.ID), Text: "Sent notifications"}}}
		}
	}
	return c.Record("Notifications", s)
}

func (w *pages) chooseNotices(c *page.Context) (page.View, error) {
	addresses, _, hook, err := w.mailed(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (out page.Outcome, err error) {
		out = page.Outcome{To: c.To("notifications"), Done: "Notifications saved."}
		types := []toll.EventType{}
		for _, n := range notices {
			if slices.Contains(c.Form["tells"], n.name) {
				types = append(types, n.types...)
			}
		}
		to := c.Text("to")
		moves := hook != nil && !slices.ContainsFunc(addresses, func(o page.Option) bool { return o.On && o.Value == to })
		if len(types) > 0 && (hook == nil || moves) {
			// Create the new webhook first: if the API rejects it, the old webhook stays.
			_, err = c.API.CreateWebhook(c.Acting(), client.WebhookParams{URL: "mailto:" + to, Types: types, Description: "Notifications"})
		} else if len(types) > 0 {
			change := client.WebhookUpdate{Types: toll.SetTo(types), Status: toll.SetTo(toll.WebhookActive)}
			_, err = c.API.UpdateWebhook(c.Acting(), hook.ID, change)
		}
		if err == nil && hook != nil && (moves || len(types) == 0) {
			err = c.API.DeleteWebhook(c.Acting(), hook.ID)
		}
		return out, err
	})
}

// liveWait is how long a page waits for news before it asks again: below the minute after which proxies cut idle connections.
const liveWait = 25 * time.Second

// live is GET /w/{workspace}/live?after=N. It answers with the length of the stream of events of the workspace as soon as that is
// above N, or after a time, as text. The page then reads itself again. It writes no session: what another request changed meanwhile
// would be lost, and a page that waits must not keep a session alive.
func (w *pages) live(c *page.Context) {
	c.W.Header().Set("Cache-Control", "no-store")
	last, err := w.wait(c)
	if err != nil {
		e := toll.AsError(err)
		http.Error(c.W, e.Text(), e.HTTPStatus())
		return
	}
	c.W.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = c.W.Write([]byte(strconv.FormatInt(last, 10))) // the browser may have closed the connection
}

func (w *pages) wait(c *page.Context) (int64, error) {
	after, err := strconv.ParseInt(c.R.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return 0, toll.Errorf(toll.CodeBadRequest, "The query parameter after must be a whole number.")
	}
	ctx, token, err := c.Sessions.Load(c.R)
	if err != nil {
		return 0, err
	}
	p, err := c.Sessions.Person(ctx, page.WorkspaceOf(c.R))
	switch {
	case errors.Is(err, session.ErrNotMember):
		return 0, &toll.Error{
			Code: toll.CodeForbidden, Status: http.StatusNotFound, Message: "This workspace does not exist, or you are not a member.",
		}
	case err != nil:
		return 0, err
	case p == nil || !p.Rights.Has(toll.RightRead):
		return 0, toll.NewError(toll.CodeNotAuthenticated)
	}
	return w.Events.Wait(ctx, p.Address, token, after, liveWait)
}
