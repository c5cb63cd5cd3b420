package public

import (
	"strings"

	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/sdk"
)

// sdkCard is one SDK on its page.
type sdkCard struct {
	sdk.SDK
	Commands string
}

// listSDKs lists the SDKs on a page for browsers, and as text or JSON for programs.
func listSDKs(c *page.Context) {
	c.W.Header().Add("Vary", "Accept")
	if !strings.HasPrefix(c.R.Header.Get("Accept"), "text/html") {
		c.SDK.ServeHTTP(c.W, c.R)
		return
	}
	c.Serve(func(c *page.Context) (page.View, error) {
		var cards []sdkCard
		for _, l := range sdk.SDKs {
			cards = append(cards, sdkCard{l, c.SDK.Install(l.Key)})
		}
		return drawPublic(c, "sdk", "SDKs", cards)
	}, nil).ServeHTTP(c.W, c.R)
}
