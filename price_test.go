package toll_test

import (
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

const (
	alice = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	bob   = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
	zero  = "0x0000000000000000000000000000000000000000"
	usdc  = "0x036CbD53842c5426634e7929541eC2318f3dCF7e" // sandbox
	usdcL = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" // live
	eurc  = "0x808456652fdb597867f38412077A9182bf77359F" // sandbox
	payg  = "0x1FCcaBF8D461cCc8259CB09aE54b4Ff9a90718B3"
)

func normalizePrice(t *testing.T, body string) (toll.Price, *toll.Credits, error) {
	t.Helper()
	var in toll.PriceInput
	must.Do(t, json.Unmarshal([]byte(body), &in))
	return toll.NormalizePrice(in, toll.MustAddress(alice))
}

// stored writes the price of dialect B as JSON, with the members that are always zero left out.
func stored(token, amounts, receivers, template, isCrypto, currency string) string {
	s := `{"tokenAddress":"` + token + `","amounts":` + amounts + `,"receivers":` + receivers + `,"contractAddress":"` + zero + `","feeController":"` + zero +
		`","externalPriceAddress":"` + zero + `","templateAddress":"` + template + `","isCrypto":` + isCrypto
	if currency != "" {
		s += `,"currency":"` + currency + `"`
	}
	return s + "}"
}

func TestNormalizePrice(t *testing.T) {
	me, both := `["`+alice+`"]`, `["`+alice+`","`+bob+`"]`
	for name, c := range map[string]struct{ in, want string }{
		"nothing":          {`{}`, stored(zero, `[]`, `[]`, zero, "true", "")},
		"nulls":            {`{"amounts":null,"receivers":null,"isCrypto":null,"priceType":null,"tokenAddress":null}`, stored(zero, `[]`, `[]`, zero, "true", "")},
		"A free":           {`{"priceType":"FREE"}`, stored(zero, `[]`, `[]`, zero, "true", "")},
		"A free, zeros":    {`{"priceType":"free","amounts":[0],"receivers":["` + bob + `"]}`, stored(zero, `[]`, `[]`, zero, "true", "")},
		"A fixed":          {`{"priceType":"FIXED_PRICE","tokenAddress":"` + usdc + `","amounts":[1000000],"receivers":["` + alice + `"]}`, stored(usdc, `["1000000"]`, me, zero, "true", "USDC")},
		"A native, exact":  {`{"amounts":[1000000000000000001]}`, stored(zero, `["1000000000000000001"]`, me, zero, "true", "")},
		"B two receivers":  {`{"tokenAddress":"` + eurc + `","amounts":["1","2"],"receivers":` + both + `}`, stored(eurc, `["1","2"]`, both, zero, "true", "EURC")},
		"B equal twice":    {`{"amounts":["1","2"],"receivers":["` + alice + `","` + alice + `"]}`, stored(zero, `["1","2"]`, `["`+alice+`","`+alice+`"]`, zero, "true", "")},
		"B zero amount":    {`{"amounts":["0"]}`, stored(zero, `["0"]`, me, zero, "true", "")},
		"B other network":  {`{"tokenAddress":"` + usdcL + `","amounts":["1"],"currency":"usdc"}`, stored(usdcL, `["1"]`, me, zero, "true", "USDC")},
		"B unknown token":  {`{"tokenAddress":"` + bob + `","amounts":["1"]}`, stored(bob, `["1"]`, me, zero, "true", "")},
		"B fiat":           {`{"isCrypto":false,"amounts":["1000000"]}`, stored(zero, `["1000000"]`, me, zero, "false", "USD")},
		"B fiat, most":     {`{"isCrypto":"false","amounts":["999999990000"],"currency":"eur"}`, stored(zero, `["999999990000"]`, me, zero, "false", "EUR")},
		"B pay as you go":  {`{"amounts":["5"],"templateAddress":"` + strings.ToLower(payg) + `"}`, stored(zero, `["5"]`, me, payg, "true", "")},
		"B beats A":        {`{"priceType":"FIXED_PRICE","isCrypto":false,"amounts":[2000000]}`, stored(zero, `["2000000"]`, me, zero, "false", "USD")},
		"file":             {`{"tokenAddress":"` + usdc + `","price":1000000,"amountOfCredits":100}`, stored(usdc, `["1000000"]`, me, zero, "true", "USDC")},
		"A beats file":     {`{"price":7,"amounts":[5]}`, stored(zero, `["5"]`, me, zero, "true", "")},
		"file, fixed":      {`{"priceType":"FIXED_PRICE","price":7}`, stored(zero, `["7"]`, me, zero, "true", "")},
		"unknown members":  {`{"priceTyp":"FREE","AMOUNTS":[7]}`, stored(zero, `[]`, `[]`, zero, "true", "")},
		"zero contract":    {`{"contractAddress":"` + zero + `","feeController":"` + zero + `"}`, stored(zero, `[]`, `[]`, zero, "true", "")},
		"stored once more": {stored(usdc, `["1000000"]`, me, zero, "true", "USDC"), stored(usdc, `["1000000"]`, me, zero, "true", "USDC")},
	} {
		p, _, err := normalizePrice(t, c.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, _ := json.Marshal(p); string(b) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, b, c.want)
		}
	}
	if _, n, _ := normalizePrice(t, `{"price":1,"amountOfCredits":100}`); n == nil || *n != 100 {
		t.Errorf("amountOfCredits is %v", n)
	}
	if _, n, _ := normalizePrice(t, `{"price":1}`); n != nil {
		t.Errorf("absent amountOfCredits is %v", *n)
	}
}

