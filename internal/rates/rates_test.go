package rates_test

import (
	"errors"
	"maps"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rates"
)

const most = math.MaxInt64

type counts = map[rates.Quantity]int64

var own = []rates.Quantity{"results", "pages"}

func table(t must.TB, text string) rates.Table {
	t.Helper()
	return must.Get(rates.ParseTable([]byte(text), own))(t)
}

// Rows of the tests.
const (
	small  = `{"per":1000000,"input":150000,"cache_read":75000,"output":600000}`
	tiered = `{"per":1000000,"input":2500000,"output":10000000,"above":{"input":200000,"rates":{"input":5000000,"output":15000000}}}`
	cached = `{"per":1000000,"input":2500000,"cache_read":1250000,"output":10000000,"above":{"input":200000,"rates":{"input":5000000,"output":15000000}}}`
	search = `{"base":100,"results":50,"max":5000}`
)

func TestPrice(t *testing.T) {
	for _, c := range []struct {
		name, row        string
		counts           counts
		hold             toll.Credits
		price, uncovered toll.Credits
	}{
		{"all rates", small, counts{"input": 1000, "cache_read": 200, "output": 500}, most, 150 + 15 + 300, 0},
		{"part of a credit", small, counts{"input": 1, "output": 0}, most, 1, 0},
		{"one rounding", small, counts{"input": 1, "cache_read": 1, "output": 1}, most, 1, 0}, // 0.825
		{"just above a credit", small, counts{"input": 3, "output": 1}, most, 2, 0},           // 1.05
		{"exact credit", small, counts{"input": 20, "output": 0}, most, 3, 0},
		{"zero", small, counts{"input": 0, "output": 0}, most, 0, 0},
		{"rate of input", small, counts{"input": 0, "cache_write": 1000, "cache_write_1h": 2000, "input_audio": 40, "input_image": 60, "output": 0}, most, 465, 0},
		{"rate of output", small, counts{"input": 0, "output": 0, "reasoning": 100, "output_audio": 30, "output_image": 70}, most, 120, 0},
		{"unknown quantities", small, counts{"input": 1000, "output": 0, "requests": 9, "seconds": 9, "bytes": 9, "results": 9, "other": 9}, most, 150, 0},
		{"no rate of output", `{"input":2}`, counts{"input": 3, "output": 1000, "reasoning": 1000}, most, 6, 0},
		{"rates of classes alone", `{"reasoning":2,"cache_read":3}`, counts{"input": 9, "output": 9, "reasoning": 5, "cache_read": 7}, most, 31, 0},
		{"a zero rate of a class", `{"input":2,"cache_read":0}`, counts{"input": 3, "cache_read": 1000}, most, 6, 0},

		{"at the threshold", tiered, counts{"input": 200_000, "output": 1000}, most, 510_000, 0},
		{"above", tiered, counts{"input": 200_001, "output": 1000}, most, 1_015_005, 0},
		{"all inputs count", tiered, counts{"input": 150_000, "cache_read": 50_001, "output": 1000}, most, 1_015_005, 0},
		{"outputs do not count", tiered, counts{"input": 1, "output": 300_000}, most, 3_000_003, 0}, // 2.5 + 3,000,000
		{"rate of the row", cached, counts{"input": 150_000, "cache_read": 50_001, "output": 1000}, most, 827_502, 0},
		{"input that overflows", tiered, counts{"input": most, "cache_read": most, "output": 1}, most, toll.MaxCredits, 0},

		{"results", search, counts{"results": 10}, 5000, 600, 0},
		{"no results", search, counts{"results": 0}, 5000, 100, 0},
		{"above the hold", search, counts{"results": 200}, 5000, 5000, 5100},
		{"requests, seconds, bytes", `{"base":1,"per":10,"requests":20,"seconds":30,"bytes":1}`, counts{"requests": 1, "seconds": 2, "bytes": 11}, most, 1 + 2 + 6 + 2, 0},
		{"base alone", `{"base":7}`, nil, 7, 7, 0},
		{"overflow", `{"input":1000000000000000}`, counts{"input": most}, most, toll.MaxCredits, 0},
		{"overflow of base", `{"base":1,"input":1}`, counts{"input": most}, most, toll.MaxCredits, 0},
		{"overflow above the hold", `{"input":1000000000000000}`, counts{"input": most}, 10, 10, toll.MaxCredits - 10},
		{"largest credits", `{"per":1000000000000,"input":1000000000000}`, counts{"input": most}, most, toll.MaxCredits, 0},

		{"missing output", small, counts{"input": 1000}, 777, 777, 0},
		{"missing input", small, counts{"output": 1000}, 777, 777, 0},
		{"missing input with a class", small, counts{"cache_read": 1, "output": 1000}, 777, 777, 0},
		{"no usage", small, nil, 777, 777, 0},
		{"missing results", search, counts{}, 5000, 5000, 0},
		{"missing with a zero rate", `{"input":0,"output":3}`, counts{"output": 5}, most, 15, 0},
		{"missing input decides above", `{"output":3,"above":{"input":10,"rates":{"output":4}}}`, counts{"output": 5}, 777, 777, 0},
		{"a class of the input does not decide above", `{"output":3,"above":{"input":10,"rates":{"output":4}}}`, counts{"cache_read": 5, "output": 5}, 777, 777, 0},
		{"missing output with a rate above", `{"input":1,"above":{"input":10,"rates":{"output":4}}}`, counts{"input": 5, "reasoning": 5}, 777, 777, 0},
		{"rates above alone", `{"above":{"input":10,"rates":{"input":4}}}`, counts{"input": 11}, most, 44, 0},
		{"missing with a rate above", `{"input":1,"above":{"input":10,"rates":{"results":4}}}`, counts{"input": 5}, 777, 777, 0},
		{"missing group", `{"output_image":3}`, counts{"input": 5}, 777, 777, 0},
		{"a class of the group", `{"output_image":3}`, counts{"output_image": 5}, most, 15, 0},
		{"another class of the group", `{"output_image":3}`, counts{"output": 5}, most, 0, 0},
		{"min", `{"input":1,"output":3,"missing":"min"}`, counts{"input": 5}, 777, 5, 0},
		{"min of one", `{"input":1,"output":3,"missing":{"output":"min"}}`, counts{"output": 5}, 777, 777, 0},
		{"max over min", `{"input":1,"output":3,"missing":{"input":"min","output":"max"}}`, nil, 777, 777, 0},

		{"negative", small, counts{"input": -1, "output": 1000}, 777, 777, 0},
		{"negative without a rate", small, counts{"input": 1, "output": 1, "seconds": -1}, 777, 777, 0},
		{"negative and refused", `{"input":1,"output":3,"missing":"refuse"}`, counts{"input": -1}, 777, 777, 0},
	} {
		price, uncovered, err := table(t, "["+c.row+"]")[0].Price(rates.Usage{Counts: c.counts}, c.hold)
		if price != c.price || uncovered != c.uncovered || err != nil {
			t.Errorf("%s: %d, uncovered %d, %v; want %d, %d", c.name, price, uncovered, err, c.price, c.uncovered)
		}
	}

	price, uncovered, err := table(t, "["+small+"]")[0].Price(rates.Usage{Counts: counts{"input": 1, "output": 1}, Bad: true}, 777)
	if price != 777 || uncovered != 0 || err != nil {
		t.Errorf("bad usage: %d, %d, %v", price, uncovered, err)
	}
}

