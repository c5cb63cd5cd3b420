package cli

import (
	"cmp"
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

// storeFlags adds the flags that name the database of a command, and what the first start writes there.
func storeFlags(cmd *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("store", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Environment), "environment", "", "sandbox or live; defaults to the environment of the database, or to sandbox for a new database")
	f.StringVar(&cfg.KeyPrefix, "key-prefix", "", "prefix of new API keys; default the prefix in the database, "+
		"or at the first start the environment (with --namespace: \"local\")")
	f.StringVar(&cfg.Data, "data", "", "data directory; default "+server.DefaultData+" unless --database is set")
	f.StringVar(&cfg.Database, "database", "", "postgres:// address")
	f.StringVar(&cfg.MasterKeyFile, "master-key-file", "", "file with the key that encrypts secrets; or set the key itself in TOLL_MASTER_KEY")
	f.StringVar(&cfg.OtherMasterKeyFile, "other-master-key-file", "",
		"file with the previous or next master key, which only decrypts secrets; set it only while you rotate the master key")
	f.BoolVar(&cfg.LocalMasterKey, "allow-local-master-key", false, "allow the live environment to use the master key that was created in the data directory")
	secret(cmd, &cfg.MasterKey, "master-key")
	f.Var(&cfg.Namespace, "namespace", "brand names that the service uses in schemes, headers, and paths, separated by commas, "+
		"such as acme,Acme,acme; default the names in the database")
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
			f.cfg.Drain = 0 // no load balancer has to notice, and a person is waiting
		}
		return runServe(cmd.Context(), a, f, settingsOf(cmd))
	})
	c.Long = `Run the service. It starts to listen when its database is up to date, and is ready when GET /ready returns 200.

Without --database, all data is stored in one directory, for one process. With PostgreSQL, any number of processes can run;
all of them need the same master key file. SIGTERM shuts the service down gracefully: GET /ready returns 503, the service accepts
new requests for the time in --drain, and it then finishes the requests in flight.`
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
	fl.StringVar(&f.cfg.PublicURL, "public-url", "", "public URL of the service; defaults to the URL that was set at its first start")
	fl.StringVar(&f.cfg.TokenFormat, "token-format", "", "default format of access tokens, jwt or x402")
	fl.IntVar(&f.cfg.RateLimitKey, "rate-limit-key", 0, "requests per second for each API key, in bursts of up to four times as many; 0 means no limit")
	fl.IntVar(&f.cfg.RateLimitIP, "rate-limit-ip", 50, "requests per second for each address without a valid API key, in bursts of up to four times as many; 0 means no limit")
	fl.DurationVar(&f.cfg.Drain, "drain", 5*time.Second, "how long the service accepts requests after SIGTERM while GET /ready returns 503, so that "+
		"load balancers notice; at most 10s; on a terminal 0s")
	fl.DurationVar(&f.cfg.OrderWait, "order-wait", 0, "how long the response to an order waits for the credits; default 30s, or 10s on the embedded chain")
	fl.IntVar(&f.cfg.RetainDays, "retain-days", server.DefaultRetainDays, "days to keep requests after their access token ends, and days to keep events; -1 keeps them forever")
	fl.StringVar(&f.cfg.TemporaryDir, "tmp", "", "folder for the unencrypted copy of the database during a backup; default the data directory")
	fl.BoolVar(&f.cfg.CloseReads, "close-reads", false, "require an API key to read plans, agents, and balances")
	fl.BoolVar(&f.cfg.IgnoreOrganizations, "ignore-organizations", false, "accept requests with an API key even if X-Current-Org-Id names an organization of another service")
	fl.StringVar(&f.cfg.Brand.Name, "brand-name", "", "name of the service on its pages; default Toll")
	fl.StringVar(&f.cfg.Brand.Color, "brand-color", "", "accent color of the pages, such as #0b6e63")
	fl.StringVar(&f.cfg.Brand.Logo, "brand-logo", "", "logo on the pages: a PNG or SVG file of at most 256 KiB")
	fl.StringVar(&f.cfg.Published, "published", "", "registries on which you have published the SDKs, separated by commas: npm, pypi, go; "+
		"default none, and pages show how to install the SDKs from this service")
	fl.StringVar(&f.cfg.GoRepository, "go-repository", "", "module path of your repository of the Go SDK, such as git.example.com/acme/toll@v1.1.0; default none")
	fl.BoolVar(&f.cfg.LoopbackWebhooks, "loopback-webhooks", false, "allow webhooks of a sandbox to addresses on this machine, also with http")
	fl.StringVar(&f.cfg.Exact, "x402-exact", "",
		"payments that wallets without an account can make: off, plans (default), or open, which adds payments to other servers")
	fl.BoolVar(&f.cfg.SignedReceipts, "x402-receipts", false, "sign a receipt for every settlement, which takes about 800 bytes of storage")
	fl.StringVar(&f.cfg.ExactTreasury, "x402-treasury", "",
		"receiver of payments from wallets without an account, which can then also buy plans with several receivers; default the receiver in the price")
	fl.StringVar(&f.metricsListen, "metrics-listen", "", "address on which the operator reads /metrics; off by default")
	fl.StringVar(&f.cfg.Traces, "traces", "", "OpenTelemetry collector that receives traces over HTTP, such as http://127.0.0.1:4318; default OTEL_EXPORTER_OTLP_ENDPOINT, or none")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn, error, or @FILE; the file contains the level and is read again on SIGHUP")
	fl.StringVar(&f.logFormat, "log-format", "", "text or json; default text on a terminal, otherwise json")
	addWithEnv(c, fl)
	return c
}

