// Command bench measures the service side by side with handlers that do less, on loopback and with 64 connections:
//
//	go run ./bench
//
// PostgreSQL is measured on the cluster of TOLL_TEST_POSTGRES, which make bench starts.
//
// The service, the agent and the echo handlers are processes of their own, as in production; this one only loads them, in rounds of short
// slices, so that whatever else the machine does meets all rows alike. Only ratios mean anything on another machine: to an echo, and for
// orders that are paid on the embedded chain to the time that this chain takes for a plain transfer. At the end every ledger is audited,
// its burns are counted against the answered settlements, and paid orders against the transfers on the chain.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func main() {
	if os.Getenv(childEnv) != "" {
		if err := childMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds    int
	seconds   float64
	accounts  int
	scenarios string
	profiles  string
	json      string
	data      string
	noDB      bool
	loads     []float64
	guard     string
	rows      int
	cold      int
	processes int
	peers     bool
	sdks      bool
}

func parse(args []string, errs io.Writer) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errs)
	f.IntVar(&o.rounds, "rounds", 5, "`number` of rounds; a row is the median of its rounds")
	f.Float64Var(&o.seconds, "seconds", 2, "`length` of a slice in seconds; there is one slice for each scenario and round")
	f.IntVar(&o.accounts, "accounts", 1000, "`number` of subscribers, at least 64")
	f.StringVar(&o.scenarios, "scenario", "", "regular `expression` of the scenarios to run, empty for all; json-echo always runs")
	f.StringVar(&o.profiles, "profile", "", "`directory` for CPU profiles of the processes under test, one for each slice")
	f.StringVar(&o.json, "json", "bench/results/latest.json", "`file` for the results; leave empty to write no file")
	f.StringVar(&o.data, "data", "", "`directory` for the databases; leave empty for the temporary directory")
	f.BoolVar(&o.noDB, "no-postgres", false, "skip PostgreSQL")
	f.StringVar(&o.guard, "guard", "", "`program` of another commit: compare verify and settle with it, and fail if they are slower")
	f.IntVar(&o.rows, "rows", 3_000_000, "`number` of settlements in a database that is compared with an empty one")
	f.IntVar(&o.cold, "cold", 4096, "`number` of subscribers, at least 64; each settles once after a start of the service")
	f.IntVar(&o.processes, "processes", 2, "`number` of services on one PostgreSQL in processes-settle-postgres")
	f.BoolVar(&o.peers, "peers", false, "also measure a handler with one transaction for each settlement")
	f.BoolVar(&o.sdks, "sdks", false, "also measure the middlewares of all languages, which must be built first")
	o.loads = []float64{0.5}
	const loads = "rates of the open loops, as `shares` of the rate of the closed loop, such as 0.5,0.8,1.2 (default 0.5)"
	f.Func("loads", loads, func(text string) error {
		o.loads = nil
		for part := range strings.SplitSeq(text, ",") {
			share, err := strconv.ParseFloat(part, 64)
			if err != nil || share <= 0 || share > 10 {
				return errors.New("shares must be above 0 and at most 10")
			}
			o.loads = append(o.loads, share)
		}
		return nil
	})
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.seconds <= 0 || o.accounts < connections ||
		o.cold < connections || o.rows < 1 || o.processes < 2 {
		f.Usage()
		return o, errors.New("-rounds, -seconds, and -rows must be positive, -accounts and -cold at least 64, " +
			"and -processes at least 2; other arguments are not accepted")
	}
	return o, nil
}

// bench is one run.
type bench struct {
	options
	dir     string
	errs    io.Writer
	report  *report
	cluster *cluster
	markets map[string]*market
	echo    *process
	chosen  []*scenario
	runs    map[*scenario]func(warm, window time.Duration) *slice // nil: it is missing
}

