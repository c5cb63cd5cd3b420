package double

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Version is the version of Stripe's API that the double speaks, and that of stripe-go.
const Version = "2026-03-25.dahlia"

// nodeVersion is the default version of stripe-node, which has the same shapes in what the double serves.
const nodeVersion = "2026-10-28.endive"

// Options configure a double. The zero value works: it keeps its state in memory.
type Options struct {
	// Now is the clock; nil means the clock of the system. The fault "clock" moves the double's time away from it.
	Now func() time.Time

	// File holds the state between runs of one process at a time. Empty means that the state is in memory only.
	File string

	// SecretKey is the key of the account. Empty accepts every key that starts with sk_test_, so set it where others can reach the handler.
	SecretKey string

	// Account is the id of a new account, acct_…; empty means a random one.
	Account string

	// RestrictedKeys are keys that start with rk_test_, each with its permissions, such as "customer_write" or "event_read".
	RestrictedKeys map[string][]string

	// PublicURL is where browsers reach the pages; empty means the host of the API request.
	PublicURL string

	Webhooks []Webhook

	// Later is the delay of refunds that end later and of disputes that begin later, by the double's clock. Zero means two seconds.
	Later time.Duration

	// MaxRows bounds the objects, events and idempotency keys that are kept; zero means 20,000.
	MaxRows int

	// Logger gets failures of saving and of webhooks, never a secret; nil discards them.
	Logger *slog.Logger
}

// Webhook is an endpoint that gets all events.
type Webhook struct {
	URL     string
	Secrets []string // two while a secret is rotated: each signs
}

// Double is a running double of Stripe. Its methods are safe for concurrent use.
type Double struct {
	opts    Options
	handler http.Handler
	client  *http.Client

	mu   sync.Mutex
	st   *state
	busy map[string]bool // idempotency keys whose request runs

	wake    []chan struct{} // by webhook: something may be due
	done    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// New reads the state of opts.File, if there is one, and starts to send webhooks. The caller has to call Close.
func New(opts Options) (*Double, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Later <= 0 {
		opts.Later = 2 * time.Second
	}
	if opts.MaxRows <= 0 {
		opts.MaxRows = 20_000
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.PublicURL = strings.TrimSuffix(opts.PublicURL, "/")
	for key := range opts.RestrictedKeys {
		if !strings.HasPrefix(key, "rk_test_") {
			return nil, errors.New("a restricted key of the double must start with rk_test_")
		}
	}
	if opts.SecretKey != "" && !strings.HasPrefix(opts.SecretKey, "sk_test_") {
		return nil, errors.New("the secret key of the double must start with sk_test_")
	}
	st, err := load(opts.File, opts.Account, opts.Now().Unix())
	if err != nil {
		return nil, err
	}
	d := &Double{
		opts: opts,
		st:   st,
		busy: map[string]bool{},
		client: &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			Timeout:   webhookTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}
	if err := d.save(); err != nil { // better now than at the first payment
		return nil, err
	}
	d.done, d.stop = context.WithCancel(context.Background())
	d.handler = d.routes()
	for i := range opts.Webhooks {
		d.wake = append(d.wake, make(chan struct{}, 1))
		d.running.Go(func() { d.send(i) })
	}
	d.running.Go(d.tick)
	return d, nil
}

// Close stops sending webhooks and ends requests that a fault holds. The state stays in the file.
func (d *Double) Close() {
	d.stop()
	d.running.Wait()
	d.client.CloseIdleConnections()
}

// Handler serves Stripe's API below /v1/, the pages below /c/, the script for embedded pages at
// /dahlia/stripe.js, and the commands below /_double/.
func (d *Double) Handler() http.Handler { return d.handler }

// Serve serves Handler on a listener, with limits on slow peers, until ctx ends.
func (d *Double) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           d.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(d.opts.Logger.Handler(), slog.LevelDebug),
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// now is the double's time. The caller holds d.mu.
func (d *Double) now() time.Time {
	return d.opts.Now().Add(time.Duration(d.st.MovedBy) * time.Second)
}

// tick carries out what becomes due while nobody calls.
func (d *Double) tick() {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-d.done.Done():
			return
		case <-ticker.C:
		}
		d.mu.Lock()
		if len(d.st.Tasks) > 0 && d.st.Tasks[0].At <= d.now().Unix() {
			c := d.newCall(nil)
			c.advance()
			d.save()
		}
		pending := len(d.st.Deliveries) > 0
		d.mu.Unlock()
		if pending {
			d.wakeAll()
		}
	}
}

// wait waits for a pause of real time, and reports false when the double is closed first.
func (d *Double) wait(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.done.Done():
		return false
	}
}

// readAll reads a body of at most limit bytes. The server bounds the time that it takes.
func readAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
}
