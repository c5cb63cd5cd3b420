package paid

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/tollhq/toll/x402"
)

// CORS lets pages of these origins call h from a browser. It answers preflights, which do not carry a payment, and lets scripts
// read the payment headers. "*" allows every origin. CORS replaces the CORS headers of h and never allows cookies. It panics for
// a malformed origin; see [CheckOrigin].
func CORS(h http.Handler, origins ...string) http.Handler {
	for _, o := range origins {
		if err := CheckOrigin(o); err != nil {
			panic("paid: an origin " + err.Error())
		}
	}
	all := slices.Contains(origins, "*")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Values("Origin")
		c := &corsWriter{ResponseWriter: w}
		if len(sent) == 1 && (all || slices.Contains(origins, sent[0])) {
			c.origin = sent[0]
			if all {
				c.origin = "*"
			}
		}
		asked := r.Header.Values("Access-Control-Request-Method")
		if c.origin == "" || r.Method != http.MethodOptions || len(asked) != 1 {
			h.ServeHTTP(c, r)
			c.say() // a response without a body has not been sent yet
			return
		}
		header := w.Header()
		if methodToken.MatchString(asked[0]) {
			header.Set("Access-Control-Allow-Methods", asked[0])
		}
		if names := r.Header.Get("Access-Control-Request-Headers"); headerList.MatchString(names) {
			header.Set("Access-Control-Allow-Headers", names)
		}
		header.Set("Access-Control-Max-Age", "600")
		header.Set("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
		c.WriteHeader(http.StatusNoContent)
	})
}

// CheckOrigin returns an error if [CORS] would panic for an origin. Its text follows a field name: "must be ...".
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	if origin != "*" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || origin != u.Scheme+"://"+u.Host) {
		return fmt.Errorf("must be * or a scheme and a host, for example https://app.example.com; got %q", origin)
	}
	return nil
}

var (
	methodToken = regexp.MustCompile(`^[A-Za-z]{1,20}$`)
	headerList  = regexp.MustCompile(`^[A-Za-z0-9_-]+( ?, ?[A-Za-z0-9_-]+){0,40}$`)
)

// corsWriter sets the CORS headers of a response.
type corsWriter struct {
	http.ResponseWriter
	origin string // the origin that may read the response, or ""
	said   bool
}

func (w *corsWriter) say() {
	if w.said {
		return
	}
	w.said = true
	h := w.Header()
	for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"} {
		h.Del(name) // set by the wrapped handler
	}
	h.Add("Vary", "Origin")
	if w.origin != "" {
		h.Set("Access-Control-Allow-Origin", w.origin)
		h.Add("Access-Control-Expose-Headers", x402.HeaderRequired+", "+x402.HeaderResponse+", retry-after, x-correlation-id")
	}
}

func (w *corsWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.say()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *corsWriter) Write(b []byte) (int, error) {
	w.say()
	return w.ResponseWriter.Write(b)
}

func (w *corsWriter) FlushError() error {
	w.say()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap supports [http.ResponseController].
func (w *corsWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
