package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
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

// Cells are the cells of a record, by the paths of their columns.
type Cells map[string]*Cell

// TableOf returns a table of a part of a list: the columns of its description, and a cell for each value. add adds links and texts to the
// cells of a record, and fills those of columns that only the page has. noun names one record.
func TableOf[T any](c *Context, of list.List, noun string, part List[T], add func(record T, cell Cells)) *Table {
	t := &Table{Caption: strings.ToUpper(noun[:1]) + noun[1:] + "s"}
	if part.Total != 0 || part.Next != "" {
		t.Pager = c.PagerOf(part.Total, part.Next, noun)
	}
	for _, column := range of.Columns {
		t.Head = append(t.Head, Column{Text: column.Title, Num: valueOf(column, nil).Num})
	}
	stays := slices.IndexFunc(of.Columns, func(c list.Column) bool { return c.Kind != list.KindTime && c.Kind != list.KindCount })
	t.Head[max(stays, 0)].Stays = true
	for _, item := range part.Items {
		text, err := x402.Encode(item)
		var record list.Record
		if err = errors.Join(err, json.Unmarshal(text, &record)); err != nil {
			panic(err) // records of the API are JSON objects
		}
		row, cells := make([]Cell, len(of.Columns)), Cells{}
		for i, column := range of.Columns {
			row[i], cells[column.Path] = valueOf(column, record), &row[i]
		}
		if add != nil {
			add(item, cells)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// valueOf returns the cell of a column.
func valueOf(column list.Column, record list.Record) Cell {
	text, currency := list.TextOf(record.At(column.Path)), list.TextOf(record["currency"])
	cell := Cell{Num: slices.Contains([]list.Kind{list.KindCredits, list.KindCount, list.KindMoney, list.KindCents, list.KindMicros}, column.Kind)}
	n, _ := strconv.ParseInt(text, 10, 64) // of kinds that have it
	switch {
	case column.Kind == list.KindFlag:
		cell.State = flagState(text == "true", strings.ToLower(column.Title))
	case column.Kind == list.KindTime:
		at, _ := toll.ParseTime(text)
		cell = At(at)
	case column.Kind == list.KindName:
		cell.Text = NameOf(text)
	case text == "":
	case column.Kind == list.KindID:
		cell.ID = plain.Name(text)
	case column.Kind == list.KindState:
		cell.State = StateOf(text)
	case column.Kind == list.KindCredits, column.Kind == list.KindCount:
		cell.Number = text
	case column.Kind == list.KindCents:
		cell.Sum = SumOf(toll.UnitsOfCents(n), currency)
	case column.Kind == list.KindMicros:
		cell.Text = (time.Duration(n) * time.Microsecond).Round(10 * time.Microsecond).String()
	case column.Kind == list.KindMoney:
		if units, err := toll.ParseUnits(text); err == nil {
			cell.Sum = SumOf(units, currency)
		} else {
			cell.Text = Grouped(text) + " base units" // a sum of more than an amount can be
		}
	default:
		cell.Text = plain.Name(text)
	}
	return cell
}

// tones are the colors of states, and of the first digits of HTTP statuses. Other states are quiet.
var tones = map[string]string{
	"active": "good", "confirmed": "good", "final": "good", "succeeded": "good", "settled": "good", "2": "good", "3": "good",
	"pending": "warn", "created": "warn", "signed": "warn", "sent": "warn", "included": "warn", "held": "warn", "4": "warn",
	"failed": "bad", "lapsed": "bad", "frozen": "bad", "5": "bad",
}

// StateOf returns a state in its color.
func StateOf[S ~string](state S) *State {
	text := strings.ToLower(string(state))
	return &State{text, cmp.Or(tones[text], tones[text[:min(len(text), 1)]], "quiet")}
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

// NameOf returns a name in plain text for a page, or "unnamed".
func NameOf(name string) string {
	if name = plain.Name(name); name == "" {
		return "unnamed"
	}
	return name
}

// ListedState says whether a plan or an agent is listed.
func ListedState(listed bool) *State { return flagState(listed, "listed") }

func flagState(is bool, word string) *State {
	if is {
		return &State{word, "good"}
	}
	return &State{"not " + word, "quiet"}
}
