package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
)

// An export that is still at work after 60 s ends its connection, and makes room for the next one. One of 59 s is whole.
func TestExport_Ends(t *testing.T) {
	type record struct {
		ID string `json:"id"`
	}
	for pages, ended := range map[int]bool{59: false, 1000: true} {
		synctest.Test(t, func(t *testing.T) {
			h := &handler{Telemetry: Telemetry{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
			w := httptest.NewRecorder()
			c := &call{
				h: h, w: w, r: httptest.NewRequest("GET", "/", nil), route: &route{op: "listOrders", export: toll.RightRead},
				caller: auth.Caller{Rights: toll.AllRights()},
			}
			began, read := time.Now(), 0
			err := func() (err error) {
				defer func() {
					if broken := recover(); broken != nil {
						err = broken.(error)
					}
				}()
				return export(t.Context(), c, list.List{}, store.Page{}, "ndjson", func(ctx context.Context, _ store.Page) (out store.List[record], err error) {
					select { // a page takes a second
					case <-time.After(time.Second):
					case <-ctx.Done():
						return out, ctx.Err()
					}
					out.Items = []record{{"1"}}
					if read++; read < pages {
						out.Next = "more"
					}
					return out, nil
				})
			}()
			if took := time.Since(began); ended != errors.Is(err, http.ErrAbortHandler) || ended && took != exportTime || !ended && err != nil {
				t.Errorf("%d pages: %v after %v", pages, err, took)
			}
			if len(h.exports.running) != 0 {
				t.Errorf("%d pages: the export still counts", pages)
			}
		})
	}
}
