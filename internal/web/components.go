package web

import (
	"time"

	"github.com/tollhq/toll"
)

// The parts of which pages are made; components.html draws them, and the page of components shows each.

// table is a list. On a narrow screen each row is a card, where a cell is named by its column.
type table struct {
	Caption string // for readers of screens
	Head    []column
	Rows    [][]cell
	Empty   *empty // in the place of a table without rows
	Pager   *pager
	Choice  *columnChoice // nil: all columns are shown
}

type column struct {
	Text  string
	Num   bool // numbers, at the right
	Stays bool // names a row, and is never hidden; without one it is the first column
}

// cell is one value of a table. What is set of it is drawn.
type cell struct {
	Text   string
	To     string // where Text or ID leads
	Sub    string // below it, quiet
	ID     string // shortened, with a button that copies it
	Sum    *sum
	Number string // grouped by thousands
	State  *state
	At     time.Time
	Num    bool
	Form   *form // of one button
}

// credits is a cell with a number of credits.
func credits(n toll.Credits) cell { return cell{Number: n.String(), Num: true} }

// at is a cell with a time; zero is never.
func at(t time.Time) cell {
	if t.IsZero() {
		return cell{Text: "never"}
	}
	return cell{At: t}
}

// atOr is a cell with a time, or a word for none.
func atOr(t *toll.Time, none string) cell {
	if t == nil || t.IsZero() {
		return cell{Text: none}
	}
	return cell{At: t.Time}
}

// state is a word with a colour: good, warn, bad or quiet.
type state struct{ Text, Tone string }

// empty says of a list without rows what it is of, why one wants it, and how to begin.
type empty struct {
	Icon, Title, Text string
	To, Button        string // a page that begins; may be empty
	Command           string // the same on a terminal; may be empty
}

// pager leads through a list, part by part.
type pager struct {
	Total int64 // -1: not counted
	Noun  string
	First string // address of the first part; "" on it
	Next  string // of the next part; "" on the last
}

// pagerOf leads to the next part of a list, with the filters that the page has.
func (v *visit) pagerOf(total int64, next, noun string) *pager {
	p := &pager{Total: total, Noun: noun}
	q := v.r.URL.Query()
	if q.Get("cursor") != "" {
		q.Del("cursor")
		p.First = v.r.URL.Path + "?" + q.Encode()
	}
	if next != "" {
		q.Set("cursor", next)
		p.Next = v.r.URL.Path + "?" + q.Encode()
	}
	return p
}

// stat is a figure that is seen first.
type stat struct {
	Label, Value, Unit, Note string
	To                       string
	Change, Tone             string // against the period before; good, bad or ""
	Spark                    string // see [spark]
}

// task is something that needs attention, with the act beside it. Tone is bad, warn or quiet.
type task struct{ Tone, Title, Text, To, Act string }

// field is a field of a form.
type field struct {
	Name, Label, Value, Hint, Unit string
	Type                           string // of the input; "" is text; "radio", "checks" and "checkbox" choose
	Mode                           string // inputmode
	Max                            int    // characters
	Required, Area                 bool
	Options                        []option // of a choice; nil for a field to type in
	Members                        []string // of the body of the API that it sets, besides its name
	Fault                          string   // what is wrong with it
	of                             string   // act of its form, which keeps its id apart from those of other forms
}

// ID is the id of the field on the page.
func (f field) ID() string {
	if f.of == "" {
		return f.Name
	}
	return f.of + "-" + f.Name
}

// option is one of a choice. On marks those of the type "checks" that are chosen.
type option struct {
	Value, Text, Hint string
	On                bool
}

// dialog asks once more before an act, in a box above the page. It opens and closes without scripts.
type dialog struct {
	ID, Open, Title, Text string
	Action, Ticket, Act   string
	Fields                []field
	Button                string
	Danger                bool
}

// fact is a line of what a record says.
type fact struct {
	Label string
	cell
}

// step is one of the things that happened to a record, in their order.
type step struct {
	Title, Text string
	At          time.Time
	Tone        string // good, warn, bad; "" for one that has not happened
}

// componentPages show each part of pages, in a sandbox.
func componentPages() []areaPage {
	return []areaPage{{
		Path: "/components", Title: "Components", Template: "components_page", Right: toll.RightRead, Sandbox: true, Get: showComponents,
	}}
}

