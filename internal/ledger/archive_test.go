package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Two archives, made before and after their requests went from the database, prove its chains; a changed byte anywhere is found.
func TestArchive(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		other := ledger.MintOp{Plan: "2", Subscriber: subscriber, Amount: 1<<62 + 1, Ref: "other"}
		b.mint(500, time.Time{})
		perm := b.permission(0)
		const long = `https://a.example/<&>"ü/` // what JSON escapes
		settle := func(n int) {
			for i := range n {
				op := settleOp(perm, fmt.Sprint("r", i, b.clock.now().Unix()), 1)
				op.Resource = long
				must.Get(b.Settle(b.ctx, op))(b)
			}
		}
		settle(30)
		must.Get(b.Mint(b.ctx, other))(b)
		b.clock.add(2 * day)
		cut := b.clock.now()
		perm = b.permission(0)
		settle(10)
		var one, two, late bytes.Buffer
		a1 := must.Get(b.Export(b.ctx, &one, 1, cut))(b)
		a2 := must.Get(b.Export(b.ctx, &two, a1.Last+1, cut.Add(day)))(b)
		if a1.Entries != 32 || a1.First != 1 || a1.Last != 32 || a2.Entries != 10 || a2.First != 33 || a2.Last != 42 {
			t.Fatalf("archives are %+v, %+v", a1, a2)
		}
		follow(t, b.Ledger)
		if n := b.retain(cut); n.Burns != 30 {
			t.Fatalf("removed %+v", n)
		}
		must.Get(b.Export(b.ctx, &late, 1, cut))(b)
		sound := func(archive string, want ledger.Archived) {
			t.Helper()
			found, a, err := b.AuditArchive(b.ctx, strings.NewReader(archive))
			if err != nil || len(found) > 0 || a != want {
				t.Errorf("%v, %v, %+v, want %+v", err, found, a, want)
			}
		}
		sound(one.String(), a1)
		sound(two.String(), a2)
		if !strings.Contains(one.String(), `https://a.example/<&>\"ü/`) || strings.Contains(late.String(), "a.example") {
			t.Error("the resources are not where they should be")
		}
		if found, _, err := b.AuditArchive(b.ctx, &late); err != nil || len(found) > 0 {
			t.Errorf("an archive without requests: %v, %v", err, found)
		}

		faulty := func(what, archive string) {
			t.Helper()
			if found, _, err := b.AuditArchive(b.ctx, strings.NewReader(archive)); err == nil && len(found) == 0 {
				t.Errorf("%s is not found", what)
			}
		}
		whole := one.String()
		lines := strings.SplitAfter(whole, "\n")
		for i := 0; i < len(whole); i += 97 { // what is no digit of a checksum or text any more is an error
			changed := []byte(whole)
			if changed[i] ^= 1; changed[i] != '\n' && whole[i] != '\n' {
				faulty(fmt.Sprintf("a changed byte %d, %q", i, whole[i]), string(changed))
			}
		}
		faulty("a lost line", strings.Join(append(lines[:9:9], lines[10:]...), ""))
		faulty("a line that stands there twice", strings.Join(append(lines[:10:10], lines[9:]...), ""))
		faulty("a lost end", strings.Join(lines[:len(lines)-2], ""))
		faulty("a lost part", whole[:len(whole)/2])
		faulty("a lost head", strings.Join(lines[1:], ""))
		faulty("something behind the end", whole+lines[3])
		faulty("a line without end", lines[0]+strings.Repeat("x", 2<<20))
		faulty("nothing", "")
	})
}

// A whole archive of other entries, with the right checksum, is not that of the database.
func TestArchive_OtherDatabase(t *testing.T) {
	mine, _ := storetest.Open(t, store.SQLite)
	theirs, _ := storetest.Open(t, store.SQLite)
	b, c := open(t, mine), open(t, theirs)
	for i, of := range []*bench{b, c} {
		of.mint(toll.Credits(10+i), time.Time{})
	}
	var archive bytes.Buffer
	must.Get(c.Export(c.ctx, &archive, 1, start.Add(day)))(c)
	found, _, err := b.AuditArchive(b.ctx, &archive)
	if err != nil || len(found) == 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// failing takes some bytes and then has no room.
type failing int

func (f *failing) Write(b []byte) (int, error) {
	if *f -= failing(len(b)); *f < 0 {
		return 0, errors.New("no room")
	}
	return len(b), nil
}

// An archive that could not be written says so, whatever it had written by then.
func TestArchive_NoRoom(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	b := open(t, st)
	b.mint(10, time.Time{})
	for _, room := range []failing{0, 100, 300} {
		if _, err := b.Export(b.ctx, &room, 1, start.Add(day)); err == nil {
			t.Error("an archive without room is no error")
		}
	}
}
