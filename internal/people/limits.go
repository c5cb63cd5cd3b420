package people

import (
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/store"
)

// limits bound what one source, and what all sources together, may try. They count in this process only.
type limits struct {
	store  *store.Store
	states *states // of browsers that the service remembers

	began   time.Time
	signUps *meter.Meter[string] // by source
	tries   *meter.Meter[string] // of credentials, by source
	names   *meter.Meter[string] // of passwords, by login name or person
	links   *meter.Meter[string] // opened links, by source
	senders *meter.Meter[string] // mails, by source
	allMail *meter.Meter[string] // all mails
	mails   *meter.Meter[string] // mails, by address
	uses    *meter.Meter[string] // notes of a session in a workspace

	sessions *meter.Meter[toll.UUID] // sign-ins, by person: each adds rows
	notices  *meter.Meter[toll.UUID] // mails without a request of their reader, by credential
}

func newLimits(st *store.Store, states *states) *limits {
	return &limits{
		store: st, states: states,
		began:    time.Now(),
		signUps:  meter.New[string](6*time.Minute, 20),
		tries:    meter.New[string](15*time.Second, 40),
		names:    meter.New[string](30*time.Second, 20),
		links:    meter.New[string](15*time.Second, 40),
		senders:  meter.New[string](2*time.Minute, 10),
		mails:    meter.New[string](5*time.Minute, 5),
		allMail:  meter.New[string](2*time.Second, 300),
		uses:     meter.New[string](time.Minute, 1),
		sessions: meter.New[toll.UUID](6*time.Second, 600),
		notices:  meter.New[toll.UUID](3*time.Minute, 20),
	}
}

// take counts one in a meter. The error has [toll.CodeRateLimited].
func take[K comparable](m *meter.Meter[K], began time.Time, key K) error {
	r := m.Take(key, 1, time.Since(began))
	if r.OK {
		return nil
	}
	e := toll.Errorf(toll.CodeRateLimited, "Too many attempts. Try again in a few minutes.")
	e.RetryAfterSecs = int((r.Retry + time.Second - 1) / time.Second)
	return e
}

func (l *limits) signUp(source string) error { return take(l.signUps, l.began, source) }

func (l *limits) attempt(source string) error { return take(l.tries, l.began, source) }

func (l *limits) link(source string) error { return take(l.links, l.began, source) }

type bucket struct {
	meter *meter.Meter[string]
	key   string
}

// take takes one from each bucket in order, until one is empty. When other callers emptied a bucket, a browser or a network in which
// the person signed in before uses a bucket of its own. user may be zero. give, for a success, returns everything. Errors: [toll.CodeRateLimited].
func (l *limits) take(ctx context.Context, source string, user toll.UUID, buckets ...bucket) (give func(), err error) {
	own := ""
	for i, b := range buckets {
		err := take(b.meter, l.began, b.key)
		if err == nil {
			continue
		}
		if own == "" {
			var failed error
			if own, failed = l.earlier(ctx, l.store, source, user); failed != nil {
				return nil, failed
			}
		}
		if own == "" {
			return nil, err
		}
		buckets[i].key = b.key + " " + own
		if err := take(b.meter, l.began, buckets[i].key); err != nil {
			return nil, err
		}
	}
	return func() {
		for _, b := range buckets {
			b.meter.Give(b.key, 1, time.Since(l.began))
		}
	}, nil
}

// try is [limits.take] for a try of a credential: by source and, unless it is "", by name. An empty source leaves no name in debt.
func (l *limits) try(ctx context.Context, source, name string, user toll.UUID) (give func(), err error) {
	buckets := []bucket{{l.tries, source}}
	if name != "" {
		buckets = append(buckets, bucket{l.names, name})
	}
	return l.take(ctx, source, user, buckets...)
}

// browserState is in a cookie of a browser in which a person signed in, sealed.
type browserState struct {
	User toll.UUID `json:"user"`
	ID   toll.UUID `json:"id"`
	Ends time.Time `json:"ends"`
}

// Remembered is how long a browser and a network of an earlier sign-in are known.
const Remembered = knownTime

// RememberBrowser returns the value of a cookie that marks a browser in which a person signed in. It is no session.
func (ss *Sessions) RememberBrowser(user toll.UUID) (string, error) {
	return ss.limits.states.seal(browserState{user, toll.NewTimeUUID(ss.clock()), ss.clock().Add(Remembered)}, "people browser")
}

type browserKey struct{}

// WithBrowser returns a context of a request with the cookie of [Sessions.RememberBrowser].
func WithBrowser(ctx context.Context, cookie string) context.Context {
	return context.WithValue(ctx, browserKey{}, cookie)
}

// earlier returns a name for the browser or else the network of a request if the person signed in there within [Remembered], ""
// otherwise. For no person it reads as much of the database as for one.
func (l *limits) earlier(ctx context.Context, q store.Querier, source string, user toll.UUID) (string, error) {
	var b browserState
	cookie, _ := ctx.Value(browserKey{}).(string)
	if len(cookie) < 1024 && l.states.open(cookie, "people browser", &b) && b.User == user && !user.IsZero() && l.states.clock().Before(b.Ends) {
		return "browser " + b.ID.String(), nil
	}
	in, err := store.MembershipsOf(ctx, q, user)
	if err != nil {
		return "", err
	}
	if len(in) == 0 {
		in = make([]store.Membership, 1)
	}
	// A sign-in is in the log of every workspace of the person. The oldest one serves.
	from, err := store.SourcesOf(ctx, q, in[0].Workspace, user, l.states.clock().Add(-Remembered), l.states.clock())
	at := networkOf(source)
	if err == nil && slices.ContainsFunc(from, func(f string) bool { return networkOf(f) == at }) {
		return user.String() + " " + at, nil
	}
	return "", err
}
