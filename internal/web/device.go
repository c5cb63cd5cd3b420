package web

import (
	"net/http"
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
)

// formDevice is the first word of what the ticket of that form says.
const formDevice = "device"

// deviceForm asks for the code that a device shows.
type deviceForm struct {
	Code   string
	Ticket string
}

// Device is GET and POST /device (RFC 8628, section 3.3). Codes are looked up by forms only, of persons who signed in.
func (w *Web) Device() http.Handler {
	return w.page(func(v *visit) {
		if signedInForDevice(v) {
			askCode(v, http.StatusOK, v.r.URL.Query().Get("user_code"), "")
		}
	}, func(v *visit) {
		v.at = PathDevice
		if !signedInForDevice(v) {
			return
		}
		code := v.form.Get("request")
		deciding := code != ""
		if !deciding {
			code = v.form.Get("user_code")
			if !v.holds(v.form.Get("ticket"), formDevice) {
				askCode(v, http.StatusForbidden, code, "This form is not one of this session. Send it once more.")
				return
			}
		}
		d, err := w.OAuth.Device(w.OAuth.From(v.r), v.person.Address, code)
		if e := toll.AsError(err); err != nil && e.HTTPStatus() < http.StatusInternalServerError {
			askCode(v, e.HTTPStatus(), code, e.Text())
			return
		}
		if err != nil {
			v.fail(err)
			return
		}
		a, err := asksOn(v, v.ctx(), d)
		if err != nil {
			v.fail(err)
			return
		}
		if !deciding {
			showConsent(v, http.StatusOK, a, a.suggested(), "")
			return
		}
		decide(v, a,
			func(c oauth.Choice) (string, error) {
				return "The program is let in.", w.OAuth.ApproveDevice(w.OAuth.From(v.r), code, v.person.Caller, c)
			},
			func() (string, error) { return "The program is refused.", w.OAuth.DenyDevice(v.ctx(), code) },
			func(text string) {
				v.show(http.StatusOK, "message", shown{Title: "Done", Body: message{Text: text, Next: "Go back to the device: it continues by itself."}}, "")
			},
			func() (*asked, error) { return asksOn(v, v.ctx(), d) },
		)
	})
}

// signedInForDevice reports whether the person may go on; it asks for a sign-in else.
func signedInForDevice(v *visit) bool {
	if v.w.fresh(v.person) {
		return true
	}
	next := PathDevice
	if code := v.r.FormValue("user_code"); code != "" {
		next += "?" + url.Values{"user_code": {code}}.Encode()
	}
	askSignIn(v, http.StatusOK, "A program without a browser asks for access to your account. Sign in to read what it wants, and to decide.", next, "")
	return false
}

func askCode(v *visit, status int, code, fault string) {
	v.show(status, "device", shown{
		Title: "Let a device in?", Fault: fault, Body: deviceForm{plain.Name(code), v.ticket(formDevice)},
	}, "")
}
