package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// opDocument is the document of an operation. [Payment] and [SaleTerms] have no tags of their own: their plain JSON form is what
// the digests of stored orders were made of.
type opDocument struct {
	*Op
	Payments  []paymentDocument `json:"payments,omitempty"`
	Sale      *saleDocument     `json:"sale,omitempty"`
	SentAt    int64             `json:"sentAt,omitempty"`    // microseconds
	CreatedAt int64             `json:"createdAt,omitempty"` // microseconds
}

type paymentDocument struct {
	To     common.Address `json:"to"`
	Amount string         `json:"amount"` // decimal
}

type saleDocument struct {
	After     uint64        `json:"after"` // Unix seconds
	Nonce     common.Hash   `json:"nonce"`
	Signature hexutil.Bytes `json:"signature"`
}

func rowOfOp(op *Op) (*store.ChainOp, error) {
	document := opDocument{Op: op, SentAt: store.Micros(op.SentAt), CreatedAt: store.Micros(op.CreatedAt)}
	for _, p := range op.Payments {
		document.Payments = append(document.Payments, paymentDocument{p.To, p.Amount.String()})
	}
	if s := op.Sale; s != nil {
		document.Sale = &saleDocument{s.After, s.Nonce, s.Signature}
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("chain: record of operation %s: %w", op.ID, err)
	}
	row := &store.ChainOp{
		ID: op.ID, Kind: string(op.Kind), State: string(op.State), Version: op.Version, NonceKey: op.NonceKey[:], Undecided: op.undecided(),
		UpdatedAt: op.UpdatedAt, Data: text,
	}
	if op.Hash != (common.Hash{}) {
		row.Hash = op.Hash[:]
	}
	if op.Account != ([16]byte{}) {
		row.Account = op.Account[:]
	}
	if at := op.Evidence(); at != (Position{}) {
		block, err := stored(at.Block)
		if err != nil {
			return nil, err
		}
		row.Evidence = &block
	}
	return row, nil
}

func opOfRow(row *store.ChainOp) (*Op, error) {
	op := &Op{}
	document := opDocument{Op: op}
	if err := decodeDocument(row.Data, &document); err != nil {
		return nil, fmt.Errorf("chain: record of operation %s: %w", row.ID, err)
	}
	op.ID, op.Kind, op.State, op.Version = row.ID, Kind(row.Kind), State(row.State), row.Version
	op.Hash, op.UpdatedAt = common.BytesToHash(row.Hash), row.UpdatedAt
	copy(op.NonceKey[:], row.NonceKey)
	copy(op.Account[:], row.Account)
	op.SentAt, op.CreatedAt = store.FromMicros(document.SentAt), store.FromMicros(document.CreatedAt)
	for _, p := range document.Payments {
		amount, ok := new(big.Int).SetString(p.Amount, 10)
		if !ok {
			return nil, fmt.Errorf("chain: record of operation %s: an amount is not a decimal number", row.ID)
		}
		op.Payments = append(op.Payments, Payment{To: p.To, Amount: amount})
	}
	if s := document.Sale; s != nil {
		op.Sale = &SaleTerms{After: s.After, Nonce: s.Nonce, Signature: s.Signature}
	}
	return op, nil
}

func rowOfTx(t *Tx) (*store.ChainTx, error) {
	nonce, err := stored(t.Nonce)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return &store.ChainTx{
		Hash: toll.Hash(t.Hash), Relayer: toll.Address(t.Relayer), Nonce: nonce, State: string(t.State), CreatedAt: t.CreatedAt, Raw: t.Raw, Data: text,
	}, nil
}

func txOfRow(row *store.ChainTx) (*Tx, error) {
	t := &Tx{
		Hash: common.Hash(row.Hash), Relayer: common.Address(row.Relayer), Nonce: uint64(row.Nonce), Raw: row.Raw,
		State: TxState(row.State), CreatedAt: row.CreatedAt,
	}
	if err := decodeDocument(row.Data, t); err != nil {
		return nil, fmt.Errorf("chain: record of transaction %s: %w", row.Hash, err)
	}
	return t, nil
}

// decodeDocument keeps the numbers of parameters exact.
func decodeDocument(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// stored is a number of the chain as a database holds it.
func stored(n uint64) (int64, error) {
	if n > math.MaxInt64 {
		return 0, errors.New("chain: a number of 2^63 or more cannot be stored")
	}
	return int64(n), nil
}
