package mirror

import (
	"encoding/hex"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

func leaves(n int) []toll.Hash {
	out := make([]toll.Hash, n)
	for i := range out {
		out[i] = toll.Hash(toll.Keccak256([]byte{byte(i)}))
	}
	return out
}

// The expected roots are made by hand here: the pairs are sorted, an odd node moves up.
func TestRoot(t *testing.T) {
	h := func(a, b toll.Hash) toll.Hash {
		if hex.EncodeToString(a[:]) > hex.EncodeToString(b[:]) {
			a, b = b, a
		}
		return toll.Hash(toll.Keccak256(append(append([]byte{}, a[:]...), b[:]...)))
	}
	l := leaves(7)
	l01, l23, l45 := h(l[0], l[1]), h(l[2], l[3]), h(l[4], l[5])
	for n, want := range map[int]toll.Hash{
		0: {}, 1: l[0], 2: l01, 3: h(l01, l[2]), 7: h(h(l01, l23), h(l45, l[6])),
	} {
		if got := Root(l[:n]); got != want {
			t.Errorf("root of %d leaves is %s, want %s", n, got, want)
		}
	}
}

// Every leaf has a proof, and a proof shows nothing else.
func TestProof(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "leaves")
		l := leaves(n)
		root := Root(l)
		i := rapid.IntRange(0, n-1).Draw(t, "leaf")
		levels := Levels(l)
		proof := must.Get(Proof(int64(n), int64(i), func(level, i int64) (toll.Hash, error) { return levels[level][i], nil }))(t)
		if !leads(root, l[i], proof) {
			t.Fatalf("leaf %d of %d is not proven", i, n)
		}
		other := toll.Hash(toll.Keccak256([]byte("another")))
		if leads(root, other, proof) || leads(other, l[i], proof) {
			t.Fatalf("the proof of leaf %d of %d shows too much", i, n)
		}
		if len(proof) > 0 {
			proof[rapid.IntRange(0, len(proof)-1).Draw(t, "step")][31] ^= 1
			if leads(root, l[i], proof) {
				t.Fatalf("a changed proof of leaf %d of %d passes", i, n)
			}
		}
	})
}

var fields = toll.BurnFields{
	Index: 3, Commitment: toll.Hash{1}, PlanID: "115792089237316195423570985008687907853269984665640564039457584007913129639935",
	Holder: toll.Address{2}, RequestHash: toll.Hash{3}, Credits: 1 << 40,
}

// A proof of a leaf with one other field does not pass.
func TestLeaf_Fields(t *testing.T) {
	was := fields.Leaf()
	for name, change := range map[string]func(*toll.BurnFields){
		"index": func(f *toll.BurnFields) { f.Index++ }, "commitment": func(f *toll.BurnFields) { f.Commitment[31]++ },
		"plan": func(f *toll.BurnFields) { f.PlanID = "1" }, "holder": func(f *toll.BurnFields) { f.Holder[19]++ },
		"request": func(f *toll.BurnFields) { f.RequestHash[0]++ }, "credits": func(f *toll.BurnFields) { f.Credits-- },
	} {
		f := fields
		change(&f)
		if f.Leaf() == was {
			t.Errorf("another %s has the same leaf", name)
		}
	}
}

// Settled exactly at the border belongs to the period that begins; a burn that turns up late is in one period, too.
// T54
func TestPeriodBorder(t *testing.T) {
	border := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	n := Number(border, time.Hour)
	burn := func(at time.Time, b byte) Burn {
		f := fields
		f.Commitment = toll.Hash{b}
		return Burn{f, at}
	}
	burns := []Burn{burn(border, 3), burn(border.Add(-time.Microsecond), 2), burn(border.Add(time.Minute), 5), burn(border, 1), burn(border.Add(-3*time.Hour), 9)}
	got := Close(burns, time.Hour, n-2)
	if len(got) != 2 || got[0].Number != n-1 || got[1].Number != n {
		t.Fatalf("periods: %+v", got)
	}
	order := ""
	for _, c := range got {
		for i, l := range c.Leaves {
			if l.Index != int64(i) {
				t.Errorf("leaf %d has index %d", i, l.Index)
			}
			order += string('0' + rune(l.Commitment[0]))
		}
		order += " "
	}
	if order != "92 135 " {
		t.Errorf("the burns are in the order %q", order)
	}
	if got[0].Credits.String() != "2199023255552" {
		t.Errorf("the sum of two leaves is %s", got[0].Credits)
	}
	if cut := Cut(border.Add(Grace-1), time.Hour); !cut.Equal(border.Add(-time.Hour)) {
		t.Errorf("a period is closed before its grace is over: %s", cut)
	}
	if cut := Cut(border.Add(Grace), time.Hour); !cut.Equal(border) {
		t.Errorf("a period is not closed after its grace: %s", cut)
	}
}

func leads(root, leaf toll.Hash, proof []toll.Hash) bool {
	for _, sibling := range proof {
		leaf = toll.MerkleParent(leaf, sibling)
	}
	return leaf == root
}
