package web

import (
	"errors"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// form is a form of a page. Its ticket proves that this page was shown, and is the idempotency key
// of what the form creates.
type form struct {
	Action, Ticket string
	Act            string // tells the forms of a page apart; "" for the only one
	Groups         []group
	Button         string
	Second         *option // another button, which sends its Value as a name
	Cancel         string  // where to go without a change
	Live           bool    // a script sends Second after each change, and shows its answer
	Hidden         []option
}

// group is fields that belong together, under a title. For names the choices of another field
// with which it is shown; "" shows it always.
type group struct {
	Title, Hint, For string
	Fields           []field
}

// newForm returns a form that posts to the page on which it is shown.
func (v *visit) newForm(act, button string, groups ...group) *form {
	f := &form{
		Action: v.r.URL.Path, Ticket: v.ticket(v.r.URL.Path), Act: act, Button: button, Groups: groups,
	}
	f.each(func(to *field) { to.of = act })
	return f
}

// fill puts what was sent into the fields. A secret is never sent back.
func (f *form) fill(sent map[string][]string) *form {
	f.each(func(to *field) {
		switch values := sent[to.Name]; {
		case to.Type == "password":
		case to.Type == "checks":
			for i := range to.Options {
				to.Options[i].On = slices.Contains(values, to.Options[i].Value)
			}
		default:
			to.Value = strings.Join(values, "")
		}
	})
	return f
}

func (f *form) each(do func(*field)) {
	for i := range f.Groups {
		for j := range f.Groups[i].Fields {
			do(&f.Groups[i].Fields[j])
		}
	}
}

// refuse puts what an error says of members of the body beside their fields. It returns what stands
// above the form.
func (f *form) refuse(err error) string {
	e := toll.AsError(err)
	faults := faultsOf(e)
	first := e.Text()
	for i, fault := range faults {
		text, beside := sentence(fault.Path, fault.Message), false
		f.each(func(to *field) {
			if !beside && to.isOf(fault.Path) {
				text = sentence(to.Label, fault.Message)
				to.Fault, beside = text, true
			}
		})
		if i == 0 {
			first = text
		}
	}
	if len(faults) > 1 {
		first += " More is wrong: see the fields that are marked."
	}
	return first
}

// together is one error of several: all that they say of fields.
func together(errs ...error) error {
	var all []toll.Fault
	for _, err := range errs {
		if err != nil {
			all = append(all, faultsOf(toll.AsError(err))...)
		}
	}
	if len(all) == 0 {
		return errors.Join(errs...)
	}
	return toll.Faults(all)
}

// oneFault is an error about one field.
func oneFault(path, message string) error {
	return toll.Faults([]toll.Fault{{Path: path, Message: message}})
}

// isOf reports whether a member of a body is that of the field: "a.b[2]" is of the field with the
// member b, or with the member a.b.
func (f *field) isOf(path string) bool {
	path, _, _ = strings.Cut(path, "[")
	for _, member := range append(slices.Clone(f.Members), f.Name) {
		if path == member || strings.HasSuffix(path, "."+member) {
			return true
		}
	}
	return false
}

// faultsOf returns what an error says of members of a body, whether it came from the API or not.
func faultsOf(e *toll.Error) (out []toll.Fault) {
	switch list := e.Params["errors"].(type) {
	case []toll.Fault:
		return list
	case []any:
		for _, item := range list {
			m, _ := item.(map[string]any)
			path, _ := m["path"].(string)
			message, _ := m["message"].(string)
			out = append(out, toll.Fault{Path: path, Message: message})
		}
	default:
		if path, ok := e.Params["path"].(string); ok {
			out = []toll.Fault{{Path: path, Message: e.Text()}}
		}
	}
	return out
}

// sentence is what is wrong with a field: a message of the API is a sentence, or goes on after the
// name of its member.
func sentence(name, message string) string {
	if message != "" && strings.ToUpper(message[:1]) == message[:1] {
		return message
	}
	return name + " " + message + "."
}

// text returns a field of the form that was sent, without blanks around it.
func (v *visit) text(name string) string { return strings.TrimSpace(v.form.Get(name)) }

// lines returns the lines of a field, and words those between commas, without empty ones.
func (v *visit) lines(name string) []string { return split(v.form.Get(name), "\n") }
func (v *visit) words(name string) []string { return split(v.form.Get(name), ",") }

func split(text, by string) []string {
	out := []string{}
	for part := range strings.SplitSeq(text, by) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// hasOption reports whether a choice has a value.
func hasOption(of []option, value string) bool {
	return slices.ContainsFunc(of, func(o option) bool { return o.Value == value })
}
