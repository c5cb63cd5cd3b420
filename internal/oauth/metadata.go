package oauth

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauthmeta"
)

// Paths of the documents, at the origin.
const (
	protectedPath = "/.well-known/oauth-protected-resource"
	serverPath    = "/.well-known/oauth-authorization-server"
	openIDPath    = "/.well-known/openid-configuration"
)

// Scopes are the words that documents name. Others are taken as well.
var Scopes = []string{"openid", "profile", "credits", "mcp:read", "mcp:write", "mcp:tools"}

// rightScopes are the words that are rights of an API key.
var rightScopes = strings.Fields(toll.ProgramRights().String())

// Documents returns the documents by their paths, for the origin and for the API below it.
func (o *OAuth) Documents() map[string]http.Handler {
	suffix := o.Resource[len(o.Issuer):]
	of := func(resource string, scopes []string) http.Handler {
		return document(oauthmeta.Resource{
			Resource: resource, Servers: []string{o.Issuer}, Scopes: scopes, Methods: []string{"header"}, Documentation: o.Issuer + "/",
		})
	}
	server := document(oauthmeta.Of(o.Issuer, slices.Concat(Scopes, rightScopes)))
	return map[string]http.Handler{
		serverPath:             server,
		openIDPath:             server,
		protectedPath:          of(o.Issuer, Scopes),
		protectedPath + suffix: of(o.Resource, slices.Concat([]string{"openid", "profile"}, rightScopes)),
	}
}

func document(v any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "public, max-age=3600")
		_ = json.NewEncoder(w).Encode(v) // the caller has gone; there is nobody to tell
	})
}
