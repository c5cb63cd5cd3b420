// Package public has the pages that everybody may open: the catalogue, agents, plans, receipts, and orders by signed links.
package public

import (
	"embed"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/sdk"
)

//go:embed *.html
var files embed.FS

// Deps has what the pages need besides the API.
type Deps struct {
	Records *records.Records
	Cards   Cards // nil: no card rail
	SignUp  bool  // everybody may sign up
}

// pages has the services behind the pages.
type pages struct {
	Deps
	looks *meter.Meter[toll.Address] // by accounts: questions to the card processor for a page
	began time.Time
}

// Pages returns the pages and their templates.
func Pages(d Deps) page.Set {
	w := &pages{Deps: d, looks: meter.New[toll.Address](lookEvery, mostLooks), began: time.Now()}
	return page.Set{Templates: files, Routes: append(w.orderRoutes(),
		open(page.PathExplore, w.explore, nil), open(page.PathAgent, showPublicAgent, nil), open(page.PathPlan, w.showPublicPlan, w.postPlan),
		open(page.PathReceipts, askReceipt, w.checkReceipt), page.Route{Path: page.PathEnroll, Get: w.enroll, Post: w.beginEnroll},
		page.Route{Path: sdk.Path, Raw: listSDKs},
	)}
}
