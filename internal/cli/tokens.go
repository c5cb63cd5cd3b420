package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/x402"
)

func tokensCommand(a *app) *cobra.Command {
	const path = "/x402/permissions/HASH"
	return group("tokens", "Manage access tokens and their permissions", "",
		tokensCreate(a, "create"),
		a.resource(call{
			use: "list", short: "List your permissions", list: list.Permissions,
			flags: []flag{
				{"plan", "planId", planID, "only permissions for this plan"},
				{"status", "status", word, "only permissions with this status"},
			},
		}),
		a.get("get HASH", "Show a permission and its latest settlements", path),
		a.act("revoke HASH", "Revoke a permission and its access token", http.MethodDelete, path),
		tokensDecode(a),
	)
}

// decoded is what a token says. Only the claims are signed.
type decoded struct {
	Rendering string          `json:"rendering"`
	Signature string          `json:"signature"` // valid, invalid, or unchecked
	Expired   bool            `json:"expired"`
	Header    json.RawMessage `json:"header"`
	Claims    json.RawMessage `json:"claims"`
	Nonce     string          `json:"nonce,omitempty"`
	Resource  string          `json:"resource,omitempty"`
}

func tokensDecode(a *app) *cobra.Command {
	c := command("decode TOKEN", "Show the contents of an access token", nil)
	c.Long = `Show the contents of an access token in any of its formats; - reads it from stdin, @path from a file.

The token is not sent. The command checks the signature with the public keys of the configured service, if the service can be reached.`
	c.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := a.textArgument(args[0])
		if err != nil {
			return err
		}
		token, err := x402.DecodeToken(text)
		if err != nil {
			return err
		}
		d := decoded{Rendering: token.Rendering, Nonce: token.Nonce, Resource: token.ResourceURL}
		parts := strings.Split(token.JWS, ".")
		if len(parts) != 3 {
			return errors.New("the token does not contain a JWS")
		}
		for i, into := range []*json.RawMessage{&d.Header, &d.Claims} {
			if *into, err = base64.RawURLEncoding.DecodeString(parts[i]); err != nil || !json.Valid(*into) {
				return errors.New("the header or the claims of the token are not JSON in base64url")
			}
		}
		var times struct {
			Expiry int64 `json:"exp"`
		}
		if json.Unmarshal(d.Claims, &times) == nil && times.Expiry > 0 {
			d.Expired = time.Now().Unix() >= times.Expiry
		}
		d.Signature = checkSignature(cmd.Context(), a, token.JWS)
		if err := a.show(d); err != nil {
			return err
		}
		if d.Signature == "invalid" {
			return errors.New("the access token was not signed by this service")
		}
		return nil
	}
	return c
}

// askTime is the timeout of requests that a command can do without.
const askTime = 30 * time.Second

// checkSignature checks a token with the keys of the configured service. It ignores key addresses in the token.
func checkSignature(ctx context.Context, a *app, token string) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var set jose.JSONWebKeySet
	_, err := fetch(ctx, a.client().URL()+"/.well-known/jwks.json", &set)
	if err != nil || len(set.Keys) == 0 {
		a.say("note", "the service cannot be reached or did not return its keys, so the signature was not checked")
		return "unchecked"
	}
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err == nil {
		_, err = jws.Verify(&set)
	}
	if err != nil {
		return "invalid"
	}
	return "valid"
}
