package double

import (
	"encoding/json"
	"slices"
	"sort"
)

// keepEvents is how long events are kept, as Stripe keeps them.
const keepEvents = 30 * 24 * 60 * 60

// event is a change of an object, with the object as it was then.
type event struct {
	base
	APIVersion      string       `json:"api_version"`
	Data            eventData    `json:"data"`
	Livemode        bool         `json:"livemode"`
	PendingWebhooks int64        `json:"pending_webhooks"`
	Request         eventRequest `json:"request"`
	Type            string       `json:"type"`
}

type eventData struct {
	Object json.RawMessage `json:"object"`
}

type eventRequest struct {
	ID             text `json:"id"`
	IdempotencyKey text `json:"idempotency_key"`
}

// emit records an event about an object and queues its webhooks.
func (c *call) emit(kind string, object any) {
	b, err := json.Marshal(object)
	if err != nil {
		c.d.opts.Logger.Error("an object of the card double is not valid JSON", "err", err)
		return
	}
	e := &event{
		base:       base{newID("evt_1", 23), "event", c.now},
		APIVersion: Version,
		Data:       eventData{b},
		Request:    eventRequest{text(c.id), text(c.key)},
		Type:       kind,
	}
	c.st.add(e)
	c.queue(e)
}

// task is something that happens later by itself.
type task struct {
	At   int64
	Kind string
	ID   string // of the object
}

// later schedules a task after the time that the double lets things take.
func (c *call) later(kind, id string) { c.at(c.now+int64(c.d.opts.Later.Seconds()), kind, id) }

func (c *call) at(at int64, kind, id string) {
	tasks := c.st.Tasks
	i := sort.Search(len(tasks), func(i int) bool { return tasks[i].At > at })
	c.st.Tasks = slices.Insert(tasks, i, task{at, kind, id})
}

// advance carries out the tasks that are due and forgets what is old. It reports whether there was something to do.
func (c *call) advance() bool {
	changed := false
	for len(c.st.Tasks) > 0 && c.st.Tasks[0].At <= c.now {
		t := c.st.Tasks[0]
		c.st.Tasks = c.st.Tasks[1:]
		c.carryOut(t)
		changed = true
	}
	if c.now-c.st.Pruned >= 3600 {
		c.st.Pruned = c.now
		c.st.forget(func(r row) bool {
			switch r.(type) {
			case *event:
				return c.now-r.born() >= keepEvents
			case *outcome:
				return c.now-r.born() >= keepOutcomes
			}
			return false
		})
	}
	return changed
}

func (c *call) carryOut(t task) {
	v, ok := find[row](c.st, t.ID)
	if !ok {
		return
	}
	switch v := v.(type) {
	case *session:
		c.expire(v)
	case *intent:
		c.processed(v, t.Kind == "capture_fails")
	case *charge:
		if t.Kind == "balance" {
			c.moveCharge(v)
			c.emit("charge.updated", v)
			return
		}
		m, _ := find[*paymentMethod](c.st, string(v.PaymentMethod))
		if card := c.testCard(m); !v.Disputed && !v.Refunded {
			c.dispute(v, card.dispute, card.inquiry, 0)
		}
	case *refund:
		if t.Kind == "refund_fails" {
			c.refundFailed(v, "failed")
		} else {
			c.refundSucceeded(v)
		}
	}
}
