package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// Config is what the first start writes and every start checks.
type Config struct {
	// Environment of the service. Empty takes the one of the database, at the first start sandbox.
	Environment toll.Environment
	// Issuer is {base_url} with /api/v1, the iss of everything signed here. It is needed at the first start; later starts
	// keep the stored one unless IssuerGiven.
	Issuer string
	// IssuerGiven says that an operator chose the address: Issuer then becomes the issuer of new tokens, and earlier ones stay valid.
	IssuerGiven bool
	// ReadOnly reads what an earlier start has written, and changes nothing.
	ReadOnly bool
	// ClaimObject is the brand word of the claim that carries the environment of an API key, the scheme prefix of the namespace. Required.
	ClaimObject string
	// Prefix of new long API keys, [a-z0-9-]{1,32}; empty is the environment.
	Prefix string
	// ShortKeys makes the short form the default of new API keys, unless Prefix differs from the environment.
	ShortKeys bool
	// Version is the pin of API keys that are created without one; empty is 1.0.
	Version string
	// Clock tells the time; nil is the clock of the machine.
	Clock func() time.Time
	// Log takes what cannot be answered; nil is silence. No line carries a key or a token.
	Log *slog.Logger
}

// Names of settings. Values are permanent: other processes and later releases read them.
const (
	settingEnvironment = "environment"
	settingMACKey      = store.SettingMACKey // sealed, 32 bytes
	settingIssuer      = "issuer/%d"         // 1, 2, ...: every address of the service in order; the last one is current
)

const (
	// tokenCacheEntries bounds the access tokens whose signature is known to be good.
	tokenCacheEntries = 65536
	// keyCacheEntries bounds the API keys in memory, for signatures and for records each.
	keyCacheEntries = 65536
	// tokenSums and lineSums bound the texts whose hash is remembered: 8 MiB and 2 MiB, as none is above 2 KiB.
	tokenSums = 4096
	lineSums  = 1024
	keyLocks  = 64 // that calls share which read or change keys
	// snapshotLife is how long the record of an API key is believed: what another process revokes ends here after it.
	snapshotLife = time.Second
	// refreshEvery is how long signing keys and issuers are believed.
	refreshEvery = 30 * time.Second
)

// Auth is the room: one per process, safe for concurrent use.
type Auth struct {
	store       *store.Store
	ring        *seal.Ring
	log         *slog.Logger
	clock       func() time.Time
	environment toll.Environment
	claimObject string
	prefix      string
	keyForm     toll.KeyForm // default of new API keys
	version     string
	given       string // issuer chosen at this start, empty when none
	macKey      []byte

	set     atomic.Pointer[keySet]
	refresh sync.Mutex

	records   *cache.Cache[[32]byte, *store.APIKey] // by key id; nil = no such key
	reads     [keyLocks]chan struct{}
	tokenSums *cache.Sums // of good access tokens
	lineSums  *cache.Sums // of API keys, by accepted Authorization lines

	tokensBy atomic.Pointer[Tokens]

	touched *cache.Cache[[32]byte, struct{}] // by key id: last use is noted for this minute
	touches chan touch
	noted   jobs.Signal
}

var (
	prefixSyntax = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
	memberSyntax = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
)

