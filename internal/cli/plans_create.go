package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

// Flags with which toll plans create describes a plan: words, or JSON.
var (
	planWordFlags = []flag{
		{"name", "name", word, "name of the plan"},
		{"description", "description", word, "description of the plan"},
		{"price", "price", money(usdcDecimals), "price per order, such as 20 or 4.99; 0 for a free plan"},
		{"currency", "currency", currencyWord, "currency of the price: usd and eur are paid by card, usdc and eurc on the chain"},
		{"receiver", "receiver", token, "address to pay; default your wallet"},
		{"credits", "credits", credits, "credits per order"},
		{"credits-per-request", "least", credits, "credits per request; default 1"},
		{"max-credits-per-request", "most", credits, "maximum credits per request, if requests differ; --credits-per-request is then the minimum"},
		{"expires-after", "expires", lifetime, "how long the credits of an order last, such as 12h or 30d; without --credits, an order buys access for this time; default no expiry"},
	}
	planJSONFlags = []flag{
		{"plan-metadata", "metadataAttributes", object, "name, description, and other metadata, as JSON"},
		{"price-config", "priceConfig", object, "price, as JSON"},
		{"credits-config", "creditsConfig", object, "credits, as JSON"},
	}
)

// currencyWord is one of the currencies, in any case.
var currencyWord = kind{name: strings.Join(currencies, "|"), words: currencies, read: readLast(func(s string) (string, error) {
	if s = strings.ToLower(s); !slices.Contains(currencies, s) {
		return "", fmt.Errorf("must be %s; got %.40q", strings.Join(currencies, ", "), s)
	}
	return s, nil
})}

// lifetime is a number of seconds, a duration such as 12h, or a number of days such as 30d.
var lifetime = kind{name: "duration", read: readLast(func(s string) (toll.Units, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok && isDigits(days) && len(days) <= 5 {
		n, _ := strconv.ParseInt(days, 10, 64) // at most five digits
		s = strconv.FormatInt(n*toll.DaySecs, 10)
	}
	d, err := parseSeconds(s)
	if err != nil || d == 0 {
		return toll.Units{}, fmt.Errorf("must be whole seconds or a time such as 12h or 30d, and more than 0; got %.40q", s)
	}
	return toll.UnitsOf(int64(d.Seconds())), nil
})}

// describePlan replaces the flags that describe a plan in words by the members of the request. On a terminal, it prompts for missing
// values. limit is the access limit that --type sets, or empty.
func describePlan(cmd *cobra.Command, a *app, in body, limit string) error {
	given := func(flags []flag) (all []string) {
		for _, f := range flags {
			if cmd.Flags().Changed(f.name) {
				all = append(all, "--"+f.name)
			}
		}
		return all
	}
	inWords, inJSON := given(planWordFlags), given(planJSONFlags)
	switch {
	case len(inWords) > 0 && len(inJSON) > 0:
		return usagef("%s cannot be combined with %s: describe the plan with flags such as --name and --price, or with JSON",
			strings.Join(inWords, ", "), strings.Join(inJSON, ", "))
	case len(inJSON) == len(planJSONFlags):
		return nil
	case len(inJSON) > 0:
		missing := slices.DeleteFunc(names(planJSONFlags), func(name string) bool { return slices.Contains(inJSON, "--"+name) })
		return usagef("%s also needs --%s", cmd.CommandPath(), strings.Join(missing, " and --"))
	case a.set.key == "":
		return toll.NewError(toll.CodeNotAuthenticated)
	}
	if err := completePlan(cmd, a, in, limit); err != nil {
		return err
	}
	return planOfWords(cmd.Context(), a, in)
}

