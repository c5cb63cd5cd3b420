package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestSignUps: 10,000 sign-ups from one source make as many accounts as the limit for a source allows, and no row beyond them.
// T176
func TestSignUps(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			o := newTown(t, v, func(cfg *server.Config) { cfg.RateLimitIP = 1_000_000 })
			calls := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
			defer calls.CloseIdleConnections()
			var made, refused atomic.Int64
			next := make(chan int)
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for i := range next {
						body := fmt.Sprintf(`{"login":"flood%d","password":%q}`, i, goodPassword)
						res, err := calls.Post(o.address+"/api/v1/people", "application/json", strings.NewReader(body))
						if err != nil {
							t.Error(err)
							continue
						}
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
						switch res.StatusCode {
						case http.StatusCreated:
							made.Add(1)
						case http.StatusTooManyRequests:
							refused.Add(1)
						default:
							t.Errorf("%d", res.StatusCode)
						}
					}
				})
			}
			for i := range 10_000 {
				next <- i
			}
			close(next)
			all.Wait()
			if n := made.Load(); n < 20 || n > 21 || refused.Load() != 10_000-n {
				t.Errorf("%d accounts, %d refused", n, refused.Load())
			}
			for _, table := range []string{"users", "credentials", "principals", "memberships", "browser_sessions", "audit_log"} {
				var rows int64
				if err := server.StoreOf(o.s).QueryRow(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&rows); err != nil || rows > made.Load()+2 {
					t.Errorf("%s: %d rows for %d accounts, %v", table, rows, made.Load(), err)
				}
			}
		})
	}
}
