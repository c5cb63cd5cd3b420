package server

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/store"
)

// inspectTime bounds what [Inspect] asks of the chain.
const inspectTime = 20 * time.Second

// inspectChain says what is missing for crypto plans. It makes no account and starts no chain.
func inspectChain(ctx context.Context, cfg Config, f *foundation, add func(name, status, format string, args ...any)) {
	const name = "chain"
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	env := f.auth.Environment()
	n := &network{cfg: cfg, base: f}
	n.source, n.missing = cfg.chainSource(env)
	known, err := n.genesis(ctx)
	if err != nil {
		add(name, CheckFailed, "%s", err)
		return
	}
	switch {
	case cfg.Chain.Mode == ChainOff:
		add(name, CheckOK, "off; crypto plans cannot be ordered")
	case n.source == sourceNone:
		add(name, CheckWarning, "crypto plans cannot be ordered. %s", n.missing)
	case n.source == sourceEmbedded:
		_, err := os.Stat(cfg.chainDir())
		switch {
		case known != (common.Hash{}) && errors.Is(err, os.ErrNotExist):
			add(name, CheckFailed, "%s", n.foreign())
		case known == (common.Hash{}):
			add(name, CheckOK, "embedded; it is made in %s when it is first needed", cfg.chainDir())
		default:
			add(name, CheckOK, "embedded, in %s", cfg.chainDir())
		}
	default:
		n.inspectRPC(ctx, known, add)
	}
}

func (n *network) inspectRPC(ctx context.Context, known common.Hash, add func(name, status, format string, args ...any)) {
	const name = "chain"
	env := n.base.auth.Environment()
	pool, err := n.pool(nil, known)
	if err != nil {
		add(name, CheckFailed, "%s: correct TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)", strings.TrimPrefix(err.Error(), "endpoints: "))
		return
	}
	defer pool.Close()
	pool.Check(ctx)
	usable := false
	for _, e := range pool.Health() {
		switch {
		case e.Usable:
			usable = true
			add("endpoint", CheckOK, "%s, at block %d", e.Name, e.Head)
		case e.ChainID != 0 && e.ChainID != n.chainID():
			add("endpoint", CheckFailed, "%s is of the chain %d, and %s is %d", e.Name, e.ChainID, env, n.chainID())
		default:
			add("endpoint", CheckWarning, "%s is not used: %s", e.Name, e.Reason)
		}
	}
	if !usable {
		add(name, CheckFailed, "no endpoint of %s can be used: correct TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)", env.Network())
		return
	}
	rail, relayers, err := n.lookingRail(ctx, pool)
	switch {
	case err != nil:
		add(name, CheckFailed, "%s", err)
		return
	case rail == nil:
		add("relayer", CheckWarning, "no service has been started with this chain yet; its first start makes the account that pays the gas")
		return
	}
	for _, relayer := range relayers {
		if w, err := rail.Wallet(ctx, relayer); err == nil {
			add("relayer", CheckOK, "%s has %s ETH for gas", relayer, ether(w.Native))
		}
	}
	switch err := rail.Ready(ctx); codeOf(err) {
	case "":
		add(name, CheckOK, "%s, contracts as they are known", env.Network())
	case toll.CodeChainRelayerLow:
		add(name, CheckFailed, "no relayer has the gas money that it must have: send ETH on %s to one of them", env.Network())
	case toll.CodeChainContracts:
		add(name, CheckFailed, "the contracts there do not have the code that is known: is that chain really %s?", env.Network())
	case toll.CodeChainFeeCap:
		add(name, CheckWarning, "the base fee is above the cap, so nothing is sent until it falls: wait, or raise TOLL_CHAIN_MAX_BASE_FEE_WEI")
	default:
		add(name, CheckFailed, "%s", err)
	}
}

// lookingRail is a rail that is only asked, with the accounts that are there; nil when there are none.
func (n *network) lookingRail(ctx context.Context, pool *endpoints.Pool) (*chain.Rail, []common.Address, error) {
	stored, err := store.ChainKeys(ctx, n.base.store)
	relayers := max(n.cfg.Chain.Relayers, 1)
	has := func(role string, number int) bool {
		return slices.ContainsFunc(stored, func(k store.ChainKey) bool { return k.Role == role && k.Number == int64(number) })
	}
	if err != nil || !has(roleService, 0) || !has(roleRelayer, relayers-1) {
		return nil, nil, err
	}
	keys, err := openChainKeys(ctx, n.base, relayers, false)
	if err != nil {
		return nil, nil, err
	}
	sign, err := signer.New(signer.Config{
		ChainID: new(big.Int).SetUint64(n.chainID()), Keys: keys, Service: keys.service, Relayers: keys.relayers, Clock: n.base.clock.now, Log: n.cfg.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	cfg := n.cfg.Chain.rail(false)
	cfg.Environment, cfg.ChainID, cfg.Pool, cfg.Journal, cfg.Signer = n.base.auth.Environment(), n.chainID(), pool, &journal{n.base.store, int64(n.chainID())}, sign
	cfg.Sink, cfg.Service, cfg.Relayers = cryptoSink{n}, keys.service, keys.relayers
	cfg.Holder, cfg.Clock, cfg.Log = holder(), n.base.clock.now, n.cfg.Log
	rail, err := chain.New(cfg)
	return rail, keys.relayers, err
}

func ether(wei *big.Int) string {
	units, err := toll.ParseUnits(wei.String())
	if err != nil {
		return fmt.Sprint(wei)
	}
	return toll.FormatAmount(units, 18)
}
