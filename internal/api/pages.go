package api

import "net/http"

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
			action: action{run: func(_ *handler, c *call) (any, error) {
				c.written = true
				p.Handler.ServeHTTP(c.w, c.r.WithContext(c.context))
				return served{}, nil
			}},
		})
	}
	return routes
}
