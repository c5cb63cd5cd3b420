package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/server"
)

// storeFlags say which database a command works on, and what a first start writes there.
func storeFlags(cmd *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("store", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Environment), "environment", "", "sandbox or live; default that of the database, else sandbox")
	f.StringVar(&cfg.KeyPrefix, "key-prefix", "", "prefix of new API keys; default that of the database, "+
		"at the first start the environment, with a --namespace \"local\"")
	f.StringVar(&cfg.Data, "data", "", "data directory; default "+server.DefaultData+" unless --database is set")
	f.StringVar(&cfg.Database, "database", "", "postgres:// address")
	f.StringVar(&cfg.MasterKeyFile, "master-key-file", "", "file with the key that seals secrets; TOLL_MASTER_KEY holds the key itself")
	f.StringVar(&cfg.OtherMasterKeyFile, "other-master-key-file", "", "file with the master key before or after this one, which opens and does not seal; "+
		"only while the key is changed")
	f.BoolVar(&cfg.LocalMasterKey, "allow-local-master-key", false, "let live use the master key that was made in the data directory")
	secret(cmd, &cfg.MasterKey, "master-key")
	f.Var(&cfg.Namespace, "namespace", "brand words on the wire: scheme prefix, header prefix and word, with commas; "+
		"default those of the database")
	addWithEnv(cmd, f)
}

type serveFlags struct {
	cfg                                server.Config
	metricsListen, logLevel, logFormat string
}

func serveCommand(a *app) *cobra.Command {
	var f serveFlags
	c := command("serve", "Run the service", func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("drain") && isTerminal(a.err) {
			f.cfg.Drain = 0 // nobody sends requests elsewhere, and a person waits
		}
		return runServe(cmd.Context(), a, f, settingsOf(cmd))
	})
	c.Long = `Run the service. It listens once its database is up to date, and is ready when GET /ready answers 200.

Without --database everything lies in one directory, for one process. With PostgreSQL any number of processes may run;
all of them need the same master key file. SIGTERM ends it in order: GET /ready answers 503, requests are
accepted for --drain, and what is in flight then is finished.`
	c.Example = "toll serve --data ./toll-data\ntoll serve --database postgres://… --public-url https://pay.example.com"
	c.Annotations = withoutProfile
	storeFlags(c, &f.cfg)
	quotaFlags(c, &f.cfg)
	railFlags(c, &f.cfg.Rails)
	paymentFlags(c, &f.cfg.Rails.Chain)
	peopleFlags(c, &f.cfg)
	objectStoreFlags(c, &f.cfg)
	listenFlags(c, &f.cfg)
	fl := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fl.StringVar(&f.cfg.PublicURL, "public-url", "", "address under which callers reach the service; default that of the first start")
	fl.StringVar(&f.cfg.TokenFormat, "token-format", "", "default rendering of access tokens, jwt or x402")
	fl.IntVar(&f.cfg.RateLimitKey, "rate-limit-key", 0, "calls a second of one API key, four times as many at once; 0 is no limit")
	fl.IntVar(&f.cfg.RateLimitIP, "rate-limit-ip", 50, "calls a second of one address without a valid API key, four times as many at once; 0 is no limit")
	fl.DurationVar(&f.cfg.Drain, "drain", 5*time.Second, "how long SIGTERM leaves the service open while GET /ready answers 503, so that "+
		"load balancers notice; at most 10s; on a terminal 0s")
	fl.DurationVar(&f.cfg.OrderWait, "order-wait", 0, "how long the answer to an order waits for its credits; default 30s, on the embedded chain 10s")
	fl.IntVar(&f.cfg.RetainDays, "retain-days", server.DefaultRetainDays, "days after the end of their access token for which requests are known, and for which events are kept; -1 is for ever")
	fl.StringVar(&f.cfg.TemporaryDir, "tmp", "", "folder for the plain copy of the database while a backup is made; default the data directory")
	fl.BoolVar(&f.cfg.CloseReads, "close-reads", false, "ask for an API key where plans, agents and balances are read")
	fl.BoolVar(&f.cfg.IgnoreOrganizations, "ignore-organizations", false, "take calls of API keys that name an organization of another service in X-Current-Org-Id")
	fl.StringVar(&f.cfg.Brand.Name, "brand-name", "", "name of the service on its pages; default Toll")
	fl.StringVar(&f.cfg.Brand.Color, "brand-color", "", "accent of its pages, as #0b6e63")
	fl.StringVar(&f.cfg.Brand.Logo, "brand-logo", "", "logo of its pages: a PNG or SVG file of at most 256 KiB")
	fl.BoolVar(&f.cfg.LoopbackWebhooks, "loopback-webhooks", false, "let webhooks of a sandbox lead to this machine, with http too")
	fl.StringVar(&f.cfg.Exact, "x402-exact", "", "what payments by wallets without an account are taken for: off, plans (default), or open for payments to other servers as well")
	fl.BoolVar(&f.cfg.SignedReceipts, "x402-receipts", false, "sign a receipt for every settlement, about 800 bytes that are stored with it")
	fl.StringVar(&f.cfg.ExactTreasury, "x402-treasury", "", "address that these wallets pay instead of the receiver of a price; plans with several receivers are then sold to them, too")
	fl.StringVar(&f.metricsListen, "metrics-listen", "", "address of the operator's listener with /metrics; off by default")
	fl.StringVar(&f.cfg.Traces, "traces", "", "collector of OpenTelemetry that gets traces over HTTP, such as http://127.0.0.1:4318; default that of OTEL_EXPORTER_OTLP_ENDPOINT, else none")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error, or @FILE with one of them, which SIGHUP reads again")
	fl.StringVar(&f.logFormat, "log-format", "", "text or json; default text on a terminal, else json")
	addWithEnv(c, fl)
	return c
}

