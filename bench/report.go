package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// report is what a run has shown, and the form of its JSON.
type report struct {
	Commit      string    `json:"commit,omitempty"`
	Go          string    `json:"go"`
	System      string    `json:"system"`
	CPUs        int       `json:"cpus"`
	Started     time.Time `json:"started"`
	LoadBefore  string    `json:"loadBefore,omitempty"` // of the machine, over 1, 5 and 15 minutes
	LoadAfter   string    `json:"loadAfter,omitempty"`
	FlushMicros float64   `json:"flushMicros"` // median of a 4 KiB write with fsync in the data directory
	Connections int       `json:"connections"`
	Accounts    int       `json:"accounts"`
	Rounds      int       `json:"rounds"`
	Seconds     float64   `json:"seconds"` // of a slice
	Profiled    bool      `json:"profiled,omitempty"`
	Rows        []*row    `json:"scenarios"`
	Audits      []*proof  `json:"audits"`
	Faults      []string  `json:"faults,omitempty"`
}

type row struct {
	Name    string  `json:"name"`
	About   string  `json:"about"`
	Missing string  `json:"missing,omitempty"` // why nothing was measured
	PerSec  float64 `json:"requestsPerSecond"` // medians over the rounds
	P50     float64 `json:"p50Micros"`
	P99     float64 `json:"p99Micros"`
	Ratio   float64 `json:"ratio"`        // to json-echo in the same round
	Share   float64 `json:"cpuShare"`     // processor time of a json-echo by that of a request, generator and database included
	Of      string  `json:"of,omitempty"` // another row that it is compared with
	OfRatio float64 `json:"ofRatio,omitempty"`
	Aims    []aim   `json:"aims,omitempty"`
	P999    float64 `json:"p999Micros"`          // over all rounds
	Refused int     `json:"refused,omitempty"`   // in an open loop, with a time to try again
	Failed  int     `json:"failed,omitempty"`    // in an open loop, not answered in time
	Bytes   float64 `json:"bytesKept,omitempty"` // of a settlement with its events: tables and indexes
	Logged  float64 `json:"bytesLogged,omitempty"`
	// Block is the row whose median time is the unit of the next three, in the same round.
	Block     string  `json:"block,omitempty"`
	PerBlock  float64 `json:"perBlockTime,omitempty"` // requests
	P50Blocks float64 `json:"p50BlockTimes,omitempty"`
	P99Blocks float64 `json:"p99BlockTimes,omitempty"`
	// Behind is how many settlements had no events at the end of a slice that waited for them, in the worst round. The rate is then
	// that of the events which came.
	Behind  int       `json:"eventsBehind,omitempty"`
	CPU     float64   `json:"cpuMicros"`                   // per request, of the processes under test
	BaseCPU float64   `json:"databaseCpuMicros,omitempty"` // of the backends of PostgreSQL
	LoadCPU float64   `json:"generatorCpuMicros"`
	Rates   []float64 `json:"rounds"`
	InOut   [2]int    `json:"bytes"` // of a request and of its answer's body
	latency *hdrhistogram.Histogram
	tables  []float64
	logs    []float64
	p50s    []float64
	p99s    []float64
	cpus    []float64
	loads   []float64
	bases   []float64
}

// proof compares the answers with the ledger.
type proof struct {
	Engine        string `json:"engine"`
	Answered      int    `json:"answeredSettles"`
	FailedSettles int    `json:"failedSettles,omitempty"` // each may be a burn
	Burns         int64  `json:"burns"`
	// Of a market whose plan is paid on the chain.
	Paid      int      `json:"answeredOrders,omitempty"`
	Orders    int64    `json:"paidOrders,omitempty"`
	Transfers int64    `json:"transfers,omitempty"`
	Units     int64    `json:"unitsReceived,omitempty"`
	Granted   int64    `json:"creditsGranted,omitempty"`
	Findings  []string `json:"findings,omitempty"`
}

