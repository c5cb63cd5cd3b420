package seller

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"
)

// PulseEvery is the time between two comments in an event stream. Proxies close idle connections, many of them after a minute.
const PulseEvery = 15 * time.Second

// PulseComment is the comment that keeps an event stream alive. Readers of event streams ignore comments.
const PulseComment = ": \n\n"

// NoBuffering makes proxies such as nginx forward each event immediately.
func NoBuffering(h http.Header) { h.Set("X-Accel-Buffering", "no") }

// IsEvents reports whether a response is an event stream.
func IsEvents(h http.Header) bool { return mediaType(h) == "text/event-stream" }

// IsStream reports whether a response is sent as it arrives: an event stream, or JSON values on lines.
func IsStream(h http.Header) bool {
	kind := mediaType(h)
	return kind == "text/event-stream" || kind == "application/x-ndjson" || kind == "application/ndjson"
}

func mediaType(h http.Header) string {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// Pulsing returns a handler that serves h and inserts comments between the events of its event streams to keep them alive.
func Pulsing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pulse{ResponseWriter: w}
		defer p.stop()
		h.ServeHTTP(p, r)
	})
}

// pulse is a writer that adds comments to event streams.
type pulse struct {
	http.ResponseWriter
	mu     sync.Mutex
	begun  bool
	within bool // the last write did not end an event
	timer  *time.Timer
	ended  bool
}

func (p *pulse) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (p *pulse) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin(status)
}

func (p *pulse) begin(status int) {
	if !p.begun && status >= 200 {
		p.begun = true
		if IsEvents(p.Header()) {
			NoBuffering(p.Header())
			p.timer = time.AfterFunc(PulseEvery, p.beat)
		}
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (p *pulse) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		p.begin(http.StatusOK)
	}
	if len(b) > 0 {
		p.within = !bytes.HasSuffix(b, []byte("\n\n"))
	}
	return p.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
func (p *pulse) Flush() { _ = p.FlushError() }

// FlushError implements flushing for [http.ResponseController].
func (p *pulse) FlushError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		p.begin(http.StatusOK)
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if !p.within {
		if _, err := p.ResponseWriter.Write([]byte(PulseComment)); err != nil {
			return
		}
		_ = http.NewResponseController(p.ResponseWriter).Flush()
	}
	p.timer.Reset(PulseEvery)
}

func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
