//go:build !nodevchain

package devchain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// childDir is the variable that makes the test program a process with a chain in the directory it names.
const childDir = "TOLL_TEST_DEVCHAIN_DIR"

// mostLost limits the number of blocks that a killed process may lose.
const mostLost = 1

var payee = common.Address{0: 0xaa, 19: 77}

// child runs a chain and prints lines: its address or an error, then the number of each block.
func child(dir string) int {
	c, err := Start(context.Background(), Config{Dir: dir, HTTP: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(c.URL())
	for {
		if _, err := c.Fund(context.Background(), payee, big.NewInt(1)); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(c.chain.CurrentBlock().Number)
	}
}

// process starts the test program as a process with a chain. The scanner reads its output.
func process(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return cmd, bufio.NewScanner(out)
}

// kept contains the genesis and the blocks of a chain before its end.
type kept struct {
	genesis common.Hash
	blocks  []common.Hash // by number
}

func keep(t *testing.T, c *Chain) kept {
	t.Helper()
	k := kept{genesis: c.Genesis()}
	for n := range head(t, c).Number.Uint64() + 1 {
		k.blocks = append(k.blocks, c.chain.GetHeaderByNumber(n).Hash())
	}
	return k
}

// check finds that at most the last blocks are missing and that the contracts are there. Start may have made new blocks.
func (k kept) check(t *testing.T, c *Chain, lost int) {
	t.Helper()
	if c.Genesis() != k.genesis {
		t.Errorf("genesis %v, was %v", c.Genesis(), k.genesis)
	}
	for n, hash := range k.blocks[:max(1, len(k.blocks)-lost)] {
		if header := c.chain.GetHeaderByNumber(uint64(n)); header == nil || header.Hash() != hash {
			t.Errorf("block %d of %d is another one", n, len(k.blocks)-1)
		}
	}
	if mismatches := contracts.Check(t.Context(), client(c), c.ChainID()); len(mismatches) > 0 {
		t.Errorf("contracts: %v", mismatches)
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	account := common.Address{0: 0xaa, 19: 12}
	c := start(t, Config{Dir: dir, Funded: []common.Address{account}})
	s := newSender(t, c)
	tx := s.pay(t, payee, 5, 1e9)
	send(t, c, tx)
	mined(t, c, tx.Hash())
	for range 40 {
		must.Do(t, c.Advance(0))
	}
	before, at := keep(t, c), head(t, c)
	must.Do(t, c.Close())

	c = start(t, Config{Dir: dir, Funded: []common.Address{account}})
	before.check(t, c, 0)
	if now := head(t, c); now.Hash() != at.Hash() {
		t.Errorf("head %v, was %v: a start that had nothing to do made a block", now.Number, at.Number)
	}
	if balance(t, c, payee).Int64() != 5 || balance(t, c, account).Cmp(ether(fundWith)) != 0 {
		t.Errorf("balances %v and %v", balance(t, c, payee), balance(t, c, account))
	}
	next := s.pay(t, payee, 6, 1e9)
	send(t, c, next)
	if mined(t, c, next.Hash()); balance(t, c, payee).Int64() != 11 {
		t.Errorf("balance %v", balance(t, c, payee))
	}
	must.Do(t, c.Close())

	other := common.Address{0: 0xaa, 19: 13}
	c = start(t, Config{Dir: dir, Funded: []common.Address{account, other}})
	if balance(t, c, other).Cmp(ether(fundWith)) != 0 || balance(t, c, account).Cmp(ether(fundWith)) != 0 {
		t.Errorf("gas money of a new account %v, of the old one %v", balance(t, c, other), balance(t, c, account))
	}
}

func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd, lines := process(t, dir)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "http://") {
			t.Fatalf("the process says %q", lines.Text())
		}
		remote := must.Get(rpc.Dial(lines.Text()))(t)
		var last string
		for range 20 + 15*round {
			if !lines.Scan() {
				t.Fatal("the process ended")
			}
			last = lines.Text()
		}
		number, ok := new(big.Int).SetString(last, 10)
		if !ok {
			t.Fatalf("the process says %q", last)
		}
		var told types.Header
		settled := new(big.Int).Sub(number, big.NewInt(mostLost))
		must.Do(t, remote.CallContext(t.Context(), &told, "eth_getBlockByNumber", "0x"+settled.Text(16), false))
		remote.Close()
		must.Do(t, cmd.Process.Kill())
		cmd.Wait()

		c := start(t, Config{Dir: dir})
		if header := c.chain.GetHeaderByNumber(settled.Uint64()); header == nil || header.Hash() != told.Hash() {
			t.Errorf("round %d: block %v of %v is gone", round, settled, number)
		}
		keep(t, c).check(t, c, 0)
		if have, want := balance(t, c, payee).Int64(), head(t, c).Number.Int64()-int64(max(c.placed, 1)); have < want-int64(round)*mostLost {
			t.Errorf("round %d: balance %d at block %v", round, have, head(t, c).Number)
		}
		must.Do(t, c.Close())
	}
}

