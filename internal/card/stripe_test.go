package card

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// answers is a transport that needs no network.
type answers func(r *http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answered(status int, header http.Header, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(body)}
}

func apiOver(f answers) *api {
	return newAPI(&Config{SecretKey: "sk_test_1", HTTP: &http.Client{Transport: f}})
}

// is fails the test unless an error is an answer of a kind.
func is(t *testing.T, err error, want kind) *answer {
	t.Helper()
	a, ok := errors.AsType[*answer](err)
	if !ok || a.kind != want {
		t.Fatalf("got %v, want an answer of the kind %d", err, want)
	}
	return a
}

// A process sends at most apiSlots requests to Stripe at a time. A caller whose context ends while
// it waits for a slot has sent nothing.
func TestAPI_Slots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let, at, most := make(chan struct{}), 0, 0
		var mu sync.Mutex
		a := apiOver(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			at++
			most = max(most, at)
			mu.Unlock()
			<-let
			mu.Lock()
			at--
			mu.Unlock()
			return answered(200, nil, strings.NewReader(`{"id":"pi_1"}`)), nil
		})
		var all sync.WaitGroup
		for range 3 * apiSlots {
			all.Go(func() {
				must.Check(t, a.get(t.Context(), "payment_intents/pi_1", nil, &stripe.PaymentIntent{}))
			})
		}
		synctest.Wait()
		if at != apiSlots {
			t.Errorf("%d requests at a time, want %d", at, apiSlots)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if a := is(t, a.get(ctx, "account", nil, &stripe.Account{}), unclear); a.code != notSent {
			t.Errorf("got %v", a)
		}
		close(let)
		all.Wait()
		if at != 0 || most != apiSlots || len(a.slots) != 0 {
			t.Errorf("%d requests at a time at most, %d slots are taken", most, len(a.slots))
		}
	})
}

// A request fails after apiTimeout, while it waits for the answer or for the rest of its body.
func TestAPI_Time(t *testing.T) {
	for name, answer := range map[string]func(r *http.Request) (*http.Response, error){
		"no answer": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"half a body": func(r *http.Request) (*http.Response, error) {
			half, w := io.Pipe()
			go func() {
				_, _ = w.Write([]byte(`{"id":`))
				<-r.Context().Done()
				_ = w.CloseWithError(r.Context().Err())
			}()
			return answered(200, nil, half), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, begin := apiOver(answer), time.Now()
				c := &store.CardCall{Key: "k", Path: "payment_intents", Params: "amount=500"}
				is(t, a.post(t.Context(), c, &stripe.PaymentIntent{}), unclear)
				if took := time.Since(begin); took != apiTimeout {
					t.Errorf("it took %v", took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin = time.Now()
				if is(t, a.get(ctx, "account", nil, &stripe.Account{}), unclear); time.Since(begin) != time.Second {
					t.Errorf("a caller that gave up waited for %v", time.Since(begin))
				}
			})
		})
	}
}

// The rail reads at most apiAnswer bytes of an answer. A longer answer counts as a lost one.
func TestAPI_Bytes(t *testing.T) {
	const around = len(`{"id":"pi_1","description":""}`)
	for _, c := range []struct {
		status, bytes int
		want          kind
		ok            bool
	}{
		{200, apiAnswer, 0, true}, {200, apiAnswer + 1, unclear, false}, {200, 100 * apiAnswer, unclear, false},
		{400, apiAnswer + 1, unclear, false}, {402, 100 * apiAnswer, unclear, false},
	} {
		read := 0
		a := apiOver(func(*http.Request) (*http.Response, error) {
			body := io.MultiReader(
				strings.NewReader(`{"id":"pi_1","description":"`), io.LimitReader(zeros{}, int64(c.bytes-around)), strings.NewReader(`"}`),
			)
			return answered(c.status, nil, io.TeeReader(body, counter{&read})), nil
		})
		pi := &stripe.PaymentIntent{}
		err := a.get(t.Context(), "payment_intents/pi_1", nil, pi)
		if c.ok && (err != nil || pi.ID != "pi_1") {
			t.Errorf("%d bytes: %v", c.bytes, err)
		}
		if !c.ok {
			is(t, err, c.want)
		}
		if read > apiAnswer+64<<10 {
			t.Errorf("%d of %d bytes were read", read, c.bytes)
		}
	}
}

// zeros is an endless text.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("0"), len(b))), nil }

type counter struct{ n *int }

func (c counter) Write(b []byte) (int, error) { *c.n += len(b); return len(b), nil }

