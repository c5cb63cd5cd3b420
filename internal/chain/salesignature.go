package chain

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxAskGas is the most gas with which an account may say whether a signature is its own. P-256 in code of a contract needs
	// two thirds of it. It bounds the answer too, to some hundred KB.
	maxAskGas = 500_000
	// maxTransferGas is the most gas of the transfer itself. The token asks code of the payer also when its key has signed (EIP-7702). The
	// operation has a quarter more, and what surrounds it: less than [signer.MaxSaleGas].
	maxTransferGas = 700_000
)

// accepted is the answer of an account that takes a signature: the selector of isValidSignature (ERC-1271).
var accepted = common.BytesToHash(common.RightPadBytes(common.FromHex("0x1626ba7e"), 32))

// signatureForm reports whether an account on the chain can be asked about a signature.
func signatureForm(signature []byte) bool {
	return len(signature) <= evm.MaxSignature && !evm.Wrapped(signature)
}

// Accepts tells whether code of an account takes a signature of a digest for the account's own (ERC-1271). false, too: the account has no
// code, its code fails, answers otherwise than the standard says or needs more than 500,000 gas, and the signature is wrapped (ERC-6492) or
// longer than [evm.MaxSignature]. Where endpoints have to agree, two at least say so and none denies it. Errors have status 503.
func (r *Rail) Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	if !signatureForm(signature) {
		return false, nil
	}
	if err := r.cfg.Start(ctx); err != nil {
		return false, err
	}
	select {
	case r.chain.lanes <- struct{}{}:
		defer func() { <-r.chain.lanes }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	m := message{To: common.Address(account), Gas: maxAskGas, Data: userop.SignatureCall(digest, signature)}
	var mu sync.Mutex
	said := map[string]bool{} // by endpoint
	// What a stranger's code says of itself may differ between good endpoints, which must not rest for that: they agree that they
	// have answered.
	_, err := endpoints.Agree(ctx, r.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (struct{}, error) {
		yes, err := accepts(ctx, c, m)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			said[c.Name] = yes
		}
		return struct{}{}, err
	})
	if err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return false, unusable(toll.CodeChainUnreachable, err)
	}
	for _, yes := range said {
		if !yes {
			return false, nil
		}
	}
	return true, nil
}

// accepts is [Rail.Accepts] as one endpoint says it. The errors say nothing of the account.
func accepts(ctx context.Context, c *endpoints.Conn, m message) (bool, error) {
	var answer hexutil.Bytes
	err := try(ctx, c, "eth_call", &answer, m, nil)
	if _, ok := errors.AsType[*reverted](err); ok || halted(err) {
		return false, nil
	}
	return err == nil && len(answer) == 32 && common.BytesToHash(answer) == accepted, err
}

// halted reports whether an answer says that code has ended otherwise than by a revert, in the words of nodes that are not geth.
func halted(err error) bool {
	e, ok := errors.AsType[rpc.Error](err)
	return ok && strings.HasPrefix(strings.ToLower(e.Error()), "evm error")
}

// signedByKey reports whether the key of the payer of a sale has signed its authorization. Else only code of the payer can say so.
func (r *Rail) signedByKey(op *Op) bool {
	by, err := evm.Recover(r.saleDigest(op), op.Sale.Signature)
	return err == nil && by == toll.Address(op.Payer)
}

func (r *Rail) saleDigest(op *Op) common.Hash {
	domain, _ := TokenDomain(r.cfg.ChainID, toll.Address(op.Token))
	return op.authorization().Digest(domain)
}

// disowned refuses a sale whose authorization neither the key of the payer has signed nor its code takes.
func (r *Rail) disowned(ctx context.Context, op *Op) error {
	if r.signedByKey(op) {
		return nil
	}
	ok, err := r.Accepts(ctx, toll.Address(op.Payer), r.saleDigest(op), op.Sale.Signature)
	if ok || err != nil {
		return err
	}
	return unsigned()
}

// strange is [Rail.disowned] for a sale that was not begun yet. One that was begun goes on whatever code of the payer says now, as
// its operation may be on the way; and what the token has carried out, its logs decide.
func (r *Rail) strange(ctx context.Context, op *Op) error {
	if r.signedByKey(op) {
		return nil
	}
	if _, err := r.records.op(ctx, op.ID); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	err := r.disowned(ctx, op)
	if _, fails := errors.AsType[*Failure](err); !fails {
		return err
	}
	if used, e := r.chain.used(ctx, op); used || e != nil && !errors.Is(e, errAnswer) {
		return e
	}
	return err
}

func unsigned() *Failure {
	return saleFailed(toll.CodePaymentRequired, wordSignature, "The authorization is not signed by its sender for this token on this chain.")
}
