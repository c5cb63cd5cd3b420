package crypto

import (
	"context"
	"encoding/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/store"
)

// UnmatchedEvent is an event of the accounts of the service, or of wallets, that no order explains.
type UnmatchedEvent struct {
	store.ChainOrphan
	TxHash string
	Reason string
	Paid   []Moved
}

// Moved is money that an operation moved, in base units of a token.
type Moved struct {
	Token  toll.Address `json:"token"`
	From   toll.Address `json:"from"`
	To     toll.Address `json:"to"`
	Amount toll.Units   `json:"amount"`
}

// Unmatched returns events that no order explains and nobody has dealt with, the oldest first, at most
// limit. Operations that were signed after the moment of a restored backup are such events.
func Unmatched(ctx context.Context, q store.Querier, limit int64) ([]UnmatchedEvent, error) {
	rows, err := store.ChainOrphans(ctx, q, limit)
	var out []UnmatchedEvent
	for _, row := range rows {
		if err == nil {
			var e UnmatchedEvent
			e, err = UnmatchedOf(row)
			out = append(out, e)
		}
	}
	return out, err
}

// UnmatchedOf reads the record of an event.
func UnmatchedOf(row store.ChainOrphan) (UnmatchedEvent, error) {
	var o chain.Orphan
	if err := json.Unmarshal(row.Data, &o); err != nil {
		return UnmatchedEvent{}, err
	}
	e := UnmatchedEvent{ChainOrphan: row, TxHash: o.Tx.Hex(), Reason: o.Reason}
	for _, p := range o.Paid {
		e.Paid = append(e.Paid, Moved{
			Token: toll.Address(p.Token), From: toll.Address(p.From), To: toll.Address(p.To), Amount: p.Amount,
		})
	}
	return e, nil
}

// ChainRead reports whether the chain was read up to its head since the database was restored.
func ChainRead(ctx context.Context, q store.Querier) (bool, error) {
	return store.ChainRead(ctx, q, chain.CursorReader)
}
