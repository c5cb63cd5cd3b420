package rails

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/store"
)

// Inspect implements [Settings]: it creates no account and starts no chain.
func (c *ChainConfig) Inspect(ctx context.Context, deps Deps, add check.Report) {
	const name = "chain"
	defer inspectUnmatched(context.WithoutCancel(ctx), deps.Store, add)
	n := &Chain{cfg: *c, deps: deps}
	n.source, n.missing = c.source(n.env(), deps.Data)
	known, err := n.genesis(ctx)
	if err != nil {
		add(name, check.Failed, "%s", err)
		return
	}
	switch {
	case c.Mode == ChainOff:
		add(name, check.OK, "off; crypto plans cannot be ordered")
	case n.source == noChain:
		add(name, check.Warning, "crypto plans cannot be ordered. %s", n.missing)
	case n.source == embeddedChain:
		_, err := os.Stat(n.dir())
		switch {
		case known != (common.Hash{}) && errors.Is(err, os.ErrNotExist):
			add(name, check.Failed, "%s", n.otherChain())
		case known == (common.Hash{}):
			add(name, check.OK, "embedded; the chain is created in %s when it is first needed", n.dir())
		default:
			add(name, check.OK, "embedded, in %s", n.dir())
		}
	default:
		n.inspectRPC(ctx, known, add)
	}
}

func (n *Chain) inspectRPC(ctx context.Context, known common.Hash, add check.Report) {
	const name = "chain"
	env := n.env()
	pool, err := n.pool(nil, known)
	if err != nil {
		add(name, check.Failed, "%s: fix TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)", strings.TrimPrefix(err.Error(), "endpoints: "))
		return
	}
	defer pool.Close()
	pool.Check(ctx)
	usable := false
	for _, e := range pool.Health() {
		switch {
		case e.Usable:
			usable = true
			add("endpoint", check.OK, "%s, at block %d", e.Name, e.Head)
		case e.ChainID != 0 && e.ChainID != n.chainID():
			add("endpoint", check.Failed, "%s serves chain %d, but %s is chain %d", e.Name, e.ChainID, env, n.chainID())
		default:
			add("endpoint", check.Warning, "%s is not used: %s", e.Name, e.Reason)
		}
	}
	if !usable {
		add(name, check.Failed, "no endpoint of %s can be used: fix TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)", env.Network())
		return
	}
	rail, relayers, err := n.lookingRail(ctx, pool)
	switch {
	case err != nil:
		add(name, check.Failed, "%s", err)
		return
	case rail == nil:
		add("relayer", check.Warning, "no service has been started with this chain yet; the first start creates the account that pays for gas")
		return
	}
	for _, relayer := range relayers {
		if w, err := rail.Wallet(ctx, relayer); err == nil {
			add("relayer", check.OK, "%s has %s ETH for gas", relayer, ether(w.Native))
		}
	}
	switch err := rail.Ready(ctx); codeOf(err) {
	case "":
		add(name, check.OK, "%s, with the expected contracts", env.Network())
	case toll.CodeChainRelayerLow:
		add(name, check.Failed, "no relayer has enough ETH for gas: send ETH on %s to a relayer", env.Network())
	case toll.CodeChainContracts:
		add(name, check.Failed, "the contracts on the chain do not have the expected code: check that the endpoints serve %s", env.Network())
	case toll.CodeChainFeeCap:
		add(name, check.Warning, "the base fee is above the cap, so no transactions are sent until the fee falls: wait, or raise TOLL_CHAIN_MAX_BASE_FEE_WEI")
	default:
		add(name, check.Failed, "%s", err)
	}
}

// lookingRail is a rail that is only asked, with the accounts that are there; nil when there are none.
func (n *Chain) lookingRail(ctx context.Context, pool *endpoints.Pool) (*chain.Rail, []common.Address, error) {
	stored, err := store.ChainKeys(ctx, n.deps.Store)
	relayers := max(n.cfg.Relayers, 1)
	has := func(role string, number int) bool {
		return slices.ContainsFunc(stored, func(k store.ChainKey) bool { return k.Role == role && k.Number == int64(number) })
	}
	if err != nil || !has(roleService, 0) || !has(roleRelayer, relayers-1) {
		return nil, nil, err
	}
	keys, err := openKeys(ctx, &n.deps, relayers, false)
	if err != nil {
		return nil, nil, err
	}
	err = n.connect(keys, pool)
	return n.rail, keys.relayers, err
}

func ether(wei *big.Int) string {
	units, err := toll.ParseUnits(wei.String())
	if err != nil {
		return fmt.Sprint(wei)
	}
	return toll.FormatAmount(units, 18)
}