func TestPrice_Refuse(t *testing.T) {
	for _, row := range []string{
		`{"input":1,"output":3,"missing":"refuse"}`, `{"input":1,"output":3,"missing":{"output":"refuse"}}`,
		`{"input":1,"output":3,"missing":{"input":"max","output":"refuse"}}`, `{"output_image":3,"missing":{"output":"refuse"}}`,
	} {
		price, uncovered, err := table(t, "["+row+"]")[0].Price(rates.Usage{}, 777)
		if price != 0 || uncovered != 0 || !errors.Is(err, rates.ErrRefused) {
			t.Errorf("%s: %d, %d, %v", row, price, uncovered, err)
		}
	}
	_, _, err := table(t, `[{"output":3,"missing":"refuse"}]`)[0].Price(rates.Usage{Counts: counts{"input": 1}}, 777)
	if err == nil || !strings.Contains(err.Error(), "output is missing") {
		t.Errorf("the error does not name the quantity: %v", err)
	}
}

func TestHold(t *testing.T) {
	const dear = `{"input":2,"cache_write":3,"input_audio":1,"output":5,"reasoning":7,"output_audio":4}`
	const discount = `{"input":10,"output":1,"above":{"input":100,"rates":{"input":2}}}`
	for _, c := range []struct {
		name, row string
		b         rates.Bounds
		want      toll.Credits
	}{
		{"plain", small, rates.Bounds{Input: 1000, Output: 500, N: 1}, 450},
		{"rounded once", small, rates.Bounds{Input: 1, Output: 1, N: 1}, 1},
		{"answers", small, rates.Bounds{Input: 1000, Output: 500, N: 3}, 1050},
		{"no answers are one", small, rates.Bounds{Input: 1000, Output: 500}, 450},
		{"negative bounds are 0", `{"base":3,"input":1,"output":1,"results":1}`, rates.Bounds{Input: -1, Output: -1, N: -1, Own: counts{"results": -1}}, 3},
		{"largest rates", dear, rates.Bounds{Input: 10, Output: 100, N: 1}, 730},
		{"at the threshold", tiered, rates.Bounds{Input: 200_000, Output: 1000, N: 1}, 510_000},
		{"above", tiered, rates.Bounds{Input: 200_001, Output: 1000, N: 1}, 1_015_005},
		{"discount below the threshold", discount, rates.Bounds{Input: 120, Output: 5, N: 1}, 1005},
		{"discount far above", discount, rates.Bounds{Input: 600, Output: 5, N: 1}, 1205},
		{"at most max", `{"base":1,"input":1,"max":50}`, rates.Bounds{Input: 50}, 50},
		{"below max", `{"base":1,"input":1,"max":50}`, rates.Bounds{Input: 48}, 49},
		{"no bound of results", search, rates.Bounds{}, 5000},
		{"bound of results", search, rates.Bounds{Own: counts{"results": 10}}, 600},
		{"neither bound nor max", `{"results":50}`, rates.Bounds{}, toll.MaxCredits},
		{"a zero rate has no bound", `{"base":4,"results":0}`, rates.Bounds{}, 4},
		{"a rate above", `{"input":1,"above":{"input":10,"rates":{"results":4}}}`, rates.Bounds{Input: 11, Own: counts{"results": 6}}, 35},
		{"requests", `{"base":1,"requests":2,"seconds":3,"bytes":4}`, rates.Bounds{Own: counts{"requests": 1, "seconds": 10, "bytes": 100}}, 433},
		{"overflow", `{"input":1000000000000000,"output":1000000000000000}`, rates.Bounds{Input: most, Output: most, N: most}, toll.MaxCredits},
	} {
		if got := table(t, "["+c.row+"]")[0].Hold(c.b); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := (&rates.Row{Rates: counts{"input": 2}}).Hold(rates.Bounds{Input: 4}); got != 8 {
		t.Errorf("per 0 is not 1: %d", got)
	}
}

func TestAfford(t *testing.T) {
	const row = `{"base":10,"input":1,"output":2,"min_output":5}`
	for _, c := range []struct {
		name, row string
		b         rates.Bounds
		available toll.Credits
		output    int64
		ok        bool
	}{
		{"all", row, rates.Bounds{Input: 20, Output: 100, N: 1}, 230, 100, true},
		{"one credit less", row, rates.Bounds{Input: 20, Output: 100, N: 1}, 229, 99, true},
		{"answers", row, rates.Bounds{Input: 20, Output: 100, N: 4}, 229, 24, true}, // 199 / 8
		{"the minimum", row, rates.Bounds{Input: 20, Output: 100, N: 1}, 40, 5, true},
		{"below the minimum", row, rates.Bounds{Input: 20, Output: 100, N: 1}, 39, 4, false},
		{"a small limit of the caller", row, rates.Bounds{Input: 20, Output: 3, N: 1}, 36, 3, true},
		{"a small limit that does not fit", row, rates.Bounds{Input: 20, Output: 3, N: 1}, 35, 2, false},
		{"less than the input", row, rates.Bounds{Input: 20, Output: 100, N: 1}, 29, 0, false},
		{"no rate of output", search, rates.Bounds{Output: 100, Own: counts{"results": 4}}, 300, 100, true},
		{"no rate of output and too little", search, rates.Bounds{Output: 100, Own: counts{"results": 4}}, 299, 0, false},
		{"at most max", `{"output":2,"max":50}`, rates.Bounds{Output: 1000, N: 1}, 50, 1000, true},
		{"below max", `{"output":2,"max":50,"min_output":0}`, rates.Bounds{Output: 1000, N: 1}, 49, 24, true},
		{"per", `{"per":1000,"output":1}`, rates.Bounds{Output: most, N: 1}, 2, 2000, true},
		{"large limits", `{"per":1000000000000,"output":1}`, rates.Bounds{Output: most, N: 1}, 9_223_371, 9_223_371_000_000_000_000, true},
		{"nothing", `{"output":1,"min_output":0}`, rates.Bounds{Output: 10, N: 1}, 0, 0, true},
		{"negative", `{"output":1,"min_output":0}`, rates.Bounds{Output: -10, N: 1}, 0, 0, true},
	} {
		if output, ok := table(t, "["+c.row+"]")[0].Afford(c.b, c.available); output != c.output || ok != c.ok {
			t.Errorf("%s: %d %v, want %d %v", c.name, output, ok, c.output, c.ok)
		}
	}
}

func TestExample(t *testing.T) {
	for _, c := range []struct {
		row   string
		usage counts
		price toll.Credits
	}{
		{small, counts{"input": 1000, "output": 500}, 450},
		{tiered, counts{"input": 1000, "output": 500}, 7500},
		{`{"input":1,"above":{"input":999,"rates":{"input":2}}}`, counts{"input": 1000}, 2000},
		{`{"output":3,"above":{"input":999,"rates":{"output":5}}}`, counts{"input": 1000, "output": 500}, 2500},
		{`{"input":1,"output":1,"max_input":7,"max_output":5}`, counts{"input": 7, "output": 5}, 12},
		{`{"base":2,"reasoning":3,"output_image":4,"cache_write":1}`, counts{"cache_write": 1000, "reasoning": 500}, 2502},
		{`{"base":2,"input":0,"results":0}`, counts{}, 2},
		{`{"per":10,"requests":20,"seconds":30,"bytes":1,"results":50}`, counts{"requests": 1, "seconds": 10, "bytes": 1_000_000, "results": 10}, 2 + 30 + 100_000 + 50},
		{search, counts{"results": 10}, 600},
		{`{"base":100,"results":50,"max":300,"missing":"refuse"}`, counts{"results": 10}, 300},
	} {
		usage, price := table(t, "["+c.row+"]")[0].Example()
		if !maps.Equal(usage.Counts, c.usage) || usage.Bad || price != c.price {
			t.Errorf("%s: %v, %d; want %v, %d", c.row, usage, price, c.usage, c.price)
		}
	}
}

// The usage of an example is always complete.
func TestExample_IsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRow(t)
		r.MaxInput, r.MaxOutput = 200_000, 16_384
		r.Missing = map[rates.Quantity]rates.Policy{}
		for _, q := range quantities {
			r.Missing[q] = rates.PolicyRefuse
		}
		usage, got := r.Example()
		if want := reference(r, usage); got != want {
			t.Fatalf("%v costs %d, want %d", usage, got, want)
		}
		if _, _, err := r.Price(usage, toll.MaxCredits); err != nil {
			t.Fatal(usage, err)
		}
	})
}

