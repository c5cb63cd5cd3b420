package web

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// keyPages are the API keys of a workspace. A key cannot make keys on them: they are for people.
func keyPages() []areaPage {
	key := areaPage{
		Path: "/keys", Title: "API keys", Template: "sheet", Group: groupDevelop, Nav: "API keys", Icon: "key-round", Key: "k",
		Right: toll.RightRead, Persons: true, Get: listKeys,
	}
	one := areaPage{
		Path: "/keys/{key}", Template: "sheet", Under: "/keys", Right: toll.RightRead, Act: toll.RightKeys, Persons: true,
		Get: showKey, Post: changeKey,
	}
	made := areaPage{
		Path: "/keys/new", Title: "Make an API key", Template: "sheet", Under: "/keys", Right: toll.RightKeys, Persons: true,
		Get: askKey, Post: makeKey,
	}
	return []areaPage{key, one, made}
}

func listKeys(v *visit) {
	list, err := v.w.Auth.Keys(v.ctx(), v.person.Address, v.pageOf(nameSorts))
	if v.failed("part of the list", err) {
		return
	}
	t := keysTable(v, list.Items)
	t.Pager = v.pagerOf(list.Total, list.Next, "key")
	t.Empty = &empty{
		"key-round", "No API keys yet", "A key lets a program of yours use this workspace, with the rights that you choose.",
		"", "", "toll keys create --help",
	}
	s := sheet{Lead: "What programs of yours sign in with.", Table: t}
	if v.person.Rights.Has(toll.RightKeys) {
		s.begin("Make a key", v.to("keys", "new"))
	}
	v.sheet("API keys", s)
}

// begin adds the page that makes a record of the list.
func (s *sheet) begin(text, to string) {
	s.Links = append(s.Links, link{Text: text, To: to})
	s.Table.Empty.To, s.Table.Empty.Button = to, text
}

func keysTable(v *visit, keys []toll.APIKey) *table {
	t := &table{
		Caption: "API keys",
		Head:    []column{{Text: "Name"}, {Text: "Key"}, {Text: "State"}, {Text: "Rights"}, {Text: "Last used"}, {Text: "Ends"}},
	}
	for _, k := range keys {
		t.Rows = append(t.Rows, []cell{
			{Text: nameOfKey(k), To: v.to("keys", k.ID.String())}, {Text: shownKey(k)}, {State: stateOf(k.Status)},
			{Text: rightWords(k.Rights)}, atOr(k.LastUsedAt, "not yet"), atOr(k.ExpiresAt, "never"),
		})
	}
	return t
}

// nameOfKey is the name that somebody gave a key.
func nameOfKey(k toll.APIKey) string {
	if k.Name == nil {
		return nameOf("")
	}
	return nameOf(*k.Name)
}

// shownKey is what pages show of a key: its beginning and its end.
func shownKey(k toll.APIKey) string { return k.Prefix + ":…" + k.Tail }

func rightWords(r toll.Rights) string {
	if len(r) == len(toll.AllRights()) {
		return "all"
	}
	return strings.ReplaceAll(r.String(), " ", ", ")
}

// stateOf is the state of what ends.
func stateOf(s toll.PermissionStatus) *state {
	tone := "quiet"
	switch s {
	case toll.StatusActive:
		tone = "good"
	case toll.StatusPending:
		tone = "warn"
	case toll.StatusFrozen:
		tone = "bad"
	}
	return &state{strings.ToLower(string(s)), tone}
}

// keyWhy is what the page of a fresh proof says before a key is made.
const keyWhy = "A key gives a program access to this workspace. Prove first that it is you: the proof counts for ten minutes."

// lives are the ends that a key can have, by seconds.
var lives = []option{
	{Value: "", Text: "Never"}, {Value: "86400", Text: "In a day"}, {Value: "604800", Text: "In a week"},
	{Value: "2592000", Text: "In 30 days"}, {Value: "7776000", Text: "In 90 days"}, {Value: "31536000", Text: "In a year"},
}

// rightHints say what each right lets a program do.
var rightHints = map[toll.Right]string{
	toll.RightRead:   "Read everything of this workspace.",
	toll.RightSell:   "Take payments for your agents: verify, settle, release.",
	toll.RightSpend:  "Buy plans, make access tokens, use payment methods.",
	toll.RightManage: "Change agents, plans and webhooks; grant credits.",
	toll.RightMoney:  "Refund orders, take credits back, export orders.",
	toll.RightKeys:   "Make and end API keys.",
}