// The next start completes a first start that was killed.
func TestFirstStartIsFinishedLater(t *testing.T) {
	whole := t.TempDir()
	c := start(t, Config{Dir: whole})
	must.Do(t, c.Close())
	text := must.Get(os.ReadFile(filepath.Join(whole, faucetFile)))(t)
	for name, left := range map[string]map[string][]byte{
		"key only":        {faucetFile: text},
		"temporary files": {faucetFile: text, genesisFile + ".123": []byte("{")},
	} {
		dir := t.TempDir()
		for file, content := range left {
			must.Do(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
		c, err := Start(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		keep(t, c).check(t, c, 0)
		c.Close()
	}

	// The genesis is written, and no block is.
	c = start(t, Config{Dir: whole})
	genesis := c.Genesis()
	must.Do(t, c.Close())
	must.Do(t, os.RemoveAll(filepath.Join(whole, databaseDir)))
	c = start(t, Config{Dir: whole})
	keep(t, c).check(t, c, 0)
	if c.Genesis() != genesis {
		t.Error("the genesis changed")
	}
}

func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	c := start(t, Config{Dir: dir, ChainID: contracts.Base})
	must.Do(t, c.Close())
	if _, err := Start(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrForeign) {
		t.Errorf("the chain of %d as that of %d: %v", contracts.Base, contracts.BaseSepolia, err)
	}
	c = start(t, Config{Dir: dir, ChainID: contracts.Base})
	if c.ChainID() != contracts.Base {
		t.Errorf("id %d", c.ChainID())
	}
}

func TestDirectoryOfTheOldNode(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, oldNode), 0o700))
	for range 2 { // the first refusal leaves nothing behind
		if _, err := Start(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrOld) {
			t.Errorf("a directory of the old node: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, genesisFile)); err == nil {
		t.Error("the refused start wrote a genesis")
	}
}

// A block is written to the log of the database. If the log were not found, a power failure would lose blocks without any sign.
func TestLogIsSynced(t *testing.T) {
	dir := t.TempDir()
	c := start(t, Config{Dir: dir})
	must.Do(t, syncLogs(dir))
	must.Do(t, c.Close())
	must.Do(t, os.Rename(filepath.Join(dir, databaseDir), filepath.Join(dir, "moved")))
	if err := syncLogs(dir); err == nil {
		t.Error("a database without a log was synced")
	}
}

func TestFilesOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	c := start(t, Config{Dir: dir})
	info := must.Get(os.Stat(filepath.Join(dir, faucetFile)))(t)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v", info.Mode())
	}
	must.Do(t, c.Close())
	text := must.Get(os.ReadFile(filepath.Join(dir, faucetFile)))(t)
	if key, err := crypto.HexToECDSA(strings.TrimSpace(string(text))); err != nil || crypto.PubkeyToAddress(key.PublicKey) != c.faucet.address {
		t.Errorf("key of the faucet: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, faucetFile), []byte("sesame"), 0o600))
	if _, err := Start(t.Context(), Config{Dir: dir}); err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("start with a broken key: %v", err)
	}
}
