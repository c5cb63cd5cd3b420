// Package server puts the rooms together: a configuration becomes a store, the rooms on it, one HTTP handler, and the work
// in the background. It is the only room that knows all others.
package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/sdk"
	"github.com/tollhq/toll/x402"
)

const (
	// DefaultListen is where the service listens when nothing else is said.
	DefaultListen = "127.0.0.1:8402"
	// DefaultData is the data directory when neither a directory nor a database is named.
	DefaultData = "toll-data"
	// DefaultRetainDays is how many days requests and events are kept.
	DefaultRetainDays = 400
	masterKeyName     = "master.key"
	// databaseName is the embedded database in a data directory.
	databaseName = "toll.db"
)

// Config is what an operator decides. The zero value is a sandbox on an embedded database in [DefaultData].
type Config struct {
	// Data is the directory of the embedded database and of the master key. Empty is [DefaultData], or none when Database is set.
	Data string
	// Database is the postgres:// address of a database; it wins over the embedded one.
	Database string
	// Listen is the address on which the service is going to listen, empty for [DefaultListen]. The public address of a
	// first start is made of it; nothing is opened here.
	Listen string
	// PublicURL is the address under which callers reach the service, and the issuer of new tokens. Empty keeps that of the first start.
	PublicURL string
	// Environment is sandbox or live. Empty is that of the database, at the first start sandbox.
	Environment toll.Environment
	// MasterKeyFile holds the key that seals secrets: 64 hexadecimal digits, mode 0600. Empty is a file in Data, made at
	// the first start; live refuses that.
	MasterKeyFile string
	// OtherMasterKeyFile holds another key, which opens what it has sealed and seals nothing: the one before or after this
	// one, while the master key is changed.
	OtherMasterKeyFile string
	// MasterKey is the key itself, as text of 64 hexadecimal digits, instead of a file.
	MasterKey string
	// KeyProvider keeps the master key instead of both, such as a key management service.
	KeyProvider seal.KeyProvider
	// LocalMasterKey lets live use a master key that was made in Data. Whoever has a copy of that directory has the keys, too.
	LocalMasterKey bool
	// KeyPrefix is the prefix of new API keys, [a-z0-9-]{1,32}. The first start stores it, and later starts reject another prefix. Empty is
	// the stored one, at the first start the environment, under a namespace of one's own "local".
	KeyPrefix string
	// TokenFormat is the default rendering of access tokens, "jwt" (also for "") or "x402".
	TokenFormat string
	// Namespace are the brand words on the wire. The first start stores them for ever. Zero is the
	// stored one, at the first start [x402.Default].
	Namespace x402.Namespace
	// Release is the version of the program.
	Release string
	Drain   time.Duration // from the start of a shutdown to its last new request; 0, or 1 s to [MaxDrain]
	// OrderWait is how long the answer to an order waits for its credits, 0 = 30 s, on the embedded chain 10 s.
	OrderWait time.Duration
	// CloseReads asks for a key where plans, agents and balances are read.
	CloseReads bool
	// IgnoreOrganizations accepts a call even if its X-Current-Org-Id header names another workspace than its API key belongs to.
	IgnoreOrganizations bool
	// RetainDays is how many days after the end of its access token a request is known, and how long events are kept: 1 and
	// more; 0 is [DefaultRetainDays], a negative number is for ever. Balances, orders and the entries of settlements stay.
	RetainDays int
	// Backups says when backups of the embedded database are made. Zero makes none.
	Backups backup.Schedule
	// ObjectStore is where backups with the address s3://bucket/prefix are kept.
	ObjectStore backup.ObjectStore
	// TemporaryDir is where backups keep the plain copy of the database while they are made; empty is Data. It needs the
	// protection of the database.
	TemporaryDir string
	// Quotas bound what one account may have; zero is the default of each.
	Quotas api.Quotas
	// Traces is a collector of OpenTelemetry that gets spans over HTTP, such as http://127.0.0.1:4318. Empty sends none.
	Traces string
	// Metrics counts requests for [Server.Metrics].
	Metrics bool
	// Exact says what payments by wallets without an account (x402, scheme exact) are taken for: "plans" (also for ""), "off"
	// for nothing, or "open" for plans, and for payments to other servers whose builders are paid by them.
	Exact string
	// ExactTreasury is who these wallets pay, an address, instead of the one receiver of a price. With it plans with several
	// receivers are sold to them, too: sharing is then the operator's task. Empty is nobody.
	ExactTreasury string
	// SignedReceipts adds a signed receipt to every successful settlement (x402 extension offer-receipt): about 800 bytes that
	// are stored with it.
	SignedReceipts bool
	// Registration says who may sign up: people.Open, people.Invited, or "" for open in a sandbox and invited on live.
	Registration people.Registration
	// NoPasswords refuses passwords: people sign in by passkeys, wallets, codes by mail or accounts of the provider.
	NoPasswords bool
	// Mail says through which server codes are sent. Zero sends none.
	Mail people.MailConfig
	// OIDC is a provider of accounts with which people sign in. Zero is none.
	OIDC  people.OIDCConfig
	Rails rails.Config // how money reaches builders
	// RateLimitKey is how many calls a second an API key may make, RateLimitIP those of an address without a valid one, of
	// IPv6 those of a /64. Four times as many may come at once. 0 is no limit. Each process counts for itself.
	RateLimitKey, RateLimitIP int
	// TrustedProxies are addresses and prefixes, separated by commas, of the proxies whose X-Forwarded-For is believed.
	TrustedProxies string
	// LoopbackWebhooks lets webhooks of a sandbox lead to this machine, with http too. It is for one developer: whoever has an
	// account could reach what listens here for the machine alone. Live refuses it.
	LoopbackWebhooks bool
	Brand            page.Brand // the look of the pages
	// Published are the registries, separated by commas, on which the operator has published the SDKs: npm, pypi, go. Pages name only
	// these, and otherwise the packages that the service serves.
	Published string
	// GoRepository is the module path of a repository of the Go SDK, such as git.example.com/acme/toll@v1.1.0.
	GoRepository string
	// Clock tells the time; nil is the clock of the machine.
	Clock func() time.Time
	// Log is where the service reports; nil is silence. No line carries a key or a token.
	Log *slog.Logger

	// Tests set these. at is called between the steps of the rails; topUpWait is how long a request waits for the order of
	// missing credits, 0 for the default of the facilitator.
	at        func(step string)
	topUpWait time.Duration
}

