package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/store"
)

// The documents of operations and transactions are permanent: later releases read them. What has a column of its own is not in
// them. Amounts are decimal text.

type opData struct {
	Digest        common.Hash                 `json:"digest"`
	Sender        common.Address              `json:"sender"`
	Payer         common.Address              `json:"payer"`
	Token         common.Address              `json:"token"`
	Payments      []paymentData               `json:"payments,omitempty"`
	Cents         int64                       `json:"cents,omitempty"`
	DelegationID  string                      `json:"delegationId,omitempty"`
	Delegation    *common.Hash                `json:"delegation,omitempty"`
	Before        uint64                      `json:"before,omitempty"` // Unix seconds
	Sale          *saleData                   `json:"sale,omitempty"`
	TopUp         bool                        `json:"topUp,omitempty"`
	Authorization *types.SetCodeAuthorization `json:"authorization,omitempty"`
	Operation     *userop.Operation           `json:"operation,omitempty"`
	Tx            *common.Hash                `json:"tx,omitempty"`
	Place         *placeData                  `json:"place,omitempty"`
	Failure       *failureData                `json:"failure,omitempty"`
	Told          chain.State                 `json:"told,omitempty"`
	SentAt        int64                       `json:"sentAt,omitempty"`    // microseconds
	CreatedAt     int64                       `json:"createdAt,omitempty"` // microseconds
}

type paymentData struct {
	To     common.Address `json:"to"`
	Amount string         `json:"amount"`
}

type saleData struct {
	After     uint64        `json:"after"` // Unix seconds
	Nonce     common.Hash   `json:"nonce"`
	Signature hexutil.Bytes `json:"signature"`
}

type placeData struct {
	Block    uint64      `json:"block"`
	Hash     common.Hash `json:"hash"`
	LogIndex uint        `json:"logIndex"`
	Tx       common.Hash `json:"tx"`
}

type failureData struct {
	Code   toll.Code      `json:"code"`
	Reason string         `json:"reason"`
	Params map[string]any `json:"params,omitempty"`
	Place  *placeData     `json:"place,omitempty"`
}

func dataOfPlace(p chain.Place) *placeData {
	if p == (chain.Place{}) {
		return nil
	}
	return &placeData{p.Block, p.Hash, p.LogIndex, p.Tx}
}

func (d *placeData) place() chain.Place {
	if d == nil {
		return chain.Place{}
	}
	return chain.Place{Block: d.Block, Hash: d.Hash, LogIndex: d.LogIndex, Tx: d.Tx}
}

func rowOfOp(op *chain.Op) (*store.ChainOp, error) {
	data := opData{
		Digest: op.Digest, Sender: op.Sender, Payer: op.Payer, Token: op.Token, Cents: op.Cents, DelegationID: op.DelegationID,
		Delegation: nonZero(op.Delegation), Before: op.Before, TopUp: op.TopUp,
		Authorization: op.Authorization, Operation: op.Operation, Tx: nonZero(op.Tx), Place: dataOfPlace(op.Place), Told: op.Told,
		SentAt: store.Micros(op.SentAt), CreatedAt: store.Micros(op.CreatedAt),
	}
	for _, p := range op.Payments {
		data.Payments = append(data.Payments, paymentData{p.To, p.Amount.String()})
	}
	if s := op.Sale; s != nil {
		data.Sale = &saleData{s.After, s.Nonce, s.Signature}
	}
	if f := op.Failure; f != nil {
		data.Failure = &failureData{f.Code, f.Reason, f.Params, dataOfPlace(f.Place)}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("chain journal: operation %s: %w", op.ID, err)
	}
	row := &store.ChainOp{
		ID: op.ID, Kind: string(op.Kind), State: string(op.State), Version: op.Version, NonceKey: op.NonceKey[:], Untold: isUntold(op),
		UpdatedAt: op.UpdatedAt, Data: text,
	}
	if op.Hash != (common.Hash{}) {
		row.Hash = op.Hash[:]
	}
	if at := op.Evidence(); at != (chain.Place{}) {
		block, err := stored(at.Block)
		if err != nil {
			return nil, err
		}
		row.Evidence = &block
	}
	return row, nil
}

