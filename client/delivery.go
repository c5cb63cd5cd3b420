package client

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	// maxDeliveryAge bounds the difference between the timestamp of a delivery and the receiver's clock.
	maxDeliveryAge = 5 * time.Minute
	maxDelivery    = 1 << 20 // bytes of a body
)

// ReadDelivery checks the signature of a webhook delivery and returns its event. Pass the current secret and, for a day after
// [Client.RotateWebhook], the previous one. Without the webhook headers of the namespace, ReadDelivery reads the Standard Webhooks
// headers. The same event may arrive more than once, under the same ID.
//
// Errors: [toll.CodeForbidden] for an invalid signature or a timestamp more than 5 minutes off, [toll.CodeBadRequest] for a body
// that cannot be read, exceeds 1 MiB, or does not contain an event.
func (c *Client) ReadDelivery(r *http.Request, secrets ...string) (*toll.Event, error) {
	id, sent := r.Header.Get(c.names.HeaderWebhookID()), r.Header.Get(c.names.HeaderWebhookTimestamp())
	signatures := r.Header.Values(c.names.HeaderWebhookSignature())
	standard := id == "" && sent == "" && signatures == nil
	if standard {
		id, sent = r.Header.Get(x402.StandardWebhookID), r.Header.Get(x402.StandardWebhookTimestamp)
		signatures = r.Header.Values(x402.StandardWebhookSignature)
	}
	secs, err := strconv.ParseUint(sent, 10, 63)
	if err != nil || id == "" {
		return nil, toll.Errorf(toll.CodeForbidden, "This is not a signed webhook delivery.")
	}
	if age := c.now().Sub(time.Unix(int64(secs), 0)).Abs(); age > maxDeliveryAge {
		return nil, toll.Errorf(toll.CodeForbidden, "The webhook timestamp is outside the allowed window.")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxDelivery+1))
	if err != nil || len(body) > maxDelivery {
		return nil, toll.Errorf(toll.CodeBadRequest, "The body of the webhook could not be read.").WithCause(err)
	}
	if !signed(signatures, standard, slices.Concat([]byte(id+"."+sent+"."), body), secrets) {
		return nil, toll.Errorf(toll.CodeForbidden, "The webhook signature is invalid.")
	}
	var e toll.Event
	if err := x402.Decode(body, &e); err != nil {
		return nil, toll.AsError(err)
	}
	return &e, nil
}

// signed reports whether a signature in lines was created with one of the secrets. A signature is "v1=" and hex, separated by
// commas or spaces. A Standard Webhooks signature is "v1," and base64, separated by spaces.
func signed(lines []string, standard bool, text []byte, secrets []string) bool {
	good := false
	for _, secret := range secrets {
		key, ok := []byte(secret), secret != ""
		if standard {
			key, ok = x402.StandardWebhookKey(secret)
		}
		if !ok {
			continue
		}
		want := x402.SignWebhook(key, text)
		for _, line := range lines {
			for _, one := range signatures(line, standard) {
				good = hmac.Equal(one, want) || good
			}
		}
	}
	return good
}

// signatures decodes the signatures in a header line and skips other versions.
func signatures(line string, standard bool) (all [][]byte) {
	prefix, decode := "v1=", hex.DecodeString
	if standard {
		prefix, decode = "v1,", base64.StdEncoding.DecodeString
	}
	for one := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' || r == ',' && !standard }) {
		if text, ok := strings.CutPrefix(one, prefix); ok {
			if b, err := decode(text); err == nil {
				all = append(all, b)
			}
		}
	}
	return all
}
