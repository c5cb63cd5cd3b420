package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	// maxDeliveryAge is how far the time of a delivery may lie from that of the receiver, in both directions.
	maxDeliveryAge = 5 * time.Minute
	maxDelivery    = 1 << 20 // bytes of a body
)

// ReadDelivery returns the event that a webhook was sent, after its signature was checked with one of the secrets: the
// current one, and for a day after [Client.RotateWebhook] the one before. The same event may come more than once, under the
// same ID.
//
// Errors: [toll.CodeForbidden] for a signature or a time that is not good, [toll.CodeBadRequest] for a body that is not an
// event.
func (c *Client) ReadDelivery(r *http.Request, secrets ...string) (*toll.Event, error) {
	id, sent := r.Header.Get(c.names.HeaderWebhookID()), r.Header.Get(c.names.HeaderWebhookTimestamp())
	secs, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || id == "" {
		return nil, toll.Errorf(toll.CodeForbidden, "This is no signed delivery.")
	}
	if age := c.now().Sub(time.Unix(secs, 0)).Abs(); age > maxDeliveryAge {
		return nil, toll.Errorf(toll.CodeForbidden, "The delivery is of another time.")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxDelivery+1))
	if err != nil || len(body) > maxDelivery {
		return nil, toll.Errorf(toll.CodeBadRequest, "The body of the delivery could not be read.").WithCause(err)
	}
	if !signed(r.Header.Values(c.names.HeaderWebhookSignature()), id+"."+sent+"."+string(body), secrets) {
		return nil, toll.Errorf(toll.CodeForbidden, "The signature of the delivery is not good.")
	}
	var e toll.Event
	if err := x402.Decode(body, &e); err != nil {
		return nil, toll.AsError(err)
	}
	return &e, nil
}

// signed reports whether one of the signatures is that of one of the secrets.
func signed(lines []string, text string, secrets []string) bool {
	good := false
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(text))
		want := mac.Sum(nil)
		for _, line := range lines {
			for one := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == ' ' }) {
				got, err := hex.DecodeString(strings.TrimPrefix(one, "v1="))
				if err == nil && strings.HasPrefix(one, "v1=") && hmac.Equal(got, want) {
					good = true
				}
			}
		}
	}
	return good
}
