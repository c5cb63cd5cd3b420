package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// post is a mail server, and the people whose addresses it knows.
type post struct {
	mu      sync.Mutex
	none    bool // no mail server is set
	readers map[toll.UUID]string
	down    bool
	left    int // mails that may be sent now
	sent    []posted
}

type posted struct{ id, to, subject, text string }

var ann, bob = toll.UUID{1}, toll.UUID{2}

// newPost knows ann@example.com, which is a person of the builder, and bob@example.com, which is not.
func newPost(m *market) *post {
	p := &post{readers: map[toll.UUID]string{{0xa}: "ann@example.com"}, left: 1000}
	m.events.cfg.Mail, m.events.cfg.PublicURL = p, "https://pay.example.com"
	return p
}

func (p *post) HasMail() bool { return !p.none }

func (p *post) MailCredential(_ context.Context, user toll.UUID, address string) (toll.UUID, error) {
	switch {
	case user == ann && address == "ann@example.com":
		return toll.UUID{0xa}, nil
	case user == bob && address == "bob@example.com":
		return toll.UUID{0xb}, nil
	}
	return toll.UUID{}, store.ErrNotFound
}

func (p *post) MailReader(_ context.Context, workspace toll.Address, credential toll.UUID) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to, ok := p.readers[credential]; ok && workspace == builder {
		return to, nil
	}
	return "", store.ErrNotFound
}

func (p *post) TakeMail(toll.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
	return p.left >= 0
}

func (p *post) SendMail(_ context.Context, id, to, subject, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return errors.New("down")
	}
	p.sent = append(p.sent, posted{id, to, subject, text})
	return nil
}

func (p *post) all() []posted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

func (m *market) mailTo(user toll.UUID, url string, types ...toll.EventType) (*toll.WebhookSecret, error) {
	return m.events.CreateWebhook(m.t.Context(), builder, WebhookParams{User: user, URL: &url, Types: &types}, nil)
}

func (m *market) mails(types ...toll.EventType) *toll.WebhookSecret {
	m.t.Helper()
	return must.Get(m.mailTo(ann, "mailto:Ann@Example.com", types...))(m.t)
}

// keyMade adds an event of a new key to the builder's stream.
func (m *market) keyMade(id, name string) {
	m.t.Helper()
	must.Do(m.t, m.st.Tx(m.t.Context(), func(tx *store.Tx) error {
		return store.InsertEvent(m.t.Context(), tx, store.NewEvent{
			Principal: builder, Type: toll.EventAPIKeyCreated, Kind: "api_key", ID: id, Data: toll.APIKey{Name: &name}, At: m.clock.now(),
		})
	}))
}

