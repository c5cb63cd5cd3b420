package web

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
)

// Operation is how a service does, for the persons who run it.
type Operation struct {
	Checks []Check
	Loops  []Loop
	Keys   []SigningKey
	Limits []Limit
	Unmatched
}

// Check is a part of the service that was looked at. Status is ok, warning or failed; Detail says what to do.
type Check struct{ Name, Status, Detail string }

// Loop is work in the background.
type Loop struct {
	Name    string
	Turns   uint64
	Last    time.Time // end of the last turn
	Failing time.Time // since when turns fail; zero: they do not
	Error   string    // of the last turn
}

// SigningKey is a key with which the service signs.
type SigningKey struct {
	ID, For       string
	Made, Retired time.Time // Retired is zero for the one that signs
}

// Limit is a bound that the operator can set.
type Limit struct {
	Name, Text string
}

// Unmatched counts payments that no order explains, by rail.
type Unmatched struct{ Cards, Crypto int64 }

// operatorPages are for the operators of the service, in whatever workspace they are.
func operatorPages() []areaPage {
	return []areaPage{{
		Path: "/operator", Title: "Service", Template: "sheet", Group: groupOperate, Nav: "Service", Icon: "server",
		Right: toll.RightRead, Persons: true, Operators: true, Get: (*visit).showOperation,
	}}
}

func (v *visit) showOperation() {
	o, err := v.w.Operation(v.ctx())
	if v.failed("service", err) {
		return
	}
	s := sheet{Lead: "How the service does. toll doctor and the metrics have the same facts."}
	checks := &table{Caption: "Health", Head: []column{{Text: "Part"}, {Text: "State"}, {Text: "What to know, and what to do"}}}
	for _, c := range o.Checks {
		tone := map[string]string{"ok": "good", "warning": "warn", "failed": "bad"}[c.Status]
		checks.Rows = append(checks.Rows, []cell{{Text: c.Name}, {State: &state{c.Status, tone}}, {Text: c.Detail}})
		if c.Status != "ok" {
			s.Tasks = append(s.Tasks, task{Tone: tone, Title: c.Name, Text: c.Detail})
		}
	}
	if n := o.Cards + o.Crypto; n > 0 {
		s.Tasks = append(s.Tasks, task{
			Tone: "bad", Title: count(n, "payment") + " without an order",
			Text: "toll orders unmatched lists them. Refund each, or grant its credits.",
		})
	}
	loops := &table{Caption: "Background work", Head: []column{{Text: "Loop"}, {Text: "State"}, {Text: "Last turn"}, {Text: "Turns", Num: true}}}
	for _, l := range o.Loops {
		row := []cell{{Text: l.Name}, {State: &state{"works", "good"}}, at(l.Last), credits(toll.Credits(l.Turns))}
		if l.Error != "" {
			row[1] = cell{State: &state{"fails", "bad"}, Sub: plain.Name(l.Error)}
			s.Tasks = append(s.Tasks, task{Tone: "bad", Title: l.Name + " fails", Text: plain.Name(l.Error)})
		}
		loops.Rows = append(loops.Rows, row)
	}
	keys := &table{Caption: "Signing keys", Head: []column{{Text: "Key"}, {Text: "Signs"}, {Text: "State"}, {Text: "Made"}}}
	for _, k := range o.Keys {
		is := &state{"signs", "good"}
		if !k.Retired.IsZero() {
			is = &state{"retired", "quiet"}
		}
		keys.Rows = append(keys.Rows, []cell{{ID: k.ID}, {Text: k.For}, {State: is}, at(k.Made)})
	}
	for _, l := range o.Limits {
		s.Facts = append(s.Facts, fact{l.Name, cell{Text: l.Text}})
	}
	s.Parts = []part{{"Health", checks}, {"Background work", loops}, {"Signing keys", keys}}
	v.sheet("Service", s)
}
