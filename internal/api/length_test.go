package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// TestAnswers_Length holds that every answer says how long it is, whether net/http or the handler counts its bytes.
func TestAnswers_Length(t *testing.T) {
	h := newHandler(Deps{}, []route{{op: "x", method: "GET", path: "/{n}", auth: open, right: public, tag: "Test", action: reads(func(c *call) (*string, error) {
		n, err := strconv.Atoi(c.param("n"))
		text := strings.Repeat("x", max(n-2, 0))
		return &text, err
	})}})
	server := httptest.NewServer(h)
	defer server.Close()
	for _, n := range []int{2, 1024, 1025, shortAnswer - 1, shortAnswer, shortAnswer + 1, 3 * shortAnswer} {
		for _, method := range []string{"GET", "HEAD"} {
			r := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL+"/"+strconv.Itoa(n), nil))(t)
			answer := must.Get(http.DefaultClient.Do(r))(t)
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.ContentLength != int64(n) || len(answer.TransferEncoding) > 0 || method == "GET" && len(body) != n {
				t.Errorf("%s of %d: length %d, %d bytes, %v, %v", method, n, answer.ContentLength, len(body), answer.TransferEncoding, err)
			}
		}
	}
}
