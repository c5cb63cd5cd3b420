package paidmcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

// terminateTime is how long a process may take to end after its input was closed, and once more after it was told to.
const terminateTime = 5 * time.Second

// processTransport starts a process that speaks over its standard input and output, one message a line. It is ours because
// the one of the SDK ends the connection of all callers for one line that is too long or no message.
type processTransport struct {
	command *exec.Cmd
	log     *slog.Logger
	came    func(params json.RawMessage) // is called for each notification of progress
	broken  func()                       // is called when nothing more comes
}

// Connect implements [mcp.Transport].
func (t *processTransport) Connect(context.Context) (mcp.Connection, error) {
	in, err := t.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := t.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if t.command.WaitDelay == 0 {
		t.command.WaitDelay = terminateTime
	}
	if err := t.command.Start(); err != nil {
		return nil, err
	}
	c := &process{processTransport: t, in: in, lines: bufio.NewReaderSize(out, 64<<10)}
	c.end = sync.OnceValue(c.terminate)
	return c, nil
}

type process struct {
	*processTransport
	lines *bufio.Reader
	queue []json.RawMessage // of a batch, what was not returned yet
	end   func() error

	mu sync.Mutex // of writes
	in io.WriteCloser
}

// SessionID implements [mcp.Connection].
func (c *process) SessionID() string { return "" }

// Read implements [mcp.Connection]. It skips lines that are no messages, and returns an error for the call whose answer is too
// large. Only the end of the output, or of the process, ends it.
func (c *process) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if len(c.queue) == 0 {
			text, err := c.line()
			if err != nil {
				c.broken()
				return nil, err
			}
			if len(text) == 0 {
				continue
			}
			c.queue = []json.RawMessage{text}
			if text[0] == '[' && x402.Decode(text, &c.queue) != nil {
				c.queue = nil
			}
			if len(c.queue) == 0 {
				continue
			}
		}
		text := c.queue[0]
		c.queue = c.queue[1:]
		m, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			c.log.Debug("mcp: the server behind wrote a line that is no message", "begins", shown(string(text[:min(len(text), 100)])))
			continue
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			m.Result = exactResult(m.Result)
		case *jsonrpc.Request:
			if m.Method == methodProgress {
				c.came(m.Params)
			}
		}
		return m, nil
	}
}

// line reads one line, or what stands for one that is too long.
func (c *process) line() ([]byte, error) {
	var m capped
	for {
		part, err := c.lines.ReadSlice('\n')
		if _, err := m.Write(part); err != nil {
			return nil, err
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if m.over != nil {
			c.log.Warn("mcp: the server behind sent a message that is too large", "bytes", m.size)
		}
		return bytes.TrimSpace(m.message()), err
	}
}

// Write implements [mcp.Connection].
func (c *process) Write(_ context.Context, m jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.in.Write(append(text, '\n'))
	return err
}

// Close implements [mcp.Connection]. It ends the process, by force when it does not end by itself.
func (c *process) Close() error { return c.end() }

func (c *process) terminate() error {
	_ = c.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- c.command.Wait() }()
	for _, force := range []func() error{
		func() error { return c.command.Process.Signal(syscall.SIGTERM) },
		c.command.Process.Kill,
	} {
		select {
		case err := <-ended:
			return err
		case <-time.After(terminateTime):
			_ = force() // the process may have ended meanwhile
		}
	}
	return <-ended
}
