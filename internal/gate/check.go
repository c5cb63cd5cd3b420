package gate

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rates"
	"github.com/tollhq/toll/x402"
)

// CheckPlan returns an error if a row can cost less or more than the plan allows for one request.
func (c *Config) CheckPlan(t *x402.Terms) error {
	for i, r := range c.Routes {
		for j := range r.table {
			row := &r.table[j]
			where := fmt.Sprintf("routes[%d] (%s): price[%d]", i, r.Match, j)
			if r.Credits != nil {
				where = fmt.Sprintf("routes[%d] (%s): credits", i, r.Match)
			}
			if most := r.most(row); t.InBounds(most) != most {
				return fmt.Errorf("%s can cost up to %s credits, but the plan charges at most %s per request: set max, max_input, or max_output lower, or use another plan",
					where, most, t.MaxAmount)
			}
			if least := leastOf(row); t.InBounds(least) != least {
				return fmt.Errorf("%s can cost %s credits, but the plan charges at least %s per request: set base to at least that, or use another plan",
					where, least, t.MinAmount)
			}
		}
	}
	return nil
}

// most returns the largest price of a row.
func (r *Route) most(row *rates.Row) toll.Credits {
	b := rates.Bounds{Input: row.MaxInput, Output: row.MaxOutput, N: 1, Own: map[rates.Quantity]int64{rates.Requests: 1}}
	if r.operation == nil {
		b.Input, b.Output = 0, 0
	}
	return row.Hold(b)
}

// leastOf returns the price of a call that uses one unit.
func leastOf(row *rates.Row) toll.Credits {
	least := toll.Credits(row.Base)
	if least == 0 && len(row.Rates) > 0 {
		least = 1
	}
	return least
}

// Line describes the price of one row, for people.
type Line struct {
	Route    string       `json:"route"`
	Upstream string       `json:"upstream"`
	When     string       `json:"when"`  // globs of request members; empty for all requests
	Price    string       `json:"price"` // rates in words
	Most     toll.Credits `json:"most"`  // largest price of a call
	Example  string       `json:"example"`
	Credits  toll.Credits `json:"credits"` // price of the example
	Worth    string       `json:"worth"`   // its price in money; empty without credit
}

// Lines describes every row of every route, in the order of the file.
func (c *Config) Lines() (out []Line) {
	for _, r := range c.Routes {
		name := ""
		if r.upstream != nil {
			name = r.upstream.URL
		}
		if r.Free {
			out = append(out, Line{Route: r.Match, Upstream: name, Price: "free"})
			continue
		}
		for i := range r.table {
			row := &r.table[i]
			usage, price := row.Example()
			out = append(out, Line{
				Route: r.Match, Upstream: name, When: globs(row.When), Price: words(row), Most: r.most(row),
				Example: counts(usage), Credits: price, Worth: c.Credit.worth(price),
			})
		}
	}
	return out
}

func globs(when map[string]string) string {
	parts := make([]string, 0, len(when))
	for _, name := range slices.Sorted(maps.Keys(when)) {
		parts = append(parts, name+"="+when[name])
	}
	return strings.Join(parts, " ")
}

func counts(u rates.Usage) string {
	parts := make([]string, 0, len(u.Counts))
	for _, q := range slices.Sorted(maps.Keys(u.Counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", u.Counts[q], q))
	}
	return strings.Join(parts, ", ")
}

// words describes the rates of a row, such as "100 + 50 per results".
func words(row *rates.Row) string {
	var parts []string
	if row.Base > 0 || len(row.Rates) == 0 {
		parts = append(parts, fmt.Sprint(row.Base))
	}
	parts = append(parts, rateWords(row.Rates, row.Per)...)
	text := strings.Join(parts, " + ")
	if a := row.Above; a != nil {
		text += fmt.Sprintf("; above %d input: %s", a.Input, strings.Join(rateWords(a.Rates, row.Per), " + "))
	}
	return text
}

func rateWords(of map[rates.Quantity]int64, per int64) (parts []string) {
	for _, q := range slices.Sorted(maps.Keys(of)) {
		if per > 1 {
			parts = append(parts, fmt.Sprintf("%d per %d %s", of[q], per, q))
		} else {
			parts = append(parts, fmt.Sprintf("%d per %s", of[q], q))
		}
	}
	return parts
}

// worth returns what credits are worth, exactly, or "" if the value of a credit is unknown.
func (m Money) worth(n toll.Credits) string {
	whole, ok := new(big.Rat).SetString(m.Amount)
	if !ok {
		return ""
	}
	whole.Mul(whole, new(big.Rat).SetInt64(int64(n)))
	text := whole.FloatString(18) // exact: an amount has at most 18 decimals
	text = strings.TrimRight(text, "0")
	if whole, cents, _ := strings.Cut(text, "."); len(cents) < 2 {
		text = whole + "." + cents + strings.Repeat("0", 2-len(cents))
	}
	return text + " " + m.Currency
}
