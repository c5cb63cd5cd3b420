package server_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// What goes wrong while a request is served is in the log with the id of the request, whatever room logs it: pages, or the API.
func TestLogs_CorrelationID(t *testing.T) {
	out := &lines{}
	cfg := server.Config{Data: storetest.Dir(t), Log: slog.New(slog.NewTextHandler(out, nil))}
	s, url := start(t, cfg)
	keys(t, s)
	st := rows(t, cfg)
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) (err error) {
		for _, table := range []string{"agents", "plans"} {
			if err == nil {
				_, err = tx.Exec(t.Context(), "ALTER TABLE "+table+" RENAME TO gone_"+table)
			}
		}
		return err
	}))
	for path, room := range map[string]string{
		"/explore": "page", "/api/v1/protocol/plans/1": "call failed",
	} {
		id := "corr-" + strings.Fields(room)[0]
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil))(t)
		r.Header.Set("X-Correlation-Id", id)
		res := must.Get(http.DefaultClient.Do(r))(t)
		_ = res.Body.Close()
		found := 0
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "level=ERROR") && strings.HasSuffix(line, " correlationId="+id+"\n") {
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s: %d, and no line of the log has its id:\n%s", path, res.StatusCode, out)
		}
	}
}
