package x402

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Headers of a delivery by Standard Webhooks (https://www.standardwebhooks.com), beside those of the namespace: the id of the
// event, seconds since 1970, and signatures "v1," and padded base64 with spaces between.
const (
	StandardWebhookID        = "Webhook-Id"
	StandardWebhookTimestamp = "Webhook-Timestamp"
	StandardWebhookSignature = "Webhook-Signature"
)

// WebhookSecretPrefix begins the secret of a webhook. Padded base64 of the key follows.
const WebhookSecretPrefix = "whsec_"

// StandardWebhookKey returns the key of a secret by Standard Webhooks: the bytes behind [WebhookSecretPrefix], in base64. ok is
// false for a secret of another form.
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