func TestFind(t *testing.T) {
	rows := table(t, `[
		{"when":{"model":"small-*","service_tier":"flex"},"base":1},
		{"when":{"model":"small-*"},"base":2},
		{"when":{"model":"big-?"},"base":3},
		{"when":{"model":"*-mini-*"},"base":4},
		{"when":{"model":"[ab]\\*"},"base":5},
		{"when":{"service_tier":"*"},"base":6},
		{"when":{"model":"*??bc"},"base":7}]`)
	long := strings.Repeat("x", 1025)
	for _, c := range []struct {
		members map[string]string
		base    int64
	}{
		{map[string]string{"model": "small-1", "service_tier": "flex"}, 1},
		{map[string]string{"model": "small-1", "service_tier": "fast"}, 2},
		{map[string]string{"model": "small-"}, 2},
		{map[string]string{"model": "Small-1"}, 0},
		{map[string]string{"model": "a-small-1"}, 0},
		{map[string]string{"model": "big-1"}, 3},
		{map[string]string{"model": "big-é"}, 3},
		{map[string]string{"model": "big-\xff"}, 3},
		{map[string]string{"model": "big-"}, 0},
		{map[string]string{"model": "big-12"}, 0},
		{map[string]string{"model": "a-mini-mini-b"}, 4},
		{map[string]string{"model": "a-mini"}, 0},
		{map[string]string{"model": "cd-bc"}, 7},
		{map[string]string{"model": "€bc"}, 0},
		{map[string]string{"model": `[ab]\x`}, 5},
		{map[string]string{"model": "a"}, 0},
		{map[string]string{"service_tier": ""}, 6},
		{map[string]string{"other": "small-1"}, 0},
		{nil, 0},
		{map[string]string{"model": "small-" + long[:1018], "service_tier": "fast"}, 2},
		{map[string]string{"model": "small-" + long[:1019], "service_tier": "fast"}, 0}, // longer than 1,024 bytes
		{map[string]string{"model": "other", "service_tier": long}, 0},
		{map[string]string{"model": "small-1", "other": long}, 2},
	} {
		row := rows.Find(c.members)
		if base := int64(0); row != nil && row.Base != c.base || row == nil && base != c.base {
			t.Errorf("%.80v: %+v, want the row with base %d", c.members, row, c.base)
		}
	}
	if row := table(t, `[{"base":1}]`).Find(nil); row == nil || row.Base != 1 {
		t.Error("a row without when does not fit every request")
	}
}

