package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// checkTime bounds what is asked of an endpoint.
const checkTime = time.Minute

func paymentsCheck(a *app) *cobra.Command {
	var rpc string
	c := command("check", "Find out the outcome of open payments", nil)
	c.Long = `Find out the outcome of open payments: from the service for payments with credits, and with --rpc
from the chain for payments of a wallet. The response of the paid server proves nothing: the server can
take a payment after it has reported that it did not.

The outcome of a payment with credits is certain when its access token can burn no more credits. The
command revokes an access token that has expired, so that lapsed holds can no longer be settled. The
outcome of a wallet payment is certain when its authorization was used or has expired unused.

The command prints the payments that it checked, with their current state. A payment that the
server can still take keeps its state and counts in full toward the limits.`
	c.Example = `toll payments check
toll payments check --rpc https://mainnet.base.org`
	c.Flags().StringVar(&rpc, "rpc", "", "address of a JSON-RPC endpoint of the chain")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if rpc != "" && checkSetting(settingURL, rpc) != nil {
			return usagef("--rpc must be an absolute http or https URL")
		}
		if rpc == "" && a.set.key == "" {
			return usagef("to check payments, sign in with toll login, or set --rpc")
		}
		path, err := pursePath(&a.console)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), checkTime)
		defer cancel()
		looked, err := checkPayments(ctx, a, &filePurse{path: path}, rpc)
		if err != nil {
			return err
		}
		if len(looked) == 0 {
			a.say("note", "no open payments to check; to check payments of a wallet, set --rpc to an endpoint of their chain")
		}
		return showPayments(&a.console, looked)
	}
	return c
}

// checkPayments asks the service of the API key about payments with credits, and an endpoint of a
// chain about a wallet's, and returns those that it asked about. rpc is "" for none.
func checkPayments(ctx context.Context, a *app, f *filePurse, rpc string) ([]client.Payment, error) {
	var looked []client.Payment
	if a.set.key != "" {
		var err error
		if looked, err = checkCredits(ctx, a, f); err != nil {
			return nil, err
		}
	}
	if rpc == "" {
		return looked, nil
	}
	wallet, err := f.check(ctx, endpoint(rpc))
	return append(looked, wallet...), err
}

func checkCredits(ctx context.Context, a *app, f *filePurse) ([]client.Payment, error) {
	payer := a.client().Payer()
	ofCredits := func(p *client.Payment) bool { return p.Permission != nil }
	return f.checkEach(ctx, ofCredits, func(p client.Payment) (client.Payment, error) {
		now, err := payer.Check(ctx, p)
		if errors.Is(err, toll.NewError(toll.CodePermissionNotFound)) {
			a.say("note", "payment %s belongs to another workspace or service, so it was not checked and still counts in full", p.ID)
			return p, nil
		}
		return now, err
	})
}

// checkEach asks about the open payments that are chosen, closes those that are decided, and returns all that it asked about.
func (f *filePurse) checkEach(
	ctx context.Context,
	choose func(*client.Payment) bool,
	ask func(client.Payment) (client.Payment, error),
) ([]client.Payment, error) {
	payments, err := f.read()
	if err != nil {
		return nil, err
	}
	var looked []client.Payment
	for _, p := range payments {
		open := p.State == client.PaymentSent || p.State == client.PaymentUnknown
		if !open || !choose(&p) {
			continue
		}
		now, err := ask(p)
		if err != nil {
			return nil, err
		}
		if now.State != p.State {
			if err := f.Close(ctx, now); err != nil {
				return nil, err
			}
		}
		looked = append(looked, now)
	}
	return looked, nil
}

// check asks a chain about the payments of a wallet on its network.
func (f *filePurse) check(ctx context.Context, e endpoint) ([]client.Payment, error) {
	head, err := e.head(ctx)
	if err != nil {
		return nil, err
	}
	ofChain := func(p *client.Payment) bool {
		return p.Authorization != nil && p.Network == head.network
	}
	return f.checkEach(ctx, ofChain, func(p client.Payment) (client.Payment, error) {
		used, err := e.used(ctx, &p, head)
		switch {
		case err != nil:
		case used:
			p.State, p.Spent = client.PaymentPaid, p.Most
		case head.time >= p.Authorization.ValidBefore.Int().Uint64():
			p.State = client.PaymentRefused
		}
		return p, err
	})
}

// endpoint is the address of a JSON-RPC endpoint. It may hold a key, so no error repeats it.
type endpoint string

// chainHead is a block that stays.
type chainHead struct {
	network string
	number  *hexutil.Big
	time    uint64 // seconds since 1970
}

func (e endpoint) head(ctx context.Context) (h chainHead, err error) {
	var id hexutil.Uint64
	var block struct {
		Number    *hexutil.Big
		Timestamp hexutil.Uint64
	}
	if err := e.call(ctx, &id, "eth_chainId"); err != nil {
		return h, err
	}
	if err := e.call(ctx, &block, "eth_getBlockByNumber", "safe", false); err != nil {
		return h, err
	}
	if id == 0 || block.Number == nil {
		return h, errors.New("the endpoint did not return a chain id or a safe block")
	}
	return chainHead{fmt.Sprintf("eip155:%d", id), block.Number, uint64(block.Timestamp)}, nil
}

// authorizationState is the selector of authorizationState(address,bytes32) of EIP-3009.
const authorizationState = "0xe94a0102"

// used says whether a token has taken the authorization of a payment, up to a block. After the block at which it ends a token takes none.
func (e endpoint) used(ctx context.Context, p *client.Payment, at chainHead) (bool, error) {
	call := map[string]string{
		"to":   p.Asset,
		"data": fmt.Sprintf("%s%024d%x%x", authorizationState, 0, p.Authorization.From[:], p.Authorization.Nonce[:]),
	}
	var word hexutil.Bytes
	if err := e.call(ctx, &word, "eth_call", call, at.number); err != nil {
		return false, err
	}
	if len(word) != 32 || len(bytes.Trim(word[:31], "\x00")) > 0 || word[31] > 1 {
		return false, fmt.Errorf("the endpoint did not report whether the token %s has used the authorization", p.Asset)
	}
	return word[31] == 1, nil
}

// call asks for one result.
func (e endpoint) call(ctx context.Context, result any, method string, params ...any) error {
	c, err := rpc.DialOptions(ctx, string(e), rpc.WithHTTPClient(&http.Client{Transport: boundedAnswers{}}))
	if err != nil {
		return errors.New("the address of the endpoint is not valid")
	}
	defer c.Close()
	err = c.CallContext(ctx, result, method, params...)
	if refused, ok := errors.AsType[rpc.HTTPError](err); ok {
		err = errors.New(refused.Status) // without the body
	}
	if err != nil {
		return fmt.Errorf("the endpoint did not answer %s: %w", method, cause(err))
	}
	return nil
}

// boundedAnswers cuts bodies after 1 MiB, as the RPC client reads all that an endpoint sends.
type boundedAnswers struct{}

func (boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxArgument), res.Body}
	}
	return res, err
}
