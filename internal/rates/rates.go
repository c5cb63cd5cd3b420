// Package rates prices calls by their usage. A [Table] has a [Row] of rates for each kind of call. Before a call, [Row.Hold] is its
// largest price and [Row.Afford] the output that a balance pays for. After the call, [Row.Price] is the price of the reported usage.
//
// All sums are exact, and each price is rounded up once. Results above [toll.MaxCredits] are [toll.MaxCredits]. The functions are
// pure: they have no clock, no goroutines, and no I/O, and may be called concurrently.
package rates

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"unicode/utf8"

	"github.com/tollhq/toll"
)

// Quantity names one class of usage. Classes are disjoint: each unit is counted in one of them.
type Quantity string

// Quantities that every route knows. The meter of a route may add its own.
const (
	Input        Quantity = "input"          // uncached tokens of the request
	CacheRead    Quantity = "cache_read"     // tokens of the request that were read from a cache
	CacheWrite   Quantity = "cache_write"    // tokens of the request that were written to a cache
	CacheWrite1h Quantity = "cache_write_1h" // the same, for one hour
	InputAudio   Quantity = "input_audio"
	InputImage   Quantity = "input_image"

	Output      Quantity = "output"    // visible tokens of the response
	Reasoning   Quantity = "reasoning" // hidden tokens of the response
	OutputAudio Quantity = "output_audio"
	OutputImage Quantity = "output_image"

	Requests Quantity = "requests"
	Seconds  Quantity = "seconds"
	Bytes    Quantity = "bytes"
)

// inputs and outputs are the classes of a request and of a response. A class without a rate takes the rate of the first.
// The classes in others, like the quantities of a meter, cost nothing without a rate.
var (
	inputs  = []Quantity{Input, CacheRead, CacheWrite, CacheWrite1h, InputAudio, InputImage}
	outputs = []Quantity{Output, Reasoning, OutputAudio, OutputImage}
	others  = []Quantity{Requests, Seconds, Bytes}
)

// group returns the classes that share a default rate with q, the default first: inputs, outputs, or q alone.
func group(q Quantity) []Quantity {
	switch {
	case slices.Contains(inputs, q):
		return inputs
	case slices.Contains(outputs, q):
		return outputs
	}
	return []Quantity{q}
}

// Usage is the reported usage of one call.
type Usage struct {
	Counts map[Quantity]int64 // a missing quantity was not reported; 0 was reported as 0
	Bad    bool               // negative, overflowing or contradictory figures: the price is the hold
}

// Policy decides the price of a call whose usage is missing a quantity that the row needs.
type Policy string

// Policies. The zero value is PolicyMax.
const (
	PolicyMax    Policy = "max"    // the price is the hold
	PolicyMin    Policy = "min"    // the quantity is 0
	PolicyRefuse Policy = "refuse" // Price returns ErrRefused
)

// Row is one line of a price table. [ParseTable] documents and checks the bounds of its numbers. A call costs
// base + (sum of rate * count) / per credits.
type Row struct {
	When      map[string]string // globs of request members, by name; empty fits every request
	Per       int64             // units that a rate pays for; 0 is 1
	Base      int64             // credits of every call
	Rates     map[Quantity]int64
	Above     *Above        // nil: the rates do not depend on the size of the input
	Max       *toll.Credits // bound of the hold; nil: no bound
	MaxInput  int64         // largest input bound of a call, in units of the input classes together
	MaxOutput int64         // largest output limit of one answer
	MinOutput int64         // smallest output limit to which a small balance lowers the limit
	Image     int64         // input bound of each file part
	Missing   map[Quantity]Policy
}

// Above has rates for calls with more than Input units of all input classes together. They replace the rates of the row for the
// whole call. A class without a rate here keeps its rate in the row. A class without either has the rate of input or output.
type Above struct {
	Input int64
	Rates map[Quantity]int64
}

// Table is the price of one route. The first row that fits a request applies.
type Table []Row

// Find returns the first row whose globs all match the members of a request, or nil. A glob does not match a missing member.
// Find returns nil if a member with a glob is longer than 1,024 bytes, so that a long value cannot select a later row.
func (t Table) Find(members map[string]string) *Row {
	for i := range t {
		fits := true
		for name, glob := range t[i].When {
			value, ok := members[name]
			if len(value) > maxMember {
				return nil
			}
			fits = fits && ok && match(glob, value)
		}
		if fits {
			return &t[i]
		}
	}
	return nil
}

