package rails

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Cards is the card rail of a service. A service without one has one, too, which is off. Its methods may be called at the same time.
type Cards struct {
	cfg    CardConfig
	deps   Deps
	source cardSource
	rail   *card.Rail     // nil: off
	double *runningDouble // nil: none in this process

	wake   jobs.Signal  // of the loop that asks for the account
	pinned atomic.Bool  // the account is the one of this database
	fault  atomic.Value // an error in a slot: why the account could not be asked, or is not ours
}

// settingInstallation is the UUID of this database at Stripe, where several may share an account.
const settingInstallation = "card_installation"

// NewCards checks keys and environment, and makes the rail. It asks nobody, and starts nothing but the listener of a double.
func NewCards(ctx context.Context, cfg CardConfig, deps Deps) (*Cards, error) {
	p := &Cards{cfg: cfg, deps: deps, source: noCards, wake: jobs.NewSignal()}
	if cfg.Mode == CardOff {
		return p, nil
	}
	k, err := cfg.keys()
	if err != nil {
		return nil, err
	}
	var missing string
	if p.source, missing = cfg.source(deps.Auth.Environment(), k, deps.embedded()); p.source == noCards {
		deps.Log.WarnContext(ctx, "fiat plans cannot be ordered", "reason", missing)
		return p, nil
	}
	url := cfg.URL
	if p.source == doubleCards {
		if p.double, err = startDouble(ctx, cfg.DoubleListen, &deps); err != nil {
			return nil, err
		}
		k, url = p.double.keys, p.double.url
	} else if len(k.webhook) == 0 {
		deps.Log.WarnContext(ctx, "webhooks from the card processor cannot be verified; payments are found by polling within a minute", "missing", setWebhookSecret)
	}
	return p, p.connect(ctx, k, url)
}

// embedded reports whether this is the only process of its database, which may run the double.
func (d *Deps) embedded() bool { return d.Store.Engine() == store.SQLite && d.Data != "" }

// connect makes the rail with the keys of an account.
func (p *Cards) connect(ctx context.Context, k cardKeys, url string) error {
	d := &p.deps
	id, err := installation(ctx, d.Store)
	if err != nil {
		return err
	}
	p.rail, err = card.New(card.Config{
		Store: d.Store, Environment: d.Auth.Environment(), Installation: id, SecretKey: k.secret, PublishableKey: k.publishable,
		WebhookSecrets: k.webhook, URL: url, Tries: k.tries(), HTTP: &http.Client{Transport: p.guarded()}, Link: d.link,
		Tax: p.cfg.Tax, Invoices: p.cfg.Invoices, Descriptor: p.cfg.Descriptor, RefundFees: p.cfg.RefundFees, Clock: d.Clock, Machine: d.Machine, Log: d.Log, At: d.At,
	})
	return err
}

// installation returns the id of this database at Stripe, which the first start makes.
func installation(ctx context.Context, st *store.Store) (string, error) {
	id, err := store.Setting(ctx, st, settingInstallation)
	if errors.Is(err, store.ErrNotFound) {
		err = st.Tx(ctx, func(tx *store.Tx) (err error) {
			id, err = store.PutSettingIfAbsent(ctx, tx, settingInstallation, []byte(toll.NewUUID()))
			return err
		})
	}
	return string(id), err
}

// link returns the signed address of a page of ours.
func (d *Deps) link(use rail.Use, owner toll.Address, orderID string, ends time.Time) (string, error) {
	text, err := d.Auth.SignReference(string(use), owner, orderID, ends)
	return d.PublicURL + use.Path(orderID) + "?t=" + text, err
}

// Source returns a name of a network address for the limit of attempts, which does not tell the address: of IPv6 that of its
// /64, as the rest is chosen by its holder.
func (p *Cards) Source(a netip.Addr) string {
	if a = a.Unmap(); a.Is6() {
		prefix, _ := a.Prefix(64) // 64 bits fit
		a = prefix.Addr()
	}
	mac := hmac.New(sha256.New, p.deps.Auth.MACKey())
	_, _ = mac.Write([]byte("toll/card-source/" + a.String()))
	return toll.Hash(mac.Sum(nil)).String()
}

// Rail returns the rail as checkout sees it, nil when it is off.
func (p *Cards) Rail() rail.Rail {
	if p.rail == nil {
		return nil
	}
	return p.rail
}

// Handle has the queue run the jobs of the rail. It does nothing when the rail is off.
func (p *Cards) Handle(q *jobs.Queue) {
	if r := p.rail; r != nil {
		q.Handle(store.JobCardSync, r.Sync)
		q.Handle(store.JobCardDecide, r.RetryDecision)
		q.Handle(store.JobCardRelease, r.Release)
		q.Handle(store.JobCardRefund, r.SendRefund)
		q.Handle(store.JobCardDetach, r.Detach)
	}
}

// Double returns the address of the double in this process, "" for none.
func (p *Cards) Double() string {
	if p.double == nil {
		return ""
	}
	return p.double.url
}
