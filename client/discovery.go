package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tollhq/toll/x402"
)

var _ x402.Offerer = (*Client)(nil)

// Resources lists what can be paid for through the service, last updated first: at most limit items (1 to 100) from offset
// on. It needs no API key.
func (c *Client) Resources(ctx context.Context, by x402.CatalogueFilter, limit, offset int) (*x402.Catalogue, error) {
	q := filterQuery(by, limit)
	q.Set("offset", strconv.Itoa(offset))
	out := new(x402.Catalogue)
	if err := c.read(ctx, "/x402/discovery/resources", q, out); err != nil {
		return nil, err
	}
	return out, nil
}

// SearchResources is Resources for those that have each word of a query. The cursor is that of an earlier answer, "" for the
// first part.
func (c *Client) SearchResources(ctx context.Context, query string, by x402.CatalogueFilter, limit int, cursor string) (*x402.FoundResources, error) {
	q := filterQuery(by, limit)
	q.Set("query", query)
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	out := new(x402.FoundResources)
	if err := c.read(ctx, "/x402/discovery/search", q, out); err != nil {
		return nil, err
	}
	return out, nil
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

func (c *Client) read(ctx context.Context, path string, q url.Values, out any) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: api(path), query: q, again: true}, out)
	return err
}

// Offers asks for signed offers of plans of this API key's owner.
func (c *Client) Offers(ctx context.Context, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	out := new(x402.OffersResponse)
	_, err := c.do(ctx, call{method: http.MethodPost, path: api("/x402/offers"), body: req, again: true}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}
