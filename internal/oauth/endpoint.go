package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxForm bounds the body of an endpoint in bytes.
	maxForm = 16 << 10
	// Bounds of texts, in characters.
	maxText        = 256
	maxRedirect    = 1024
	maxResource    = 2048
	maxDocumentURL = 1024
	maxSource      = 64
	// maxCalls is how many times one address may register, and begin with devices, in a minute.
	maxCalls = 60
)

// refusal is an error of an endpoint (RFC 6749, section 5.2). All other errors are faults of the service.
type refusal struct {
	status      int
	Word        string `json:"error"`
	Description string `json:"error_description"`
}

func (r *refusal) Error() string { return r.Description }

func refused(word, description string) *refusal {
	return &refusal{http.StatusBadRequest, word, description}
}

func tooMany(description string) *refusal {
	return &refusal{http.StatusTooManyRequests, "temporarily_unavailable", description}
}

// refusalOf returns the answer to an error. The log has the cause of what is not the fault of the caller.
func (o *OAuth) refusalOf(ctx context.Context, err error) *refusal {
	if no, ok := errors.AsType[*refusal](err); ok {
		return no
	}
	o.Log.ErrorContext(ctx, "oauth", slog.Any("err", err))
	if toll.AsError(err).HTTPStatus() == http.StatusServiceUnavailable || errors.Is(err, store.ErrUnknownOutcome) {
		return &refusal{http.StatusServiceUnavailable, "temporarily_unavailable", "The service is temporarily unavailable."}
	}
	return &refusal{http.StatusInternalServerError, "server_error", "The service failed with an internal error."}
}

// created is an answer with the status 201.
type created struct{ body any }

// endpoint serves an act in the manner of RFC 6749, section 5.
func (o *OAuth) endpoint(act func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := act(w, r.WithContext(o.From(r)))
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("Pragma", "no-cache")
		status := http.StatusOK
		if made, ok := answer.(created); ok {
			answer, status = made.body, http.StatusCreated
		}
		if err != nil {
			no := o.refusalOf(r.Context(), err)
			answer, status = no, no.status
			switch status {
			case http.StatusUnauthorized:
				if _, _, basic := r.BasicAuth(); basic {
					h.Set("WWW-Authenticate", "Basic")
				}
			case http.StatusTooManyRequests:
				h.Set("Retry-After", strconv.Itoa(int(window/time.Second)))
			case http.StatusServiceUnavailable:
				h.Set("Retry-After", "1")
			}
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // the caller has gone; there is nobody to tell
	})
}

// readForm returns the parameters of the body; each may be there once (RFC 6749, section 3.2), but resource, which has an
// error of its own. Those of the query do not count, as secrets have no place there.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, refused("invalid_request", "The body must be application/x-www-form-urlencoded.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, refused("invalid_request", "The body could not be read, or is larger than 16 KiB.")
	}
	for name, values := range r.PostForm {
		if len(values) > 1 && name != "resource" {
			return nil, refused("invalid_request", "A parameter appears more than once.")
		}
	}
	return r.PostForm, nil
}

func (o *OAuth) source(r *http.Request) string {
	s := o.Source(r)
	return s[:min(len(s), maxSource)]
}

// counted is the address for which a call counts: of IPv6 without the last 64 bits, which a caller chooses.
func counted(source string) string {
	a, err := netip.ParseAddr(source)
	if err != nil || !a.Is6() {
		return source
	}
	p, _ := a.Prefix(64) // 64 bits fit
	return p.String()
}

// window is how long it takes until a caller may call as often as ever.
const window = time.Minute

// newCalls counts the calls of callers, in this process alone, and lets each through so many times in a window.
func newCalls(most int64) *meter.Meter[string] {
	return meter.New[string](window/time.Duration(most), most)
}

// allows counts a call and reports whether it is within the limit.
func (o *OAuth) allows(calls *meter.Meter[string], who string) bool {
	return calls.Take(who, 1, time.Duration(o.Clock().UnixNano())).OK
}