// Bounds is the largest usage of a call. A negative bound is 0.
type Bounds struct {
	Input  int64 // units of all input classes together
	Output int64 // units of all output classes together, of one answer
	N      int64 // answers; below 1 it is 1
	// Own bounds requests, seconds, bytes, and the quantities of the route's meter. A quantity that is missing here has no bound,
	// and if the row has a rate for it, the hold is Max.
	Own map[Quantity]int64
}

// Hold returns the largest price of a call within b, at most Max.
func (r *Row) Hold(b Bounds) toll.Credits {
	b.Input = max(b.Input, 0)
	hold := r.largest(b, b.Input, false)
	if r.Above != nil && b.Input > r.Above.Input {
		hold = max(r.largest(b, r.Above.Input, false), r.largest(b, b.Input, true))
	}
	if r.Max != nil {
		hold = min(hold, *r.Max)
	}
	return hold
}

// largest returns the largest price of a call with this input, by the rates of the row or of Above.
func (r *Row) largest(b Bounds, input int64, above bool) toll.Credits {
	var s sum
	s.add(r.highest(inputs, above), input)
	output := new(big.Int).Mul(big.NewInt(max(b.Output, 0)), big.NewInt(max(b.N, 1)))
	s.addBig(r.highest(outputs, above), output)
	for _, q := range r.priced() {
		bound, ok := b.Own[q]
		switch rate := r.rate(q, above); {
		case len(group(q)) > 1 || rate == 0:
		case !ok:
			return toll.MaxCredits
		default:
			s.add(rate, max(bound, 0))
		}
	}
	return r.total(&s)
}

// Afford returns the largest output limit, at most b.Output, whose hold is at most available. ok is false if the balance does not pay
// for b.Output and the largest limit is below MinOutput, or if no limit has a hold that fits.
func (r *Row) Afford(b Bounds, available toll.Credits) (output int64, ok bool) {
	fits := func(output int64) bool { b.Output = output; return r.Hold(b) <= available }
	most := max(b.Output, 0)
	if fits(most) {
		return most, true
	}
	if !fits(0) {
		return 0, false
	}
	least, above := int64(0), most // least fits, above does not
	for above-least > 1 {
		if middle := least + (above-least)/2; fits(middle) {
			least = middle
		} else {
			above = middle
		}
	}
	return least, least >= r.MinOutput
}

// ErrRefused reports that a quantity is missing that has the policy "refuse". The message names the quantity.
var ErrRefused = errors.New("the response does not report its usage")

// Price returns the price of a call with this usage, at most hold. uncovered is the cost of the usage above the hold; Max bounds the
// hold, and not this cost. The price is the hold if a count is bad or negative, or if a quantity with the policy "max" is missing. The
// error wraps ErrRefused if a quantity with the policy "refuse" is missing.
//
// The usage must have input, output, and every other quantity of the row with a rate above 0, and input if the row has above. Classes
// such as cache_read and reasoning may be missing, because APIs report them only if they occur. If a row has rates only for them, the
// usage must have at least one class of the group.
func (r *Row) Price(u Usage, hold toll.Credits) (price, uncovered toll.Credits, err error) {
	whole := new(big.Int)
	for q, n := range u.Counts {
		if n < 0 {
			u.Bad = true
		}
		if slices.Contains(inputs, q) {
			whole.Add(whole, big.NewInt(n))
		}
	}
	if u.Bad {
		return hold, 0, nil
	}
	unknown := false
	for _, q := range r.priced() {
		if !r.isMissing(u, q) {
			continue
		}
		switch r.Missing[q] {
		case PolicyRefuse:
			return 0, 0, fmt.Errorf("%w: %s is missing", ErrRefused, q)
		case PolicyMin:
		default:
			unknown = true
		}
	}
	if unknown {
		return hold, 0, nil
	}
	above := r.Above != nil && whole.Cmp(big.NewInt(r.Above.Input)) > 0
	var s sum
	for q, n := range u.Counts {
		s.add(r.rate(q, above), n)
	}
	cost := r.total(&s)
	price = min(cost, hold)
	return price, cost - price, nil
}

// examples has the counts of [Row.Example]; every other quantity has 10.
var examples = map[Quantity]int64{Input: 1000, Output: 500, Requests: 1, Bytes: 1_000_000}

