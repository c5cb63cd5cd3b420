package double

import (
	"net/http"
)

// Books are the sums of what moved, which tests compare with the books of a ledger.
type Books struct {
	Currencies map[string]*Sums `json:"currencies"`
	Payments   []Payment        `json:"payments"` // oldest first
}

// Sums are in cents.
type Sums struct {
	Charges  int   `json:"charges"`  // that took money
	Captured int64 `json:"captured"` // by them
	Refunded int64 `json:"refunded"` // pending refunds included, failed ones not
	Disputed int64 `json:"disputed"` // withdrawn and not reinstated
	Fees     int64 `json:"fees"`
	Net      int64 `json:"net"` // captured less the others: the sum of the balance transactions
}

// Payment is a charge that took money.
type Payment struct {
	Charge        string            `json:"charge"`
	PaymentIntent string            `json:"paymentIntent"`
	Customer      string            `json:"customer"`
	Metadata      map[string]string `json:"metadata"` // of the payment intent
	Currency      string            `json:"currency"`
	Captured      int64             `json:"captured"`
	Refunded      int64             `json:"refunded"`
	Disputed      int64             `json:"disputed"`
}

// Books adds up the objects that the double has.
func (d *Double) Books() Books {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := Books{Currencies: map[string]*Sums{}, Payments: []Payment{}}
	sums := func(currency string) *Sums {
		if b.Currencies[currency] == nil {
			b.Currencies[currency] = &Sums{}
		}
		return b.Currencies[currency]
	}
	at := map[string]int{}
	for ch := range each[*charge](d.st) {
		if !ch.Paid {
			continue
		}
		s := sums(ch.Currency)
		s.Charges++
		s.Captured += ch.AmountCaptured
		at[ch.ID] = len(b.Payments)
		b.Payments = append(b.Payments, Payment{
			Charge: ch.ID, PaymentIntent: string(ch.PaymentIntent), Customer: string(ch.Customer),
			Metadata: ch.Metadata, Currency: ch.Currency, Captured: ch.AmountCaptured,
		})
	}
	for re := range each[*refund](d.st) {
		if !re.void() {
			sums(re.Currency).Refunded += re.Amount
			b.Payments[at[string(re.Charge)]].Refunded += re.Amount
		}
	}
	for dp := range each[*dispute](d.st) {
		withdrawn := int64(0)
		for _, move := range dp.BalanceTransactions {
			withdrawn -= move.Amount
		}
		sums(dp.Currency).Disputed += withdrawn
		b.Payments[at[dp.Charge]].Disputed += withdrawn
	}
	for move := range each[*balanceTransaction](d.st) {
		s := sums(move.Currency)
		s.Fees += move.Fee
		s.Net += move.Net
	}
	return b
}

func (d *Double) getBooks(w http.ResponseWriter, _ *http.Request) { writeJSON(w, d.Books(), nil) }
