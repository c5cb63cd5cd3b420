package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/server"
)

// storeFlags say which database a command works on, and what a first start writes there.
func storeFlags(cmd *cobra.Command, cfg *server.Config) {
	f := cmd.Flags()
	f.StringVar((*string)(&cfg.Environment), "environment", "", "sandbox or live; default that of the database, else sandbox")
	f.StringVar(
		&cfg.KeyPrefix,
		"key-prefix",
		"",
		"prefix of new API keys; default that of the database, at the first start the environment, with a --namespace \"local\"",
	)
	f.StringVar(&cfg.Data, "data", "", "data directory; default "+server.DefaultData+" unless --database is set")
	f.StringVar(&cfg.Database, "database", "", "postgres:// address")
	f.StringVar(&cfg.MasterKeyFile, "master-key-file", "", "file with the key that seals secrets; TOLL_MASTER_KEY holds the key itself")
	f.BoolVar(&cfg.LocalMasterKey, "allow-local-master-key", false, "let live use the master key that was made in the data directory")
	secret(cmd, &cfg.MasterKey, "master-key", "TOLL_MASTER_KEY")
	f.Var(
		&cfg.Namespace,
		"namespace",
		"brand words on the wire: scheme prefix, header prefix and word, with commas; default those of the database",
	)
	env(cmd, "namespace", "TOLL_NAMESPACE")
	env(cmd, "environment", "TOLL_ENVIRONMENT")
	env(cmd, "key-prefix", "TOLL_KEY_PREFIX")
	env(cmd, "data", "TOLL_DATA")
	env(cmd, "database", "TOLL_DATABASE")
	env(cmd, "master-key-file", "TOLL_MASTER_KEY_FILE")
	env(cmd, "allow-local-master-key", "TOLL_ALLOW_LOCAL_MASTER_KEY")
}

type serveFlags struct {
	cfg                     server.Config
	metricsListen, logLevel string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := command("serve", "Run the service", func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) })
	c.Long = `Run the service. It listens once its database is up to date, and is ready when GET /ready answers 200.

Without --database everything lies in one directory, for one process. With PostgreSQL any number of processes may run;
all of them need the same master key file. SIGTERM ends it in order: what is in flight is finished first.`
	c.Example = "toll serve --data ./toll-data\ntoll serve --database postgres://… --public-url https://pay.example.com"
	c.Annotations = withoutProfile
	storeFlags(c, &f.cfg)
	quotaFlags(c, &f.cfg)
	chainFlags(c, &f.cfg.Chain)
	fl := c.Flags()
	fl.StringVar(&f.cfg.Listen, "listen", server.DefaultListen, "address to listen on")
	fl.StringVar(&f.cfg.PublicURL, "public-url", "", "address under which callers reach the service; default that of the first start")
	fl.StringVar(&f.cfg.TokenFormat, "token-format", "", "default rendering of access tokens, jwt or x402")
	fl.IntVar(&f.cfg.RateLimitKey, "rate-limit-key", 0, "calls a second of one API key, four times as many at once; 0 is no limit")
	fl.IntVar(&f.cfg.RateLimitIP, "rate-limit-ip", 50, "calls a second of one address without a valid API key, four times as many at once; 0 is no limit")
	fl.StringVar(&f.cfg.TrustedProxies, "trusted-proxies", "", "addresses or prefixes, with commas, of proxies whose X-Forwarded-For is believed; default none")
	fl.DurationVar(&f.cfg.OrderWait, "order-wait", 0, "how long the answer to an order waits for its credits; default 30s, on the embedded chain 10s")
	fl.BoolVar(&f.cfg.CloseReads, "close-reads", false, "ask for an API key where plans, agents and balances are read")
	fl.BoolVar(&f.cfg.LoopbackWebhooks, "loopback-webhooks", false, "let webhooks of a sandbox lead to this machine, with http too")
	fl.StringVar(&f.cfg.Exact, "x402-exact", "", "what payments by wallets without an account are taken for: off, plans (default), or open for payments to other servers as well")
	fl.BoolVar(&f.cfg.SignedReceipts, "x402-receipts", false, "sign a receipt for every settlement, about 800 bytes that are stored with it")
	fl.StringVar(&f.cfg.ExactTreasury, "x402-treasury", "", "address that these wallets pay instead of the receiver of a price; plans with several receivers are then sold to them, too")
	fl.StringVar(&f.metricsListen, "metrics-listen", "", "address of the operator's listener with /metrics; off by default")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	for name, variable := range map[string]string{
		"x402-exact": "TOLL_X402_EXACT", "x402-receipts": "TOLL_X402_RECEIPTS", "x402-treasury": "TOLL_X402_TREASURY",
		"listen": "TOLL_LISTEN", "order-wait": "TOLL_ORDER_WAIT", "close-reads": "TOLL_CLOSE_READS", "loopback-webhooks": "TOLL_LOOPBACK_WEBHOOKS", "public-url": "TOLL_PUBLIC_URL",
		"token-format": "TOLL_TOKEN_FORMAT", "metrics-listen": "TOLL_METRICS_LISTEN",
		"rate-limit-key": "TOLL_RATE_LIMIT_KEY", "rate-limit-ip": "TOLL_RATE_LIMIT_IP", "trusted-proxies": "TOLL_TRUSTED_PROXIES",
		"log-level": "TOLL_LOG_LEVEL",
	} {
		env(c, name, variable)
	}
	return c
}

