package double

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	webhookTimeout   = 10 * time.Second
	maxDeliveries    = 10   // attempts of one webhook
	maxWebhookPause  = 3600 // seconds, by the double's clock
	maxWebhookAnswer = 64 << 10
)

// delivery is an event on its way to one webhook.
type delivery struct {
	Event   string
	URL     string
	At      int64 // not before
	Attempt int
	Held    bool // until there are others to reorder it with
}

// queue makes the deliveries of an event, changed by the faults that wait for it.
func (c *call) queue(e *event) {
	if c.takeFault("lose", e.Type) != nil {
		return
	}
	copies := 1
	if c.takeFault("double", e.Type) != nil {
		copies = 2
	}
	at := c.now
	if f := c.takeFault("delay", e.Type); f != nil {
		at += f.Seconds
	}
	reorder := c.takeFault("reorder", e.Type)
	for _, w := range c.d.opts.Webhooks {
		for range copies {
			e.PendingWebhooks++
			c.st.Deliveries = append(c.st.Deliveries, &delivery{Event: e.ID, URL: w.URL, At: at, Held: reorder != nil})
		}
	}
	if reorder != nil && reorder.Count == 0 {
		c.releaseReversed()
	}
}

// releaseReversed sends the deliveries that are held, the last one first.
func (c *call) releaseReversed() {
	var held []*delivery
	c.st.Deliveries = slices.DeleteFunc(c.st.Deliveries, func(v *delivery) bool {
		if v.Held {
			held = append(held, v)
		}
		return v.Held
	})
	slices.Reverse(held)
	for _, v := range held {
		v.Held = false
	}
	c.st.Deliveries = append(c.st.Deliveries, held...)
}

func (d *Double) wakeAll() {
	for _, w := range d.wake {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// send delivers the events of one webhook, one at a time, until the double is closed.
func (d *Double) send(i int) {
	for {
		select {
		case <-d.done.Done():
			return
		case <-d.wake[i]:
			for d.deliver(&d.opts.Webhooks[i]) {
			}
		}
	}
}

// deliver sends the first delivery of a webhook that is due. It reports whether there was one.
func (d *Double) deliver(w *Webhook) bool {
	v, body := d.due(w)
	if v == nil {
		return false
	}
	err := d.post(w, body)
	if d.done.Err() != nil {
		return false // it is sent again after a restart
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.Attempt++; err != nil {
		d.opts.Logger.Debug("a webhook delivery of the card double failed", "event", v.Event, "attempt", v.Attempt, "err", err)
		v.At = d.now().Unix() + min(int64(1)<<v.Attempt, maxWebhookPause)
	}
	if err == nil || v.Attempt >= maxDeliveries {
		d.st.Deliveries = slices.DeleteFunc(d.st.Deliveries, func(o *delivery) bool { return o == v })
		if e, ok := find[*event](d.st, v.Event); ok {
			e.PendingWebhooks--
			delete(d.st.encoded, e.ID)
		}
	}
	_ = d.save() // which logs; a delivery that is not struck out is sent again
	return true
}

// due returns the next delivery of a webhook and its body.
func (d *Double) due(w *Webhook) (*delivery, []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now().Unix()
	for i := 0; i < len(d.st.Deliveries); i++ {
		v := d.st.Deliveries[i]
		if v.URL != w.URL || v.Held || v.At > now {
			continue
		}
		e, ok := find[*event](d.st, v.Event)
		if !ok { // it is too old
			d.st.Deliveries = slices.Delete(d.st.Deliveries, i, i+1)
			i--
			continue
		}
		body, err := json.Marshal(e)
		if err != nil {
			return nil, nil
		}
		return v, body
	}
	return nil, nil
}

// post sends a signed event. The signature has the time of Options.Now: moving the double's clock does not make it old.
func (d *Double) post(w *Webhook, body []byte) error {
	ctx, cancel := context.WithTimeout(d.done, webhookTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	r.Header.Set("Stripe-Signature", Sign(d.opts.Now(), body, w.Secrets...))
	answer, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxWebhookAnswer))
	if answer.StatusCode/100 != 2 {
		return errStatus(answer.StatusCode)
	}
	return nil
}

type errStatus int

func (e errStatus) Error() string { return "answered " + strconv.Itoa(int(e)) }

// Sign returns the header Stripe-Signature of a webhook: the time, and a signature for each secret.
func Sign(t time.Time, body []byte, secrets ...string) string {
	at := strconv.FormatInt(t.Unix(), 10)
	header := "t=" + at
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write([]byte(at + "."))
		_, _ = mac.Write(body)
		header += ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	return header
}

// webhookEndpoint is a webhook as the API shows it, without its secrets.
type webhookEndpoint struct {
	base
	APIVersion    string            `json:"api_version"`
	Application   text              `json:"application"`
	Description   text              `json:"description"`
	EnabledEvents []string          `json:"enabled_events"`
	Livemode      bool              `json:"livemode"`
	Metadata      map[string]string `json:"metadata"`
	Status        string            `json:"status"`
	URL           string            `json:"url"`
}

func (c *call) listWebhooks() (any, error) {
	var rows []row
	for _, w := range c.d.opts.Webhooks {
		sum := sha256.Sum256([]byte(w.URL))
		id := "we_1" + hex.EncodeToString(sum[:12])
		rows = append(rows, &webhookEndpoint{
			base:          base{id, "webhook_endpoint", c.st.Created},
			APIVersion:    Version,
			EnabledEvents: []string{"*"},
			Metadata:      map[string]string{},
			Status:        "enabled",
			URL:           w.URL,
		})
	}
	return c.list("webhook endpoint", rows)
}
