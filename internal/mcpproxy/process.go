package mcpproxy

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

	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// terminateTime is the time for a process to exit after its input was closed, and again after SIGTERM. Then it is killed.
const terminateTime = 5 * time.Second

// processTransport starts a process that speaks over standard input and output, one message per line. It filters the input of the
// SDK transport, which would end the connection for a line that is too long or malformed.
type processTransport struct {
	command *exec.Cmd
	log     *slog.Logger
	came    func(params json.RawMessage) // called for each progress notification
	broken  func()                       // called when the output has ended or failed
}

// Connect implements [mcp.Transport].
func (t *processTransport) Connect(ctx context.Context) (mcp.Connection, error) {
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
	p := &process{processTransport: t, WriteCloser: in, lines: bufio.NewReaderSize(out, 64<<10)}
	p.end = sync.OnceValue(p.terminate)
	pipe := &mcp.IOTransport{Reader: io.NopCloser(&pieces{next: p.messages}), Writer: p, MaxLineLength: -1}
	return pipe.Connect(ctx)
}

// process is a running process. It writes to the standard input, and its Close ends the process.
type process struct {
	*processTransport
	io.WriteCloser
	lines *bufio.Reader
	end   func() error
}

// messages returns the valid messages of the next line, each with a newline. A response that is too large becomes an error.
func (p *process) messages() (out []byte, err error) {
	text, err := p.line()
	if err != nil {
		p.broken()
		return nil, err
	}
	batch := []json.RawMessage{text}
	if len(text) == 0 || text[0] == '[' && x402.Decode(text, &batch) != nil {
		return nil, nil
	}
	for _, one := range batch {
		if _, err := jsonrpc.DecodeMessage(one); err != nil {
			p.log.Debug("mcp: the upstream server wrote an invalid message", "begins", plain.Text(string(one), 100))
			continue
		}
		if exact := exactMessage(one, p.came); exact != nil {
			one = exact
		}
		out = append(append(out, one...), '\n')
	}
	return out, nil
}

// line returns the next line without surrounding space, or the replacement if it is too long (see [capped]).
func (p *process) line() ([]byte, error) {
	var m capped
	for {
		part, err := p.lines.ReadSlice('\n')
		if _, err := m.Write(part); err != nil {
			return nil, err
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if m.over != nil {
			p.log.Warn("mcp: the upstream server sent a message that is too large", "bytes", m.size)
		}
		return bytes.TrimSpace(m.message()), err
	}
}

// Close ends the process, by force after twice [terminateTime].
func (p *process) Close() error { return p.end() }

func (p *process) terminate() error {
	_ = p.WriteCloser.Close()
	// The process may end at any step, so these errors do not matter.
	asked := time.AfterFunc(terminateTime, func() { _ = p.command.Process.Signal(syscall.SIGTERM) })
	defer asked.Stop()
	forced := time.AfterFunc(2*terminateTime, func() { _ = p.command.Process.Kill() })
	defer forced.Stop()
	return p.command.Wait()
}
