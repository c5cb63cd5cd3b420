package ledger

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// An archive is NDJSON in UTF-8: one [archiveLine] a line, with the head first, the end last, and each account before its first
// entry. The end has the SHA-256 of all bytes before its line.
const (
	archiveForm = "toll/journal/1"
	archivePage = 2000
	// maxArchiveLine bounds a line in bytes: an entry with a resource of 8 KiB, escaped, and a signed answer.
	maxArchiveLine = 1 << 20
	// maxArchived bounds the accounts of which the last commitment is remembered: about 100 bytes each. Others are read.
	maxArchived = 1 << 18
	// maxFindings bounds what is said about an archive.
	maxFindings = 100
)

// archiveLine has one member that is not nil.
type archiveLine struct {
	Head    *archiveHead    `json:"head,omitempty"`
	Account *archiveAccount `json:"account,omitempty"`
	Entry   *archiveEntry   `json:"entry,omitempty"`
	End     *archiveEnd     `json:"end,omitempty"`
}

type archiveHead struct {
	Form   string    `json:"form"`
	First  int64     `json:"first"` // position of the first entry
	Before time.Time `json:"before"`
}

type archiveAccount struct {
	ID         string       `json:"id"` // 32 hexadecimal digits
	Plan       toll.PlanID  `json:"planId"`
	Subscriber toll.Address `json:"subscriber"`
}

type archiveEntry struct {
	Position   int64           `json:"position"`
	Account    string          `json:"account"`
	Seq        int64           `json:"seq"`
	Kind       int64           `json:"kind"` // 1 mint, 2 burn, 3 expire, 4 take back, 5 return
	Amount     toll.Credits    `json:"amount"`
	Balance    toll.Credits    `json:"balance"` // after the entry
	At         int64           `json:"at"`      // microseconds UTC
	Ref        string          `json:"ref"`
	Commitment toll.Hash       `json:"commitment"`
	Low        bool            `json:"low,omitempty"`
	UsedUp     bool            `json:"usedUp,omitempty"`
	Request    *archiveRequest `json:"request,omitempty"` // of a burn, unless it went before the archive was made

	Labels toll.UsageLabels `json:"labels,omitzero"` // of a burn
}

type archiveRequest struct {
	Content    toll.Hash    `json:"content"`
	Permission toll.Hash    `json:"permission"`
	Agent      toll.AgentID `json:"agentId,omitempty"`
	Resource   string       `json:"resource,omitempty"`
	Held       toll.Credits `json:"held"`
	HoldEndsAt int64        `json:"holdEndsAt,omitempty"` // microseconds UTC
	CreatedAt  int64        `json:"createdAt"`
	Previous   int64        `json:"previous,omitempty"`
	Answer     []byte       `json:"answer,omitempty"` // as it is stored
}

type archiveEnd struct {
	Entries int64  `json:"entries"`
	Last    int64  `json:"last"` // position of the last entry
	SHA256  string `json:"sha256"`
}

func newArchiveEntry(r *store.JournalRow) *archiveEntry {
	e := &archiveEntry{
		Position: r.Pos, Account: hex.EncodeToString(r.Account[:]), Seq: r.Seq, Kind: r.Kind, Amount: r.Amount, Balance: r.BalanceAfter,
		At: r.At, Ref: r.Ref, Commitment: r.Commitment, Low: r.Low, UsedUp: r.UsedUp,
		Labels: r.Labels,
	}
	if u := r.Burn; u != nil {
		e.Request = &archiveRequest{
			Content: u.Content, Permission: u.Permission, Agent: u.Agent, Resource: u.Resource, Held: u.Held, HoldEndsAt: u.HoldEndsAt,
			CreatedAt: u.CreatedAt, Previous: u.Previous, Answer: u.Answer,
		}
	}
	return e
}

func (e *archiveEntry) entry() (Entry, error) {
	id, err := hex.DecodeString(e.Account)
	if err == nil && len(id) != len(AccountID{}) {
		err = errors.New("an account id has the wrong length")
	}
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Account: AccountID(id), Seq: e.Seq, Kind: Kind(e.Kind), Amount: e.Amount, BalanceAfter: e.Balance, Ref: e.Ref, AtMicros: e.At,
		Commitment: e.Commitment,
	}, nil
}

