package paid

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/x402"
)

const (
	maxOffers     = 1024             // resources of one route with cached offers
	offerTimeout  = 2 * time.Second  // a 402 does not wait longer, since offers are optional
	offerMargin   = 60 * time.Second // time for a client to read, decide, and pay
	offerRecovery = 5 * time.Second  // pause after a failure
	// offerPace is the minimum time between two calls, so that requests for many URLs cause few calls.
	offerPace = 50 * time.Millisecond
)

// offerCache caches the signed offers of a route, so that unpaid requests do not each cause a call to the service.
type offerCache struct {
	kept   *cache.Cache[offerKey, []x402.SignedOffer]
	mu     sync.Mutex
	paused time.Time // no calls until then
}

// offerKey holds the parts of a 402 that differ between requests of one route.
type offerKey struct {
	url, amount, payTo string
	entries            int
}

// of returns the offers for a demand, or nil if the service does not sign them now.
func (o *offerCache) of(ctx context.Context, c *config, required *x402.PaymentRequired) []x402.SignedOffer {
	signer, ok := c.Facilitator.(x402.Offerer)
	url := required.Resource.URL
	if !ok || len(required.Accepts) == 0 || len(url) > maxURLBytes || !utf8.ValidString(url) {
		return nil // the service would refuse such a URL, and the pause after it would affect other resources
	}
	k := offerKey{url, required.Accepts[0].Amount, required.Accepts[0].PayTo, len(required.Accepts)}
	now := c.Clock()
	if known, ok := o.kept.Get(k, now); ok {
		return known
	}
	o.mu.Lock()
	paused := now.Before(o.paused)
	if !paused {
		o.paused = now.Add(offerPace)
	}
	o.mu.Unlock()
	if paused {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.Timeout, offerTimeout))
	defer cancel()
	signed, err := signer.Offers(ctx, &x402.OffersRequest{PaymentRequired: *required})
	if err != nil {
		o.mu.Lock()
		o.paused = c.Clock().Add(offerRecovery)
		o.mu.Unlock()
		c.Log.Warn("paid: the service did not sign the offers of a 402 response", "plan", string(c.plan), "error", err.Error())
		return nil
	}
	o.kept.Put(k, signed.Offers, time.Unix(signed.ValidUntil, 0).Add(-offerMargin), c.Clock())
	return signed.Offers
}
