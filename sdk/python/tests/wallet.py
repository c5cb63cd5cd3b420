"""A wallet for tests: EIP-712 on the libraries of Debian (python3-ecdsa, python3-pycryptodome)."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Mapping

from Cryptodome.Hash import keccak
from ecdsa import SECP256k1, SigningKey, VerifyingKey
from ecdsa.util import sigdecode_string, sigencode_string_canonize


def keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def encoded(type: str, value: Any) -> bytes:
    """Returns a member as EIP-712 hashes it."""
    if type == "string":
        return keccak256(value.encode())
    if type == "uint256":
        return int(value).to_bytes(32, "big")
    assert type in ("address", "bytes32"), type
    return bytes.fromhex(value[2:]).rjust(32, b"\0")


def hashed(name: str, members: Any, values: Mapping[str, Any]) -> bytes:
    """Returns the hash of a struct whose members are values."""
    kind = f"{name}({','.join(m['type'] + ' ' + m['name'] for m in members)})"
    return keccak256(keccak256(kind.encode()) + b"".join(encoded(m["type"], values[m["name"]]) for m in members))


DOMAIN = [
    {"name": "name", "type": "string"}, {"name": "version", "type": "string"},
    {"name": "chainId", "type": "uint256"}, {"name": "verifyingContract", "type": "address"},
]


class Wallet:
    """A fresh account."""

    def __init__(self) -> None:
        self.key = SigningKey.from_secret_exponent(secrets.randbelow(SECP256k1.order - 1) + 1, SECP256k1)
        public = self.key.verifying_key.to_string()
        self.address = "0x" + keccak256(public)[12:].hex()
        self.signed: list[Mapping[str, Any]] = []

    def sign_typed_data(
        self, domain: Mapping[str, Any], types: Mapping[str, Any], message: Mapping[str, Any]
    ) -> bytes:
        self.signed.append(message)
        ((name, members),) = types.items()
        digest = keccak256(
            b"\x19\x01" + hashed("EIP712Domain", DOMAIN, domain) + hashed(name, members, message)
        )
        rs = self.key.sign_digest_deterministic(digest, hashlib.sha256, sigencode_string_canonize)
        # The first key is that of the even y.
        keys = VerifyingKey.from_public_key_recovery_with_digest(
            rs, digest, SECP256k1, hashlib.sha256, sigdecode_string
        )
        public = self.key.verifying_key.to_string()
        return bytes(rs + bytes([27 + [k.to_string() for k in keys].index(public)]))
