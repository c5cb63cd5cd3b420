"""The protocol for buyers and sellers: challenges, tokens, receipts (wire contract, sections 14, 15)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping

from ._wire import Headers, dumps, loads

SIGNATURE = "payment-signature"
REQUIRED = "payment-required"
RESPONSE = "payment-response"
VERSION = 2
#: Largest accepted PaymentRequired or receipt of a server, in bytes.
MAX_CHALLENGE = 64 << 10
#: Largest access token in one header, and largest PaymentPayload as JSON text.
MAX_TOKEN = 8 << 10
MAX_PAYLOAD = 16 << 10
#: Lower bound of the length of access tokens.
MIN_TOKEN = 200
IDENTIFIER = "payment-identifier"

_JWS = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")
_NONCE = re.compile(r"[A-Za-z0-9._:~-]{1,128}\Z")
_ID = re.compile(r"[A-Za-z0-9_-]{16,128}\Z")
#: Deepest accepted nesting of JSON.
MAX_DEPTH = 32


class Undecodable(ValueError):
    """A payment cannot be decoded. ``code`` is the error code that the service uses for it."""

    def __init__(self, why: str, code: str = "BCK.X402.0010") -> None:
        super().__init__(f"The access token cannot be decoded: {why}.")
        self.code = code


def decode_base64(text: str) -> bytes | None:
    """Decodes base64 in either alphabet, padded or not. Returns None for any other text."""
    stripped = text.rstrip("=")
    if not re.fullmatch(r"[A-Za-z0-9+/]*|[A-Za-z0-9_-]*", stripped) or len(text) - len(stripped) > 2:
        return None
    try:
        padded = stripped + "=" * (-len(stripped) % 4)
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None


def encode(value: Any) -> str:
    """Returns compact JSON in padded base64, for payment headers."""
    return base64.b64encode(dumps(value)).decode()


def depth(value: Any) -> int:
    """Returns the nesting depth of a JSON value."""
    deepest, stack = 0, [(value, 1)]
    while stack:
        v, at = stack.pop()
        if isinstance(v, (dict, list)):
            deepest = max(deepest, at)
            stack += [(x, at + 1) for x in (v.values() if isinstance(v, dict) else v)]
    return deepest


def strict(text: bytes) -> Any:
    """Parses JSON as strictly as the service. Raises ValueError."""
    decoded = text.decode("utf-8")  # keeps a byte order mark, which is then invalid JSON
    value = loads(decoded)
    if depth(value) > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if "\\u" in decoded:
        json.dumps(value, ensure_ascii=False, default=str).encode()  # raises for a lone surrogate
    return value


@dataclass(frozen=True)
class Token:
    """The parts of an access token. Only the JWS is signed, and its signature is not verified here."""

    jws: str = field(repr=False)
    claims: Mapping[str, Any] = field(repr=False)
    nonce: str = ""
    identifier: str = ""
    extensions: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def audience(self) -> list[str] | None:
        """Returns the audience, or None if it is malformed."""
        aud = self.claims.get("aud")
        if isinstance(aud, str):
            return [aud]
        if isinstance(aud, list) and all(isinstance(a, str) for a in aud):
            return aud
        return None


def decode_token(text: str) -> Token:
    """Decodes an access token in any form: JWS, base64 of a PaymentPayload, or its JSON text."""
    if text.startswith("{"):
        if len(text) > MAX_PAYLOAD:
            raise Undecodable("the token is larger than 16 KiB")
        return _payload(text.encode())
    if len(text) > MAX_TOKEN:
        raise Undecodable("the token is larger than 8 KiB")
    if _JWS.match(text):
        return Token(text, _claims(text))
    plain = decode_base64(text)
    if plain is None or not plain.startswith(b"{"):
        raise Undecodable("expected a JWS, a JSON object, or the base64 of a JSON object")
    return _payload(plain)


def is_version(value: Mapping[str, Any]) -> bool:
    """Reports whether x402Version is the integer 2, not a string and not 2.0."""
    v = value.get("x402Version")
    return type(v) is int and v == VERSION


def _claims(jws: str) -> Mapping[str, Any]:
    plain = decode_base64(jws.split(".")[1])
    try:
        claims = strict(plain or b"")
    except ValueError:
        claims = None
    return claims if isinstance(claims, dict) else {}


def _payload(text: bytes) -> Token:
    try:
        p = strict(text)
    except ValueError as e:
        raise Undecodable(f"the payment payload is malformed ({e})") from None
    if not isinstance(p, dict):
        raise Undecodable("the payment payload is not an object")
    if not is_version(p):
        raise Undecodable("x402Version is not 2", "BCK.X402.0915")
    inner = p.get("payload")
    jws = inner.get("signature") if isinstance(inner, dict) else None
    if not isinstance(jws, str) or not _JWS.match(jws):
        raise Undecodable("payload.signature is not a JWS")
    nonce = inner.get("nonce") if isinstance(inner, dict) else None
    if nonce is not None and not (isinstance(nonce, str) and _NONCE.match(nonce)):
        raise Undecodable("payload.nonce must be 1 to 128 characters of A-Z a-z 0-9 . _ : ~ -")
    extensions = p.get("extensions") or {}
    if not isinstance(extensions, dict):
        raise Undecodable("extensions must be an object")
    info = (extensions.get(IDENTIFIER) or {}).get("info") if isinstance(
        extensions.get(IDENTIFIER) or {}, dict
    ) else None
    identifier = info.get("id") if isinstance(info, dict) else None
    if identifier is not None and not (isinstance(identifier, str) and _ID.match(identifier)):
        raise Undecodable("the payment identifier must be 16 to 128 characters of A-Z a-z 0-9 _ -")
    return Token(jws, _claims(jws), nonce or "", identifier or "", extensions)


def is_access_token(text: str) -> bool:
    """Reports whether a text has the form of an access token."""
    if len(text) < MIN_TOKEN or text[0] not in "e{":
        return False
    try:
        claims = decode_token(text).claims
    except Undecodable:
        return False
    return claims.get("x402Version") == VERSION and bool(claims.get("planId"))


def read_challenge(headers: Headers, body: bytes) -> Mapping[str, Any] | None:
    """Returns the PaymentRequired of a 402, or None unless it has version 2."""
    value = headers.get(REQUIRED) or ""
    if value:
        plain = decode_base64(value) if len(value) <= MAX_CHALLENGE else None
        if plain is None:
            return None
        body = plain
    if len(body) > MAX_CHALLENGE:
        return None
    try:
        return as_challenge(strict(body))
    except ValueError:
        return None


def as_challenge(p: Any) -> Mapping[str, Any] | None:
    """Returns a PaymentRequired of version 2, or None for any other value."""
    if not isinstance(p, dict) or not is_version(p):
        return None
    return p if isinstance(p.get("accepts"), list) else None


def read_receipt(headers: Headers) -> Mapping[str, Any] | None:
    """Returns the receipt in payment-response, or None if it is missing or malformed."""
    value = headers.get(RESPONSE) or ""
    plain = decode_base64(value) if 0 < len(value) <= MAX_CHALLENGE else None
    if plain is None:
        return None
    try:
        receipt = strict(plain)
    except ValueError:
        return None
    return receipt if isinstance(receipt, dict) else None