// Example returns a typical call and its price, at most Max: 1,000 units of input and 500 of output, or the bounds of the row if they are
// lower, 1 request, 1,000,000 bytes, and 10 units of every other quantity. The usage has only quantities that change the price. If input
// or output does not, its first class with a rate has the units.
func (r *Row) Example() (usage Usage, price toll.Credits) {
	usage.Counts = map[Quantity]int64{}
	bounds := map[Quantity]int64{Input: r.MaxInput, Output: r.MaxOutput}
	for _, q := range r.priced() {
		n, ok := examples[q]
		if !ok {
			n = 10
		}
		if bound, ok := bounds[q]; ok {
			n = min(n, bound)
		}
		usage.Counts[group(q)[slices.IndexFunc(group(q), r.decides)]] = n
	}
	hold := toll.MaxCredits
	if r.Max != nil {
		hold = *r.Max
	}
	price, _, _ = r.Price(usage, hold) // the usage is complete: no error
	return usage, price
}

// IsKnown reports whether the usage has every quantity on which the price depends.
func (r *Row) IsKnown(u Usage) bool {
	return !slices.ContainsFunc(r.priced(), func(q Quantity) bool { return r.isMissing(u, q) })
}

// isMissing reports whether the usage must have q, a quantity of priced, and does not.
func (r *Row) isMissing(u Usage, q Quantity) bool {
	reported := func(q Quantity) bool { _, ok := u.Counts[q]; return ok }
	if r.decides(q) {
		return !reported(q)
	}
	return !slices.ContainsFunc(group(q), reported)
}

// decides reports whether the count of q can change the price.
func (r *Row) decides(q Quantity) bool {
	return r.rate(q, false) > 0 || r.rate(q, true) > 0 || q == Input && r.Above != nil
}

// priced returns the quantities on which the price depends, sorted: input and output for the groups of their classes.
func (r *Row) priced() []Quantity {
	seen := map[Quantity]bool{}
	add := func(of map[Quantity]int64) {
		for q, rate := range of {
			if rate > 0 {
				seen[group(q)[0]] = true
			}
		}
	}
	add(r.Rates)
	if r.Above != nil {
		seen[Input] = true
		add(r.Above.Rates)
	}
	return slices.Sorted(maps.Keys(seen))
}

// rate returns the rate of q in the row, or in Above if it applies.
func (r *Row) rate(q Quantity, above bool) int64 {
	for _, q := range []Quantity{q, group(q)[0]} {
		if above && r.Above != nil {
			if rate, ok := r.Above.Rates[q]; ok {
				return rate
			}
		}
		if rate, ok := r.Rates[q]; ok {
			return rate
		}
	}
	return 0
}

// highest returns the largest rate of a group.
func (r *Row) highest(classes []Quantity, above bool) (rate int64) {
	for _, q := range classes {
		rate = max(rate, r.rate(q, above))
	}
	return rate
}

// sum is an exact sum of rates times counts.
type sum struct{ n, product big.Int }

func (s *sum) add(rate, count int64) { s.addBig(rate, big.NewInt(count)) }

func (s *sum) addBig(rate int64, count *big.Int) {
	s.n.Add(&s.n, s.product.Mul(big.NewInt(rate), count))
}

// total returns base + s / per, rounded up.
func (r *Row) total(s *sum) toll.Credits {
	per := big.NewInt(max(r.Per, 1))
	n, part := new(big.Int).QuoRem(&s.n, per, new(big.Int))
	if n.Add(n, big.NewInt(r.Base)); part.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return toll.MaxCredits
	}
	return toll.Credits(n.Int64())
}

// match reports whether text fits a glob, in which * is any text and ? is any character. It takes at most len(glob) * len(text) steps.
func match(glob, text string) bool {
	star, from := -1, 0 // last * and the text where it ends
	g, t := 0, 0
	for t < len(text) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, from = g, t
			g++
			continue
		case g < len(glob) && glob[g] == '?':
			g++
			t += width(text[t:])
			continue
		case g < len(glob) && glob[g] == text[t]:
			g++
			t++
			continue
		case star < 0:
			return false
		}
		from += width(text[from:])
		g, t = star+1, from
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

// width returns the bytes of the first character of text.
func width(text string) int { _, n := utf8.DecodeRuneInString(text); return n }

// CountsTokens reports whether the price depends on classes of input or output, which only the presets count.
func (r *Row) CountsTokens() bool {
	return slices.ContainsFunc(r.priced(), func(q Quantity) bool { return len(group(q)) > 1 })
}

// IsBuiltin reports whether every route knows q without a meter.
func (q Quantity) IsBuiltin() bool {
	return slices.Contains(inputs, q) || slices.Contains(outputs, q) || slices.Contains(others, q)
}
