package bad // want `tests of a public room are in package bad_test`

import (
	"testing"
	"time"

	"example.com/other" // want `toll must not import example.com/other`
	_ "example.com/testing"
	_ "example.org/bad/x402"
)

func TestBad(t *testing.T) {
	if other.Missing {
		t.Skip("no time") // want `a test that can be skipped`
	}
	t.Log(time.Now(), 0.5, "svc:erc4337") // tests may
}
