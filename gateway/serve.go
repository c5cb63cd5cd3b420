package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// maxControl is the maximum size of a control request's body, in bytes.
const maxControl = 1 << 20

// Error codes of the control paths. Tools use the exported codes.
const (
	codeForbidden    Word = "forbidden"
	codeUnauthorized Word = "unauthorized"
	codeNotFound     Word = "not_found"
	codeTooLarge     Word = "too_large"
	codeBadRequest   Word = "bad_request"
	codeMismatch     Word = "registry_mismatch"
)

// Handler serves the control paths, MCP and, if enabled, the paid endpoint. All control paths except health require the core
// token. They reject unknown Host headers and any Origin, so that web pages cannot call them.
func (c *Core) Handler() http.Handler {
	control := http.NewServeMux()
	control.HandleFunc("GET /gateway/v1/tools", c.serveTools)
	control.HandleFunc("POST /gateway/v1/tools/{name}", c.serveTool)
	control.HandleFunc("POST /gateway/v1/hello", c.serveHello)
	control.HandleFunc("POST /gateway/v1/approval", c.serveApproval)
	control.HandleFunc("POST /gateway/v1/commands/{name}", c.serveCommand)
	control.HandleFunc("POST /gateway/v1/context", c.serveContext)
	control.Handle("/mcp", c.mcpHandler())
	control.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, codeNotFound, "This path does not exist.")
	})

	mux := http.NewServeMux()
	mux.HandleFunc("GET /gateway/v1/health", c.serveHealth)
	mux.Handle("/", c.withToken(control))
	guarded := c.guarded(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Compare the escaped path without cleaning it, so that only one spelling matches.
		if s := c.set(); s.paidEndpoint && r.URL.EscapedPath() == s.AgentEndpointPath {
			c.servePaid(w, r)
			return
		}
		pace.Body(w, r, maxControl, pace.Patience, pace.MinRate)
		guarded.ServeHTTP(w, r)
	})
}

// guarded rejects requests that may come from a web page: with an unknown Host or with an Origin.
func (c *Core) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !c.isHost(r.Host):
			fail(w, http.StatusForbidden, codeForbidden,
				"The core does not accept this Host header. The operator of the core can add it to the accepted hosts.")
		case len(r.Header.Values("Origin")) > 0:
			fail(w, http.StatusForbidden, codeForbidden, "Requests from web pages are not allowed.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isHost reports whether a Host header names loopback or, with or without its port, one of [Options.Hosts].
func (c *Core) isHost(host string) bool {
	host = strings.ToLower(host)
	name := (&url.URL{Host: host}).Hostname()
	return toll.IsLoopback(name) || slices.ContainsFunc(c.opts.Hosts, func(h string) bool {
		return h != "" && (strings.EqualFold(h, host) || strings.EqualFold(h, name))
	})
}

// withToken requires the core token or, at /mcp, the MCP token, and rejects a different registry hash. It does not read the body.
func (c *Core) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers := r.Header.Values("Authorization")
		kind, token, _ := strings.Cut(strings.Join(headers, ","), " ")
		if len(headers) != 1 || !strings.EqualFold(kind, "Bearer") || !c.isToken(strings.TrimSpace(token), r.URL.Path == "/mcp") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, codeUnauthorized, "The core token is missing or wrong.")
			return
		}
		if h := r.Header.Get(registryHeader); h != "" && h != c.hash {
			mismatch(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readAll reads the body of a control request, up to maxControl. On an error it writes the response and returns false.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControl))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		fail(w, http.StatusRequestEntityTooLarge, codeTooLarge, "The body is larger than 1 MiB.")
		return nil, false
	}
	if err != nil {
		fail(w, http.StatusBadRequest, codeBadRequest, "The body cannot be read.")
		return nil, false
	}
	return body, true
}

// registryHeader carries the hash of the plugin's registry on each call, because some instances of a plugin call without having
// sent a hello.
const registryHeader = "Toll-Registry"

func mismatch(w http.ResponseWriter) {
	fail(w, http.StatusConflict, codeMismatch, "The plugin and the core have different tools. Update the plugin or the core.")
}

// readBody decodes a control request into v. On an error it writes the response and returns false.
func readBody(w http.ResponseWriter, r *http.Request, v any) bool {
	body, ok := readAll(w, r)
	if ok && x402.Decode(body, v) != nil {
		fail(w, http.StatusBadRequest, codeBadRequest, "The body is not a valid JSON object for this path.")
		return false
	}
	return ok
}

// fail writes an error response.
func fail(w http.ResponseWriter, status int, code Word, message string) {
	answer(w, status, errorAnswer{&Error{Code: code, Message: message}})
}

type errorAnswer struct {
	Error *Error `json:"error"`
}

// answer writes a JSON response with Cache-Control: no-store.
func answer(w http.ResponseWriter, status int, body any) {
	b, err := x402.Encode(body)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"internal"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // fails if the caller has disconnected
}

type health struct {
	OK       bool   `json:"ok"`
	Version  string `json:"version"`
	Registry string `json:"registry"`
	LoggedIn bool   `json:"loggedIn"`
	Instance string `json:"instance"` // changes when the core restarts, so that plugins send a hello again
}

