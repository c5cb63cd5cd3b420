package ledger

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// The document holds the vectors; this test computes each of them and wants it there, byte for byte. A change that breaks
// it breaks every ledger that exists.
func TestPermanent(t *testing.T) {
	raw := must.Get(os.ReadFile(filepath.Join("..", "..", "testdata", "permanent.md")))(t)
	document := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.HasPrefix(line, "|") {
			if _, twice := document[name]; twice {
				t.Errorf("the document has %s twice", name)
			}
			document[name] = value
		}
	}
	vectors := permanentVectors(t)
	for _, v := range vectors {
		switch got, ok := document[v.name]; {
		case !ok:
			t.Errorf("the document lacks: %s = %s", v.name, v.value)
		case got != v.value:
			t.Errorf("%s\n  code:     %s\n  document: %s", v.name, v.value, got)
		}
		delete(document, v.name)
	}
	for name := range document {
		t.Errorf("the document has %s, which this test does not compute", name)
	}
}

type vector struct{ name, value string }

func permanentVectors(t *testing.T) (out []vector) {
	t.Helper()
	add := func(name, format string, args ...any) { out = append(out, vector{name, fmt.Sprintf(format, args...)}) }

	const plan = toll.PlanID("51234567890123456789012345678901234567890123456789012345678901234567890123456")
	subscriber := must.Get(toll.ParseAddress("0x52908400098527886E0F7030069857D2E4169EE7"))(t)
	account := NewAccountID(plan, subscriber)
	add("namespace", "%s", AccountID(namespace))
	add("plan", "%s", plan)
	add("subscriber", "%s", subscriber)
	add("account", "%s", account)

	var previous toll.Hash
	add("commitment 0", "%x", previous[:])
	for i, e := range []Entry{
		{Kind: KindMint, Amount: 9223372036854775807, BalanceAfter: 9223372036854775807, Ref: "ord_1", AtMicros: 1767225600000000},
		{Kind: KindBurn, Amount: 3, BalanceAfter: 9223372036854775804, Ref: "job ☂", AtMicros: 1767225600000001},
		{Kind: KindExpire, Amount: 4, BalanceAfter: 9223372036854775800, Ref: "ord_1", AtMicros: 1767225600000001},
		{Kind: KindTakeBack, Amount: 9223372036854775800, BalanceAfter: 0, Ref: "ord_1", AtMicros: 1767225600000002},
		{Kind: KindReturn, Amount: 5, BalanceAfter: 5, Ref: "", AtMicros: 1767225600000003},
	} {
		e.Account, e.Seq = account, int64(i+1)
		add(fmt.Sprintf("entry %d", e.Seq), "%s %d, balance %d, ref %q, at %d", e.Kind, e.Amount, e.BalanceAfter, e.Ref, e.AtMicros)
		add(fmt.Sprintf("bytes %d", e.Seq), "%x", e.Canonical())
		previous = e.commit(previous)
		add(fmt.Sprintf("commitment %d", e.Seq), "%x", previous[:])
	}

	// A request id holds random bytes: this one was issued once, and has to be known for ever.
	key := must.Get(hex.DecodeString("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"))(t)
	ids := requestIDs{key}
	uuid := must.Get(hex.DecodeString("019b76daa80071238456789abcdef012"))(t) // version 7, of 2026-01-01T00:00:00Z
	body := append(uuid, account[:]...)
	id := RequestPrefix + requestEncoding.EncodeToString(append(body, ids.mac(body)...))
	add("key", "%x", key)
	add("uuid", "%x", uuid)
	add("mac", "%x", ids.mac(body))
	add("request", "%s", id)
	if got, ours := ids.account(id); !ours || got != account {
		t.Errorf("the request id of the vector is not known: %s, %v", got, ours)
	}
	for i := range id {
		forged := id[:i] + string("01"[btoi(id[i] == '0')]) + id[i+1:]
		if _, ours := ids.account(forged); ours {
			t.Errorf("a request id with another character at %d is taken for ours", i)
		}
	}
	now := time.UnixMilli(1767225600000)
	issued := ids.issue(account, now)
	if len(issued) != len(id) || issued[:len(RequestPrefix)+9] != id[:len(RequestPrefix)+9] { // 45 of the 48 bits of the time
		t.Errorf("an id that is issued at the same time begins otherwise: %s, %s", issued, id)
	}
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestRequestIDs_HMAC(t *testing.T) {
	for _, n := range []int{0, 1, 32, 63, 64, 65, 200} {
		key := bytes.Repeat([]byte{0x5a}, n)
		body := []byte("a body of the usual 32 bytes ...")
		m := hmac.New(sha256.New, key)
		m.Write([]byte("toll/request-id/1"))
		m.Write(body)
		if got, want := (requestIDs{key}).mac(body), m.Sum(nil)[:requestMAC]; !bytes.Equal(got, want) {
			t.Errorf("a key of %d bytes: %x in place of %x", n, got, want)
		}
	}
}