// Archived says what an archive holds.
type Archived struct {
	Entries int64  `json:"entries"`
	First   int64  `json:"first"` // positions in the journal
	Last    int64  `json:"last"`
	SHA256  string `json:"sha256"` // of all lines but the last one
}

// Export writes the entries of all accounts from a position on, with the requests of settlements, up to the first that was not made
// before a time. It reads in pages and delays nobody. The database does not change.
func (l *Ledger) Export(ctx context.Context, w io.Writer, first int64, before time.Time) (a Archived, err error) {
	buffered := bufio.NewWriterSize(w, 1<<16)
	sum := sha256.New()
	lines := json.NewEncoder(io.MultiWriter(buffered, sum))
	lines.SetEscapeHTML(false)
	first = max(first, 1)
	a = Archived{First: first, Last: first - 1}
	err = lines.Encode(archiveLine{Head: &archiveHead{archiveForm, first, before.UTC()}})
	named := map[AccountID]bool{}
	for more := true; more && err == nil; {
		var rows []store.JournalRow
		if rows, err = store.JournalAfter(ctx, l.st, a.Last, archivePage); err != nil {
			break
		}
		end := slices.IndexFunc(rows, func(r store.JournalRow) bool { return r.At >= before.UnixMicro() })
		if more = end < 0 && len(rows) == archivePage; end >= 0 {
			rows = rows[:end]
		}
		for i := range rows {
			if id := AccountID(rows[i].Account); !named[id] {
				if err = l.exportAccount(ctx, lines, id); err != nil {
					return a, err
				}
				if len(named) >= maxArchived {
					clear(named) // an account may stand there twice
				}
				named[id] = true
			}
			if err = lines.Encode(archiveLine{Entry: newArchiveEntry(&rows[i])}); err != nil {
				return a, err
			}
			a.Entries, a.Last = a.Entries+1, rows[i].Pos
		}
		l.failpoint("exported")
	}
	if err != nil {
		return a, err
	}
	a.SHA256 = hex.EncodeToString(sum.Sum(nil))
	err = json.NewEncoder(buffered).Encode(archiveLine{End: &archiveEnd{a.Entries, a.Last, a.SHA256}})
	return a, errors.Join(err, buffered.Flush())
}

func (l *Ledger) exportAccount(ctx context.Context, lines *json.Encoder, id AccountID) error {
	account, err := l.Account(ctx, id)
	if err != nil {
		return err
	}
	return lines.Encode(archiveLine{Account: &archiveAccount{hex.EncodeToString(id[:]), account.Plan, account.Subscriber}})
}

type archiveAudit struct {
	l       *Ledger
	x       auditor
	sum     hash.Hash
	next    int64 // position of the next entry
	entries int64
	last    map[AccountID]Entry
	rows    []store.JournalRow // of the database, from next on
}