// completePlan prompts for missing values of a plan. Without a terminal, it returns an error with the names of their flags.
func completePlan(cmd *cobra.Command, a *app, in body, limit string) error {
	lines := bufio.NewReader(io.LimitReader(a.in, maxArgument))
	for {
		missing := missingOf(in, limit)
		if len(missing) == 0 {
			return nil
		}
		if !isTerminal(a.in) || !a.set.terminal {
			return usagef("%s needs --%s; to describe the plan as JSON, it needs --%s", cmd.CommandPath(),
				strings.Join(missing, ", --"), strings.Join(names(planJSONFlags), ", --"))
		}
		f := planWordFlags[slices.Index(names(planWordFlags), missing[0])]
		text, err := ask(cmd.Context(), &a.console, lines, questions[f.name])
		if errors.Is(err, io.EOF) {
			err = usagef("%s needs --%s", cmd.CommandPath(), strings.Join(missing, ", --"))
		}
		if err != nil {
			return err
		}
		v, err := f.kind.read(a, f.name, []string{text})
		if err != nil {
			a.say("", "%s", strings.TrimPrefix(err.Error(), "--"+f.name+": "))
		} else if v != nil {
			in[f.member] = v
		}
	}
}

// questions are the prompts for flags that a plan needs.
var questions = map[string]string{
	"name": "Name of the plan", "price": "Price per order, such as 20 or 4.99; 0 for a free plan", "currency": "Currency: usd or eur (card), usdc or eurc (chain)",
	"credits": "Credits per order", "expires-after": "Access per order, such as 12h or 30d",
}

// missingOf names the flags that a plan still needs, in the order of the questions.
func missingOf(in body, limit string) (missing []string) {
	need := func(flag string, isMissing bool) {
		if isMissing {
			missing = append(missing, flag)
		}
	}
	price, isPriced := in["price"].(toll.Units)
	need("name", in["name"] == nil)
	need("price", !isPriced)
	need("currency", in["currency"] == nil && (!isPriced || !price.IsZero()))
	if toll.AccessLimit(limit).Kind().NeedsPeriod() {
		need("expires-after", in["expires"] == nil)
	} else {
		need("credits", in["credits"] == nil && in["expires"] == nil)
	}
	return missing
}

// ask prints a question and reads the answer. It returns [io.EOF] if the input ends.
func ask(ctx context.Context, con *console, lines *bufio.Reader, question string) (string, error) {
	fmt.Fprintf(con.err, "%s: ", question)
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // a terminal does not end a read when the context does
		text, err := lines.ReadString('\n')
		if text != "" && errors.Is(err, io.EOF) {
			err = nil
		}
		got <- answer{strings.TrimSpace(text), err}
	}()
	select {
	case a := <-got:
		return a.text, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// planOfWords replaces the members of planWordFlags by the metadata, the price, and the credits of the plan.
func planOfWords(ctx context.Context, a *app, in body) error {
	amount, currency := value[toll.Units](in, "price"), strings.ToUpper(value[string](in, "currency"))
	price := toll.PriceFree()
	if !amount.IsZero() {
		var err error
		if price, err = priceIn(ctx, a, amount, currency, value[toll.Address](in, "receiver")); err != nil {
			return err
		}
	} else if in["receiver"] != nil || currency != "" {
		return usagef("a free plan has no --currency and no --receiver")
	}
	least := last[toll.Credits](in, "least", 1)
	most := last(in, "most", least)
	config := toll.CreditsFixed(last[toll.Credits](in, "credits", 0), least)
	switch {
	case most < least:
		return usagef("--credits-per-request must not exceed --max-credits-per-request")
	case in["credits"] == nil && (in["least"] != nil || in["most"] != nil):
		return usagef("--credits-per-request and --max-credits-per-request need --credits")
	case in["credits"] == nil: // a plan with a period and no other access limit sells the period
		config = toll.CreditsExpirable(toll.Units{})
	case in["most"] != nil:
		config = toll.CreditsDynamic(last[toll.Credits](in, "credits", 0), least, most)
	}
	config.DurationSecs = value[toll.Units](in, "expires")
	if in["credits"] != nil && in["accessLimit"] == nil { // the period is the life of the credits
		in["accessLimit"] = string(toll.LimitCredits)
	}
	metadata := body{"name": in["name"]}
	metadata.text("description", value[string](in, "description"))
	for _, f := range planWordFlags {
		delete(in, f.member)
	}
	in["metadataAttributes"], in["priceConfig"], in["creditsConfig"] = metadata, price, config
	return nil
}