// listenFlags adds the flags for the listener, proxies and backups.
func listenFlags(c *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("places", pflag.ContinueOnError)
	f.StringVar(&cfg.Listen, "listen", server.DefaultListen, "address to listen on")
	f.StringVar(&cfg.TrustedProxies, "trusted-proxies", "", "addresses or prefixes of proxies whose X-Forwarded-For is trusted, separated by commas; default none")
	f.StringVar(&cfg.Backups.Dir, "backup-dir", "",
		"folder on another disk, or s3://bucket/prefix, for encrypted backups of the embedded database; default none. "+
			"If the disk fails, all data since the newest backup is lost; without backups, all data is lost")
	f.DurationVar(&cfg.Backups.Every, "backup-every", 24*time.Hour, "interval between backups, at least 10m")
	f.IntVar(&cfg.Backups.Keep, "backup-keep", 7, "number of backups to keep; -1 keeps all")
	addWithEnv(c, f)
}

// peopleFlags adds the flags for the sign-in of people.
func peopleFlags(c *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("people", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Registration), "registration", "", "registration of people: open or invited; default open in a sandbox, invited on live")
	f.BoolVar(&cfg.NoPasswords, "no-passwords", false,
		"reject passwords; people then sign in with a passkey, a wallet, a code by mail, or the sign-in provider")
	f.StringVar(&cfg.Mail.URL, "smtp-url", "",
		"mail server for sign-in codes, smtp://user@host:587 or smtps://user@host:465, with the password in TOLL_SMTP_PASSWORD; default none")
	f.StringVar(&cfg.Mail.From, "mail-from", "", "sender address of mails, such as pay@example.com")
	f.StringVar(&cfg.OIDC.Issuer, "oidc-issuer", "", "OpenID Connect provider with which people sign in, such as https://id.example.com; default none")
	f.StringVar(&cfg.OIDC.ClientID, "oidc-client-id", "", "client id of this service at the provider; set the client secret in TOLL_OIDC_CLIENT_SECRET")
	f.StringVar(&cfg.OIDC.Name, "oidc-name", "", "name of the provider on the sign-in button; default its host")
	addWithEnv(c, f)
	secret(c, &cfg.Mail.Password, "smtp-password")
	secret(c, &cfg.OIDC.ClientSecret, "oidc-client-secret")
}