func run(ctx context.Context, args []string, out, errs io.Writer) (err error) {
	o, err := parse(args, errs)
	if err != nil {
		return err
	}
	if o.guard != "" {
		return guard(ctx, o.guard, out, errs)
	}
	match, err := regexp.Compile(o.scenarios)
	if err != nil {
		return err
	}
	b := &bench{options: o, errs: errs, markets: map[string]*market{}, runs: map[*scenario]func(warm, window time.Duration) *slice{}}
	if b.chosen, err = choose(b.all(), match.MatchString); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(o.data, "toll-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.report = &report{
		Commit: commit(), Go: runtime.Version(), System: system(), CPUs: runtime.NumCPU(), Started: time.Now().UTC(), LoadBefore: loadAverage(),
		Connections: connections, Accounts: o.accounts, Rounds: o.rounds, Seconds: o.seconds, Profiled: o.profiles != "",
	}
	if b.report.FlushMicros, err = flushMicros(b.dir); err != nil {
		return err
	}
	err = b.prepare(ctx)
	if err == nil {
		err = b.measure(ctx)
	}
	if e := b.close(); err != nil || e != nil {
		return errors.Join(err, e)
	}
	b.report.LoadAfter = loadAverage()
	b.report.sum()
	if err := b.report.table(out); err != nil {
		return err
	}
	if o.json != "" {
		if err := b.report.write(o.json); err != nil {
			return err
		}
	}
	if len(b.report.Faults) > 0 {
		return errors.New("the run failed")
	}
	return nil
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.errs, "bench: "+format+"\n", args...) }

// prepare starts what the chosen scenarios need.
func (b *bench) prepare(ctx context.Context) error {
	if b.profiles != "" {
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return err
		}
	}
	want, agents, why := map[string]bool{}, map[string]bool{}, ""
	cold, peers := map[string]int{}, map[string]bool{}
	for _, s := range b.chosen {
		want[s.engine] = true
		agents[s.engine] = agents[s.engine] || s.agent
		peers[s.engine] = peers[s.engine] || s.peer
		if s.cold {
			cold[s.engine] = b.cold
		}
	}
	if want[postgres] || want[full+postgres] {
		var err error
		if b.noDB {
			err = errors.New("skipped by -no-postgres")
		} else {
			b.cluster, err = openCluster(ctx)
		}
		if err != nil {
			why = "no PostgreSQL: " + err.Error()
			b.say("%s", why)
		}
	}
	if !want[sqlite] && b.cluster == nil {
		want[sqlite] = true // someone must make tokens for the echo
	}
	for _, engine := range []string{sqlite, postgres, full + sqlite, full + postgres} {
		if !want[engine] || kindOf(engine) == postgres && b.cluster == nil {
			continue
		}
		r, err := b.roleOf(ctx, engine)
		if err != nil {
			return err
		}
		if err := os.Mkdir(r.Data, 0o700); err != nil {
			return err
		}
		b.say("creating agents, plans, and subscribers on %s", engine)
		m, err := openMarket(ctx, engine, r, b.accounts, cold[engine], agents[engine])
		if err != nil {
			return err
		}
		b.markets[engine] = m
		if b.sdks && engine == sqlite {
			if err := m.startSDKs(); err != nil {
				return err
			}
		}
		if engine != m.engine {
			b.say("loading %d settlements", b.rows)
			begun := time.Now()
			if err := m.loadUp(b.rows); err != nil {
				return err
			}
			b.say("loaded in %.0f s, waiting for their events", time.Since(begun).Seconds())
			behind, err := m.waitForEvents(m.settled, begun.Add(derivePatience))
			if err != nil {
				return err
			}
			b.say("after %.0f s, %d settlements still have no event", time.Since(begun).Seconds(), behind)
		}
		if peers[engine] {
			if r, err = b.roleOf(ctx, "peer-"+engine); err != nil {
				return err
			}
			if m.peer, err = spawn("peer-"+engine, role{Peer: &peerRole{r, m.sample}}); err != nil {
				return err
			}
		}
	}
	if want[onChain] {
		r := serviceRole{Data: b.dir + "/" + onChain, Chain: true}
		if err := os.Mkdir(r.Data, 0o700); err != nil {
			return err
		}
		b.say("creating agents, plans, and subscribers on the embedded chain")
		m, err := openShop(ctx, r)
		if err != nil {
			return err
		}
		b.markets[onChain] = m
	}
	var err error
	if b.echo, err = spawn("echo", role{Echo: &echoRole{Answer: b.anyMarket().sample}}); err != nil {
		return err
	}
	return b.loadUp(why)
}

