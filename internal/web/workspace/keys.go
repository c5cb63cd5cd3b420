package workspace

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

func listKeys(c *page.Context) (page.View, error) {
	keys, err := page.ListOf[toll.APIKey](c, list.Keys, nil, page.NameSorts...)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	of := list.Keys.Show("name", "prefix", "status", "rights", "lastUsedAt", "expiresAt")
	t := page.TableOf(c, of, "API key", keys, func(k toll.APIKey, cell page.Cells) {
		cell["name"].To, cell["prefix"].Text, cell["rights"].Text = c.To("keys", k.ID.String()), shownKey(k), rightWords(k.Rights)
	})
	t.Empty = &page.Empty{
		Icon: "key-round", Title: "No API keys yet", Text: "An API key lets your program use this workspace with the rights that you choose.",
		To: "", Button: "", Command: "toll keys create --help",
	}
	s := page.Record{Lead: "API keys let your programs use this workspace.", Table: t}
	if c.Person.Rights.Has(toll.RightKeys) {
		s.Begin("Create API key", c.To("keys", "new"))
		t.Empty.To, t.Empty.Button = c.To("keys", "new"), "Create API key"
	}
	return c.Record("API keys", s)
}

// nameOfKey returns the name of a key.
func nameOfKey(k toll.APIKey) string {
	if k.Name == nil {
		return page.NameOf("")
	}
	return page.NameOf(*k.Name)
}

// shownKey is what pages show of a key: its beginning and its end. The prefix of a short key ends with an underscore, not a colon.
func shownKey(k toll.APIKey) string {
	if strings.HasSuffix(k.Prefix, "_") {
		return k.Prefix + "…" + k.Tail
	}
	return k.Prefix + ":…" + k.Tail
}

func rightWords(r toll.Rights) string {
	if len(r) == len(toll.AllRights()) {
		return "all"
	}
	return strings.ReplaceAll(r.String(), " ", ", ")
}

// keyWhy explains why a person must confirm a credential before creating a key.
const keyWhy = "Before you create or rotate an API key, confirm that it is you. The confirmation is valid for ten minutes."

// lives are the lifetimes that a key can have, in seconds.
var lives = []page.Option{
	{Value: "", Text: "Never"}, {Value: "86400", Text: "In a day"}, {Value: "604800", Text: "In a week"},
	{Value: "2592000", Text: "In 30 days"}, {Value: "7776000", Text: "In 90 days"}, {Value: "31536000", Text: "In a year"},
}

// rightHints say what each right lets a program do.
var rightHints = map[toll.Right]string{
	toll.RightRead:   "Read everything in this workspace.",
	toll.RightSell:   "Accept payments for your agents: verify and settle payments, and release held credits.",
	toll.RightSpend:  "Buy plans, create access tokens, and use payment methods.",
	toll.RightManage: "Manage agents, plans, and webhooks, and mint credits.",
	toll.RightMoney:  "Refund orders, take back credits, and export orders.",
	toll.RightKeys:   "Create and revoke API keys.",
}

// keyForms returns the forms of a key, the default of the service first.
func keyForms(a *auth.Auth) []page.Option {
	forms := []page.Option{
		{Value: string(toll.KeyShort), Text: "Short, such as " + a.Environment().ShortKeyPrefix() + "…"},
		{Value: string(toll.KeyLong), Text: "Long, for programs that read the workspace from the key"},
	}
	if a.KeyForm() == toll.KeyLong {
		slices.Reverse(forms)
	}
	return forms
}

func (w *pages) askKey(c *page.Context) (page.View, error) {
	if err := page.NeedProof(c, keyWhy); err != nil {
		return nil, err
	}
	rights := page.Field{Name: "rights", Label: "Rights", Type: "checks", Hint: "Select only the rights that the program needs."}
	for _, r := range c.Person.Gives() {
		rights.Options = append(rights.Options, page.Option{Value: string(r), Text: string(r), Hint: rightHints[r], On: r == toll.RightRead})
	}
	f := c.FormOf("make", "Create API key", page.Group{Fields: []page.Field{
		{Name: "name", Label: "Name", Max: 100, Hint: "The program that will use the key."}, rights,
		{Name: "ends", Label: "Expires", Options: lives, Members: []string{"expiresInSecs"}}, {Name: "form", Label: "Form", Options: keyForms(w.Auth)},
	}})
	f.Cancel = c.To("keys")
	return c.Record("Create API key", page.Record{Lead: "You can see the key only once.", Forms: []*page.Form{f}})
}

