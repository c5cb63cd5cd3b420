package toll_test

import (
	"encoding/json"
	"fmt"

	"github.com/tollhq/toll"
)

// A plan of 100 credits for 2.50 euros by card, of which a request burns what it uses, 1 to 10.
func ExamplePriceFiat() {
	receiver := toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	amount, err := toll.ParseAmount("2.50", 6)
	if err != nil {
		fmt.Println(err)
		return
	}
	price, err := toll.PriceFiat(amount, receiver, toll.CurrencyEUR)
	if err != nil {
		fmt.Println(err)
		return
	}
	credits := toll.CreditsDynamic(100, 1, 10)
	fmt.Println(price.Text(), price.CurrencyName(), "for", credits.Amount, "credits")
	// Output: 2.50 EUR for 100 credits
}

// A plan that sells a month. Requests burn nothing while it runs.
func ExampleCreditsExpirable() {
	b, err := json.Marshal(toll.CreditsExpirable(toll.UnitsOf(toll.MonthSecs)))
	fmt.Println(string(b), err)
	// Output: {"isRedemptionAmountFixed":false,"redemptionType":4,"onchainMirror":false,"durationSecs":"2629746","amount":"1","minAmount":"1","maxAmount":"1"} <nil>
}
