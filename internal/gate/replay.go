package gate

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
)

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"

	maxKeyBytes  = 255                   // of an Idempotency-Key
	maxKept      = paid.DefaultMaxBuffer // bytes of the body of one kept response
	maxRecorded  = 32 << 20              // bytes of running streams that are recorded
	maxWaiting   = 16                    // requests of one access token that wait for the response of an equal one
	keptOverhead = 512                   // bytes that each kept response counts besides body and headers
)

// Responses under an Idempotency-Key, and responses whose caller has disconnected.
var (
	keyedBounds = bounds{life: 24 * time.Hour, entries: 1 << 15, entriesOfToken: 1000, bytes: 64 << 20, bytesOfToken: 16 << 20}
	leftBounds  = bounds{life: time.Minute, entries: 1 << 12, entriesOfToken: 16, bytes: 32 << 20, bytesOfToken: 16 << 20}
)

// Replays keeps responses of priced calls in memory, so that a repeated request gets the same response without another charge: under an
// Idempotency-Key for 24 hours, and otherwise, for one retry of an SDK, up to a minute after the caller disconnected. Only charged
// responses are kept, and 503 responses to a settlement with an unknown outcome. One value serves all handlers of a gate process.
type Replays struct {
	clock    func() time.Time
	recorded atomic.Int64 // bytes of running streams

	mu      sync.Mutex
	running map[digest]*flight // calls with an Idempotency-Key, by id
	keyed   *responses
	left    *responses
	waiting map[tokenKey]int
}

// NewReplays returns an empty value. clock is the time, nil for [time.Now].
func NewReplays(clock func() time.Time) *Replays {
	if clock == nil {
		clock = time.Now
	}
	return &Replays{
		clock: clock, running: map[digest]*flight{}, keyed: newResponses(keyedBounds), left: newResponses(leftBounds), waiting: map[tokenKey]int{},
	}
}

type digest [sha256.Size]byte

// digestOf hashes a list, so that different lists have different digests.
func digestOf(parts ...[]byte) (out digest) {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write(p)
	}
	h.Sum(out[:0])
	return out
}

// flight is a call whose response may be sent again.
type flight struct {
	request digest // of a keyed call
	token   tokenKey
	keyed   bool
	done    chan struct{} // closed by [Replays.end]

	// The lock of [Replays] guards these.
	id         digest // of access token and Idempotency-Key; without a key, of access token and request; zero: not known yet
	gone, over bool   // its caller has disconnected; the call has ended
	in         *responses
	since      time.Time
	size       int // bytes that the set counts for it
	order, own *list.Element

	// The goroutine of the call owns these until done is closed.
	source, whole bool // [stream] records the response; the response is complete
	dropped       bool // the response is too large
	charged       bool // or the outcome of the settlement is unknown
	status        int
	header        http.Header // nil: the response is not kept
	body          []byte
}

// keep adds a part of the response, unless that becomes larger than its bound.
func (f *flight) keep(p []byte) {
	if f.dropped = f.dropped || len(f.body)+len(p) > maxKept; f.dropped {
		f.body = nil
		return
	}
	f.body = append(f.body, p...)
}

// isWhole reports whether the complete response is kept.
func (f *flight) isWhole() bool { return f.header != nil && !f.dropped && f.whole }

// repeats reports whether a request may be a repetition of an earlier one.
func repeats(h http.Header) bool { return len(h.Values(headerKey)) > 0 || isRetry(h) }

// isRetry reports whether the SDK of the caller retries. The SDKs of OpenAI and Anthropic count their retries in this header.
func isRetry(h http.Header) bool {
	n, err := strconv.ParseUint(h.Get("X-Stainless-Retry-Count"), 10, 16)
	return err == nil && n > 0
}

// identify sets the key of a call and the digest of its request.
func (c *call) identify(r *http.Request, body []byte) error {
	c.identified = true
	if lines := c.sent.Values(headerKey); len(lines) > 0 {
		if c.key = lines[0]; len(lines) > 1 || c.key == "" || len(c.key) > maxKeyBytes || strings.ContainsFunc(c.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return toll.Errorf(toll.CodeBadRequest, "Idempotency-Key must be a single header of 1 to %d visible ASCII characters.", maxKeyBytes)
		}
	} else if c.model != nil && c.model.Stream {
		return nil
	}
	sum := sha256.Sum256(body)
	c.request = c.requestOf(r, sum[:])
	return nil
}

