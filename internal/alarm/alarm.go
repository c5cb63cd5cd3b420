// Package alarm names conditions that need a person: each alarm has an id, a log line, a counter and an entry in docs/OPERATING.md.
package alarm

import (
	"context"
	"log/slog"
)

// ID names an alarm permanently, because rules of operators refer to it.
type ID struct{ name string }

func (id ID) String() string { return id.name }

// IDs returns all ids, in the order of this file.
func IDs() []ID { return ids }

var ids []ID

func named(name string) ID {
	ids = append(ids, ID{name})
	return ID{name}
}

// Alarms about the database and the orders of both rails.
var (
	DatabaseRestored = named("database-restored")
	BackupFailed     = named("backup-failed")
	PaymentUnmatched = named("payment-unmatched")
	OrderUndecided   = named("order-undecided")
	LatePayment      = named("late-payment")
)

// Alarms about the card processor.
var (
	CardKeyDenied        = named("card-key-denied")
	CardKeyConflict      = named("card-key-conflict")
	CardRejected         = named("card-rejected")
	CardRejectedDisputed = named("card-rejected-disputed")
	CardRefundRefused    = named("card-refund-refused")
	CardRequestRefused   = named("card-request-refused")
	CardPaymentLost      = named("card-payment-lost")
	CardOddPage          = named("card-odd-page")
	CardOddEvent         = named("card-odd-event")
	CardEventsGap        = named("card-events-gap")
	PayoutNegative       = named("payout-negative")
)

// Alarms about the chain.
var (
	ChainHalted         = named("chain-halted")
	ChainRefused        = named("chain-refused")
	ChainMovedNothing   = named("chain-moved-nothing")
	ChainOutcomeUnknown = named("chain-outcome-unknown")
	ChainRecordMissing  = named("chain-record-missing")
	ContractChanged     = named("contract-changed")
	EndpointDisagrees   = named("endpoint-disagrees")
	OperationUnknown    = named("operation-unknown")
	OrderStuck          = named("order-stuck")
	TransactionStuck    = named("transaction-stuck")
	RelayerLow          = named("relayer-low")
	RelayerHasCode      = named("relayer-has-code")
	RelayerKeyUsed      = named("relayer-key-used")
	SignerRefused       = named("signer-refused")
	KeyMismatch         = named("key-mismatch")
)

// key is the log attribute with the id.
const key = "alarm"

// Log logs an alarm at level error.
func Log(ctx context.Context, log *slog.Logger, id ID, text string, args ...any) {
	log.ErrorContext(ctx, "alarm: "+text, append([]any{key, id.name}, args...)...)
}

// Count returns a handler that calls counted with the id of each alarm.
func Count(next slog.Handler, counted func(id string)) slog.Handler { return counter{next, counted} }

type counter struct {
	slog.Handler
	counted func(id string)
}

// Enabled counts alarms also if the log is off.
func (c counter) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || c.Handler.Enabled(ctx, level)
}

func (c counter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == key {
				c.counted(a.Value.String())
			}
			return a.Key != key
		})
	}
	if !c.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return c.Handler.Handle(ctx, r)
}

func (c counter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return counter{c.Handler.WithAttrs(attrs), c.counted}
}

func (c counter) WithGroup(name string) slog.Handler {
	return counter{c.Handler.WithGroup(name), c.counted}
}