type componentsPage struct {
	Stats         []stat
	Tasks         []task
	Table, Nobody *table
	Dialog        *dialog
	Fields        []field
	Facts         []fact
	Steps         []step
}

func showComponents(v *visit) {
	now := v.w.Clock()
	long := "A name that is as long as somebody may choose it to be, and that says nothing which a shorter one would not say as well"
	id := "0x7D3cA1b2C3d4E5f60718293a4B5c6D7e8F901a74"
	v.draw("Components", componentsPage{
		Stats: []stat{
			{Label: "Revenue", Value: "1,284.50", Unit: "USDC", Note: "from 1,086.75"}, {Label: "Credits burned", Value: "412,906", Note: "from 377,301"},
			{Label: "Paid requests", Value: "198,224"}, {Label: "A large one", Value: "9,223,372,036,854,775,807", Unit: "credits"},
		},
		Tasks: []task{
			{"bad", "Webhook fails", "12 deliveries to hooks.example.com since 09:40", "#", "Inspect"},
			{"warn", "Key “ci” ends in 3 days", "Used 4 minutes ago", "#", "Rotate"}, {"quiet", "API 1.1 is current", long, "#", "Compare"},
		},
		Table: &table{
			Caption: "Settlements", Head: []column{{Text: "Time"}, {Text: "Agent"}, {Text: "Subscriber"}, {Text: "State"}, {Text: "Price", Num: true}, {Text: "Credits", Num: true}},
			Rows: [][]cell{
				{at(now.Add(-4 * time.Minute)), {Text: "Ask", To: "#", Sub: "summarise"}, {ID: id}, {State: &state{"confirmed", "good"}}, {Sum: &sum{"1,000,000.00", "USDC"}, Num: true}, credits(2)},
				{at(now.Add(3 * time.Hour)), {Text: long, To: "#"}, {ID: id, To: "#"}, {State: &state{"failed", "bad"}}, {Sum: &sum{"0.000000000000000001", "ETH"}, Num: true}, credits(9223372036854775807)},
				{at(time.Time{}), {Text: "Search"}, {ID: "short"}, {State: &state{"sent", "warn"}}, {Text: "free", Num: true}, credits(0)},
			},
			Pager: &pager{Total: 1234, Noun: "settlement", Next: "#"},
		},
		Nobody: &table{Empty: &empty{"bot", "No agents yet", "An agent is a server of yours that others pay for, request by request.", "#", "Register an agent", "toll agents create --help"}},
		Dialog: &dialog{ID: "ask", Open: "Open a dialog", Title: "Remove this?", Text: "What it made ends with it.", Action: "#", Button: "Remove", Danger: true,
			Fields: []field{{Name: "why", Label: "Why", Max: 100}}},
		Fields: []field{
			{Name: "name", Label: "Name", Value: "Basic", Hint: "Buyers read it first.", Max: 256, Required: true},
			{Name: "price", Label: "Price", Value: "1.00", Unit: "USDC", Mode: "decimal"},
			{Name: "kind", Label: "Kind", Options: []option{{Value: "one", Text: "One"}, {Value: "two", Text: "Two"}}, Value: "two"},
			{Name: "text", Label: "Description", Area: true, Max: 2000},
			{Name: "amount", Label: "Credits", Value: "0", Mode: "numeric", Fault: "Credits must be at least 1."},
			{Name: "sort", Label: "Sort", Type: "radio", Value: "a", Options: []option{{Value: "a", Text: "A", Hint: "The first one."}, {Value: "b", Text: "B"}}},
			{Name: "some", Label: "Some", Type: "checks", Options: []option{{Value: "x", Text: "X", On: true}, {Value: "y", Text: long}}},
			{Name: "sure", Label: "I am sure", Type: "checkbox", Value: "yes", Hint: "It cannot be undone."},
		},
		Facts: []fact{{"Agent", cell{Text: "Ask", To: "#"}}, {"Id", cell{ID: id}}, {"Price", cell{Sum: &sum{"1.00", "USDC"}}}, {"Made", at(now)}},
		Steps: []step{{"Recorded", "", now.Add(-time.Hour), "good"}, {"Sent", "In transaction " + short(id), now.Add(-30 * time.Minute), "good"}, {"Final", "", time.Time{}, ""}},
	})
}
