package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// Page is a route that another room answers, in a form of its own: a page for people, an endpoint of OAuth. It gets the
// headers and limits of every answer here, and is no part of the OpenAPI document.
type Page struct {
	Method, Path string
	Handler      http.Handler
}

// served says that the answer has been written.
type served struct{}

func pageRoutes(pages []Page) []route {
	routes := make([]route, 0, len(pages))
	for _, p := range pages {
		routes = append(routes, route{
			op: "page", method: p.Method, path: p.Path, auth: open, right: public, anyVersion: true,
			action: action{run: func(c *call) (any, error) {
				c.written = true
				p.Handler.ServeHTTP(c.w, c.r.WithContext(c.context))
				return served{}, nil
			}},
		})
	}
	return routes
}

// fromPerson reports whether a person opened the address in a browser: programs do not ask for HTML first.
func (c *call) fromPerson() bool { return strings.HasPrefix(c.r.Header.Get("Accept"), "text/html") }

// forPrograms are the beginnings of paths that only programs call.
var forPrograms = []string{"/api/", "/.well-known/"}

// notServed answers for a path, or for a method of one, that is not served: a person in a browser gets
// a page, everybody else JSON.
func (c *call) notServed(code toll.Code) {
	e := toll.NewError(code)
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	forProgram := func(prefix string) bool { return strings.HasPrefix(c.r.URL.Path, prefix) }
	if c.h.noPage == nil || !reads || !c.fromPerson() || len(c.r.Header["Authorization"]) > 0 || slices.ContainsFunc(forPrograms, forProgram) {
		c.fail(e)
		return
	}
	c.written, c.answered = true, e.HTTPStatus()
	c.w.Header().Add("Vary", "Accept")
	c.h.noPage(c.w, c.r.WithContext(c.context), e.HTTPStatus())
}
