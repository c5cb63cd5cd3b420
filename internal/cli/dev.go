package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/paid"
)

type devFlags struct {
	data, listen, agentListen, chainListen, logLevel string
	once, history                                    bool
	gateway                                          bool
	gatewayListen                                    string
}

func devCommand(a *app) *cobra.Command {
	var f devFlags
	c := command("dev", "Run a complete demo on this machine", nil)
	c.Long = `Run a complete demo on this machine: a service with an embedded database, an embedded chain, and a test double of Stripe, a
builder with plans and a paid agent, and a subscriber. The subscriber buys a plan on the chain, makes a paid call, and buys another
plan with test cards. The agent also refuses calls without payment. A month of earlier sales fills the pages of the builder. The demo
then prints commands to paste, and keeps running until you press Ctrl-C or the output cannot be written.`
	c.Annotations = withoutProfile
	fl := c.Flags()
	fl.StringVar(&f.data, "data", "", "data directory to keep; default a temporary directory that is deleted at the end")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "address of the service; port 0 selects a free port")
	fl.StringVar(&f.agentListen, "agent-listen", "127.0.0.1:0", "address of the agent; port 0 selects a free port")
	fl.StringVar(&f.chainListen, "chain-listen", "127.0.0.1:0", "address on this machine where the chain answers JSON-RPC; port 0 selects a free port")
	fl.StringVar(&f.logLevel, "log-level", "warn", "log level of the service on stderr: debug, info, warn, or error")
	fl.BoolVar(&f.gateway, "gateway", false, "also run a chat gateway with a demo agent")
	fl.StringVar(&f.gatewayListen, "gateway-listen", "127.0.0.1:0", "address of the chat gateway; port 0 selects a free port")
	fl.BoolVar(&f.history, "history", true, "fill a new data directory with a month of sales")
	fl.BoolVar(&f.once, "once", false, "exit after the demonstration")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), a, f) }
	return c
}

func runDev(ctx context.Context, a *app, f devFlags) (err error) {
	if !rails.HasEmbeddedChain {
		return errors.New("this program was built without the embedded chain: take the file " + rails.FullArchive + " of a release")
	}
	log, err := a.newLog(f.logLevel)
	if err != nil {
		return err
	}
	// The system would end a program that writes to a pipe without a reader, and the data would stay.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shown := &watchedWriter{Writer: a.out, lost: cancel}
	a.out = shown
	var closing error
	defer func() {
		if ctx.Err() != nil && !f.once {
			err = nil // Ctrl-C is the normal end of the demo, even in the middle of a step
		}
		err = cmp.Or(shown.err, errors.Join(err, closing))
	}()
	s := &stage{out: a.out, colour: a.set.colour}
	s.title("Starting a demo on this machine")
	if f.data == "" {
		if f.data, err = os.MkdirTemp("", "toll-dev-"); err != nil {
			return err
		}
		defer func() { closing = errors.Join(closing, os.RemoveAll(f.data)) }()
	}
	m, err := openMarket(ctx, a, f, log, s)
	if err != nil {
		return err
	}
	// The people in the demonstration call over HTTP, so what serves them ends after them.
	endService := background(ctx, func(ctx context.Context) error { return m.service.Serve(ctx, m.serviceListener) })
	defer func() { closing = errors.Join(closing, endService(), m.service.Close(context.WithoutCancel(ctx))) }()
	var agent http.Handler
	if err := s.during("agent", "registering plans and agents", func() error { agent, err = m.seed(ctx); return err }); err != nil {
		return errors.Join(err, m.agentListener.Close())
	}
	endAgent := background(ctx, func(ctx context.Context) error { return serveGate(ctx, m.agentListener, nil, agent, m.queue) })
	defer func() { closing = errors.Join(closing, endAgent()) }()
	if err := s.during("chain", "starting", func() error { return m.awaitChain(ctx) }); err != nil {
		return err
	}
	if err := demonstrate(ctx, m, s); err != nil {
		return err
	}
	chat, endChat, err := startChat(ctx, f, m, s)
	if err != nil {
		return err
	}
	defer func() { closing = errors.Join(closing, endChat()) }()
	if f.once {
		return nil // commands to paste would end with what they call
	}
	if err := m.showCommands(ctx, s); err != nil {
		return err
	}
	if chat != nil {
		if err := m.showHosts(s, chat); err != nil {
			return err
		}
	}
	a.say("", "The demo keeps running. Press Ctrl-C to stop it.")
	<-ctx.Done()
	return nil
}

// background starts serve, which outlives ctx. The function that it returns ends it, and returns its error.
func background(ctx context.Context, serve func(context.Context) error) (end func() error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	return func() error {
		stop()
		return <-ended
	}
}

// watchedWriter keeps the first error of a writer, and tells of it.
type watchedWriter struct {
	io.Writer
	lost func()
	err  error
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil && w.err == nil {
		w.err = err
		w.lost()
	}
	return n, err
}

