package chaintest_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/mirror"
	"github.com/tollhq/toll/internal/must"
)

// through makes publishers use a double in front of the chain, and returns it.
func (s *mirrorScene) through(t *testing.T) *chaintest.Double {
	t.Helper()
	double := chaintest.NewDouble(t, s.Client())
	s.connect(t, dial(t, double))
	return double
}

// If the block with the contract arrives while a step checks for the contract, the publisher does not deploy it twice.
func TestPlacedOnce(t *testing.T) {
	s := newMirrorScene(t, chaintest.New(t))
	s.add(50, 1)
	double := s.through(t)
	var raw string
	var looks int
	double.Answer("eth_sendRawTransaction", func(params []json.RawMessage) (any, error) {
		if raw != "" {
			return nil, chaintest.ErrPass
		}
		var tx types.Transaction
		if err := errors.Join(json.Unmarshal(params[0], &raw), tx.UnmarshalBinary(common.FromHex(raw))); err != nil {
			return nil, err
		}
		return tx.Hash(), nil
	})
	double.Answer("eth_getCode", func(params []json.RawMessage) (code any, err error) {
		if err := s.Client().Call(&code, "eth_getCode", params[0], params[1]); err != nil || raw == "" {
			return code, err
		}
		if looks++; looks == 2 { // the first check of the second step
			if err := s.Client().Call(nil, "eth_sendRawTransaction", raw); err != nil {
				return nil, err
			}
			for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				if nonce, err := s.Eth().NonceAt(t.Context(), s.operator, nil); err != nil || nonce > 0 || time.Now().After(end) {
					return code, err
				}
			}
		}
		return code, nil
	})
	must.Do(t, s.run(t, s.publisher(true)))
	if nonce, err := s.Eth().NonceAt(t.Context(), s.operator, nil); err != nil || nonce != 2 || looks < 2 {
		t.Errorf("%d transactions for the contract and a root, %d looks: %v", nonce, looks, err)
	}
}

// While blocks do not include the transaction, the publisher sends the same bytes again. After several blocks, it replaces them with a
// transaction that pays a higher fee, up to the cap. This applies to the contract and to a root, also after a restart.
func TestSlowBlocks(t *testing.T) {
	s := newMirrorScene(t, chaintest.New(t))
	s.add(50, 2)
	double := s.through(t)
	var held *types.Transaction // transaction in the pool, which accepts a replacement only if it pays 10 % more
	var seen []*types.Transaction
	hold := func() {
		held, seen = nil, nil
		double.Answer("eth_sendRawTransaction", func(params []json.RawMessage) (any, error) {
			var raw hexutil.Bytes
			var tx types.Transaction
			if err := errors.Join(json.Unmarshal(params[0], &raw), tx.UnmarshalBinary(raw)); err != nil {
				return nil, err
			}
			seen = append(seen, &tx)
			more := func(now, was *big.Int) bool {
				return new(big.Int).Mul(now, big.NewInt(10)).Cmp(new(big.Int).Mul(was, big.NewInt(11))) >= 0
			}
			switch {
			case held == nil:
			case held.Hash() == tx.Hash():
				return nil, &chaintest.Refusal{Code: -32000, Message: "already known"}
			case held.Nonce() != tx.Nonce():
				t.Errorf("nonce %d, and %d is in the pool", tx.Nonce(), held.Nonce())
			case !more(tx.GasTipCap(), held.GasTipCap()) || !more(tx.GasFeeCap(), held.GasFeeCap()):
				return nil, &chaintest.Refusal{Code: -32000, Message: "replacement transaction underpriced"}
			}
			held = &tx
			return tx.Hash(), nil
		})
	}
	blocks := func(p *mirror.Publisher, n int) {
		t.Helper()
		for range n {
			for range 2 {
				must.Get(p.Step(t.Context()))(t)
			}
			must.Do(t, s.Advance(2*time.Second))
		}
	}
	p := s.publisher(true)
	for _, what := range []string{"contract", "root"} {
		hold()
		blocks(p, 3)
		for _, tx := range seen {
			if tx.Hash() != seen[0].Hash() {
				t.Errorf("%s: other bytes after less than three blocks", what)
			}
		}
		if len(seen) < 3 {
			t.Errorf("%s: sent %d times in three blocks", what, len(seen))
		}
		first := held
		if first == nil {
			t.Fatalf("%s: nothing was sent", what)
		}
		blocks(p, 3)
		if held.Hash() == first.Hash() {
			t.Errorf("%s: not replaced", what)
		}
		// A new process does not know the earlier fee: the pool rejects its transactions until they pay more.
		p = s.publisher(true)
		blocks(p, 30)
		if was := held; was.Hash() == first.Hash() {
			t.Errorf("%s: not replaced", what)
		}
		double.Clear()
		must.Do(t, s.Eth().SendTransaction(t.Context(), held))
		for end := time.Now().Add(patience); ; {
			// A receipt appears before its block is the latest block, so wait for the nonce.
			if nonce, err := s.Eth().NonceAt(t.Context(), s.operator, nil); err == nil && nonce > held.Nonce() {
				break
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	must.Do(t, s.run(t, p))
	if now := s.journal.of(50); now.State != mirror.IsFinal || now.TxHash != toll.Hash(held.Hash()) || len(s.anchors(t)) != 1 {
		t.Errorf("%+v, %d roots", now, len(s.anchors(t)))
	}

	// Even after many blocks, it pays at most three times the cap of the base fee.
	s.add(51, 1)
	hold()
	head := must.Get(s.Eth().HeaderByNumber(t.Context(), nil))(t)
	ceiling := new(big.Int).Add(head.BaseFee, big.NewInt(1e6))
	p = mirror.NewPublisher(mirror.Config{
		Pool: s.pool, Signer: s.signer, Operator: s.operator, Store: s.journal.st, Lease: s.journal.lease, Tip: big.NewInt(1e6), MaxFee: ceiling,
		AtOnce: true, Log: slog.New(slog.DiscardHandler),
	})
	blocks(p, 60)
	if held == nil || held.Hash() == seen[0].Hash() || held.GasFeeCap().Cmp(new(big.Int).Mul(ceiling, big.NewInt(3))) > 0 {
		t.Errorf("it offers %v with a cap of %v", held.GasFeeCap(), ceiling)
	}
	if last := seen[len(seen)-1]; last.Hash() != held.Hash() {
		t.Error("what is as high as it gets is not sent any more")
	}
}