// A redirect is not followed: the key goes to nobody else.
func TestAPI_Redirect(t *testing.T) {
	var asked []string
	for _, status := range []int{301, 302, 303, 307, 308} {
		a := apiOver(func(r *http.Request) (*http.Response, error) {
			if asked = append(asked, r.URL.Host); r.URL.Host != "api.stripe.com" {
				return answered(200, nil, strings.NewReader(`{"id":"pi_1"}`)), nil
			}
			return answered(status, http.Header{"Location": {"https://other.example"}}, strings.NewReader("")), nil
		})
		c := &store.CardCall{Key: "k", Path: "payment_intents", Params: "amount=500"}
		is(t, a.post(t.Context(), c, &stripe.PaymentIntent{}), unclear)
		is(t, a.get(t.Context(), "account", nil, &stripe.Account{}), unclear)
	}
	if len(asked) != 10 || slices.Contains(asked, "other.example") {
		t.Errorf("asked %v", asked)
	}
}

// The kind of each answer, with the pause that it asks for, within bounds. The error never has the
// text of the answer, which may hold a client secret.
func TestAPI_Kinds(t *testing.T) {
	const secret = "pi_1_secret_abc"
	failure := func(kind, code, decline string) string {
		return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"decline_code":%q,"message":%q,"payment_intent":{"id":"pi_1","client_secret":%q}}}`,
			kind, code, decline, secret, secret)
	}
	for name, c := range map[string]struct {
		status int
		body   string
		retry  string
		want   kind
		pause  time.Duration
		final  bool
	}{
		"a lock":               {429, failure("invalid_request_error", "lock_timeout", ""), "7", busy, 7 * time.Second, false},
		"a key in use":         {409, failure("idempotency_error", "idempotency_key_in_use", ""), "", busy, time.Second, false},
		"a wait without end":   {429, failure("rate_limit_error", "rate_limit", ""), "99999999999999999999", busy, maxPause, false},
		"a wait back":          {429, failure("rate_limit_error", "rate_limit", ""), "-5", busy, time.Second, false},
		"other bytes":          {400, failure("idempotency_error", "", ""), "", conflict, time.Second, false},
		"an unknown key":       {401, failure("invalid_request_error", "", ""), "", denied, deniedPause, false},
		"a permission":         {403, failure("invalid_request_error", "", ""), "1", denied, deniedPause, false},
		"down":                 {500, failure("api_error", "", ""), "", unclear, time.Second, false},
		"a proxy":              {502, "<html>", "", unclear, time.Second, false},
		"not JSON":             {200, "<html>", "", unclear, time.Second, false},
		"a decline":            {402, failure("card_error", "card_declined", "lost_card"), "", card, time.Second, true},
		"the owner":            {402, failure("card_error", "authentication_required", ""), "", owner, time.Second, true},
		"the owner, otherwise": {402, failure("card_error", "card_declined", "authentication_required"), "", owner, time.Second, true},
		"nothing there":        {404, failure("invalid_request_error", "resource_missing", ""), "", missing, time.Second, true},
		"a bad card":           {400, failure("invalid_request_error", "resource_missing", ""), "", missing, time.Second, true},
		"a bad parameter":      {400, failure("invalid_request_error", "parameter_invalid_integer", ""), "", refused, time.Second, true},
	} {
		a := apiOver(func(*http.Request) (*http.Response, error) {
			return answered(c.status, http.Header{"Retry-After": {c.retry}}, strings.NewReader(c.body)), nil
		})
		err := a.get(t.Context(), "payment_intents/pi_1", nil, &stripe.PaymentIntent{})
		got := is(t, err, c.want)
		if got.pause() != c.pause || got.final() != c.final || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, pause %v, final %t", name, err, got.pause(), got.final())
		}
		if errors.Unwrap(err) != nil {
			t.Errorf("%s: the error of stripe-go is in the error", name)
		}
	}
}

// The text of an answer names what is known of it, and nothing else.
func TestAnswer_Error(t *testing.T) {
	for want, a := range map[string]*answer{
		"Stripe did not respond":                                            {code: "no_answer"},
		"the request to Stripe was not sent":                                {code: notSent},
		"Stripe responded with 401":                                         {status: 401},
		"Stripe responded with 402 authentication_required (request req_1)": {status: 402, code: "authentication_required", declineCode: "authentication_required", request: "req_1"},
		"Stripe responded with 402 card_declined lost_card (request req_2)": {status: 402, code: "card_declined", declineCode: "lost_card", request: "req_2"},
	} {
		if got := a.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if IsSilence(a) != (a.status == 0) {
			t.Errorf("%s: %t", want, IsSilence(a))
		}
	}
}
