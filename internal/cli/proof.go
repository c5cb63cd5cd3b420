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
	return group("proof", "Verify burned credits on the chain, without trusting the service", "",
		a.get("get TRANSACTION", "Show the burn proof for the transaction in a receipt", "/credits/proofs/TRANSACTION"),
		proofVerify(a),
	)
}

func proofVerify(a *app) *cobra.Command {
	var rpc []string
	var operator, receipt string
	c := command("verify PROOF", "Check a proof against the chain", nil)
	c.Long = `Check a proof against the chain with only the address of a JSON-RPC endpoint. PROOF is the JSON that toll proof get prints:
inline, @path, a path that ends in .json, or - for stdin. PROOF can also be the transaction in a receipt; the command then
requests the proof from the service.

A proof is valid if the hash of its fields is the leaf, the leaf leads to the Merkle root, and the mirror contract of the operator
accepted this root in the transaction that the proof names. The proof is final if the endpoint reports the block as finalized. The
embedded chain never reverts a block, but reports finalized blocks only every 32 blocks. Compare the operator with the published
operator of the service, or set --operator.

With --receipt, the transaction, payer, credits, plan, request, and network of the receipt must match the
proof, as far as the receipt contains them.`
	c.Annotations = withoutProfile
	f := c.Flags()
	f.StringSliceVar(&rpc, "rpc", nil, "address of a JSON-RPC endpoint of the chain; several are tried in turn")
	f.StringVar(&operator, "operator", "", "address that must have published the root")
	f.StringVar(&receipt, "receipt", "", "receipt that the proof must match: JSON, @path, or a path that ends in .json")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(rpc) == 0 {
			return usagef("--rpc is required: set the address of a JSON-RPC endpoint of the chain")
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
			return fmt.Errorf("the proof is not valid: %w", err)
		}
		if operator != "" && !strings.EqualFold(operator, v.Operator.String()) {
			return fmt.Errorf("the proof is not valid: %s published the root, not %s", v.Operator, operator)
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

// sameBurn returns an error if the proof and the receipt are not about the same burn.
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
		return errors.New("the proof and the receipt name different transactions")
	}
	extra := cmp.Or(r.Extra, new(x402.SettleExtra))
	for _, n := range []*toll.Credits{r.CreditsRedeemed, r.Amount, extra.CreditsRedeemed} {
		if n != nil && *n != f.Credits {
			return fmt.Errorf("the receipt has %s, but the proof has %d", n.Text(), f.Credits)
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
			return fmt.Errorf("the receipt and the proof differ in the %s", member.name)
		}
	}
	return nil
}
