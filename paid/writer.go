package paid

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll/internal/seller"
)

// Errors of the ResponseWriter of a handler.
var (
	// ErrHoldEnded means that the response was cut because its hold ended.
	ErrHoldEnded = seller.ErrHoldEnded
	// ErrTooLarge means that the response exceeds MaxBuffer and may not stream.
	ErrTooLarge = errors.New("paid: the response is larger than MaxBuffer and cannot be streamed")

	errEnded = errors.New("paid: the request has ended")
)

// writer is the ResponseWriter of a paid handler. It buffers the response until it is settled, or streams it. It deliberately
// lacks Unwrap, Hijack, and ReadFrom, which would bypass the buffer.
type writer struct {
	w      http.ResponseWriter // used only by a stream, or to send the settled response
	rc     *http.ResponseController
	max    int64
	stream bool // the route may stream
	early  bool // a stream is settled before its first byte, or released if it costs nothing
	only   bool // only responses with [seller.IsStream] may stream on a flush
	head   bool
	// begin is called before the first byte of a stream, and mark then adds to its headers. An error of begin stops the stream.
	begin func() error
	mark  func(http.Header)
	begun atomic.Bool // the handler streams, so a disconnect ends its work
	cut   atomic.Bool // the hold has ended, so nothing more may be written

	mu        sync.Mutex
	header    http.Header // headers of the handler
	sent      http.Header // their copy from when the status was written
	status    int
	events    bool  // the answer is an event stream
	live      bool  // each write is sent immediately
	declared  int64 // Content-Length that the handler set, or -1
	buf       bytes.Buffer
	size      int64 // bytes that the handler wrote
	streaming bool
	delivered int64  // body bytes of a stream that the server accepted
	tail      []byte // the last 3 delivered bytes
	pulse     *time.Timer
	err       error // returned by later writes
	left      bool  // a stream did not begin because its caller had disconnected
	spoke     bool  // the handler has set the status or written
	closed    bool
}

// Header implements [http.ResponseWriter].
func (a *writer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements [http.ResponseWriter]. It ignores 1xx statuses except 101, since they would send headers unpaid.
func (a *writer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeHeader(status)
}

func (a *writer) writeHeader(status int) {
	if status < 100 || status > 999 {
		panic("paid: invalid status " + strconv.Itoa(status))
	}
	if a.closed || a.status != 0 || (status < 200 && status != http.StatusSwitchingProtocols) {
		return
	}
	a.status, a.spoke = status, true
	a.sent = a.Header().Clone()
	a.events = seller.IsEvents(a.sent)
	a.live = a.events || a.only && seller.IsStream(a.sent)
	if v := a.sent.Get("Content-Length"); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
			a.declared = n
		} else {
			a.sent.Del("Content-Length")
		}
	}
}

// Write implements [http.ResponseWriter].
func (a *writer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, errEnded
	}
	if a.err != nil {
		return 0, a.err
	}
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if !bodyAllowed(a.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if a.declared >= 0 && !a.head && a.size+int64(len(p)) > a.declared {
		return 0, http.ErrContentLength
	}
	if !a.streaming && ((a.stream && a.live && (len(p) > 0 || !a.isBare())) || int64(a.buf.Len()+len(p)) > a.max) {
		if err := a.startStream(); err != nil {
			if a.left {
				a.size += int64(len(p)) // it counts for the price
			}
			return 0, err
		}
	}
	a.size += int64(len(p))
	if !a.streaming {
		return a.buf.Write(p)
	}
	n, err := a.pass(p)
	if err == nil && a.live {
		err = a.flush()
	}
	return n, err
}

// Flush implements [http.Flusher].
func (a *writer) Flush() { _ = a.FlushError() }

// FlushError implements flushing for [http.ResponseController]. It does nothing on a route that cannot stream.
func (a *writer) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errEnded
	}
	if a.err != nil {
		return a.err
	}
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if a.streaming {
		return a.flush()
	}
	if !a.stream || (a.only && !a.live) {
		return nil
	}
	if a.isBare() {
		a.begun.Store(true)
		return nil
	}
	if err := a.startStream(); err != nil {
		return err
	}
	return a.flush()
}

// SetReadDeadline supports [http.ResponseController].
func (a *writer) SetReadDeadline(t time.Time) error { return a.rc.SetReadDeadline(t) }

// EnableFullDuplex supports [http.ResponseController].
func (a *writer) EnableFullDuplex() error { return a.rc.EnableFullDuplex() }

// isBare reports whether a response that is settled before it streams has only headers so far, so it is not settled yet.
func (a *writer) isBare() bool { return a.early && a.size == 0 && success(a.status) }

// startStream sends the buffer. Later writes are sent immediately. It fails with [ErrTooLarge] if the response cannot stream.
func (a *writer) startStream() error {
	if !a.stream || !bodyAllowed(a.status) {
		a.err = ErrTooLarge
		return a.err
	}
	if err := a.begin(); err != nil {
		a.err = err
		return err
	}
	a.streaming = true
	putHeader(a.w.Header(), a.sent)
	a.mark(a.w.Header())
	if a.live {
		seller.NoBuffering(a.w.Header())
	}
	if a.events {
		a.pulse = time.AfterFunc(seller.PulseEvery, a.beat)
	}
	a.w.WriteHeader(a.status)
	if a.buf.Len() > 0 {
		p := a.buf.Bytes()
		_, err := a.pass(p)
		a.buf = bytes.Buffer{}
		if err != nil {
			return err
		}
	}
	return nil
}