// requestOf returns the digest of a request whose body has this SHA-256.
func (c *call) requestOf(r *http.Request, body []byte) digest {
	parts := [][]byte{[]byte(r.Method), []byte(r.URL.EscapedPath()), []byte(r.URL.RawQuery), body}
	names := []string{"Accept", "Content-Type", "Range"}
	for _, q := range slices.Sorted(maps.Keys(c.route.meter)) {
		names = append(names, c.route.meter[q].RequestHeader)
	}
	if c.model != nil {
		names = slices.AppendSeq(names, maps.Keys(c.model.Header()))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		parts = append(parts, []byte(name), []byte(strings.Join(r.Header.Values(name), "\n")))
	}
	return digestOf(parts...)
}

// respond implements [paid.Replay]. The route has verified the access token before it calls the returned function.
func (r *Replays) respond(req *http.Request, token string) (func(w http.ResponseWriter) bool, error) {
	c := callOf(req.Context())
	if !c.identified && repeats(c.sent) { // the price does not depend on the request, so it was not read
		if err := c.route.intake.enter(c, req); err != nil {
			return nil, err
		}
		body, err := paid.ReadBody(req)
		if err == nil {
			err = c.identify(req, body)
		}
		if err != nil {
			return nil, err
		}
	}
	f := &flight{request: c.request, token: keyOf(token), keyed: c.key != "", done: make(chan struct{})}
	switch {
	case f.keyed:
		f.id = digestOf([]byte(token), []byte(c.key))
		if r.first(c, f) != nil {
			return func(w http.ResponseWriter) bool { return r.repeat(c, f, w) }, nil
		}
	case c.model != nil && c.model.Stream:
	case c.identified:
		c.flight, f.id = f, digestOf([]byte(token), c.request[:])
		if isRetry(c.sent) && r.canJoin(f) {
			return func(w http.ResponseWriter) bool { return r.join(c, f, w) }, nil
		}
	default:
		c.flight = f
		c.identifyLater = func(body []byte) digest {
			request := c.requestOf(req, body)
			return digestOf([]byte(token), request[:])
		}
	}
	if c.spare {
		return func(w http.ResponseWriter) bool { return proceed(c, w) }, nil
	}
	return nil, nil
}

// proceed lets a request continue as usual. It returns true after it wrote an error, if too many calls run with the access token.
func proceed(c *call, w http.ResponseWriter) bool {
	err := c.route.limits.admit(c)
	if err != nil {
		c.route.writeError(w, err)
	}
	return err != nil
}

// first returns the first call with the key of f. Without one, it makes f the first call, and returns nil.
func (r *Replays) first(c *call, f *flight) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.running[f.id]; first != nil {
		return first
	}
	if first := r.keyed.newest(f.id, r.clock()); first != nil {
		return first
	}
	r.running[f.id], c.flight = f, f
	return nil
}

// repeat responds to a request whose Idempotency-Key was used before. It waits for a running call.
func (r *Replays) repeat(c *call, f *flight, w http.ResponseWriter) bool {
	for {
		first := r.first(c, f)
		switch {
		case first == nil:
			return proceed(c, w) // the earlier call was free
		case first.request != f.request:
			e := toll.Errorf(toll.CodeIdempotencyMismatch, "This Idempotency-Key was already used for another request.")
			e.Status = http.StatusUnprocessableEntity
			c.route.writeError(w, e.WithHint("Use a new Idempotency-Key for another request."))
			return true
		case !r.wait(c, first):
			e := toll.NewError(toll.CodeIdempotencyRunning)
			e.RetryAfterSecs = 1
			c.route.writeError(w, e)
			return true
		case c.caller.Err() != nil:
			return true
		case first.charged:
			r.send(c, first, w)
			return true
		}
	}
}

// canJoin reports whether the caller of an equal call has disconnected.
func (r *Replays) canJoin(f *flight) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left.newest(f.id, r.clock()) != nil
}

