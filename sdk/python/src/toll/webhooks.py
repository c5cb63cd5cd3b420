"""Webhook deliveries. The signature is verified before the body is parsed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from email.message import Message
from typing import Callable, Iterable, Mapping

from ._models import Event
from ._namespace import DEFAULT, Namespace
from ._record import Unreadable
from ._x402 import strict
from .errors import WebhookError

#: Most difference between the time of a delivery and now, in seconds, in both directions.
TOLERANCE = 300
#: A Standard Webhooks signature, between spaces, or commas that servers insert.
STANDARD = re.compile(r"(?<![^\s,])v1,([A-Za-z0-9+/]{43}=)(?![^\s,])")
#: Largest accepted body, in bytes.
MAX_BODY = 1 << 20


def read_delivery(
    headers: Mapping[str, str] | Message | Iterable[tuple[str, str]],
    body: bytes,
    *secrets: str,
    tolerance: int = TOLERANCE,
    namespace: Namespace = DEFAULT,
    now: Callable[[], float] = time.time,
) -> Event:
    """Returns the event of a delivery that is signed with one of the secrets.

    headers are the headers of a framework or of http.server, or pairs. Two of them can have the same
    name: for a day after webhooks.rotate, a delivery has two signatures. Pass the current secret, and for that day also the previous secret.
    body is the raw, unparsed body. The same event may arrive more than once, with the same id.
    A delivery that has only the headers of Standard Webhooks is also accepted (webhook-id,
    webhook-timestamp, webhook-signature with "v1," and base64): its key is the base64 after whsec_.
    Raises WebhookError.
    """
    lines = list(headers.items() if isinstance(headers, (Mapping, Message)) else headers)
    own = any(n.lower() == namespace.webhook("Id").lower() and v for n, v in lines)

    def header(what: str) -> str:
        # During a rotation there are two signature headers.
        name = (namespace.webhook(what) if own else f"webhook-{what}").lower()
        return ", ".join(value for n, value in lines if n.lower() == name)

    sent = header("Timestamp")
    if not header("Id") or not (sent.isascii() and sent.isdigit() and len(sent) < 12):
        raise WebhookError("This is not a signed webhook delivery.", status=400, category="auth")
    if abs(now() - int(sent)) > tolerance:
        raise WebhookError(
            "The webhook timestamp is outside the allowed window.", status=400, category="auth",
            details=f"The timestamp differs from the current time by more than {tolerance} s.",
        )
    if len(body) > MAX_BODY:
        raise WebhookError("The body of the delivery is longer than 1 MiB.", status=413)
    text = f"{header('Id')}.{sent}.".encode() + body
    is_signed = signed if own else signed_by_standard
    if not is_signed(header("Signature"), text, secrets):
        raise WebhookError(
            "The webhook signature is invalid.", status=400, category="auth",
            hint="Pass the raw body and the secret of this webhook.",
        )
    try:
        return Event.read(strict(body))
    except (ValueError, Unreadable) as e:
        raise WebhookError(f"The body of the delivery is not an event: {e}.", status=400) from None


def signed(header: str, text: bytes, secrets: Iterable[str]) -> bool:
    """Reports whether a signature matches a secret, in constant time."""
    given = [s[3:] for s in header.replace(",", " ").split() if s.startswith("v1=")][:16]
    good = False
    for secret in secrets:
        if not secret:
            continue
        want = hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
        for one in given:
            good |= hmac.compare_digest(one.encode("utf-8", "replace"), want.encode())
    return good


def signed_by_standard(header: str, text: bytes, secrets: Iterable[str]) -> bool:
    """Reports whether a Standard Webhooks signature matches a secret."""
    given = [s.encode() for s in STANDARD.findall(header)[:16]]
    good = False
    for secret in secrets:
        base = secret.removeprefix("whsec_")
        try:
            key = base64.b64decode(base.rstrip("=") + "=" * (-len(base.rstrip("=")) % 4), validate=True)
        except ValueError:
            continue
        if not key:
            continue
        want = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest())
        for one in given:
            good |= hmac.compare_digest(one, want)
    return good


__all__ = ["read_delivery", "signed"]