// beat sends a comment to keep an event stream alive, if it is between two events. The comment does not count as delivered.
func (a *writer) beat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.cut.Load() {
		return
	}
	if a.isBetween() {
		if _, err := io.WriteString(a.w, seller.PulseComment); err != nil {
			a.fail(err)
			return
		}
		_ = a.flush()
	}
	a.pulse.Reset(seller.PulseEvery)
}

func (a *writer) pass(p []byte) (int, error) {
	if a.cut.Load() {
		a.err = ErrHoldEnded
		return 0, a.err
	}
	n, err := a.w.Write(p)
	a.delivered += int64(n)
	a.tail = append(a.tail, p[max(n-3, 0):n]...)
	a.tail = a.tail[max(len(a.tail)-3, 0):]
	if err != nil {
		a.fail(err)
		return n, a.err
	}
	return n, nil
}

func (a *writer) flush() error {
	if a.cut.Load() {
		a.err = ErrHoldEnded
		return a.err
	}
	if err := a.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		a.fail(err)
		return a.err
	}
	return nil
}

const cutPatience = time.Second // bounds a write in progress after the end of the hold

// endOfHold is the last event of an event stream that was cut.
const endOfHold = "event: error\ndata: {\"message\":\"The hold for this stream has expired.\"}\n\n"

// cutOff ends a stream whose hold ended. An event stream gets an error event.
func (a *writer) cutOff(cancel func()) {
	locked := a.mu.TryLock() // without a write in progress, this keeps later writes behind the event
	a.cut.Store(true)
	cancel() // before a write can fail, because net/http then cancels the context without a cause
	for end := time.Now().Add(cutPatience); !locked && !a.mu.TryLock(); time.Sleep(cutPatience / 20) {
		if time.Now().After(end) {
			_ = a.rc.SetWriteDeadline(time.Unix(1, 0)) // wakes a write that a slow reader blocks
			return
		}
	}
	defer a.mu.Unlock()
	_ = a.rc.SetWriteDeadline(time.Now().Add(cutPatience))
	if a.isBetween() {
		_, _ = io.WriteString(a.w, endOfHold)
		_ = a.rc.Flush()
	}
}

// isBetween reports whether an event stream is between two events, so that an inserted line does not change an event.
func (a *writer) isBetween() bool {
	return a.events && a.streaming && (a.err == nil || a.err == ErrHoldEnded) && !a.closed && a.declared < 0 && a.sent.Get("Content-Encoding") == "" &&
		(bytes.HasSuffix(a.tail, []byte("\n\n")) || bytes.HasSuffix(a.tail, []byte("\n\r\n")))
}

func (a *writer) fail(err error) {
	if a.err = err; a.cut.Load() {
		a.err = ErrHoldEnded
	}
}

// close ends the writer: later writes, such as from a goroutine of the handler, fail.
func (a *writer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
		a.spoke = false
	}
	a.closed = true
	if a.pulse != nil {
		a.pulse.Stop()
	}
}

// broken reports whether the server could not send the response as the handler wrote it.
func (a *writer) broken() bool {
	return a.err != nil || (a.declared >= 0 && a.size != a.declared && !a.head && bodyAllowed(a.status))
}

// commit sends a buffered response with these extra headers.
func (a *writer) commit(extra func(http.Header)) {
	h := a.w.Header()
	putHeader(h, a.sent)
	trailers := a.trailers()
	switch {
	case !bodyAllowed(a.status):
		h.Del("Content-Length")
	case a.head:
		if a.declared < 0 && a.buf.Len() > 0 {
			h.Set("Content-Length", strconv.Itoa(a.buf.Len()))
		}
	case len(trailers) > 0:
		h.Del("Content-Length")
	default:
		h.Set("Content-Length", strconv.Itoa(a.buf.Len()))
	}
	extra(h)
	a.w.WriteHeader(a.status)
	if bodyAllowed(a.status) && a.buf.Len() > 0 {
		_, _ = a.w.Write(a.buf.Bytes()) // a disconnected client finds its receipt under the request id
	}
	a.putTrailers(trailers)
}

// trailers returns the trailers of the handler, with the names that the server expects.
func (a *writer) trailers() http.Header {
	t := http.Header{}
	for _, v := range a.sent.Values("Trailer") {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := a.header[name]; ok {
				t[name] = values
			}
		}
	}
	for name, values := range a.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			t[name] = values
		}
	}
	stripAnswer(t)
	return t
}

func (a *writer) putTrailers(t http.Header) {
	h := a.w.Header()
	maps.Copy(h, t)
}

// putHeader replaces the headers in to with the handler's headers, without payment headers and trailers, for private caches only.
func putHeader(to, from http.Header) {
	clear(to)
	for name, values := range from {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			to[name] = values
		}
	}
	stripAnswer(to)
	keepPrivate(to)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func success(status int) bool { return status >= 200 && status <= 299 }