type market struct {
	dir             string
	service         *server.Server
	serviceListener net.Listener
	agentListener   net.Listener
	queue           *paid.Queue
	log             *slog.Logger
	worked          atomic.Int32 // how often the agent did

	builder, subscriber, visitor person
	planID, cardPlan             toll.PlanID
	agentID, cardAgent           toll.AgentID
	cardLimit                    string // delegation of the subscriber on a card
	password                     string // of Bob, the builder, and Alice, the subscriber
}

// person is an account with an API key.
type person struct {
	address toll.Address
	keyFile string
	client  *client.Client
}

const devLife = 7 * 24 * time.Hour

// Paths of the agent: paid in tokens, and by card.
const (
	devAgentPath = "/stats"
	devCardPath  = "/stats/card"
)

// url is the address of the service by name: browsers take no passkeys on an IP address.
func (m *market) url() string {
	_, port, _ := net.SplitHostPort(m.serviceListener.Addr().String())
	return "http://localhost:" + port
}

func (m *market) agent() string    { return "http://" + m.agentListener.Addr().String() }
func (m *market) agentURL() string { return m.agent() + devAgentPath }
func (m *market) cardURL() string  { return m.agent() + devCardPath }

func openMarket(ctx context.Context, a *app, f devFlags, log *slog.Logger, s *stage) (_ *market, err error) {
	m := &market{dir: f.data, queue: paid.NewQueue(), log: log}
	if m.serviceListener, err = server.Listen(ctx, f.listen); err != nil {
		return nil, err
	}
	if m.agentListener, err = server.Listen(ctx, f.agentListen); err != nil {
		return nil, errors.Join(err, m.serviceListener.Close())
	}
	if m.password, err = devPassword(f.data); err == nil && f.history && isEmpty(f.data) {
		err = s.during("sample sales", "adding a month of orders and requests", func() error { return makeHistory(ctx, a, m, f, s) })
	}
	if err == nil {
		err = s.during("service", "starting, with a test double of Stripe", func() error { m.service, err = server.New(ctx, m.config(a, f)); return err })
	}
	if err != nil {
		_ = m.serviceListener.Close() // the service of makeHistory may have closed it
		return nil, errors.Join(err, m.agentListener.Close())
	}
	return m, nil
}

// config is that of the service.
func (m *market) config(a *app, f devFlags) server.Config {
	return server.Config{
		Data: f.data, Listen: m.serviceListener.Addr().String(), PublicURL: m.url(), Release: release(), Log: m.log, LoopbackWebhooks: true,
		Namespace: a.flags.namespace,
		Rails:     rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainEmbedded, HTTP: f.chainListen}},
	}
}

// devPasswordFile has the password of both people of the market.
const devPasswordFile = "password"

// devPassword returns the password of the people of a data directory, which it makes for a new one.
func devPassword(dir string) (string, error) {
	file := filepath.Join(dir, devPasswordFile)
	b, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	password := strings.ToLower(rand.Text())
	return password, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, []byte(password+"\n"), 0o600))
}

// isEmpty reports whether a data directory holds nothing but the password.
func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) <= 1
}

// localPerson returns an API key of a person of the market, who signs up the first time.
func (m *market) localPerson(ctx context.Context, name string, life time.Duration) (toll.APIKey, error) {
	return m.service.LocalPerson(ctx, name, strings.ToLower(name), m.password, server.KeyRequest{Name: "toll dev", ExpiresIn: life, Operator: name == "Bob"})
}

// seed makes the people, the plan and the agent, and returns what serves it.
func (m *market) seed(ctx context.Context) (_ http.Handler, err error) {
	for name, p := range map[string]*person{"builder": &m.builder, "subscriber": &m.subscriber, "visitor": &m.visitor} {
		var key toll.APIKey
		switch p {
		case &m.builder:
			key, err = m.localPerson(ctx, "Bob", devLife)
		case &m.subscriber:
			key, err = m.localPerson(ctx, "Alice", devLife)
		default:
			key, err = m.service.CreateKey(ctx, server.KeyRequest{Account: "dev-" + name, Name: "toll dev", ExpiresIn: devLife})
		}
		if err != nil {
			return nil, err
		}
		p.address = key.Address
		p.keyFile = filepath.Join(m.dir, name+".key")
		// The demonstration goes on after a standstill, when the chain may be away for some seconds.
		p.client = client.New(key.Key, client.WithURL(m.url()), client.WithNamespace(m.service.Namespace()), client.WithRetries(6), client.WithMaxRetryWait(15*time.Second))
		if err := os.WriteFile(p.keyFile, []byte(key.Key+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	inTokens := toll.Price{
		TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(devPrice)}, Receivers: []toll.Address{m.builder.address}, IsCrypto: true,
	}
	inDollars, err := toll.PriceFiat(toll.UnitsOf(devCardPrice), m.builder.address, toll.CurrencyUSD)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	if err := m.sellHistory(ctx, mux); err != nil {
		return nil, err
	}
	m.planID, m.agentID, err = m.sell(ctx, mux, devAgentPath, inTokens, 100)
	if err == nil {
		m.cardPlan, m.cardAgent, err = m.sell(ctx, mux, devCardPath, inDollars, devCardCredits)
	}
	return mux, err
}

// sell registers the agent at a path with a plan, and has it take payment there.
func (m *market) sell(
	ctx context.Context, mux *http.ServeMux, path string, price toll.Price, credits toll.Credits,
) (toll.PlanID, toll.AgentID, error) {
	c := m.builder.client
	registered, err := c.RegisterAgentWithPlan(ctx,
		client.AgentParams{
			Metadata: toll.Metadata{Name: "Text statistics", Description: "Counts the characters, words, and sentences in a text", Tags: []string{"text"}},
			API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: http.MethodPost, URL: m.agent() + path}}},
		},
		client.PlanParams{
			Metadata: toll.Metadata{
				Name: "Text statistics, " + credits.Text(), Description: "One credit per 200 characters, rounded up",
			},
			Price:   price,
			Credits: toll.CreditsConfig{Amount: credits, MinAmount: 1, MaxAmount: devMaxCredits},
		})
	if err != nil {
		return "", "", err
	}
	m.serve(mux, path, registered.PlanID, registered.AgentID)
	return registered.PlanID, registered.AgentID, nil
}

