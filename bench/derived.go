package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	eventsPoll = 20 * time.Millisecond
	// eventsPatience is how many windows are waited for events that are behind. Then the events that came until then count.
	eventsPatience = 10
	// grantsPatience is the time for the events of the first credits.
	grantsPatience = 5 * time.Minute
)

// settleAndDerive settles for the window and then waits for the events of what was settled. Its rate is that at which
// settlements come with their events: one that can be kept up for ever.
func (m *market) settleAndDerive(l *load, window time.Duration) *slice {
	before, err := m.events("")
	if err != nil {
		return failedSlice(err)
	}
	stop, err := m.meter(context.Background())
	if err != nil {
		return failedSlice(err)
	}
	begun := time.Now()
	out := l.run(0, window)
	if out.fault == nil {
		out.behind, out.fault = m.waitForEvents(m.settled+out.answered, begun.Add(eventsPatience*window))
	}
	out.window = time.Since(begun)
	derived := m.settled + out.answered - out.behind - (before - m.others)
	out.done = max(min(out.answered, derived), 0) // events of earlier settlements do not count
	g, err := stop()
	out.fault = errors.Join(out.fault, err)
	n := int64(max(out.answered, 1))
	out.bytes = growth{g.tables / n, g.log / n}
	return out
}

// waitForEvents returns when the builder has the events of so many settlements, or at the deadline, with how many are missing.
func (m *market) waitForEvents(settlements int, deadline time.Time) (behind int, err error) {
	for {
		n, err := m.events("")
		n -= m.others
		switch {
		case err != nil:
			return 0, err
		case n > settlements:
			return 0, fmt.Errorf("%d settlements have %d events", settlements, n)
		case n == settlements || time.Now().After(deadline):
			return settlements - n, nil
		}
		time.Sleep(eventsPoll)
	}
}

// countOthers waits for the events of the credits and of the first settlement, and notes how many are not of settlements.
func (m *market) countOthers() error {
	for begun := time.Now(); ; time.Sleep(eventsPoll) {
		settled, err := m.events("settlement.settled")
		minted, e := m.events("credits.minted")
		all, e2 := m.events("")
		if err := errors.Join(err, e, e2); err != nil {
			return err
		}
		if settled == m.settled && minted == len(m.tokens) {
			m.others = all - settled
			return nil
		}
		if time.Since(begun) > grantsPatience {
			return fmt.Errorf("%d settlements and %d grants of credits have %d and %d events", m.settled, len(m.tokens), settled, minted)
		}
	}
}

// events is how many events of a type the builder has, "" for all. The number of all is the last sequence of its stream, which
// costs the service nothing to tell.
func (m *market) events(ofType string) (int, error) {
	req, err := http.NewRequest(http.MethodGet, m.url()+"/api/v1/events?pageSize=1&type="+ofType, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+m.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return 0, err
	}
	var list struct{ Total int }
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("list of events: answer %d: %.300s", res.StatusCode, body)
	}
	return list.Total, json.Unmarshal(body, &list)
}
