package cli

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

// inputs are what the service reads of the objects that flags take. What else such an object holds is ignored there.
var inputs = map[string]reflect.Type{
	"plan-metadata": reflect.TypeFor[toll.MetadataInput](), "agent-metadata": reflect.TypeFor[toll.MetadataInput](),
	"agent-api": reflect.TypeFor[toll.AgentAPIInput](), "price-config": reflect.TypeFor[toll.PriceInput](),
	"credits-config": reflect.TypeFor[toll.CreditsInput](),
}

// warnUnknown warns about members of an object that the service does not know.
func (a *app) warnUnknown(flag string, object []byte) {
	kind, ok := inputs[flag]
	if !ok {
		return
	}
	members, err := membersOf(object)
	if err != nil {
		return // what reads it next says so
	}
	known := memberNames(kind)
	for _, m := range members {
		if slices.Contains(known, m.name) {
			continue
		}
		a.unknown = append(a.unknown, "--"+flag+" "+m.name)
		meant := ""
		if near := nearest(m.name, known); len(near) > 0 {
			meant = "; did you mean " + strings.Join(near, ", ") + "?"
		}
		a.say("warning", "--%s: unknown member %q%s", flag, m.name, meant)
	}
}

// allKnown returns an error for unknown members of a record that can never be changed, unless --yes is set.
func (a *app) allKnown() error {
	if len(a.unknown) == 0 || a.flags.yes {
		return nil
	}
	return usagef("nothing was sent: the service would ignore %s; correct it, or add --yes", strings.Join(a.unknown, ", "))
}

func memberNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// nearest returns the names that were likely meant.
func nearest(word string, names []string) []string {
	known := &cobra.Command{SuggestionsMinimumDistance: max(2, len(word)/3)}
	for _, name := range names {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return known.SuggestionsFor(word)
}