// serve has an agent of the builder take payment at a path.
func (m *market) serve(mux *http.ServeMux, path string, plan toll.PlanID, agent toll.AgentID) {
	work := func(w http.ResponseWriter, r *http.Request) {
		m.worked.Add(1)
		statisticsAgent(w, r)
	}
	mux.Handle(path, paid.Handler(m.builder.client, http.HandlerFunc(work),
		paid.Plan(plan), paid.Agent(agent), paid.CreditsFunc(statisticsPrice), paid.MaxCredits(devMaxCredits),
		paid.PublicURL(m.agent()), paid.Description("Text statistics"), paid.MimeType("application/json"),
		paid.Log(m.log), paid.WithQueue(m.queue), paid.Namespace(m.service.Namespace())))
}

// sellHistory has the agents of the month take payment again, at the address that this market has.
func (m *market) sellHistory(ctx context.Context, mux *http.ServeMux) error {
	for a, err := range m.builder.client.Agents(ctx) {
		if err != nil {
			return err
		}
		for _, o := range devOffers {
			if a.Metadata.Name != o.name || len(a.Plans) == 0 {
				continue
			}
			m.serve(mux, o.path, a.Plans[0].PlanID, a.ID)
			api := toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: http.MethodPost, URL: m.agent() + o.path}}}
			if a.API.Endpoints[0].URL == api.Endpoints[0].URL {
				continue
			}
			if _, err := m.builder.client.UpdateAgent(ctx, a.ID, toll.AgentUpdate{Endpoints: toll.SetTo(api.Endpoints)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// program is how the person who reads this started the program, for commands to paste.
func program() string {
	path, err := os.Executable()
	if err != nil {
		return "toll"
	}
	if _, err := os.Stat(filepath.Join("cmd", "toll")); err == nil && ofGoRun.MatchString(filepath.ToSlash(path)) {
		return "go run ./cmd/toll"
	}
	if filepath.Base(os.Args[0]) == os.Args[0] {
		return quote(os.Args[0])
	}
	return quote(path)
}

// ofGoRun is where go run has a program: in the directory of one build, or in the cache of builds, wherever that is, under a hash.
var ofGoRun = regexp.MustCompile(`/go-build[0-9]*/|/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// quote makes a word of a shell.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Prices of the agent of toll dev.
const (
	devCharsPerCredit = 200
	devMaxCredits     = 5
	devMaxText        = 64 << 10
)

// textStatistics is what the agent of toll dev works out.
type textStatistics struct {
	Characters int `json:"characters"`
	Words      int `json:"words"`
	Sentences  int `json:"sentences"`
}

// measure counts. A word and a sentence have a letter or a digit.
func measure(text string) textStatistics {
	s := textStatistics{Characters: utf8.RuneCountInString(text)}
	counts := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, counts) {
			s.Words++
		}
	}
	for sentence := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(".!?…。！？", r) }) {
		if strings.ContainsFunc(sentence, counts) {
			s.Sentences++
		}
	}
	return s
}

// statisticsAgent takes plain text, or JSON with a member text. It knows nothing of payment.
func statisticsAgent(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, devMaxText))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, "the text is longer than 64 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "the text could not be read", http.StatusBadRequest)
		return
	}
	text := string(raw)
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		var in struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			http.Error(w, `send JSON such as {"text": "…"}, or plain text as text/plain`, http.StatusBadRequest)
			return
		}
		text = in.Text
	}
	if strings.TrimSpace(text) == "" || !utf8.ValidString(text) {
		http.Error(w, "the text is empty or not valid UTF-8", http.StatusBadRequest)
		return
	}
	b, _ := json.MarshalIndent(measure(text), "", "  ") // numbers always have an encoding
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // it fails only if the caller disconnected
}

// statisticsPrice charges one credit for each started 200 characters.
func statisticsPrice(_ *http.Request, answer paid.Response) toll.Credits {
	var s textStatistics
	if json.Unmarshal(answer.Body, &s) != nil {
		return 1
	}
	return toll.Credits(min((s.Characters+devCharsPerCredit-1)/devCharsPerCredit, devMaxCredits))
}
