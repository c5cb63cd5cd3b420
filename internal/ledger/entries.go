package ledger

import (
	"github.com/tollhq/toll/internal/store"
)

// journalRow is the entry as the journal keeps it. r is the request of a burn.
func (e *Entry) journalRow(r *Request) store.JournalRow {
	row := store.JournalRow{
		Account: e.Account, Seq: e.Seq, Kind: int64(e.Kind), Amount: e.Amount, BalanceAfter: e.BalanceAfter, At: e.AtMicros,
		Commitment: e.Commitment, Ref: e.Ref, Low: e.low, UsedUp: e.usedUp,
	}
	if r != nil {
		row.Labels = r.Labels
		row.Burn = &store.Burn{
			Content: r.Content, Permission: r.Permission, Agent: r.Agent, Resource: r.Resource, Held: r.Held,
			HoldEndsAt: micros(r.HoldEndsAt, 0), CreatedAt: r.CreatedAt.UnixMicro(), Previous: r.previousBurn, Answer: r.Answer,
		}
	}
	return row
}

func EntryOf(row *store.JournalRow) Entry {
	return Entry{
		Account: row.Account, Seq: row.Seq, Kind: Kind(row.Kind), Amount: row.Amount, BalanceAfter: row.BalanceAfter, Ref: row.Ref,
		AtMicros: row.At, Commitment: row.Commitment, low: row.Low, usedUp: row.UsedUp,
	}
}

// RequestOf returns the settled request of a burn, of a thin one what its entry says. It is the zero value for a row of another kind.
func RequestOf(row *store.JournalRow) Request {
	u := row.Burn
	switch {
	case row.Thin():
		return Request{
			Account: row.Account, ID: row.Ref, State: StateSettled, Removed: true, Amount: row.Amount, CreatedAt: micro(row.At),
			EndedAt: micro(row.At), EntrySeq: row.Seq, Transaction: row.Commitment, Balance: row.BalanceAfter,
			Labels: row.Labels,
		}
	case u == nil:
		return Request{}
	}
	r := Request{
		Account: row.Account, ID: row.Ref, State: StateSettled, Content: u.Content, Permission: u.Permission, Agent: u.Agent,
		Resource: u.Resource, Held: u.Held, Amount: row.Amount, CreatedAt: micro(u.CreatedAt), EndedAt: micro(row.At),
		EntrySeq: row.Seq, Transaction: row.Commitment, Balance: row.BalanceAfter, Answer: u.Answer,
		previousBurn: u.Previous, Labels: row.Labels,
	}
	if u.HoldEndsAt != 0 {
		r.HoldEndsAt = micro(u.HoldEndsAt)
	}
	return r
}

// Receipt is what the settlement of the request decided, but for what its stored answer has.
func (r *Request) Receipt() Receipt {
	return Receipt{RequestID: r.ID, Transaction: r.Transaction, Amount: r.Amount, Balance: r.Balance, At: r.EndedAt}
}

// entryRows calls add with the columns of each new entry, in order.
func (s *state) entryRows(add func(row []any)) {
	for i := range s.entries {
		e := &s.entries[i]
		var r *Request
		if e.Kind == KindBurn {
			r = &s.requests[e.Ref].Request
		}
		row := e.journalRow(r)
		add(row.Values())
	}
}

func burnInto(add func(*requestRow)) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		row, err := store.ScanJournal(scan)
		if err == nil {
			add(&requestRow{stored: true, Request: RequestOf(&row)})
		}
		return err
	}
}
