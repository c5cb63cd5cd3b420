"""Paid calls over MCP, for HTTP transports."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from . import _x402
from ._buy import MAX_REFUSAL, Asked, Made
from ._events import Parser
from ._record import Unreadable
from ._wire import dumps

PAYMENT, RECEIPT = "x402/payment", "x402/payment-response"
#: Methods of calls for items, the member with the name of the item, and the type in its url.
METHODS = {
    "tools/call": ("name", "tools"),
    "resources/read": ("uri", "resources"),
    "prompts/get": ("name", "prompts"),
}
#: Most bytes of a paid response that are searched for its receipt.
MAX_ANSWER = 8 << 20


class Call:
    """One call of a paid item."""

    def __init__(self, message: dict[str, Any], params: dict[str, Any]) -> None:
        self.message, self.params, self.id = message, params, message["id"]

    @classmethod
    def read(cls, method: str, content_type: str, body: bytes) -> Call | None:
        """Returns the call in a request, or None if it contains no call that could be paid."""
        if method != "POST" or content_type.split(";")[0].strip().lower() != "application/json":
            return None
        try:
            message = _x402.strict(body)
        except ValueError:
            return None
        if not isinstance(message, dict) or message.get("method") not in METHODS:
            return None
        params = message.get("params")
        if not isinstance(params, dict) or not isinstance(message.get("id"), (str, int)):
            return None
        meta = params.get("_meta")
        if isinstance(meta, dict) and PAYMENT in meta:
            return None  # it already has a payment
        return cls(message, params)

    def asked(self, url: str, answer: Mapping[str, Any] | None) -> Asked | None:
        """Returns the payment requirements of a response, or None if it has no valid requirements."""
        found: Any = None
        result, error = (answer or {}).get("result"), (answer or {}).get("error")
        if isinstance(result, dict) and result.get("isError") is True:
            found = result.get("structuredContent")
            content = result.get("content")
            if found is None and isinstance(content, list) and content:
                text = content[0].get("text") if isinstance(content[0], dict) else None
                try:
                    found = _x402.strict(text.encode()) if isinstance(text, str) else None
                except ValueError:
                    return None
        elif isinstance(error, dict):
            found = error.get("data")
        challenge = _x402.as_challenge(found)
        if challenge is None:
            return None
        method = self.message["method"]
        item = f"{method} {str(self.params.get(METHODS[method][0]))[:200]}"
        return Asked("POST", url, challenge, item)

    def paid(self, made: Made) -> bytes:
        """Returns the body of the call with its payment."""
        meta = self.params.get("_meta")
        meta = {**(meta if isinstance(meta, dict) else {}), PAYMENT: made.payload}
        return dumps({**self.message, "params": {**self.params, "_meta": meta}})

    @staticmethod
    def outcome(answer: Mapping[str, Any] | None) -> tuple[bool, Mapping[str, Any] | None]:
        """Returns whether a paid call succeeded, and its receipt."""
        result = (answer or {}).get("result")
        if not isinstance(result, dict):
            return answer is None, None
        meta = result.get("_meta")
        receipt = meta.get(RECEIPT) if isinstance(meta, dict) else None
        good = result.get("isError") is not True
        return good, receipt if isinstance(receipt, dict) else None


class Answering:
    """Finds the response to a call in a body that arrives in parts, and keeps the parts.

    A refusal is the first message of a body. patient also searches after other messages.
    """

    def __init__(self, call: Call, content_type: str, patient: bool) -> None:
        kind = content_type.split(";")[0].strip().lower()
        self._id, self._patient = call.id, patient
        self._parser = Parser() if kind == "text/event-stream" else None
        self._most = MAX_ANSWER if patient else MAX_REFUSAL
        self.parts: list[bytes] = []
        self._size = 0
        self.answer: Mapping[str, Any] | None = None

    def feed(self, part: bytes) -> bool:
        """Adds a part. Returns False when the search is finished."""
        self.parts.append(part)
        self._size += len(part)
        if self._size > self._most:
            return False
        for data in self._messages(part):
            if self._look(data) or not self._patient:
                return False
        return True

    def _messages(self, part: bytes) -> Iterator[bytes]:
        if self._parser is not None:
            try:
                yield from (data for _, data in self._parser.feed(part))
            except Unreadable:
                self._parser = None

    def end(self) -> None:
        """Handles the end of the body."""
        if self._parser is None:
            self._look(b"".join(self.parts))

    def _look(self, data: bytes) -> bool:
        try:
            message = _x402.strict(data)
        except ValueError:
            return False
        if not isinstance(message, dict) or message.get("id") != self._id:
            return False
        if "result" not in message and "error" not in message:
            return False
        self.answer = message
        return True


__all__ = ["Answering", "Call", "METHODS", "PAYMENT", "RECEIPT"]
