package cli

import (
	"encoding/json"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// TestEnrolled: a card that is new or renewed ends the wait for an enrolment; one that was taken away or named does not.
func TestEnrolled(t *testing.T) {
	cards := func(text string) map[string]json.RawMessage {
		var list map[string]json.RawMessage
		must.Do(t, json.Unmarshal([]byte(text), &list))
		return list
	}
	before := `{"a":{"id":"a","status":"Active","expYear":2030,"expMonth":1}}`
	for now, want := range map[string]string{
		before: "",
		`{"a":{"id":"a","status":"Revoked","expYear":2030,"expMonth":1}}`:                                        "",
		`{"a":{"id":"a","status":"Active","expYear":2030,"expMonth":1,"alias":"x"}}`:                             "",
		`{"a":{"id":"a","status":"Active","expYear":2031,"expMonth":1}}`:                                         "a",
		`{"a":{"id":"a","status":"Revoked"},"b":{"id":"b","status":"Active"},"c":{"id":"c","status":"Revoked"}}`: "b",
	} {
		if got := at(enrolled(cards(before), cards(now)), "id"); got != want {
			t.Errorf("%s: %q, want %q", now, got, want)
		}
	}
}

// TestHint_CardUnreachable: an order that is recorded is named with the command that reads it; else the time to wait is.
func TestHint_CardUnreachable(t *testing.T) {
	e := toll.NewError(toll.CodeCardUnreachable)
	e.RetryAfterSecs = 7
	const id = "6fa1c0de-0000-4000-8000-000000000000"
	for want, e := range map[string]*toll.Error{
		"Try again in 7 seconds.": e,
		"The order is recorded. Do not repeat this command, because it would create another order. " +
			"Wait for the result with toll orders get " + id + " --wait.": e.
			WithParam("orderId", id),
		hints[toll.CodeCardUnreachable]: toll.NewError(toll.CodeCardUnreachable).WithParam("orderId", "x\ny"),
	} {
		if got := (&app{}).hintFor(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
