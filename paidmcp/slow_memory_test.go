package paidmcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// served serves a managed server on a port of its own, as its own program would.
func served(t *testing.T, h *hosted) (address string) {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.server.Serve(ctx, ln)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return ln.Addr().String()
}

// heap returns the bytes of live objects.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// grown sends so many requests, each on a connection of its own whose reader takes 128 KiB a second, which is above the minimum
// rate. Once all answers have begun, if there are any, it returns by how much the heap has grown, as soon as that is within the
// bound, or after ten seconds.
func grown(t *testing.T, address string, n int, request string, answered bool, bound int64) (bytes int64) {
	t.Helper()
	var made sync.WaitGroup
	before := heap()
	var sent sync.WaitGroup
	for range n {
		c := must.Get(net.Dial("tcp", address))(t)
		must.Do(t, c.(*net.TCPConn).SetReadBuffer(64<<10))
		t.Cleanup(func() { _ = c.Close() })
		sent.Go(func() {
			_ = c.SetWriteDeadline(time.Now().Add(long))
			_, _ = io.WriteString(c, request) // may be refused
		})
		begun := sync.OnceFunc(made.Done)
		made.Add(1)
		go func() {
			for err := error(nil); err == nil; time.Sleep(100 * time.Millisecond) {
				_, err = c.Read(make([]byte, 13<<10))
				begun()
			}
		}()
	}
	sent.Wait()
	if answered {
		made.Wait()
	} else {
		time.Sleep(2 * time.Second)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if bytes = heap() - before; bytes <= bound || time.Now().After(end) {
			return bytes
		}
	}
}

// TestSilentBodiesInMemory: callers who send a body but for its end do not fill the memory, and small calls pass beside them.
// T173
func TestSilentBodiesInMemory(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{})
	address := served(t, h)
	request := "POST /mcp HTTP/1.1\r\nHost: " + address + "\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n{" + strings.Repeat(" ", 1<<20-2)
	n := grown(t, address, 300, request, false, 100<<20)
	t.Logf("300 silent bodies hold %d MiB", n>>20)
	if n > 100<<20 {
		t.Error("that is too much")
	}
	h.url = "http://" + address
	if got := h.post(call(1, "echo", "x", "")).text(t); !strings.HasPrefix(got, "x") {
		t.Errorf("%q", got)
	}
}

// TestSlowReadersInMemory: callers who do not read large answers do not fill the memory.
// T173
func TestSlowReadersInMemory(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{})
	h.mcp.AddTool(&mcp.Tool{Name: "large", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("a", 15<<20)}}}, nil
	})
	address := served(t, h)
	body := call(1, "large", "", "")
	request := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", address, len(body), body)
	const bound = 200 << 20 // 128 MiB, and some that just came
	n := grown(t, address, 30, request, true, bound)
	t.Logf("30 slow readers hold %d MiB", n>>20)
	if n > bound {
		t.Error("that is too much")
	}
}
