package rates

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Bounds of a table, and the defaults of a row.
const (
	maxRows    = 200
	maxWhen    = 16
	maxGlob    = 128 // bytes, also of the names of members and quantities
	maxMember  = 1024
	maxCredits = 1_000_000_000_000_000 // of a rate and of base
	maxPer     = 1_000_000_000_000

	defaultMaxInput  = 200_000
	defaultMaxOutput = 16_384
	defaultMinOutput = 256
)

// reserved are the members of a row besides rates.
var reserved = []string{"when", "per", "base", "max", "max_input", "max_output", "min_output", "image", "above", "missing"}

// ParseQuantity returns the quantity of this name, or an error. A name has 1 to 128 of the characters a to z, 0 to 9 and _, and starts with a
// letter. The members of a row, such as "base", are not quantities.
func ParseQuantity(name string) (Quantity, error) {
	bad := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' }
	switch {
	case name == "" || len(name) > maxGlob || name[0] < 'a' || strings.ContainsFunc(name, bad):
		return "", fmt.Errorf("a quantity is named with 1 to %d lower-case letters, digits and underscores, and starts with a letter", maxGlob)
	case slices.Contains(reserved, name):
		return "", fmt.Errorf("%s is a member of price tables: use another name for the quantity", name)
	}
	return Quantity(name), nil
}

// ParseTable reads a price table, a JSON array of 1 to 200 rows. own are the quantities of the route's meter, which [ParseQuantity]
// accepts. The members of a row are all optional, but a row must have base or a rate:
//
//   - when: an object of at most 16 globs by request member. Names and globs have at most 128 bytes. In a glob, * is any text and ?
//     is any character.
//   - per: 1 (default) to 10^12 units.
//   - base, and one member per quantity, its rate: 0 to 10^15 credits.
//   - max: 1 to 2^63-1 credits, at least base.
//   - max_input (default 200000), max_output (16384), image (0): 0 to 2^63-1 units.
//   - min_output: 0 to max_output units. The default is 256, or max_output if that is less.
//   - above: an object with input, 0 to 2^63-1 units, and rates, an object with at least one rate.
//   - missing: "max" (default), "min" or "refuse" for all quantities, or an object of them by quantity.
//
// Unknown members, duplicate names, null, and numbers with a sign, a fraction or an exponent are errors. Only the last row may omit
// when. The error is a *toll.Error with [toll.CodeBadRequest] that lists every fault with its path, for example
// "price[1].output".
func ParseTable(raw []byte, own []Quantity) (Table, error) {
	var p parser
	p.known = slices.Concat(inputs, outputs, others)
	for _, q := range own {
		if _, err := ParseQuantity(string(q)); err != nil {
			return nil, toll.Errorf(toll.CodeBadRequest, "meter: %q: %v", q, err)
		}
		if !slices.Contains(p.known, q) {
			p.known = append(p.known, q)
		}
	}
	var rows []jsontext.Value
	if p.decode("price", raw, &rows); len(p.faults) == 0 && (len(rows) < 1 || len(rows) > maxRows) {
		p.fault("price", "must be an array of 1 to %d rows", maxRows)
	}
	if len(p.faults) > 0 {
		return nil, toll.Faults(p.faults)
	}
	t := make(Table, len(rows))
	for i, row := range rows {
		path := fmt.Sprintf("price[%d]", i)
		t[i] = p.row(path, row)
		if i > 0 && len(t[i-1].When) == 0 {
			p.fault(path, "is never used, because the row before it has no when")
		}
	}
	if len(p.faults) > 0 {
		return nil, toll.Faults(p.faults)
	}
	return t, nil
}

// parser collects the faults of a table.
type parser struct {
	known  []Quantity
	faults []toll.Fault
}