// Mails go to an address that the person in the session has proved, about rare events, and only where there is a mail server. No
// record and no row of webhooks has the address.
func TestMail_Made(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		p := newPost(m)
		low := toll.EventCreditsLow
		for name, c := range map[string]struct {
			user  toll.UUID
			url   string
			types []toll.EventType
			code  toll.Code
		}{
			"an API key":           {toll.UUID{}, "mailto:ann@example.com", []toll.EventType{low}, toll.CodePersonNeeded},
			"somebody's address":   {ann, "mailto:bob@example.com", []toll.EventType{low}, toll.CodeWebhookURL},
			"nobody's address":     {ann, "mailto:eve@example.com", []toll.EventType{low}, toll.CodeWebhookURL},
			"another header":       {ann, "mailto:ann@example.com?bcc=eve@example.com", []toll.EventType{low}, toll.CodeWebhookURL},
			"another line":         {ann, "mailto:ann@example.com\r\nBcc: eve@example.com", []toll.EventType{low}, toll.CodeWebhookURL},
			"no address":           {ann, "mailto:", []toll.EventType{low}, toll.CodeWebhookURL},
			"every type":           {ann, "mailto:ann@example.com", nil, toll.CodeBadRequest},
			"each settlement":      {ann, "mailto:ann@example.com", []toll.EventType{low, toll.EventSettlementSettled}, toll.CodeBadRequest},
			"each access token":    {ann, "mailto:ann@example.com", []toll.EventType{toll.EventPermissionExhausted}, toll.CodeBadRequest},
			"what no stream holds": {ann, "mailto:ann@example.com", []toll.EventType{toll.EventWebhookTest}, toll.CodeBadRequest},
		} {
			if _, err := m.mailTo(c.user, c.url, c.types...); !errors.Is(err, toll.NewError(c.code)) {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		p.none = true
		_, err := m.mailTo(ann, "mailto:ann@example.com", low)
		if !errors.Is(err, toll.NewError(toll.CodeWebhookURL)) || !strings.Contains(err.Error(), "not set a mail server") {
			t.Errorf("without a mail server: %v", err)
		}
		p.none = false
		w := m.mails(low)
		if w.Secret != "" || w.URL != "mailto:a***@example.com" {
			t.Errorf("%+v", w)
		}
		var rows int
		must.Do(t, st.QueryRow(t.Context(), `SELECT COUNT(*) FROM webhooks w, audit_log a
			WHERE w.url LIKE '%ann@%' OR a.detail LIKE '%ann@%'`).Scan(&rows))
		if rows != 0 {
			t.Error("the address of a person is stored with the webhook")
		}
		if _, err := m.events.RotateWebhook(t.Context(), builder, w.ID); !errors.Is(err, toll.NewError(toll.CodeBadRequest)) {
			t.Errorf("a secret for mails: %v", err)
		}
		hook := m.hook("http://127.0.0.1:1/")
		for name, c := range map[string]struct {
			id, url string
			types   []toll.EventType
			code    toll.Code
		}{
			"mails to another address": {w.ID, "mailto:bob@example.com", nil, toll.CodeWebhookURL},
			"a url in place of mails":  {w.ID, "http://127.0.0.1:1/", nil, toll.CodeWebhookURL},
			"mails in place of a url":  {hook.ID, "mailto:ann@example.com", nil, toll.CodeWebhookURL},
			"mails about settlements":  {w.ID, w.URL, []toll.EventType{toll.EventSettlementSettled}, toll.CodeBadRequest},
			"mails about everything":   {w.ID, w.URL, []toll.EventType{}, toll.CodeBadRequest},
		} {
			params := WebhookParams{User: ann, URL: &c.url}
			if c.types != nil {
				params.Types = &c.types
			}
			if _, err := m.events.UpdateWebhook(t.Context(), builder, c.id, params); !errors.Is(err, toll.NewError(c.code)) {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		found, _, err := m.events.MailWebhook(t.Context(), builder, []toll.UUID{{0xb}, {0xa}})
		must.Do(t, err)
		if found == nil || found.ID != w.ID {
			t.Errorf("the webhook of the person: %+v", found)
		}
	})
}

// Mails and urls do not take each other's room: members who may choose mails alone do not keep a builder from a webhook.
func TestMail_Bounds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		newPost(m)
		for i := range MaxWebhooks - 1 {
			must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
				return store.InsertWebhook(t.Context(), tx, &store.Webhook{
					ID: toll.NewUUID(), Principal: builder, Status: toll.WebhookActive, Credential: toll.UUID{0xc, byte(i)}, Secret: []byte{1},
				})
			}))
		}
		full := func(limit int64, err error) {
			t.Helper()
			if e := toll.AsError(err); e.Code != toll.CodeWebhookTooMany || fmt.Sprint(e.Params["limit"]) != fmt.Sprint(limit) {
				t.Errorf("%v", err)
			}
		}
		m.mails(toll.EventCreditsLow)
		_, err := m.mailTo(ann, "mailto:ann@example.com", toll.EventAPIKeyCreated)
		full(1, err)
		_, err = m.mailTo(bob, "mailto:bob@example.com", toll.EventCreditsLow)
		full(MaxWebhooks, err)
		for range MaxWebhooks {
			m.hook("http://127.0.0.1:1/")
		}
		url := "http://127.0.0.1:1/"
		_, err = m.events.CreateWebhook(t.Context(), builder, WebhookParams{URL: &url}, nil)
		full(MaxWebhooks, err)
	})
}