// join responds to a retry with the response of the newest equal call whose caller has disconnected. Each call has one joiner, so that a
// caller never gets more responses than it paid for. If the joiner disconnects too, the next retry takes its place.
func (r *Replays) join(c *call, f *flight, w http.ResponseWriter) bool {
	r.mu.Lock()
	earlier := r.left.newest(f.id, r.clock())
	if earlier != nil {
		r.left.remove(earlier)
	}
	r.mu.Unlock()
	if earlier == nil {
		return proceed(c, w)
	}
	waited := r.wait(c, earlier)
	if waited && c.caller.Err() == nil {
		if !earlier.isWhole() {
			return proceed(c, w) // the call was free, or is a stream
		}
		r.send(c, earlier, w)
	}
	if !waited || c.caller.Err() != nil {
		r.mu.Lock()
		if !earlier.over || earlier.isWhole() {
			r.left.add(earlier, r.clock())
		}
		r.mu.Unlock()
	}
	return waited || proceed(c, w)
}

// wait waits until a call has ended, or the caller of c has disconnected. It returns false at once if too many requests wait.
func (r *Replays) wait(c *call, f *flight) bool {
	select {
	case <-f.done:
		return true
	default:
	}
	r.mu.Lock()
	if r.waiting[f.token] >= maxWaiting {
		r.mu.Unlock()
		return false
	}
	r.waiting[f.token]++
	r.mu.Unlock()
	select {
	case <-f.done:
	case <-c.caller.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[f.token]--; r.waiting[f.token] == 0 {
		delete(r.waiting, f.token)
	}
	return true
}

// send sends the kept response of a call that has ended.
func (r *Replays) send(c *call, f *flight, w http.ResponseWriter) {
	c.replayed = true
	h := w.Header()
	if !f.isWhole() {
		h.Set("X-Should-Retry", "false") // for SDKs that retry after 409
		c.route.writeError(w, toll.Errorf(toll.CodeExists, "This request was charged before, and its response is not kept.").
			WithHint("Use a new Idempotency-Key to run the request again for another charge."))
		return
	}
	maps.Copy(h, f.header.Clone())
	h.Set(headerReplayed, "true")
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body) // after a failed write, the caller has disconnected
}

// watch notes when the caller of a verified call disconnects. req is the request to the upstream.
func (r *Replays) watch(c *call, req *http.Request) {
	f := c.flight
	if f == nil || f.keyed {
		return
	}
	if c.identifyLater != nil {
		known := func(body []byte) {
			id := c.identifyLater(body)
			r.mu.Lock()
			defer r.mu.Unlock()
			if f.id = id; f.gone && !f.over {
				r.left.add(f, r.clock())
			}
		}
		if req.Body == nil || req.Body == http.NoBody {
			none := sha256.Sum256(nil)
			known(none[:])
		} else {
			req.Body = &hashed{ReadCloser: req.Body, hash: sha256.New(), known: known}
		}
	}
	c.unwatch = context.AfterFunc(c.caller, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if f.over || f.gone {
			return
		}
		if f.gone = true; f.id != (digest{}) {
			r.left.add(f, r.clock())
		}
	})
}

// hashed is the body of a request whose SHA-256 is known at its end.
type hashed struct {
	io.ReadCloser
	hash  hash.Hash
	known func(sum []byte)
}

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.hash.Write(p[:n])
	if err == io.EOF && h.known != nil {
		h.known(h.hash.Sum(nil))
		h.known = nil
	}
	return n, err
}

// streams notes that [stream] records the response of a call, with these headers. A stream without a key has no joiners.
func (r *Replays) streams(c *call, res *http.Response) {
	f := c.flight
	if f == nil {
		return
	}
	if f.source = true; !f.keyed {
		r.end(c)
		c.flight = nil
		return
	}
	// These are replaced when the stream begins, unless its caller disconnected before.
	f.status, f.header = res.StatusCode, http.Header{"Cache-Control": {"private"}}
	for _, name := range []string{"Content-Type", HeaderHeld} {
		f.header.Set(name, res.Header.Get(name))
	}
	seller.NoBuffering(f.header)
}

// record keeps a part of a response: without a key, only if the caller has disconnected.
func (r *Replays) record(c *call, p []byte) {
	f := c.flight
	if f == nil {
		return
	}
	before := len(f.body)
	f.dropped = f.dropped || !f.keyed && c.caller.Err() == nil
	f.dropped = f.dropped || r.recorded.Load() > maxRecorded
	f.keep(p)
	r.recorded.Add(int64(len(f.body) - before))
}