func (p *parser) fault(path, format string, args ...any) {
	p.faults = append(p.faults, toll.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (p *parser) decode(path string, raw []byte, v any) {
	err := x402.Decode(raw, v)
	if err == nil {
		return
	}
	e := toll.AsError(err)
	faults, _ := e.Params["errors"].([]toll.Fault)
	for _, f := range faults {
		if f.Path != "" && f.Path[0] != '[' {
			f.Path = "." + f.Path
		}
		p.fault(path+f.Path, "%s", f.Message)
	}
	if len(faults) == 0 {
		p.fault(path, "%s", e.Text())
	}
}

// object calls each with the members of an object, in the order of their names.
func (p *parser) object(path string, raw jsontext.Value, each func(name, path string, value jsontext.Value)) {
	if raw.Kind() != '{' {
		p.fault(path, "must be an object")
		return
	}
	members := map[string]jsontext.Value{}
	p.decode(path, raw, &members)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := name
		if _, err := ParseQuantity(name); err != nil && !slices.Contains(reserved, name) {
			at = strconv.QuoteToASCII(name[:min(len(name), maxGlob)])
		}
		each(name, path+"."+at, members[name])
	}
}

func (p *parser) row(path string, raw jsontext.Value) Row {
	r := Row{Per: 1, MaxInput: defaultMaxInput, MaxOutput: defaultMaxOutput, MinOutput: -1, Rates: map[Quantity]int64{}}
	var missing jsontext.Value
	free := true
	faults := len(p.faults)
	p.object(path, raw, func(name, at string, value jsontext.Value) {
		switch name {
		case "when":
			r.When = p.when(at, value)
		case "per":
			p.number(at, value, 1, maxPer, &r.Per)
		case "base":
			free = false
			p.number(at, value, 0, maxCredits, &r.Base)
		case "max":
			var n int64
			p.number(at, value, 1, math.MaxInt64, &n)
			r.Max = toll.Credits(n).Ptr()
		case "max_input":
			p.number(at, value, 0, math.MaxInt64, &r.MaxInput)
		case "max_output":
			p.number(at, value, 0, math.MaxInt64, &r.MaxOutput)
		case "min_output":
			p.number(at, value, 0, math.MaxInt64, &r.MinOutput)
		case "image":
			p.number(at, value, 0, math.MaxInt64, &r.Image)
		case "above":
			free = false
			r.Above = p.above(at, value)
		case "missing":
			missing = value
		default:
			free = false
			p.rate(name, at, value, r.Rates)
		}
	})
	if len(p.faults) > faults {
		return r // the checks below need all members
	}
	switch {
	case free:
		p.fault(path, "must have base or the rate of a quantity")
	case r.Max != nil && int64(*r.Max) < r.Base:
		p.fault(path+".max", "must be at least base")
	case r.MinOutput > r.MaxOutput:
		p.fault(path+".min_output", "must be at most max_output, which is %d", r.MaxOutput)
	case r.MinOutput < 0:
		r.MinOutput = min(defaultMinOutput, r.MaxOutput)
	}
	if missing != nil {
		r.Missing = p.missing(path+".missing", missing, r.priced())
	}
	return r
}

// number sets *into to a JSON integer from least to most.
func (p *parser) number(path string, raw jsontext.Value, least, most int64, into *int64) {
	n, err := toll.ParseCredits(string(raw))
	if err != nil || int64(n) < least || int64(n) > most {
		p.fault(path, "must be a whole number from %d to %d", least, most)
		return
	}
	*into = int64(n)
}

func (p *parser) rate(name, path string, raw jsontext.Value, into map[Quantity]int64) {
	q := Quantity(name)
	if !slices.Contains(p.known, q) {
		p.fault(path, "is not a member of price tables. The quantities of this route are %s", p.quantities())
		return
	}
	var n int64
	p.number(path, raw, 0, maxCredits, &n)
	into[q] = n
}

func (p *parser) quantities() string {
	var names []string
	for _, q := range p.known {
		names = append(names, string(q))
	}
	return strings.Join(names, ", ")
}

func (p *parser) when(path string, raw jsontext.Value) map[string]string {
	when := map[string]string{}
	p.object(path, raw, func(name, at string, value jsontext.Value) {
		glob, err := jsontext.AppendUnquote(nil, value)
		if err != nil || len(glob) > maxGlob || name == "" || len(name) > maxGlob {
			p.fault(at, `must be text such as "small-*"; name and text have at most %d bytes`, maxGlob)
		}
		when[name] = string(glob)
	})
	if len(when) > maxWhen {
		p.fault(path, "must have at most %d members", maxWhen)
	}
	return when
}

func (p *parser) above(path string, raw jsontext.Value) *Above {
	a := &Above{Rates: map[Quantity]int64{}}
	faults, hasInput := len(p.faults), false
	p.object(path, raw, func(name, at string, value jsontext.Value) {
		switch name {
		case "input":
			hasInput = true
			p.number(at, value, 0, math.MaxInt64, &a.Input)
		case "rates":
			p.object(at, value, func(name, at string, value jsontext.Value) { p.rate(name, at, value, a.Rates) })
		default:
			p.fault(at, "is unknown: above has input and rates")
		}
	})
	if len(p.faults) == faults && (!hasInput || len(a.Rates) == 0) {
		p.fault(path, "must have input, and rates with at least one rate")
	}
	return a
}

// missing returns the policies of a row with these priced quantities.
func (p *parser) missing(path string, raw jsontext.Value, priced []Quantity) map[Quantity]Policy {
	policies := map[Quantity]Policy{}
	policy := func(path string, raw jsontext.Value, of ...Quantity) {
		word, err := jsontext.AppendUnquote(nil, raw)
		one := Policy(word)
		if err != nil || one != PolicyMax && one != PolicyMin && one != PolicyRefuse {
			p.fault(path, "must be max, min, or refuse")
		}
		for _, q := range of {
			policies[q] = one
		}
	}
	if raw.Kind() == '{' {
		p.object(path, raw, func(name, at string, value jsontext.Value) {
			if q := Quantity(name); slices.Contains(priced, q) {
				policy(at, value, q)
			} else {
				p.fault(at, "has no effect: a policy needs a quantity with a rate above 0, and input or output for their classes")
			}
		})
	} else {
		policy(path, raw, priced...)
	}
	return policies
}