// roleOf is a service on a database of its own.
func (b *bench) roleOf(ctx context.Context, name string) (r serviceRole, err error) {
	r.Data = b.dir + "/" + name
	switch {
	case name == postgres:
		r.Database = b.cluster.database
	case strings.HasSuffix(name, postgres):
		r.Database, err = b.cluster.another(ctx, name)
	}
	return r, err
}

func (b *bench) anyMarket() *market {
	return cmp.Or(b.markets[postgres], b.markets[sqlite], b.markets[full+postgres], b.markets[full+sqlite])
}

func (b *bench) loadUp(why string) error {
	for _, s := range b.chosen {
		w := &row{Name: s.name, About: s.about, Aims: s.aims, Of: s.of}
		b.report.Rows = append(b.report.Rows, w)
		if s.engine != "" && b.markets[s.engine] == nil {
			w.Missing = why
			continue
		}
		if s.engine == onChain {
			w.Block = blockYardstick
		}
		var l *load
		if s.load != nil {
			var err error
			if l, err = s.load(b); err != nil {
				return err
			}
			l.number = len(b.report.Rows)
			w.InOut[0] = len(l.lanes[0][0].raw)
			b.runs[s] = l.run
		}
		if s.run != nil {
			b.runs[s] = func(warm, window time.Duration) *slice { return s.run(l, warm, window) }
		}
	}
	return nil
}

// under returns the processes that a scenario loads.
func (b *bench) under(s *scenario) []*process {
	if s.engine == "" {
		return []*process{b.echo}
	}
	m := b.markets[s.engine]
	switch {
	case s.sdk != "":
		return []*process{m.sdks[s.sdk]}
	case s.agent:
		return []*process{m.service, m.agent}
	case s.peer:
		return []*process{m.peer}
	}
	return append([]*process{m.service}, m.more...)
}