// isUntold reports whether checkout has yet to hear what became of an order.
func isUntold(op *chain.Op) bool {
	switch op.State {
	case chain.Confirmed, chain.Final, chain.Failed:
		return op.Pays() && op.Told != op.State
	}
	return false
}

func nonZero(h common.Hash) *common.Hash {
	if h == (common.Hash{}) {
		return nil
	}
	return &h
}

func orZero(h *common.Hash) common.Hash {
	if h == nil {
		return common.Hash{}
	}
	return *h
}

func opOf(row *store.ChainOp, err error) (*chain.Op, error) {
	if err != nil {
		return nil, unknown(err)
	}
	return opOfRow(row)
}

func opsOf(rows []*store.ChainOp, err error) ([]*chain.Op, error) {
	if err != nil {
		return nil, err
	}
	ops := make([]*chain.Op, len(rows))
	for i, row := range rows {
		if ops[i], err = opOfRow(row); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

func opOfRow(row *store.ChainOp) (*chain.Op, error) {
	var data opData
	if err := decodeData(row.Data, &data); err != nil {
		return nil, fmt.Errorf("chain journal: operation %s: %w", row.ID, err)
	}
	op := &chain.Op{
		ID: row.ID, Kind: chain.Kind(row.Kind), State: chain.State(row.State), Version: row.Version,
		Digest: data.Digest, Sender: data.Sender, Payer: data.Payer, Token: data.Token, Cents: data.Cents, DelegationID: data.DelegationID,
		Delegation: orZero(data.Delegation), Before: data.Before, TopUp: data.TopUp, Tx: orZero(data.Tx), Authorization: data.Authorization, Operation: data.Operation, Hash: common.BytesToHash(row.Hash),
		Place: data.Place.place(), Told: data.Told,
		SentAt: store.FromMicros(data.SentAt), CreatedAt: store.FromMicros(data.CreatedAt), UpdatedAt: row.UpdatedAt,
	}
	copy(op.NonceKey[:], row.NonceKey)
	for _, p := range data.Payments {
		amount, ok := new(big.Int).SetString(p.Amount, 10)
		if !ok {
			return nil, fmt.Errorf("chain journal: operation %s: an amount is no number", row.ID)
		}
		op.Payments = append(op.Payments, chain.Payment{To: p.To, Amount: amount})
	}
	if s := data.Sale; s != nil {
		op.Sale = &chain.SaleTerms{After: s.After, Nonce: s.Nonce, Signature: s.Signature}
	}
	if f := data.Failure; f != nil {
		op.Failure = &chain.Failure{Code: f.Code, Reason: f.Reason, Params: f.Params, Place: f.Place.place()}
	}
	return op, nil
}

// decodeData keeps the numbers of parameters exact.
func decodeData(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

type txData struct {
	Ops       []string   `json:"ops,omitempty"`
	SentBlock uint64     `json:"sentBlock"`
	Place     *placeData `json:"place,omitempty"`
}

func rowOfTx(t *chain.Tx) (*store.ChainTx, error) {
	nonce, err := stored(t.Nonce)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(txData{t.Ops, t.SentBlock, dataOfPlace(t.Place)})
	if err != nil {
		return nil, err
	}
	return &store.ChainTx{
		Hash: toll.Hash(t.Hash), Relayer: toll.Address(t.Relayer), Nonce: nonce, State: string(t.State), CreatedAt: t.CreatedAt, Raw: t.Raw, Data: text,
	}, nil
}

func txOfRow(row *store.ChainTx) (*chain.Tx, error) {
	var data txData
	if err := decodeData(row.Data, &data); err != nil {
		return nil, fmt.Errorf("chain journal: transaction %s: %w", row.Hash, err)
	}
	return &chain.Tx{
		Hash: common.Hash(row.Hash), Relayer: common.Address(row.Relayer), Nonce: uint64(row.Nonce), Raw: row.Raw, Ops: data.Ops,
		State: chain.TxState(row.State), SentBlock: data.SentBlock, Place: data.Place.place(), CreatedAt: row.CreatedAt,
	}, nil
}
