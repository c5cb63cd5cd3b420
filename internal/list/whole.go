package list

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
)

// wholeKinds are the kinds of columns whose values are smaller units.
var wholeKinds = []Kind{KindMoney, KindCents, KindMicros}

// ToWhole returns the columns whose values a CSV file repeats as whole units. A column of money needs the currency of its record.
func (l List) ToWhole() (columns []Column) {
	hasCurrency := slices.ContainsFunc(l.Columns, func(c Column) bool { return c.Path == "currency" })
	for _, c := range l.Columns {
		if slices.Contains(wholeKinds, c.Kind) && (hasCurrency || c.Kind != KindMoney) {
			columns = append(columns, c)
		}
	}
	return columns
}

// MembersToWhole is [List.ToWhole] for a file with all members of a record.
func (l List) MembersToWhole() []Column {
	columns := l.ToWhole()
	for _, path := range l.Members() {
		if strings.HasSuffix(path, "Cents") && !slices.ContainsFunc(columns, func(c Column) bool { return c.Path == path }) {
			columns = append(columns, Cents(path))
		}
	}
	return columns
}

// WholeTitle returns the title of the column that repeats c as whole units.
func (c Column) WholeTitle() string {
	if c.Kind == KindMicros {
		return c.Title + " (seconds)"
	}
	return c.Title + " (whole units)"
}

// WholeMember returns the name of the column that repeats a member as whole units: amount is amountWhole, and refundedCents is refundedWhole.
func (c Column) WholeMember() string {
	if c.Kind == KindMicros {
		return strings.TrimSuffix(c.Path, "Micros") + "Seconds"
	}
	return strings.TrimSuffix(c.Path, "Cents") + "Whole"
}

// Whole converts the value of a column to whole units: base units and cents to units of the currency, and microseconds to seconds. It returns "" if the record
// has no value, and for money of an unknown token, whose decimals are unknown.
func (c Column) Whole(r Record) string {
	text := TextOf(r.At(c.Path))
	switch c.Kind {
	case KindMoney:
		if units, err := toll.ParseUnits(text); err == nil {
			whole, _ := Amount(TextOf(r["currency"]), units)
			return whole
		}
	case KindCents:
		return CentsToWhole(text)
	case KindMicros:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			return toll.FormatAmount(toll.UnitsOf(n), 6)
		}
	}
	return ""
}

// Amount converts base units to whole units of a currency, in any case. It returns false for an unknown currency, such as the address of a
// token.
func Amount(currency string, u toll.Units) (string, bool) {
	switch strings.ToUpper(currency) {
	case toll.CurrencyUSD, toll.CurrencyEUR, toll.CurrencyUSDC, toll.CurrencyEURC:
		return toll.FormatAmount(u, 6), true
	case toll.CurrencyETH:
		return toll.FormatAmount(u, 18), true
	}
	return "", false
}

// CentsToWhole converts cents to whole units, and returns "" for another text.
func CentsToWhole(text string) string {
	cents, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return ""
	}
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return sign + toll.FormatAmount(toll.UnitsOfCents(cents), 6)
}

// Members that people see of one plan and of one order.
var (
	OnePlan = Local("", ID("planId", "ID"), Name("name"), Text("description"), Money("metadata.main.price"), Credits("registry.credits.amount", "Credits"),
		Credits("registry.credits.maxAmount", "Credits per request"), State("accessLimit", "Limit"), Count("maxOrders", "Maximum orders"), Flag("isListed"),
		ID("owner"), Text("priceConfig.receivers", "Paid to"), Time("metadata.main.dateCreated", "Created"))
	OneOrder = Local("", ID("orderId", "ID"), State("status"), Text("failureReason", "Failure"), ID("planId"), ID("subscriberAddress", "Buyer"), Money("amount"),
		Credits("creditsGranted", "Credits"), Cents("refundedCents", "Refunded"), Flag("disputed"), ID("txHash", "Transaction"),
		Text("data.transactionUrl", "Transaction page"), Time("createdAt"))
)
