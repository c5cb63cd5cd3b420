package x402

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tollhq/toll"
)

// Bounds of the cache of [Bodies], in bytes as counted by [costOf].
const (
	maxKnownBytes  = 8 << 10  // of one PaymentRequired, as sent
	maxSenderBytes = 64 << 10 // of one sender
	maxShardBytes  = 2 << 20  // of a shard, 32 MiB for all shards
	bodyShards     = 16
)

// Bodies decodes bodies of verify and settle as [Decode] does, and caches decoded PaymentRequired by their exact bytes, because
// a server sends the same few with every call. An entry depends only on its bytes, so it is never stale. Each sender has its
// own share, and can evict only its own entries. Use [NewBodies]; safe for concurrent use.
type Bodies struct {
	seed   maphash.Seed
	shards [bodyShards]bodyShard
}

type bodyShard struct {
	mu      sync.RWMutex
	senders map[toll.Address]*knownBodies
	bytes   int
}

// knownBodies caches the PaymentRequired of one sender by their bytes.
type knownBodies struct {
	of    map[string]*knownBody
	last  atomic.Pointer[knownBody] // found last, tried first
	bytes int
}

// knownBody is immutable.
type knownBody struct {
	raw string
	is  PaymentRequired
}

// NewBodies returns a decoder with an empty cache.
func NewBodies() *Bodies {
	b := &Bodies{seed: maphash.MakeSeed()}
	for i := range b.shards {
		b.shards[i].senders = map[toll.Address]*knownBodies{}
	}
	return b
}

// Names of members, in the order of the encoder and of the pointers in Decode.
var (
	verifyBodyMembers = []string{"paymentRequired", "x402AccessToken", "maxAmount", "hold", "holdSecs", "agentRequestId"}
	settleBodyMembers = []string{"paymentRequired", "x402AccessToken", "maxAmount", "agentRequestId", "batch", "labels"}
	labelMembers      = []string{"upstream", "route", "model"}
)

// Decode is like [Decode] for a body of this sender, a *VerifyRequest or *SettleRequest. PaymentRequired is shared with
// other calls: callers must not modify it. The strict decoder handles unusual bodies and faults.
func (b *Bodies) Decode(sender toll.Address, data []byte, v any) error {
	shard := &b.shards[maphash.Bytes(b.seed, sender[:])%bodyShards]
	switch r := v.(type) {
	case *VerifyRequest:
		var in verifyBody
		if required := shard.of(sender, &in.paymentBody, &r.PaymentRequired); readBody(
			data, verifyBodyMembers, required, &in.AccessToken, &in.MaxAmount, &in.Hold, &in.HoldSecs, &in.AgentRequestID,
		) && r.take(&in) == nil {
			return nil
		}
		*r = VerifyRequest{}
	case *SettleRequest:
		var in settleBody
		if required := shard.of(sender, &in.paymentBody, &r.PaymentRequired); readBody(
			data, settleBodyMembers, required, &in.AccessToken, &in.MaxAmount, &in.AgentRequestID, &in.Batch, &in.Labels,
		) && r.take(&in) == nil {
			return nil
		}
		*r = SettleRequest{}
	}
	return Decode(data, v)
}

func (s *bodyShard) of(sender toll.Address, in *paymentBody, into *PaymentRequired) *knownRequired {
	in.PaymentRequired.into = into
	return &knownRequired{&in.PaymentRequired, s, sender}
}

// readBody parses a body and reports whether it could. Otherwise into is undefined.
func readBody(data []byte, names []string, into ...any) bool {
	if len(data) > maxPlain || checkDepth(data) != nil {
		return false
	}
	r := plainReader{rest: string(data)}
	r.object(names, into...)
	return !r.bad && r.rest == ""
}

// knownRequired is the PaymentRequired of the current body.
type knownRequired struct {
	*requiredField
	shard  *bodyShard
	sender toll.Address
}