func askKey(v *visit) {
	if !hasProof(v, keyWhy) {
		return
	}
	rights := field{Name: "rights", Label: "Rights", Type: "checks", Hint: "Give as few as the program needs."}
	for _, r := range v.person.Gives() {
		rights.Options = append(rights.Options, option{Value: string(r), Text: string(r), Hint: rightHints[r], On: r == toll.RightRead})
	}
	f := v.formOf("make", "Make the key", group{Fields: []field{
		{Name: "name", Label: "Name", Max: 100, Hint: "Which program it is for."}, rights,
		{Name: "ends", Label: "Ends", Options: lives, Members: []string{"expiresInSecs"}},
	}})
	f.Cancel = v.to("keys")
	v.sheet("Make an API key", sheet{Lead: "The key is shown once, when it is made.", Forms: []*form{f}})
}

func makeKey(v *visit) {
	if !hasProof(v, keyWhy) {
		return
	}
	v.finish(func() (outcome, error) {
		life, err := seconds(v, "ends", lives)
		if err != nil {
			return outcome{}, err
		}
		rights, err := toll.ParseRights(v.form["rights"])
		if err != nil {
			return outcome{}, err
		}
		k, err := v.w.API.CreateKey(v.acting(), client.KeyParams{Name: v.text("name"), ExpiresIn: life, Rights: rights})
		if err != nil {
			return outcome{}, err
		}
		return outcome{To: v.to("keys", k.ID.String()), Done: "The key is made.", Secret: &secret{"The API key", k.Key}}, nil
	})
}

// seconds reads a choice of seconds, "" for none.
func seconds(v *visit, name string, of []option) (time.Duration, error) {
	text := v.form.Get(name)
	for _, o := range of {
		if o.Value == text && text == "" {
			return 0, nil
		}
		if o.Value == text {
			return time.ParseDuration(text + "s")
		}
	}
	return 0, oneFault(name, "must be one of the choices")
}

// key returns the key of the page, with its id. It has answered when ok is false.
func key(v *visit) (k toll.APIKey, ok bool) {
	id, err := toll.ParseHash(v.param("key"))
	if err == nil {
		k, err = v.w.Auth.Key(v.ctx(), v.person.Address, id)
	}
	if err != nil && toll.AsError(err).HTTPStatus() < 500 {
		v.missing("API key")
		return k, false
	}
	return k, !v.failed("API key", err)
}

// overlaps are how long a rotated key may work beside the new one, by seconds.
var overlaps = []option{
	{Value: "86400", Text: "For a day"}, {Value: "0", Text: "Not at all"}, {Value: "3600", Text: "For an hour"},
	{Value: "604800", Text: "For a week"}, {Value: "2592000", Text: "For 30 days"},
}

