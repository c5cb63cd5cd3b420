package seller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// readAnswers returns the answers to settlements and renewals that the middlewares of all languages share.
func readAnswers(t *testing.T) (table struct {
	Settle []struct {
		Name, Outcome string
		Amount        toll.Credits
		Body          x402.SettleResponse
	}
	Renew []struct {
		Name string
		Good bool
		Body x402.RenewResponse
	}
}) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/conformance/tables/answers.json")
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil || len(table.Settle) < 11 || len(table.Renew) < 2 {
		t.Fatal(err, table)
	}
	return table
}

func TestSale_Settle_Table(t *testing.T) {
	for _, c := range readAnswers(t).Settle {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{settle: []func() (*x402.SettleResponse, error){answers(&c.Body, nil)}}
			var log bytes.Buffer
			s, known := payment(d, &log).Settle(t.Context(), c.Amount, seller.Tries)
			unknown := c.Outcome == "unknown"
			if s.Success != (c.Outcome == "paid") || known == unknown || unknown != (s.ErrorReason == x402.ReasonPending) {
				t.Errorf("%s: %+v, known %v", c.Name, s, known)
			}
			if want := map[bool]int{true: seller.Tries, false: 1}[unknown]; len(d.asked) != want {
				t.Errorf("%s: %d tries, want %d", c.Name, len(d.asked), want)
			}
		})
	}
}

// renewing is a desk that gives the same answer to each renewal.
type renewing struct {
	desk
	answer x402.RenewResponse
	asked  int
}

func (d *renewing) Renew(context.Context, *x402.RenewRequest) (*x402.RenewResponse, error) {
	d.asked++
	return &d.answer, nil
}

func TestKeeper_Table(t *testing.T) {
	held := toll.Credits(5).Ptr()
	for _, c := range readAnswers(t).Renew {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			d := &renewing{answer: c.Body}
			d.verdict = &x402.VerifyResponse{IsValid: true, AgentRequestID: "req_1", Extra: &x402.VerifyExtra{HeldAmount: held}}
			s := newSeller(&d.desk, &log)
			s.Facilitator = d
			p, r := s.Open(t.Context(), offer(), "a.b.c")
			if r != nil {
				t.Fatal(r)
			}
			k := p.Keep(t.Context())
			defer k.Stop()
			cut := false
			if !k.Deliver(func() { cut = true }) {
				t.Fatal("no hold")
			}
			time.Sleep(time.Duration(s.HoldSecs)*time.Second + time.Millisecond)
			synctest.Wait()
			if cut == c.Good || (d.asked > 2) == c.Good {
				t.Errorf("%s: cut %v after %d renewals\n%s", c.Name, cut, d.asked, &log)
			}
		})
	}
}
