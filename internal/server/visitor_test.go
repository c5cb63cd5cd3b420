package server_test

import (
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// visitor is a person with a browser: it keeps cookies, and sends forms as the pages have them.
type visitor struct {
	browser
	jar  http.CookieJar
	base *url.URL
}

func newVisitor(t *testing.T, address string) *visitor {
	t.Helper()
	jar := must.Get(cookiejar.New(nil))(t)
	u := must.Get(url.Parse(address))(t)
	return &visitor{browser{t, address}, jar, u}
}

func (v *visitor) visit(method, path, body string, header []string) shown {
	v.t.Helper()
	at := *v.base // a cookie may be for some pages alone
	at.Path, _, _ = strings.Cut(path, "?")
	var pairs []string
	for _, c := range v.jar.Cookies(&at) {
		pairs = append(pairs, c.Name+"="+c.Value)
	}
	if len(pairs) > 0 {
		header = append([]string{"Cookie", strings.Join(pairs, "; ")}, header...)
	}
	res := v.send(method, path, body, header...)
	v.jar.SetCookies(&at, (&http.Response{Header: res.header}).Cookies())
	return res
}

// get opens a page.
func (v *visitor) get(path string) shown {
	v.t.Helper()
	return v.visit(http.MethodGet, path, "", nil)
}

// post sends a form from a page of the service, unless the header says otherwise.
func (v *visitor) post(path string, form url.Values, header ...string) shown {
	v.t.Helper()
	return v.visit(http.MethodPost, path, form.Encode(), append([]string{"Origin", v.url, "Sec-Fetch-Site", "same-origin"}, header...))
}

// page is the form of a page, filled in as it is shown.
type page struct {
	action string
	values url.Values
}

var (
	mainPart   = regexp.MustCompile(`(?s)<main>.*</main>`)
	requestID  = regexp.MustCompile(`include the correlation id <code>[0-9a-f-]{36}</code>`)
	formTag    = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	inputTag   = regexp.MustCompile(`<input [^>]*>`)
	selectTag  = regexp.MustCompile(`(?s)<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>`)
	optionTag  = regexp.MustCompile(`<option value="([^"]*)"( selected)?>`)
	attributes = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
)

// withoutID returns a page without the id of its request, which differs each time.
func withoutID(page string) string { return requestID.ReplaceAllString(page, "") }

// formOf reads the form of the main part of a page.
func formOf(t *testing.T, s shown) page {
	t.Helper()
	body := mainPart.FindString(s.body)
	action := formTag.FindStringSubmatch(body)
	if action == nil {
		t.Fatalf("%d, no form:\n%s", s.status, mainPart.FindString(s.body))
	}
	labelled(t, s.body)
	p := page{html.UnescapeString(action[1]), url.Values{}}
	for _, tag := range inputTag.FindAllString(body, -1) {
		a := map[string]string{}
		for _, m := range attributes.FindAllStringSubmatch(tag, -1) {
			a[m[1]] = html.UnescapeString(m[2])
		}
		if a["type"] == "checkbox" {
			if strings.HasSuffix(tag, " checked>") {
				p.values.Add(a["name"], a["value"])
			}
			continue
		}
		if a["type"] != "radio" || strings.HasSuffix(tag, " checked>") {
			p.values.Set(a["name"], a["value"])
		}
	}
	for _, m := range selectTag.FindAllStringSubmatch(body, -1) {
		for i, o := range optionTag.FindAllStringSubmatch(m[2], -1) {
			if i == 0 || o[2] != "" {
				p.values.Set(m[1], html.UnescapeString(o[1]))
			}
		}
	}
	return p
}

// with returns the form with a value changed; nil leaves it out.
func (p page) with(name string, value ...string) page {
	values := url.Values{}
	for k, v := range p.values {
		values[k] = v
	}
	values[name] = value
	return page{p.action, values}
}

// leaves returns the address outside to which a page sends the browser by itself.
func leaves(s shown) (to string, ok bool) {
	to, ok = strings.CutPrefix(s.header.Get("Refresh"), "0; url=")
	return to, ok && s.status == http.StatusOK && s.header.Get("Location") == ""
}

func (v *visitor) submit(p page, header ...string) shown {
	v.t.Helper()
	return v.post(p.action, p.values, header...)
}

// signIn signs the visitor in, on whatever page asks for it, and returns the page that comes then.
func (v *visitor) signIn(s shown, key string) shown {
	v.t.Helper()
	res := v.submit(formOf(v.t, s).with("api_key", key))
	if res.status != http.StatusSeeOther {
		v.t.Fatalf("sign-in: %d %s", res.status, mainPart.FindString(res.body))
	}
	return v.get(res.header.Get("Location"))
}

var idAttribute = regexp.MustCompile(` id="([^"]*)"`)

// labelled proves of a page what a reader of screens needs: a language, one heading, ids that are there once, and a label for
// each field.
func labelled(t *testing.T, body string) {
	t.Helper()
	if !strings.Contains(body, `<html lang="en">`) || strings.Count(body, "<h1>") != 1 || strings.Count(body, "<main>") != 1 {
		t.Errorf("no language, heading or main part")
	}
	ids := map[string]int{}
	for _, m := range idAttribute.FindAllStringSubmatch(body, -1) {
		if ids[m[1]]++; ids[m[1]] > 1 {
			t.Errorf("the id %s is there twice", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`<(input|select) [^>]*>`).FindAllString(body, -1) {
		id := idAttribute.FindStringSubmatch(m)
		if !strings.Contains(m, `type="hidden"`) && (id == nil || !strings.Contains(body, `<label for="`+id[1]+`">`)) {
			t.Errorf("no label: %s", m)
		}
		for _, by := range regexp.MustCompile(`aria-describedby="([^"]*)"`).FindAllStringSubmatch(m, -1) {
			if ids[by[1]] == 0 {
				t.Errorf("described by nothing: %s", m)
			}
		}
	}
}