// The work for a glob is bounded by the product of the lengths.
func TestFind_Hostile(t *testing.T) {
	rows := make(rates.Table, 200)
	for i := range rows {
		rows[i].When = map[string]string{"model": strings.Repeat("*a", 63) + "b"}
	}
	start := time.Now()
	if rows.Find(map[string]string{"model": strings.Repeat("a", 1024)}) != nil {
		t.Error("a glob fits a text that does not end with its last letter")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// parents has the quantity whose rate a class takes, as the reference of the properties.
var parents = map[rates.Quantity]rates.Quantity{
	"cache_read": "input", "cache_write": "input", "cache_write_1h": "input", "input_audio": "input", "input_image": "input",
	"reasoning": "output", "output_audio": "output", "output_image": "output",
}

var quantities = []rates.Quantity{
	"input", "cache_read", "cache_write", "cache_write_1h", "input_audio", "input_image",
	"output", "reasoning", "output_audio", "output_image", "requests", "seconds", "bytes", "results", "pages",
}

func isInput(q rates.Quantity) bool  { return q == "input" || parents[q] == "input" }
func isOutput(q rates.Quantity) bool { return q == "output" || parents[q] == "output" }

// upTo draws a number from 0 to most, often near the ends.
func upTo(most int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, min(most, 5)), rapid.Int64Range(0, most), rapid.Int64Range(max(most-3, 0), most))
}

