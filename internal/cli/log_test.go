package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// An outage logs one line a second for each message, and the numbers add up.
func TestLimitRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(limitRepeats(slog.NewJSONHandler(&out, nil)))
		for i := range 1000 { // for ten seconds
			log.With("room", "ledger").Warn("the database is away", "n", i)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		lines, sum := strings.Split(strings.TrimSpace(out.String()), "\n"), 0
		for _, line := range lines {
			n := 1 // a line without a number is the first of its second
			if _, text, ok := strings.Cut(line, `"repeated":`); ok {
				if _, err := fmt.Sscanf(text, "%d", &n); err != nil {
					t.Fatal(line)
				}
			}
			sum += n
		}
		if len(lines) > 12 || sum != 1000 || !strings.Contains(lines[1], `"room":"ledger"`) {
			t.Errorf("%d lines of %d records:\n%s", len(lines), sum, out.String())
		}

		out.Reset()
		for range 5 {
			log.Info("serving")
			log.Error("alarm: money", "alarm", "money")
			log.Error("the outcome of a settlement is not known yet", "agentRequestId", "r-1")
			log.Error("a wallet may have paid for an answer that it did not receive", "nonce", "0x01", "transaction", "")
			log.Warn("a payment cannot be settled", "intent", "pi_1")
			log.Warn("a delegation made a payment outside this service", "delegation", "d-1")
		}
		log.Error("one")
		log.Error("two")
		time.Sleep(2 * time.Second)
		if n := strings.Count(out.String(), "\n"); n != 32 || strings.Contains(out.String(), "repeated") {
			t.Errorf("%d lines, want 32:\n%s", n, out.String())
		}

		out.Reset()
		for i := range maxMessages * 2 {
			log.Warn("message " + fmt.Sprint(i))
		}
		if n := strings.Count(out.String(), "\n"); n != maxMessages*2 {
			t.Errorf("%d lines of %d messages", n, maxMessages*2)
		}
		time.Sleep(2 * time.Second)
	})
}

// The lines that are counted when a command ends are logged at its end, once.
func TestLimitRepeats_Flushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := &app{console: console{in: strings.NewReader(""), out: io.Discard, err: &out, getenv: func(string) string { return "" }}}
		root := a.root()
		root.AddCommand(&cobra.Command{Use: "fails-often", RunE: func(*cobra.Command, []string) error {
			log, err := a.newLog("info")
			if err != nil {
				return err
			}
			for n := range 5 {
				log.Warn("the database is away", "n", n)
			}
			log.Warn("a file is away")
			return errors.New("the end")
		}})
		code := a.execute(t.Context(), root, []string{"fails-often"})
		time.Sleep(3 * time.Second)
		text := out.String()
		if code == 0 || strings.Count(text, "the database is away") != 2 || !strings.Contains(text, `"n":4,"repeated":4}`) || strings.Count(text, "a file is away") != 1 ||
			strings.Index(text, `"repeated"`) > strings.Index(text, "the end") {
			t.Errorf("%d:\n%s", code, text)
		}
	})
}
