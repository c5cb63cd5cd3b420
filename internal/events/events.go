// Package events tells principals what was committed. Events about records are written with the change, by [store.InsertEvent]; those about
// credits follow from the journal of the ledger and are derived here, in the background, so that a settlement writes nothing for them
// (docs/decisions/0057-events-in-step.md). From the streams come the list, the live stream, and the deliveries of webhooks.
package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Config is what the room works with.
type Config struct {
	Store  *store.Store
	Ledger *ledger.Ledger
	// Settlement and Permission read a record for one who may see it, and Settlements those of entries, in their order.
	Settlements func(ctx context.Context, caller toll.Address, entries []*store.JournalRow) ([]*toll.Settlement, error)
	Permission  func(ctx context.Context, caller toll.Address, hash toll.Hash) (*toll.Permission, error)
	// Delegation is a delegation as it is read; nil: nobody is told of those that end.
	Delegation func(*store.Delegation) *toll.Delegation
	// Seal and Open keep the secrets of webhooks, bound to the second argument.
	Seal      func(plain, aad []byte) ([]byte, error)
	Open      func(sealed, aad []byte) ([]byte, error)
	Outbound  outbound.Config // Timeout 0 is the 10 s that a receiver has
	Namespace x402.Namespace
	Mail      Mailer // nil: no webhook sends mails
	PublicURL string // to which mails lead
	// Horizon is how long events are kept; 0: for ever. Removed counts those that were removed; nil: nobody does.
	Horizon time.Duration
	Removed func(events int)
	Clock   func() time.Time
	Log     *slog.Logger // nil: silence
}

// MaxWebhooks is how many webhooks with a url an address may have (wire contract, section 20), and how many that send mails.
const MaxWebhooks = 20

// Events is the room. It is safe for concurrent use; any number of processes may work on one database.
type Events struct {
	cfg    Config
	st     *store.Store
	clock  func() time.Time
	log    *slog.Logger
	client *outbound.Client
	hub    *hub
	sender *sender

	sidesMu sync.Mutex
	sides   map[[16]byte]store.Sides // of accounts that were in the journal lately
	// maxPending is the constant of this name, and less in a test.
	maxPending int
	// retained is the principal up to whose stream the present round of [Events.retain] is done.
	retained string
	// failpoint is set by tests that stop the work at a step.
	failpoint func(at string)
}

// New returns the room. [Events.Loops] are its work in the background.
func New(cfg Config) *Events {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Log, cfg.Namespace = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), cmp.Or(cfg.Namespace, x402.Default)
	cfg.Outbound.Timeout, cfg.Outbound.IgnoreBody = cmp.Or(cfg.Outbound.Timeout, deliveryTimeout), true
	e := &Events{cfg: cfg, st: cfg.Store, clock: cfg.Clock, log: cfg.Log, client: outbound.New(cfg.Outbound), maxPending: maxPending}
	e.sides = map[[16]byte]store.Sides{}
	e.hub = &hub{
		e: e, wake: jobs.NewSignal(), audiences: map[toll.Address]*audience{}, each: map[string]int{}, ended: make(chan struct{}),
	}
	e.sender = &sender{e: e, wake: jobs.NewSignal(), flying: map[string]int{}}
	e.sender.sends, e.sender.cut = context.WithCancel(context.Background())
	return e
}

// Loops returns what delivers events and wakes streams; [Events.Consumer] makes them. What is being sent when they stop has three seconds.
func (e *Events) Loops() []jobs.Loop {
	return []jobs.Loop{
		{Name: "events.deliver", Every: deliverEvery, Wake: e.sender.wake, Run: jobs.Do(e.sender.run), End: e.sender.end},
		{Name: "events.streams", Every: hubEvery, Wake: e.hub.wake, Run: jobs.Do(e.hub.run), End: func(context.Context) error { e.EndStreams(); return nil }},
		{Name: "events.expire", Every: sweepEvery, Run: jobs.Do(e.expire)},
		{Name: "events.forget", Every: sweepEvery, Run: jobs.Sweep(e.forget)},
		{Name: "events.retain", Every: retainEvery, Run: jobs.Do(e.retain)},
	}
}