// T51
func TestPriceShape(t *testing.T) {
	many := `["1","1","1","1","1","1","1","1","1","1","1"]`
	receivers := `["` + strings.Repeat(alice+`","`, 10) + alice + `"]`
	for name, c := range map[string]struct {
		in   string
		code toll.Code
		path string
	}{
		"more amounts":       {`{"amounts":["1","2"],"receivers":["` + alice + `"]}`, toll.CodeBadPriceConfig, "priceConfig.receivers"},
		"more receivers":     {`{"amounts":["1"],"receivers":["` + alice + `","` + bob + `"]}`, toll.CodeBadPriceConfig, "priceConfig.receivers"},
		"no receivers":       {`{"amounts":["1"],"receivers":[]}`, toll.CodeBadPriceConfig, "priceConfig.receivers"},
		"absent for two":     {`{"amounts":["1","2"]}`, toll.CodeBadPriceConfig, "priceConfig.receivers"},
		"receivers alone":    {`{"receivers":["` + alice + `"]}`, toll.CodeBadPriceConfig, "priceConfig.receivers"},
		"eleven receivers":   {`{"amounts":` + many + `,"receivers":` + receivers + `}`, toll.CodeBadPriceConfig, "priceConfig.receivers"},
		"zero receiver":      {`{"amounts":["1"],"receivers":["` + zero + `"]}`, toll.CodeBadPriceConfig, "priceConfig.receivers[0]"},
		"null receiver":      {`{"amounts":["1"],"receivers":[null]}`, toll.CodeBadPriceConfig, "priceConfig.receivers[0]"},
		"sum":                {`{"amounts":["` + maxUint256 + `","1"],"receivers":["` + alice + `","` + bob + `"]}`, toll.CodeBadPriceConfig, "priceConfig.amounts[1]"},
		"free with amount":   {`{"priceType":"FREE","amounts":[1]}`, toll.CodeBadPriceConfig, "priceConfig.priceType"},
		"free with price":    {`{"priceType":"FREE","price":1}`, toll.CodeBadPriceConfig, "priceConfig.priceType"},
		"fixed, empty":       {`{"priceType":"FIXED_PRICE","amounts":[]}`, toll.CodeBadPriceConfig, "priceConfig.amounts"},
		"contract":           {`{"contractAddress":"` + bob + `"}`, toll.CodeBadPriceConfig, "priceConfig.contractAddress"},
		"fee controller":     {`{"feeController":"` + bob + `"}`, toll.CodeBadPriceConfig, "priceConfig.feeController"},
		"external price":     {`{"externalPriceAddress":"` + bob + `"}`, toll.CodeBadPriceConfig, "priceConfig.externalPriceAddress"},
		"foreign template":   {`{"amounts":["1"],"templateAddress":"` + bob + `"}`, toll.CodeBadPriceConfig, "priceConfig.templateAddress"},
		"free pay as you go": {`{"templateAddress":"` + payg + `"}`, toll.CodeBadPriceConfig, "priceConfig.templateAddress"},
		"currency of native": {`{"amounts":["1"],"currency":"USDC"}`, toll.CodeBadPriceConfig, "priceConfig.currency"},
		"other currency":     {`{"tokenAddress":"` + usdc + `","amounts":["1"],"currency":"EURC"}`, toll.CodeBadPriceConfig, "priceConfig.currency"},
		"dollars on chain":   {`{"amounts":["1"],"currency":"USD"}`, toll.CodeBadPriceConfig, "priceConfig.currency"},
		"unknown currency":   {`{"amounts":["1"],"currency":"GBP"}`, toll.CodeBadPriceConfig, "priceConfig.currency"},
		"card in USDC":       {`{"isCrypto":false,"amounts":["1000000"],"currency":"USDC"}`, toll.CodeBadPriceConfig, "priceConfig.currency"},
		"card with token":    {`{"isCrypto":false,"amounts":["1000000"],"tokenAddress":"` + usdc + `"}`, toll.CodeBadPriceConfig, "priceConfig.tokenAddress"},
		"part of a cent":     {`{"isCrypto":false,"amounts":["1005001"]}`, toll.CodeBadPriceConfig, "priceConfig.amounts"},
		"fiat below":         {`{"isCrypto":false,"amounts":["999999"]}`, toll.CodeFiatPriceTooLow, "priceConfig.amounts"},
		"fiat nothing":       {`{"isCrypto":false}`, toll.CodeFiatPriceTooLow, "priceConfig.amounts"},
		"fiat above":         {`{"isCrypto":false,"amounts":["999999990001"]}`, toll.CodeFiatPriceTooHigh, "priceConfig.amounts"},
	} {
		p, _, err := normalizePrice(t, c.in)
		e := wantCode(t, err, c.code)
		if e.Params["path"] != c.path {
			t.Errorf("%s: path %v, want %s", name, e.Params["path"], c.path)
		}
		if e.HTTPStatus() != 400 || p.Amounts != nil {
			t.Errorf("%s: status %d, price %v", name, e.HTTPStatus(), p)
		}
	}
	for name, c := range map[string]struct{ in, path string }{
		"word":        {`{"priceType":"CHEAP"}`, "priceConfig.priceType"},
		"no amounts":  {`{"priceType":"FIXED_PRICE"}`, "priceConfig.amounts"},
		"null amount": {`{"amounts":[null]}`, "priceConfig.amounts[0]"},
	} {
		_, _, err := normalizePrice(t, c.in)
		if f := faultsOf(t, err); len(f) != 1 || f[0].Path != c.path {
			t.Errorf("%s: %v, want %s", name, f, c.path)
		}
	}
}

