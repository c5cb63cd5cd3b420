package page

import (
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// Chart is numbers of a period beside those of the one before, as bars, with the same numbers in a
// table. The service draws it: a page needs no script and no style of its own for it.
type Chart struct {
	Title string
	Width int // of the drawing, whose height is 100
	Bars  []chartBar
	Marks []string // of the scale, from the top
	Days  []string // below the bars: the first, one in the middle, the last
	Empty bool
	Table *Table
}

// chartBar is one step of a chart, in units of the drawing.
type chartBar struct {
	Text                   string // when the mouse is on it
	Left                   int
	BeforeAt, BeforeHeight int
	NowAt, NowHeight       int
	NowLeft                int
}

// barStep is the width of one step. Two bars and a gap are in it.
const barStep = 10

// NewChart returns the chart of a pair of a period; format says each number.
func NewChart(title string, p Period, of Pair, format func(*big.Int) string) *Chart {
	top := scaleOf(of)
	half := new(big.Int).Rsh(top, 1)
	c := &Chart{
		Title: title, Width: barStep * len(of.Now), Marks: []string{format(top), format(half), format(new(big.Int))},
		Empty: of.Now.Total().Sign() == 0 && of.Before.Total().Sign() == 0,
		Table: &Table{Caption: title, Head: []Column{{Text: "Time"}, {Text: "This period", Num: true}, {Text: "Previous period", Num: true}}},
	}
	height := func(n *big.Int) int {
		h := new(big.Int).Mul(n, big.NewInt(100))
		at := int(h.Quo(h, top).Int64())
		if at == 0 && n.Sign() > 0 {
			return 1 // something is seen
		}
		return at
	}
	for i := range of.Now {
		now, before := height(of.Now[i]), height(of.Before[i])
		text := p.label(i)
		c.Bars = append(c.Bars, chartBar{
			Text: fmt.Sprintf("%s: %s, previous period: %s", text, format(of.Now[i]), format(of.Before[i])),
			Left: i * barStep, NowLeft: i*barStep + barStep/2, BeforeAt: 100 - before, BeforeHeight: before, NowAt: 100 - now, NowHeight: now,
		})
		c.Table.Rows = append(c.Table.Rows, []Cell{
			{Text: text}, {Text: format(of.Now[i]), Num: true}, {Text: format(of.Before[i]), Num: true},
		})
	}
	c.Days = []string{p.label(0), p.label(len(of.Now) / 2), p.label(len(of.Now) - 1)}
	return c
}

// label is a step of the period as a chart says it.
func (p Period) label(i int) string {
	at := p.Since.Add(time.Duration(i) * p.Step)
	if p.Step == time.Hour {
		return at.Format("15:04")
	}
	return at.Format("Jan 2")
}

// scaleOf is the top of the scale: 2, 4 or 10 with zeros behind it, so that half of it is whole.
func scaleOf(of Pair) *big.Int {
	most := new(big.Int)
	for _, n := range append(append(Numbers{}, of.Now...), of.Before...) {
		if n.Cmp(most) > 0 {
			most = n
		}
	}
	for power := big.NewInt(1); ; power = new(big.Int).Mul(power, big.NewInt(10)) {
		for _, step := range []int64{2, 4, 10} {
			if top := new(big.Int).Mul(power, big.NewInt(step)); top.Cmp(most) >= 0 {
				return top
			}
		}
	}
}

// spark is a line of numbers in a drawing of 100 by 24, as the points of it; "" without numbers.
func spark(of Numbers) string {
	if of.Total().Sign() == 0 || len(of) < 2 {
		return ""
	}
	most := scaleOf(Pair{Now: of})
	var b strings.Builder
	for i, n := range of {
		h := new(big.Int).Mul(n, big.NewInt(22))
		fmt.Fprintf(&b, "%d,%d ", i*100/(len(of)-1), 23-h.Quo(h, most).Int64())
	}
	return strings.TrimSpace(b.String())
}

// Period is the range of times that a page is of. Each has one before it of the same length.
type Period struct {
	Key          string // of the usual range that is chosen, in the query string
	Own          bool   // from and to days that somebody chose
	Since, Until time.Time
	Step         time.Duration // an hour or a day
}

// periods are the ranges by their keys, in steps.
var periods = []struct {
	Key, Text string
	Steps     int
	Step      time.Duration
}{
	{"24h", "24 h", 24, time.Hour}, {"7d", "7 d", 7, 24 * time.Hour}, {"30d", "30 d", 30, 24 * time.Hour},
	{"90d", "90 d", 90, 24 * time.Hour},
}

// usualPeriod is the index of the range of a page that names none.
const usualPeriod = 2

// Bounds of a range that somebody chose: one that names no begin, the longest, and the longest in hours.
const (
	OwnUsual = 30 * 24 * time.Hour
	ownMost  = 366 * 24 * time.Hour
	ownHours = 48 * time.Hour
)

// PeriodOf returns the range of the page: the days since and until that its query names, or a usual
// range, which ends with the hour or day that has begun. It says on the page why days cannot be taken.
func PeriodOf(c *Context) Period {
	at := usualPeriod
	for i, p := range periods {
		if p.Key == c.R.URL.Query().Get("range") {
			at = i
		}
	}
	p := periods[at]
	if own, ok := ownPeriod(c, p.Key); ok {
		return own
	}
	until := c.Clock().UTC().Truncate(p.Step).Add(p.Step)
	return Period{Key: p.Key, Since: until.Add(-time.Duration(p.Steps) * p.Step), Until: until, Step: p.Step}
}

// ownPeriod returns the range of the days in the query. ok is false for none.
func ownPeriod(c *Context, key string) (p Period, ok bool) {
	q := c.R.URL.Query()
	if q.Get("since") == "" && q.Get("until") == "" {
		return p, false
	}
	p = Period{Key: key, Own: true, Step: 24 * time.Hour}
	var err1, err2 error
	p.Until = c.Clock().UTC().Truncate(p.Step).Add(p.Step)
	if day := q.Get("until"); day != "" {
		p.Until, err1 = time.Parse(time.DateOnly, day)
	}
	p.Since = p.Until.Add(-OwnUsual)
	if day := q.Get("since"); day != "" {
		p.Since, err2 = time.Parse(time.DateOnly, day)
	}
	length := p.Until.Sub(p.Since)
	if err1 != nil || err2 != nil || length <= 0 || length > ownMost {
		c.Status, c.Fault = http.StatusBadRequest, "Enter valid dates. The end date must be 1 to 366 days after the start date."
		return p, false
	}
	if length <= ownHours {
		p.Step = time.Hour
	}
	return p, true
}

// Before returns the period of the same length before this one.
func (p Period) Before() Period {
	p.Since, p.Until = p.Since.Add(p.Since.Sub(p.Until)), p.Since
	return p
}

func (p Period) steps() int { return int(p.Until.Sub(p.Since) / p.Step) }

// Segment is one of a few choices that lead to the same page.
type Segment struct {
	Text, To string
	Here     bool
}

// Ranges lead to the page with another range.
func Ranges(c *Context, of Period) []Segment {
	var out []Segment
	q := c.R.URL.Query()
	for _, name := range []string{"cursor", "form", "since", "until"} {
		q.Del(name)
	}
	for _, p := range periods {
		q.Set("range", p.Key)
		out = append(out, Segment{p.Text, c.R.URL.Path + "?" + q.Encode(), p.Key == of.Key && !of.Own})
	}
	return out
}

// RangeFields are fields for days of one's own, beside those that narrow the page.
func RangeFields(c *Context, p Period, beside []Field) []Field {
	fields, _ := c.Filters(Field{Name: "since", Label: "From", Type: "date"}, Field{Name: "until", Label: "Before", Type: "date"})
	return slices.Concat(beside, fields, []Field{{Name: "range", Type: "hidden", Value: p.Key}})
}

// Numbers are amounts by the steps of a period.
type Numbers []*big.Int

// Zeros returns 0 for each step of the period.
func (p Period) Zeros() Numbers {
	out := make(Numbers, p.steps())
	for i := range out {
		out[i] = new(big.Int)
	}
	return out
}

// Add puts an amount into the step of a time.
func (n Numbers) Add(p Period, at *toll.Time, amount *big.Int) {
	if at == nil {
		return
	}
	if i := int(at.Sub(p.Since) / p.Step); i >= 0 && i < len(n) {
		n[i].Add(n[i], amount)
	}
}

// Total returns the sum.
func (n Numbers) Total() *big.Int {
	sum := new(big.Int)
	for _, x := range n {
		sum.Add(sum, x)
	}
	return sum
}

// Pair is the numbers of a period and of the one before it.
type Pair struct{ Now, Before Numbers }

// Stat is the figure of a pair, with what it is compared to. more says whether more is good.
func (p Pair) Stat(label, unit string, format func(*big.Int) string, more bool) Stat {
	now, before := p.Now.Total(), p.Before.Total()
	s := Stat{Label: label, Value: format(now), Unit: unit, Note: "from " + format(before), Spark: spark(p.Now)}
	if before.Sign() == 0 {
		s.Note = "no data for the previous period"
		return s
	}
	s.Change = changed(now, before)
	if c := now.Cmp(before); c != 0 && (c > 0) == more {
		s.Tone = "good"
	} else if c != 0 {
		s.Tone = "bad"
	}
	return s
}

// changed is how much more a number is than another one above 0, in percent.
func changed(now, before *big.Int) string {
	n := new(big.Int).Sub(now, before)
	n.Mul(n, big.NewInt(1000)).Quo(n, before)
	sign, abs := "+", new(big.Int).Abs(n)
	switch n.Sign() {
	case 0:
		return "unchanged"
	case -1:
		sign = "−"
	}
	whole, tenth := new(big.Int).QuoRem(abs, big.NewInt(10), new(big.Int))
	if whole.Cmp(big.NewInt(100)) >= 0 {
		return sign + Grouped(whole.String()) + "%"
	}
	return fmt.Sprintf("%s%s.%s%%", sign, whole, tenth)
}

// PlainNumber is a number with a comma between thousands.
func PlainNumber(n *big.Int) string { return Grouped(n.String()) }
