package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// An operator rotates the signing key beside two instances that are half a minute apart. Access tokens and API keys of
// either are good at both at every moment, what signs is published long before, and the public document never has a
// private key.
// T18
func TestRotationBesideInstances(t *testing.T) {
	var moved atomic.Int64
	base := time.Now()
	clock := func(d time.Duration) func() time.Time {
		return func() time.Time { return base.Add(d + time.Duration(moved.Load())) }
	}
	db := storetest.Config(t, storetest.Postgres)
	cfg := server.Config{Database: db.Database, MasterKeyFile: freshMasterKey(t), PublicURL: "https://pay.example.com"}
	one, two := cfg, cfg
	one.Clock, two.Clock = clock(0), clock(30*time.Second)
	s1, url1 := start(t, one)
	_, url2 := start(t, two)
	urls := []string{url1, url2}
	builder, subscriber := keys(t, s1)
	stands := []*stand{newStand(t, url1, builder, subscriber, 1_000_000).patient}
	stands = append(stands, stands[0].on(url2, builder, subscriber).patient)

	signers, firstSeen := map[string]time.Duration{}, map[string]time.Duration{}
	traffic := func() {
		t.Helper()
		now := time.Duration(moved.Load())
		for i, c := range stands {
			token := must.Get(c.subscriber.AccessToken(t.Context(), c.plan))(t)
			key := must.Get(c.builder.CreateKey(t.Context(), client.KeyParams{Form: toll.KeyLong, ExpiresIn: 10 * time.Minute}))(t)
			short := must.Get(c.builder.CreateKey(t.Context(), client.KeyParams{Form: toll.KeyShort, ExpiresIn: 10 * time.Minute}))(t)
			for _, kid := range []string{kidOf(t, token.AccessToken), kidOf(t, key.Key)} {
				if _, ok := signers[kid]; !ok {
					signers[kid] = now
				}
			}
			for _, url := range urls {
				for kid := range publishedKeys(t, url) {
					if _, ok := firstSeen[kid]; !ok {
						firstSeen[kid] = now
					}
				}
				for _, by := range []string{builder.Key, key.Key, short.Key} {
					o := *c
					o.builder, o.token = client.New(by, client.WithURL(url), servertest.Patient), token
					if r, err := o.settle(t.Context(), toll.NewUUID()); err != nil || !r.Success {
						t.Fatalf("after %v: a token of instance %d refused: %v %+v", now, i, err, r)
					}
				}
			}
		}
	}
	pass := func(d time.Duration) {
		t.Helper()
		for ; d > 0; d -= 20 * time.Second {
			moved.Add(int64(20 * time.Second))
			traffic()
		}
	}
	traffic()
	first := kidOf(t, stands[0].token.AccessToken)
	own := cfg
	own.Clock = clock(0)
	r := must.Get(admin.RotateKey(t.Context(), own, false))(t)
	if r.Retiring != first || r.Next == "" || r.Added == "" || r.Next == r.Added {
		t.Errorf("rotation %+v, signing %s", r, first)
	}
	if again, err := admin.RotateKey(t.Context(), own, false); err != nil || again.Added != "" || again.Next != r.Next || !again.At.Equal(r.At.Time) {
		t.Errorf("a second rotation while one is under way: %+v, %v", again, err)
	}
	pass(40 * time.Second)
	for _, url := range urls {
		if _, ok := publishedKeys(t, url)[r.Added]; !ok {
			t.Errorf("%s does not publish the added key", url)
		}
	}
	pass(13 * time.Minute)
	since, ok := signers[r.Next]
	if !ok || len(signers) != 2 {
		t.Fatalf("signers %v, want %s and %s", signers, first, r.Next)
	}
	if since-firstSeen[r.Next] < 10*time.Minute {
		t.Errorf("signs after %v of being published", since-firstSeen[r.Next])
	}
	// What was signed before stays good.
	if r, err := stands[1].settle(t.Context(), toll.NewUUID()); err != nil || !r.Success {
		t.Errorf("an access token from before: %v %+v", err, r)
	}
}