// objectStoreFlags adds the flags for an S3-compatible store.
func objectStoreFlags(c *cobra.Command, cfg *server.Config) {
	o := &cfg.ObjectStore
	f := pflag.NewFlagSet("object store", pflag.ContinueOnError)
	f.StringVar(&o.Endpoint, "s3-endpoint", "", "S3-compatible store for s3:// addresses, such as https://s3.example.com; default Amazon S3")
	f.StringVar(&o.Region, "s3-region", "", "region of the store; default us-east-1")
	f.StringVar(&o.KeyFile, "s3-key-file", "", "file with the id and the secret of an access key, mode 0600; or set TOLL_S3_ACCESS_KEY and TOLL_S3_SECRET_KEY")
	addWithEnv(c, f)
	secret(c, &o.AccessKey, "s3-access-key")
	secret(c, &o.SecretKey, "s3-secret-key")
}

// quotaFlags adds the flags for the quotas of a workspace: how many records of each kind it may have, and add in an hour. The service sets the defaults.
func quotaFlags(c *cobra.Command, cfg *server.Config) {
	f := pflag.NewFlagSet("quotas", pflag.ContinueOnError)
	q := &cfg.Quotas
	inForce := func(value *int64, name, what string, usual int) {
		f.Int64Var(value, name, 0, fmt.Sprintf("maximum %s per workspace; 0 means %d; -1 means no limit", what, usual))
	}
	hourly := func(value *int64, name, what string, usual int) {
		f.Int64Var(value, name, 0, fmt.Sprintf("maximum %s per workspace and hour; 0 means %d; -1 means no limit", what, usual))
	}
	inForce(&q.Agents, "max-agents", "agents", 10_000)
	inForce(&q.Plans, "max-plans", "plans", 10_000)
	inForce(&q.APIKeys, "max-keys", "active API keys", 1_000)
	inForce(&q.Delegations, "max-delegations", "active delegations", 10_000)
	hourly(&q.Orders, "max-hourly-orders", "orders", 3_600)
	hourly(&q.Permissions, "max-hourly-permissions", "permissions", 36_000)
	hourly(&q.FreeHolds, "max-hourly-free-holds", "holds of 0 credits", 36_000)
	hourly(&q.SubTasks, "max-hourly-sub-tasks", "sub-tasks", 360_000)
	hourly(&q.Changes, "max-hourly-changes", "other requests that create or change records", 36_000)
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
	defer onHangup(func() {
		if err := errors.Join(readLevel(f.logLevel, &level), s.Reload(ctx)); err != nil {
			log.Error("failed to reload settings", "error", err)
			return
		}
		log.Info("reloaded settings")
	})()
	log.Info("serving", "listen", ln.Addr().String(), "url", s.PublicURL(), "environment", s.Environment(), "database", s.Engine(), "version", cfg.Release)
	if err := greet(ctx, &a.console, s, cfg); err != nil {
		return errors.Join(err, ln.Close())
	}
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

// greet prints the address of the service and the next step on a terminal.
func greet(ctx context.Context, con *console, s *server.Server, cfg server.Config) error {
	if !isTerminal(con.err) {
		return nil
	}
	link, err := s.FirstLink(ctx)
	if err != nil {
		return err
	}
	greeting(con, s, cfg, link)
	return nil
}

// greeting prints the address and, until the first person has signed up, the link with which this person becomes the operator. The link is
// not logged, because any reader of the log could use it.
func greeting(con *console, s *server.Server, cfg server.Config, link string) {
	con.say("", "Toll is running at %s (%s, %s). Press Ctrl-C to stop.", s.PublicURL(), s.Environment(), s.Engine())
	if link != "" {
		con.say("", "Sign up as the operator. This link works once, within a day:")
		con.say("", "  %s", link)
	} else {
		where := "--data " + cmp.Or(cfg.Data, server.DefaultData)
		if cfg.Database != "" {
			where = "--database … --master-key-file …"
		}
		con.say("", "Next: toll keys create --local %s --account me", where)
	}
	con.say("", "Documentation: %s/docs", s.PublicURL())
}

// reservePort checks that the address is free before the database is opened, because a first start stores the address there. It
// returns the listener only if the system chose the port; otherwise nothing listens before the migrations have run.
func reservePort(ctx context.Context, address string) (net.Listener, error) {
	if _, port, _ := net.SplitHostPort(address); port == "0" || port == "" {
		return server.Listen(ctx, address)
	}
	return nil, server.CanListen(ctx, address)
}

// serveBoth serves callers and, if metricsListen is set, the metrics of the operator. When one of them ends, both end.
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
