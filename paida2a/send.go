package paida2a

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

const (
	textRequired  = "Payment is required."
	textSubmitted = "The payment is being verified."
	textDeclined  = "The payment was declined."
	textVerified  = "The payment is verified. The agent is working on the task."
	textFailed    = "The agent failed. Nothing was charged."
	textBusy      = "the task is still in progress"
	textOver      = "the task has ended: start a new task"
)

// send handles a message. It returns the task and the number of its events before this message.
func (d *handler) send(ctx context.Context, params *a2a.MessageSendParams) (*task, int, error) {
	switch {
	case params.Message == nil:
		return nil, 0, invalid("the request has no message")
	case params.Message.Role != a2a.MessageRoleUser:
		return nil, 0, invalid("a message to an agent must have the role user")
	case params.Config != nil && params.Config.PushConfig != nil:
		return nil, 0, a2a.ErrPushNotificationNotSupported
	}
	msg, c := takePayment(params.Message)
	if msg.TaskID == "" {
		t, err := d.begin(ctx, msg)
		return t, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.book.find(msg.TaskID, d.Clock())
	if err != nil {
		return nil, 0, err
	}
	if msg.ContextID != "" && msg.ContextID != t.context {
		return nil, 0, invalid("the task belongs to another context")
	}
	msg.ContextID = t.context
	from := len(t.events)
	if c.digest != "" && c.digest == t.payment && (t.phase != phaseOpen || c.claim != "" && t.problem == nil) {
		return t, from, nil // a repeat, because the response was lost or is late
	}
	switch t.phase {
	case phaseOver:
		return nil, 0, invalid(textOver)
	case phaseRunning, phaseSettling:
		return nil, 0, invalid(textBusy)
	}
	if len(t.told.History) >= maxMessages {
		return nil, 0, invalid("the task has too many messages")
	}
	switch c.status {
	case "":
		return t, from, d.ask(t, msg)
	case statusRejected:
		d.heard(t, msg)
		d.publish(t, phaseOver, d.status(t, a2a.TaskStateFailed, say(textDeclined), map[string]any{metaStatus: statusRejected}))
		return t, from, nil
	case statusSubmitted:
		d.submit(ctx, t, msg, c)
		return t, from, nil
	}
	return nil, 0, invalid("the status of a payment must be " + statusSubmitted + " or " + statusRejected)
}

// begin opens a task and demands payment.
func (d *handler) begin(ctx context.Context, msg *a2a.Message) (*task, error) {
	if len(msg.Parts) == 0 {
		return nil, invalid("a message must have parts")
	}
	demand, err := d.demand(ctx)
	if err != nil {
		return nil, unreachable(d.Unavailable("reading the terms of the plan", &seller.Offer{PlanID: d.cfg.PlanID}, err))
	}
	t := &task{id: a2a.NewTaskID(), context: msg.ContextID, demand: demand, asked: msg, changed: make(chan struct{})}
	t.source, _ = ctx.Value(sourceKey{}).(string)
	t.context = cmp.Or(t.context, a2a.NewContextID())
	msg.TaskID, msg.ContextID = t.id, t.context
	t.told = &a2a.Task{ID: t.id, ContextID: t.context, History: []*a2a.Message{msg}, Status: d.offer(t)}
	t.bytes = sizeOf(t.told)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.book.add(t, d.Clock()); err != nil {
		return nil, err
	}
	return t, nil
}

// ask replaces the message for the agent and demands payment again. It fails if the message has no parts or does not fit.
func (d *handler) ask(t *task, msg *a2a.Message) error {
	if len(msg.Parts) == 0 {
		return invalid("a message must have parts")
	}
	if !d.book.fit(sizeOf(msg), t) {
		return errFull
	}
	t.asked = msg
	d.heard(t, msg)
	d.publish(t, phaseOpen, d.offer(t))
	return nil
}

// submit checks a payment and runs the agent in the background. A refused payment ends the task.
func (d *handler) submit(ctx context.Context, t *task, msg *a2a.Message, c credential) {
	d.heard(t, msg)
	t.payment, t.problem = c.digest, nil
	refused := c.broken
	if refused == nil && !d.book.claimed(c.claim, t) {
		refused = &seller.Refusal{Reason: x402.ReasonDuplicate, Err: toll.Errorf(toll.CodePaymentRequired, "The payment was sent for another task.")}
	}
	if at := d.cfg.EndpointURL; refused == nil {
		refused = d.CheckResource(c.parsed, at, func() string { return at })
	}
	if refused != nil {
		d.publish(t, phaseOver, d.failure(t, d.refusal(t, refused)))
		return
	}
	if t.asked == nil {
		t.asked = msg // the message with the payment answers the agent's question
	}
	status := d.status(t, a2a.TaskStateInputRequired, say(textSubmitted), map[string]any{metaStatus: statusSubmitted})
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel, t.canceling, t.works, t.waited = cancel, false, false, false
	w := &work{handler: d, task: t, token: c.token, asked: t.asked, required: *t.demand}
	if w.required.Resource.URL != "" {
		// The task id is part of the paid resource. URLs are compared without fragments.
		w.required.Resource.URL += "#" + string(t.id)
	}
	d.publish(t, phaseRunning, status)
	go func() {
		defer cancel()
		w.serve(run)
	}()
}

// heard adds messages to the history of a task.
func (d *handler) heard(t *task, messages ...*a2a.Message) {
	told := *t.told
	told.History = append(slices.Clone(told.History), messages...)
	size := sizeOf(messages)
	d.book.fit(size, t)
	d.book.grow(t, size)
	t.told = &told
}

// publish changes phase and status of a task, appends the events, and wakes its followers.
func (d *handler) publish(t *task, p phase, s a2a.TaskStatus, before ...a2a.Event) {
	told := *t.told
	told.Status = s
	t.told = &told
	t.phase = p
	t.events = append(t.events, before...)
	if p == phaseRunning && s.State == a2a.TaskStateInputRequired {
		t.events = append(t.events, t.told) // a stream begins with its task
	} else {
		t.events = append(t.events, &a2a.TaskStatusUpdateEvent{TaskID: t.id, ContextID: t.context, Status: s, Final: !t.busy()})
	}
	d.book.put(t, d.Clock())
	close(t.changed)
	t.changed = make(chan struct{})
}

func (d *handler) offer(t *task) a2a.TaskStatus {
	text := textRequired
	if advice := t.demand.Accepts[0].Advice(); advice != "" {
		text += " " + advice
	}
	return d.status(t, a2a.TaskStateInputRequired, say(text), t.asking())
}

// asking returns the metadata of a demand for payment.
func (t *task) asking() map[string]any {
	return map[string]any{metaStatus: statusRequired, metaRequired: raw(t.demand)}
}

// failure returns the status of a task whose payment was refused or not settled.
func (d *handler) failure(t *task, s *x402.SettleResponse) a2a.TaskStatus {
	told := *s
	if told.ErrorMessage = plain.Text(s.ErrorMessage, maxSentenceRunes); told.ErrorMessage != s.ErrorMessage {
		told.Raw = nil
	}
	word := strings.ToUpper(s.ErrorReason)
	text := strings.TrimSpace("The payment failed: " + word + ". " + told.ErrorMessage)
	return d.status(t, a2a.TaskStateFailed, say(text), map[string]any{metaStatus: statusFailed, metaError: word, metaReceipts: []any{seller.Receipt(&told)}})
}

// refusal returns the receipt of a refused payment.
func (d *handler) refusal(t *task, r *seller.Refusal) *x402.SettleResponse {
	return &x402.SettleResponse{ErrorReason: r.Reason, ErrorMessage: r.Err.Text(), Payer: r.Payer, Network: t.demand.Accepts[0].Network}
}

func (d *handler) status(t *task, state a2a.TaskState, parts a2a.ContentParts, meta map[string]any) a2a.TaskStatus {
	now := d.Clock()
	return a2a.TaskStatus{State: state, Message: d.message(t, parts, meta), Timestamp: &now}
}

func (d *handler) message(t *task, parts a2a.ContentParts, meta map[string]any) *a2a.Message {
	return &a2a.Message{ID: a2a.NewMessageID(), Role: a2a.MessageRoleAgent, TaskID: t.id, ContextID: t.context, Parts: parts, Metadata: meta}
}

func say(text string) a2a.ContentParts { return a2a.ContentParts{a2a.TextPart{Text: text}} }

func raw(v any) json.RawMessage {
	b, err := x402.Encode(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

func sizeOf(v any) int64 { return int64(len(raw(v))) }
