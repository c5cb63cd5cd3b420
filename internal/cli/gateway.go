package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/server"
)

func gatewayCommand(a *app) *cobra.Command {
	c := group("gateway", "Let agents in a chat host buy and sell", `Run the core of the chat gateway, which serves the plugins of chat hosts, or provide its tools to an MCP host.

The core uses the first API key that it finds: from a login in the chat, the plugin's configuration, TOLL_API_KEY, or the --config file.`,
		gatewayServe(a), gatewayMCP(a), gatewayToken(a), gatewayAsk(a), gatewayDoctor(a), gatewayManifest(&a.console))
	c.Annotations = withoutProfile // a profile's key may be of another service than the file's address
	return c
}

// coreFlags are those of every command that runs a core.
type coreFlags struct {
	data, config, logLevel string
}

func (f *coreFlags) add(c *cobra.Command) {
	f.addData(c)
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration file: one JSON object with the fields of the plugin; - reads standard input")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn, or error")
}

// addData adds the data directory. Its variable is not that of a service on the same machine.
func (f *coreFlags) addData(c *cobra.Command) {
	c.Flags().StringVar(&f.data, "data", "", "data directory for the core token, the login, and its encryption key; default ~/.toll/gateway (TOLL_GATEWAY_DATA)")
	annotate(c.Flags(), "data", annotationEnv, "TOLL_GATEWAY_DATA")
}

// dir is the data directory.
func (f *coreFlags) dir(a *app) (string, error) {
	if f.data != "" {
		return f.data, nil
	}
	home := a.getenv("HOME")
	if home == "" {
		return "", usagef("there is no home directory: set the data directory with --data")
	}
	return filepath.Join(home, ".toll", "gateway"), nil
}

// options are those of a core by the flags, the file and the environment, in this order.
func (f *coreFlags) options(a *app) (opts gateway.Options, err error) {
	if opts.Log, err = a.newLog(f.logLevel); err != nil {
		return opts, err
	}
	if opts.Dir, err = f.dir(a); err != nil {
		return opts, err
	}
	if opts.Config, err = gatewayConfig(&a.console, f.config); err != nil {
		return opts, err
	}
	opts.Names, opts.Version = a.set.names, release()
	return opts, nil
}

// readGatewayFile reads the file of --config, or standard input for "-".
func readGatewayFile(con *console, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(con.in, maxArgument))
	}
	return os.ReadFile(path)
}

// gatewayConfig reads the file, and lets the environment win over it.
func gatewayConfig(con *console, path string) (c gateway.Config, err error) {
	if path != "" {
		b, err := readGatewayFile(con, path)
		if err != nil {
			return c, fmt.Errorf("configuration: %w", err)
		}
		if c, err = gateway.ParseConfig(b, con.set.names); err != nil {
			return c, usagef("%s: %w", path, err)
		}
	}
	key, err := con.keyInFile()
	if err != nil {
		return c, err
	}
	c.APIKey = cmp.Or(key, strings.TrimSpace(con.getenv("TOLL_API_KEY")), c.APIKey)
	c.BaseURL = cmp.Or(con.flags.url, con.getenv("TOLL_URL"), c.BaseURL)
	if e := con.getenv("TOLL_ENVIRONMENT"); e != "" {
		c.Environment = toll.Environment(strings.ToLower(e))
	}
	return c, nil
}

// minCoreToken is the length of the shortest core token: whoever guesses it spends as the owner.
const minCoreToken = 32

type gatewayServeFlags struct {
	coreFlags
	listen, certFile, keyFile, token string
	hosts                            []string
}

func gatewayServe(a *app) *cobra.Command {
	var f gatewayServeFlags
	c := command("serve", "Run the core of the chat gateway", func(cmd *cobra.Command, _ []string) error {
		return serveGateway(cmd.Context(), a, f)
	})
	c.Long = `Run the core of the chat gateway, which serves the plugins of chat hosts. It also serves its tools over MCP at /mcp.

Plugins need the core token: TOLL_GATEWAY_TOKEN, or the file gateway.token in the data directory. The first start creates this file.
MCP hosts need the token that toll gateway token --mcp prints. An address that other machines can reach needs a certificate. The paid
endpoint needs no core token: a public proxy should forward only its path.`
	c.Example = "toll gateway serve\ntoll gateway serve --config gateway.json --data ./gateway-data"
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", gateway.DefaultListen, "address to listen on")
	fl.StringVar(&f.certFile, "tls-cert", "", "certificate (PEM file); required for addresses other than loopback")
	fl.StringVar(&f.keyFile, "tls-key", "", "private key of the certificate (PEM file)")
	fl.StringArrayVar(&f.hosts, "allow-host", nil, "additional Host header to accept, besides the names of this machine")
	secret(c, &f.token, "gateway-token")
	return c
}

