package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
)

// reference is a kind of record that arguments and flags name: by its id, the beginning of it, or its name.
type reference struct {
	kind     string         // as a search calls it; "": the list is short, and is read instead
	whole    *regexp.Regexp // ids that need no search
	of       list.List      // the list of the workspace, with the id in the first column
	ofPerson bool           // the list requires the session of a person
}

var (
	hash = regexp.MustCompile(`^0[xX][0-9a-fA-F]{64}$`)
	uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	// id256 matches a whole id of the service; a shorter number may be the beginning of an id.
	id256 = regexp.MustCompile(`^[0-9]{70,}$`)
	// onlyDigits matches what may be the beginning of the id of a plan or an agent.
	onlyDigits = regexp.MustCompile(`^[0-9]+$`)
	// method matches the id of a card or of a wallet.
	method = regexp.MustCompile(`^(pm_[0-9A-Za-z_]{16,}|0[xX][0-9a-fA-F]{40})$`)
)

// Keys of [references] for flags.
const (
	refKey        = "/api-keys"
	refDelegation = "/delegation/"
	refMethod     = "/payment-methods"
)

// references are the words of use lines that name records. ID means what the path of the command says.
var references = map[string]reference{
	"PLAN":         {kind: "plan", whole: id256, of: list.Plans},
	"AGENT":        {kind: "agent", whole: id256, of: list.Agents},
	"ORDER":        {kind: "order", whole: uuid, of: list.Orders},
	"HASH":         {kind: "permission", whole: hash, of: list.Permissions},
	refKey:         {kind: "apiKey", whole: hash, of: list.Keys},
	refDelegation:  {kind: "delegation", whole: uuid, of: list.Delegations},
	"/webhooks":    {kind: "webhook", whole: uuid, of: list.Webhooks},
	refMethod:      {whole: method, of: list.PaymentMethods},
	"/invitations": {whole: uuid, of: list.Invitations, ofPerson: true},
	"USER":         {whole: uuid, of: list.Members, ofPerson: true},
	"CREDENTIAL":   {whole: uuid, of: list.Credentials, ofPerson: true},
}

// referenceOf returns the kind of record for a word of a use line and a path, or false for another word.
func referenceOf(word, path string) (reference, bool) {
	word = strings.Trim(word, "[]")
	if r, ok := references[word]; ok {
		return r, true
	}
	for start, r := range references {
		if strings.HasPrefix(start, "/") && strings.HasPrefix(path, start) && (word == "ID" || word == "WEBHOOK") {
			return r, true
		}
	}
	return reference{}, false
}

// named is a record that a text may name.
type named struct{ id, name string }

// Limits of the requests that resolve a name.
const (
	maxHoldings = 5  // pages of 100 balances
	maxBought   = 10 // plans whose agents are read
)

// resolve returns the id of a record from its name or the beginning of its id. The record belongs to the workspace; if none of its records fits,
// it is a plan of which the workspace has credits, or an agent of such a plan. Any seller can mint credits to the workspace, which must not make
// its own names ambiguous. It returns any other text unchanged, such as the whole id of another record.
func (a *app) resolve(ctx context.Context, r reference, text string) (string, error) {
	text = strings.TrimSuffix(text, "…")
	if r.whole.MatchString(text) || text == "" || a.set.key == "" {
		return text, nil
	}
	own, more := ownRecords(ctx, a, r, text)
	all := own
	if (r.kind == "plan" || r.kind == "agent") && len(fitting(own, text)) == 0 {
		bought, moreBought := boughtRecords(ctx, a, r.kind)
		all, more = append(all, bought...), more || moreBought
	}
	found := fitting(all, text)
	id, err := onlyID(found, more, text)
	if err == nil && len(found) == 1 && !slices.Contains(own, found[0]) {
		a.say("note", "%q is %s %s, %s", text, r.kind, id, cmp.Or(found[0].name, "without a name"))
	}
	return id, err
}

// onlyID returns the id of the only record that fits a text, or the text if no record fits. more reports whether there are more records.
func onlyID(found []named, more bool, text string) (string, error) {
	switch {
	case len(found) == 0:
		return text, nil // the next request reports the error
	case len(found) == 1 && !more:
		return found[0].id, nil
	}
	return "", usagef("%q is ambiguous; it matches %s", text, candidates(found, more))
}

