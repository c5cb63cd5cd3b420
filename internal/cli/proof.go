package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/x402"
)

func proofCommand(a *app) *cobra.Command {
	return group("proof", "Burned credits on the chain: what a receipt says, without asking the service", "",
		a.get("get TRANSACTION", "Show the proof of a burn, by the transaction of its receipt", "/credits/proofs/TRANSACTION"),
		proofVerify(a),
	)
}

func proofVerify(a *app) *cobra.Command {
	var rpc []string
	var operator, receipt string
	c := command("verify PROOF", "Check a proof against the chain", nil)
	c.Long = `Check a proof against the chain with nothing but the address of a JSON-RPC endpoint. PROOF is what toll proof get prints as
JSON: inline, @path, a path that ends in .json, or - for stdin; or the transaction of a receipt, whose proof is then asked
of the service.

The proof holds when its fields make the leaf, the leaf leads to the root, and the mirror contract of its operator took
exactly this root in the transaction that the proof names. It is final when the endpoint says so; the embedded chain, whose
blocks stay at once, says so every 32 blocks. Compare the operator with the one that the service publishes,
or name it with --operator. With --receipt the transaction, the payer, the credits, the plan, the request and the network of a receipt must be those of
the proof, as far as the receipt names them.`
	c.Annotations = withoutProfile
	f := c.Flags()
	f.StringSliceVar(&rpc, "rpc", nil, "address of a JSON-RPC endpoint of the chain; several are asked in turn")
	f.StringVar(&operator, "operator", "", "address that must have published the root")
	f.StringVar(&receipt, "receipt", "", "receipt that the proof has to be of: JSON, @path, or a path that ends in .json")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(rpc) == 0 {
			return usagef("--rpc is needed: a JSON-RPC endpoint of the chain")
		}
		p, err := proofArgument(a, cmd, args[0])
		if err != nil {
			return err
		}
		if receipt != "" {
			if err := sameBurn(&a.console, receipt, p); err != nil {
				return err
			}
		}
		v, err := rails.VerifyProof(cmd.Context(), rpc, p)
		if err != nil {
			return fmt.Errorf("the proof does not hold: %w", err)
		}
		if operator != "" && !strings.EqualFold(operator, v.Operator.String()) {
			return fmt.Errorf("the proof does not hold: %s published the root, not %s", v.Operator, operator)
		}
		return a.show(v)
	}
	return c
}

func proofArgument(a *app, cmd *cobra.Command, arg string) (*toll.BurnProof, error) {
	if hash, err := toll.ParseHash(arg); err == nil {
		return a.client().BurnProof(cmd.Context(), hash)
	}
	b, err := a.jsonArgument("PROOF", arg)
	if err != nil {
		return nil, err
	}
	p := new(toll.BurnProof)
	if err := x402.Decode(b, p); err != nil {
		return nil, err
	}
	return p, nil
}

// sameBurn refuses a proof that is of another burn than the receipt.
func sameBurn(con *console, arg string, p *toll.BurnProof) error {
	b, err := con.jsonArgument("--receipt", arg)
	if err != nil {
		return err
	}
	var r x402.SettleResponse
	if err := x402.Decode(b, &r); err != nil {
		return err
	}
	f := p.Fields
	if !strings.EqualFold(r.Transaction, f.Commitment.String()) {
		return errors.New("the proof is of another transaction than the receipt")
	}
	extra := cmp.Or(r.Extra, new(x402.SettleExtra))
	for _, n := range []*toll.Credits{r.CreditsRedeemed, r.Amount, extra.CreditsRedeemed} {
		if n != nil && *n != f.Credits {
			return fmt.Errorf("the receipt says %s, and the proof %d", n.Text(), f.Credits)
		}
	}
	request := ""
	if extra.AgentRequestID != "" {
		request = toll.Hash(toll.Keccak256([]byte(extra.AgentRequestID))).String()
	}
	for _, member := range []struct{ name, receipt, proof string }{
		{"payer", r.Payer, f.Holder.String()}, {"network", r.Network, p.Network},
		{"plan", string(extra.PlanID), string(f.PlanID)}, {"request", request, f.RequestHash.String()},
	} {
		if member.receipt != "" && !strings.EqualFold(member.receipt, member.proof) {
			return fmt.Errorf("the receipt has another %s than the proof", member.name)
		}
	}
	return nil
}
