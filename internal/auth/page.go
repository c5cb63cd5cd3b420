package auth

import (
	"context"
	"time"
)

// Page is who uses a page of the service. A page calls the API inside the process and hands this
// over in the context, in place of an API key. Nothing that arrives over the network can set it.
type Page struct {
	Caller                    // without an address for a visitor who is not signed in
	Proof           string    // kind of the credential that was proved last; "" for an API key
	AuthenticatedAt time.Time // of that proof
	Source          string    // address of the browser, for limits
	Counted         *bool     // whether a call of this view has counted against limits, which the first one sets; nil counts each call
}

type pageKey struct{}

func WithPage(ctx context.Context, p Page) context.Context {
	return context.WithValue(ctx, pageKey{}, &p)
}

// PageOf returns what [WithPage] set; nil for a request from the network.
func PageOf(ctx context.Context) *Page {
	p, _ := ctx.Value(pageKey{}).(*Page)
	return p
}
