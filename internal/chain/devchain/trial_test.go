//go:build !nodevchain

package devchain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/params"

	"github.com/tollhq/toll/internal/must"
)

// answer calls a method with parameters in JSON.
func answer(t *testing.T, c *Chain, method, parameters string) (string, error) {
	t.Helper()
	var raw []json.RawMessage
	must.Do(t, json.Unmarshal([]byte(parameters), &raw))
	values := make([]any, len(raw))
	for i := range raw {
		values[i] = raw[i]
	}
	var result json.RawMessage
	err := c.Client().CallContext(t.Context(), &result, method, values...)
	return string(result), err
}

func TestTrials(t *testing.T) {
	c := start(t, Config{})
	must.Do(t, c.Advance(0))
	parent := head(t, c).ParentHash.Hex()
	target := common.Address{0: 0xaa, 19: 3}.Hex()
	hashOf := func(number int) string { // a contract that returns BLOCKHASH(number)
		return fmt.Sprintf(`{"%s":{"code":"0x61%04x405f5260205ff3"}}`, target, number)
	}
	last := int(head(t, c).Number.Int64())
	poor := common.Address{19: 96}.Hex()
	for name, one := range map[string]struct{ method, parameters, want string }{
		"null members": {"eth_call", `[{"from":null,"to":"` + target + `","data":null,"input":null,"gas":null,"value":null,"nonce":null,"accessList":null,"chainId":null},"latest"]`, `"0x"`},
		"hash of a block before the head, with another number": {
			"eth_call", fmt.Sprintf(`[{"to":"%s"},"latest",%s,{"number":"%#x"}]`, target, hashOf(last-1), last+1), `"` + parent + `"`,
		},
		"hash of the head, which the trial cannot see": {
			"eth_call", fmt.Sprintf(`[{"to":"%s"},"latest",%s,{"number":"%#x"}]`, target, hashOf(last), last+1), `"` + common.Hash{}.Hex() + `"`,
		},
		"price above 256 bits": {
			"eth_call", fmt.Sprintf(`[{"from":"%s","to":"%s","maxFeePerGas":"0x1","maxPriorityFeePerGas":"0x1"},"latest",{"%s":{"balance":"0xffffffff"}},{"baseFeePerGas":"0x%s"}]`,
				poor, target, poor, strings.Repeat("f", 64)), "less than block base fee",
		},
		"precompile that moves": {"eth_call", `[{"to":"` + target + `"},"latest",{"` + target + `":{"movePrecompileToAddress":"` + poor + `"}}]`, "unknown field"},
		"base fee of blobs":     {"eth_estimateGas", `[{"to":"` + target + `"},"latest",{},{"blobBaseFee":"0x1"}]`, "unknown field"},
		"no overrides":          {"eth_call", `[{"to":"` + target + `"},"latest",null,{}]`, `"0x"`},
		"simulated block without calls": {
			"eth_simulateV1", `[{"blockStateCalls":[{},{"calls":[],"blockOverrides":{},"stateOverrides":null}]},"latest"]`, `"calls":[]`,
		},
		"validation":               {"eth_simulateV1", `[{"blockStateCalls":[{}],"validation":true},"latest"]`, "not supported"},
		"transfers as logs":        {"eth_simulateV1", `[{"blockStateCalls":[{}],"traceTransfers":true},"latest"]`, "not supported"},
		"transactions":             {"eth_simulateV1", `[{"blockStateCalls":[{}],"returnFullTransactions":true},"latest"]`, "not supported"},
		"block with another time":  {"eth_simulateV1", `[{"blockStateCalls":[{"blockOverrides":{"time":"0x1"}}]},"latest"]`, "not supported"},
		"system contract replaced": {"eth_simulateV1", `[{"blockStateCalls":[{"stateOverrides":{"` + params.BeaconRootsAddress.Hex() + `":{"code":"0x5b5f56"}}}]},"latest"]`, "not supported"},
		"last nonce":               {"eth_simulateV1", `[{"blockStateCalls":[{"calls":[{"nonce":"0xffffffffffffffff"}]}]},"latest"]`, "nonce"},
		"logs of many addresses":   {"eth_newFilter", `[{"address":` + string(must.Get(json.Marshal(make([]common.Address, maxLogValues+1)))(t)) + `}]`, "exceed max addresses"},
	} {
		got, err := answer(t, c, one.method, one.parameters)
		if text := fmt.Sprint(got, err); !strings.Contains(text, one.want) {
			t.Errorf("%s: %s, want %s", name, text, one.want)
		}
	}
}

// T73: a caller that leaves ends its trial, and data that it makes a trial return are bounded.
func TestTrials_Bounded(t *testing.T) {
	c := start(t, Config{})
	target := common.Address{0: 0xaa, 19: 3}.Hex()
	endless := fmt.Sprintf(`{"%s":{"code":"0x5b5f56"}}`, target)
	call := map[string]any{"to": target}
	calls := func(n int, more map[string]any) []any {
		list := make([]any, n)
		one := maps.Clone(call)
		maps.Copy(one, more)
		for i := range list {
			list[i] = one
		}
		return list
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	blocks := make([]any, maxSimulatedBlocks)
	for i := range blocks {
		blocks[i] = map[string]any{"calls": calls(10, map[string]any{"gas": hexutil.Uint64(5_000_000)}), "stateOverrides": json.RawMessage(endless)}
	}
	api := &trialAPI{&blockAPI{c}}
	var parsed []simulatedBlock
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(blocks))(t), &parsed))
	if _, err := api.SimulateV1(ctx, simulation{BlockStateCalls: parsed}, nil); err == nil {
		t.Error("a simulation continued without its caller")
	}

	large := json.RawMessage(fmt.Sprintf(`{"%s":{"code":"0x620180005ff3"}}`, target)) // returns 96 KiB
	_, err := answer(t, c, "eth_simulateV1", string(must.Get(json.Marshal([]any{map[string]any{
		"blockStateCalls": []any{map[string]any{"stateOverrides": large, "calls": calls(200, map[string]any{"gas": hexutil.Uint64(50_000)})}},
	}}))(t)))
	if err == nil || !strings.Contains(err.Error(), "too much returned data") {
		t.Errorf("20 MB of returned data: %v", err)
	}
}
