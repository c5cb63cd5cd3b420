package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
)

// call is a command that makes one call of the API and prints its answer. A new command of a resource is one more of these
// in the group of its resource.
type call struct {
	use, short, long, example string

	aliases []string // deployed names
	method  string   // default GET
	into    string   // member that the argument becomes
	path    string   // in which the words of use stand for the arguments
	flags   []flag
	require []string  // names of flags that must be given
	oneOf   bool      // at least one of the flags must be given
	made    string    // member that names what was made: when quiet, it alone is printed
	fixed   bool      // what is made never changes: members that the service does not know are refused
	list    list.List // the command has its path and the flags of pages
	record  list.List // what a terminal shows of the record, all members if empty
	other   string    // note for the default role of a list on a terminal, which names the other side

	// change may change the request before it is sent.
	change func(cmd *cobra.Command, r *request) error
	// local makes the answer in place of the service, which is asked when it makes none.
	local func(ctx context.Context, r *request) (any, error)
	// show prints the answer in another way.
	show func(cmd *cobra.Command, got json.RawMessage) error
}

// request is a call of the API that is about to be made.
type request struct {
	method, path string
	args         []string
	in           body
	whole        any // is sent in place of in
}

func (a *app) resource(r call) *cobra.Command {
	c := command(r.use, r.short, nil)
	c.Long, c.Example, c.Aliases = r.long, r.example, r.aliases
	flags := r.flags
	isList := r.list.Member != ""
	if of, ok := referenceOf(r.use[strings.LastIndexByte(r.use, ' ')+1:], r.path); ok && c.Name() == "get" {
		r.made = of.of.Columns[0].Path // with --quiet, the id alone
	}
	if isList {
		r.path = r.list.Under(strings.Fields(r.use)[1:]...).Path
		flags = append(pageFlags, flags...)
	}
	inputs := a.inputs(c, flags)
	require(c, r.require...)
	a.completeArgs(c, r.path)
	if r.oneOf {
		c.MarkFlagsOneRequired(names(r.flags)...)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := inputs()
		if err != nil {
			return err
		}
		if r.fixed {
			if err := a.allKnown(); err != nil {
				return err
			}
		}
		if err := a.resolveAll(cmd.Context(), r.use, r.path, args); err != nil {
			return err
		}
		if err := a.resolveFlags(cmd.Context(), flags, in); err != nil {
			return err
		}
		if r.into != "" {
			if in == nil {
				in = body{}
			}
			in[r.into] = args[0]
		}
		q := &request{cmp.Or(r.method, http.MethodGet), pathOf(r.path, r.use, args), args, in, nil}
		if r.change != nil {
			if err := r.change(cmd, q); err != nil {
				return err
			}
		}
		if isList {
			role := q.in["role"]
			if err := a.list(cmd.Context(), q, r.list); err != nil {
				return err
			}
			if r.other != "" && role == nil && a.set.terminal && a.set.output == formatTable {
				a.say("note", "%s", r.other)
			}
			return nil
		}
		got, err := a.answer(cmd.Context(), q, r.local)
		switch {
		case err != nil:
			return err
		case r.show != nil:
			return r.show(cmd, got)
		}
		return showOne(&a.console, got, r.made, r.record)
	}
	return c
}

// answer is what local makes, else what the service answers.
func (a *app) answer(
	ctx context.Context, r *request, local func(context.Context, *request) (any, error),
) (json.RawMessage, error) {
	if local != nil {
		if made, err := local(ctx, r); err != nil || made != nil {
			return encoded(made, err)
		}
	}
	return a.request(ctx, r)
}

// request makes a call. What a GET or DELETE has been given goes into the query.
func (a *app) request(ctx context.Context, r *request) (json.RawMessage, error) {
	switch {
	case r.whole != nil:
		return a.call(ctx, r.method, r.path, nil, r.whole)
	case r.method == http.MethodGet || r.method == http.MethodDelete:
		return a.call(ctx, r.method, r.path, r.in.query(), nil)
	case r.in == nil:
		return a.call(ctx, r.method, r.path, nil, nil)
	}
	return a.call(ctx, r.method, r.path, nil, r.in)
}

// get is a command that shows one record.
func (a *app) get(use, short, path string, aliases ...string) *cobra.Command {
	return a.resource(call{use: use, short: short, path: path, aliases: aliases})
}

// act is a command that changes something and says nothing more about it.
func (a *app) act(use, short, method, path string) *cobra.Command {
	return a.resource(call{use: use, short: short, method: method, path: path})
}

// pathOf puts the arguments of a command in place of the words that stand for them in its use line.
func pathOf(path, use string, args []string) string {
	var pairs []string
	for i, word := range strings.Fields(use)[1:] {
		if i < len(args) {
			pairs = append(pairs, strings.Trim(word, "[]"), url.PathEscape(args[i]))
		}
	}
	return strings.NewReplacer(pairs...).Replace(path)
}

// flag is a flag whose value becomes a member of a request, or a parameter of its query.
type flag struct {
	name, member string
	kind         kind
	usage        string
}

// hiddenFlag is the usage of a flag that help leaves out.
const hiddenFlag = "not used"

func names(flags []flag) []string {
	var all []string
	for _, f := range flags {
		all = append(all, f.name)
	}
	return all
}

// kind says what a flag takes. read gets all values that were given, and returns nil for none.
type kind struct {
	name   string   // for help
	words  []string // for completion
	ref    string   // the word of [references] that a value may name
	clears bool     // a flag without a value clears the member
	read   func(a *app, flag string, given []string) (any, error)
}

