package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

const (
	contextLife  = 60 * time.Second // for which a text is cached
	contextPause = 10 * time.Second // before a failed read is repeated
	contextTime  = 1500 * time.Millisecond
	maxContext   = 500 // characters
	maxContexts  = 16  // cached texts, one per account and plan
)

// contexts caches the texts for the next prompts. The zero value is empty. It is safe for concurrent use.
type contexts struct {
	mu      sync.Mutex
	known   *cache.Cache[contextKey, contextText]
	reads   map[contextKey]*contextRead // in flight
	failing bool                        // the last read failed
}

type contextKey struct {
	environment toll.Environment
	key         toll.Hash
	plan        toll.PlanID
}

type contextText struct {
	of   *account // a login, logout, or configuration change creates a new account
	text string
}

type contextRead struct {
	contextText
	done chan struct{} // closed when the read has ended
}

func (a *account) contextKey() contextKey {
	return contextKey{a.environment, a.keyID, a.PlanID}
}

// promptContext returns the text before the next prompt: the credits of the configured plan. It returns "" without a key or
// plan, and if the balance cannot be read, which must not look like 0 credits. It returns within 1.5 s and caches for a minute.
func (c *Core) promptContext(ctx context.Context) string {
	a, err := c.account()
	if err != nil || a.PlanID == "" {
		return ""
	}
	k := a.contextKey()
	c.contexts.mu.Lock()
	if c.contexts.known == nil {
		c.contexts.known = cache.New[contextKey, contextText](maxContexts)
		c.contexts.reads = map[contextKey]*contextRead{}
	}
	if got, ok := c.contexts.known.Get(k, c.now()); ok && got.of == a {
		c.contexts.mu.Unlock()
		return got.text
	}
	if r := c.contexts.reads[k]; r != nil && r.of == a {
		c.contexts.mu.Unlock()
		select {
		case <-r.done:
			return r.text
		case <-ctx.Done():
			return ""
		}
	}
	r := &contextRead{contextText: contextText{of: a}, done: make(chan struct{})}
	c.contexts.reads[k] = r
	c.contexts.mu.Unlock()
	c.readContext(ctx, a, r)
	return r.text
}

// readContext reads the balance for all callers that wait for r, and closes r.done.
func (c *Core) readContext(ctx context.Context, a *account, r *contextRead) {
	// Other callers wait for this read, so the first caller's ctx must not cancel it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), contextTime)
	defer cancel()
	b, err := a.service.Balance(ctx, a.PlanID)
	k, life := a.contextKey(), contextLife
	if err != nil {
		life = contextPause
	} else {
		r.text = contextOf(c.opts.Names, a.environment, b)
	}
	now := c.now()
	c.contexts.mu.Lock()
	defer c.contexts.mu.Unlock()
	if c.contexts.reads[k] == r { // the balance has not changed meanwhile
		delete(c.contexts.reads, k)
		c.contexts.known.Put(k, r.contextText, now.Add(life), now)
	}
	if err != nil && !c.contexts.failing {
		c.log.Warn("the balance cannot be read, so prompts do not show it", "error", toll.AsError(err).Error())
	}
	c.contexts.failing = err != nil
	close(r.done)
}

// balanceChanged drops the cached context of an account.
func (c *Core) balanceChanged(a *account) {
	c.contexts.mu.Lock()
	defer c.contexts.mu.Unlock()
	if c.contexts.known == nil {
		return
	}
	c.contexts.known.Drop(a.contextKey())
	delete(c.contexts.reads, a.contextKey()) // its result may be older than the change
}

// contextOf describes a balance in one line. The name of the plan is untrusted text; it is quoted and cannot end its quotation.
func contextOf(names x402.Namespace, env toll.Environment, b *toll.Balance) string {
	order := ": ask the user before ordering with " + names.Tool(orderPlanName)
	held := fmt.Sprintf(" available (balance %d, held %d)", b.Balance, b.Held)
	state := b.Available.Text()
	switch {
	case !b.IsSubscriber && b.Balance == 0:
		state = "not ordered yet"
	case !b.PlanType.Kind().Charges():
		state = fmt.Sprintf("subscribed, requests burn no credits, %s", env)
	case b.Balance == 0:
		state += order
	case b.Available == 0:
		state += held + order
	case b.IsSubscriber:
		state += fmt.Sprintf("%s, subscribed, %s", held, env)
	default:
		state += fmt.Sprintf("%s, %s", held, env)
	}
	return plain.Text(fmt.Sprintf(`[%s] Plan "%s" (%s): %s.`,
		names.Word, quotable(b.PlanName), b.PlanID, state), maxContext)
}

// quotable removes quotes, brackets, and other characters that can end a quotation or look like structure.
func quotable(name string) string {
	return plain.Name(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Ps, unicode.Pe, unicode.Pi, unicode.Pf) || strings.ContainsRune("<>\"'`\\＂＇＜＞❛❜❝❞", r) {
			return -1
		}
		return r
	}, name))
}
