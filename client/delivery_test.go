package client_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

func TestReadDelivery(t *testing.T) {
	const secret = "whsec_1"
	sign := func(secret, id, at, body string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(id + "." + at + "." + body))
		return "v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	past := strconv.FormatInt(time.Now().Add(-6*time.Minute).Unix(), 10)
	future := strconv.FormatInt(time.Now().Add(6*time.Minute).Unix(), 10)
	body := event(7)
	for name, c := range map[string]struct {
		id, at, body string
		signatures   []string
		code         toll.Code // "" for good
	}{
		"good":           {"d", now, body, []string{sign(secret, "d", now, body)}, ""},
		"two lines":      {"d", now, body, []string{sign("other", "d", now, body), sign(secret, "d", now, body)}, ""},
		"one line":       {"d", now, body, []string{sign("other", "d", now, body) + ", " + sign(secret, "d", now, body)}, ""},
		"none":           {"d", now, body, nil, toll.CodeForbidden},
		"other secret":   {"d", now, body, []string{sign("other", "d", now, body)}, toll.CodeForbidden},
		"no secret":      {"d", now, body, []string{sign("", "d", now, body)}, toll.CodeForbidden},
		"other version":  {"d", now, body, []string{strings.Replace(sign(secret, "d", now, body), "v1", "v2", 1)}, toll.CodeForbidden},
		"other id":       {"e", now, body, []string{sign(secret, "d", now, body)}, toll.CodeForbidden},
		"other time":     {"d", now + "0", body, []string{sign(secret, "d", now, body)}, toll.CodeForbidden},
		"other body":     {"d", now, body + " ", []string{sign(secret, "d", now, body)}, toll.CodeForbidden},
		"old":            {"d", past, body, []string{sign(secret, "d", past, body)}, toll.CodeForbidden},
		"of the future":  {"d", future, body, []string{sign(secret, "d", future, body)}, toll.CodeForbidden},
		"no time":        {"d", "", body, []string{sign(secret, "d", "", body)}, toll.CodeForbidden},
		"no event":       {"d", now, "[", []string{sign(secret, "d", now, "[")}, toll.CodeBadRequest},
		"half signature": {"d", now, body, []string{sign(secret, "d", now, body)[:20]}, toll.CodeForbidden},
	} {
		r := httptest.NewRequest("POST", "/hook", strings.NewReader(c.body))
		r.Header.Set("Service-Webhook-Id", c.id)
		r.Header.Set("Service-Webhook-Timestamp", c.at)
		for _, s := range c.signatures {
			r.Header.Add("Service-Webhook-Signature", s)
		}
		e, err := client.New("").ReadDelivery(r, "", "before", secret)
		if c.code == "" {
			if err != nil || e.Sequence != 7 {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
			continue
		}
		if !errors.Is(err, toll.NewError(c.code)) || e != nil {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// TestReadDelivery_Standard: a delivery with the headers of Standard Webhooks alone. The first signature is of the npm package
// standardwebhooks.
func TestReadDelivery_Standard(t *testing.T) {
	if key, ok := x402.StandardWebhookKey("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"); !ok ||
		base64.StdEncoding.EncodeToString(x402.SignWebhook(key, []byte(`msg_loFOjxBNrRLzqYUf.1731705121.{"event_type":"ping"}`))) !=
			"uar2RrubVsENWIPJl3Jh55fBqmsfqiG1/+rOB283+OY=" {
		t.Fatal("the example of Standard Webhooks is not good")
	}
	raw := []byte("\xfb\xff\xfe0123456789abcdef")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(raw)
	sign := func(key []byte, id, at, body string) string {
		return "v1," + base64.StdEncoding.EncodeToString(x402.SignWebhook(key, []byte(id+"."+at+"."+body)))
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	past := strconv.FormatInt(time.Now().Add(-6*time.Minute).Unix(), 10)
	future := strconv.FormatInt(time.Now().Add(6*time.Minute).Unix(), 10)
	body := event(7)
	good := sign(raw, "d", now, body)
	for name, c := range map[string]struct {
		secret, id, at, body, signature string
		code                            toll.Code
	}{
		"good":                {secret, "d", now, body, good, ""},
		"two signatures":      {secret, "d", now, body, sign([]byte("x"), "d", now, body) + " " + good, ""},
		"another version":     {secret, "d", now, body, "v1a" + good[2:], toll.CodeForbidden},
		"hex":                 {secret, "d", now, body, "v1=" + hex.EncodeToString(x402.SignWebhook(raw, []byte("d."+now+"."+body))), toll.CodeForbidden},
		"the text as the key": {secret, "d", now, body, sign([]byte(secret), "d", now, body), toll.CodeForbidden},
		"another id":          {secret, "e", now, body, good, toll.CodeForbidden},
		"another body":        {secret, "d", now, body + " ", good, toll.CodeForbidden},
		"old":                 {secret, "d", past, body, sign(raw, "d", past, body), toll.CodeForbidden},
		"of the future":       {secret, "d", future, body, sign(raw, "d", future, body), toll.CodeForbidden},
		"no signature":        {secret, "d", now, body, "", toll.CodeForbidden},
		"no secret":           {"whsec_", "d", now, body, sign(nil, "d", now, body), toll.CodeForbidden},
		"no prefix":           {base64.StdEncoding.EncodeToString(raw), "d", now, body, good, toll.CodeForbidden},
	} {
		r := httptest.NewRequest("POST", "/hook", strings.NewReader(c.body))
		r.Header.Set("webhook-id", c.id)
		r.Header.Set("webhook-timestamp", c.at)
		r.Header.Set("webhook-signature", c.signature)
		e, err := client.New("").ReadDelivery(r, "", c.secret)
		if c.code == "" && (err != nil || e.Sequence != 7) || c.code != "" && (!errors.Is(err, toll.NewError(c.code)) || e != nil) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		// With a header of the namespace the standard ones do not count.
		r = httptest.NewRequest("POST", "/hook", strings.NewReader(c.body))
		r.Header.Set("webhook-id", c.id)
		r.Header.Set("webhook-timestamp", c.at)
		r.Header.Set("webhook-signature", c.signature)
		r.Header.Set("Service-Webhook-Signature", "v1=00")
		if _, err := client.New("").ReadDelivery(r, c.secret); !errors.Is(err, toll.NewError(toll.CodeForbidden)) {
			t.Errorf("%s beside another signature: %v", name, err)
		}
	}
}