func (c Config) withDefaults() Config {
	if c.Data == "" && c.Database == "" {
		c.Data = DefaultData
	}
	c.RetainDays = cmp.Or(c.RetainDays, DefaultRetainDays)
	c.Listen, c.Release = cmp.Or(c.Listen, DefaultListen), cmp.Or(c.Release, "dev")
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// horizon is how long requests and events are kept, 0 for ever.
func (c Config) horizon() time.Duration { return time.Duration(max(c.RetainDays, 0)) * 24 * time.Hour }

// check refuses what would be wrong or careless whatever the database holds.
func (c Config) check() error {
	switch c.Environment {
	case "", toll.Sandbox, toll.Live:
	default:
		return fmt.Errorf("the environment must be sandbox or live; got %q", c.Environment)
	}
	if c.Database != "" && !strings.HasPrefix(c.Database, "postgres://") && !strings.HasPrefix(c.Database, "postgresql://") {
		// The text may hold a password, so it is not repeated.
		return errors.New("the database must be a postgres:// address; to use an embedded database, set the data directory")
	}
	if keys := given(c.MasterKeyFile != "") + given(c.MasterKey != "") + given(c.KeyProvider != nil); keys > 1 {
		return errors.New("two master keys are configured: set only one of TOLL_MASTER_KEY_FILE (--master-key-file) and TOLL_MASTER_KEY")
	}
	if c.Database != "" && !c.ownMasterKey() && c.masterKeyPath() == "" {
		return errors.New("a database needs a master key: set TOLL_MASTER_KEY_FILE (--master-key-file) to a file with 64 hexadecimal digits " +
			"and mode 0600, the same for every process, or set the data directory that contains it (--data)")
	}
	switch c.TokenFormat {
	case "", "jwt", "x402":
	default:
		return fmt.Errorf("the token format must be jwt or x402; got %q", c.TokenFormat)
	}
	if err := errors.Join(c.Rails.Check(), c.Mail.Check(), c.OIDC.Check(), c.Brand.Check(), c.checkDrain(), c.checkBackups()); err != nil {
		return err
	}
	switch purchases.Policy(c.Exact) {
	case "", purchases.ExactPlans, purchases.ExactOff, purchases.ExactOpen:
	default:
		return fmt.Errorf("x402 exact must be off, plans, or open; got %q", c.Exact)
	}
	if _, err := c.treasury(); err != nil {
		return err
	}
	switch c.Registration {
	case "", people.Open, people.Invited:
	default:
		return fmt.Errorf("registration must be open or invited; got %q", c.Registration)
	}
	if c.RateLimitKey < 0 || c.RateLimitIP < 0 {
		return errors.New("a rate limit must be a number of requests per second, or 0 for no limit")
	}
	if _, err := api.ParseProxies(c.TrustedProxies); err != nil {
		return fmt.Errorf("trusted proxies: %w", err)
	}
	if _, err := sdk.ParseRegistries(c.Published); err != nil {
		return err
	}
	if err := sdk.CheckRepository(c.GoRepository); err != nil {
		return err
	}
	if c.Database == "" {
		return checkMode(filepath.Join(c.Data, databaseName))
	}
	return nil
}

// treasury returns who wallets without an account pay, zero for the receivers of prices.
func (c Config) treasury() (toll.Address, error) {
	if c.ExactTreasury == "" {
		return toll.Address{}, nil
	}
	a, err := toll.ParseAddress(c.ExactTreasury)
	if err != nil || a.IsZero() {
		return toll.Address{}, fmt.Errorf("the treasury %q is not a valid address: it must be 0x and 40 hexadecimal digits, not all zero", c.ExactTreasury)
	}
	return a, nil
}

// checkMode refuses a database file that others can read. It is made with the right mode; a copy may have lost it.
func checkMode(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("database file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("database file %s has mode %04o, which gives other users access: run chmod 600 on it", path, mode)
	}
	return nil
}

// checkLive refuses what is careless once money is real.
func (c Config) checkLive(publicURL string) error {
	if c.LoopbackWebhooks {
		return errors.New("the live environment does not send webhooks to this machine: turn TOLL_LOOPBACK_WEBHOOKS (--loopback-webhooks) off")
	}
	if !c.ownMasterKey() && !c.LocalMasterKey {
		return errors.New("the live environment needs your own master key: set TOLL_MASTER_KEY_FILE (--master-key-file) to a file with " +
			"64 hexadecimal digits and mode 0600, kept outside the data directory and its backups, or TOLL_MASTER_KEY to the digits; " +
			"TOLL_ALLOW_LOCAL_MASTER_KEY=true allows the key generated in the data directory")
	}
	u, err := url.Parse(publicURL)
	if err != nil || u.Scheme != "https" && !toll.IsLoopback(u.Hostname()) {
		return fmt.Errorf("the live environment needs a public address with https; got %s: set TOLL_PUBLIC_URL (--public-url)", publicURL)
	}
	return nil
}

func given(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// listenURL is the public address of a service that nobody named one for.
func (c Config) listenURL() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "http://" + c.Listen
	}
	// Every interface is no address that a caller could use, and a passkey is of a name, never of an IP address.
	if ip := net.ParseIP(host); host == "" || ip != nil && (ip.IsUnspecified() || ip.IsLoopback()) {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// limits is the rate of calls that one caller may make.
func (c Config) limits() api.Limits {
	proxies, _ := api.ParseProxies(c.TrustedProxies) // check has read them
	return api.Limits{PerKey: c.RateLimitKey, PerIP: c.RateLimitIP, Proxies: proxies}
}
