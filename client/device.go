package client

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// DeviceSignIn is how a program gets an API key of a person when there is no browser on its computer (RFC 8628): it shows
// UserCode and URL, and asks with [Client.ExchangeDevice], every Interval, until the person has decided elsewhere.
type DeviceSignIn struct {
	UserCode  string
	URL       string        // where the person types the code
	FullURL   string        // the same with the code in it; may be empty
	Interval  time.Duration // between two questions; the service may make it longer
	ExpiresIn time.Duration // of the codes

	clientID string
	code     string // what the program asks with
}

// ErrUndecided is the answer of [Client.ExchangeDevice] while the person has not decided.
var ErrUndecided = errors.New("client: the person has not decided yet")

// slowDown is what an answer slow_down adds to the interval (RFC 8628, section 3.5).
const slowDown = 5 * time.Second

// StartDevice begins a sign-in. clientID is the name of the program, which its keys get. rights are what the key is to have, of which the
// person may give fewer; with none the service proposes those of the program.
func (c *Client) StartDevice(ctx context.Context, clientID string, rights ...toll.Right) (*DeviceSignIn, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	var out struct {
		DeviceCode string `json:"device_code"`
		UserCode   string `json:"user_code"`
		URI        string `json:"verification_uri"`
		Complete   string `json:"verification_uri_complete"`
		ExpiresIn  int64  `json:"expires_in"`
		Interval   int64  `json:"interval"`
	}
	form := url.Values{"client_id": {clientID}, "resource": {info.APIBase}}
	if len(rights) > 0 {
		form.Set("scope", toll.Rights(rights).String())
	}
	a, err := c.oauth(ctx, "/oauth/device_authorization", form, &out)
	if err != nil {
		return nil, err
	}
	if out.DeviceCode == "" || !showable(out.UserCode, 64) || !showable(out.URI, 2048) || out.ExpiresIn <= 0 {
		return nil, unreadable(a, nil)
	}
	if out.Interval <= 0 {
		out.Interval = 5
	}
	if !showable(out.Complete, 2048) {
		out.Complete = ""
	}
	return &DeviceSignIn{
		UserCode: out.UserCode, URL: out.URI, FullURL: out.Complete, Interval: time.Duration(out.Interval) * time.Second,
		ExpiresIn: time.Duration(out.ExpiresIn) * time.Second, clientID: clientID, code: out.DeviceCode,
	}, nil
}

// ExchangeDevice asks whether the person has decided, and returns the API key and how long it lives. Errors: [ErrUndecided]
// to ask again after the interval; a refusal and a code that ended have the word of OAuth in params.error.
func (c *Client) ExchangeDevice(ctx context.Context, d *DeviceSignIn) (key string, life time.Duration, err error) {
	key, life, err = c.exchange(ctx, url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {d.code}, "client_id": {d.clientID},
	})
	if e, ok := errors.AsType[*toll.Error](err); ok {
		switch e.Params["error"] {
		case "slow_down":
			d.Interval += slowDown
			err = ErrUndecided
		case "authorization_pending":
			err = ErrUndecided
		}
	}
	return key, life, err
}

// showable reports whether a text can be printed on a terminal as it is.
func showable(s string, most int) bool {
	return s != "" && len(s) <= most && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
