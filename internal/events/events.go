// Package events tells principals what was committed. Events about records are written with the change, by
// [store.InsertEvent]; those about credits follow from the entries of the ledger and are derived here, in the background, so
// that a settlement writes nothing for them (docs/decisions/0017-events-are-derived.md). From the streams come the list, the
// live stream, and the deliveries of webhooks.
package events

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
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
	// Notes are the accounts that the ledger of this process changed; nil: repair finds them.
	Notes *Notes
	// Settlement and Permission read a record for one who may see it.
	Settlement func(ctx context.Context, caller toll.Address, transaction toll.Hash) (*toll.Settlement, error)
	Permission func(ctx context.Context, caller toll.Address, hash toll.Hash) (*toll.Permission, error)
	// Delegation is a delegation as it is read; nil: nobody is told of those that end.
	Delegation func(*store.Delegation) *toll.Delegation
	// Seal and Open keep the secrets of webhooks, bound to the second argument.
	Seal      func(plain, aad []byte) ([]byte, error)
	Open      func(sealed, aad []byte) ([]byte, error)
	Outbound  outbound.Config // Timeout 0 is the 10 s that a receiver has
	Namespace x402.Namespace
	Clock     func() time.Time
	Log       *slog.Logger // nil: silence
}

// MaxWebhooks is how many webhooks an address may have (wire contract, section 20).
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
	lap    ledger.AccountID // position of repair
	// maxPending is the constant of this name, and less in a test.
	maxPending int
	// failpoint is set by tests that stop the work at a step.
	failpoint func(at string)
}

// New returns the room. [Events.Loops] are its work in the background.
func New(cfg Config) *Events {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Log, cfg.Namespace = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), cmp.Or(cfg.Namespace, x402.Default)
	cfg.Notes = cmp.Or(cfg.Notes, NewNotes())
	cfg.Outbound.Timeout, cfg.Outbound.IgnoreBody = cmp.Or(cfg.Outbound.Timeout, deliveryTimeout), true
	e := &Events{cfg: cfg, st: cfg.Store, clock: cfg.Clock, log: cfg.Log, client: outbound.New(cfg.Outbound), maxPending: maxPending}
	e.hub = newHub(e)
	e.sender = newSender(e)
	return e
}

// Loops returns what derives events, delivers them and wakes streams. What is being sent when they stop has three seconds.
func (e *Events) Loops() []jobs.Loop {
	return []jobs.Loop{
		{Name: "events.derive", Wake: e.cfg.Notes.wake, Gather: gatherTime, Rest: dutyRest, Turn: e.derive},
		{Name: "events.repair", Every: lapTime, Rest: dutyRest, Turn: jobs.Sweep(e.repair)},
		{Name: "events.deliver", Every: deliverEvery, Wake: e.sender.wake, Turn: jobs.Do(e.sender.turn), End: e.sender.end},
		{Name: "events.streams", Every: hubEvery, Wake: e.hub.wake, Turn: jobs.Do(e.hub.turn), End: func(context.Context) error { e.EndStreams(); return nil }},
		{Name: "events.expire", Every: sweepEvery, Turn: jobs.Do(e.expire)},
		{Name: "events.forget", Every: sweepEvery, Turn: jobs.Sweep(e.forget)},
	}
}

func (e *Events) at(step string) {
	if e.failpoint != nil {
		e.failpoint(step)
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
	for _, s := range list.Items {
		ev, err := e.event(ctx, s)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, ev)
	}
	return out, nil
}

// event gives an event its data.
func (e *Events) event(ctx context.Context, s *store.Event) (*toll.Event, error) {
	ev := &toll.Event{
		ID: s.ID, Type: s.Type, Sequence: s.Sequence, Object: toll.EventObject{Kind: s.Kind, ID: s.Object, Sequence: s.ObjectSequence},
		Data: []byte(s.Data), CreatedAt: toll.At(s.CreatedAt),
	}
	if s.Data != "" {
		return ev, nil
	}
	data, err := e.derivedData(ctx, s)
	if err != nil {
		return nil, err
	}
	ev.Data, err = x402.Encode(data)
	return ev, err
}

func (e *Events) derivedData(ctx context.Context, s *store.Event) (any, error) {
	switch s.Type {
	case toll.EventSettlementSettled: // its object is the transaction
		tx, err := toll.ParseHash(s.Object)
		if err != nil {
			return nil, err
		}
		return e.cfg.Settlement(ctx, s.Principal, tx)
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
