package rails

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

const (
	probeTimeout = 3 * time.Second  // how long a start waits for the processor
	askTimeout   = 10 * time.Second // how long a later check may take
	retryEvery   = 5 * time.Second  // between checks while the processor cannot be used
	checkEvery   = 10 * time.Second // between later checks, for /ready
)

// errOtherAccount says that the account is not the one that the records of this database are about.
var errOtherAccount = errors.New("the database was used with another account of the card processor")

// errUnknown says that a request was not sent.
var errUnknown = errors.New("card: the request was not sent, because the account of the secret key is not verified yet")

// Start pins the account of the database, as far as the processor answers, and starts the loops. The rail is connected before.
// Errors: a database that was used with another account.
func (p *Cards) Start(ctx context.Context) error {
	if p.rail == nil {
		return nil
	}
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := p.ask(probe); errors.Is(err, errOtherAccount) {
		return err
	}
	p.deps.Jobs.Start(append(p.rail.Loops(), jobs.Loop{Name: "card.account", Every: retryEvery, Wake: p.wake, Run: p.watch})...)
	return nil
}

// Reload reads the files with the secrets of the card processor again, and uses them for all calls that begin from now on. It keeps
// the old secrets and returns an error when the files cannot be read, or when the key belongs to another account or mode.
func (p *Cards) Reload(ctx context.Context) error {
	if p.rail == nil || p.source != stripeCards {
		return nil
	}
	k, err := p.cfg.keys()
	if err != nil {
		return err
	}
	probe, err := card.New(card.Config{
		Store: p.deps.Store, Environment: p.deps.Auth.Environment(), SecretKey: k.secret, WebhookSecrets: k.webhook, URL: p.cfg.URL,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, err := probe.AccountID(ctx)
	if err == nil {
		err = p.pin(ctx, id)
	}
	if err != nil {
		return errors.Join(err, errors.Unwrap(err))
	}
	p.rail.SetSecrets(card.Secrets{Key: k.secret, Webhooks: k.webhook})
	p.wake.Fire() // /ready reports the new key
	return nil
}

// watch asks whether the processor can be used, so that a caller of /ready causes no request.
func (p *Cards) watch(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := p.ask(ctx); err != nil {
		return 0, errors.Join(err, errors.Unwrap(err)) // for the log: the code, and its cause
	}
	return checkEvery, nil
}

// slot holds an error, nil for none.
type slot struct{ err error }

// ask asks whose account the key is of, and refuses one that is not ours.
func (p *Cards) ask(ctx context.Context) error {
	id, err := p.rail.AccountID(ctx)
	if err == nil && !p.pinned.Load() {
		if err = p.pin(ctx, id); err == nil {
			p.pinned.Store(true)
		}
	}
	p.fault.Store(slot{err})
	return err
}

// pin remembers the account at the first start, and refuses another one as soon as a record is about objects of the first.
func (p *Cards) pin(ctx context.Context, id string) error {
	return p.deps.Store.Tx(ctx, func(tx *store.Tx) error {
		known, err := store.PutSettingIfAbsent(ctx, tx, card.AccountSetting, []byte(id))
		if err != nil || string(known) == id {
			return err
		}
		used, err := store.CardUsed(ctx, tx)
		switch {
		case err != nil:
			return err
		case used:
			remedy := "restore the earlier " + setSecretKey
			if p.cfg.URL != "" {
				remedy = "a card double that lost its state has a new account, so start it with its earlier file (toll card-double --file), or " + remedy
			}
			return fmt.Errorf("%w (%s), not with this account (%s): %s, or use a new database; TOLL_CARD=off (--card off) starts "+
				"without fiat plans", errOtherAccount, known, id, remedy)
		}
		return store.PutSetting(ctx, tx, card.AccountSetting, []byte(id))
	})
}

// guarded is the way to the processor. Until the account is known to be ours, nothing passes but the question for it: the objects
// of our records do not exist in another account, and payments would fail for that. After the first request that fails the account
// is asked for at once, so that /ready does not report a processor that is away as usable.
func (p *Cards) guarded() http.RoundTripper {
	by := http.DefaultTransport.(*http.Transport).Clone()
	p.deps.Jobs.OnStop("card processor", func(context.Context) error { by.CloseIdleConnections(); return nil })
	return traces.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		if !p.pinned.Load() && !strings.HasSuffix(r.URL.Path, "/v1/account") {
			p.wake.Fire()
			return nil, errUnknown
		}
		res, err := by.RoundTrip(r)
		if failed := err != nil || res.StatusCode >= http.StatusInternalServerError; failed && r.Context().Err() == nil && p.State() == "ok" {
			p.wake.Fire()
		}
		return res, err
	}))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// State is the word of /ready: off, ok or failing.
func (p *Cards) State() string {
	if p.rail == nil {
		return "off"
	}
	if s, _ := p.fault.Load().(slot); s.err != nil || !p.pinned.Load() || p.rail.Failing() {
		return "failing"
	}
	return "ok"
}
