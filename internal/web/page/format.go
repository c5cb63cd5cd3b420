package page

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tollhq/toll"
)

// functions are those of the templates.
func (w *Site) functions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) (string, error) {
			if w.assets.paths[name] == "" {
				return "", fmt.Errorf("no asset %q", name)
			}
			return w.assets.paths[name], nil
		},
		"brand": func() string { return w.brand.name }, "brandSheet": func() string { return w.brand.href },
		"ago":     func(t time.Time) string { return Ago(t, w.Clock()) },
		"exactly": Date,
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"short":   Short,
		"grouped": Grouped,
	}
}

// Short is an id as a table shows it: its beginning and its end. The whole one is copied.
func Short(id string) string {
	if len(id) <= 15 {
		return id
	}
	return id[:6] + "…" + id[len(id)-4:]
}

// Grouped is a decimal number with a comma between thousands: "1284.50" is "1,284.50".
func Grouped(number string) string {
	whole, rest, dot := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		return whole + "." + rest
	}
	return whole
}

// Ago is a time as people say it: "4 minutes ago", "in 3 days".
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		d = -d
	}
	var text string
	switch {
	case d < 45*time.Second:
		return "just now"
	case d < 45*time.Minute:
		text = Count(int64((d+30*time.Second)/time.Minute), "minute")
	case d < 22*time.Hour:
		text = Count(int64((d+30*time.Minute)/time.Hour), "hour")
	case d < 45*24*time.Hour:
		text = Count(int64((d+12*time.Hour)/(24*time.Hour)), "day")
	default:
		return t.UTC().Format("Jan 2, 2006")
	}
	if t.After(now) {
		return "in " + text
	}
	return text + " ago"
}

// Count is a number with its noun: "1 day", "1,200 days".
func Count(n int64, noun string) string {
	text := Grouped(fmt.Sprint(n)) + " " + noun
	if n != 1 {
		text += "s"
	}
	return text
}

// Span is a length of time in seconds as people say it; "" for 0, which is no end.
func Span(secs toll.Units) string {
	n := secs.Int()
	if !n.IsInt64() {
		return "more than 100 years"
	}
	s := n.Int64()
	for _, of := range []struct {
		secs int64
		noun string
	}{{toll.YearSecs, "year"}, {toll.MonthSecs, "month"}, {toll.WeekSecs, "week"}, {toll.DaySecs, "day"}, {3600, "hour"}, {60, "minute"}} {
		if s >= of.secs && s%of.secs == 0 {
			return Count(s/of.secs, of.noun)
		}
	}
	if s == 0 {
		return ""
	}
	return Count(s, "second")
}

// Sum is an amount of money. Currencies are never added.
type Sum struct{ Amount, Currency string }

// SumOf is an amount of base units of a currency: 18 decimals for the native token, else 6.
func SumOf(units toll.Units, currency string) *Sum {
	decimals := 6
	if currency == toll.CurrencyETH {
		decimals = 18
	}
	return &Sum{Grouped(toll.FormatAmount(units, decimals)), strings.ToUpper(currency)}
}

// Date is a time in full.
func Date(t time.Time) string { return t.UTC().Format("January 2, 2006, 15:04 UTC") }

// AddressText is an address that others chose, whole: the end of a host is what counts. What is not plain ASCII is spelled out.
func AddressText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

// ourName is what a program that is not ours must not be mistaken for.
const ourName = "toll"

// lookalikes are letters and digits that pass for those of our name.
var lookalikes = map[rune]rune{
	'0': 'o', '1': 'l', '|': 'l', '!': 'l', 'i': 'l', '7': 't', '+': 't', 'о': 'o', 'ο': 'o', 'т': 't', 'τ': 't', 'ӏ': 'l', 'ı': 'l', 'ι': 'l', 'і': 'l',
	'ø': 'o', 'ö': 'o', 'ó': 'o', 'ò': 'o', 'ô': 'o', 'õ': 'o', 'ō': 'o', 'ő': 'o', 'ł': 'l', 'ĺ': 'l', 'ľ': 'l', 'ť': 't', 'ţ': 't',
}

// NamesUs reports whether a name has ours in it, or what looks like it.
func NamesUs(name string) bool {
	var b strings.Builder
	for _, r := range name {
		r = unicode.ToLower(r)
		if r >= 'ａ' && r <= 'ｚ' {
			r -= 'ａ' - 'a'
		}
		if to, ok := lookalikes[r]; ok {
			r = to
		}
		if unicode.IsLetter(r) {
			b.WriteRune(r)
		}
	}
	return strings.Contains(b.String(), ourName)
}