func someRates(t *rapid.T, name string) counts {
	of := rapid.SliceOfNDistinct(rapid.SampledFrom(quantities), 1, 6, rapid.ID).Draw(t, name)
	m := counts{}
	for _, q := range of {
		m[q] = upTo(rapid.SampledFrom([]int64{10, 1e6, 1e15}).Draw(t, "size")).Draw(t, string(q))
	}
	return m
}

func someRow(t *rapid.T) *rates.Row {
	r := &rates.Row{
		Per: rapid.SampledFrom([]int64{1, 7, 1e6, 1e12}).Draw(t, "per"), Base: upTo(1e15).Draw(t, "base"),
		Rates: someRates(t, "rates"), MinOutput: upTo(1000).Draw(t, "min_output"),
	}
	if rapid.Bool().Draw(t, "has above") {
		r.Above = &rates.Above{Input: upTo(300).Draw(t, "threshold"), Rates: someRates(t, "above")}
	}
	return r
}

// someUsage draws a usage with every quantity, within bounds.
func someUsage(t *rapid.T) (rates.Usage, rates.Bounds) {
	size := rapid.SampledFrom([]int64{5, 500, 1e9, most}).Draw(t, "size")
	b := rates.Bounds{
		Input: upTo(size).Draw(t, "input bound"), Output: upTo(size).Draw(t, "output bound"), N: rapid.Int64Range(1, 4).Draw(t, "n"),
		Own: counts{},
	}
	input := b.Input
	output := new(big.Int).Mul(big.NewInt(b.Output), big.NewInt(b.N))
	u := rates.Usage{Counts: counts{}}
	for _, q := range rapid.Permutation(quantities).Draw(t, "order") {
		switch {
		case isInput(q):
			u.Counts[q] = upTo(input).Draw(t, string(q))
			input -= u.Counts[q]
		case isOutput(q):
			left := int64(most)
			if output.IsInt64() {
				left = output.Int64()
			}
			u.Counts[q] = upTo(left).Draw(t, string(q))
			output.Sub(output, big.NewInt(u.Counts[q]))
		default:
			b.Own[q] = upTo(size).Draw(t, "bound")
			u.Counts[q] = upTo(b.Own[q]).Draw(t, string(q))
		}
	}
	return u, b
}