// listenFlags adds the flags for the listener, proxies and backups.
func listenFlags(c *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("places", pflag.ContinueOnError)
	f.StringVar(&cfg.Listen, "listen", server.DefaultListen, "address to listen on")
	f.StringVar(&cfg.TrustedProxies, "trusted-proxies", "", "addresses or prefixes, with commas, of proxies whose X-Forwarded-For is believed; default none")
	f.StringVar(&cfg.Backups.Dir, "backup-dir", "", "folder for sealed backups of the embedded database, on another disk, or s3://bucket/prefix; default none: a lost disk then loses all data, and with backups all since the newest one")
	f.DurationVar(&cfg.Backups.Every, "backup-every", 24*time.Hour, "pause between two backups, 10m and more")
	f.IntVar(&cfg.Backups.Keep, "backup-keep", 7, "how many of them are kept; -1 keeps all")
	addWithEnv(c, f)
}

// peopleFlags are how people sign in.
func peopleFlags(c *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("people", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Registration), "registration", "", "who may sign up: open or invited; default open in a sandbox, invited on live")
	f.BoolVar(&cfg.NoPasswords, "no-passwords", false, "people sign in without passwords: by passkeys, wallets, codes by mail or accounts of the provider; default passwords are taken")
	f.StringVar(&cfg.Mail.URL, "smtp-url", "", "server that sends codes by mail, smtp://user@host:587 or smtps://user@host:465; TOLL_SMTP_PASSWORD holds the password; default no codes")
	f.StringVar(&cfg.Mail.From, "mail-from", "", "address that sends them, such as pay@example.com")
	f.StringVar(&cfg.OIDC.Issuer, "oidc-issuer", "", "provider of accounts with which people sign in (OpenID Connect), such as https://id.example.com; default none")
	f.StringVar(&cfg.OIDC.ClientID, "oidc-client-id", "", "id of this service there; TOLL_OIDC_CLIENT_SECRET holds its secret")
	f.StringVar(&cfg.OIDC.Name, "oidc-name", "", "name of the provider on the button; default its host")
	addWithEnv(c, f)
	secret(c, &cfg.Mail.Password, "smtp-password")
	secret(c, &cfg.OIDC.ClientSecret, "oidc-client-secret")
}

// objectStoreFlags say how an S3-compatible store is reached.
func objectStoreFlags(c *cobra.Command, cfg *server.Config) {
	o := &cfg.ObjectStore
	f := pflag.NewFlagSet("object store", pflag.ContinueOnError)
	f.StringVar(&o.Endpoint, "s3-endpoint", "", "S3-compatible store of s3:// places, such as https://s3.example.com; default that of Amazon")
	f.StringVar(&o.Region, "s3-region", "", "its region; default us-east-1")
	f.StringVar(&o.KeyFile, "s3-key-file", "", "file with the id of an access key and its secret, mode 0600; or TOLL_S3_ACCESS_KEY and TOLL_S3_SECRET_KEY")
	addWithEnv(c, f)
	secret(c, &o.AccessKey, "s3-access-key")
	secret(c, &o.SecretKey, "s3-secret-key")
}

