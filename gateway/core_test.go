package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// TestCall_HostHangsUp: what a person confirmed is done, also when the host does not wait for it.
// A read ends with its caller.
func TestCall_HostHangsUp(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("orderPlan", `{}`)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := r.core.Call(gone, "service_orderPlan", []byte(`{"confirm":true}`), "1", owner); err != nil {
		t.Error(err)
	}
	if orders, _ := r.svc.Paid(); orders != 1 {
		t.Errorf("%d orders were paid", orders)
	}
	if _, err := r.core.Call(gone, "service_checkBalance", nil, "", owner); err == nil {
		t.Error("a read went on without its caller")
	}
}

type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("secret inside") }

// TestCall_Panics: a tool that panics fails alone, and its answer says nothing of the inside.
func TestCall_Panics(t *testing.T) {
	key, err := tolltest.New(t).NewKey("ann")
	must.Do(t, err)
	core := must.Get(gateway.New(gateway.Options{
		Dir:           t.TempDir(),
		Config:        gateway.Config{APIKey: key.Key, PlanID: "5"},
		ServiceClient: &http.Client{Transport: panicking{}},
	}))(t)
	_, err = core.Call(t.Context(), "service_checkBalance", nil, "", owner)
	e, ok := errors.AsType[*gateway.Error](err)
	if !ok || e.Code != gateway.ServiceUnavailable || strings.Contains(e.Error(), "inside") {
		t.Error(err)
	}
}