// reference computes a price with fractions.
func reference(r *rates.Row, u rates.Usage) toll.Credits {
	whole := new(big.Int)
	for q, n := range u.Counts {
		if isInput(q) {
			whole.Add(whole, big.NewInt(n))
		}
	}
	of := maps.Clone(r.Rates)
	if r.Above != nil && whole.Cmp(big.NewInt(r.Above.Input)) > 0 {
		maps.Copy(of, r.Above.Rates)
	}
	total := new(big.Rat).SetInt64(r.Base)
	for q, n := range u.Counts {
		rate, ok := of[q]
		if !ok {
			rate = of[parents[q]]
		}
		units := new(big.Rat).SetFrac(big.NewInt(rate), big.NewInt(r.Per))
		total.Add(total, units.Mul(units, new(big.Rat).SetInt64(n)))
	}
	up := new(big.Int).Add(total.Num(), new(big.Int).Sub(total.Denom(), big.NewInt(1)))
	if up.Div(up, total.Denom()); up.IsInt64() {
		return toll.Credits(up.Int64())
	}
	return toll.MaxCredits
}

func price(t must.TB, r *rates.Row, u rates.Usage, hold toll.Credits) (price, uncovered toll.Credits) {
	price, uncovered, err := r.Price(u, hold)
	must.Do(t, err)
	return price, uncovered
}

func TestPrice_Reference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRow(t)
		u, _ := someUsage(t)
		hold := toll.Credits(upTo(most).Draw(t, "hold"))
		got, uncovered := price(t, r, u, hold)
		if want := reference(r, u); got != min(want, hold) || uncovered != want-got {
			t.Fatalf("%d and uncovered %d; want %d with the hold %d", got, uncovered, want, hold)
		}
	})
}

func TestHold_BoundsPrice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRow(t)
		u, b := someUsage(t)
		hold := r.Hold(b)
		if cost, _ := price(t, r, u, toll.MaxCredits); cost > hold || hold < toll.Credits(r.Base) {
			t.Fatalf("a usage within the bounds costs %d, and the hold is %d", cost, hold)
		}
		r.Max = toll.Credits(upTo(most).Draw(t, "max")).Ptr()
		if got := r.Hold(b); got != min(hold, *r.Max) {
			t.Fatalf("hold %d, want at most %d of %d", got, *r.Max, hold)
		}
	})
}

// TestHold_IsReached compares the hold with the largest price of all usages within small bounds.
func TestHold_IsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &rates.Row{Per: rapid.Int64Range(1, 9).Draw(t, "per"), Base: rapid.Int64Range(0, 3).Draw(t, "base"), Rates: counts{}}
		classes := []rates.Quantity{"input", "cache_read", "output", "reasoning", "results"}
		draw := func(into counts, name string) {
			for _, q := range classes {
				if n := rapid.Int64Range(-4, 9).Draw(t, name+string(q)); n >= 0 {
					into[q] = n
				}
			}
		}
		draw(r.Rates, "")
		if rapid.Bool().Draw(t, "has above") {
			r.Above = &rates.Above{Input: rapid.Int64Range(0, 4).Draw(t, "threshold"), Rates: counts{}}
			draw(r.Above.Rates, "above ")
		}
		b := rates.Bounds{
			Input: rapid.Int64Range(0, 4).Draw(t, "input"), Output: rapid.Int64Range(0, 2).Draw(t, "output"), N: rapid.Int64Range(1, 2).Draw(t, "n"),
			Own: counts{"results": rapid.Int64Range(0, 2).Draw(t, "results")},
		}
		highest := toll.Credits(0)
		var try func(i int, u counts, input, output int64)
		try = func(i int, u counts, input, output int64) {
			if i == len(classes) {
				p, _ := price(t, r, rates.Usage{Counts: u}, toll.MaxCredits)
				highest = max(highest, p)
				return
			}
			q := classes[i]
			left := b.Own[q]
			if isInput(q) {
				left = input
			} else if isOutput(q) {
				left = output
			}
			for n := range left + 1 {
				u[q] = n
				switch {
				case isInput(q):
					try(i+1, u, input-n, output)
				case isOutput(q):
					try(i+1, u, input, output-n)
				default:
					try(i+1, u, input, output)
				}
			}
		}
		try(0, counts{}, b.Input, b.Output*b.N)
		if got := r.Hold(b); got != highest {
			t.Fatalf("hold %d, and the largest price is %d", got, highest)
		}
	})
}

