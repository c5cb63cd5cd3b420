// Package jobs runs background work: [Loop] for continuous work, [Queue] for rare work that is due at a time.
// A [Group] starts it, watches it, and stops it in order.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/store"
)

const (
	// firstBackoff and maxBackoff bound the pause after a failed run. A loop resumes within seconds after an outage.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// repeatLog is how often a failure that lasts is logged.
	repeatLog = time.Minute
	// maxIdle bounds the pause of a loop with [Loop.IdleFactor]: its run may have waited for a slow database.
	maxIdle = 2 * time.Second

	// AtOnce is the pause that a run returns when more is due.
	AtOnce = time.Nanosecond
)

// Loop is one background activity of a process. Its runs follow one another.
type Loop struct {
	// Name is constant and unique in a process. It labels metrics and log lines.
	Name string
	// Every is the usual pause between runs. A random part of it keeps processes apart that were started together. With 0, runs
	// wait for Wake.
	Every time.Duration
	// Wake starts the next run early. May be nil.
	Wake Signal
	// Gather is how long a run waits after Wake, so that a burst of signals causes one run.
	Gather time.Duration
	// IdleFactor times the duration of a run is the shortest pause after it, up to 2 s, also when Wake fires.
	IdleFactor int
	// Run does what is due. It returns when the next run is due: 0 after Every, [AtOnce] or less when there is more to do. Errors are
	// logged, and the next run follows after a back-off. ctx ends when the group stops.
	Run func(ctx context.Context) (next time.Duration, err error)
	// Lease is the lease of Run, which returns [store.ErrLeased] while another process has it: no failure. It is released after the
	// last run. May be nil.
	Lease *Lease
	// End runs after the last run. ctx has the deadline of the shutdown. May be nil.
	End func(ctx context.Context) error
}

// Signal wakes a loop, or one other reader. Calls before it wakes count as one.
type Signal chan struct{}

func NewSignal() Signal { return make(Signal, 1) }

// Fire wakes the reader. It does not block.
func (s Signal) Fire() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Do returns the Run of a loop that never has more to do at once.
func Do(f func(ctx context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) { return 0, f(ctx) }
}

// Sweep returns the Run of a loop that works off slices until f reports that nothing more is to do.
func Sweep(f func(ctx context.Context) (more bool, err error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		more, err := f(ctx)
		if more {
			return AtOnce, err
		}
		return 0, err
	}
}

// Status says how a loop is doing.
type Status struct {
	Name     string        `json:"name"`
	Runs     uint64        `json:"turns"`
	Failures uint64        `json:"failures"`
	Busy     time.Duration `json:"busyNanos"`        // in all runs
	Last     time.Time     `json:"last,omitzero"`    // end of the last run
	Began    time.Time     `json:"began,omitzero"`   // of the current run
	Failing  time.Time     `json:"failing,omitzero"` // since when runs fail
	Error    string        `json:"error,omitempty"`  // of the last run
}

// Group runs loops, and stops them and what they need in the reverse order of their start.
type Group struct {
	log  *slog.Logger
	base context.Context

	mu     sync.Mutex
	stages []stage
	loops  []*running
	ended  bool

	once sync.Once
	err  error
}

// stage is one step of a shutdown.
type stage struct {
	name string
	stop func(ctx context.Context) error
}

// NewGroup returns an empty group. log may be nil.
func NewGroup(log *slog.Logger) *Group {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Group{log: log, base: context.Background()}
}

// Under has the contexts of loops made of ctx, before they start.
func (g *Group) Under(ctx context.Context) { g.base = ctx }

// OnStop has f called when everything has stopped that was started later.
func (g *Group) OnStop(name string, f func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stages = append(g.stages, stage{name, f})
}

