package web

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// chart is numbers of a period beside those of the one before, as bars, with the same numbers in a
// table. The service draws it: a page needs no script and no style of its own for it.
type chart struct {
	Title string
	Width int // of the drawing, whose height is 100
	Bars  []chartBar
	Marks []string // of the scale, from the top
	Days  []string // below the bars: the first, one in the middle, the last
	Empty bool
	Table *table
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

func newChart(title string, p period, of pair, format func(*big.Int) string) *chart {
	top := scaleOf(of)
	half := new(big.Int).Rsh(top, 1)
	c := &chart{
		Title: title, Width: barStep * len(of.now), Marks: []string{format(top), format(half), format(new(big.Int))},
		Empty: of.now.total().Sign() == 0 && of.before.total().Sign() == 0,
		Table: &table{Caption: title, Head: []column{{Text: "Time"}, {Text: "Now", Num: true}, {Text: "Before", Num: true}}},
	}
	height := func(n *big.Int) int {
		h := new(big.Int).Mul(n, big.NewInt(100))
		at := int(h.Quo(h, top).Int64())
		if at == 0 && n.Sign() > 0 {
			return 1 // something is seen
		}
		return at
	}
	for i := range of.now {
		now, before := height(of.now[i]), height(of.before[i])
		text := p.label(i)
		c.Bars = append(c.Bars, chartBar{
			Text: fmt.Sprintf("%s: %s, before: %s", text, format(of.now[i]), format(of.before[i])),
			Left: i * barStep, NowLeft: i*barStep + barStep/2, BeforeAt: 100 - before, BeforeHeight: before, NowAt: 100 - now, NowHeight: now,
		})
		c.Table.Rows = append(c.Table.Rows, []cell{
			{Text: text}, {Text: format(of.now[i]), Num: true}, {Text: format(of.before[i]), Num: true},
		})
	}
	c.Days = []string{p.label(0), p.label(len(of.now) / 2), p.label(len(of.now) - 1)}
	return c
}

// label is a step of the period as a chart says it.
func (p period) label(i int) string {
	at := p.Since.Add(time.Duration(i) * p.Step)
	if p.Step == time.Hour {
		return at.Format("15:04")
	}
	return at.Format("2 Jan")
}

// scaleOf is the top of the scale: 2, 4 or 10 with zeros behind it, so that half of it is whole.
func scaleOf(of pair) *big.Int {
	most := new(big.Int)
	for _, n := range append(append(numbers{}, of.now...), of.before...) {
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
func spark(of numbers) string {
	if of.total().Sign() == 0 || len(of) < 2 {
		return ""
	}
	most := scaleOf(pair{now: of})
	var b strings.Builder
	for i, n := range of {
		h := new(big.Int).Mul(n, big.NewInt(22))
		fmt.Fprintf(&b, "%d,%d ", i*100/(len(of)-1), 23-h.Quo(h, most).Int64())
	}
	return strings.TrimSpace(b.String())
}
