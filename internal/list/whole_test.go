package list_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/must"
)

// TestWhole: values become whole units of the currency of their record. A value whose decimals are unknown does not.
func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		column       list.Column
		record, want string
	}{
		{list.Money("amount"), `{"amount":"20000000","currency":"USD"}`, "20.00"},
		{list.Money("amount"), `{"amount":"1","currency":"usdc"}`, "0.000001"},
		{list.Money("amount"), `{"amount":"1500000000000000000","currency":"ETH"}`, "1.50"},
		{list.Money("amount"), `{"amount":"20000000","currency":"0x036CbD53842c5426634e7929541eC2318f3dCF7e"}`, ""},
		{list.Money("amount"), `{"amount":"20000000"}`, ""},
		{list.Money("amount"), `{"amount":"1.00","currency":"USD"}`, ""},
		{list.Cents("dueCents"), `{"dueCents":"-1250"}`, "-12.50"},
		{list.Cents("dueCents"), `{"dueCents":1205}`, "12.05"},
		{list.Cents("dueCents"), `{"dueCents":null}`, ""},
		{list.Micros("durationMicros"), `{"durationMicros":1234}`, "0.001234"},
		{list.Count("amount"), `{"amount":"5"}`, ""},
	} {
		var record list.Record
		must.Do(t, json.Unmarshal([]byte(tt.record), &record))
		if got := tt.column.Whole(record); got != tt.want {
			t.Errorf("%s of %s: %q, want %q", tt.column.Path, tt.record, got, tt.want)
		}
	}
}

// TestToWhole: each list of money has columns with whole units, under unique names.
func TestToWhole(t *testing.T) {
	names := func(columns []list.Column) (all []string) {
		for _, c := range columns {
			all = append(all, c.WholeMember())
		}
		return all
	}
	for _, tt := range []struct {
		got, want []string
	}{
		{names(list.Orders.ToWhole()), []string{"amountWhole"}},
		{names(list.Orders.MembersToWhole()), []string{"amountWhole", "refundedWhole"}},
		{names(list.Revenue.MembersToWhole()), []string{"amountWhole", "returnedWhole"}},
		{names(list.DelegationTransactions.MembersToWhole()), []string{"amountWhole"}},
		{names(list.Delegations.ToWhole()), []string{"spendingLimitWhole", "amountSpentWhole", "remainingBudgetWhole"}},
		{names(list.RecentCalls.ToWhole()), []string{"durationSeconds"}},
		{names(list.Plans.ToWhole()), nil}, // the price has whole units
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
	for _, l := range list.All {
		if l.Record == nil {
			continue
		}
		members := l.Members()
		for _, c := range l.MembersToWhole() {
			if slices.Contains(members, c.WholeMember()) {
				t.Errorf("%s: %s is a member already", l.Path, c.WholeMember())
			}
		}
	}
}
