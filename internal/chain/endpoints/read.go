package endpoints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/backoff"
)

// Read runs f with the best endpoint until it is answered: up to three attempts of 5 s each, then the next endpoint. An
// attempt that took all its time is not repeated on the same endpoint. f may run several times, so it must only read and
// must put its results where a later run replaces them.
//
// What f returns for an answer, nil and JSON-RPC errors included, is returned at once. It is [ErrNone] when no endpoint answered
// and the error of ctx when that ended.
func (p *Pool) Read(ctx context.Context, f func(ctx context.Context, c *Conn) error) error {
	var whys []string
	for _, e := range p.order() {
		fault, err := e.read(ctx, f)
		if fault == "" {
			p.mu.Lock()
			p.current = e
			p.mu.Unlock()
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		whys = append(whys, e.conn.Name+": "+fault)
	}
	return none(whys)
}

// Get is [Pool.Read] for what has one result.
func Get[T any](ctx context.Context, p *Pool, f func(ctx context.Context, c *Conn) (T, error)) (v T, err error) {
	err = p.Read(ctx, func(ctx context.Context, c *Conn) (err error) {
		v, err = f(ctx, c)
		return err
	})
	return v, err
}

// get is [endpoint.read] for what has one result.
func get[T any](ctx context.Context, e *endpoint, f func(ctx context.Context, c *Conn) (T, error)) (v T, why string, err error) {
	why, err = e.read(ctx, func(ctx context.Context, c *Conn) (err error) {
		v, err = f(ctx, c)
		return err
	})
	return v, why, err
}

func none(whys []string) error { return fmt.Errorf("%w (%s)", ErrNone, strings.Join(whys, "; ")) }

// order lists the endpoints, the best first. The one that answered last stays in front of those that are a little better,
// so that what follows each other is mostly asked of one view of the chain.
func (p *Pool) order() []*endpoint {
	p.mu.Lock()
	current := p.current
	p.mu.Unlock()
	costs := make(map[*endpoint]time.Duration, len(p.endpoints))
	for _, e := range p.endpoints {
		costs[e] = e.cost()
		if e == current {
			costs[e] /= 2
		}
	}
	all := slices.Clone(p.endpoints)
	slices.SortStableFunc(all, func(a, b *endpoint) int { return cmp.Compare(costs[a], costs[b]) })
	return all
}

// read is [Pool.Read] on one endpoint. The first result says why it gave no answer, "" when it gave one.
func (e *endpoint) read(ctx context.Context, f func(ctx context.Context, c *Conn) error) (string, error) {
	if why := e.ready(ctx); why != "" {
		return why, nil
	}
	return e.attempts(ctx, f)
}

// attempts runs f until it is answered, at most as often as is configured.
func (e *endpoint) attempts(ctx context.Context, f func(ctx context.Context, c *Conn) error) (string, error) {
	for n := 1; ; n++ {
		why, err := e.attempt(ctx, f)
		if why == "" || ctx.Err() != nil || n >= e.pool.cfg.Tries || why == tooSlow || e.resting() {
			return why, err
		}
		if !backoff.Sleep(ctx, backoff.Delay(100*time.Millisecond, time.Second, n)) {
			return why, ctx.Err()
		}
	}
}

const tooSlow = "the endpoint does not respond in time"

// attempt runs f once. The first result says what was wrong with the endpoint, "" when it answered.
func (e *endpoint) attempt(ctx context.Context, f func(ctx context.Context, c *Conn) error) (string, error) {
	try, cancel := context.WithTimeout(ctx, e.pool.cfg.Timeout)
	defer cancel()
	began := e.pool.cfg.Clock()
	err := f(try, e.conn)
	took := e.pool.cfg.Clock().Sub(began)
	why := fault(err)
	if why != "" && ctx.Err() != nil {
		// The endpoint is blamed only for a caller who waited.
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && took >= e.pool.cfg.Timeout/5 {
			e.count(tooSlow, took)
		}
		return tooSlow, ctx.Err()
	}
	if why != "" && try.Err() != nil {
		why = tooSlow
	}
	e.count(why, took)
	return why, err
}

// fault says what was wrong with the way to an endpoint or with the form of its answer, and "" for an answer. It does not
// repeat the text of an error, in which an endpoint may say what it likes.
func fault(err error) string {
	var answer rpc.Error
	var status rpc.HTTPError
	var f *formFault
	var op *net.OpError
	var dns *net.DNSError
	var wrong *url.Error
	var netErr net.Error
	switch {
	case err == nil, errors.As(err, &answer), errors.Is(err, ethereum.NotFound):
		return ""
	case errors.As(err, &status):
		return "HTTP status " + strconv.Itoa(status.StatusCode)
	case errors.As(err, &f):
		return f.text
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return tooSlow
	case errors.As(err, &dns):
		return "the host name of the endpoint cannot be resolved"
	case errors.As(err, &op) && op.Op == "dial":
		return "the endpoint cannot be reached"
	case errors.As(err, &op), errors.As(err, &wrong), errors.As(err, &netErr), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, rpc.ErrClientQuit),
		err.Error() == "client reconnected": // the client of a chain in this process says so to all who wait
		return "the connection to the endpoint broke"
	case errors.Is(err, rpc.ErrNoResult), malformed(err):
		return "the endpoint returned an invalid JSON-RPC response"
	}
	return ""
}

// malformed says whether an error is one of decoding the result of an answer.
func malformed(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind) || strings.HasPrefix(err.Error(), "missing required field") ||
		strings.HasPrefix(err.Error(), "server returned")
}
