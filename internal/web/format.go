package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// functions are those of the templates.
func (w *Web) functions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) (string, error) {
			if w.assets.paths[name] == "" {
				return "", fmt.Errorf("there is no file %q", name)
			}
			return w.assets.paths[name], nil
		},
		"brand": func() string { return w.brand.name }, "brandSheet": func() string { return w.brand.href },
		"ago":     func(t time.Time) string { return ago(t, w.Clock()) },
		"exactly": date,
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"short":   short,
		"grouped": grouped,
	}
}

// short is an id as a table shows it: its beginning and its end. The whole one is copied.
func short(id string) string {
	if len(id) <= 15 {
		return id
	}
	return id[:6] + "…" + id[len(id)-4:]
}

// grouped is a decimal number with a comma between thousands: "1284.50" is "1,284.50".
func grouped(number string) string {
	whole, rest, dot := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		return whole + "." + rest
	}
	return whole
}

// ago is a time as people say it: "4 minutes ago", "in 3 days".
func ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		d = -d
	}
	var text string
	switch {
	case d < 45*time.Second:
		return "just now"
	case d < 45*time.Minute:
		text = count(int64((d+30*time.Second)/time.Minute), "minute")
	case d < 22*time.Hour:
		text = count(int64((d+30*time.Minute)/time.Hour), "hour")
	case d < 45*24*time.Hour:
		text = count(int64((d+12*time.Hour)/(24*time.Hour)), "day")
	default:
		return t.UTC().Format("2 Jan 2006")
	}
	if t.After(now) {
		return "in " + text
	}
	return text + " ago"
}

// count is a number with its noun: "1 day", "1,200 days".
func count(n int64, noun string) string {
	text := grouped(fmt.Sprint(n)) + " " + noun
	if n != 1 {
		text += "s"
	}
	return text
}

// span is a length of time in seconds as people say it; "" for 0, which is no end.
func span(secs toll.Units) string {
	n := secs.Int()
	if !n.IsInt64() {
		return "longer than a lifetime"
	}
	s := n.Int64()
	for _, of := range []struct {
		secs int64
		noun string
	}{{toll.YearSecs, "year"}, {toll.MonthSecs, "month"}, {toll.WeekSecs, "week"}, {toll.DaySecs, "day"}, {3600, "hour"}, {60, "minute"}} {
		if s >= of.secs && s%of.secs == 0 {
			return count(s/of.secs, of.noun)
		}
	}
	if s == 0 {
		return ""
	}
	return count(s, "second")
}

// sum is an amount of money. Currencies are never added.
type sum struct{ Amount, Currency string }

// sumOf is an amount of base units of a currency: 18 decimals for the native token, else 6.
func sumOf(units toll.Units, currency string) *sum {
	decimals := 6
	if currency == toll.CurrencyETH {
		decimals = 18
	}
	return &sum{grouped(toll.FormatAmount(units, decimals)), strings.ToUpper(currency)}
}