// fitting returns the records with this name, in any case. Without such a record, it returns the records whose id begins with the text.
func fitting(all []named, text string) []named {
	keep := func(fits func(named) bool) []named {
		return slices.DeleteFunc(slices.Clone(all), func(n named) bool { return !fits(n) })
	}
	if exact := keep(func(n named) bool { return n.name != "" && strings.EqualFold(n.name, text) }); len(exact) > 0 {
		return exact
	}
	return keep(func(n named) bool {
		return len(text) >= minBeginning && strings.HasPrefix(strings.ToLower(n.id), strings.ToLower(text))
	})
}

// candidates lists the first records that a text matches.
func candidates(found []named, more bool) string {
	var texts []string
	for _, n := range found[:min(len(found), 5)] {
		text := n.id
		if n.name != "" {
			text += " (" + n.name + ")"
		}
		texts = append(texts, text)
	}
	if more || len(found) > len(texts) {
		texts = append(texts, "and perhaps more")
	}
	return strings.Join(texts, ", ")
}

// ownRecords returns records of the workspace that match a text, and whether there are more. For an empty text, it returns the latest records.
// On an error, it returns none and true: a bought record must not take the place of an own record that could not be read.
func ownRecords(ctx context.Context, a *app, r reference, text string) (all []named, more bool) {
	path, query, member, id, name := r.of.Path, url.Values{"pageSize": {"100"}}, r.of.Member, r.of.Columns[0].Path, "name"
	if i := slices.IndexFunc(r.of.Columns, func(c list.Column) bool { return c.Kind == list.KindName }); i >= 0 {
		name = r.of.Columns[i].Path
	}
	if text != "" && r.kind != "" {
		path, query, member, id, name = "/protocol/search", url.Values{"q": {text}, "type": {r.kind}}, "results", "id", "name"
	}
	if member == "" {
		query = nil // the route has no pages
	}
	got, err := a.call(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, true
	}
	return namesIn(got, member, id, name), at(got, "more") == "true" || at(got, "nextCursor") != ""
}

// namesIn reads the records of an answer.
func namesIn(got json.RawMessage, member, id, name string) (all []named) {
	if member != "" {
		got = rawOf(got, member)
	}
	var items []json.RawMessage
	_ = json.Unmarshal(got, &items) // none in another answer
	for _, item := range items {
		all = append(all, named{at(item, id), at(item, name)})
	}
	return all
}

// boughtRecords returns plans with a balance of the workspace, or their agents, and whether there are more. It leaves
// out names that look like the beginning of an id: such a name would take the place of the record with that id.
func boughtRecords(ctx context.Context, a *app, kind string) (all []named, more bool) {
	of, query := list.Holdings, url.Values{"pageSize": {"100"}}
	defer func() {
		for i := range all {
			if onlyDigits.MatchString(all[i].name) {
				all[i].name = ""
			}
		}
	}()
	for range maxHoldings {
		got, err := a.call(ctx, http.MethodGet, of.Path, query, nil)
		if err != nil {
			return nil, false
		}
		all = append(all, namesIn(got, of.Member, "planId", "planName")...)
		next := at(got, "nextCursor")
		if more = next != ""; !more {
			break
		}
		query.Set("cursor", next)
	}
	if kind == "plan" {
		return all, more
	}
	plans := all
	all, more = nil, more || len(plans) > maxBought
	for _, plan := range plans[:min(len(plans), maxBought)] {
		of := list.AgentsOfPlan.Under(plan.id)
		got, err := a.call(ctx, http.MethodGet, of.Path, url.Values{"pageSize": {"100"}}, nil)
		if err != nil {
			continue
		}
		for _, agent := range namesIn(got, of.Member, "agentId", "name") {
			if !slices.Contains(all, agent) {
				all = append(all, agent)
			}
		}
		more = more || at(got, "nextCursor") != ""
	}
	return all, more
}

// minBeginning is the minimum length of the beginning of an id that names a record, so that a typing error rarely does.
const minBeginning = 4

