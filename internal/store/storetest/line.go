package storetest

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// Line passes connections on to PostgreSQL and can lose the answer to a commit.
type Line struct {
	Lose atomic.Bool // the answer to the next commit is lost and its connection cut; false again once that has happened
	Down atomic.Bool // no new connection is passed on; with Lose, all others are cut together with the one of the commit

	server string
	mu     sync.Mutex
	conns  []net.Conn
}

// NewLine returns a line to the database of cfg, and the configuration of a store at its other end. It is cut when the test ends.
func NewLine(t *testing.T, cfg store.Config) (*Line, store.Config) {
	t.Helper()
	dsn, err := url.Parse(cfg.Database)
	if err != nil {
		t.Fatal("the database URL is invalid")
	}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := &Line{server: dsn.Host}
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut()
	})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go l.pass(c)
		}
	}()
	dsn.Host = listener.Addr().String()
	cfg.Database = dsn.String()
	return l, cfg
}

// pass copies between a client and the server until one of them ends, or an answer is lost.
func (l *Line) pass(client net.Conn) {
	defer client.Close()
	if l.Down.Load() {
		return
	}
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	l.conns = append(l.conns, client)
	l.mu.Unlock()
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if bytes.Contains(buf[:n], []byte("COMMIT\x00")) && l.Lose.CompareAndSwap(true, false) {
			if l.Down.Load() {
				l.cut()
			}
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *Line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}
