package endpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/traces"
)

var (
	// ErrNone says that no endpoint of the chain can be used now.
	ErrNone = errors.New("endpoints: no endpoint of the chain can be used")
	// ErrDisagree says that no two endpoints give the same answer.
	ErrDisagree = errors.New("endpoints: the endpoints of the chain do not agree")
)

// Config says which endpoints there are and which chain they have to be of.
type Config struct {
	URLs    []string      // http or https
	Clients []*rpc.Client // of a chain in this process; the pool does not close them
	ChainID uint64
	Genesis common.Hash // hash of block 0; zero: not compared
	// Agree demands that two endpoints know the same block as safe or finalized. It needs two URLs: with one endpoint there is
	// nobody to ask, and [New] refuses.
	Agree bool
	// Idle says that the chain makes a block only when there is something to put in, so that an old head means nothing.
	Idle bool
	// Clock is nil for that of the machine. The age of a head is measured by it, so for a public chain it is not a clock that can be moved.
	Clock func() time.Time
	Log   *slog.Logger // nil: nothing is logged

	Tries    int           // attempts of a read on one endpoint; 0 is 3
	Timeout  time.Duration // of one attempt; 0 is 5 s
	Cooldown time.Duration // for which an endpoint is left alone after a burst of faults; 0 is 10 s
	Every    time.Duration // between checks of health; 0 is 5 s
	Most     int64         // bytes of one answer; 0 is 32 MiB
}

// Bounds of an endpoint that is used.
const (
	maxHeadAge = time.Minute
	// burst is how many faults in a row close an endpoint.
	burst = 3
)

// Conn is a connection to one endpoint.
type Conn struct {
	*ethclient.Client
	RPC  *rpc.Client
	Name string // host and port, never path, query or credentials
}

// Pool is a set of endpoints of one chain. It is safe for concurrent use.
type Pool struct {
	cfg       Config
	endpoints []*endpoint
	transport *http.Transport

	mu      sync.Mutex
	current *endpoint // the last one that answered
	split   bool      // the endpoints did not agree when they were last asked

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // sends that go on after the first success
}

// New returns a pool. It asks no endpoint: each is checked when it is first used.
func New(cfg Config) (*Pool, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Tries = cmp.Or(cfg.Tries, 3)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.Cooldown = cmp.Or(cfg.Cooldown, 10*time.Second)
	cfg.Every = cmp.Or(cfg.Every, 5*time.Second)
	cfg.Most = cmp.Or(cfg.Most, 32<<20)
	if cfg.ChainID == 0 {
		return nil, errors.New("endpoints: no chain id is given")
	}
	if len(cfg.URLs)+len(cfg.Clients) == 0 {
		return nil, errors.New("endpoints: no endpoint is given")
	}
	if cfg.Agree && len(cfg.URLs)+len(cfg.Clients) < 2 {
		return nil, errors.New("endpoints: this chain requires two endpoints that agree on final blocks, but only one is set")
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSHandshakeTimeout:    cfg.Timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      true,
	}
	p := &Pool{cfg: cfg, transport: transport}
	p.life, p.end = context.WithCancel(context.Background())
	names := map[string]int{}
	for i, c := range cfg.Clients {
		name := "embedded"
		if i > 0 {
			name += "#" + strconv.Itoa(i+1)
		}
		p.endpoints = append(p.endpoints, newEndpoint(p, name, c))
	}
	for i, raw := range cfg.URLs {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return nil, fmt.Errorf("endpoints: endpoint %d is not an http or https URL", i+1)
		}
		if slices.Contains(cfg.URLs[:i], raw) {
			return nil, fmt.Errorf("endpoints: endpoint %d is given twice", i+1)
		}
		names[u.Host]++
		name := u.Host
		if n := names[u.Host]; n > 1 {
			name += "#" + strconv.Itoa(n)
		}
		client, err := dial(u, traces.Transport(transport), cfg.Most)
		if err != nil {
			return nil, fmt.Errorf("endpoints: endpoint %d (%s) cannot be used", i+1, name)
		}
		p.endpoints = append(p.endpoints, newEndpoint(p, name, client))
	}
	return p, nil
}

// Loop returns what checks the health of all endpoints.
func (p *Pool) Loop() jobs.Loop {
	return jobs.Loop{Name: "chain.endpoints", Every: p.cfg.Every, Run: jobs.Do(func(ctx context.Context) error {
		p.Check(ctx)
		return nil
	})}
}

// Check asks every endpoint now, at most for the time of one attempt.
func (p *Pool) Check(ctx context.Context) {
	var wg sync.WaitGroup
	for _, e := range p.endpoints {
		wg.Go(func() { e.check(ctx) })
	}
	wg.Wait()
}

// Close gives up what is still being sent and closes the connections that the pool made.
func (p *Pool) Close() {
	p.end()
	p.work.Wait()
	p.transport.CloseIdleConnections()
}

// Health is the state of one endpoint.
type Health struct {
	Name      string
	Usable    bool
	Reason    string        // why it is not used; "" when it is
	ChainID   uint64        // as it says; 0 before it has answered
	Head      uint64        // number of its newest block
	HeadAge   time.Duration // by the time in that block
	Faults    int           // of the latest requests, of 1000
	Latency   time.Duration // of the latest requests
	CheckedAt time.Time     // zero: never
}

// Health tells how all endpoints stand, in the order of the configuration.
func (p *Pool) Health() []Health {
	all := make([]Health, len(p.endpoints))
	for i, e := range p.endpoints {
		all[i] = e.health()
	}
	return all
}
