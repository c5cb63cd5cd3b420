package client_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// The table that the clients of all languages share: deliveries of the past and of the future, and of earlier secrets.
func TestReadDelivery_Table(t *testing.T) {
	text := must.Get(os.ReadFile("../testdata/conformance/tables/delivery-times.json"))(t)
	var table struct {
		Now     int64
		Secrets []string
		Cases   []struct {
			Name, ID, Timestamp, Body string
			Signatures                []string
			Good                      bool
		}
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.Cases) < 20 {
		t.Fatal(err, len(table.Cases))
	}
	c := client.New("")
	c.SetClock(func() time.Time { return time.Unix(table.Now, 0) })
	for _, d := range table.Cases {
		r := httptest.NewRequest("POST", "/hook", strings.NewReader(d.Body))
		r.Header.Set("Service-Webhook-Id", d.ID)
		r.Header.Set("Service-Webhook-Timestamp", d.Timestamp)
		for _, s := range d.Signatures {
			r.Header.Add("Service-Webhook-Signature", s)
		}
		e, err := c.ReadDelivery(r, table.Secrets...)
		if d.Good && (err != nil || e.ID != d.ID || e.Sequence != 7) || !d.Good && !errors.Is(err, toll.NewError(toll.CodeForbidden)) {
			t.Errorf("%s: %+v, %v", d.Name, e, err)
		}
	}
}
