package servertest

import "net/http"

// FromPages is a transport that sends forms as a browser does: with the origin of the page, which has the same address as the form.
type FromPages struct{}

func (FromPages) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		r = r.Clone(r.Context())
		r.Header.Set("Origin", r.URL.Scheme+"://"+r.URL.Host)
	}
	return http.DefaultTransport.RoundTrip(r)
}
