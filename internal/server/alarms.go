package server

import (
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/web/operator"
)

// alarmLife is how long the page of the operators shows an alarm after it was raised last. A fault that lasts raises its alarm again.
const alarmLife = 24 * time.Hour

// recentAlarms remembers the alarms that this process raised, by their ids. It is safe for concurrent use.
type recentAlarms struct {
	mu sync.Mutex
	by map[string]operator.Alarm
}

// note counts an alarm.
func (r *recentAlarms) note(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]operator.Alarm{}
	}
	r.by[id] = operator.Alarm{ID: id, Times: r.by[id].Times + 1, Last: time.Now()}
}

// recent returns the alarms of the last day, the last one first.
func (r *recentAlarms) recent() (out []operator.Alarm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.by {
		if time.Since(a.Last) < alarmLife {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b operator.Alarm) int { return b.Last.Compare(a.Last) })
	return out
}
