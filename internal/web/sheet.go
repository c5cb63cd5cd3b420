package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// sheet is a page that is made of parts alone: a list, a record with its acts, or a form. It draws
// the members that are set, in their order.
type sheet struct {
	Lead   string
	Done   string  // what the last form did
	Secret *secret // shown once
	Tasks  []task
	Links  []link    // at the top: pages that begin something, and files
	Range  []segment // of the times that the figures are of
	Stats  []stat
	Charts []*chart
	Live   live    // zero: the table does not follow what happens
	Filter []field // of Table, in the query string
	Table  *table
	Facts  []fact
	Bars   []bar
	Steps  []step
	Note   string
	Acts   []dialog
	Forms  []*form
	Parts  []part

	Snippets []snippet
}

// secret is a value that a page shows once.
type secret struct{ Label, Text string }

// bar is how much of a limit is used.
type bar struct {
	Label      string
	Value, Max int64
	Text       string
}

// link is a button that leads to another page.
type link struct {
	Text, To string
	Plain    bool   // of less weight
	Menu     []link // what it opens in place of To
}

// formOf returns a form of this page. One that was refused has what was typed, with what is wrong.
func (v *visit) formOf(act, button string, groups ...group) *form {
	f := v.newForm(act, button, groups...)
	if v.refusal != nil && v.form.Get("act") == act {
		v.fault = f.fill(v.form).refuse(v.refusal)
	}
	return f
}

// dialogOf returns a form of this page that opens above it.
func (v *visit) dialogOf(act, button, text string, fields ...field) dialog {
	f := v.formOf(act, button, group{Fields: fields})
	return dialog{
		ID: "ask-" + act, Open: button, Title: button, Text: text, Action: f.Action, Ticket: f.Ticket,
		Act: act, Fields: f.Groups[0].Fields, Button: button,
	}
}

// dangerOf is dialogOf for what cannot be undone.
func (v *visit) dangerOf(act, button, text string, fields ...field) dialog {
	d := v.dialogOf(act, button, text, fields...)
	d.Danger = true
	return d
}

// again shows the page of a form once more, with what is wrong with it. Faults of the service are
// answered as such.
func (v *visit) again(err error) {
	e := toll.AsError(err)
	v.status = e.HTTPStatus()
	if v.status >= http.StatusInternalServerError {
		v.fail(err)
		return
	}
	if e.RetryAfterSecs > 0 {
		v.rw.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	}
	v.fault, v.refusal = strings.TrimSpace(e.Text()+" "+e.Hint), err
	v.area.Get(v)
}

// outcome is what came of a form. The page that follows it says so once.
type outcome struct {
	To     string  `json:"to"` // path of that page
	Done   string  `json:"done,omitzero"`
	Secret *secret `json:"secret,omitzero"`
	Who    string  `json:"who,omitzero"` // whose it is
}

// who names who is signed in, and where.
func (v *visit) who() string {
	return v.person.Address.Lower() + " " + v.person.UserID.String() + " " + v.person.KeyID.String()
}

// finish does what a form asks for, once however often it is sent, and leads to the page of the
// outcome. A refusal shows the form again.
func (v *visit) finish(act func() (outcome, error)) {
	ticket := v.form.Get("ticket")
	text, err := v.w.once(v.ctx(), ticket, func() (string, error) {
		o, err := act()
		if err != nil {
			return "", err
		}
		o.Who = v.who()
		text, err := json.Marshal(o)
		return string(text), err
	})
	if errors.Is(err, errAnswered) {
		v.refuseNext(http.StatusConflict, "This form was sent before, and what came of it is not known.", "Open the list to see what is there.")
		return
	}
	if err != nil {
		v.again(err)
		return
	}
	var o outcome
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		v.fail(err)
		return
	}
	if o.Done == "" && o.Secret == nil {
		v.redirect(http.StatusSeeOther, o.To)
		return
	}
	at, query, _ := strings.Cut(o.To, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		v.fail(err)
		return
	}
	q.Set("form", ticket)
	v.redirect(http.StatusSeeOther, at+"?"+q.Encode())
}

// outcome returns what came of the form that led here, and takes it away: a secret is shown once.
func (v *visit) outcome() (outcome, error) {
	ticket := v.r.URL.Query().Get("form")
	if ticket == "" || v.r.Method != http.MethodGet {
		return outcome{}, nil
	}
	form := formSum(ticket)
	sealed, err := store.FormAnswer(v.ctx(), v.w.Store, form)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(sealed) == 0 {
		return outcome{}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	text, err := v.w.Open(sealed, AnswerOf(form))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil || o.Who != v.who() || o.Done == "" && o.Secret == nil {
		return outcome{}, err
	}
	kept, err := json.Marshal(outcome{To: o.To, Who: o.Who})
	if err != nil {
		return outcome{}, err
	}
	kept, err = v.w.Seal(kept, AnswerOf(form))
	if err != nil {
		return outcome{}, err
	}
	var mine bool
	err = v.w.Store.Tx(v.ctx(), func(tx *store.Tx) (err error) {
		mine, err = store.SwapFormAnswer(v.ctx(), tx, form, sealed, kept)
		return err
	})
	if err != nil || !mine {
		return outcome{}, err
	}
	return o, nil
}

// sheet shows a page of parts, with what came of the form that led here.
func (v *visit) sheet(title string, s sheet) {
	o, err := v.outcome()
	if err != nil {
		v.fail(err)
		return
	}
	s.Done, s.Secret = cmp.Or(s.Done, o.Done), cmp.Or(s.Secret, o.Secret)
	s.Filter = append(slices.Clone(s.Filter), sortField(v, s.Table)...)
	if columns(v, &s) {
		return
	}
	s.Acts = slices.DeleteFunc(s.Acts, func(d dialog) bool { return d.ID == "" })
	v.draw(title, s)
}
