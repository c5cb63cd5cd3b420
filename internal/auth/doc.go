// Package auth knows who calls and what an access token is worth: principals and their wallet keys, API keys, the
// signing keys of the service, and access tokens (wire contract, sections 6 and 14).
//
// Signed texts are compact JWS with one algorithm, EdDSA over Ed25519, and one header. The parser is narrow on purpose: it takes what this
// room writes and looks at nothing else in a header, so that a hostile token costs a length check, a scan of its characters and at most one
// signature check. Keys come from the database only. See docs/decisions/0004-access-tokens-and-keys.md.
package auth
