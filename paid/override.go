package paid

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// maxFormBody bounds, in bytes, a form or JSON body that must be read before the request is priced.
const maxFormBody = 1 << 20

// refuseOverride returns 405 for a request that overrides its method if the other method could have a different price. Overrides are
// in headers, or in a parameter "_method" of the query or the body of a POST. e is the entry that prices the request, or nil.
func (t *table) refuseOverride(r *http.Request, e *entry, p requestPath) *toll.Error {
	wished := overridesByHeader(r.Header) || namesMethod(r.URL.RawQuery)
	if !wished && !strings.EqualFold(r.Method, http.MethodPost) {
		return nil
	}
	door, paid := false, false
	for i := -1; i < len(p.others); i++ {
		segments := p.segments
		if i >= 0 {
			segments = p.others[i]
		}
		door = door || t.hasOtherPrice(e, segments)
		paid = paid || wished && t.paidPath(segments)
	}
	switch {
	case wished && (door || paid):
		return toll.NewError(toll.CodeMethodNotAllowed)
	case door:
		return refuseBodyOverride(r)
	}
	return nil
}

// hasOtherPrice reports whether the path has a paid route for another method, with a price other than the price of e.
func (t *table) hasOtherPrice(e *entry, segments []string) bool {
	if t.others.differs(e) {
		return true
	}
	for o := range t.fitting(segments) {
		if o.differs(e) {
			return true
		}
	}
	return false
}

// differs reports whether e is a paid route other than o, with a different price. nil means no route.
func (e *entry) differs(o *entry) bool {
	return e != nil && e != o && e.gate != nil && (o == nil || o.gate == nil || !samePrice(e.gate.c, o.gate.c))
}

// samePrice reports whether two routes always cost the same.
func samePrice(a, b *config) bool {
	return a.plan == b.plan && a.credits == b.credits && a.creditsFunc == nil && b.creditsFunc == nil && len(a.perCall) == 0 && len(b.perCall) == 0
}

func overridesByHeader(h http.Header) bool {
	for name := range h {
		switch dashed(name) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			return true
		}
	}
	return false
}

// namesMethod reports whether a query or a form contains a parameter that some framework decodes as "_method".
func namesMethod(form string) bool {
	for pair := range strings.FieldsFuncSeq(form, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if isMethodName(name) {
			return true
		}
	}
	return false
}

// isMethodName reports whether a framework reads a decoded name as "_method". PHP reads ".", " ", and "[" as "_", and all frameworks
// read "_method[]" as a list under that name.
func isMethodName(name string) bool {
	name = strings.ToLower(strings.TrimLeft(name, " "))
	const method = "_method"
	if len(name) < len(method) || !strings.ContainsRune("_.[", rune(name[0])) {
		return false
	}
	rest, ok := strings.CutPrefix("_"+name[1:], method)
	return ok && (rest == "" || strings.ContainsRune(" [.\x00", rune(rest[0])))
}

// refuseBodyOverride reads a form or JSON body, the only kinds with overrides, and puts it back. Errors: 405 for an override, 413
// for a body above 1 MiB, 400 for a malformed or incomplete body, 408 after the read deadline.
func refuseBodyOverride(r *http.Request) *toll.Error {
	kind, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	kind = strings.TrimSpace(kind)
	form, parts := kind == "application/x-www-form-urlencoded", kind == "multipart/form-data"
	if !form && !parts && kind != "application/json" && !strings.HasSuffix(kind, "+json") || r.Body == nil {
		return nil
	}
	b, failed := readBody(r, maxFormBody)
	switch {
	case failed != nil && failed.Code == toll.CodeBodyTooLarge:
		return toll.Errorf(toll.CodeBodyTooLarge, "The body is too large: form and JSON bodies on this path must be at most 1 MiB.")
	case failed != nil:
		return failed
	}
	named := false
	var err error
	switch {
	case form:
		named = namesMethod(string(b))
	case parts:
		named, err = partNamesMethod(r.Header.Get("Content-Type"), b)
	default:
		named, err = memberNamesMethod(b)
	}
	switch {
	case err != nil:
		return toll.Errorf(toll.CodeBadRequest, "The body is malformed.")
	case named:
		return toll.NewError(toll.CodeMethodNotAllowed)
	}
	return nil
}

func partNamesMethod(contentType string, body []byte) (bool, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" || !bytes.Contains(body, []byte("--"+params["boundary"]+"--")) {
		return false, errors.New("the form is incomplete")
	}
	for form := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil || isMethodName(part.FormName()) {
			return err == nil, err
		}
	}
}

// memberNamesMethod reports whether a JSON object has a member "_method". It decodes only bodies that may contain this name.
func memberNamesMethod(body []byte) (bool, error) {
	if !bytes.Contains(body, []byte(`\u`)) && !bytes.Contains(bytes.ToLower(body), []byte(`_method"`)) {
		return false, nil
	}
	if b := bytes.TrimSpace(body); len(b) > 0 && b[0] != '{' {
		return false, nil
	}
	var members map[string]json.RawMessage
	if err := x402.Decode(body, &members); err != nil {
		return false, err
	}
	for name := range members {
		if isMethodName(name) {
			return true, nil
		}
	}
	return false, nil
}
