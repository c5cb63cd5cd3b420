package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tollhq/toll/x402"
)

var _ x402.Offerer = (*Client)(nil)

// Resources lists the resources that are sold through the service, most recently updated first: at most limit items (1 to 100),
// starting at offset. It does not require an API key.
func (c *Client) Resources(ctx context.Context, by x402.CatalogueFilter, limit, offset int) (*x402.Catalogue, error) {
	q := filterQuery(by, limit)
	q.Set("offset", strconv.Itoa(offset))
	return fetch[x402.Catalogue](ctx, c, call{method: http.MethodGet, path: api("/x402/discovery/resources"), query: q, idempotent: true})
}

// SearchResources returns the resources that contain every word of a query. cursor is from the previous response, or "" for the first page.
func (c *Client) SearchResources(ctx context.Context, query string, by x402.CatalogueFilter, limit int, cursor string) (*x402.FoundResources, error) {
	q := filterQuery(by, limit)
	q.Set("query", query)
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return fetch[x402.FoundResources](ctx, c, call{method: http.MethodGet, path: api("/x402/discovery/search"), query: q, idempotent: true})
}

func filterQuery(by x402.CatalogueFilter, limit int) url.Values {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{
		"type": by.Type, "payTo": by.PayTo, "scheme": by.Scheme, "network": by.Network, "extensions": by.Extension,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Offers returns signed offers of plans of the caller.
func (c *Client) Offers(ctx context.Context, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	return fetch[x402.OffersResponse](ctx, c, call{method: http.MethodPost, path: api("/x402/offers"), body: req, idempotent: true})
}
