package page

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
)

// A table has the columns of the description in the order of the page, each value in the form of its kind, and what the page adds.
func TestTableOf(t *testing.T) {
	at := toll.At(time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC))
	orders := List[*toll.Order]{Items: []*toll.Order{{
		OrderID: "o1", Status: toll.OrderConfirmed, Amount: toll.UnitsOf(1_500_000), Currency: "usdc", CreditsGranted: 1000, CreatedAt: at,
	}}}
	of := list.Orders.And(list.Text("note")).
		Show("createdAt", "orderId", "status", "amount", "creditsGranted", "note")
	table := TableOf(nil, of, "order", orders, func(o *toll.Order, cell Cells) {
		cell["orderId"].To, cell["note"].Text = "/orders/"+o.OrderID, "n"
	})
	head := []Column{
		{Text: "Created"}, {Text: "Order", Stays: true}, {Text: "Status"}, {Text: "Amount", Num: true}, {Text: "Credits", Num: true}, {Text: "Note"},
	}
	row := []Cell{
		{At: at.Time}, {ID: "o1", To: "/orders/o1"}, {State: &State{"confirmed", "good"}}, {Sum: &Sum{"1.50", "USDC"}, Num: true},
		{Number: "1000", Num: true}, {Text: "n"},
	}
	if table.Caption != "Orders" || table.Pager != nil || !reflect.DeepEqual(table.Head, head) || !reflect.DeepEqual(table.Rows, [][]Cell{row}) {
		t.Errorf("%+v", table)
	}
}

func TestValueOf(t *testing.T) {
	record := list.Record{
		"n": []byte(`"1234567"`), "cents": []byte(`-250`), "micros": []byte(`1234`), "is": []byte(`true`), "at": []byte(`null`), "word": []byte(`"Frozen"`),
		"huge": []byte(`"` + strings.Repeat("9", 90) + `"`), "currency": []byte(`"eur"`), "status": []byte(`404`), "inner": []byte(`{"name":"\u202ea"}`),
	}
	for _, c := range []struct {
		column list.Column
		want   Cell
	}{
		{list.Credits("n"), Cell{Number: "1234567", Num: true}}, {list.Credits("none"), Cell{Num: true}},
		{list.Money("n"), Cell{Sum: &Sum{"1.234567", "EUR"}, Num: true}}, {list.Money("none"), Cell{Num: true}},
		{list.Micros("micros"), Cell{Text: "1.23ms", Num: true}}, {list.Flag("is", "Listed"), Cell{State: &State{"listed", "good"}}},
		{list.Flag("none", "Listed"), Cell{State: &State{"not listed", "quiet"}}}, {list.Time("at"), Cell{Text: "never"}},
		{list.State("word"), Cell{State: &State{"frozen", "bad"}}}, {list.State("status"), Cell{State: &State{"404", "warn"}}},
		{list.State("none"), Cell{}}, {list.Name("none"), Cell{Text: "unnamed"}}, {list.Text("inner.name"), Cell{Text: "a"}},
	} {
		if got := valueOf(c.column, record); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v, want %+v", c.column, got, c.want)
		}
	}
	if got := valueOf(list.Money("huge"), record); got.Sum != nil || got.Text == "" {
		t.Errorf("an amount that no currency has: %+v", got)
	}
}
