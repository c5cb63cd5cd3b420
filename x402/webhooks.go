package x402

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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

// NewWebhookSecret returns a random webhook secret with a key of 32 bytes.
func NewWebhookSecret() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // crypto/rand.Read never fails since Go 1.24
	return WebhookSecretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

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

// WebhookHeader returns the headers of a delivery that is sent at a time: the event id, the time, and one signature for each secret, in
// the order of the secrets, both in the format of the namespace and in the Standard Webhooks format.
func WebhookHeader(n Namespace, id string, at time.Time, body []byte, secrets ...string) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	text := slices.Concat([]byte(id+"."+stamp+"."), body)
	var own, standard []string
	for _, secret := range secrets {
		own = append(own, "v1="+hex.EncodeToString(SignWebhook([]byte(secret), text)))
		if key, ok := StandardWebhookKey(secret); ok {
			standard = append(standard, "v1,"+base64.StdEncoding.EncodeToString(SignWebhook(key, text)))
		}
	}
	header := http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"toll-webhooks"},
		n.HeaderWebhookID(): {id}, n.HeaderWebhookTimestamp(): {stamp}, n.HeaderWebhookSignature(): own,
		StandardWebhookID: {id}, StandardWebhookTimestamp: {stamp},
	}
	if standard != nil {
		header[StandardWebhookSignature] = []string{strings.Join(standard, " ")}
	}
	return header
}