// Bootstrap opens the room on a database. The first start of all processes writes environment, issuer, MAC key and
// signing keys in one transaction; every other start reads them. Another environment, a master key that does not open
// what is sealed, and a missing issuer are errors that say what to do.
func Bootstrap(ctx context.Context, st *store.Store, ring *seal.Ring, first Config) (*Auth, error) {
	a := &Auth{
		store: st, ring: ring, log: cmp.Or(first.Log, slog.New(slog.DiscardHandler)), clock: first.Clock,
		claimObject: first.ClaimObject, prefix: first.Prefix, version: cmp.Or(first.Version, "1.0"),
		records:   cache.OfHashes[*store.APIKey](keyCacheEntries),
		tokenSums: cache.NewSums(tokenSums),
		lineSums:  cache.NewSums(lineSums),
		touched:   cache.OfHashes[struct{}](keyCacheEntries),
		touches:   make(chan touch, 1024),
		noted:     jobs.NewSignal(),
	}
	for i := range a.reads {
		a.reads[i] = make(chan struct{}, 1)
	}
	if a.clock == nil {
		a.clock = time.Now
	}
	if !memberSyntax.MatchString(a.claimObject) {
		return nil, fmt.Errorf("auth: the claim object name %q is invalid", a.claimObject)
	}
	if reserved[a.claimObject] {
		return nil, fmt.Errorf("auth: the claim object name %q is already the name of a claim", a.claimObject)
	}
	issuer, err := normalIssuer(first.Issuer)
	if err != nil {
		return nil, err
	}
	if first.IssuerGiven {
		if issuer == "" {
			return nil, errors.New("auth: the public address is empty")
		}
		a.given = issuer
	}
	if first.ReadOnly {
		err = a.read(ctx, first.Environment)
	} else {
		err = st.Tx(ctx, func(tx *store.Tx) error {
			return a.settle(ctx, tx, first.Environment, issuer)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("auth: start: %w", err)
	}
	a.prefix = cmp.Or(a.prefix, string(a.environment))
	a.keyForm = toll.KeyLong
	if first.ShortKeys && a.prefix == string(a.environment) {
		a.keyForm = toll.KeyShort
	}
	if err := CheckPrefix(a.prefix, a.environment); err != nil {
		return nil, err
	}
	set, err := a.load(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("auth: start: %w", err)
	}
	if set.issuer == "" || len(set.keys) == 0 {
		return nil, errors.New("auth: start: the database has no issuer or no signing key")
	}
	a.set.Store(set)
	return a, nil
}

// CheckPrefix refuses what cannot be the prefix of API keys in an environment.
func CheckPrefix(prefix string, env toll.Environment) error {
	if !prefixSyntax.MatchString(prefix) || prefix == string(otherEnvironment(env)) {
		return fmt.Errorf(
			"auth: the key prefix %q must be 1 to 32 characters from a-z, 0-9, and -, and not the name of the other environment",
			prefix,
		)
	}
	return nil
}

// settle brings the permanent settings into the database, or checks them against it. The environment is written first:
// two first starts meet at its row, and the later one finds all that the earlier one wrote.
func (a *Auth) settle(ctx context.Context, tx *store.Tx, env toll.Environment, issuer string) error {
	wanted := env
	wanted = cmp.Or(wanted, toll.Sandbox)
	if wanted != toll.Sandbox && wanted != toll.Live {
		return fmt.Errorf("the environment %q is neither sandbox nor live", wanted)
	}
	stored, err := store.PutSettingIfAbsent(ctx, tx, settingEnvironment, []byte(wanted))
	if err != nil {
		return err
	}
	a.environment = toll.Environment(stored)
	if err := checkEnvironment(a.environment, env); err != nil {
		return err
	}

	sealed, err := store.Setting(ctx, tx, settingMACKey)
	if errors.Is(err, store.ErrNotFound) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails since Go 1.24
		if sealed, err = a.ring.Seal(key, a.aad("mac-key", "")); err == nil {
			sealed, err = store.PutSettingIfAbsent(ctx, tx, settingMACKey, sealed)
		}
	}
	if err != nil {
		return err
	}
	if a.macKey, err = a.ring.Open(sealed, a.aad("mac-key", "")); err != nil {
		return otherMasterKey(err)
	}

	for _, purpose := range []string{"", store.StatementKey} {
		keys, err := keysFor(ctx, tx, purpose)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			continue
		}
		// Two: one signs, the next is published long before it is needed.
		for i := range 2 {
			if _, err := a.newSigningKey(ctx, tx, purpose, a.clock().Add(time.Duration(i)*time.Microsecond)); err != nil {
				return err
			}
		}
	}

	issuers, err := storedIssuers(ctx, tx)
	if err != nil {
		return err
	}
	if n := len(issuers); n == 0 || a.given != "" && issuers[n-1] != a.given {
		if issuer == "" {
			return errors.New("the first start needs the public address of the service")
		}
		for n++; ; n++ {
			got, err := store.PutSettingIfAbsent(ctx, tx, fmt.Sprintf(settingIssuer, n), []byte(issuer))
			if err != nil {
				return err
			}
			// Another process took the number: at a first start its address is the address, else ours comes after it.
			if string(got) == issuer || a.given == "" {
				break
			}
		}
	}
	return nil
}

func storedIssuers(ctx context.Context, q store.Querier) ([]string, error) {
	var out []string
	for n := 1; ; n++ {
		v, err := store.Setting(ctx, q, fmt.Sprintf(settingIssuer, n))
		if errors.Is(err, store.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, string(v))
	}
}

func normalIssuer(s string) (string, error) {
	s = strings.TrimRight(s, "/")
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("auth: the address of the service must be an http or https URL without a user, query, or fragment")
	}
	return s, nil
}

func otherEnvironment(e toll.Environment) toll.Environment {
	if e == toll.Live {
		return toll.Sandbox
	}
	return toll.Live
}

func (a *Auth) aad(use, owner string) []byte { return aad(a.environment, use, owner) }

// Issuer returns the iss of new tokens: {base_url} with /api/v1.
func (a *Auth) Issuer() string {
	if a.given != "" {
		return a.given
	}
	return a.keys().issuer
}

// KeyForm returns the default form of new API keys.
func (a *Auth) KeyForm() toll.KeyForm { return a.keyForm }

func (a *Auth) Environment() toll.Environment { return a.environment }

// MACKey returns the 32-byte key of request ids, the same in every process on this database.
func (a *Auth) MACKey() []byte { return append([]byte(nil), a.macKey...) }