func (c *Core) serveHealth(w http.ResponseWriter, _ *http.Request) {
	_, err := c.account()
	answer(w, http.StatusOK, health{OK: true, Version: c.opts.Version, Registry: c.hash, LoggedIn: err == nil, Instance: c.instance})
}

type hello struct {
	Plugin        string          `json:"plugin"`
	PluginVersion string          `json:"pluginVersion"`
	Host          string          `json:"host"`
	HostVersion   string          `json:"hostVersion"`
	Registry      string          `json:"registry"`
	Guards        guards          `json:"guards"`
	Config        json.RawMessage `json:"config"`
}

// serveHello applies the configuration of a plugin. It rejects a plugin with a different registry, which could offer unknown arguments.
func (c *Core) serveHello(w http.ResponseWriter, r *http.Request) {
	var h hello
	if !readBody(w, r, &h) {
		return
	}
	if h.Registry != c.hash {
		mismatch(w)
		return
	}
	config := Config{}
	var ignored []string
	var err error
	if len(h.Config) > 0 && string(h.Config) != "null" {
		config, err = ParseConfig(h.Config, c.opts.Names)
	}
	if err == nil {
		ignored, err = c.configure(config, h.Guards)
	}
	if err != nil {
		answer(w, http.StatusBadRequest, errorAnswer{configError(err)})
		return
	}
	c.log.Info("hello", "plugin", plain.Text(h.Plugin, 60), "version", plain.Text(h.PluginVersion, 60),
		"host", plain.Text(h.Host, 60), "hostVersion", plain.Text(h.HostVersion, 60))
	answer(w, http.StatusOK, struct {
		OK       bool     `json:"ok"`
		Warnings []string `json:"warnings"`
	}{true, append(ignoredWarnings(ignored), c.helloWarnings(r.Context(), h.Guards)...)})
}

// configError returns the first [Error] in err, or else a general [InvalidParams] error.
func configError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return errorf(InvalidParams, "The configuration is invalid.")
}

// ignoredWarnings returns a warning for each ignored field of a plugin's configuration.
func ignoredWarnings(fields []string) []string {
	warnings := []string{}
	for _, f := range fields {
		warnings = append(warnings, f+" of the plugin was ignored: a plugin can only restrict what the core allows. "+
			"Set it in the configuration file or the environment of the core.")
	}
	return warnings
}

// helloTime limits the calls to the service during a hello.
const helloTime = 5 * time.Second

// helloWarnings returns warnings for the log of a host about inactive guards and a paid endpoint that cannot serve.
func (c *Core) helloWarnings(ctx context.Context, g guards) []string {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	warnings := []string{}
	if s := c.set(); s.keyPaste && !(g.Write && g.Run) {
		warnings = append(warnings,
			"The login command does not accept keys, because the plugin cannot keep them out of prompts and transcripts.")
	}
	if err := c.CheckPaidEndpoint(ctx); err != nil {
		warnings = append(warnings, redact("The paid endpoint is not available: "+asError(err).Error()))
	}
	return warnings
}

func (c *Core) serveTool(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if c.tools[name] == nil {
		fail(w, http.StatusNotFound, UnknownTool, "This tool does not exist.")
		return
	}
	var in struct {
		Params json.RawMessage `json:"params"`
		CallID string          `json:"callId"`
		Caller Caller          `json:"caller"`
	}
	if !readBody(w, r, &in) {
		return
	}
	if r.Header.Get(registryHeader) != "" && c.tools[name].effect != EffectRead && !c.isGreeted() {
		// The limits in the plugin's configuration are not known yet.
		e := errorf(ServiceUnavailable, "The plugin has not sent its configuration since the core started.").
			withHint("Retry in 15 seconds. The chat host must be running.")
		e.Retryable = true
		answer(w, http.StatusOK, errorAnswer{e})
		return
	}
	result, err := c.Call(r.Context(), name, in.Params, in.CallID, in.Caller)
	if err != nil {
		answer(w, http.StatusOK, errorAnswer{asError(err)})
		return
	}
	answer(w, http.StatusOK, map[string]json.RawMessage{"result": result})
}

func (c *Core) serveCommand(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name != c.opts.Names.Command(actLogin) && name != c.opts.Names.Command(actLogout) {
		fail(w, http.StatusNotFound, codeNotFound, "This command does not exist.")
		return
	}
	var in struct {
		Args   string `json:"args"`
		Caller Caller `json:"caller"`
	}
	if !readBody(w, r, &in) {
		return
	}
	if err := in.Caller.check(""); err != nil {
		answer(w, http.StatusBadRequest, errorAnswer{asError(err)})
		return
	}
	answer(w, http.StatusOK, map[string]string{"text": c.runCommand(r.Context(), name, in.Args, in.Caller)})
}

func (c *Core) serveContext(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Caller Caller `json:"caller"`
	}
	if !readBody(w, r, &in) {
		return
	}
	if err := in.Caller.check(""); err != nil {
		answer(w, http.StatusBadRequest, errorAnswer{asError(err)})
		return
	}
	answer(w, http.StatusOK, struct {
		PrependContext string `json:"prependContext,omitempty"`
	}{c.promptContext(r.Context())})
}
