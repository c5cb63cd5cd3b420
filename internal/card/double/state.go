package double

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/tollhq/toll/internal/tempfile"
)

// state is everything that the double remembers. No card number is in it. Its file has a line of
// JSON for the state itself, and one for each object.
type state struct {
	Account        string // acct_…
	Created        int64
	FingerprintKey string // of fingerprints of cards
	MovedBy        int64  // seconds, by the fault "clock"
	Pruned         int64

	objects []row // all, oldest first; outcomes of idempotency keys among them
	index   map[string]row
	encoded map[string][]byte // lines of objects that do not change any more

	Hidden     map[string]*hidden // by id of the object that it belongs to
	Tasks      []task             // soonest first
	Deliveries []*delivery
	Faults     []*Fault
}

// hidden is what the double knows of an object and its API does not tell.
type hidden struct {
	Card       string `json:",omitempty"` // of a payment method: name of the test card
	SetUp      bool   `json:",omitempty"` // it was authenticated for off-session payments
	Used       bool   `json:",omitempty"` // it was detached, or used without a customer
	Attempts   int    `json:",omitempty"` // of a session: cards that were tried
	Items      []item `json:",omitempty"` // of a session
	IntentData params `json:",omitempty"` // payment_intent_data of a session
}

// row is one object of Stripe.
type row interface {
	key() string
	born() int64
}

// base are the members that every object has.
type base struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
}

func (b *base) key() string { return b.ID }
func (b *base) born() int64 { return b.Created }

// text is a string that is null in JSON when it is empty.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// stamp is a time in Unix seconds that is null in JSON when it is zero.
type stamp int64

func (s stamp) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int64(s))
}

// newObject returns an empty object of the kind that its member "object" names.
var newObject = map[string]func() row{
	"customer":            func() row { return &customer{} },
	"payment_method":      func() row { return &paymentMethod{} },
	"setup_intent":        func() row { return &setupIntent{} },
	"setup_attempt":       func() row { return &setupAttempt{} },
	"checkout.session":    func() row { return &session{} },
	"payment_intent":      func() row { return &intent{} },
	"charge":              func() row { return &charge{} },
	"refund":              func() row { return &refund{} },
	"dispute":             func() row { return &dispute{} },
	"balance_transaction": func() row { return &balanceTransaction{} },
	"event":               func() row { return &event{} },
	"outcome":             func() row { return &outcome{} },
}

// decode reads the lines of a file.
func (s *state) decode(b []byte) error {
	head := true
	for line := range bytes.Lines(b) {
		if head {
			if err := json.Unmarshal(line, s); err != nil {
				return err
			}
			head = false
			continue
		}
		var start base
		if err := json.Unmarshal(line, &start); err != nil {
			return err
		}
		empty, ok := newObject[start.Object]
		if !ok {
			return fmt.Errorf("unknown object %q", start.Object)
		}
		r := empty()
		if err := json.Unmarshal(line, r); err != nil {
			return err
		}
		s.add(r)
	}
	if head {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// encode returns the lines of a file. Events and outcomes are most of them, and are encoded once.
func (s *state) encode() ([]byte, error) {
	var b bytes.Buffer
	line, err := json.Marshal(s)
	b.Write(line)
	for _, r := range s.objects {
		if line = s.encoded[r.key()]; line == nil && err == nil {
			line, err = json.Marshal(r)
			switch r.(type) {
			case *event, *outcome:
				s.encoded[r.key()] = line
			}
		}
		b.WriteByte('\n')
		b.Write(line)
	}
	return b.Bytes(), err
}

func (s *state) add(r row) {
	s.objects = append(s.objects, r)
	s.index[r.key()] = r
}

// find returns the object with an id, if it is of this type.
func find[R row](s *state, id string) (R, bool) {
	r, ok := s.index[id].(R)
	return r, ok
}

// each goes through the objects of a type, oldest first.
func each[R row](s *state) iter.Seq[R] {
	return func(yield func(R) bool) {
		for _, r := range s.objects {
			if r, ok := r.(R); ok && !yield(r) {
				return
			}
		}
	}
}

// first returns the oldest object of a type that matches.
func first[R row](s *state, match func(R) bool) (r R, ok bool) {
	for r := range each[R](s) {
		if match(r) {
			return r, true
		}
	}
	return r, false
}

// forget removes objects.
func (s *state) forget(old func(row) bool) {
	s.objects = slices.DeleteFunc(s.objects, func(r row) bool {
		if old(r) {
			delete(s.index, r.key())
			delete(s.encoded, r.key())
			return true
		}
		return false
	})
}

// size is how many rows a stranger's requests have made.
func (s *state) size() int { return len(s.objects) + len(s.Deliveries) }

func (s *state) hide(id string) *hidden {
	if s.Hidden[id] == nil {
		s.Hidden[id] = &hidden{}
	}
	return s.Hidden[id]
}

// load reads the state of a file; an empty name or a missing file gives a new state.
func load(file, account string, now int64) (*state, error) {
	s := &state{Account: cmp.Or(account, newID("acct_", 16)), Created: now, FingerprintKey: newID("", 32)}
	s.index, s.encoded, s.Hidden = map[string]row{}, map[string][]byte{}, map[string]*hidden{}
	if file != "" {
		b, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("state of the card double: %w", err)
		default:
			if err := s.decode(b); err != nil {
				return nil, fmt.Errorf("state of the card double, file %s: %w", file, err)
			}
		}
	}
	return s, nil
}

// save writes the state to a new file and puts it in place of the old one, so that a crash leaves
// one or the other whole. The caller holds d.mu.
func (d *Double) save() error {
	if d.opts.File == "" {
		return nil
	}
	b, err := d.st.encode()
	if err == nil {
		kind := tempfile.Kind{Prefix: "." + filepath.Base(d.opts.File) + "."}
		err = kind.Write(d.opts.File, b, true)
	}
	if err != nil {
		d.opts.Logger.Error("the card double cannot save its state", "err", err)
	}
	return err
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newID returns a prefix and n random letters and digits, like the ids of Stripe.
func newID(prefix string, n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails since Go 1.24
	for i := range b {
		b[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return prefix + string(b)
}
