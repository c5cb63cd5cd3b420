package server

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// settingClockOffset is by how many seconds the clock of a sandbox is ahead of that of the machine, as text.
	settingClockOffset = "clock_offset"
	// followEvery is how often a process reads what another one may have done to the clock.
	followEvery = time.Second
	// maxClockOffset keeps every time that is reckoned from the clock within the years that the wire has.
	maxClockOffset = 100 * 365 * 24 * time.Hour
)

// clock gives all packages of a process their time. In a sandbox it can be moved, forward only. The offset is the same for all
// processes and all accounts, because the sweeps and caches that end things by time know no caller.
type clock struct {
	machine func() time.Time
	store   *store.Store
	moves   bool // a sandbox
	offset  atomic.Int64
}

func newClock(ctx context.Context, machine func() time.Time, st *store.Store, env toll.Environment) (*clock, error) {
	c := &clock{machine: machine, store: st, moves: env != toll.Live}
	return c, c.read(ctx, st)
}

func (c *clock) now() time.Time { return c.machine().Add(time.Duration(c.offset.Load())) }

func (c *clock) ahead() time.Duration { return time.Duration(c.offset.Load()) }

func (c *clock) read(ctx context.Context, q store.Querier) error {
	if !c.moves {
		return nil
	}
	text, err := setting(ctx, q, settingClockOffset)
	if err != nil || text == "" {
		return err
	}
	d, err := parseOffset(text)
	if err == nil {
		c.forward(d)
	}
	return err
}

func parseOffset(text string) (time.Duration, error) {
	secs, err := strconv.ParseInt(text, 10, 64)
	if err != nil || secs < 0 || secs > int64(maxClockOffset/time.Second) {
		return 0, fmt.Errorf("the setting %s is not a valid number of seconds", settingClockOffset)
	}
	return time.Duration(secs) * time.Second, nil
}

func (c *clock) forward(d time.Duration) {
	for {
		old := c.offset.Load()
		if int64(d) <= old || c.offset.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// advance moves the clock of all processes by whole seconds: this one at once, others within about a second. The sum is
// bounded by 100 years; beyond, the error is [toll.CodeBadNumber].
func (c *clock) advance(ctx context.Context, d time.Duration) error {
	var sum time.Duration
	err := c.store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := store.PutSettingIfAbsent(ctx, tx, settingClockOffset, []byte("0")); err != nil {
			return err
		}
		text, err := store.LockSetting(ctx, tx, settingClockOffset)
		if err != nil {
			return err
		}
		if sum, err = parseOffset(string(text)); err != nil {
			return err
		}
		if d > maxClockOffset-sum {
			return toll.Errorf(toll.CodeBadNumber, "The clock can be moved forward by at most 100 years in total.")
		}
		sum += d
		return store.PutSetting(ctx, tx, settingClockOffset, strconv.AppendInt(nil, int64(sum/time.Second), 10))
	})
	if err == nil {
		c.forward(sum)
	}
	return err
}

// follow reads the offset that other processes set.
func (s *Server) follow(ctx context.Context) error {
	before := s.base.clock.ahead()
	err := s.base.clock.read(ctx, s.base.store)
	if s.base.clock.ahead() != before {
		s.moveChain(ctx)
	}
	return err
}

// advance moves the clock, and the embedded chain with it.
func (s *Server) advance(ctx context.Context, d time.Duration) error {
	err := s.base.clock.advance(ctx, d)
	if err == nil {
		s.moveChain(ctx)
	}
	return err
}

// moveChain has the embedded chain make a block at the time that the clock has now. A chain that does not do so at once does it
// within a minute.
func (s *Server) moveChain(ctx context.Context) {
	if err := s.rails.Chain.Advance(); err != nil && ctx.Err() == nil {
		s.cfg.Log.WarnContext(ctx, "cannot advance the embedded chain to the time of the clock", "error", err.Error())
	}
}
