package chain_test

import (
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// exact compares numbers by their values.
var exact = cmp.Comparer(func(a, b *big.Int) bool { return a == b || a != nil && b != nil && a.Cmp(b) == 0 })

// fill gives every member of a struct a value of its own, so that one that is not stored is missed.
func fill(t *testing.T, v reflect.Value, next *int64) {
	t.Helper()
	*next++
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+*next, 123_456_000).UTC()))
		return
	case reflect.TypeFor[*big.Int]():
		v.Set(reflect.ValueOf(new(big.Int).Lsh(big.NewInt(*next), 200)))
		return
	case reflect.TypeFor[map[string]any]():
		v.Set(reflect.ValueOf(map[string]any{"needed": "115792089237316195423570985008687907853269984665640564039457584007913129639935"}))
		return
	case reflect.TypeFor[*userop.Operation]():
		op := userop.New(common.Address{1}, userop.OrderKey("a"), []byte{1, 2}, 3)
		op.Signature = []byte{4, 5}
		op.InitCode, op.PaymasterAndData = []byte{}, []byte{}
		v.Set(reflect.ValueOf(op))
		return
	case reflect.TypeFor[*types.SetCodeAuthorization]():
		a := &types.SetCodeAuthorization{Address: common.Address{7}, Nonce: 8, V: 1}
		a.ChainID.SetUint64(84532)
		a.R.SetUint64(9)
		a.S.SetUint64(10)
		v.Set(reflect.ValueOf(a))
		return
	case reflect.TypeFor[chain.State]():
		v.SetString(string(chain.Failed))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text " + string(rune('a'+*next%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(*next)
	case reflect.Uint, reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*next%200 + 1))
	case reflect.Array, reflect.Slice:
		if v.Kind() == reflect.Slice {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		}
		for i := range v.Len() {
			fill(t, v.Index(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), next)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), next)
		}
	default:
		t.Fatalf("%s: nothing to fill it with", v.Type())
	}
}

// Whatever the rail notes of an operation and of a transaction is there when it is read again, also members that come later.
func TestRecords_KeepEveryMember(t *testing.T) {
	var next int64
	op := &chain.Op{}
	fill(t, reflect.ValueOf(op).Elem(), &next)
	row := must.Get(chain.RowOfOp(op))(t)
	got := must.Get(chain.OpOfRow(row))(t)
	if diff := cmp.Diff(op, got, exact); diff != "" {
		t.Error(diff)
	}
	tx := &chain.Tx{}
	fill(t, reflect.ValueOf(tx).Elem(), &next)
	txRow := must.Get(chain.RowOfTx(tx))(t)
	gotTx := must.Get(chain.TxOfRow(txRow))(t)
	if diff := cmp.Diff(tx, gotTx); diff != "" {
		t.Error(diff)
	}
}

// The documents of operations are permanent: one that an older release wrote is read.
func TestRecords_ReadOldDocuments(t *testing.T) {
	row := &store.ChainOp{
		ID: "o", Kind: "order", State: "failed", Version: 7, NonceKey: make([]byte, 24), Data: []byte(`{"digest":"0x0100000000000000000000000000000000000000000000000000000000000000",
		"sender":"0x0100000000000000000000000000000000000000","payer":"0x0200000000000000000000000000000000000000","token":"0x0300000000000000000000000000000000000000",
		"payments":[{"to":"0x0400000000000000000000000000000000000000","amount":"123456789012345678901234567890"}],"cents":5,"createdAt":1700000000000001,
		"failure":{"code":"BCK.CHAIN.0003","reason":"too little","params":{"needed":123456789012345678901234567890}}}`),
	}
	op := must.Get(chain.OpOfRow(row))(t)
	if op.Payments[0].Amount.String() != "123456789012345678901234567890" || op.Failure.Code != toll.CodeChainBalance || op.Cents != 5 ||
		!op.CreatedAt.Equal(time.UnixMicro(1700000000000001)) || op.Digest != (common.Hash{1}) || op.Position != (chain.Position{}) {
		t.Errorf("%+v", op)
	}
	again, err := chain.RowOfOp(op)
	if err != nil || !strings.Contains(string(again.Data), `"needed":123456789012345678901234567890`) {
		t.Errorf("a number of the parameters is not exact: %s, %v", again.Data, err)
	}
}