// quotaFlags are what one account may have of each kind, and add in an hour. Their defaults are those of the service.
func quotaFlags(c *cobra.Command, cfg *server.Config) {
	for _, q := range []struct {
		flag, variable, what string
		value                *int64
	}{
		{"max-agents", "TOLL_MAX_AGENTS", "agents", &cfg.Quotas.Agents},
		{"max-plans", "TOLL_MAX_PLANS", "plans", &cfg.Quotas.Plans},
		{"max-keys", "TOLL_MAX_KEYS", "API keys in force", &cfg.Quotas.APIKeys},
		{"max-delegations", "TOLL_MAX_DELEGATIONS", "delegations in force", &cfg.Quotas.Delegations},
	} {
		c.Flags().Int64Var(q.value, q.flag, 0, "most "+q.what+" of one account; 0 is 10000, for keys 1000; -1 is no limit")
		env(c, q.flag, q.variable)
	}
	for _, q := range []struct {
		flag, variable, what string
		usual                int
		value                *int64
	}{
		{"max-hourly-orders", "TOLL_MAX_HOURLY_ORDERS", "orders", 3_600, &cfg.Quotas.Orders},
		{"max-hourly-permissions", "TOLL_MAX_HOURLY_PERMISSIONS", "permissions", 36_000, &cfg.Quotas.Permissions},
		{"max-hourly-free-holds", "TOLL_MAX_HOURLY_FREE_HOLDS", "holds that burn nothing", 36_000, &cfg.Quotas.FreeHolds},
		{"max-hourly-sub-tasks", "TOLL_MAX_HOURLY_SUB_TASKS", "sub-tasks", 360_000, &cfg.Quotas.SubTasks},
		{"max-hourly-changes", "TOLL_MAX_HOURLY_CHANGES", "other calls that add or change records", 36_000, &cfg.Quotas.Changes},
	} {
		usage := fmt.Sprintf("most %s of one account in an hour; 0 is %d; -1 is no limit", q.what, q.usual)
		c.Flags().Int64Var(q.value, q.flag, 0, usage)
		env(c, q.flag, q.variable)
	}
}

func (a *app) serve(ctx context.Context, f serveFlags) (err error) {
	log, err := newLog(a.err, f.logLevel)
	if err != nil {
		return err
	}
	cfg := f.cfg
	cfg.Environment, cfg.Release, cfg.Log = toll.Environment(strings.ToLower(string(cfg.Environment))), release(), log
	cfg.Metrics = f.metricsListen != ""

	ln, err := a.reserve(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	if ln != nil {
		defer ln.Close()
		cfg.Listen = ln.Addr().String()
	}
	server.TuneMemory()
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		log.Info("stopped")
	}()
	if ln == nil {
		if ln, err = listen(ctx, cfg.Listen); err != nil {
			return err
		}
	}
	log.Info("serving", "listen", ln.Addr().String(), "url", s.PublicURL(), "environment", s.Environment(), "database", s.Engine(), "version", cfg.Release)
	return serveBoth(ctx, s, ln, f.metricsListen, log)
}

// reserve finds out whether the address can be had before the database is opened, as a first start writes it there. It
// keeps the listener only when the port is chosen by the system: nothing listens before the migrations have run.
func (a *app) reserve(ctx context.Context, address string) (net.Listener, error) {
	ln, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	if _, port, _ := net.SplitHostPort(address); port == "0" || port == "" {
		return ln, nil
	}
	return nil, ln.Close()
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	ln, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// serveBoth serves callers and, when it is wanted, the operator. The end of one ends both.
func serveBoth(ctx context.Context, s *server.Server, ln net.Listener, metricsListen string, log *slog.Logger) error {
	if metricsListen == "" {
		return s.Serve(ctx, ln)
	}
	own, err := listen(ctx, metricsListen)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	log.Info("metrics", "listen", own.Addr().String())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- s.ServeMetrics(ctx, own)
	}()
	err = s.Serve(ctx, ln)
	cancel()
	return errors.Join(err, <-done)
}

// newLog writes JSON lines. No line of any level carries a key or a token: levels choose how much is said, not what.
func newLog(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("the log level is debug, info, warn or error")
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		if at.Key == slog.TimeKey {
			at.Value = slog.StringValue(at.Value.Time().UTC().Format(time.RFC3339Nano))
		}
		return at
	}})), nil
}
