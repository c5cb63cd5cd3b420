package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/x402"
)

func (a *app) tokensCommand() *cobra.Command {
	columns := []column{
		{"PERMISSION", "permissionHash"}, {"PLAN", "planId"}, {"STATUS", "status"}, {"USED", "usedCredits"}, {"LIMIT", "maxCredits"}, {"EXPIRES", "expiresAt"},
	}
	return group("tokens", "Access tokens, and the permissions behind them", "",
		a.tokensCreate("create"),
		a.listCommand("list", "List your permissions", "permissions", columns, func([]string) string { return "/x402/permissions" }, "plan", "planId", "status", "status"),
		command("get HASH", "Show a permission and its last settlements", func(cmd *cobra.Command, args []string) error {
			return a.get(cmd.Context(), segments("x402", "permissions", args[0]), nil)
		}),
		command("revoke HASH", "End a permission, and its access token", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodDelete, segments("x402", "permissions", args[0]), nil)
		}),
		a.tokensDecode(),
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

func (a *app) tokensDecode() *cobra.Command {
	c := command("decode TOKEN", "Show what an access token says", nil)
	c.Long = `Show what an access token says, in any of its forms; - reads it from stdin, @path from a file.

Nothing is sent. The signature is checked with the public keys of the service in your settings when it can be reached.`
	c.RunE = func(cmd *cobra.Command, args []string) error {
		raw, _, err := a.argument(args[0], false)
		if err != nil {
			return err
		}
		token, err := x402.DecodeToken(strings.TrimSpace(string(raw)))
		if err != nil {
			return err
		}
		d := decoded{Rendering: token.Rendering, Nonce: token.Nonce, Resource: token.ResourceURL}
		parts := strings.Split(token.JWS, ".")
		if len(parts) != 3 {
			return errors.New("the token holds no JWS")
		}
		header, err := base64.RawURLEncoding.DecodeString(parts[0])
		if err != nil || !json.Valid(header) {
			return errors.New("the header of the token is not JSON in base64url")
		}
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || !json.Valid(claims) {
			return errors.New("the claims of the token are not JSON in base64url")
		}
		d.Header, d.Claims = header, claims
		var times struct {
			Expiry int64 `json:"exp"`
		}
		if json.Unmarshal(claims, &times) == nil && times.Expiry > 0 {
			d.Expired = time.Now().Unix() >= times.Expiry
		}
		d.Signature = a.checkSignature(cmd.Context(), header, parts)
		b, err := x402.Encode(d)
		if err != nil {
			return err
		}
		if err := a.record(b); err != nil {
			return err
		}
		if d.Signature == "invalid" {
			return errors.New("the signature is not one of this service")
		}
		return nil
	}
	return c
}

// askTime is how long a command waits for what it can do without.
const askTime = 30 * time.Second

// checkSignature never believes the token about where its keys are.
func (a *app) checkSignature(ctx context.Context, header []byte, parts []string) string {
	const unchecked = "unchecked"
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.client().URL()+"/.well-known/jwks.json", nil)
	if err != nil {
		return unchecked
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.say("note", "the service cannot be reached, so the signature is not checked")
		return unchecked
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxArgument))
	if err != nil || res.StatusCode != http.StatusOK {
		a.say("note", "the service did not tell its keys, so the signature is not checked")
		return unchecked
	}
	var set struct {
		Keys []struct {
			KeyType string `json:"kty"`
			Curve   string `json:"crv"`
			ID      string `json:"kid"`
			X       string `json:"x"`
		} `json:"keys"`
	}
	var head struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	if json.Unmarshal(text, &set) != nil || json.Unmarshal(header, &head) != nil {
		return unchecked
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || head.Algorithm != "EdDSA" {
		return "invalid"
	}
	for _, k := range set.Keys {
		key, err := base64.RawURLEncoding.DecodeString(k.X)
		if k.ID != head.KeyID || k.KeyType != "OKP" || k.Curve != "Ed25519" || err != nil || len(key) != ed25519.PublicKeySize {
			continue
		}
		if ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), signature) {
			return "valid"
		}
	}
	return "invalid"
}
