package x402

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
)

// ExtensionBazaar is the extension in which servers describe their resources for the lists of facilitators.
const ExtensionBazaar = "bazaar"

// Kinds of resources in a catalogue.
const (
	ResourceHTTP = "http"
	ResourceMCP  = "mcp"
)

// MaxBazaarBytes bounds the description of a resource in a payment, as JSON text.
const MaxBazaarBytes = 8 << 10

// Catalogue is a page of resources that can be paid through a facilitator (x402 extension bazaar, discovery endpoints).
type Catalogue struct {
	X402Version int             `json:"x402Version"`
	Items       []CatalogueItem `json:"items"`
	Pagination  CataloguePage   `json:"pagination"`
}

// CataloguePage describes a page of a list. Offset is the number of skipped items. Limit is the requested number, or the number
// of items if a response would have been too large.
type CataloguePage struct {
	Limit  int `json:"limit"`
	Offset int `json:"offset"`
	Total  int `json:"total"`
}

// FoundResources is a page of search results.
type FoundResources struct {
	X402Version int             `json:"x402Version"`
	Resources   []CatalogueItem `json:"resources"`
	// PartialResults reports that more results exist.
	PartialResults bool      `json:"partialResults"`
	Pagination     FoundPage `json:"pagination"`
}

// FoundPage has the page size and the cursor of the next page, null on the last page.
type FoundPage struct {
	Limit  int     `json:"limit"`
	Cursor *string `json:"cursor"`
}

// CatalogueItem is one resource: an HTTP endpoint, or a tool, which its url and name identify.
type CatalogueItem struct {
	Resource      string         `json:"resource"`
	Type          string         `json:"type"` // ResourceHTTP or ResourceMCP
	X402Version   int            `json:"x402Version"`
	Accepts       []Requirements `json:"accepts"`
	LastUpdated   int64          `json:"lastUpdated"`   // seconds since 1970
	LastUpdatedAt string         `json:"lastUpdatedAt"` // the same as text (RFC 3339, UTC), for clients that read text
	Description   string         `json:"description,omitempty"`
	MimeType      string         `json:"mimeType,omitempty"`
	Metadata      struct {
		AgentID toll.AgentID `json:"agentId"`
	} `json:"metadata"`
	Extensions map[string]json.RawMessage `json:"extensions"`
}

// CatalogueFilter selects items by its non-empty fields. Address and network are compared by value, the rest as text.
type CatalogueFilter struct {
	Type      string
	PayTo     string
	Scheme    string
	Network   string
	Extension string // an item has an extension of this name
}

// Bazaar is the description of a resource in a payment.
type Bazaar struct {
	Info          json.RawMessage // {"input": {…}, "output": {…}}
	Schema        json.RawMessage // JSON Schema of Info
	RouteTemplate string          // for example "/items/:id", "" for a fixed path
	Type          string          // ResourceHTTP or ResourceMCP
	Method        string          // of an HTTP resource
	Tool          string          // of a tool
}

type bazaarExtension struct {
	Info          json.RawMessage `json:"info"`
	Schema        json.RawMessage `json:"schema"`
	RouteTemplate string          `json:"routeTemplate"`
}

type bazaarInfo struct {
	Input *struct {
		Type        string          `json:"type"`
		Method      string          `json:"method"`
		BodyType    string          `json:"bodyType"`
		Body        json.RawMessage `json:"body"`
		ToolName    string          `json:"toolName"`
		InputSchema json.RawMessage `json:"inputSchema"`
	} `json:"input"`
	Output *struct {
		Type string `json:"type"`
	} `json:"output"`
}

// ReadBazaar parses the extension bazaar of a payment and checks its form, not that Info fits Schema or who owns the resource.
// Errors: [toll.CodeBadRequest] with one sentence.
func ReadBazaar(extension json.RawMessage) (*Bazaar, error) {
	bad := func(why string) (*Bazaar, error) { return nil, toll.Errorf(toll.CodeBadRequest, "%s", why) }
	if len(extension) > MaxBazaarBytes {
		return bad("the extension is larger than 8 KiB")
	}
	var e bazaarExtension
	var info bazaarInfo
	switch {
	case Decode(extension, &e) != nil, len(e.Info) == 0, Decode(e.Info, &info) != nil, info.Input == nil:
		return bad("info has no input")
	case len(e.Schema) == 0:
		return bad("schema is missing")
	case info.Output != nil && info.Output.Type == "":
		return bad("output has no type")
	case e.RouteTemplate != "" && !ValidRouteTemplate(e.RouteTemplate):
		return bad("routeTemplate is not a path with :name segments")
	}
	b := &Bazaar{Info: e.Info, Schema: e.Schema, RouteTemplate: e.RouteTemplate, Type: info.Input.Type}
	switch in := info.Input; in.Type {
	case ResourceHTTP:
		b.Method = in.Method
		switch in.Method {
		case "GET", "HEAD", "DELETE":
		case "POST", "PUT", "PATCH":
			if in.BodyType != "json" && in.BodyType != "form-data" && in.BodyType != "text" || len(in.Body) == 0 {
				return bad("input must have bodyType and body")
			}
		default:
			return bad("the method of input is not supported")
		}
	case ResourceMCP:
		if b.Tool = in.ToolName; b.Tool == "" || len(in.InputSchema) == 0 || in.InputSchema[0] != '{' {
			return bad("input must have toolName and inputSchema")
		}
	default:
		return bad("the type of input must be http or mcp")
	}
	return b, nil
}

// ValidRouteTemplate reports whether s is a routeTemplate: "/" and A-Z a-z 0-9 _ / : . - ~ %, without ".." and "://" after
// percent-decoding.
func ValidRouteTemplate(s string) bool {
	if len(s) < 2 || s[0] != '/' || strings.Trim(s[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/:.-~%") != "" {
		return false
	}
	plain, err := url.PathUnescape(s)
	return err == nil && !strings.Contains(plain, "..") && !strings.Contains(plain, "://")
}

// RouteOf splits the absolute http or https url of an endpoint into a resource, whose parameters are ":name", and the routeTemplate, "" if
// the path has no parameters. It returns false for a path, a wildcard, or characters that a template may not contain.
func RouteOf(endpoint string) (resource, template string, ok bool) {
	p, err := ParsePattern(endpoint)
	if err != nil || (p.scheme != "http" && p.scheme != "https") || p.rest {
		return "", "", false
	}
	if p.rank == 0 {
		resource, _, _ = strings.Cut(endpoint, "#")
		resource, _, _ = strings.Cut(resource, "?")
		return resource, "", true
	}
	scheme, rest, _ := strings.Cut(endpoint, "://")
	host, path, _ := strings.Cut(rest, "/")
	path, _, _ = strings.Cut(path, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if len(s) > 2 && s[0] == '{' && s[len(s)-1] == '}' {
			segments[i] = ":" + s[1:len(s)-1]
		}
	}
	template = "/" + strings.Join(segments, "/")
	return scheme + "://" + host + template, template, ValidRouteTemplate(template)
}

// ToolOf returns the tool name of an mcp url of an endpoint. It returns false for other urls and patterns.
func ToolOf(endpoint string) (tool string, ok bool) {
	p, err := ParsePattern(endpoint)
	if err != nil || p.scheme != "mcp" || p.kind != "tools" || p.rank != 0 || !strings.Contains(strings.ToLower(endpoint), "/tools/") {
		return "", false
	}
	return p.path, true
}
