package paidmcp

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tollhq/toll/x402"
)

const (
	keysLife  = time.Hour        // cache lifetime that the service allows
	keysPause = 10 * time.Second // minimum time between two requests
	maxKeys   = 64 << 10         // maximum size of the document, in bytes
)

// keys caches the published keys of the service (RFC 7517, RFC 8037).
type keys struct {
	url    string
	client *http.Client
	clock  func() time.Time

	mu      sync.Mutex
	byID    map[string]ed25519.PublicKey
	readAt  time.Time // last success, or zero
	triedAt time.Time
	failed  bool          // the request at triedAt failed
	reading chan struct{} // closed when the current request ends; nil if there is no request
}

// find returns the key with this id, or nil if the service does not have it. An unknown id causes at most one request per 10 s. A
// known key is returned without waiting. It returns an error if the service did not answer, so that it may have the key.
func (k *keys) find(ctx context.Context, id string) (ed25519.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	passed := func(at time.Time, d time.Duration) bool { return at.IsZero() || now.Sub(at) >= d || now.Before(at) }
	if k.reading == nil && (k.byID[id] == nil || passed(k.readAt, keysLife)) && passed(k.triedAt, keysPause) {
		k.reading = make(chan struct{})
		go k.refresh(context.WithoutCancel(ctx)) // all callers share the request
	}
	if reading := k.reading; reading != nil && k.byID[id] == nil {
		k.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		k.mu.Lock()
	}
	key := k.byID[id]
	if key == nil && (k.failed || ctx.Err() != nil) {
		return nil, errors.New("paidmcp: the public keys of the service could not be read")
	}
	return key, nil
}

func (k *keys) refresh(ctx context.Context) {
	read, err := k.read(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.triedAt, k.failed = k.clock(), err != nil
	if err == nil {
		k.byID, k.readAt = read, k.triedAt
	}
	close(k.reading)
	k.reading = nil
}

func (k *keys) read(ctx context.Context) (map[string]ed25519.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	res, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxKeys))
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []struct {
			KeyType string `json:"kty"`
			Curve   string `json:"crv"`
			ID      string `json:"kid"`
			X       string `json:"x"`
		} `json:"keys"`
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.New("paidmcp: the service did not return its public keys")
	}
	if err := x402.Decode(text, &set); err != nil {
		return nil, err
	}
	byID := make(map[string]ed25519.PublicKey, len(set.Keys))
	for _, key := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(key.X)
		if key.KeyType != "OKP" || key.Curve != "Ed25519" || err != nil || len(x) != ed25519.PublicKeySize {
			continue
		}
		byID[key.ID] = x
	}
	if len(byID) == 0 {
		return nil, errors.New("paidmcp: the service returned no Ed25519 keys")
	}
	return byID, nil
}