// quotaFlags are what one account may have of each kind, and add in an hour. Their defaults are those of the service.
func quotaFlags(c *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("quotas", pflag.ContinueOnError)
	q := &cfg.Quotas
	inForce := func(value *int64, name, what string) {
		f.Int64Var(value, name, 0, "most "+what+" of one account; 0 is 10000, for keys 1000; -1 is no limit")
	}
	hourly := func(value *int64, name, what string, usual int) {
		f.Int64Var(value, name, 0, fmt.Sprintf("most %s of one account in an hour; 0 is %d; -1 is no limit", what, usual))
	}
	inForce(&q.Agents, "max-agents", "agents")
	inForce(&q.Plans, "max-plans", "plans")
	inForce(&q.APIKeys, "max-keys", "API keys in force")
	inForce(&q.Delegations, "max-delegations", "delegations in force")
	hourly(&q.Orders, "max-hourly-orders", "orders", 3_600)
	hourly(&q.Permissions, "max-hourly-permissions", "permissions", 36_000)
	hourly(&q.FreeHolds, "max-hourly-free-holds", "holds that burn nothing", 36_000)
	hourly(&q.SubTasks, "max-hourly-sub-tasks", "sub-tasks", 360_000)
	hourly(&q.Changes, "max-hourly-changes", "other calls that add or change records", 36_000)
	addWithEnv(c, f)
}

func runServe(ctx context.Context, a *app, f serveFlags, settings []any) (err error) {
	var level slog.LevelVar
	if err := readLevel(f.logLevel, &level); err != nil {
		return err
	}
	log, err := a.newLogAs(&level, f.logFormat)
	if err != nil {
		return err
	}
	log.Info("settings", settings...)
	cfg := f.cfg
	cfg.Environment, cfg.Release, cfg.Log = toll.Environment(strings.ToLower(string(cfg.Environment))), release(), log
	cfg.Metrics, cfg.Traces = f.metricsListen != "", collector(f.cfg.Traces)

	ln, err := reservePort(ctx, cfg.Listen)
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
		if ln, err = server.Listen(ctx, cfg.Listen); err != nil {
			return err
		}
	}
	if err := greet(ctx, &a.console, s, cfg); err != nil {
		return errors.Join(err, ln.Close())
	}
	defer onHangup(func() {
		if err := errors.Join(readLevel(f.logLevel, &level), s.Reload(ctx)); err != nil {
			log.Error("settings were not reloaded", "error", err)
			return
		}
		log.Info("settings were reloaded")
	})()
	log.Info("serving", "listen", ln.Addr().String(), "url", s.PublicURL(), "environment", s.Environment(), "database", s.Engine(), "version", cfg.Release)
	return serveBoth(ctx, s, ln, f.metricsListen, log)
}

// collector returns where traces go: to the one that was named, or as the variables of OpenTelemetry say.
func collector(named string) string {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	switch base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); {
	case named != "":
		return named
	case os.Getenv("OTEL_SDK_DISABLED") == "true", exporter != "" && exporter != "otlp":
		return ""
	case os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "":
		return os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	case base != "":
		return strings.TrimRight(base, "/") + "/v1/traces"
	}
	return ""
}

// greet says on a terminal where the service is and what comes next: the link of the first person, who is an operator, while
// nobody has signed up. A log gets no link: who reads it could use it.
func greet(ctx context.Context, con *console, s *server.Server, cfg server.Config) error {
	if !isTerminal(con.err) {
		return nil
	}
	link, err := s.FirstLink(ctx)
	if err != nil {
		return err
	}
	con.say("", "Toll serves %s (%s, %s).", s.PublicURL(), s.Environment(), s.Engine())
	con.say("", "Read %s/docs; stop it with Ctrl-C.", s.PublicURL())
	if link != "" {
		con.say("", "Nobody has signed up yet. Who opens this link first runs the service; it works once, for a day:")
		con.say("", "  %s", link)
		return nil
	}
	where := "--data " + cfg.Data
	if cfg.Database != "" {
		where = "--database … --master-key-file …"
	}
	con.say("", "Next: toll keys create --local %s --account me", where)
	return nil
}

// reserve finds out whether the address can be had before the database is opened, as a first start writes it there. It
// keeps the listener only when the port is chosen by the system: nothing listens before the migrations have run.
func reservePort(ctx context.Context, address string) (net.Listener, error) {
	if _, port, _ := net.SplitHostPort(address); port == "0" || port == "" {
		return server.Listen(ctx, address)
	}
	return nil, server.CanListen(ctx, address)
}

// serveBoth serves callers and, when it is wanted, the operator. The end of one ends both.
func serveBoth(ctx context.Context, s *server.Server, ln net.Listener, metricsListen string, log *slog.Logger) error {
	if metricsListen == "" {
		return s.Serve(ctx, ln)
	}
	own, err := server.Listen(ctx, metricsListen)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	log.Info("metrics", "listen", own.Addr().String())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched, stop := context.WithCancel(context.WithoutCancel(ctx)) // a shutdown is watched to its end
	defer stop()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- s.ServeMetrics(watched, own)
	}()
	err = s.Serve(ctx, ln)
	stop()
	return errors.Join(err, <-done)
}

// onHangup calls reload for each SIGHUP until stop is called.
func onHangup(reload func()) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer close(done)
		for range signals {
			reload()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
