package oauth

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll"
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

// metadata is the document of an authorization server. One document is served for RFC 8414 and for
// OpenID Connect Discovery 1.0, since clients read either and expect the same.
type metadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	DeviceEndpoint        string   `json:"device_authorization_endpoint"`
	UserInfoEndpoint      string   `json:"userinfo_endpoint"`
	JWKSURI               string   `json:"jwks_uri"`
	ResponseTypes         []string `json:"response_types_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	Scopes                []string `json:"scopes_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	SubjectTypes          []string `json:"subject_types_supported"`
	SigningAlgs           []string `json:"id_token_signing_alg_values_supported"`
	Claims                []string `json:"claims_supported"`
	ClientDocuments       bool     `json:"client_id_metadata_document_supported"`
	IssuerInAnswers       bool     `json:"authorization_response_iss_parameter_supported"`
}

// metadataOf returns the document of the authorization server with this origin.
func metadataOf(issuer string) metadata {
	return metadata{
		Issuer:                issuer,
		AuthorizationEndpoint: issuer + "/oauth/authorize",
		TokenEndpoint:         issuer + "/oauth/token",
		RegistrationEndpoint:  issuer + "/oauth/register",
		RevocationEndpoint:    issuer + "/oauth/revoke",
		DeviceEndpoint:        issuer + "/oauth/device_authorization",
		UserInfoEndpoint:      issuer + "/oauth/userinfo",
		JWKSURI:               issuer + "/.well-known/jwks.json",
		ResponseTypes:         []string{"code"},
		GrantTypes:            []string{grantCode, grantRefresh, grantDevice},
		ChallengeMethods:      []string{"S256"},
		Scopes:                slices.Concat(Scopes, rightScopes),
		AuthMethods:           []string{methodNone, methodPost, methodBasic},
		SubjectTypes:          []string{"public"},
		SigningAlgs:           []string{"EdDSA"},
		Claims:                []string{"sub", "iss", "aud", "exp", "iat", "name", "email"},
		ClientDocuments:       true,
		IssuerInAnswers:       true,
	}
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
	of := func(resource string, scopes []string) http.Handler {
		return document(protected{resource, []string{o.Issuer}, scopes, []string{"header"}, o.Issuer + "/"})
	}
	server := document(metadataOf(o.Issuer))
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