func makeKey(c *page.Context) (page.View, error) {
	if err := page.NeedProof(c, keyWhy); err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		life, err := seconds(c, "ends", lives)
		if err != nil {
			return page.Outcome{}, err
		}
		rights, err := toll.ParseRights(c.Form["rights"])
		if err != nil {
			return page.Outcome{}, err
		}
		k, err := c.API.CreateKey(c.Acting(), client.KeyParams{Name: c.Text("name"), ExpiresIn: life, Form: toll.KeyForm(c.Form.Get("form")), Rights: rights})
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{To: c.To("keys", k.ID.String()), Done: "API key created.", Secret: &page.Secret{Label: "API key", Text: k.Key}}, nil
	})
}

// seconds reads a choice of seconds, "" for none.
func seconds(c *page.Context, name string, of []page.Option) (time.Duration, error) {
	text := c.Form.Get(name)
	for _, o := range of {
		if o.Value == text && text == "" {
			return 0, nil
		}
		if o.Value == text {
			return time.ParseDuration(text + "s")
		}
	}
	return 0, page.OneFault(name, "must be one of the options")
}

// key returns the API key of the page.
func key(c *page.Context) (k *toll.APIKey, err error) {
	id, err := toll.ParseHash(c.Param("key"))
	if err == nil {
		k, err = c.API.Key(c.Acting(), id)
	}
	if err != nil {
		return nil, c.Failed("API key", err)
	}
	return k, nil
}

// overlaps are the times for which a rotated key keeps working beside its replacement, in seconds.
var overlaps = []page.Option{
	{Value: "86400", Text: "For a day"}, {Value: "0", Text: "Not at all"}, {Value: "3600", Text: "For an hour"},
	{Value: "604800", Text: "For a week"}, {Value: "2592000", Text: "For 30 days"},
}

func (w *pages) showKey(c *page.Context) (page.View, error) {
	k, err := key(c)
	if err != nil {
		return nil, err
	}
	versions, err := c.API.Versions(c.Acting())
	made, err2 := w.Auth.KeysOf(c.Ctx(), k.ID)
	if err := errors.Join(err, err2); err != nil {
		return nil, c.Failed("API key", err)
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: k.ID.String()}}, {Label: "Key", Cell: page.Cell{Text: shownKey(*k)}}, {Label: "Status", Cell: page.Cell{State: page.StateOf(k.Status)}},
		{Label: "Rights", Cell: page.Cell{Text: rightWords(k.Rights)}}, {Label: "API version", Cell: page.Cell{Text: k.Version, Sub: versionNote(k.Version, versions)}},
		{Label: "Created", Cell: page.Cell{At: k.CreatedAt.Time, Sub: w.makerOf(c, *k)}}, {Label: "Last used", Cell: page.AtOr(k.LastUsedAt, "never")},
		{Label: "Expires", Cell: page.AtOr(k.ExpiresAt, "never")},
	}}
	s.Links = []page.Link{{Text: "Recent calls", To: c.To("keys", k.ID.String(), "calls"), Plain: true}}
	if news := w.Changes(k.Version); len(news) > 0 {
		t := &page.Table{Caption: "API changes since " + k.Version, Head: []page.Column{{Text: "Version"}, {Text: "Change"}}}
		for _, change := range news {
			t.Rows = append(t.Rows, []page.Cell{{Text: change.Since}, {Sub: change.Summary}})
		}
		s.Parts = []page.Part{{Title: "Changes in newer API versions", Table: t}}
	}
	if len(made) > 0 {
		t := &page.Table{Caption: "API keys created with this key", Head: []page.Column{{Text: "Name"}, {Text: "Status"}, {Text: "Rights"}, {Text: "Created"}}}
		for _, child := range made {
			t.Rows = append(t.Rows, []page.Cell{
				{Text: nameOfKey(child), To: c.To("keys", child.ID.String())}, {State: page.StateOf(child.Status)},
				{Text: rightWords(child.Rights)}, {At: child.CreatedAt.Time},
			})
		}
		s.Parts = append(s.Parts, page.Part{Title: "API keys created with this key", Table: t})
	}
	if k.Status == toll.StatusActive && c.Person.Rights.Has(toll.RightKeys) && c.Person.MayManage(*k) == nil {
		name := ""
		if k.Name != nil {
			name = *k.Name
		}
		s.Acts = []page.Dialog{
			c.DialogOf("change", "Edit", "", page.Field{Name: "name", Label: "Name", Value: name, Max: 100}, versionField(k.Version, versions)),
			c.DialogOf("rotate", "Rotate", "Replaces this key with a new key that has the same name, rights, and expiry.",
				page.Field{Name: "overlap", Label: "Keep the old key active", Options: overlaps, Members: []string{"overlapSecs"}}),
			c.DangerOf("end", "Revoke key", "Programs that use this key lose access immediately. The API keys, access tokens, and app access that this key created are revoked too.",
				page.Field{Name: "keep", Label: "Keep the API keys and app access that this key created, and transfer them to me", Type: "checkbox"}),
		}
	}
	return c.Record(nameOfKey(*k), s)
}

