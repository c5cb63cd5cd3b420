package client

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// DeviceSignIn gets an API key of a person for a program on a computer without a browser (RFC 8628). The program shows UserCode
// and URL, then polls with [Client.ExchangeDevice] every Interval until the person has decided on another device.
type DeviceSignIn struct {
	UserCode  string
	URL       string        // where the person types the code
	FullURL   string        // URL with the code included; may be empty
	Interval  time.Duration // between polls; ExchangeDevice lengthens it on slow_down
	ExpiresIn time.Duration // of the codes

	clientID string
	code     string // device_code
}

// ErrUndecided is returned by [Client.ExchangeDevice] until the person has decided.
var ErrUndecided = errors.New("client: the person has not approved or denied the request yet")

// slowDown is added to the interval after a slow_down error (RFC 8628, section 3.5).
const slowDown = 5 * time.Second

// StartDevice begins a sign-in. clientID is the name of the program, which its keys get. rights are the rights that the program
// requests; the person may grant fewer. Without rights, the service proposes the program's default rights.
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

// ExchangeDevice returns the API key and its life once the person has approved the sign-in. Errors: [ErrUndecided] means that
// the program should call again after the interval; a denial and an expired code have the OAuth error code in params.error.
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

// showable reports whether s has 1 to most bytes, all visible ASCII, so that it is safe to print on a terminal.
func showable(s string, most int) bool {
	return s != "" && len(s) <= most && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