// end keeps the response of a call, or forgets the call.
func (r *Replays) end(c *call) {
	f := c.flight
	if f == nil {
		return
	}
	if c.unwatch != nil {
		c.unwatch()
	}
	r.recorded.Add(-int64(len(f.body)))
	if f.whole = f.source && f.whole || !f.source && c.returned; cap(f.body) > len(f.body)+len(f.body)/8 {
		f.body = bytes.Clone(f.body)
	}
	f.charged = c.receipt.Load() != nil || c.unsettled.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	f.over = true
	switch now := r.clock(); {
	case f.keyed:
		delete(r.running, f.id)
		if f.charged {
			if !f.isWhole() {
				f.header, f.body = nil, nil
			}
			r.keyed.add(f, now)
		}
	case !f.charged || !f.isWhole() || c.caller.Err() == nil:
		f.header, f.body = nil, nil
		r.left.remove(f)
	case f.in != nil:
		r.left.weigh(f)
	case !f.gone && f.id != (digest{}): // otherwise, a joiner holds it, or it has expired
		f.gone = true
		r.left.add(f, now)
	}
	close(f.done)
}

// bounds are the bounds of [responses].
type bounds struct {
	life                    time.Duration
	entries, entriesOfToken int
	bytes, bytesOfToken     int
}

// responses is a set of calls, each up to a time and together within bounds. Above a bound, it forgets the oldest calls.
type responses struct {
	bounds
	all    pile
	tokens map[tokenKey]*pile
	byID   map[digest][]*flight // oldest first
}

// pile is a list of calls, oldest first, and their bytes.
type pile struct {
	list.List
	bytes int
}

func newResponses(b bounds) *responses {
	return &responses{bounds: b, tokens: map[tokenKey]*pile{}, byID: map[digest][]*flight{}}
}

// newest returns the newest call with an id, or nil.
func (s *responses) newest(id digest, now time.Time) *flight {
	s.expire(now)
	if many := s.byID[id]; len(many) > 0 {
		return many[len(many)-1]
	}
	return nil
}

func (s *responses) expire(now time.Time) {
	for s.all.Len() > 0 {
		oldest := s.all.Front().Value.(*flight)
		if now.Sub(oldest.since) < s.life {
			return
		}
		s.remove(oldest)
	}
}

// add adds a call that is in no set.
func (s *responses) add(f *flight, now time.Time) {
	s.expire(now)
	own := s.tokens[f.token]
	if own == nil {
		own = &pile{}
		s.tokens[f.token] = own
	}
	f.in, f.since, f.size = s, now, 0
	f.order, f.own = s.all.PushBack(f), own.PushBack(f)
	s.byID[f.id] = append(s.byID[f.id], f)
	s.weigh(f)
}

// weigh counts the bytes of a call in the set again.
func (s *responses) weigh(f *flight) {
	size, own := keptOverhead, s.tokens[f.token]
	if f.over {
		size += len(f.body)
		for name, values := range f.header {
			size += len(name) + len(strings.Join(values, ""))
		}
	}
	s.all.bytes, own.bytes = s.all.bytes+size-f.size, own.bytes+size-f.size
	f.size = size
	for own.Len() > s.entriesOfToken || own.bytes > s.bytesOfToken {
		s.remove(own.Front().Value.(*flight))
	}
	for s.all.Len() > s.entries || s.all.bytes > s.bytes {
		s.remove(s.all.Front().Value.(*flight))
	}
}

// remove removes a call that is in the set.
func (s *responses) remove(f *flight) {
	if f.in != s {
		return
	}
	own := s.tokens[f.token]
	s.all.Remove(f.order)
	own.Remove(f.own)
	s.all.bytes, own.bytes = s.all.bytes-f.size, own.bytes-f.size
	if own.Len() == 0 {
		delete(s.tokens, f.token)
	}
	many := s.byID[f.id]
	if many = slices.DeleteFunc(many, func(o *flight) bool { return o == f }); len(many) == 0 {
		delete(s.byID, f.id)
	} else {
		s.byID[f.id] = many
	}
	f.in, f.order, f.own = nil, nil, nil
}

// upstreamKey replaces the Idempotency-Key of a request to the upstream. All buyers share the seller's account there, so a key that two
// buyers chose must not get one of them the response of the other.
func (c *call) upstreamKey(h http.Header) {
	had := len(h.Values(headerKey)) > 0
	h.Del(headerKey)
	if f := c.flight; had && f != nil && f.keyed {
		h.Set(headerKey, hex.EncodeToString(f.id[:16]))
	}
}
