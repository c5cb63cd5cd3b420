package page

import (
	"errors"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// Form is a form of a page. Its ticket proves that this page was shown, and is the idempotency key of what the form creates.
type Form struct {
	Action, Ticket string
	Act            string // tells the forms of a page apart; "" for the only one
	Groups         []Group
	Button         string
	Second         *Option // another button, which sends its Value as a name
	Cancel         string  // where to go without a change
	Live           bool    // a script sends Second after each change, and shows its answer
	Hidden         []Option
}

// Group is fields that belong together, under a title. For names the choices of another field with which it is shown; "" shows it always.
type Group struct {
	Title, Hint, For string
	Fields           []Field
	Folded           bool // closed until the person opens it by its title
}

// HasFault reports whether something is wrong with a field of the group.
func (g Group) HasFault() bool {
	return slices.ContainsFunc(g.Fields, func(f Field) bool { return f.Fault != "" })
}

// newForm returns a form that posts to the page on which it is shown.
func (c *Context) newForm(act, button string, groups ...Group) *Form {
	f := &Form{Action: c.R.URL.Path, Ticket: c.Ticket(c.R.URL.Path), Act: act, Button: button, Groups: groups}
	f.each(func(to *Field) { to.of = act })
	return f
}

// Fill puts what was sent into the fields. A secret is never sent back.
func (f *Form) Fill(sent map[string][]string) *Form {
	f.each(func(to *Field) {
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

func (f *Form) each(do func(*Field)) {
	for i := range f.Groups {
		for j := range f.Groups[i].Fields {
			do(&f.Groups[i].Fields[j])
		}
	}
}

// Refuse puts what an error says of members of the body beside their fields. It returns what stands above the form.
func (f *Form) Refuse(err error) string {
	e := toll.AsError(err)
	faults := faultsOf(e)
	first := e.Text()
	for i, fault := range faults {
		text, beside := sentence(fault.Path, fault.Message), false
		f.each(func(to *Field) {
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
		first += " Correct the other marked fields too."
	}
	return strings.TrimSpace(first + " " + nextStep(e))
}

// Together is one error of several: all that they say of fields.
func Together(errs ...error) error {
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

// OneFault is an error about one field.
func OneFault(path, message string) error {
	return toll.Faults([]toll.Fault{{Path: path, Message: message}})
}

// isOf reports whether a member of a body is that of the field: "a.b[2]" is of the field with the member b, or with the member a.b.
func (f *Field) isOf(path string) bool {
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

// sentence is what is wrong with a field: a message of the API is a sentence, or goes on after the name of its member.
func sentence(name, message string) string {
	if message != "" && strings.ToUpper(message[:1]) == message[:1] {
		return message
	}
	return name + " " + message + "."
}

// Text returns a field of the form that was sent, without blanks around it.
func (c *Context) Text(name string) string { return strings.TrimSpace(c.Form.Get(name)) }

// Lines returns the lines of a field, without empty ones.
func (c *Context) Lines(name string) []string { return split(c.Form.Get(name), "\n") }

// Words returns the texts of a field between commas, without empty ones.
func (c *Context) Words(name string) []string { return split(c.Form.Get(name), ",") }

func split(text, by string) []string {
	out := []string{}
	for part := range strings.SplitSeq(text, by) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// HasOption reports whether a choice has a value.
func HasOption(of []Option, value string) bool {
	return slices.ContainsFunc(of, func(o Option) bool { return o.Value == value })
}
