package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// finishTime limits the wait for responses after the end of input, because a canceled request may never get a response.
const finishTime = 30 * time.Second

// finishing is a transport that reports the end of input only after earlier requests are answered. Otherwise the SDK would
// cancel them, and a host may close its side as soon as it has sent everything.
type finishing struct{ mcp.Transport }

func (t finishing) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &finishingConn{Connection: conn, closed: make(chan struct{}), idle: make(chan struct{}, 1)}, nil
}

type finishingConn struct {
	mcp.Connection
	mu     sync.Mutex
	open   map[jsonrpc.ID]bool // unanswered requests
	idle   chan struct{}       // receives a value when open becomes empty
	once   sync.Once
	closed chan struct{}
}

func (c *finishingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && r.IsCall() {
		c.note(r.ID, true)
	}
	if !errors.Is(err, io.EOF) {
		return m, err
	}
	late := time.NewTimer(finishTime)
	defer late.Stop()
	for c.waits() {
		select {
		case <-late.C:
			return m, err
		case <-c.idle:
		case <-c.closed:
			return m, err
		case <-ctx.Done():
			return m, err
		}
	}
	return m, err
}

func (c *finishingConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if r, ok := m.(*jsonrpc.Response); ok {
		c.note(r.ID, false)
	}
	return err
}

// note adds a request to open, or removes it when it is answered.
func (c *finishingConn) note(id jsonrpc.ID, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open {
		if c.open == nil {
			c.open = map[jsonrpc.ID]bool{}
		}
		c.open[id] = true
		return
	}
	delete(c.open, id)
	if len(c.open) == 0 {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

func (c *finishingConn) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > 0
}

func (c *finishingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}
