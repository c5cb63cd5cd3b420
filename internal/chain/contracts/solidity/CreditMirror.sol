// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

interface ICreditMirror {
    event Anchored(uint64 indexed period, bytes32 root, uint64 leaves, uint128 credits);

    error NotOperator();
    error PeriodNotAfter(uint64 last);

    function operator() external view returns (address);
    function lastPeriod() external view returns (uint64);
    function anchor(uint64 period, bytes32 root, uint64 leaves, uint128 credits) external;
    function check(bytes32 root, bytes32 leaf, bytes32[] calldata proof) external pure returns (bool);
}

/// One Merkle root of burned credits for each period. The roots are in events only.
contract CreditMirror is ICreditMirror {
    address public immutable operator;
    uint64 public lastPeriod;

    constructor(address operator_) {
        operator = operator_;
    }

    /// Periods rise, and may leave gaps: a period without burns has no root.
    function anchor(uint64 period, bytes32 root, uint64 leaves, uint128 credits) external {
        if (msg.sender != operator) revert NotOperator();
        if (period <= lastPeriod) revert PeriodNotAfter(lastPeriod);
        lastPeriod = period;
        emit Anchored(period, root, leaves, credits);
    }

    /// The parent of two nodes is the hash of both in ascending order. The leaf is a hash of a hash, so no node passes for one.
    function check(bytes32 root, bytes32 leaf, bytes32[] calldata proof) external pure returns (bool) {
        bytes32 node = leaf;
        for (uint256 i = 0; i < proof.length; i++) {
            bytes32 other = proof[i];
            node = node < other
                ? keccak256(abi.encodePacked(node, other))
                : keccak256(abi.encodePacked(other, node));
        }
        return node == root;
    }
}
