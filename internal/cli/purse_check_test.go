package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// An endpoint is somebody else's program: its answer has a bound, and the page of an error is not printed.
func TestEndpoint_AnswersAreBounded(t *testing.T) {
	spaces := 0
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,`+strings.Repeat(" ", spaces)+`"result":"0x2a"}`)
	}))
	defer s.Close()
	call := func() error { return endpoint(s.URL).call(t.Context(), new(string), "eth_chainId") }
	must.Do(t, call())
	spaces = maxArgument
	if err := call(); err == nil {
		t.Error("an answer above the bound was read to its end")
	}
	spaces, status = 0, http.StatusForbidden
	if err := call(); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "jsonrpc") {
		t.Errorf("the refusal of an endpoint: %v", err)
	}
}
