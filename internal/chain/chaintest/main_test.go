package chaintest_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"go.uber.org/goleak"

	"github.com/tollhq/toll/internal/must"
)

// TestMain fails if goroutines still run after the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks waits until only two goroutines of go-ethereum run, which end some time after its node.
func leaks() error {
	for end := time.Now().Add(patience); ; {
		err := goleak.Find(goleak.IgnoreTopFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache"),
			goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// patience limits how long a test waits for an event.
const patience = 2 * time.Minute

// mined sends a transaction, waits for its block, and returns its receipt, which may report a failure.
func mined(t *testing.T, eth *ethclient.Client, tx *types.Transaction) *types.Receipt {
	t.Helper()
	must.Do(t, eth.SendTransaction(t.Context(), tx))
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		receipt, err := eth.TransactionReceipt(t.Context(), tx.Hash())
		if err == nil {
			// The receipt appears before its block is the latest block.
			head, headErr := eth.BlockNumber(t.Context())
			if headErr == nil && head >= receipt.BlockNumber.Uint64() {
				return receipt
			}
			err = headErr
		}
		if t.Context().Err() != nil || time.Now().After(end) {
			t.Fatal(errors.Join(errors.New("the transaction is in no block"), err))
		}
	}
}

// selector returns the first four bytes of the hash of a signature, which select a function or a custom error of a contract.
func selector(signature string) []byte { return crypto.Keccak256([]byte(signature))[:4] }
