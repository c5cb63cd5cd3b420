package chain

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
)

func topic(signature string) common.Hash { return crypto.Keccak256Hash([]byte(signature)) }

const delegationType = "(address,address,bytes32,(address,bytes,bytes)[],uint256,bytes)"

// Topics of the events that the tracker reads.
var (
	topicRun      = topic("UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)")
	topicReason   = topic("UserOperationRevertReason(bytes32,address,uint256,bytes)")
	topicRedeemed = topic("RedeemedDelegation(address,address," + delegationType + ")")
	topicDisabled = topic("DisabledDelegation(bytes32,address,address," + delegationType + ")")
	topicSpent    = topic("IncreasedSpentMap(address,address,bytes32,uint256,uint256)")
)

// event is a UserOperationEvent: what became of an operation.
type event struct {
	op      common.Hash
	sender  common.Address
	nonce   common.Hash // key and sequence
	success bool
	place   Position
}

// parseEvent reads a log of the EntryPoint. ok is false for any other log, whatever it looks like.
func parseEvent(l *types.Log) (e event, ok bool) {
	if l.Address != contracts.EntryPoint || l.Removed || len(l.Topics) != 4 || l.Topics[0] != topicRun || len(l.Data) != 128 {
		return event{}, false
	}
	return event{
		op: l.Topics[1], sender: common.BytesToAddress(l.Topics[2][:]), nonce: common.Hash(l.Data[:32]),
		success: new(big.Int).SetBytes(l.Data[32:64]).Sign() != 0, place: positionOf(l),
	}, true
}

func positionOf(l *types.Log) Position {
	return Position{Block: l.BlockNumber, Hash: l.BlockHash, LogIndex: l.Index, Tx: l.TxHash}
}

// of reports whether an event is the one of an operation: the hash, the account and the whole nonce.
func (e *event) of(op *Op) bool {
	return op.Operation != nil && e.op == op.Hash && e.sender == op.Sender && e.nonce == common.BigToHash(op.Operation.Nonce)
}

// parseReason reads a UserOperationRevertReason: the text of what the inner call reverted with. The data begins with the nonce
// and the offset of the bytes.
func parseReason(l *types.Log) (op common.Hash, reason string, ok bool) {
	if l.Address != contracts.EntryPoint || l.Removed || len(l.Topics) != 3 || l.Topics[0] != topicReason || len(l.Data) < 96 {
		return common.Hash{}, "", false
	}
	length := new(big.Int).SetBytes(l.Data[64:96])
	if !length.IsInt64() || length.Int64() > int64(len(l.Data)-96) {
		return common.Hash{}, "", false
	}
	return l.Topics[1], userop.Reason(l.Data[96 : 96+length.Int64()]), true
}

// parseSpent reads an IncreasedSpentMap of one of the enforcers of amounts: the units that count against a delegation now.
func parseSpent(l *types.Log) (delegation common.Hash, units *big.Int, ok bool) {
	if l.Address != contracts.ERC20TransferAmountEnforcer || l.Removed || len(l.Topics) != 4 || l.Topics[0] != topicSpent || len(l.Data) != 64 ||
		common.BytesToAddress(l.Topics[1][:]) != contracts.DelegationManager {
		return common.Hash{}, nil, false
	}
	return l.Topics[3], new(big.Int).SetBytes(l.Data[32:64]), true
}

// parseDisabled reads a DisabledDelegation of the manager.
func parseDisabled(l *types.Log) (delegation common.Hash, ok bool) {
	if l.Address != contracts.DelegationManager || l.Removed || len(l.Topics) != 4 || l.Topics[0] != topicDisabled {
		return common.Hash{}, false
	}
	return l.Topics[1], true
}