// Change is one change of the API, which a key with an older version does not see.
type Change struct{ Since, Summary string }

// versionNote says what the pin of a key means beside the current version.
func versionNote(pin string, v *client.Versions) string {
	if pin == v.Current {
		return "current"
	}
	return v.Current + " is current"
}

func versionField(pin string, v *client.Versions) page.Field {
	f := page.Field{Name: "version", Label: "API version", Value: pin, Hint: "Responses keep the format of this version."}
	all := append([]string{v.Floor}, v.GatedVersions...)
	for _, word := range append(all, pin, v.Current) {
		if !page.HasOption(f.Options, word) {
			f.Options = append(f.Options, page.Option{Value: word, Text: word})
		}
	}
	return f
}

// makerOf describes the creator of a key.
func (w *pages) makerOf(c *page.Context, k toll.APIKey) string {
	switch k.MadeBy {
	case toll.MadeLocally:
		return "by the operator"
	case toll.MadeByKey:
		return "by another API key"
	case toll.MadeByGrant:
		return "by a connected app"
	}
	var id toll.UUID
	if id.UnmarshalText([]byte(k.UserID)) != nil {
		return ""
	}
	u, err := w.People.User(c.Ctx(), id)
	if err != nil {
		return "by a person"
	}
	return "by " + cmp.Or(plain.Name(u.Name), "a person")
}

func changeKey(c *page.Context) (page.View, error) {
	k, err := key(c)
	if err == nil && c.Form.Get("act") == "rotate" {
		err = page.NeedProof(c, keyWhy)
	}
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		out := page.Outcome{To: c.To("keys", k.ID.String())}
		switch c.Form.Get("act") {
		case "change":
			name, version := c.Text("name"), c.Form.Get("version")
			out.Done = "API key saved."
			_, err := c.API.UpdateKey(c.Acting(), k.ID, &name, &version)
			return out, err
		case "rotate":
			overlap, err := seconds(c, "overlap", overlaps)
			if err != nil {
				return out, err
			}
			n, err := c.API.RotateKey(c.Acting(), k.ID, overlap)
			if err != nil {
				return out, err
			}
			out.To, out.Done = c.To("keys", n.ID.String()), "API key rotated. The old key works until "+page.Date(n.PreviousEndsAt.Time)+"."
			out.Secret = &page.Secret{Label: "New API key", Text: n.Key}
			return out, nil
		case "end":
			end := c.API.RevokeKey
			if c.Form.Get("keep") != "" {
				end = c.API.RevokeKeyOnly
			}
			ended, err := end(c.Acting(), k.ID)
			if err != nil {
				return out, err
			}
			out.Done = "API key revoked." + page.EndedWith(ended.Ended)
			return out, nil
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
