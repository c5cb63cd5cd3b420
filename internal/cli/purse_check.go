package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/client"
)

// checkTime bounds what is asked of an endpoint.
const checkTime = time.Minute

func (a *app) paymentsCheck() *cobra.Command {
	var rpc string
	c := command("check", "Ask the chain what became of a wallet's payments", nil)
	c.Long = `Ask the chain what became of a wallet's payments whose outcome is not known. A server that says that it took nothing can use
the authorization that it has until this ends, so its word proves nothing. When an authorization has ended and was not
used, its payment is refused, and counts no longer; when it was used, the payment is paid.

Printed are the payments that were looked at, as they stand now. One whose authorization has not ended stays as it was.`
	c.Example = "toll payments check --rpc https://mainnet.base.org"
	c.Flags().StringVar(&rpc, "rpc", "", "address of a JSON-RPC endpoint of the chain")
	require(c, "rpc")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if checkSetting(settingURL, rpc) != nil {
			return usagef("--rpc is not an absolute http or https url")
		}
		path, err := a.pursePath()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), checkTime)
		defer cancel()
		looked, err := (&filePurse{path: path}).check(ctx, endpoint(rpc))
		if err != nil {
			return err
		}
		if len(looked) == 0 {
			a.say("note", "no payment of a wallet on this chain is open")
		}
		return a.showPayments(looked)
	}
	return c
}

// check closes the payments that the chain has decided, and returns those of its network that were open.
func (f *filePurse) check(ctx context.Context, e endpoint) ([]client.Payment, error) {
	payments, err := f.read()
	if err != nil {
		return nil, err
	}
	head, err := e.head(ctx)
	if err != nil {
		return nil, err
	}
	var looked []client.Payment
	for _, p := range payments {
		open := p.State == client.PaymentSent || p.State == client.PaymentUnknown
		if !open || p.Authorization == nil || p.Network != head.network {
			continue
		}
		used, err := e.used(ctx, &p, head)
		if err != nil {
			return nil, err
		}
		switch {
		case used:
			p.State, p.Spent = client.PaymentPaid, p.Most
		case head.time >= p.Authorization.ValidBefore.Int().Uint64():
			p.State = client.PaymentRefused
		}
		if p.State == client.PaymentPaid || p.State == client.PaymentRefused {
			if err := f.Close(ctx, p); err != nil {
				return nil, err
			}
		}
		looked = append(looked, p)
	}
	return looked, nil
}

// endpoint is the address of a JSON-RPC endpoint. It may hold a key, so no error repeats it.
type endpoint string

// chainHead is a block that stays.
type chainHead struct {
	network string
	number  string // in hex, as the endpoint has it
	time    uint64 // seconds since 1970
}

func (e endpoint) head(ctx context.Context) (h chainHead, err error) {
	var id string
	var block struct{ Number, Timestamp string }
	if err := e.call(ctx, &id, "eth_chainId"); err != nil {
		return h, err
	}
	if err := e.call(ctx, &block, "eth_getBlockByNumber", "safe", false); err != nil {
		return h, err
	}
	chain, err := strconv.ParseUint(id, 0, 64)
	if err == nil {
		h.time, err = strconv.ParseUint(block.Timestamp, 0, 64)
	}
	if err != nil {
		return h, errors.New("the endpoint tells no chain, or no safe block")
	}
	h.network, h.number = fmt.Sprintf("eip155:%d", chain), block.Number
	return h, nil
}

// authorizationState is the selector of authorizationState(address,bytes32) of EIP-3009.
const authorizationState = "0xe94a0102"

// used says whether a token has taken the authorization of a payment, up to a block. After the block at which it ends a token
// takes none.
func (e endpoint) used(ctx context.Context, p *client.Payment, at chainHead) (bool, error) {
	call := map[string]string{
		"to":   p.Asset,
		"data": fmt.Sprintf("%s%024d%x%x", authorizationState, 0, p.Authorization.From[:], p.Authorization.Nonce[:]),
	}
	var word string
	if err := e.call(ctx, &word, "eth_call", call, at.number); err != nil {
		return false, err
	}
	b, err := hex.DecodeString(strings.TrimPrefix(word, "0x"))
	if err != nil || len(b) != 32 || len(bytes.Trim(b[:31], "\x00")) > 0 || b[31] > 1 {
		return false, fmt.Errorf("the endpoint does not tell whether the token %s took an authorization", p.Asset)
	}
	return b[31] == 1, nil
}

// call asks for one result.
func (e endpoint) call(ctx context.Context, result any, method string, params ...any) error {
	fail := func(why any) error { return fmt.Errorf("the endpoint does not answer %s: %v", method, why) }
	if params == nil {
		params = []any{}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(e), bytes.NewReader(body))
	if err != nil {
		return fail("its address is wrong")
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fail(cause(err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxArgument))
	if err != nil {
		return fail(cause(err))
	}
	var answer struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	err = json.Unmarshal(text, &answer)
	switch {
	case err == nil && answer.Error != nil:
		return fail(answer.Error.Message)
	case err != nil || res.StatusCode != http.StatusOK:
		return fail(res.Status)
	case string(answer.Result) == "null" || json.Unmarshal(answer.Result, result) != nil:
		return fail("it has no such thing")
	}
	return nil
}
