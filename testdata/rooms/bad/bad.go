// Package bad breaks every rule of the rooms. Each comment names the fault that the checker has to find in its line.
package bad

import (
	"log" // want `log is a global: take a *slog.Logger`
	"math/big"
	"os"
	"strconv"
	"time"

	"example.com/allowed"  // want `toll must not import example.com/allowed`
	"example.org/bad/x402" // want `toll must not import x402`
)

func init() { // want `a function init: what happens at start is called by name`
	log.Print(allowed.Word, x402.Name)
}

var clock = time.Now // the default clock

func now() time.Time { return time.Now() } // want `time.Now in a room of rules: take a clock`

func age(t time.Time) time.Duration { return time.Since(t) } // want `time.Since in a room of rules: take a clock`

func price(s string) (float64, error) { // want `a float near money`
	return strconv.ParseFloat(s, 64) // want `a float near money`
}

const tax = 0.19 // want `a float near money`

var big1 = new(big.Float) // want `a float near money`

func speak() { os.Stdout.WriteString("hello") } // want `this room does not write to the terminal`
