package client_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
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
