package card_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
)

// mock is stripe-mock, which knows the shape of each request of Stripe's API.
var mock = sync.OnceValues(func() (*server.StubServer, error) {
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		return nil, err
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		return nil, err
	}
	var m *server.StubServer
	quietly(func() { m, err = server.NewStubServer(fixtures, spec, false, false) })
	return m, err
})

var stdout sync.Mutex

// quietly keeps what stripe-mock prints off the terminal. Tests of this package do not run in parallel.
func quietly(run func()) {
	stdout.Lock()
	defer stdout.Unlock()
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		defer null.Close()
		defer func(was *os.File) { os.Stdout = was }(os.Stdout)
		os.Stdout = null
	}
	run()
}

// shaped is a transport that fails the test when stripe-mock refuses what the rail sends, whatever the double answers: each stored
// call, and each request that reads.
type shaped struct {
	t    testing.TB
	next http.RoundTripper
}

func (s shaped) RoundTrip(r *http.Request) (*http.Response, error) {
	m, err := mock()
	if err != nil {
		s.t.Error(err)
		return nil, err
	}
	var sent []byte
	if r.Body != nil {
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	again := httptest.NewRequest(r.Method, r.URL.String(), bytes.NewReader(sent))
	again.Header = r.Header.Clone()
	w := httptest.NewRecorder()
	quietly(func() { m.HandleRequest(w, again) })
	if w.Code != http.StatusOK {
		s.t.Errorf("stripe-mock refuses %s %s %s: %s", r.Method, r.URL, sent, w.Body)
	}
	return s.next.RoundTrip(r)
}
