package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/rpc"
)

// formFault is an answer that is none.
type formFault struct{ text string }

func (f *formFault) Error() string { return "endpoints: " + f.text }

// dial makes a client of one URL. Nothing is sent yet. The client knows no more of the URL than the host, so that its errors tell no more.
func dial(u *url.URL, t http.RoundTripper, most int64) (*rpc.Client, error) {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host}
	return rpc.DialOptions(context.Background(), shown.String(), rpc.WithHTTPClient(&http.Client{
		Transport:     &guard{next: t, url: u, most: most, secrets: secretsOf(u)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
}

// secretsOf lists the parts of a URL that may be a key.
func secretsOf(u *url.URL) [][]byte {
	parts := strings.Split(u.Path, "/")
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		parts = append(parts, u.User.Username(), password)
	}
	var secrets [][]byte
	for _, p := range parts {
		if len(p) >= 8 {
			secrets = append(secrets, []byte(p))
		}
	}
	// A part that holds another one is replaced before it.
	slices.SortFunc(secrets, func(a, b []byte) int { return len(b) - len(a) })
	return secrets
}

// guard sends requests to the whole URL. It bounds answers, refuses what is no JSON and takes the keys of the URL out of errors.
type guard struct {
	next    http.RoundTripper
	url     *url.URL
	most    int64 // bytes of an answer
	secrets [][]byte
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	whole := *g.url
	whole.User = nil
	sent.URL, sent.Host = &whole, ""
	if user := g.url.User; user != nil {
		password, _ := user.Password()
		sent.SetBasicAuth(user.Username(), password)
	}
	resp, err := g.next.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, g.most+1))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > g.most {
		return nil, &formFault{"the response of the endpoint is too large"}
	}
	switch ok := resp.StatusCode >= 200 && resp.StatusCode < 300; {
	case ok && !json.Valid(body):
		return nil, &formFault{"the response of the endpoint is not JSON"}
	case ok:
	case refusal(resp.StatusCode, body):
		// Some endpoints send the error of a request under a status of HTTP. It is an answer.
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	default:
		body = nil
	}
	if bytes.Contains(body, []byte(`"error"`)) {
		for _, s := range g.secrets {
			body = bytes.ReplaceAll(body, s, []byte("..."))
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

// refusal says whether a body under this status is the JSON-RPC error of one request, and not of the endpoint as a whole.
func refusal(status int, body []byte) bool {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}
	var m struct {
		Version string           `json:"jsonrpc"`
		Error   *json.RawMessage `json:"error"`
	}
	return json.Unmarshal(body, &m) == nil && m.Version == "2.0" && m.Error != nil
}
