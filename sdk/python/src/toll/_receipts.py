"""Receipts of paid requests."""

from __future__ import annotations

from email.message import Message
from typing import Iterable, Mapping

from . import _x402
from ._models import SettleResponse
from ._record import Unreadable
from ._wire import Headers


def read_receipt(
    headers: Mapping[str, str] | Message | Iterable[tuple[str, str]],
) -> SettleResponse | None:
    """Returns the receipt in the header payment-response of a response.

    headers are the headers of urllib, requests, or httpx, or pairs. Returns None if the header is
    missing or malformed. The receipt is not signed: payments.settlement and
    payments.settlement_by_transaction read the record of the service.

        receipt = read_receipt(response.headers)
        print(receipt.credits_redeemed if receipt else None)
    """
    lines = headers.items() if isinstance(headers, (Mapping, Message)) else headers
    value = _x402.read_receipt(Headers([*lines]))
    try:
        return None if value is None else SettleResponse.read(value)
    except Unreadable:
        return None
