package oauth

import (
	"context"
	"net"
	"net/url"
	"strconv"

	"github.com/tollhq/toll/internal/auth"
)

// StartError is a sign-in that does not begin as it must; its text says why and is safe to show.
type StartError struct {
	Text string
	Next string // what the person can do instead; may be empty
}

func (e StartError) Error() string { return e.Text }

// Start is how a program on the computer of a person asks for an API key, without a registration.
type Start struct {
	Callback  string // where the code goes: http on this machine
	State     string // comes back with the code
	Challenge string // S256 code challenge
}

// ParseStart reads the parameters of a start. Errors are [StartError].
func ParseStart(q url.Values) (Start, error) {
	one := func(name string) string {
		if len(q[name]) == 1 {
			return q[name][0]
		}
		return ""
	}
	s := Start{Callback: one("callback_url"), State: one("state"), Challenge: one("code_challenge")}
	if _, err := callbackHost(s.Callback); err != nil {
		return Start{}, err
	}
	if s.Challenge == "" {
		return Start{}, StartError{
			Text: "This app sent no code_challenge and expects the API key itself. This service does not send keys to a callback.",
			Next: "Enter an API key in the settings of the app instead. To create a key, run toll login and then toll keys create, or ask the operator of " +
				"this service to create a key with toll keys create --local --account NAME.",
		}
	}
	if s.State == "" || len(s.State) > 512 || !visible(s.State) {
		return Start{}, StartError{Text: "state must be 1 to 512 visible characters."}
	}
	if !challenged(s.Challenge) {
		return Start{}, StartError{Text: "code_challenge must be an S256 challenge of 43 characters."}
	}
	if m := q["code_challenge_method"]; len(m) > 1 || len(m) == 1 && m[0] != "S256" {
		return Start{}, StartError{Text: "code_challenge_method must be S256."}
	}
	return s, nil
}

// Host returns where the code goes, as host and port.
func (s Start) Host() string {
	host, _ := callbackHost(s.Callback)
	return host
}

// Answer returns the callback with the code.
func (s Start) Answer(code string) string {
	u, err := url.Parse(s.Callback)
	if err != nil {
		return s.Callback // ParseStart has read it
	}
	u.RawQuery = url.Values{"code": {code}, "state": {s.State}}.Encode()
	return u.String()
}

// callbackHost proves that a callback leads to a program on the machine of the person. IPv6 is not taken, as no content
// security policy can name such a host.
func callbackHost(callback string) (string, error) {
	bad := StartError{
		Text: "callback_url must be http://127.0.0.1:<port>/<path>, the address of an app on this computer.",
	}
	u, err := url.Parse(callback)
	if err != nil || len(callback) > maxRedirect || !visible(callback) || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", bad
	}
	host, port, err := net.SplitHostPort(u.Host)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", bad
	}
	if host != "127.0.0.1" && host != "localhost" {
		return "", bad
	}
	return u.Host, nil
}

// Issue returns a code for the start of a program, with which it gets an API key of the person with the rights of the person's own
// but export and members. Once, within 60 s. Errors: [toll.CodeRightMissing], [toll.CodeRateLimited] when the person lets too many
// programs in, those of the database.
func (o *OAuth) Issue(ctx context.Context, person auth.Caller, s Start) (string, error) {
	asks := Asked{Kind: KindAPIKey, Resource: o.Resource, Rights: person.Gives()}
	g, err := o.grant(ctx, Client{}, asks, person, Choice{})
	if err != nil {
		return "", err
	}
	g.Scope = "" // the program named none
	return o.insertCode(ctx, g, s.Callback, s.Challenge, "")
}