var (
	word   = kind{name: "string", read: readLast(func(s string) (string, error) { return s, nil })}
	digits = kind{name: "number", read: readLast(func(s string) (string, error) { // as its digits, of which none is lost
		if !isDigits(s) {
			return "", fmt.Errorf("must be a whole number with digits only; got %q", s)
		}
		return s, nil
	})}
	address = kind{name: "address", read: readLast(func(s string) (string, error) {
		_, err := toll.ParseAddress(s)
		return s, err
	})}
	moment  = kind{name: "time", read: readLast(readMoment)}
	planID  = kind{name: "plan", ref: "PLAN", read: refOrID(toll.ParsePlanID)}
	agentID = kind{name: "agent", ref: "AGENT", read: refOrID(toll.ParseAgentID)}
	// Kinds of other records: the service reports an unknown id.
	delegationID = word.naming(refDelegation)
	keyID        = word.naming(refKey)
	methodID     = word.naming(refMethod)
	toggle       = kind{name: "bool", read: readLast(strconv.ParseBool)}
	span         = kind{name: "duration", read: readSeconds}
	object       = kind{name: "json", read: func(a *app, flag string, given []string) (any, error) {
		if text := given[len(given)-1]; text != "" {
			return a.objectArgument(flag, text)
		}
		return nil, nil
	}}
	urls = kind{name: "url", read: func(_ *app, _ string, given []string) (any, error) { return given, nil }}
	// words are given in several flags, with commas, or as a JSON array.
	words = kind{name: "list", read: func(_ *app, _ string, given []string) (any, error) {
		if all := idList(given); len(all) > 0 {
			return all, nil
		}
		return nil, nil
	}}
)

// naming is a kind whose values name records.
func (k kind) naming(ref string) kind {
	k.ref = ref
	return k
}

// offering is a kind with values for completion. The service may accept further values.
func (k kind) offering(words ...string) kind {
	k.words = words
	return k
}

// cleared is a kind whose empty value clears the member.
func cleared(k kind) kind {
	k.clears = true
	return k
}

func oneOf(words ...string) kind {
	return kind{name: strings.Join(words, "|"), words: words, read: readLast(func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", fmt.Errorf("must be %s; got %q", strings.Join(words, " or "), s)
		}
		return s, nil
	})}
}

// readEach reads all values, an empty one too.
func readEach[T any](parse func(string) (T, error)) func(*app, string, []string) (any, error) {
	return func(_ *app, flag string, given []string) (any, error) {
		list := make([]T, len(given))
		for i, text := range given {
			var err error
			if list[i], err = parse(text); err != nil {
				return nil, flagError(flag, err)
			}
		}
		return list, nil
	}
}

// last is the last value of a member that [readEach] has read.
func last[T any](in body, member string, otherwise T) T {
	if list := value[[]T](in, member); len(list) > 0 {
		return list[len(list)-1]
	}
	return otherwise
}

// readLast reads the last value. An empty one is none.
func readLast[T any](parse func(string) (T, error)) func(*app, string, []string) (any, error) {
	return func(_ *app, flag string, given []string) (any, error) {
		text := given[len(given)-1]
		if text == "" {
			return nil, nil
		}
		v, err := parse(text)
		if err != nil {
			return nil, flagError(flag, err)
		}
		return v, nil
	}
}

// readMoment takes a time, a day, or a span before now.
func readMoment(s string) (string, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok && isDigits(days) && len(days) <= 5 {
		n, _ := strconv.Atoi(days) // at most five digits
		return iso(time.Now().AddDate(0, 0, -n)), nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return iso(time.Now().Add(-d)), nil
	}
	t, err := toll.ParseTime(s)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, s); err != nil {
			return "", fmt.Errorf("must be a date such as 2026-11-21, an ISO 8601 time, or a duration before now such as 24h or 7d; got %q", s)
		}
	}
	return iso(t), nil
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func readSeconds(_ *app, flag string, given []string) (any, error) {
	d, err := seconds(flag, given[len(given)-1])
	if err != nil || d == 0 {
		return nil, err
	}
	return int64(d.Seconds()), nil
}

// idList takes ids apart that were given in several flags, with commas, or as a JSON array.
func idList(given []string) []string {
	ids := []string{}
	for _, g := range given {
		var list []string
		if json.Unmarshal([]byte(g), &list) == nil {
			ids = append(ids, list...)
			continue
		}
		for id := range strings.FieldsFuncSeq(g, func(r rune) bool { return r == ',' || r == ' ' }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// inputs adds flags to a command and returns what reads the values that were given.
func (a *app) inputs(c *cobra.Command, flags []flag) func() (body, error) {
	given := make([][]string, len(flags))
	for i, f := range flags {
		keep := func(s string) error {
			given[i] = append(given[i], s)
			return nil
		}
		added := c.Flags().VarPF(&parsed{f.kind.name, "", keep}, f.name, "", f.usage)
		if f.kind.name == toggle.name {
			added.NoOptDefVal = "true"
		}
		added.Hidden = f.usage == hiddenFlag
		a.completeFlag(c, f)
	}
	return func() (body, error) {
		if len(flags) == 0 {
			return nil, nil
		}
		in := body{}
		for i, f := range flags {
			if len(given[i]) == 0 {
				continue
			}
			v, err := f.kind.read(a, f.name, given[i])
			if err != nil {
				return nil, err
			}
			if v != nil || f.kind.clears {
				in[f.member] = v
			}
		}
		return in, nil
	}
}

// body collects the members of a request that were given.
type body map[string]any

func (b body) text(name, value string) {
	if value != "" {
		b[name] = value
	}
}

// value is a member, zero when it was not given.
func value[T any](in body, member string) T {
	v, _ := in[member].(T)
	return v
}

// query returns the members as parameters.
func (b body) query() url.Values {
	q := url.Values{}
	for name, v := range b {
		q.Set(name, fmt.Sprint(v))
	}
	return q
}