// AuditArchive proves an archive: its checksum; that it has each entry from its first position on, without a gap; that their
// commitments recompute, each from the one before of its account, which for the first of them is in the database; that ids of accounts
// belong to their plan and subscriber; and that the database has the same entries, and of requests nothing else. It reads the archive
// once, in bounded memory. An error means that it could not be read to its end.
func (l *Ledger) AuditArchive(ctx context.Context, r io.Reader) ([]Finding, Archived, error) {
	v := &archiveAudit{l: l, sum: sha256.New(), last: map[AccountID]Entry{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxArchiveLine)
	var a Archived
	for lines.Scan() {
		line := lines.Bytes()
		var parsed archiveLine
		strict := json.NewDecoder(bytes.NewReader(line))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&parsed); err != nil {
			return nil, a, fmt.Errorf("ledger: archive, after entry %d: %w", v.next-1, err)
		}
		switch {
		case a.SHA256 != "":
			return nil, a, errors.New("ledger: the archive has data after its end")
		case (parsed.Head != nil) != (v.next == 0):
			return nil, a, errors.New("ledger: the file is not a journal archive")
		case parsed.Head != nil:
			if v.next = parsed.Head.First; parsed.Head.Form != archiveForm || v.next < 1 {
				return nil, a, fmt.Errorf("ledger: this release cannot read archives of the format %q", parsed.Head.Form)
			}
			a.First = v.next
		case parsed.Account != nil:
			id := NewAccountID(parsed.Account.Plan, parsed.Account.Subscriber)
			v.x.check(hex.EncodeToString(id[:]) == parsed.Account.ID, "archive", "the id of account %s does not match the plan and subscriber of the account", parsed.Account.ID)
		case parsed.Entry != nil:
			if err := v.entry(ctx, parsed.Entry); err != nil {
				return nil, a, err
			}
		case parsed.End != nil:
			a = Archived{Entries: v.entries, First: a.First, Last: v.next - 1, SHA256: hex.EncodeToString(v.sum.Sum(nil))}
			v.x.check(*parsed.End == archiveEnd{a.Entries, a.Last, a.SHA256}, "archive",
				"the last line of the file records %d entries up to entry %d with checksum %s, "+
					"but the file has %d entries up to entry %d with checksum %s",
				parsed.End.Entries, parsed.End.Last, parsed.End.SHA256, a.Entries, a.Last, a.SHA256)
		}
		if len(v.x.found) >= maxFindings {
			return v.x.found, a, nil
		}
		v.sum.Write(line)
		v.sum.Write([]byte("\n"))
	}
	err := lines.Err()
	if err == nil && a.SHA256 == "" {
		err = errors.New("the file is incomplete: its end is missing")
	}
	if err != nil {
		err = fmt.Errorf("ledger: archive, after entry %d: %w", v.next-1, err)
	}
	return v.x.found, a, err
}

func (v *archiveAudit) entry(ctx context.Context, in *archiveEntry) error {
	e, err := in.entry()
	if err != nil {
		return fmt.Errorf("ledger: archive, entry %d: %w", in.Position, err)
	}
	v.x.a.ID = e.Account
	v.x.check(in.Position == v.next, "archive", "entry %d is where entry %d was expected", in.Position, v.next)
	previous, known := v.last[e.Account]
	if !known && e.Seq > 1 {
		row, err := store.JournalEntry(ctx, v.l.st, e.Account, e.Seq-1)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		previous = EntryOf(&row)
	}
	v.x.check(e.Seq == previous.Seq+1, "archive", "entry %d of the account comes after entry %d: the numbers are not consecutive",
		e.Seq, previous.Seq)
	v.x.check(e.Commitment == e.commit(previous.Commitment), "archive", "the commitment of entry %d does not match its content", e.Seq)
	v.x.check(e.BalanceAfter == previous.BalanceAfter+toll.Credits(e.Kind.sign())*e.Amount, "archive", "the balance after entry %d is wrong: %d", e.Seq, e.BalanceAfter)
	if len(v.last) >= maxArchived {
		clear(v.last)
	}
	v.last[e.Account] = e
	if err := v.compare(ctx, in); err != nil {
		return err
	}
	v.entries++
	v.next = in.Position + 1
	return nil
}

func (v *archiveAudit) compare(ctx context.Context, in *archiveEntry) (err error) {
	if len(v.rows) == 0 || v.rows[0].Pos != in.Position {
		if v.rows, err = store.JournalAfter(ctx, v.l.st, in.Position-1, archivePage); err != nil {
			return err
		}
	}
	if len(v.rows) == 0 || v.rows[0].Pos != in.Position {
		v.x.check(false, "archive", "the database has no entry %d", in.Position)
		return nil
	}
	have := newArchiveEntry(&v.rows[0])
	v.rows = v.rows[1:]
	if have.Request == nil { // it went, or it went before the archive was made
		have.Request = in.Request
	}
	ours, err := json.Marshal(have)
	theirs, err2 := json.Marshal(in)
	v.x.check(bytes.Equal(ours, theirs), "archive", "entry %d differs from the database", in.Position)
	return errors.Join(err, err2)
}