func (e *Events) at(step string) {
	if e.failpoint != nil {
		e.failpoint(step)
	}
}

func (e *Events) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		e.log.WarnContext(ctx, what, "error", err.Error())
	}
}

// List returns a part of the stream of a principal.
func (e *Events) List(ctx context.Context, f store.EventFilter, p store.Page) (store.List[*toll.Event], error) {
	out := store.List[*toll.Event]{Items: []*toll.Event{}}
	list, err := store.Events(ctx, e.st, f, p)
	if err != nil {
		return out, err
	}
	out.Total, out.Next = list.Total, list.Next
	out.Items, err = e.render(ctx, f.Principal, list.Items)
	return out, err
}

// BySequence returns an event of a stream. Errors: [store.ErrNotFound].
func (e *Events) BySequence(ctx context.Context, principal toll.Address, sequence int64) (*toll.Event, error) {
	row, err := store.EventBySequence(ctx, e.st, principal, sequence)
	if err != nil {
		return nil, err
	}
	all, err := e.render(ctx, principal, []*store.Event{row})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (e *Events) render(ctx context.Context, principal toll.Address, rows []*store.Event) ([]*toll.Event, error) {
	var entries []*store.JournalRow
	for _, s := range rows {
		if s.Row != nil {
			entries = append(entries, s.Row)
		}
	}
	var settlements []*toll.Settlement
	if len(entries) > 0 {
		var err error
		if settlements, err = e.cfg.Settlements(ctx, principal, entries); err != nil {
			return nil, err
		}
	}
	out := make([]*toll.Event, len(rows))
	for i, s := range rows {
		ev := &toll.Event{
			ID: s.ID, Type: s.Type, Sequence: s.Sequence, Object: toll.EventObject{Kind: s.Kind, ID: s.Object, Sequence: s.ObjectSequence},
			Data: []byte(s.Data), CreatedAt: toll.At(s.CreatedAt),
		}
		if out[i] = ev; s.Data != "" {
			continue
		}
		var data any
		var err error
		if s.Row != nil {
			data, settlements = settlements[0], settlements[1:]
		} else if data, err = e.derivedData(ctx, s); isRemoved(err) {
			data = struct{}{} // the event goes next
		} else if err != nil {
			return nil, err
		}
		if ev.Data, err = x402.Encode(data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isRemoved reports whether the record of an event was removed when its retention ended.
func isRemoved(err error) bool {
	return errors.Is(err, toll.NewError(toll.CodeSettlementGone)) || errors.Is(err, toll.NewError(toll.CodePermissionUnknown))
}

func (e *Events) derivedData(ctx context.Context, s *store.Event) (any, error) {
	switch s.Type {
	case toll.EventPermissionExhausted, toll.EventPermissionRevoked:
		hash, err := toll.ParseHash(s.Object)
		if err != nil {
			return nil, err
		}
		return e.cfg.Permission(ctx, s.Principal, hash)
	}
	entry, err := e.cfg.Ledger.Entry(ctx, s.Account, s.Entry)
	if err != nil {
		return nil, err
	}
	plan, holder, _ := strings.Cut(s.Object, "/")
	address, err := toll.ParseAddress(holder)
	if err != nil {
		return nil, err
	}
	return &toll.CreditsMoved{
		PlanID: toll.PlanID(plan), HolderAddress: address, Kind: entry.Kind.String(), Amount: entry.Amount, Balance: entry.BalanceAfter,
		Transaction: entry.Commitment, Reference: entry.Ref, CreatedAt: toll.At(time.UnixMicro(entry.AtMicros).UTC()),
	}, nil
}