// resolveAll puts ids in place of what the arguments of a command name.
func (a *app) resolveAll(ctx context.Context, use, path string, args []string) error {
	for i, word := range strings.Fields(use)[1:] {
		r, ok := referenceOf(word, path)
		if !ok || i >= len(args) {
			continue
		}
		id, err := a.resolve(ctx, r, args[i])
		if err != nil {
			return err
		}
		args[i] = id
	}
	return nil
}

// completeTime bounds the requests of a completion, as a person waits for it at the prompt.
const completeTime = 2 * time.Second

// complete offers the ids and names of records.
func (a *app) complete(cmd *cobra.Command, r reference, text string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if err := a.loadProfile(); err != nil || r.ofPerson && a.usePerson() != nil || a.set.key == "" {
		return nil, none
	}
	a.set.names = namespaceOf(cmd)
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	all, _ := ownRecords(ctx, a, r, text)
	if r.kind == "plan" {
		bought, _ := boughtRecords(ctx, a, r.kind)
		all = append(all, bought...)
	}
	var offers []string
	add := func(offer string) {
		if !slices.Contains(offers, offer) {
			offers = append(offers, offer)
		}
	}
	for _, n := range all {
		name := clean(n.name)
		switch {
		case strings.HasPrefix(strings.ToLower(n.id), strings.ToLower(text)):
			add(strings.TrimSuffix(n.id+"\t"+name, "\t"))
		case name != "" && len(name) >= len(text) && strings.EqualFold(name[:len(text)], text):
			add(name + "\t" + n.id)
		}
	}
	return offers, none
}

// completeArgs offers values of the arguments of a command.
func (a *app) completeArgs(c *cobra.Command, path string) {
	words := strings.Fields(c.Use)[1:]
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) < len(words) {
			if r, ok := referenceOf(words[len(args)], path); ok {
				return a.complete(cmd, r, text)
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag offers values of a flag.
func (a *app) completeFlag(c *cobra.Command, f flag) {
	var offer cobra.CompletionFunc
	switch {
	case len(f.kind.words) > 0:
		offer = cobra.FixedCompletions(f.kind.words, cobra.ShellCompDirectiveNoFileComp)
	case f.kind.ref != "":
		offer = func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return a.complete(cmd, references[f.kind.ref], text)
		}
	default:
		return
	}
	if err := c.RegisterFlagCompletionFunc(f.name, offer); err != nil {
		panic(err) // the flag was added before this call
	}
}

// short returns an id that a list on a terminal shows by its beginning: enough to name the record again.
func short(value string) string {
	switch {
	case id256.MatchString(value):
		return value[:10] + "…"
	case hash.MatchString(value):
		return value[:12] + "…"
	}
	return value
}

// refOrID reads the id of a record, or what names it.
func refOrID[T ~string](parse func(string) (T, error)) func(*app, string, []string) (any, error) {
	return readLast(func(s string) (string, error) {
		id, err := parse(s)
		if err != nil && (len(s) > 128 || strings.ContainsAny(s, "\x00\n")) {
			return "", err
		}
		return cmp.Or(string(id), s), nil
	})
}

// resolveFlags replaces the values of flags by ids. It rejects a value that is neither the id nor the name of a plan or an agent.
func (a *app) resolveFlags(ctx context.Context, flags []flag, in body) (err error) {
	for _, f := range flags {
		r, ok := references[f.kind.ref]
		if !ok || in[f.member] == nil {
			continue
		}
		switch given := in[f.member].(type) {
		case string:
			if given, err = a.resolve(ctx, r, given); err != nil {
				return flagError(f.name, err)
			}
			in[f.member] = given
			if f.kind.ref == planID.ref {
				in[f.member], err = toll.ParsePlanID(given)
			} else if f.kind.ref == agentID.ref {
				in[f.member], err = toll.ParseAgentID(given)
			}
		case []string:
			for i := range given {
				if given[i], err = a.resolve(ctx, r, given[i]); err != nil {
					break
				}
			}
		}
		if err != nil {
			return flagError(f.name, err)
		}
	}
	return nil
}
