package chaintest_test

import (
	"testing"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
)

func TestJournal(t *testing.T) {
	chaintest.TestJournal(t, func(testing.TB) chain.Journal { return chaintest.NewJournal() })
}
