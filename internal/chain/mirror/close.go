package mirror

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/tollhq/toll"
)

// Grace is how long after its end a period is closed: by then every burn of it is committed.
const Grace = 5 * time.Minute

// Burn is a burn that is to be published. Its fields have no index yet.
type Burn struct {
	toll.BurnFields
	At time.Time
}

// Closed is a period whose leaves and root never change again.
type Closed struct {
	Number  int64
	Root    toll.Hash
	Credits *big.Int // sum of the leaves
	Leaves  []toll.BurnFields
	Above   [][]toll.Hash // the tree without its leaves; the last level is the root
}

// Number returns the period of a time: how many lengths have passed since 1970.
func Number(at time.Time, length time.Duration) int64 { return at.UnixMicro() / length.Microseconds() }

// Cut returns the end of the last period that can be closed now. Burns from then on wait.
func Cut(now time.Time, length time.Duration) time.Time {
	return time.UnixMicro(Number(now.Add(-Grace), length) * length.Microseconds()).UTC()
}

// Close sorts burns before the cut into periods, each with its leaves by time and then by commitment. A burn that turns up
// when its period, or a later one, was closed goes into the first one after last. Periods without burns are left out.
func Close(burns []Burn, length time.Duration, last int64) []Closed {
	byPeriod := map[int64][]Burn{}
	for _, b := range burns {
		n := max(Number(b.At, length), last+1)
		byPeriod[n] = append(byPeriod[n], b)
	}
	var out []Closed
	for n, in := range byPeriod {
		slices.SortFunc(in, func(a, b Burn) int {
			if c := a.At.Compare(b.At); c != 0 {
				return c
			}
			return bytes.Compare(a.Commitment[:], b.Commitment[:])
		})
		c := Closed{Number: n, Credits: new(big.Int), Leaves: make([]toll.BurnFields, len(in))}
		hashes := make([]toll.Hash, len(in))
		for i, b := range in {
			b.Index = int64(i)
			c.Leaves[i], hashes[i] = b.BurnFields, b.Leaf()
			c.Credits.Add(c.Credits, big.NewInt(int64(b.Credits)))
		}
		c.Root, c.Above = Root(hashes), Levels(hashes)[1:]
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Closed) int { return cmp.Compare(a.Number, b.Number) })
	return out
}