func TestPrice_Monotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRow(t)
		if r.Above != nil { // a row with discounts is not monotone at its threshold
			for q, rate := range r.Above.Rates {
				r.Above.Rates[q] = max(rate, r.Rates[q], r.Rates[parents[q]])
			}
			for q, rate := range r.Rates {
				r.Above.Rates[q] = max(r.Above.Rates[q], rate)
			}
			for q, parent := range parents { // a new rate of the parent would not apply to a class with a rate
				if rate, ok := r.Above.Rates[q]; ok {
					r.Above.Rates[q] = max(rate, r.Rates[parent])
				}
			}
		}
		u, _ := someUsage(t)
		before, _ := price(t, r, u, toll.MaxCredits)
		q := rapid.SampledFrom(quantities).Draw(t, "more of")
		u.Counts[q] += upTo(most-u.Counts[q]).Draw(t, "more")
		if after, _ := price(t, r, u, toll.MaxCredits); after < before {
			t.Fatalf("more %s lowers the price from %d to %d", q, before, after)
		}
	})
}

func TestAfford_IsLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRow(t)
		_, b := someUsage(t)
		if rapid.Bool().Draw(t, "has max") {
			r.Max = toll.Credits(upTo(most).Draw(t, "max")).Ptr()
		}
		hold := func(output int64) toll.Credits { c := b; c.Output = output; return r.Hold(c) }
		available := rapid.OneOf(
			rapid.Map(upTo(most), func(n int64) toll.Credits { return toll.Credits(n) }),
			rapid.Map(upTo(b.Output), hold), // often exactly a hold
			rapid.Map(upTo(b.Output), func(n int64) toll.Credits { return max(hold(n)-1, 0) }),
		).Draw(t, "available")
		output, ok := r.Afford(b, available)
		switch {
		case output < 0 || output > b.Output:
			t.Fatalf("limit %d of %d", output, b.Output)
		case hold(0) > available:
			if ok || output != 0 {
				t.Fatalf("limit %d %v, and the input alone is too much", output, ok)
			}
		case hold(output) > available || output < b.Output && hold(output+1) <= available:
			t.Fatalf("limit %d of %d is not the largest: %d credits, next %d, available %d", output, b.Output, hold(output), hold(output+1), available)
		case ok != (output == b.Output || output >= r.MinOutput):
			t.Fatalf("limit %d of %d is %v with the minimum %d", output, b.Output, ok, r.MinOutput)
		}
	})
}

// TestFind_Reference compares globs with a matcher that tries every split.
func TestFind_Reference(t *testing.T) {
	var fits func(glob, text []rune) bool
	fits = func(glob, text []rune) bool {
		switch {
		case len(glob) == 0:
			return len(text) == 0
		case glob[0] == '*':
			return fits(glob[1:], text) || len(text) > 0 && fits(glob, text[1:])
		}
		return len(text) > 0 && (glob[0] == '?' || glob[0] == text[0]) && fits(glob[1:], text[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.SliceOfN(rapid.SampledFrom([]rune("aab€*??")), 0, 10).Draw(t, "glob")
		text := rapid.SliceOfN(rapid.SampledFrom([]rune("aab€€é*?")), 0, 12).Draw(t, "text")
		rows := rates.Table{{When: map[string]string{"model": string(glob)}}}
		if got := rows.Find(map[string]string{"model": string(text)}) != nil; got != fits(glob, text) {
			t.Fatalf("%q of %q: %v", string(glob), string(text), got)
		}
	})
}

func BenchmarkRow(b *testing.B) {
	r := &table(b, "["+tiered+"]")[0]
	u := rates.Usage{Counts: counts{"input": 150_000, "cache_read": 50_001, "output": 1000, "reasoning": 20}}
	bounds := rates.Bounds{Input: 200_000, Output: 16_384, N: 1}
	b.Run("Hold", func(b *testing.B) {
		for b.Loop() {
			r.Hold(bounds)
		}
	})
	b.Run("Afford", func(b *testing.B) {
		for b.Loop() {
			r.Afford(bounds, 600_000)
		}
	})
	b.Run("Price", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = r.Price(u, toll.MaxCredits)
		}
	})
}