func showKey(v *visit) {
	k, ok := key(v)
	if !ok {
		return
	}
	versions, err := v.w.API.Versions(v.acting())
	made, err2 := store.KeysOfParent(v.ctx(), v.w.Store, k.ID, v.w.Clock())
	if v.failed("API key", errors.Join(err, err2)) {
		return
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: k.ID.String()}}, {"Key", cell{Text: shownKey(k)}}, {"State", cell{State: stateOf(k.Status)}},
		{"Rights", cell{Text: rightWords(k.Rights)}}, {"API version", cell{Text: k.Version, Sub: versionNote(k.Version, versions)}},
		{"Made", cell{At: k.CreatedAt.Time, Sub: makerOf(v, k)}}, {"Last used", atOr(k.LastUsedAt, "not yet")},
		{"Ends", atOr(k.ExpiresAt, "never")},
	}}
	s.Links = []link{{Text: "Recent calls", To: v.to("keys", k.ID.String(), "calls"), Plain: true}}
	if news := v.w.Changes(k.Version); len(news) > 0 {
		t := &table{Caption: "Changes of the API since " + k.Version, Head: []column{{Text: "Version"}, {Text: "Change"}}}
		for _, c := range news {
			t.Rows = append(t.Rows, []cell{{Text: c.Since}, {Sub: c.Summary}})
		}
		s.Parts = []part{{"What a newer version changes", t}}
	}
	if len(made) > 0 {
		t := &table{Caption: "Keys that it made", Head: []column{{Text: "Name"}, {Text: "State"}, {Text: "Rights"}, {Text: "Made"}}}
		for _, c := range made {
			t.Rows = append(t.Rows, []cell{
				{Text: nameOf(c.Name), To: v.to("keys", c.ID.String())}, {State: stateOf(toll.StatusActive)},
				{Text: rightWords(c.Rights)}, at(c.CreatedAt),
			})
		}
		s.Parts = append(s.Parts, part{"Keys that it made", t})
	}
	if k.Status == toll.StatusActive && v.person.Rights.Has(toll.RightKeys) && v.person.MayManage(k) == nil {
		name := ""
		if k.Name != nil {
			name = *k.Name
		}
		s.Acts = []dialog{
			v.dialogOf("change", "Change", "", field{Name: "name", Label: "Name", Value: name, Max: 100}, versionField(k.Version, versions)),
			v.dialogOf("rotate", "Rotate", "A new key takes the place of this one, with its name, rights and end.",
				field{Name: "overlap", Label: "This key still works", Options: overlaps, Members: []string{"overlapSecs"}}),
			v.dangerOf("end", "End the key", "Programs that use it are refused at once. What it made ends with it: keys, access tokens and consents.",
				field{Name: "keep", Label: "Keep the keys and consents that it made, under my name", Type: "checkbox"}),
		}
	}
	v.sheet(nameOfKey(k), s)
}

// Change is one change of the API, which a key with an older version does not see.
type Change struct{ Since, Summary string }

// versionNote says what the pin of a key means beside the current version.
func versionNote(pin string, v *client.Versions) string {
	if pin == v.Current {
		return "the current one"
	}
	return v.Current + " is current"
}

func versionField(pin string, v *client.Versions) field {
	f := field{Name: "version", Label: "API version", Value: pin, Hint: "Answers keep the shape of this version."}
	all := append([]string{v.Floor}, v.GatedVersions...)
	for _, word := range append(all, pin, v.Current) {
		if !hasOption(f.Options, word) {
			f.Options = append(f.Options, option{Value: word, Text: word})
		}
	}
	return f
}

// makerOf says who made a key.
func makerOf(v *visit, k toll.APIKey) string {
	switch k.MadeBy {
	case toll.MadeLocally:
		return "by the operator"
	case toll.MadeByKey:
		return "by another API key"
	case toll.MadeByGrant:
		return "by the consent to a program"
	}
	var id toll.UUID
	if id.UnmarshalText([]byte(k.UserID)) != nil {
		return ""
	}
	u, err := v.w.People.User(v.ctx(), id)
	if err != nil {
		return "by a person"
	}
	return "by " + cmp.Or(plain.Name(u.Name), "a person")
}

func changeKey(v *visit) {
	k, ok := key(v)
	if !ok || v.form.Get("act") == "rotate" && !hasProof(v, keyWhy) {
		return
	}
	v.finish(func() (outcome, error) {
		out := outcome{To: v.to("keys", k.ID.String())}
		switch v.form.Get("act") {
		case "change":
			name, version := v.text("name"), v.form.Get("version")
			out.Done = "The key is changed."
			_, err := v.w.API.UpdateKey(v.acting(), k.ID, &name, &version)
			return out, err
		case "rotate":
			overlap, err := seconds(v, "overlap", overlaps)
			if err != nil {
				return out, err
			}
			n, err := v.w.API.RotateKey(v.acting(), k.ID, overlap)
			if err != nil {
				return out, err
			}
			out.To, out.Done = v.to("keys", n.ID.String()), "The key is rotated. The old one works until "+date(n.PreviousEndsAt.Time)+"."
			out.Secret = &secret{"The new API key", n.Key}
			return out, nil
		case "end":
			end := v.w.API.RevokeKey
			if v.form.Get("keep") != "" {
				end = v.w.API.RevokeKeyOnly
			}
			ended, err := end(v.acting(), k.ID)
			if err != nil {
				return out, err
			}
			out.Done = "The key has ended." + endedWith(ended.Ended)
			return out, nil
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
