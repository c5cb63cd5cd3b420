package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
)

// payDay is the time over which payments of the command line are counted together.
const payDay = 24 * time.Hour

// purseLockWait bounds the wait for another process, one that was stopped too.
const purseLockWait = 30 * time.Second

var errPurseLocked = errors.New("another process has locked the file for more than 30 seconds")

// filePurse is a [client.Purse] in a file of JSON lines next to the configuration. A payment has up to three lines with the same id:
// before it is made, before the payment itself is sent to the server, and when it has ended. Limits cover all processes and the last day.
type filePurse struct {
	path   string
	limits client.Limits
	now    func() time.Time
	closed func(client.Payment) // called for each payment that has ended; may be nil
}

// Take is part of [client.Purse].
func (f *filePurse) Take(ctx context.Context, p client.Payment) error {
	return f.locked(ctx, func() error {
		payments, err := f.read()
		if err != nil {
			return err
		}
		var spent toll.Units
		for _, old := range payments {
			if old.Unit == p.Unit && f.now().Sub(old.At) < payDay {
				var fits bool
				if spent, fits = spent.Add(old.Counts()); !fits {
					return errors.New("record of payments: the total is too large to count")
				}
			}
		}
		if err := f.limits.Allows(&p, spent); err != nil {
			return err
		}
		return f.append(p)
	})
}

// Close is part of [client.Purse].
func (f *filePurse) Close(ctx context.Context, p client.Payment) error {
	if f.closed != nil && p.State != client.PaymentSent {
		f.closed(p)
	}
	return f.locked(ctx, func() error { return f.append(p) })
}

func (f *filePurse) append(p client.Payment) error {
	line, err := json.Marshal(&p)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("record of payments: %w", err)
	}
	// The line break in front ends a line that a crash has cut off.
	_, err = file.Write(append(append([]byte{'\n'}, line...), '\n'))
	return errors.Join(err, file.Sync(), file.Close())
}

// read returns the payments, the oldest first, each as it stands. A line that was cut off by a crash is passed over: a payment
// leaves when its line is on disk, and one whose end is not counts in full.
func (f *filePurse) read() ([]client.Payment, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record of payments: %w", err)
	}
	var payments []client.Payment
	at := map[string]int{}
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var p client.Payment
		if json.Unmarshal(line, &p) != nil {
			continue
		}
		if i, ok := at[p.ID]; ok {
			payments[i] = p
			continue
		}
		at[p.ID] = len(payments)
		payments = append(payments, p)
	}
	return payments, nil
}

// locked runs do while no other process has the lock.
func (f *filePurse) locked(ctx context.Context, do func() error) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("record of payments: %w", err)
	}
	// The operating system releases the lock exactly when its process ends.
	lock := flock.New(f.path+".lock", flock.SetPermissions(0o600))
	limited, cancel := context.WithTimeoutCause(ctx, purseLockWait, errPurseLocked)
	defer cancel()
	if _, err := lock.TryLockContext(limited, 10*time.Millisecond); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("record of payments: %w", cmp.Or(context.Cause(limited), err))
	}
	return errors.Join(do(), lock.Close())
}

// pursePath is where payments are recorded.
func pursePath(con *console) (string, error) {
	path, _ := con.configPath()
	if path == "" {
		return "", errors.New("there is no home directory for the record of payments: set TOLL_CONFIG to a configuration file")
	}
	return filepath.Join(filepath.Dir(path), "payments.jsonl"), nil
}

func paymentsCommand(a *app) *cobra.Command {
	c := command("list", "List payments made with toll call --pay", func(*cobra.Command, []string) error {
		path, err := pursePath(&a.console)
		if err != nil {
			return err
		}
		payments, err := (&filePurse{path: path}).read()
		if err != nil {
			return err
		}
		return showPayments(&a.console, payments)
	})
	c.Long = `List payments made with toll call --pay, oldest first. Amounts are credits or tokens. A table shows tokens in units such as 0.05;
other formats show base units (6 decimals).

The server may have taken a payment in the state sent or unknown, so the payment counts in full toward the limits for 24 hours.
To find out its outcome, use toll payments check.`
	return group("payments", "Payments made from this computer", "", c, paymentsCheck(a))
}

// showPayments prints payments, for people with tokens in whole units.
func showPayments(con *console, payments []client.Payment) error {
	type shown struct {
		client.Payment
		At    toll.Time `json:"at"`
		Most  string    `json:"most"`
		Spent string    `json:"spent"`
	}
	shownPayments := []shown{}
	for _, p := range payments {
		s := shown{p, toll.At(p.At), p.Most.String(), p.Spent.String()}
		if con.set.output == formatTable {
			s.Most, s.Spent = amountIn(p.Unit, p.Most), amountIn(p.Unit, p.Spent)
		}
		shownPayments = append(shownPayments, s)
	}
	return con.showPage(map[string]any{"payments": shownPayments}, list.Local("payments", list.Time("at", "Time"), list.Text("host"), list.Text("path"), list.State("state"),
		list.State("unit"), list.Money("most"), list.Money("spent"), list.ID("transaction")))
}