// faults compares burns with answers.
func (p *proof) faults(where string) (out []string) {
	if extra := p.Burns - int64(p.Answered); extra < 0 || extra > int64(p.FailedSettles) {
		out = append(out, fmt.Sprintf("%s: %d settle requests succeeded and %d failed, but there are %d burns",
			where, p.Answered, p.FailedSettles, p.Burns))
	}
	for _, f := range p.Findings {
		out = append(out, where+": "+f)
	}
	return out
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func ratios(a, b []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

func (r *report) row(name string) *row {
	for _, w := range r.Rows {
		if w.Name == name {
			return w
		}
	}
	return &row{}
}

// sum turns rounds into medians.
func (r *report) sum() {
	for _, w := range r.Rows {
		w.PerSec, w.P50, w.P99 = median(w.Rates), median(w.p50s), median(w.p99s)
		w.Bytes, w.Logged = median(w.tables), median(w.logs)
		if w.latency != nil {
			w.P999 = float64(w.latency.ValueAtQuantile(99.9))
		}
		w.CPU, w.LoadCPU, w.BaseCPU = median(w.cpus), median(w.loads), median(w.bases)
	}
	echo := r.row(yardstick)
	for _, w := range r.Rows {
		w.Ratio = median(ratios(w.Rates, echo.Rates))
		if all := w.CPU + w.LoadCPU + w.BaseCPU; all > 0 {
			// What the ratio would be if nobody ever waited: steady on a machine that others use.
			w.Share = (echo.CPU + echo.LoadCPU) / all
		}
		if w.Block != "" {
			blocks := r.row(w.Block).p50s
			w.P50Blocks, w.P99Blocks = median(ratios(w.p50s, blocks)), median(ratios(w.p99s, blocks))
			perSec := make([]float64, len(blocks))
			for i, micros := range blocks {
				perSec[i] = 1e6 / max(micros, 1)
			}
			w.PerBlock = median(ratios(w.Rates, perSec))
		}
		if w.Of != "" {
			w.OfRatio = median(ratios(w.Rates, r.row(w.Of).Rates))
		}
		for i := range w.Aims {
			w.Aims[i].judge(w)
		}
	}
}

func (r *report) table(out io.Writer) error {
	fmt.Fprintf(out, "%s on %s, %d processors, %d connections, %d accounts, %d rounds of %gs, flush %.0f us, load before %s, after %s\n\n",
		r.Go, r.System, r.CPUs, r.Connections, r.Accounts, r.Rounds, r.Seconds, r.FlushMicros, r.LoadBefore, r.LoadAfter)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\treq/s\tratio\tshare\tp50 ms\tp99 ms\tp99.9 ms\tcpu us\tdatabase us\tgenerator us\t")
	for _, w := range r.Rows {
		if w.Block != "" {
			continue
		}
		if w.Missing != "" {
			fmt.Fprintf(t, "%s\tMISSING\t\t\t\t\t\t\t\t\t\n", w.Name)
			continue
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t\n",
			w.Name, w.PerSec, w.Ratio, w.Share, w.P50/1e3, w.P99/1e3, w.P999/1e3, w.CPU, w.BaseCPU, w.LoadCPU)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := errors.Join(r.aimTable(out), r.sdkTable(out), r.chainTable(out)); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, w := range r.Rows {
		if w.Missing != "" {
			fmt.Fprintf(out, "MISSING %s: %s\n", w.Name, w.Missing)
		}
		if w.Bytes > 0 {
			fmt.Fprintf(out, "%s: a settlement with its events stores %.0f bytes and writes %.0f bytes to the log\n", w.Name, w.Bytes, w.Logged)
		}
		if w.Refused+w.Failed > 0 {
			fmt.Fprintf(out, "%s: %d requests were refused with Retry-After, %d failed\n", w.Name, w.Refused, w.Failed)
		}
		if w.Behind > 0 {
			fmt.Fprintf(out, "%s: events of up to %d settlements were missing after %d times the length of the slice\n",
				w.Name, w.Behind, eventsPatience)
		}
	}
	for _, p := range r.Audits {
		if p.Engine == onChain {
			fmt.Fprintf(out, "%s: %d answered orders, %d paid, %d transfers of %d base units in total, %d credits granted, %d findings of the audit\n",
				p.Engine, p.Paid, p.Orders, p.Transfers, p.Units, p.Granted, len(p.Findings))
			continue
		}
		fmt.Fprintf(out, "%s: %d settle requests succeeded, %d failed, %d burns, %d findings of the audit\n",
			p.Engine, p.Answered, p.FailedSettles, p.Burns, len(p.Findings))
	}
	for _, f := range r.Faults {
		fmt.Fprintln(out, "FAILED", f)
	}
	return nil
}

// chainTable shows what is measured by the block time of the chain.
func (r *report) chainTable(out io.Writer) error {
	if r.row(blockYardstick).Name == "" {
		return nil
	}
	fmt.Fprintf(out, "\nBlock time is the median of %s. %d buyers order at the same time.\n\n", blockYardstick, buyers)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "on the chain\tper s\tp50 ms\tp99 ms\tper block time\tp50 block times\tp99 block times\tcpu us\t")
	for _, w := range r.Rows {
		if w.Block != "" {
			fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\t\n", w.Name, w.PerSec, w.P50/1e3, w.P99/1e3, w.PerBlock, w.P50Blocks, w.P99Blocks, w.CPU)
		}
	}
	return t.Flush()
}

// aim is what a row should show.
type aim struct {
	Of      string  `json:"of"` // ratio, share, bytes, "p99 ms", or the row whose rate counts as 1
	Value   float64 `json:"value"`
	Most    bool    `json:"most,omitempty"` // at most that value; at least otherwise
	Shown   float64 `json:"shown"`
	Reached bool    `json:"reached"`
}

func (a *aim) judge(w *row) {
	switch a.Of {
	case "ratio":
		a.Shown = w.Ratio
	case "share":
		a.Shown = w.Share
	case "bytes":
		a.Shown = w.Bytes
	case "p99 ms":
		a.Shown = w.P99 / 1e3
	default:
		a.Shown = w.OfRatio
	}
	a.Reached = w.Missing == "" && a.Shown > 0 && (a.Most && a.Shown <= a.Value || !a.Most && a.Shown >= a.Value)
}

// aimTable shows the aims, one a line, beside what was reached on each engine.
func (r *report) aimTable(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\naim\t\t%s\t%s\n", sqlite, postgres)
	done := map[string]bool{}
	for _, w := range r.Rows {
		name := withoutEngine(w.Name)
		if done[name] {
			continue
		}
		done[name] = true
		for i, a := range w.Aims {
			fmt.Fprintf(t, "%s\t%s", name, withoutEngine(a.Of))
			for _, engine := range []string{sqlite, postgres} {
				fmt.Fprintf(t, "\t%s", r.row(name+"-"+engine).aim(i))
			}
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}

// aim says what a row shows of its aim with this number, beside the aim.
func (w *row) aim(i int) string {
	if i >= len(w.Aims) || w.Missing != "" {
		return "-"
	}
	a := w.Aims[i]
	sign, verdict := ">=", "missed"
	if a.Most {
		sign = "<="
	}
	if a.Reached {
		verdict = "reached"
	}
	return fmt.Sprintf("%.3g %s %g %s", a.Shown, sign, a.Value, verdict)
}

func withoutEngine(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "-"+sqlite), "-"+postgres)
}

func (r *report) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// flushMicros says what durability costs here: without it rates of two machines tell nothing.
func flushMicros(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "flush-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	page := make([]byte, 4096)
	var took []float64
	for range 50 {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	return median(took), nil
}

func system() string { return runtime.GOOS + "/" + runtime.GOARCH }
