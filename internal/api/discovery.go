package api

import (
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

type discovery struct {
	auth      *auth.Auth
	catalogue *catalogue.Catalogue
	purchases *purchases.Purchases
}

func (d discovery) routes() []route {
	const at = Base + "/x402/discovery"
	filters := []query{
		{"type", "http or mcp."},
		{"payTo", "Address that receives the payment."},
		{"scheme", "Payment scheme."},
		{"network", "Network of the payment, for example eip155:84532."},
		{"extensions", "Name of an extension of the resource, for example bazaar."},
		{"limit", "Maximum number of resources in the response, 1 to 100. Defaults to 20. A response is at most about 512 KiB and can have fewer resources; pagination.limit is the actual number."},
	}
	return []route{
		{
			op: "readDID", method: "GET", path: "/.well-known/did.json", auth: open, right: public, tag: "Service",
			summary: "Read the public keys that verify signed offers and receipts (did:web)", action: readsAs[auth.DIDDocument](d.did),
		},
		{
			op: "listResources", method: "GET", path: at + "/resources", auth: open, right: public, tag: "Discovery", summary: "List the resources that can be paid for, most recently updated first",
			action: readsLarge(d.listResources), query: append(filters, query{"offset", "Number of resources to skip. Defaults to 0."}), codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "searchResources", method: "GET", path: at + "/search", auth: open, right: public, tag: "Discovery", summary: "Search the resources that can be paid for",
			action: readsLarge(d.searchResources), codes: []toll.Code{toll.CodeBadPage},
			query: append([]query{{"query", "Search words. The agent, its plans, or the URL must contain every word. At most 16 words and 256 bytes."}},
				append(filters, query{"cursor", "pagination.cursor of an earlier response, to continue from there."})...),
		},
		{
			op: "signOffers", method: "POST", path: Base + "/x402/offers", auth: owners, right: toll.RightSell, tag: "Payments", summary: "Sign the payment requirements of a server for its 402 response",
			action: takes(withBody(d.purchases.Offers)),
			codes: []toll.Code{
				toll.CodeNotPlanOwner, toll.CodePaymentPlanNotFound, toll.CodeBadX402Version, toll.CodeBadNumber, toll.CodeBadID,
				toll.CodeUnsupportedScheme, toll.CodeBadRequirements, toll.CodeChainUnreachable,
			},
		},
	}
}

func (d discovery) did(c *call) (stored, error) {
	c.w.Header()["Cache-Control"] = publicHour
	return d.auth.DID(), nil
}

func (d discovery) listResources(c *call) (*x402.Catalogue, error) {
	q, by, limit, err := c.catalogueQuery("offset")
	if err != nil {
		return nil, err
	}
	offset := 0
	if text, ok := q["offset"]; ok && text[0] != "0" {
		if offset, ok = whole(text[0], 1<<31-1); !ok {
			return nil, toll.NewError(toll.CodeBadPage).WithParam("parameter", "offset")
		}
	}
	return d.catalogue.List(c.context, by, limit, offset)
}

func (d discovery) searchResources(c *call) (*x402.FoundResources, error) {
	q, by, limit, err := c.catalogueQuery("query", "cursor")
	if err != nil {
		return nil, err
	}
	return d.catalogue.Search(c.context, q.Get("query"), by, limit, q.Get("cursor"))
}

const catalogueDefault = 20

// catalogueQuery reads the parameters that both answers have; more are those of one.
func (c *call) catalogueQuery(more ...string) (url.Values, x402.CatalogueFilter, int, error) {
	q, err := c.values()
	if err != nil {
		return nil, x402.CatalogueFilter{}, 0, err
	}
	for _, name := range append([]string{"type", "payTo", "scheme", "network", "extensions", "limit"}, more...) {
		if len(q[name]) > 1 {
			return nil, x402.CatalogueFilter{}, 0, toll.NewError(toll.CodeBadPage).WithParam("parameter", name)
		}
	}
	limit := catalogueDefault
	if text, ok := q["limit"]; ok {
		if limit, ok = whole(text[0], 100); !ok {
			return nil, x402.CatalogueFilter{}, 0, toll.NewError(toll.CodeBadPage).WithParam("parameter", "limit")
		}
	}
	return q, x402.CatalogueFilter{
		Type: q.Get("type"), PayTo: q.Get("payTo"), Scheme: q.Get("scheme"), Network: q.Get("network"), Extension: q.Get("extensions"),
	}, limit, nil
}
