// Package oauthmeta defines the discovery documents of OAuth: [Server] for the authorization server and [Resource] for protected
// resources. The service and MCP servers share them.
package oauthmeta

// Server is the metadata of an authorization server (RFC 8414, OpenID Connect Discovery 1.0). Clients read either document, so
// both have the same content.
type Server struct {
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

// AgentScope is the prefix of a scope that names an agent by its id. An MCP server lists the scope of its agent and a client
// requests the listed scopes, so the consent page can offer the plans of that agent.
const AgentScope = "agent:"

// Of returns the metadata of the authorization server at the origin issuer.
func Of(issuer string, scopes []string) Server {
	return Server{
		Issuer:                issuer,
		AuthorizationEndpoint: issuer + "/oauth/authorize",
		TokenEndpoint:         issuer + "/oauth/token",
		RegistrationEndpoint:  issuer + "/oauth/register",
		RevocationEndpoint:    issuer + "/oauth/revoke",
		DeviceEndpoint:        issuer + "/oauth/device_authorization",
		UserInfoEndpoint:      issuer + "/oauth/userinfo",
		JWKSURI:               issuer + "/.well-known/jwks.json",
		ResponseTypes:         []string{"code"},
		GrantTypes:            []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"},
		ChallengeMethods:      []string{"S256"},
		Scopes:                scopes,
		AuthMethods:           []string{"none", "client_secret_post", "client_secret_basic"},
		SubjectTypes:          []string{"public"},
		SigningAlgs:           []string{"EdDSA"},
		Claims:                []string{"sub", "iss", "aud", "exp", "iat", "name", "email"},
		ClientDocuments:       true,
		IssuerInAnswers:       true,
	}
}

// Resource is the metadata of a protected resource (RFC 9728).
type Resource struct {
	Resource      string   `json:"resource"`
	Servers       []string `json:"authorization_servers"`
	Scopes        []string `json:"scopes_supported"`
	Methods       []string `json:"bearer_methods_supported"`
	Documentation string   `json:"resource_documentation"`
}
