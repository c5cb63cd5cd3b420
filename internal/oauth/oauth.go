// Package oauth is the authorization server: how a program gets what it needs from a person who agrees to it (OAuth 2.1,
// draft-ietf-oauth-v2-1). A consent becomes a grant; of it come one-time codes bound to the program by a code challenge
// (RFC 7636), access tokens that are permissions of the facilitator, or API keys, and refresh tokens that rotate.
package oauth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
)

const (
	// codeLife is how long a code may wait for its exchange.
	codeLife = time.Minute
	// keyLife is the life of API keys unless the person chose another one.
	keyLife = 90 * 24 * time.Hour
	// accessLife is the life of an access token that can be renewed, and loneAccessLife of one that cannot.
	accessLife     = time.Hour
	loneAccessLife = 24 * time.Hour
	// grantLife is how long a consent holds unless the person chose another time, within the bounds of permissions.
	grantLife    = 30 * 24 * time.Hour
	shortestLife = time.Minute
	longestLife  = 365 * 24 * time.Hour

	// maxConsents is how often one person may let programs in within an hour.
	maxConsents = 600

	defaultMaxKeys  = 1000
	defaultMaxLetIn = 1_000_000
)

// Kinds of what a program gets.
const (
	KindPermission = "permission" // an access token with which agents are paid
	KindAPIKey     = "api_key"    // rights of the account, one by one
)

// Deps is what the room is built on.
type Deps struct {
	Store  *store.Store
	Auth   *auth.Auth
	Tokens *tokens.Tokens
	Clock  func() time.Time
	// Issuer is the origin of the service.
	Issuer string
	// Resource is the address of the API, for which API keys are.
	Resource string
	// ClientPrefix begins the ids of registered clients.
	ClientPrefix string
	// Documents fetches the documents of clients whose id is an address.
	Documents *outbound.Client
	// Source returns the network address that a request came from; nil: that of the peer.
	Source func(*http.Request) string
	// MaxKeys is how many valid API keys an account may have: 0 is 1,000, a negative number lifts the limit.
	MaxKeys int64
	// MaxLetIn is how many addresses there may be of registered clients that somebody let in, 0 is 1,000,000: of more a sweep removes
	// those of clients without a consent that holds, then of others, the longest unused first.
	MaxLetIn int64
	// BeforeRenewal is called by tests when a permission was read and is about to be renewed, nil otherwise.
	BeforeRenewal func()
	Log           *slog.Logger
}

// OAuth is the room. It is safe for concurrent use.
type OAuth struct {
	Deps
	documents *documents
	registers *meter.Meter[string] // by source
	devices   *meter.Meter[string] // by source
	shown     *meter.Meter[string] // by person
	consents  *meter.Quota
}

// New returns the room.
func New(d Deps) *OAuth {
	if d.Source == nil {
		d.Source = func(r *http.Request) string {
			host, _, _ := net.SplitHostPort(r.RemoteAddr) // always an address with a port
			return host
		}
	}
	return &OAuth{
		Deps: d, documents: newDocuments(d.Documents, d.Clock),
		registers: newCalls(maxCalls), devices: newCalls(maxCalls), shown: newCalls(maxShown),
		consents: meter.NewQuota("programs that it lets in", 0, maxConsents),
	}
}

// Close closes connections to documents of clients.
func (o *OAuth) Close() { o.documents.net.Close() }

// random returns 32 random bytes as 43 characters.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b)
}

func sumOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// printable is [visible] with blanks (RFC 6749, appendix A: VSCHAR).
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// challenged reports whether a challenge is that of some verifier.
func challenged(challenge string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(challenge)
	return err == nil && len(b) == sha256.Size
}

// life cuts a time that a person chose to its bounds and to whole seconds.
func life(chosen, usual time.Duration) time.Duration {
	chosen = cmp.Or(chosen, usual)
	return min(max(chosen, shortestLife), longestLife).Truncate(time.Second)
}