func faultsOf(t *testing.T, err error) []toll.Fault {
	t.Helper()
	e := wantCode(t, err, toll.CodeBadRequest)
	f, ok := e.Params["errors"].([]toll.Fault)
	if !ok {
		t.Fatalf("%v names no members", e)
	}
	return f
}

func TestPrice_Text(t *testing.T) {
	for _, c := range []struct{ in, text, currency string }{
		{`{}`, "0.00", "ETH"},
		{`{"tokenAddress":"` + usdc + `","amounts":["1005000"]}`, "1.005", "USDC"},
		{`{"tokenAddress":"` + usdc + `","amounts":["100000","200000"],"receivers":["` + alice + `","` + bob + `"]}`, "0.30", "USDC"},
		{`{"tokenAddress":"` + bob + `","amounts":["2000000"]}`, "2.00", bob},
		{`{"amounts":["1"]}`, "0.000000000000000001", "ETH"},
		{`{"amounts":["1500000000000000000"]}`, "1.50", "ETH"},
		{`{"isCrypto":false,"amounts":["999999990000"]}`, "999999.99", "USD"},
		{`{"isCrypto":false,"amounts":["2000000"],"currency":"EUR"}`, "2.00", "EUR"},
	} {
		p, _, err := normalizePrice(t, c.in)
		must.Do(t, err)
		if p.Text() != c.text || p.CurrencyName() != c.currency {
			t.Errorf("%s: %s %s, want %s %s", c.in, p.Text(), p.CurrencyName(), c.text, c.currency)
		}
	}
}

