package api

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
)

// Listen returns a listener whose connections let through only messages that can be read in one way. net/http follows
// the standard where that lets a server choose (two equal lengths, a length beside chunks, folded lines, bare line
// feeds), but a proxy in front may have chosen otherwise, and then the two disagree where a request ends.
//
// A message that is refused reaches the handler of [New] as a request that it answers as an error, so that it has the
// headers and the shape of every answer; the connection ends after it.
func Listen(l net.Listener) net.Listener { return guardedListener{l} }

type guardedListener struct{ net.Listener }

func (l guardedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guardedConn{Conn: c}, nil
}

// Request targets that stand for a refused message. A caller that sends one gets what it asks for.
const (
	refusedAmbiguous = "/%00refused/400"
	refusedHeaders   = "/%00refused/431"
)

func refusal(target string) *toll.Error {
	switch target {
	case refusedAmbiguous:
		return toll.Errorf(toll.CodeBadRequest, "The request is ambiguous: its headers can be read in more than one way.").
			WithHint("Send a single Content-Length or Transfer-Encoding: chunked, and each header on one line that ends with CR LF.")
	case refusedHeaders:
		return toll.NewError(toll.CodeHeadersTooLarge)
	}
	return nil
}

// maxHeldBytes bounds what is held back of a head that is not complete.
const maxHeldBytes = 64 << 10

// guardedConn follows the messages of a connection: it looks at every head before net/http gets its last byte, and
// counts the bytes of bodies. After a chunked request it looks no more, because the handler closes the connection then.
type guardedConn struct {
	net.Conn
	held    []byte      // read, not yet given: an incomplete head, or the replacement of a refused message
	ready   int         // bytes of held that may be given
	body    int64       // bytes until the next head
	opaque  bool        // everything passes
	refused atomic.Bool // nothing passes after held
}

func (g *guardedConn) Read(p []byte) (int, error) {
	if g.ready > 0 {
		n := copy(p, g.held[:g.ready])
		g.ready -= n
		if g.held = g.held[n:]; len(g.held) == 0 {
			g.held = nil
		}
		return n, nil
	}
	if g.refused.Load() || len(p) == 0 {
		return 0, g.ended()
	}
	if g.opaque {
		return g.Conn.Read(p)
	}
	if g.body > 0 || len(g.held) == 0 && len(p) >= 1024 {
		n, err := g.Conn.Read(p)
		if n > 0 {
			n = g.pass(p[:n])
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	// net/http asks for a single byte while a handler runs; or a head has begun and is not complete.
	for g.ready == 0 && !g.refused.Load() && !g.opaque {
		var err error
		var n int
		if len(g.held) == 0 {
			n, err = g.Conn.Read(p)
			g.held = append(g.held, p[:n]...)
		} else {
			g.held = slices.Grow(g.held, 2048)
			n, err = g.Conn.Read(g.held[len(g.held):cap(g.held)])
			g.held = g.held[:len(g.held)+n]
		}
		if n > 0 {
			g.hold()
		}
		if err != nil && g.ready == 0 {
			return 0, err
		}
	}
	return g.Read(p)
}

func (g *guardedConn) ended() error {
	if g.refused.Load() {
		return io.EOF
	}
	return nil
}

// pass returns how many of the bytes may be given as they are. The rest is held: the beginning of a head, or the replacement of a message.
func (g *guardedConn) pass(b []byte) int {
	at := 0
	for at < len(b) {
		if g.body > 0 {
			n := min(g.body, int64(len(b)-at))
			g.body -= n
			at += int(n)
			continue
		}
		size, verdict := inspect(b[at:])
		switch {
		case verdict.target != "":
			g.refuse(verdict.target)
			return at
		case size == 0:
			g.held = append(g.held, b[at:]...)
			return at
		}
		at += size
		g.body = verdict.length
		if verdict.chunked {
			g.opaque = true
			return len(b)
		}
	}
	return at
}

// hold looks again at what is held.
func (g *guardedConn) hold() {
	held := g.held
	g.held = nil
	n := g.pass(held)
	if n > 0 {
		rest := g.held
		g.held = append(held[:n:n], rest...)
		g.ready = n
		if g.refused.Load() {
			g.ready = len(g.held)
		}
		return
	}
	if len(g.held) > maxHeldBytes && !g.refused.Load() {
		g.held = nil
		g.refuse(refusedHeaders)
	}
}

// refuse makes the error request the last one of the connection.
func (g *guardedConn) refuse(target string) {
	g.refused.Store(true)
	g.held = append(g.held, "GET "+target+" HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"...)
	g.ready = len(g.held)
}

// Close implements net.Conn. What a refused caller has still sent is read away for a moment, as closing over unread bytes
// resets the connection and takes the answer with it.
func (g *guardedConn) Close() error {
	if g.refused.Load() {
		if g.CloseWrite() == nil {
			_ = g.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			_, _ = io.CopyN(io.Discard, g.Conn, 4<<20)
		}
	}
	return g.Conn.Close()
}

// CloseWrite lets net/http end its side first, as it does on plain TCP.
func (g *guardedConn) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return net.ErrClosed
}

type framing struct {
	length  int64
	chunked bool
	target  string // not empty: refused
}

func inspect(b []byte) (size int, f framing) {
	ambiguous := framing{target: refusedAmbiguous}
	lengths, encodings, old := 0, 0, false
	for line := 0; ; line++ {
		end := bytes.IndexByte(b[size:], '\n')
		if end < 0 {
			return 0, framing{}
		}
		text := b[size : size+end]
		size += end + 1
		if len(text) == 0 || text[len(text)-1] != '\r' {
			return size, ambiguous
		}
		text = text[:len(text)-1]
		if len(text) == 0 {
			break
		}
		if line == 0 {
			old = bytes.HasSuffix(text, []byte("HTTP/1.0"))
			continue
		}
		if text[0] == ' ' || text[0] == '\t' {
			return size, ambiguous
		}
		name, value, ok := bytes.Cut(text, []byte(":"))
		if !ok || len(name) == 0 || name[len(name)-1] == ' ' || name[len(name)-1] == '\t' {
			return size, ambiguous
		}
		switch {
		case len(name) == len("Content-Length") && strings.EqualFold(string(name), "Content-Length"):
			lengths++
			if f.length, ok = contentLength(value); !ok {
				return size, ambiguous
			}
		case len(name) == len("Transfer-Encoding") && strings.EqualFold(string(name), "Transfer-Encoding"):
			encodings++
			if f.chunked = strings.EqualFold(string(bytes.TrimSpace(value)), "chunked"); !f.chunked {
				return size, ambiguous
			}
		}
	}
	if lengths+encodings > 1 || f.chunked && old {
		return size, ambiguous
	}
	return size, f
}

func contentLength(value []byte) (int64, bool) {
	text := string(bytes.Trim(value, " \t"))
	if text == "" || strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }) >= 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// closeAfter says that nothing after this request is read: its end is known to net/http alone.
func closeAfter(r *http.Request) bool { return len(r.TransferEncoding) > 0 }
