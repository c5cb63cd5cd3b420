package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
)

// reference is a kind of record that arguments and flags name: by its id, the beginning of it, or its name.
type reference struct {
	kind  string         // as a search calls it
	whole *regexp.Regexp // ids that are not looked up
	of    list.List      // of one's own records, whose id is in the first column
}

var (
	hash = regexp.MustCompile(`^0[xX][0-9a-fA-F]{64}$`)
	uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	// id256 matches a whole id of the service; a shorter number may be the beginning of an id.
	id256 = regexp.MustCompile(`^[0-9]{70,}$`)
)

// references are the words of use lines that name records. ID means what the path of the command says.
var references = map[string]reference{
	"PLAN":         {"plan", id256, list.Plans},
	"AGENT":        {"agent", id256, list.Agents},
	"ORDER":        {"order", uuid, list.Orders},
	"HASH":         {"permission", hash, list.Permissions},
	"/api-keys":    {"apiKey", hash, list.Keys},
	"/delegation/": {"delegation", uuid, list.Delegations},
	"/webhooks":    {"webhook", uuid, list.Webhooks},
}

// referenceOf returns what a word of a use line names in a path, false when it names no record that can be searched for.
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

// resolve returns the id of the record that a text names. A text that names no record of one's own stays as it is, as
// records of others are named by their whole id.
func (a *app) resolve(ctx context.Context, r reference, text string) (string, error) {
	text = strings.TrimSuffix(text, "…")
	if r.whole.MatchString(text) || text == "" || a.set.key == "" {
		return text, nil
	}
	got, err := a.call(ctx, http.MethodGet, "/protocol/search", url.Values{"q": {text}, "type": {r.kind}}, nil)
	var found struct {
		Results []struct {
			ID   string
			Name *string
		}
		More bool
	}
	if err != nil || json.Unmarshal(got, &found) != nil {
		return text, nil // the call that follows says what is wrong
	}
	var named, begun, several []string
	for _, f := range found.Results {
		switch {
		case f.Name != nil && strings.EqualFold(*f.Name, text):
			named = append(named, f.ID)
		case len(text) >= minBeginning && strings.HasPrefix(f.ID, strings.ToLower(text)):
			begun = append(begun, f.ID)
		}
	}
	if several = named; len(named) == 0 {
		several = begun
	}
	switch {
	case len(several) == 0:
		return text, nil
	case len(several) == 1 && !found.More:
		return several[0], nil
	}
	return "", usagef("%q is ambiguous; it matches %s", text, strings.Join(several[:min(len(several), 5)], ", "))
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

// complete offers the ids of one's own records, with their names.
func (a *app) complete(cmd *cobra.Command, r reference, text string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if a.loadProfile() != nil || a.set.key == "" {
		return nil, none
	}
	a.set.names = namespaceOf(cmd)
	path, query, member, id := r.of.Path, url.Values{"pageSize": {"50"}}, r.of.Member, r.of.Columns[0].Path
	if text != "" {
		path, query, member, id = "/protocol/search", url.Values{"q": {text}, "type": {r.kind}}, "results", "id"
	}
	got, err := a.call(cmd.Context(), http.MethodGet, path, query, nil)
	var items []json.RawMessage
	if err != nil || json.Unmarshal(rawOf(got, member), &items) != nil {
		return nil, none
	}
	var offers []string
	for _, item := range items {
		if one := at(item, id); strings.HasPrefix(one, text) || text == "" {
			offers = append(offers, strings.TrimSuffix(one+"\t"+clean(at(item, "name")), "\t"))
		} else if name := at(item, "name"); name != "" {
			offers = append(offers, clean(name)+"\t"+one)
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

// resolveFlags puts ids in place of what flags name. A text that is no id and names nothing is refused.
func (a *app) resolveFlags(ctx context.Context, flags []flag, in body) error {
	for _, f := range flags {
		text, ok := in[f.member].(string)
		if f.kind.ref == "" || !ok {
			continue
		}
		id, err := a.resolve(ctx, references[f.kind.ref], text)
		if err != nil {
			return flagError(f.name, err)
		}
		plan, err := toll.ParsePlanID(id) // ids of agents have the same form
		if err != nil {
			return flagError(f.name, err)
		}
		if in[f.member] = plan; f.kind.ref == "AGENT" {
			in[f.member] = toll.AgentID(id)
		}
	}
	return nil
}
