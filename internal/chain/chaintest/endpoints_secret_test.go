package chaintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/must"
)

// Errors, including the errors that f receives, log lines, and health show only the host of a URL.
func TestPool_HidesKeysOfURLs(t *testing.T) {
	t.Parallel()
	chain := chaintest.New(t)
	secrets := []string{"user-of-them", "password-of-them", "path-key-0123", "query-key-4567"}
	faults := map[string]func(d *chaintest.Double){
		"none":         func(*chaintest.Double) {},
		"wrong chain":  func(d *chaintest.Double) { d.ChainID(1) },
		"cut":          func(d *chaintest.Double) { d.Drop(-1) },
		"page":         func(d *chaintest.Double) { d.Page(http.StatusOK) },
		"unauthorized": func(d *chaintest.Double) { d.Page(http.StatusUnauthorized) },
		"hang":         func(d *chaintest.Double) { d.Hang() },
		"told":         func(d *chaintest.Double) { d.Refuse(-1, "eth_blockNumber", "invalid key "+strings.Join(secrets, " ")) },
		"told at once": func(d *chaintest.Double) { d.Refuse(-1, "eth_chainId", "invalid key "+strings.Join(secrets, " ")) },
		"told, result": func(d *chaintest.Double) {
			d.Answer("eth_blockNumber", func([]json.RawMessage) (any, error) { return secrets, nil })
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := chaintest.NewDouble(t, chain.Client())
			url := strings.Replace(d.URL, "http://", "http://user-of-them:password-of-them@", 1) + "/v2/path-key-0123?apikey=query-key-4567"
			lines := &poolLog{}
			attempt := unhurried
			if name == "hang" {
				attempt = 200 * time.Millisecond
			}
			pool, err := endpoints.New(endpoints.Config{
				URLs: []string{url}, ChainID: chain.ChainID(), Timeout: attempt, Idle: true,
				Log: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			must.Do(t, err)
			defer pool.Close()
			var seen []string
			read := func() {
				err := pool.Read(t.Context(), func(ctx context.Context, c *endpoints.Conn) error {
					_, err := c.BlockNumber(ctx)
					seen = append(seen, c.Name, fmt.Sprintf("%v %+v %#v", err, err, err))
					for e := err; e != nil; e = errors.Unwrap(e) {
						seen = append(seen, fmt.Sprintf("%+v", e))
					}
					return err
				})
				seen = append(seen, fmt.Sprint(err))
				if name == "none" && err != nil {
					t.Errorf("without a fault: %v", err)
				}
			}
			read() // before the fault
			fault(d)
			for range 4 {
				read()
			}
			pool.Check(t.Context())
			seen = append(seen, fmt.Sprint(pool.Send(t.Context(), []byte{1})))
			_, err = pool.Head(t.Context(), "safe")
			seen = append(seen, fmt.Sprint(err), fmt.Sprintf("%+v", pool.Health()), lines.String())
			text := strings.Join(seen, "\n")
			for _, s := range secrets {
				if strings.Contains(text, s) {
					t.Errorf("%s is shown:\n%s", s, text)
				}
			}
			if !strings.Contains(text, host(d)) {
				t.Errorf("the host is not shown:\n%s", text)
			}
		})
	}
}

// Requests use the complete URL, including its user, path, and query.
func TestPool_SendsKeysOfURLs(t *testing.T) {
	t.Parallel()
	chain := chaintest.New(t)
	d := chaintest.NewDouble(t, chain.Client())
	asked := make(chan *http.Request, 100)
	d.Watch(func(r *http.Request) { asked <- r })
	url := strings.Replace(d.URL, "http://", "http://user-of-them:password-of-them@", 1) + "/v2/path%2Dkey?apikey=query-key-4567"
	pool := must.Get(endpoints.New(endpoints.Config{URLs: []string{url}, ChainID: chain.ChainID(), Timeout: unhurried, Idle: true}))(t)
	defer pool.Close()
	must.Do(t, pool.Read(t.Context(), func(ctx context.Context, c *endpoints.Conn) error {
		_, err := (*ethclient.Client).BlockNumber(c.Client, ctx)
		return err
	}))
	r := <-asked
	user, password, _ := r.BasicAuth()
	if user != "user-of-them" || password != "password-of-them" || r.URL.RequestURI() != "/v2/path%2Dkey?apikey=query-key-4567" || "http://"+r.Host != d.URL {
		t.Errorf("asked %s%s as %q, %q", r.Host, r.URL.RequestURI(), user, password)
	}
}

// A JSON-RPC error with HTTP status 400 or 422 is a response to the request. With status 401 or 503, for example, it is a fault of the endpoint.
func TestRead_ErrorsUnderAStatus(t *testing.T) {
	t.Parallel()
	const body = `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"execution reverted"}}`
	for status, answer := range map[int]bool{400: true, 422: true, 401: false, 403: false, 429: false, 500: false, 503: false} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			s := newTwoEndpoints(t, nil)
			s.number(t)
			s.first.Status(status, body)
			s.next.Status(status, body)
			err := s.pool.Read(t.Context(), func(ctx context.Context, c *endpoints.Conn) error {
				_, err := c.BlockNumber(ctx)
				return err
			})
			if got := !errors.Is(err, endpoints.ErrNone); err == nil || got != answer {
				t.Errorf("%v", err)
			}
		})
	}
}
