package gateway_test

import (
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/tolltest"
)

// TestOrder_LostAnswer: without an answer the next confirmation finds the order by its key, and buys
// nothing twice.
func TestOrder_LostAnswer(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("orderPlan", `{}`)
	r.wire.alter(func(req *http.Request, b []byte) ([]byte, error) {
		if req.Method == http.MethodPost {
			return nil, errors.New("the answer is lost")
		}
		return b, nil
	})
	_, err := r.try(owner, "first", "orderPlan", `{"confirm":true}`)
	e, _ := errors.AsType[*gateway.Error](err)
	if e == nil || e.Code != gateway.ServiceUnavailable || !e.Retryable {
		t.Fatal(err)
	}
	r.wire.alter(nil)
	again, err := r.try(owner, "soon", "orderPlan", `{"confirm":true}`)
	if err != nil || again["success"] != true {
		t.Fatal(again, err) // the quote is not spent, and the key is the same
	}
	if orders, _ := r.svc.Paid(); orders != 1 {
		t.Errorf("%d orders", orders)
	}
}

// TestOrder_LostAnswerLater: an hour later it takes a new quote to find the order by its key.
func TestOrder_LostAnswerLater(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("orderPlan", `{}`)
	r.wire.alter(func(req *http.Request, b []byte) ([]byte, error) {
		if req.Method == http.MethodPost {
			return nil, errors.New("the answer is lost")
		}
		return b, nil
	})
	if got, err := r.try(owner, "first", "orderPlan", `{"confirm":true}`); !isWord(err, gateway.ServiceUnavailable) {
		t.Fatal(got, err)
	}
	r.wire.alter(nil)
	r.wait(time.Hour)
	if got, err := r.try(owner, "second", "orderPlan", `{"confirm":true}`); err != nil || got["requiresConfirmation"] != true {
		t.Fatal(got, err) // consent of an hour ago
	}
	r.wait(readTime)
	got, err := r.try(owner, "third", "orderPlan", `{"confirm":true}`)
	if err != nil || got["success"] != true {
		t.Fatal(got, err)
	}
	// That quote is spent, too.
	r.wait(readTime)
	if got, err := r.try(owner, "fourth", "orderPlan", `{"confirm":true}`); err != nil || got["requiresConfirmation"] != true {
		t.Error(got, err)
	}
	if orders, _ := r.svc.Paid(); orders != 1 {
		t.Errorf("%d orders", orders)
	}
}

// TestOrder_Pending: an order that is not decided is named, and read again in place of a new one.
func TestOrder_Pending(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("orderPlan", `{}`)
	r.wire.alter(func(_ *http.Request, b []byte) ([]byte, error) {
		return bytes.ReplaceAll(b, []byte(`"status":"confirmed"`), []byte(`"status":"sent"`)), nil
	})
	pending := r.refused(gateway.OrderPending, "orderPlan", `{"confirm":true}`)
	if !pending.Retryable || !strings.Contains(string(pending.Details), "orderId") {
		t.Error(pending)
	}
	r.wait(time.Hour)
	r.wire.acts()
	again := r.refused(gateway.OrderPending, "orderPlan", `{"confirm":true}`)
	if string(again.Details) != string(pending.Details) {
		t.Errorf("%s, then %s", pending.Details, again.Details)
	}
	r.wire.alter(nil)
	if got := r.run("orderPlan", `{"confirm":true}`); got["success"] != true || got["repeated"] != true || got["balance"] != "100" {
		t.Error(got)
	}
	if acts := r.wire.acts(); acts != nil {
		t.Error(acts)
	}
	if got := r.run("orderPlan", `{"confirm":true}`); got["requiresConfirmation"] != true {
		t.Error(got) // the order is decided: the next one needs a quote
	}
}

// TestOrder_PendingGone: an order that the service does not know any more does not stop the next one.
func TestOrder_PendingGone(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("orderPlan", `{}`)
	r.wire.alter(func(_ *http.Request, b []byte) ([]byte, error) {
		b = bytes.ReplaceAll(b, []byte(`"status":"confirmed"`), []byte(`"status":"sent"`))
		return regexp.MustCompile(`"orderId":"[^"]*"`).ReplaceAll(b, []byte(`"orderId":"00000000-0000-4000-8000-000000000000"`)), nil
	})
	r.refused(gateway.OrderPending, "orderPlan", `{"confirm":true}`)
	r.wire.alter(nil)
	r.wait(time.Hour)
	r.refused("BCK.PROTOCOL.0908", "orderPlan", `{"confirm":true}`)
	if got := r.run("orderPlan", `{"confirm":true}`); got["requiresConfirmation"] != true {
		t.Error(got)
	}
	r.wait(readTime)
	if got := r.run("orderPlan", `{"confirm":true}`); got["success"] != true {
		t.Error(got)
	}
}

// TestOrder_Failed: a failed order says so, and the next one needs a quote of its own.
func TestOrder_Failed(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.svc.Decline(true)
	r.run("orderPlan", `{}`)
	e := r.refused(gateway.OrderFailed, "orderPlan", `{"confirm":true}`)
	if !strings.Contains(string(e.Details), "orderId") || !strings.Contains(string(e.Details), "BCK.") || !strings.Contains(string(e.Details), `"params":{"orderId":`) || !strings.Contains(e.Message, "declined by the test") {
		t.Error(e, string(e.Details))
	}
	r.svc.Decline(false)
	r.wait(time.Minute)
	if got := r.run("orderPlan", `{"confirm":true}`); got["requiresConfirmation"] != true {
		t.Error(got)
	}
	r.wait(readTime)
	if got := r.run("orderPlan", `{"confirm":true}`); got["success"] != true {
		t.Error(got)
	}
}

// TestOrder_UnclearRefusals: a refusal that says nothing about the order leaves it open, so that no
// second one is made beside it.
func TestOrder_UnclearRefusals(t *testing.T) {
	for _, status := range []int{401, 403, 429, 500} {
		for name, end := range map[string]string{"placed": "/order", "read": "/orders/"} {
			r := newRig(t, nil, tolltest.WithPayments())
			r.run("orderPlan", `{}`)
			if name == "read" {
				r.wire.alter(func(_ *http.Request, b []byte) ([]byte, error) {
					return bytes.ReplaceAll(b, []byte(`"status":"confirmed"`), []byte(`"status":"sent"`)), nil
				})
				r.refused(gateway.OrderPending, "orderPlan", `{"confirm":true}`)
			}
			r.wire.alter(func(req *http.Request, b []byte) ([]byte, error) {
				if strings.HasSuffix(req.URL.Path, end) || strings.Contains(req.URL.Path, "/orders/") {
					return nil, refusedBy(status)
				}
				return b, nil
			})
			if _, err := r.try(owner, "x", "orderPlan", `{"confirm":true}`); err == nil {
				t.Errorf("%s: %d is no error", name, status)
			}
			r.wire.alter(nil)
			r.wait(time.Hour)
			r.run("orderPlan", `{}`)
			if got := r.run("orderPlan", `{"confirm":true}`); got["success"] != true {
				t.Error(name, status, got)
			}
			if orders, _ := r.svc.Paid(); orders != 1 {
				t.Errorf("%s: %d: %d orders", name, status, orders)
			}
		}
	}
}