// A mail says what happened in a sentence with the numbers of the event, and leads to its page. A workspace is not told of credits and
// orders of its customers.
func TestMail_Text(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		p := newPost(m)
		w := m.mails(MailTypes()...)
		m.mint(builder, 100, "mint:1", time.Time{})
		m.mint(subscriber, 100, "mint:2", time.Time{})
		for i, who := range []toll.Address{builder, subscriber} {
			m.settle(who, m.token(who, 0), 95, fmt.Sprint("r", i))
		}
		m.drain(m.events)
		m.keyMade("0x01", "Build server 2.0")
		m.keyMade("0x02", "Account locked: open evil.example.com")
		order := func(who toll.Address) {
			must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
				return store.InsertEvent(t.Context(), tx, store.NewEvent{
					Principal: builder, Type: toll.EventOrderFailed, Kind: "order", ID: "order of " + who.String(), At: m.clock.now(),
					Data: toll.Order{PlanID: m.plan, SubscriberAddress: who, FailureReason: "see evil.example.com"},
				})
			}))
		}
		order(builder)
		order(subscriber)
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			return store.InsertEvent(t.Context(), tx, store.NewEvent{
				Principal: builder, Type: toll.EventDelegationExhausted, Kind: "delegation", ID: "d1", At: m.clock.now(),
				Data: toll.Delegation{SpendingLimitCents: 1250, AmountSpentCents: 1200, Currency: "usdc"},
			})
		}))
		must.Get(m.events.TestWebhook(t.Context(), builder, w.ID))(t)
		m.deliver(m.events)
		base := "https://pay.example.com/w/" + builder.String()
		got := map[string]string{}
		for _, l := range p.all() {
			if l.to != "ann@example.com" || strings.ContainsAny(l.subject, "\r\n") || strings.Contains(l.text, "evil") ||
				!strings.Contains(l.text, base+"/notifications") {
				t.Errorf("%+v", l)
			}
			got[l.subject] += l.text
		}
		for subject, wants := range map[string][]string{
			"Credits are low":    {`plan "P" (` + string(m.plan) + ") is low: 5 credits left, ", base + "/holdings/" + string(m.plan)},
			"New API key":        {`created: "Build server 2.0" (0x01).`, "created: 0x02.", base + "/keys/0x01"},
			"Order failed":       {"The order order of " + builder.String() + " for the plan"},
			"Delegation used up": {"12.00 of 12.50 USDC spent", base + "/delegations/d1"},
			"Test notification":  {"This is a test"},
		} {
			for _, want := range wants {
				if !strings.Contains(got[subject], want) {
					t.Errorf("%s: no %q in\n%s", subject, want, got[subject])
				}
			}
		}
		if n := len(p.all()); n != 6 || strings.Contains(got["Order failed"], subscriber.String()) {
			t.Errorf("%d mails: %+v", n, p.all())
		}
	})
}

// A process that ends between the mail server and the note sends the mail once more, under the same id. Others send nothing twice.
func TestMail_Killed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		for step, most := range map[string]int{"fanned": 1, "claimed": 1, "sent": 2} {
			m := newMarket(t, st)
			p := newPost(m)
			w := m.mails(toll.EventAPIKeyCreated)
			m.keyMade("0x01", "a")
			dying := m.room()
			dying.cfg.Mail = p
			dying.failpoint = func(at string) {
				if at == step {
					panic(errStop)
				}
			}
			func() {
				defer func() {
					if p := recover(); p != errStop {
						t.Fatalf("%s: %v", step, p)
					}
				}()
				m.deliver(dying)
			}()
			m.clock.advance(lease + time.Second)
			m.deliver(m.events)
			m.deliver(m.events)
			sent := p.all()
			if len(sent) != most || slices.ContainsFunc(sent, func(l posted) bool { return l.id != sent[0].id || l.id == "" }) {
				t.Errorf("%s: %+v", step, sent)
			}
			if d := m.deliveries(w.ID); len(d) != 1 || d[0].Status != toll.DeliverySucceeded {
				t.Errorf("%s: %+v", step, d)
			}
			must.Do(t, m.events.DeleteWebhook(t.Context(), builder, w.ID))
		}
	})
}

