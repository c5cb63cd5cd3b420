package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// repeats passes at most one record a second of each message at level warn or above, so that an outage does not fill a disk. The records
// in between are counted: the last of them is logged at the end of that second or of the process, with their number as "repeated".
// Records below warn, and records about an alarm, an order, a payment or a delegation, pass unchanged.
type repeats struct {
	slog.Handler
	seen *seenMessages // shared by all handlers that WithAttrs and WithGroup derive
}

// maxMessages bounds the messages that are counted at a time; records of further messages pass unchanged.
const maxMessages = 1_000

type seenMessages struct {
	mu    sync.Mutex
	every time.Duration
	last  map[string]*repeated
}

// repeated is the last record of a message within a second, and how many came with it after the first.
type repeated struct {
	handler slog.Handler
	record  slog.Record
	n       int
}

func limitRepeats(h slog.Handler) *repeats {
	return &repeats{h, &seenMessages{every: time.Second, last: map[string]*repeated{}}}
}

func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeats{h.Handler.WithAttrs(attrs), h.seen}
}
func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{h.Handler.WithGroup(name), h.seen}
}

func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || aboutMoney(r) || h.seen.add(h.Handler, r) {
		return h.Handler.Handle(ctx, r)
	}
	return nil
}

// moneyKeys are the attributes of records about money: "intent" is a payment at the card processor, "transaction" one of a wallet.
var moneyKeys = []string{"alarm", "order", "payment", "agentRequestId", "intent", "transaction", "delegation"}

func aboutMoney(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = slices.Contains(moneyKeys, a.Key)
		return !found
	})
	return found
}

// add reports whether a record is the first of its message in this second, and counts it otherwise.
func (s *seenMessages) add(h slog.Handler, r slog.Record) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.last[r.Message]
	if m == nil {
		if len(s.last) < maxMessages {
			s.last[r.Message] = &repeated{}
			time.AfterFunc(s.every, func() { s.end(r.Message) })
		}
		return true
	}
	m.handler, m.record, m.n = h, r.Clone(), m.n+1
	return false
}

// end logs what was counted in a second. Another one begins when there was something.
func (s *seenMessages) end(message string) {
	s.mu.Lock()
	m := s.last[message]
	if m == nil || m.n == 0 {
		delete(s.last, message)
	} else {
		s.last[message] = &repeated{}
		time.AfterFunc(s.every, func() { s.end(message) })
	}
	s.mu.Unlock()
	m.log()
}

// flush logs what was counted since the last line of each message, at the end of the process.
func (s *seenMessages) flush() {
	s.mu.Lock()
	last := s.last
	s.last = map[string]*repeated{}
	s.mu.Unlock()
	for _, message := range slices.Sorted(maps.Keys(last)) {
		last[message].log()
	}
}

func (m *repeated) log() {
	if m != nil && m.n > 0 {
		m.record.AddAttrs(slog.Int("repeated", m.n))
		_ = m.handler.Handle(context.Background(), m.record)
	}
}

// maxLevel is the largest file with a log level, in bytes.
const maxLevel = 64

// readLevel sets a log level: its name, or @FILE with its name in a file.
func readLevel(text string, into *slog.LevelVar) error {
	if path, ok := strings.CutPrefix(text, "@"); ok {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("log level: %w", err)
		}
		defer file.Close()
		read, err := io.ReadAll(io.LimitReader(file, maxLevel))
		if err != nil {
			return fmt.Errorf("log level: %w", err)
		}
		text = strings.TrimSpace(string(read))
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return usagef("the log level must be debug, info, warn, or error")
	}
	into.Set(level)
	return nil
}

// newLog returns a logger that writes JSON lines. No line of any level contains a key or a token.
func (a *app) newLog(level string) (*slog.Logger, error) {
	var l slog.LevelVar
	if err := readLevel(level, &l); err != nil {
		return nil, err
	}
	return a.newLogAs(&l, "json")
}

// newLogAs is [app.newLog] in a format: text, json, or "" for text on a terminal and JSON elsewhere. [app.execute] flushes it.
func (a *app) newLogAs(level slog.Leveler, format string) (*slog.Logger, error) {
	format = strings.ToLower(format)
	text := format == "text" || format == "" && isTerminal(a.err)
	if !text && format != "" && format != "json" {
		return nil, usagef("the log format must be text or json")
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		switch {
		case at.Key == slog.TimeKey && text:
			at.Value = slog.StringValue(at.Value.Time().Format(time.TimeOnly))
		case at.Key == slog.TimeKey:
			at.Value = slog.StringValue(at.Value.Time().UTC().Format(time.RFC3339Nano))
		}
		return at
	}}
	var h slog.Handler = slog.NewJSONHandler(a.err, o)
	if text {
		h = slog.NewTextHandler(a.err, o)
	}
	limited := limitRepeats(h)
	a.flushes = append(a.flushes, limited.seen.flush)
	return slog.New(limited), nil
}
