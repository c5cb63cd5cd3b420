package page

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
)

// The parts of which pages are made; components.html draws them, and the page of components shows each.

// Table is a list. On a narrow screen each row is a card, where a cell is named by its column.
type Table struct {
	Caption string // for readers of screens
	Head    []Column
	Rows    [][]Cell
	Empty   *Empty // in the place of a table without rows
	Pager   *Pager
	Choice  *columnChoice // nil: all columns are shown
}

// Column is the head of a column of a table.
type Column struct {
	Text  string
	Num   bool // numbers, at the right
	Stays bool // names a row, and is never hidden; without one it is the first column
}

// Cell is one value of a table. What is set of it is drawn.
type Cell struct {
	Text   string
	To     string // where Text or ID leads
	Sub    string // below it, quiet
	ID     string // shortened, with a button that copies it
	Sum    *Sum
	Number string // grouped by thousands
	State  *State
	At     time.Time
	Num    bool
	Form   *Form // of one button
}

// Credits is a cell with a number of credits.
func Credits(n toll.Credits) Cell { return Cell{Number: n.String(), Num: true} }

// At is a cell with a time; zero is never.
func At(t time.Time) Cell {
	if t.IsZero() {
		return Cell{Text: "never"}
	}
	return Cell{At: t}
}

// AtOr is a cell with a time, or a word for none.
func AtOr(t *toll.Time, none string) Cell {
	if t == nil || t.IsZero() {
		return Cell{Text: none}
	}
	return Cell{At: t.Time}
}

// State is a word with a colour: good, warn, bad or quiet.
type State struct{ Text, Tone string }

// Empty says of a list without rows what it is of, why one wants it, and how to begin.
type Empty struct {
	Icon, Title, Text string
	To, Button        string // a page that begins; may be empty
	Command           string // the same on a terminal; may be empty
}

// Pager leads through a list, part by part.
type Pager struct {
	Total int64 // -1: not counted
	Noun  string
	First string // address of the first part; "" on it
	Next  string // of the next part; "" on the last
}

// PagerOf leads to the next part of a list, with the filters that the page has.
func (c *Context) PagerOf(total int64, next, noun string) *Pager {
	p := &Pager{Total: total, Noun: noun}
	q := c.R.URL.Query()
	if q.Get("cursor") != "" {
		q.Del("cursor")
		p.First = c.R.URL.Path + "?" + q.Encode()
	}
	if next != "" {
		q.Set("cursor", next)
		p.Next = c.R.URL.Path + "?" + q.Encode()
	}
	return p
}

// Stat is a figure that is seen first.
type Stat struct {
	Label, Value, Unit, Note string
	To                       string
	Change, Tone             string // against the period before; good, bad or ""
	Spark                    string // see [spark]
}

// Task is something that needs attention, with the act beside it. Tone is bad, warn or quiet.
type Task struct{ Tone, Title, Text, To, Act string }

// Field is a field of a form.
type Field struct {
	Name, Label, Value, Hint, Unit string
	Type                           string // of the input; "" is text; "radio", "checks" and "checkbox" choose
	Mode                           string // inputmode
	Max                            int    // characters
	Required, Area                 bool
	Options                        []Option // of a choice; nil for a field to type in
	Members                        []string // of the body of the API that it sets, besides its name
	Fault                          string   // what is wrong with it
	of                             string   // act of its form, which keeps its id apart from those of other forms
}

// ID is the id of the field on the page.
func (f Field) ID() string {
	if f.of == "" {
		return f.Name
	}
	return f.of + "-" + f.Name
}

// Option is one of a choice. On marks those of the type "checks" that are chosen.
type Option struct {
	Value, Text, Hint string
	On                bool
}

// Dialog asks once more before an act, in a box above the page. It opens and closes without scripts.
type Dialog struct {
	ID, Open, Title, Text string
	Action, Ticket, Act   string
	Fields                []Field
	Button                string
	Danger                bool
}

// Fact is a line of what a record says.
type Fact struct {
	Label string
	Cell
}

// Step is one of the things that happened to a record, in their order.
type Step struct {
	Title, Text string
	At          time.Time
	Tone        string // good, warn, bad; "" for one that has not happened
}

// Part is a list that belongs to a record.
type Part struct {
	Title string
	Table *Table
}

// NameOf is a name that somebody chose, for a page.
func NameOf(name string) string {
	if name = plain.Name(name); name == "" {
		return "without a name"
	}
	return name
}

// ListedState says whether a plan or an agent is listed.
func ListedState(listed bool) *State {
	if listed {
		return &State{"listed", "good"}
	}
	return &State{"not listed", "quiet"}
}
