package endpoints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/rpc"
)

// Read runs f with the best endpoint until it is answered: up to three attempts of 5 s each, then the next endpoint. An
// attempt that took all its time is not repeated on the same endpoint. f may run several times, so it must only read and
// must put its results where a later run replaces them.
//
// What f returns for an answer, nil and JSON-RPC errors included, is returned at once. It is [ErrNone] when no endpoint answered
// and the error of ctx when that ended.
func (p *Pool) Read(ctx context.Context, f func(ctx context.Context, c *Conn) error) error {
	why := "none was asked"
	for _, e := range p.order() {
		err, fault := e.read(ctx, f)
		if fault == "" {
			p.mu.Lock()
			p.current = e
			p.mu.Unlock()
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		why = e.conn.Name + ": " + fault
	}
	return fmt.Errorf("%w (%s)", ErrNone, why)
}

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
	slices.SortStableFunc(all, func(a, b *endpoint) int {
		if costs[a] == costs[b] && a != b {
			return cmp.Compare(rank(a == current), rank(b == current))
		}
		return cmp.Compare(costs[a], costs[b])
	})
	return all
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// read is [Pool.Read] on one endpoint. The second result says why it gave no answer, "" when it gave one.
func (e *endpoint) read(ctx context.Context, f func(ctx context.Context, c *Conn) error) (error, string) {
	if why := e.ready(ctx); why != "" {
		return nil, why
	}
	for n := 0; ; n++ {
		err, why := e.attempt(ctx, f)
		switch {
		case why == "" || ctx.Err() != nil || n+1 >= e.pool.cfg.Tries || why == tooSlow || e.resting():
			return err, why
		}
		pause := time.Duration(n+1) * (50*time.Millisecond + rand.N(100*time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err(), why
		}
	}
}

const tooSlow = "it does not answer in time"

// attempt runs f once. The second result says what was wrong with the endpoint, "" when it answered.
func (e *endpoint) attempt(ctx context.Context, f func(ctx context.Context, c *Conn) error) (error, string) {
	try, cancel := context.WithTimeout(ctx, e.pool.cfg.Timeout)
	defer cancel()
	began := e.pool.cfg.Clock()
	err := f(try, e.conn)
	took := e.pool.cfg.Clock().Sub(began)
	why := fault(err)
	switch {
	case why == "":
	case ctx.Err() != nil:
		return ctx.Err(), why
	case try.Err() != nil:
		why = tooSlow
	}
	e.count(why, took)
	return err, why
}

// fault says what was wrong with the way to an endpoint or with the form of its answer, and "" for an answer. It never
// repeats the text of an error, which may hold the URL or what the endpoint says about it.
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
		return "its name cannot be resolved"
	case errors.As(err, &op) && op.Op == "dial":
		return "it cannot be reached"
	case errors.As(err, &op), errors.As(err, &wrong), errors.As(err, &netErr), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, rpc.ErrClientQuit):
		return "the connection broke"
	case errors.Is(err, rpc.ErrNoResult), malformed(err):
		return "it does not answer in the form of the protocol"
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