func serveGateway(ctx context.Context, a *app, f gatewayServeFlags) error {
	opts, err := f.options(a)
	if err != nil {
		return err
	}
	certificates, err := f.certificates()
	if err != nil {
		return err
	}
	if f.token != "" && len(f.token) < minCoreToken {
		return usagef("TOLL_GATEWAY_TOKEN must have at least %d characters; it has %d. toll gateway token prints a suitable token", minCoreToken, len(f.token))
	}
	ln, err := server.Listen(ctx, f.listen)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	opts.CoreToken, opts.Hosts = f.token, f.hosts
	opts.Listen = ln.Addr().String() // with the port that --listen may leave open
	core, err := gateway.New(opts)
	if err != nil {
		return err
	}
	defer core.Close()
	if err := core.CheckPaidEndpoint(ctx); err != nil {
		if e, ok := errors.AsType[*gateway.Error](err); ok && e.Code == gateway.InvalidParams {
			return err
		}
		opts.Log.Warn("the paid endpoint is not available yet", "error", err)
	}
	opts.Log.Info("gateway", "listen", ln.Addr().String(), "data", opts.Dir, "version", opts.Version)
	ln = pace.Limit(pace.Listen(ln, pace.Patience, pace.MinRate), pace.MaxConns, pace.MaxConnsOf)
	if certificates != nil {
		ln = tls.NewListener(ln, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	return serveCore(ctx, core, ln, opts.Log)
}

// serveCore serves a core until ctx ends, and lets requests finish then.
func serveCore(ctx context.Context, core *gateway.Core, ln net.Listener, log *slog.Logger) error {
	h := &http.Server{
		Handler:           core.Handler(),
		ReadHeaderTimeout: pace.Patience,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         pace.ConnState,
	}
	h.RegisterOnShutdown(core.EndSessions)
	return server.ServeUntil(ctx, h, ln, 20*time.Second)
}

// certificates reads --tls-cert and --tls-key, which an address that others reach needs.
func (f *gatewayServeFlags) certificates() ([]tls.Certificate, error) {
	switch host, _, err := net.SplitHostPort(f.listen); {
	case err != nil:
		return nil, usagef("--listen must be an address with a port; got %q", f.listen)
	case (f.certFile == "") != (f.keyFile == ""):
		return nil, usagef("--tls-cert and --tls-key must be set together")
	case f.certFile == "" && !toll.IsLoopback(host):
		return nil, usagef("--listen %s is reachable from other machines: set --tls-cert and --tls-key", f.listen)
	case f.certFile == "":
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	return []tls.Certificate{pair}, nil
}

func gatewayMCP(a *app) *cobra.Command {
	var f coreFlags
	c := command("mcp", "Provide the tools of the gateway to an MCP host", func(cmd *cobra.Command, _ []string) error {
		opts, err := f.options(a)
		if err != nil {
			return err
		}
		core, err := gateway.New(opts)
		if err != nil {
			return err
		}
		defer core.Close()
		return core.ServeMCP(cmd.Context(), io.NopCloser(a.in), a.out)
	})
	c.Long = `Serve the tools of the chat gateway over standard input and output, for a host that starts MCP servers itself. The user who starts
the command has the rights of the gateway's owner. For a host that connects to a URL, use the address of toll gateway serve with the
path /mcp, and the token that toll gateway token --mcp prints.`
	c.Example = "toll gateway mcp"
	f.add(c)
	return c
}

func gatewayToken(a *app) *cobra.Command {
	var f coreFlags
	var rotate, forMCP bool
	var set string
	c := command("token", "Print the core token or the MCP token", func(cmd *cobra.Command, _ []string) error {
		dir, err := f.dir(a)
		if err != nil {
			return err
		}
		read := gateway.CoreToken
		if rotate {
			read = gateway.RotateCoreToken
		}
		token, err := set, error(nil)
		if !forMCP || rotate || set == "" {
			token, err = read(dir)
		}
		if err != nil {
			return err
		}
		if forMCP {
			token = gateway.MCPToken(token)
		}
		_, err = fmt.Fprintln(a.out, token)
		return err
	})
	c.Long = `Print the core token, with which plugins call the core. With --mcp, print the token for MCP hosts, which is valid only at /mcp.
The first call creates both tokens.

--rotate replaces both tokens immediately, including in a running core. The MCP token is derived from the core token: if you set
TOLL_GATEWAY_TOKEN for the core, also set it for toll gateway token --mcp.`
	c.Example = "toll gateway token\ntoll gateway token --mcp\ntoll gateway token --rotate"
	f.addData(c)
	secret(c, &set, "gateway-token")
	c.Flags().BoolVar(&forMCP, "mcp", false, "print the MCP token")
	c.Flags().BoolVar(&rotate, "rotate", false, "replace both tokens; the old tokens stop working")
	return c
}

func gatewayManifest(con *console) *cobra.Command {
	var out string
	c := command("manifest", "Write the files that a plugin needs from the core", func(cmd *cobra.Command, _ []string) error {
		files, err := gateway.Manifest(con.set.names)
		if err != nil {
			return err
		}
		for name, text := range files {
			path := filepath.Join(out, filepath.FromSlash(name))
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644))
			if err != nil {
				return fmt.Errorf("manifest: %w", err)
			}
		}
		return nil
	})
	c.Long = `Write the manifest of the OpenClaw plugin and its registry of tools. With --namespace, the files are for the plugin of another brand.`
	c.Example = "toll gateway manifest --out gateway/openclaw"
	c.Flags().StringVar(&out, "out", "", "directory of the plugin")
	require(c, "out")
	return c
}
