package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/web/session"
)

// Record is a page that is made of parts alone: a list, a record with its acts, or a form. It draws
// the members that are set, in their order.
type Record struct {
	Lead   string
	Done   string    // what the last form did
	Secret *Secret   // shown once
	Call   []Snippet // command with the secret
	Tasks  []Task
	Links  []Link    // at the top: pages that begin something, and files
	Range  []Segment // of the times that the figures are of
	Stats  []Stat
	Charts []*Chart
	Live   Live    // zero: the table does not follow what happens
	Filter []Field // of Table, in the query string
	Table  *Table
	Facts  []Fact
	Bars   []Bar
	Steps  []Step
	Note   string
	Acts   []Dialog
	Forms  []*Form
	Parts  []Part

	Selling  []Snippet // take payments
	Snippets []Snippet
}

// Secret is a value that a page shows once.
type Secret struct{ Label, Text string }

// Bar is how much of a limit is used.
type Bar struct {
	Label      string
	Value, Max int64
	Text       string
}

// Link is a button that leads to another page.
type Link struct {
	Text, To string
	Plain    bool   // of less weight
	Menu     []Link // what it opens in place of To
}

// FormOf returns a form of this page. One that was refused has what was typed, with what is wrong.
func (c *Context) FormOf(act, button string, groups ...Group) *Form {
	f := c.newForm(act, button, groups...)
	if c.Refusal != nil && c.Form.Get("act") == act {
		c.Fault = f.Fill(c.Form).Refuse(c.Refusal)
	}
	return f
}

// DialogOf returns a form of this page that opens above it.
func (c *Context) DialogOf(act, button, text string, fields ...Field) Dialog {
	f := c.FormOf(act, button, Group{Fields: fields})
	return Dialog{
		ID: "ask-" + act, Open: button, Title: button, Text: text, Action: f.Action, Ticket: f.Ticket,
		Act: act, Fields: f.Groups[0].Fields, Button: button,
	}
}

// DangerOf is dialogOf for what cannot be undone.
func (c *Context) DangerOf(act, button, text string, fields ...Field) Dialog {
	d := c.DialogOf(act, button, text, fields...)
	d.Danger = true
	return d
}

// retry shows the page of a form once more, with what is wrong with it. Faults of the service are answered as such.
func (c *Context) retry(err error) (View, error) {
	e := toll.AsError(err)
	c.Status = e.HTTPStatus()
	if c.Status >= http.StatusInternalServerError {
		return nil, err
	}
	if e.RetryAfterSecs > 0 {
		c.W.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	}
	c.Fault, c.Refusal = explained(e), err
	return c.Area.Get(c)
}

// Outcome is what came of a form. The page that follows it says so once.
type Outcome struct {
	To     string  `json:"to"` // path of that page
	Done   string  `json:"done,omitzero"`
	Secret *Secret `json:"secret,omitzero"`
	Also   *Secret `json:"also,omitzero"` // another one, for a page that shows two
	Who    string  `json:"who,omitzero"`  // whose it is
}

// who names who is signed in, and where.
func (c *Context) who() string {
	return c.Person.Address.Lower() + " " + c.Person.UserID.String() + " " + c.Person.KeyID.String()
}

// Finish does what a form asks for, once however often it is sent, and leads to the page of the outcome. A refusal shows the form again.
func (c *Context) Finish(act func() (Outcome, error)) (View, error) {
	return finish(c, c.Sessions.Once, act)
}

// Resume is [Context.Finish] for an act whose steps are all idempotent. If its outcome is unknown, the same form runs it again.
func Resume(c *Context, act func() (Outcome, error)) (View, error) {
	return finish(c, func(ctx context.Context, ticket string, act func() (string, error)) (string, error) {
		return session.Resume(ctx, c.Sessions, ticket, act)
	}, act)
}

func finish(
	c *Context, once func(ctx context.Context, ticket string, act func() (string, error)) (string, error), act func() (Outcome, error),
) (View, error) {
	ticket := c.Form.Get("ticket")
	text, err := once(c.Ctx(), ticket, func() (string, error) {
		o, err := act()
		if err != nil {
			return "", err
		}
		o.Who = c.who()
		text, err := json.Marshal(o)
		return string(text), err
	})
	if errors.Is(err, session.ErrAnswered) {
		return nil, c.RefuseNext(http.StatusConflict, "This form was already submitted, but the result is unknown.", "Check whether the change was made before you try again.")
	}
	if err != nil {
		return c.retry(err)
	}
	var o Outcome
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, err
	}
	if o.Done == "" && o.Secret == nil {
		return c.Redirect(http.StatusSeeOther, o.To)
	}
	at, query, _ := strings.Cut(o.To, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	q.Set("form", ticket)
	return c.Redirect(http.StatusSeeOther, at+"?"+q.Encode())
}

// Outcome returns the outcome of the form that led here, and deletes it: a secret is shown once.
func (c *Context) Outcome() (o Outcome, err error) {
	ticket := c.R.URL.Query().Get("form")
	if ticket == "" || c.R.Method != http.MethodGet {
		return Outcome{}, nil
	}
	taken, err := c.Sessions.Take(c.Ctx(), ticket, func(answer []byte) ([]byte, error) {
		if err := json.Unmarshal(answer, &o); err != nil || o.Who != c.who() || o.Done == "" && o.Secret == nil {
			return nil, err
		}
		return json.Marshal(Outcome{To: o.To, Who: o.Who})
	})
	if err != nil || !taken {
		return Outcome{}, err
	}
	return o, nil
}

// Record shows a page of parts, with what came of the form that led here.
func (c *Context) Record(title string, s Record) (View, error) {
	o, err := c.Outcome()
	if err != nil {
		return nil, err
	}
	s.Done, s.Secret = cmp.Or(s.Done, o.Done), cmp.Or(s.Secret, o.Secret)
	if o.Also != nil {
		s.Call = []Snippet{{Name: o.Also.Label, Text: o.Also.Text}}
	}
	s.Filter = append(slices.Clone(s.Filter), sortField(c, s.Table)...)
	if chosen := columns(c, &s); chosen != nil {
		return chosen, nil
	}
	s.Acts = slices.DeleteFunc(s.Acts, func(d Dialog) bool { return d.ID == "" })
	return c.Draw(title, s)
}

// Live says which part of a page follows what happens.
type Live struct {
	To    string // where the page waits for news
	After int64  // of the stream: what the page shows
}

// Begin adds the page that makes a record of the list.
func (s *Record) Begin(text, to string) {
	s.Links = append(s.Links, Link{Text: text, To: to})
	s.Table.Empty.To, s.Table.Empty.Button = to, text
}