// read skips a PaymentRequired, and takes it from the cache or decodes it.
func (k *knownRequired) read(r *plainReader) bool {
	if r.bad {
		return false
	}
	k.shard.mu.RLock()
	own := k.shard.senders[k.sender]
	k.shard.mu.RUnlock()
	// Try the last value first. A complete object or string is never a prefix of a longer one.
	if own != nil {
		if last := own.last.Load(); r.word(last.raw) {
			*k.into, k.set = last.is, true
			return true
		}
	}
	raw := r.whole()
	if raw == "" {
		return false
	}
	if known := k.shard.find(own, raw); known != nil {
		*k.into, k.set = known.is, true
		return true
	}
	text := []byte(raw)
	if decode(text, k.requiredField) != nil {
		return false
	}
	if cost := costOf(raw, k.into); len(raw) <= maxKnownBytes && cost <= maxSenderBytes {
		k.shard.put(k.sender, &knownBody{string(text), *k.into}, cost) // a copy, as raw is a part of the body
	}
	return k.set
}

func (s *bodyShard) find(own *knownBodies, raw string) *knownBody {
	if own == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	known := own.of[raw]
	if known != nil {
		own.last.Store(known)
	}
	return known
}

// whole skips an object or a string, and checks only where it ends; "" for anything else.
func (r *plainReader) whole() string {
	from, depth := r.rest, 0
	for at := 0; at < len(from); at++ {
		switch from[at] {
		case '"':
			if at = endOfString(from, at+1); at < 0 {
				return ""
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth == 0 {
				return ""
			}
			continue
		}
		if depth <= 0 {
			r.rest = from[at+1:]
			return from[:at+1]
		}
	}
	return ""
}

// endOfString returns the position of the closing quote, -1 without one.
func endOfString(s string, at int) int {
	end := strings.IndexByte(s[at:], '"')
	switch {
	case end < 0:
		return -1
	case strings.IndexByte(s[at:at+end], '\\') < 0: // most strings; a search is much faster than a look at each byte
		return at + end
	}
	for ; at < len(s); at++ {
		switch s[at] {
		case '"':
			return at
		case '\\':
			at++
		}
	}
	return -1
}

// costOf estimates the memory of a cached PaymentRequired: its bytes twice, as sent and as decoded, and its structs, so that
// many empty entries are not cheap.
func costOf(raw string, p *PaymentRequired) int {
	const entry, extension, around = int(unsafe.Sizeof(Requirements{})), 64, int(unsafe.Sizeof(PaymentRequired{})) + 128
	return 2*len(raw) + cap(p.Accepts)*entry + len(p.Extensions)*extension + around
}

// put adds an entry. It clears a sender whose share is full, and evicts other senders from a full shard.
func (s *bodyShard) put(sender toll.Address, b *knownBody, cost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.senders[sender]
	if own != nil && own.of[b.raw] != nil {
		return // another call was first
	}
	if own != nil && own.bytes+cost > maxSenderBytes {
		s.drop(sender)
		own = nil
	}
	for other := range s.senders {
		if s.bytes+cost <= maxShardBytes {
			break
		}
		if other != sender {
			s.drop(other)
		}
	}
	if own == nil {
		own = &knownBodies{of: map[string]*knownBody{}}
		s.senders[sender] = own
	}
	own.of[b.raw] = b
	own.last.Store(b)
	own.bytes += cost
	s.bytes += cost
}

func (s *bodyShard) drop(sender toll.Address) {
	s.bytes -= s.senders[sender].bytes
	delete(s.senders, sender)
}

// isPlain reports whether s is ASCII that needs no escapes in JSON. It checks eight bytes at a time: the top bit of a byte of each term is
// set if that byte is not ASCII, below a space, a quote or a backslash; a borrow can only add such a bit above a byte that has one.
func isPlain(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		// The compiler combines these into one load.
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		quote, escape := w^'"'*ones, w^'\\'*ones
		if (w|(w-' '*ones)|(quote-ones)|(escape-ones))&tops != 0 {
			return false
		}
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