// A signing key that others may have is ended: both of two instances refuse all that it signed within
// half a minute, whatever time it carries, and no document has it. New keys work at once.
// T18
func TestCompromisedSigningKey(t *testing.T) {
	var moved atomic.Int64
	base := time.Now()
	db := storetest.Config(t, storetest.Postgres)
	cfg := server.Config{
		Database: db.Database, MasterKeyFile: freshMasterKey(t), PublicURL: "https://pay.example.com",
		Clock: func() time.Time { return base.Add(time.Duration(moved.Load())) },
	}
	s, url := start(t, cfg)
	_, other := start(t, cfg)
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 1000)
	works := func(c *stand, id string) error {
		r, err := c.settle(t.Context(), id)
		if err == nil && !r.Success {
			err = fmt.Errorf("refused: %s", r.ErrorMessage)
		}
		return err
	}
	for i, u := range []string{url, other} {
		must.Do(t, works(c.on(u, builder, subscriber), fmt.Sprint("before-", i)))
	}
	stolen := kidOf(t, c.token.AccessToken)
	if _, err := admin.EndSigningKey(t.Context(), cfg, false, "unknown"); err == nil {
		t.Error("a key that is not there was ended")
	}
	ended, err := admin.EndSigningKey(t.Context(), cfg, false, "")
	if err != nil || ended.Ended != stolen || ended.Next == "" || ended.Next == stolen {
		t.Fatalf("%+v, %v; %s signed", ended, err, stolen)
	}
	fallen := map[toll.Address]bool{}
	for _, k := range ended.APIKeys {
		fallen[k.Address] = true
	}
	if !fallen[builder.Address] || !fallen[subscriber.Address] {
		t.Errorf("the API keys that fall: %+v", ended.APIKeys)
	}
	if again, err := admin.EndSigningKey(t.Context(), cfg, false, stolen); err != nil || again.Next != ended.Next || again.Added != "" {
		t.Errorf("again: %+v, %v", again, err)
	}
	moved.Add(int64(31 * time.Second))
	for i, u := range []string{url, other} {
		eventually(t, "the keys are read again", func() bool { return !publishedKeys(t, u)[stolen] })
		if err := works(c.on(u, builder, subscriber), fmt.Sprint("after-", i)); err == nil {
			t.Errorf("instance %d takes what the key signed", i)
		}
	}
	for account, k := range map[string]*toll.APIKey{"builder": &builder, "subscriber": &subscriber} {
		made := must.Get(server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: account}))(t)
		*k = made
		if kidOf(t, made.Key) != ended.Next {
			t.Errorf("%s signed, and not %s", kidOf(t, made.Key), ended.Next)
		}
	}
	for i, u := range []string{url, other} {
		n := c.on(u, builder, subscriber)
		n.token = must.Get(n.subscriber.AccessToken(t.Context(), c.plan))(t)
		must.Check(t, works(n, fmt.Sprint("new-", i)))
	}
}

func kidOf(t *testing.T, credential string) string {
	t.Helper()
	_, jwt, ok := strings.Cut(credential, ":")
	if !ok {
		jwt = credential
	}
	head, _, _ := strings.Cut(jwt, ".")
	b, err := base64.RawURLEncoding.DecodeString(head)
	var h struct{ Kid string }
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil || h.Kid == "" {
		t.Fatalf("no kid: %s, %v", head, err)
	}
	return h.Kid
}

func publishedKeys(t *testing.T, url string) map[string]bool {
	t.Helper()
	res := must.Get(http.Get(url + "/.well-known/jwks.json"))(t)
	defer res.Body.Close()
	b := must.Get(io.ReadAll(res.Body))(t)
	var doc struct{ Keys []map[string]any }
	must.Do(t, json.Unmarshal(b, &doc))
	out := map[string]bool{}
	for _, k := range doc.Keys {
		if _, ok := k["d"]; ok {
			t.Fatal("a private key is published")
		}
		out[k["kid"].(string)] = true
	}
	return out
}