// Start runs loops until Stop, which ends those of one call at the same time. It does nothing after Stop.
func (g *Group) Start(loops ...Loop) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	ctx, cancel := context.WithCancel(g.base)
	started := make([]*running, len(loops))
	var end context.Context // of the shutdown; set before ctx ends
	for i, l := range loops {
		r := &running{Loop: l, log: g.log, done: make(chan struct{}), status: Status{Name: l.Name}}
		started[i] = r
		go func() {
			defer close(r.done)
			r.run(ctx)
			if r.Lease != nil {
				give, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				_ = r.Lease.Release(give) // it ends by itself, too
				cancel()
			}
			if r.End != nil {
				r.endErr = r.End(end)
			}
		}()
	}
	g.loops = append(g.loops, started...)
	g.stages = append(g.stages, stage{"", func(ctx context.Context) error {
		end = ctx
		cancel()
		var errs []error
		for _, r := range started {
			select {
			case <-r.done:
				errs = append(errs, r.endErr)
			case <-ctx.Done():
				errs = append(errs, fmt.Errorf("background loop %s has not stopped: %w", r.Name, ctx.Err()))
			}
		}
		return errors.Join(errs...)
	}})
}

// Stop ends everything, the latest first, and waits for each as long as ctx lasts. Further calls return the same error.
func (g *Group) Stop(ctx context.Context) error {
	g.once.Do(func() {
		g.mu.Lock()
		g.ended = true
		stages := g.stages
		g.mu.Unlock()
		var errs []error
		for _, s := range slices.Backward(stages) {
			err := s.stop(ctx)
			if err != nil && s.name != "" {
				err = fmt.Errorf("%s: %w", s.name, err)
			}
			errs = append(errs, err)
		}
		g.err = errors.Join(errs...)
	})
	return g.err
}

// Status returns the loops by name.
func (g *Group) Status() []Status {
	g.mu.Lock()
	loops := slices.Clone(g.loops)
	g.mu.Unlock()
	all := make([]Status, len(loops))
	for i, r := range loops {
		r.mu.Lock()
		all[i] = r.status
		r.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// running is a loop that was started.
type running struct {
	Loop
	log    *slog.Logger
	done   chan struct{}
	endErr error // set before done is closed

	mu     sync.Mutex
	status Status
}

func (r *running) run(ctx context.Context) {
	failures, logged := 0, time.Time{}
	for ctx.Err() == nil {
		began := time.Now()
		r.begin(began)
		next, err := r.runOnce(ctx)
		if ctx.Err() != nil {
			err = nil // the run was interrupted
		}
		if r.Lease != nil && errors.Is(err, store.ErrLeased) {
			next, err = max(r.Every, leasedPause), nil
		}
		since := r.end(time.Now(), err)
		switch {
		case err != nil:
			failures++
			next = max(r.Every, backoff.Delay(firstBackoff, maxBackoff, failures))
			if time.Since(logged) > repeatLog {
				logged = time.Now()
				r.log.WarnContext(ctx, "a background loop failed", "loop", r.Name, "failures", failures, "error", err.Error())
			}
		case failures > 0:
			r.log.InfoContext(ctx, "a background loop works again", "loop", r.Name, "after", time.Since(since).Round(time.Millisecond).String())
			failures, logged = 0, time.Time{}
		}
		if r.IdleFactor > 0 && !backoff.Sleep(ctx, min(max(time.Duration(r.IdleFactor)*time.Since(began), time.Millisecond), maxIdle)) {
			return
		}
		if next == 0 && r.Every > 0 {
			next = backoff.Jitter(r.Every + r.Every/2)
		}
		r.wait(ctx, next)
	}
}

// runOnce calls Run. A panic is an error of the loop and does not end the process, which serves requests.
func (r *running) runOnce(ctx context.Context) (next time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			r.log.ErrorContext(ctx, "a background loop panicked", "loop", r.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return r.Run(ctx)
}

// wait returns after d, or never with 0, and when the loop is woken or ctx ends.
func (r *running) wait(ctx context.Context, d time.Duration) {
	var after <-chan time.Time
	if d != 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-after:
	case <-ctx.Done():
	case <-r.Wake:
		if r.Gather > 0 && backoff.Sleep(ctx, r.Gather) {
			select {
			case <-r.Wake: // the coming run covers this signal, too
			default:
			}
		}
	}
}

func (r *running) begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Began = at
}

// end notes the outcome of a run, and returns since when runs had failed.
func (r *running) end(at time.Time, err error) (since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.status
	since = s.Failing
	s.Runs, s.Busy, s.Last, s.Began = s.Runs+1, s.Busy+at.Sub(s.Began), at, time.Time{}
	if err == nil {
		s.Error, s.Failing = "", time.Time{}
		return since
	}
	s.Error = err.Error()
	if s.Failures++; s.Failing.IsZero() {
		s.Failing = at
	}
	return since
}