func (b *bench) measure(ctx context.Context) error {
	debug.SetGCPercent(400) // the generator keeps little and must not compete for the processors
	for round := range b.rounds {
		for _, s := range b.chosen {
			if b.runs[s] == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			err := b.slice(s, round)
			if err == nil && round == b.rounds-1 && s.audited() {
				err = b.audit(s)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		b.say("round %d of %d", round+1, b.rounds)
	}
	return nil
}

// length of a slice.
func (b *bench) length() time.Duration { return time.Duration(b.seconds * float64(time.Second)) }

// warmUp of every slice, no longer than the slice: connections, caches and the processors' clocks.
const warmUp = 300 * time.Millisecond

func (b *bench) slice(s *scenario, round int) error {
	if s.ready != nil {
		if err := s.ready(); err != nil {
			return err
		}
	}
	procs, w := b.under(s), b.report.row(s.name)
	used := func() (sum time.Duration, err error) {
		for _, p := range procs {
			d, err := p.cpu()
			if err != nil {
				return 0, err
			}
			sum += d
		}
		return sum, nil
	}
	before, err := used()
	if err != nil {
		return err
	}
	own, running := cpuTime(), b.cluster.cpuTime()
	var got *slice
	length := b.length()
	if s.engine == onChain {
		length *= chainSlice
	}
	answered := 0
	work := func() {
		// A slice in which nothing was begun and answered measures nothing: on a slow machine an order takes its time, and any may stand
		// still for as long as a slice.
		for range 8 {
			got = b.runs[s](min(warmUp, length), length)
			answered += got.answered
			if got.done > 0 || got.fault != nil {
				return
			}
			length *= 2
		}
	}
	var faults []error
	if b.profiles != "" {
		for _, p := range procs {
			inner := work
			work = func() { faults = append(faults, p.profile(b.profiles, s.name, round, inner)) }
		}
	}
	work()
	own, database := cpuTime()-own, b.cluster.cpuTime().since(running)
	after, err := used()
	if err = errors.Join(append(faults, err)...); err != nil {
		return err
	}
	if s.burns {
		b.markets[s.engine].settled += answered
		b.markets[s.engine].unclear += got.failed
	}
	if s.orders {
		b.markets[s.engine].shop.answered += answered
	}
	if got.fault != nil {
		b.report.Faults = append(b.report.Faults, fmt.Sprintf("%s, round %d: %v", s.name, round+1, got.fault))
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(max(answered, 1)) }
	w.Rates = append(w.Rates, got.rate())
	w.p50s = append(w.p50s, float64(got.latency.ValueAtQuantile(50)))
	w.p99s = append(w.p99s, float64(got.latency.ValueAtQuantile(99)))
	w.cpus, w.loads = append(w.cpus, each(after-before)), append(w.loads, each(own))
	if kindOf(s.engine) == postgres {
		w.bases = append(w.bases, each(database))
	}
	w.InOut[1] = got.size
	w.Behind = max(w.Behind, got.behind)
	w.Refused, w.Failed = w.Refused+got.refused, w.Failed+got.failed
	w.tables, w.logs = append(w.tables, float64(got.bytes.tables)), append(w.logs, float64(got.bytes.log))
	if w.latency == nil {
		w.latency = newSlice(0).latency
	}
	w.latency.Merge(got.latency)
	if s.rest != nil {
		return s.rest()
	}
	return nil
}

// audit proves the ledger after a scenario, beside the service.
func (b *bench) audit(s *scenario) error {
	m := b.markets[s.engine]
	a, err := m.service.say(order{Audit: true})
	if err != nil {
		return err
	}
	p := &proof{Answered: m.settled, FailedSettles: m.unclear, Burns: a.Audit.Burns, Findings: a.Audit.Findings}
	b.report.Faults = append(b.report.Faults, p.faults(s.name)...)
	return nil
}

// close ends everything, and proves the ledgers.
func (b *bench) close() error {
	var faults []error
	if b.echo != nil {
		_, err := b.echo.quit(false)
		faults = append(faults, err)
	}
	for _, engine := range []string{sqlite, postgres, full + sqlite, full + postgres, onChain} {
		m := b.markets[engine]
		if m == nil {
			continue
		}
		p := &proof{Engine: engine, Answered: m.settled, FailedSettles: m.unclear}
		if m.shop != nil {
			p.Paid = m.shop.answered
			count, units, err := m.shop.onTheChain(context.Background())
			if err != nil {
				faults = append(faults, err)
			} else {
				p.Transfers, p.Units = count, units.Int64()
			}
		}
		for _, p := range append(m.more, m.agent, m.peer) {
			if p != nil {
				_, err := p.quit(false)
				faults = append(faults, err)
			}
		}
		faults = append(faults, m.stopSDKs())
		b.say("auditing %s", engine)
		a, err := m.service.quit(true)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		p.Burns, p.Findings = a.Burns, a.Findings
		b.report.Audits = append(b.report.Audits, p)
		b.report.Faults = append(b.report.Faults, p.faults(engine)...)
		if m.shop != nil {
			b.report.Faults = append(b.report.Faults, p.prove(a)...)
		}
	}
	if b.cluster != nil {
		faults = append(faults, b.cluster.close())
	}
	return errors.Join(faults...)
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