func TestPricePerCredit(t *testing.T) {
	for _, c := range []struct{ price, amount, want string }{
		{`{}`, "100", "0"},
		{`{"tokenAddress":"` + usdc + `","amounts":["1000000"]}`, "1", "1"},
		{`{"tokenAddress":"` + usdc + `","amounts":["1000000"]}`, "100", "0.01"},
		{`{"tokenAddress":"` + usdc + `","amounts":["2500000"]}`, "1", "2.5"},
		{`{"tokenAddress":"` + usdc + `","amounts":["20000000"]}`, "2", "10"},
		{`{"tokenAddress":"` + usdc + `","amounts":["1000000"]}`, "3", "0.333333333333333333"},
		{`{"tokenAddress":"` + usdc + `","amounts":["2000000"]}`, "3", "0.666666666666666666"},
		{`{"amounts":["1"]}`, "8", "0.000000000000000000125"},
		{`{"amounts":["1000000000000000000"]}`, "9223372036854775807", "0.000000000000000000108420217248"},
		{`{"amounts":["18446744"]}`, "1", "0.000000000018446744"},
		{`{"amounts":["18446745"]}`, "1", "0.000000000018446745"}, // 10^12 times as many are more than 2^64
		{`{"amounts":["18446744073709551615"]}`, "1000000000000", "0.000000000018446744073709551615"},
		{`{"amounts":["18446744073709551616"]}`, "1000000000000", "0.000000000018446744073709551616"},
		{`{"amounts":["` + maxUint256 + `"]}`, "1", "115792089237316195423570985008687907853269984665640564039457.584007913129639935"},
	} {
		price, _, err := normalizePrice(t, c.price)
		must.Do(t, err)
		amount := must.Get(toll.ParseCredits(c.amount))(t)
		got := toll.PricePerCredit(&toll.Plan{Price: price, Credits: toll.CreditsConfig{Amount: amount}})
		if string(got) != c.want {
			t.Errorf("%s for %s credits: %s, want %s", c.price, c.amount, got, c.want)
		}
	}
}

func TestPrice_PayToken(t *testing.T) {
	for _, c := range []struct {
		token string
		env   toll.Environment
		want  toll.Address
	}{
		{usdc, toll.Sandbox, toll.USDCSandbox}, {usdc, toll.Live, toll.USDCLive}, {usdcL, toll.Sandbox, toll.USDCSandbox},
		{eurc, toll.Live, toll.EURCLive}, {zero, toll.Live, toll.Address{}}, {bob, toll.Live, toll.MustAddress(bob)},
	} {
		if got := (toll.Price{TokenAddress: toll.MustAddress(c.token), IsCrypto: true}).PayToken(c.env); got != c.want {
			t.Errorf("%s on %s is paid in %s, want %s", c.token, c.env, got, c.want)
		}
	}
}
