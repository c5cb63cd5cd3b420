package x402

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Headers of a delivery by Standard Webhooks (https://www.standardwebhooks.com), sent in addition to the namespace headers:
// event id, seconds since 1970, and signatures "v1," with padded base64, separated by spaces.
const (
	StandardWebhookID        = "Webhook-Id"
	StandardWebhookTimestamp = "Webhook-Timestamp"
	StandardWebhookSignature = "Webhook-Signature"
)

// WebhookSecretPrefix begins a webhook secret, before the padded base64 of the key.
const WebhookSecretPrefix = "whsec_"

// StandardWebhookKey returns the key of a Standard Webhooks secret: the base64 after [WebhookSecretPrefix]. ok is false for other secrets.
func StandardWebhookKey(secret string) (key []byte, ok bool) {
	text, ok := strings.CutPrefix(secret, WebhookSecretPrefix)
	if !ok || text == "" {
		return nil, false
	}
	key, err := base64.StdEncoding.DecodeString(text)
	return key, err == nil
}

// SignWebhook returns the HMAC-SHA256 of the text "id.timestamp.body" of a delivery, 32 bytes.
func SignWebhook(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text) // it never fails
	return mac.Sum(nil)
}
