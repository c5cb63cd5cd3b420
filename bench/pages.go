package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
)

// pages open pages of the seller of many settlements, one after the other on one connection. An answer is compressed, as a browser gets it.
func (b *bench) pages(engine string) (out []*scenario) {
	for _, p := range []struct{ name, path, heading string }{
		{"overview", "", "Overview"}, {"usage", "/usage", "Usage"}, {"requests", "/requests", "Requests"},
		{"subscribers", "/subscribers", "Subscribers"}, {"events", "/events", "Events"},
	} {
		out = append(out, &scenario{
			name: "page-" + p.name + "-" + engine, about: "open the page " + p.heading + " of a seller", engine: full + engine,
			load: func(b *bench) (*load, error) {
				m := b.markets[full+engine]
				msg, err := m.opened(p.path, p.heading)
				return &load{addr: m.service.addr, lanes: [][]message{{msg}}, want: []byte("\x1f\x8b")}, err
			},
		})
	}
	return out
}

// opened signs the builder in, and returns the request for a page of its workspace, which has a heading.
func (m *market) opened(path, heading string) (message, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return message{}, err
	}
	browser := &http.Client{Jar: jar}
	at, err := m.look(browser, http.MethodPost, "/sign-in", url.Values{"api_key": {m.key}}, "Overview")
	if err != nil {
		return message{}, err
	}
	if _, err := m.look(browser, http.MethodGet, at.Path+path, nil, heading); err != nil {
		return message{}, err
	}
	var cookies []string
	for _, c := range jar.Cookies(at) {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	return message{raw: fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: toll-bench\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n"+
		"Cookie: %s\r\n\r\n", at.Path+path, m.service.addr, strings.Join(cookies, "; "))}, nil
}

// look opens a page, which has to have a heading, and returns its address.
func (m *market) look(browser *http.Client, method, path string, form url.Values, heading string) (*url.URL, error) {
	req, err := http.NewRequest(method, m.url()+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := browser.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && !bytes.Contains(body, []byte("<h1>"+heading+"</h1>")) {
		err = fmt.Errorf("%s answers %d without the heading %s", path, res.StatusCode, heading)
	}
	return res.Request.URL, err
}