// Nothing is sent to somebody who may not read in the workspace any more: the webhook is paused at once, and resumed it looks again.
func TestMail_NoReader(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		p := newPost(m)
		w := m.mails(toll.EventAPIKeyCreated)
		clear(p.readers)
		m.keyMade("0x01", "a")
		m.keyMade("0x02", "b")
		m.deliver(m.events)
		m.clock.advance(100 * time.Hour)
		m.deliver(m.events)
		hook := must.Get(m.events.Webhook(t.Context(), builder, w.ID))(t)
		if len(p.all()) != 0 || hook.Status != toll.WebhookPaused {
			t.Errorf("%d mails, %+v", len(p.all()), hook)
		}
		if s := m.stream(builder); s[len(s)-1].Type != toll.EventWebhookDisabled {
			t.Errorf("nobody is told: %s", types(s))
		}
		active := toll.WebhookActive
		resume := func() {
			must.Get(m.events.UpdateWebhook(t.Context(), builder, w.ID, WebhookParams{Status: &active}))(t)
			m.clock.advance(time.Hour)
			m.deliver(m.events)
		}
		resume()
		if n := len(p.all()); n != 0 {
			t.Errorf("%d mails after it was resumed", n)
		}
		p.readers[toll.UUID{0xa}] = "ann@example.com"
		resume()
		if n := len(p.all()); n != 2 {
			t.Errorf("%d mails to a person who is back", n)
		}
	})
}

// However much happens, a person gets as many mails as the mailer allows. The others wait, for longer than a failing delivery would be
// tried, and none is lost.
func TestMail_Flood(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		p := newPost(m)
		w := m.mails(toll.EventAPIKeyCreated)
		p.left = 3
		for i := range 20 {
			m.keyMade(fmt.Sprint("0x", i), "a")
		}
		turns := func(n int) {
			for range n {
				must.Do(t, m.events.sender.run(t.Context()))
				m.events.sender.sending.Wait()
			}
		}
		turns(40)
		if n := len(p.all()); n != 3 {
			t.Fatalf("%d mails, want 3", n)
		}
		m.clock.advance(lastRetry + time.Hour)
		p.left = 17
		turns(40)
		if n := len(p.all()); n != 20 {
			t.Errorf("%d mails, want 20", n)
		}
		for _, d := range m.deliveries(w.ID) {
			if d.Status != toll.DeliverySucceeded || d.Attempts != 1 {
				t.Errorf("%+v", d)
			}
		}
	})
}

// While the mail server is down a mail is repeated at the times of every delivery, and then it is sent.
func TestMail_ServerDown(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		p := newPost(m)
		p.down = true
		w := m.mails(toll.EventAPIKeyCreated)
		m.keyMade("0x01", "a")
		for range 3 {
			m.deliver(m.events)
			d := m.deliveries(w.ID)[0]
			if d.Status != toll.DeliveryPending || *d.LastError != noMail {
				t.Fatalf("%+v", d)
			}
			m.clock.advance(d.NextAttemptAt.Sub(m.clock.now()))
		}
		p.down = false
		m.deliver(m.events)
		if d := m.deliveries(w.ID)[0]; d.Status != toll.DeliverySucceeded || d.Attempts != 4 || len(p.all()) != 1 {
			t.Errorf("%+v, %d mails", d, len(p.all()))
		}
	})
}

// T150: what a mail program could take for a link is no name in a mail.
// T150
func TestNamesInMails(t *testing.T) {
	for name, want := range map[string]string{
		"Basic": `"Basic" (7)`, "GPT-4.1 mini": `"GPT-4.1 mini" (7)`, "Ünïcode, 2 & 3": `"Ünïcode, 2 & 3" (7)`, "": "7", "evil.com": "7",
		"http://1.2.3.4": "7", "a@b": "7", "www.evil": "7", "evil。com": "7", "x\r\nBcc: y": "7", "x\u202ey": `"xy" (7)`, "1.2.3.4/x": "7",
	} {
		if got := named(name, "7"); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
