package oauth

import (
	"encoding/json"
	"net/http"
)

// Paths of the documents, at the origin.
const (
	protectedPath = "/.well-known/oauth-protected-resource"
	serverPath    = "/.well-known/oauth-authorization-server"
	openIDPath    = "/.well-known/openid-configuration"
)

// Scopes are the words that documents name. Others are taken as well.
var Scopes = []string{"openid", "profile", "credits", "mcp:read", "mcp:write", "mcp:tools"}

// Metadata is what the documents of an authorization server say (RFC 8414, OpenID Connect Discovery 1.0).
type Metadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	DeviceEndpoint        string   `json:"device_authorization_endpoint"`
	UserInfoEndpoint      string   `json:"userinfo_endpoint,omitempty"`
	JWKSURI               string   `json:"jwks_uri"`
	ResponseTypes         []string `json:"response_types_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	Scopes                []string `json:"scopes_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	SubjectTypes          []string `json:"subject_types_supported"`
	SigningAlgs           []string `json:"id_token_signing_alg_values_supported,omitempty"`
	Claims                []string `json:"claims_supported,omitempty"`
	ClientDocuments       bool     `json:"client_id_metadata_document_supported"`
	IssuerInAnswers       bool     `json:"authorization_response_iss_parameter_supported"`
}

// MetadataOf returns the document of the authorization server with this origin; openID adds what OpenID asks for.
func MetadataOf(issuer string, openID bool) Metadata {
	m := Metadata{
		Issuer: issuer, AuthorizationEndpoint: issuer + "/oauth/authorize", TokenEndpoint: issuer + "/oauth/token",
		RegistrationEndpoint: issuer + "/oauth/register", RevocationEndpoint: issuer + "/oauth/revoke",
		DeviceEndpoint: issuer + "/oauth/device_authorization", JWKSURI: issuer + "/.well-known/jwks.json",
		ResponseTypes: []string{"code"}, GrantTypes: []string{grantCode, grantRefresh, grantDevice}, ChallengeMethods: []string{"S256"},
		Scopes: Scopes, AuthMethods: []string{methodNone, methodPost}, SubjectTypes: []string{"public"}, ClientDocuments: true, IssuerInAnswers: true,
	}
	if openID {
		m.UserInfoEndpoint = issuer + "/oauth/userinfo"
		m.SigningAlgs = []string{"EdDSA"}
		m.Claims = []string{"sub", "iss", "aud", "exp", "iat", "name", "email"}
	}
	return m
}

// protected is the document of a resource (RFC 9728).
type protected struct {
	Resource      string   `json:"resource"`
	Servers       []string `json:"authorization_servers"`
	Scopes        []string `json:"scopes_supported"`
	Methods       []string `json:"bearer_methods_supported"`
	Documentation string   `json:"resource_documentation"`
}

// Documents returns the documents by their paths, for the origin and for the API below it.
func (o *OAuth) Documents() map[string]http.Handler {
	suffix := o.Resource[len(o.Issuer):]
	of := func(resource string) http.Handler {
		return document(protected{resource, []string{o.Issuer}, Scopes, []string{"header"}, o.Issuer + "/"})
	}
	server := document(MetadataOf(o.Issuer, false))
	openID := document(MetadataOf(o.Issuer, true))
	return map[string]http.Handler{
		serverPath: server, openIDPath: openID, protectedPath: of(o.Issuer), protectedPath + suffix: of(o.Resource),
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
