package x402

import "github.com/tollhq/toll"

// Pattern is the url of a registered endpoint, ready to be matched.
type Pattern struct{ text string }

// ParsePattern reads the url of an endpoint.
func ParsePattern(url string) (Pattern, error) { return Pattern{url}, nil }

// MatchEndpoint returns the registered url and verb that the url and verb of a request fall under.
func MatchEndpoint(endpoints []toll.Endpoint, url, verb string) (pattern, matchedVerb string, ok bool) {
	return "", "", false
}
