package double_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

// TestBooks_RandomHistories compares the books with the objects after random payments, refunds and
// disputes.
func TestBooks_RandomHistories(t *testing.T) {
	cards := []string{
		"pm_card_visa", "pm_card_visa", "pm_card_refundFail", "pm_card_pendingRefund", "pm_card_createDispute",
		"pm_card_createDisputeInquiry", "pm_card_chargeCustomerFail", "pm_card_authenticationRequired",
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := start(t)
			u := s.customer()
			var charges, disputes []string
			for step := range 60 {
				switch random.IntN(6) {
				case 0, 1:
					p := offSession(u.ID, s.card(u.ID, cards[random.IntN(len(cards))]).ID, 50+random.Int64N(1000))
					p.Currency = stripe.String([]string{"usd", "eur"}[random.IntN(2)])
					if pi, err := s.sc.V1PaymentIntents.Create(s.ctx, p); err == nil {
						charges = append(charges, pi.LatestCharge.ID)
					}
				case 2, 3:
					if len(charges) > 0 {
						_, _ = s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{
							Charge: &charges[random.IntN(len(charges))], Amount: stripe.Int64(1 + random.Int64N(600)),
						})
					}
				case 4:
					if len(charges) > 0 {
						kind := []string{"dispute", "inquiry"}[random.IntN(2)]
						_ = s.d.Fault(double.Fault{Kind: kind, Object: charges[random.IntN(len(charges))]})
					}
					if len(disputes) > 0 {
						kind := []string{"won", "lost", "escalate"}[random.IntN(3)]
						_ = s.d.Fault(double.Fault{Kind: kind, Object: disputes[random.IntN(len(disputes))]})
					}
				default:
					s.later()
				}
				disputes = nil
				for dp, err := range s.sc.V1Disputes.List(s.ctx, nil).All(s.ctx) {
					must.Do(t, err)
					disputes = append(disputes, dp.ID)
				}
				if step%10 == 9 {
					s.checkBooks()
				}
			}
		})
	}
}

func (s *stand) checkBooks() {
	s.t.Helper()
	b := s.d.Books()
	sums := map[string]double.Sums{}
	for _, p := range b.Payments {
		sum := sums[p.Currency]
		sum.Charges++
		sum.Captured += p.Captured
		sum.Refunded += p.Refunded
		sum.Disputed += p.Disputed
		sums[p.Currency] = sum
		ch := must.Get(s.sc.V1Charges.Retrieve(s.ctx, p.Charge, nil))(s.t)
		if ch.AmountCaptured != p.Captured || ch.AmountRefunded != p.Refunded || p.Refunded+p.Disputed > p.Captured ||
			ch.Refunded != (p.Refunded == p.Captured) {
			s.t.Fatalf("the books say %+v, and the charge %+v", p, ch)
		}
	}
	for currency, got := range b.Currencies {
		want := sums[currency]
		want.Fees, want.Net = got.Fees, want.Captured-want.Refunded-want.Disputed-got.Fees
		if *got != want {
			s.t.Fatalf("%s: the books say %+v, and the payments %+v", currency, *got, want)
		}
	}
}
