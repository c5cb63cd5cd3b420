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
	keysLife  = time.Hour        // as the service lets them be cached
	keysPause = 10 * time.Second // between two readings that unknown keys or failures cause
	maxKeys   = 64 << 10         // bytes of the document
)

// keys caches the published keys of the service (RFC 7517, RFC 8037).
type keys struct {
	url    string
	client *http.Client
	clock  func() time.Time

	mu      sync.Mutex
	byID    map[string]ed25519.PublicKey
	readAt  time.Time // zero: never
	triedAt time.Time
	failed  bool          // at triedAt
	reading chan struct{} // closed at the end of the reading under way, nil without one
}

// find returns the key with this id, nil if the service has none. Unknown ids cause a request only once in a while. Callers
// with a known key never wait. An error means that the service did not answer, so that it may have the key.
func (k *keys) find(ctx context.Context, id string) (ed25519.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	passed := func(at time.Time, d time.Duration) bool { return at.IsZero() || now.Sub(at) >= d || now.Before(at) }
	if k.reading == nil && (k.byID[id] == nil || passed(k.readAt, keysLife)) && passed(k.triedAt, keysPause) {
		k.reading = make(chan struct{})
		go k.refresh(context.WithoutCancel(ctx)) // the reading serves everybody
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
		return nil, errors.New("paidmcp: the keys of the service could not be read")
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
		return nil, errors.New("paidmcp: the service did not tell its keys")
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
		return nil, errors.New("paidmcp: the service has no keys")
	}
	return byID, nil
}
