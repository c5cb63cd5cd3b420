"""Errors of the SDK. Branch on the class or on ``code``, never on the message."""

from __future__ import annotations

from typing import Any, Mapping

from ._wire import Answer, loads

#: Codes for responses without an error of the service, by status.
_BARE = {
    400: "BCK.HTTP.400",
    401: "BCK.AUTH.0002",
    402: "BCK.X402.0030",
    403: "BCK.AUTH.0003",
    404: "BCK.HTTP.404",
    405: "BCK.HTTP.405",
    413: "BCK.HTTP.413",
    429: "BCK.HTTP.429",
    502: "BCK.HTTP.503",
    503: "BCK.HTTP.503",
    504: "BCK.HTTP.503",
}
PENDING = "BCK.X402.0914"
RUNNING = "BCK.COMMON.0902"


class TollError(Exception):
    """The service refused, failed, or did not respond.

    ``code`` is stable (see /docs/errors of the service). ``status`` is the HTTP status, or 0 without
    a response. ``retryable`` is true if the same call may succeed later. ``hint`` suggests how to fix
    the problem. ``category`` is "validation", "auth", "business", "integration", "internal", or a
    category of a later release. ``correlation_id`` identifies the request in the logs of the service.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        category: str = "internal",
        hint: str = "",
        details: str = "",
        correlation_id: str = "",
        retryable: bool = False,
        retry_after: int = 0,
        docs_url: str = "",
        params: Mapping[str, Any] | None = None,
        response: Answer | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.category = category
        self.hint = hint
        self.details = details
        self.correlation_id = correlation_id
        self.retryable = retryable
        #: Seconds to wait before a retry, as requested by the service, or 0.
        self.retry_after = retry_after
        self.docs_url = docs_url
        self.params: Mapping[str, Any] = params or {}
        self.response = response

    def __str__(self) -> str:
        text = self.message
        if self.code:
            text = f"{self.code}: {text}"
        for more in (self.details, self.hint):
            if more:
                text += f" {more}" if text.endswith(".") else f" ({more})"
        return text + (f" [{self.correlation_id}]" if self.correlation_id else "")


class ValidationError(TollError):
    """The request is malformed; ``params["errors"]`` lists the invalid members."""


class AuthError(TollError):
    """The API key or its rights do not allow the call."""


class BusinessError(TollError):
    """The rules of plans, credits, and orders do not allow the call."""


class IntegrationError(TollError):
    """A dependency of the service is unavailable: its chain, card processor, or database."""


class InternalError(TollError):
    """The service failed, or sent a response that cannot be read."""


class PaymentRequiredError(BusinessError):
    """The request requires payment. ``payment_required`` has the requirements, if the server sent them."""

    @property
    def payment_required(self) -> Mapping[str, Any] | None:
        """The parsed PaymentRequired of an x402 server, or None."""
        if self.response is None:
            return None
        from ._x402 import read_challenge

        return read_challenge(self.response.headers, self.response.body)


class SettlementPendingError(IntegrationError):
    """The outcome of a settlement or order is unknown. Repeating the same call is safe.

    Pass ``agent_request_id`` to ``payments.settlement`` to read the outcome.
    """

    @property
    def agent_request_id(self) -> str:
        """The id of the request, or "" if the service did not send it."""
        try:
            body = self.response.json() if self.response else {}
        except ValueError:
            return ""
        for inside in (body, body.get("extra") if isinstance(body, dict) else None):
            if isinstance(inside, dict) and isinstance(inside.get("agentRequestId"), str):
                return str(inside["agentRequestId"])
        return ""


class RateLimitedError(BusinessError):
    """Too many calls or open holds; wait ``retry_after`` seconds."""


class UnavailableError(IntegrationError):
    """The service did not respond. Whether the call was carried out is unknown."""


class MissingKeyError(AuthError):
    """The call requires an API key, and the client has no key."""

    def __init__(self) -> None:
        super().__init__(
            "An API key is required: pass api_key=... or set TOLL_API_KEY.",
            code="BCK.AUTH.0002",
            category="auth",
            hint="Create a key on the page API keys of the service.",
        )


class WebhookError(TollError):
    """A delivery has no valid signature, is too old, or cannot be read."""


_CATEGORIES: Mapping[str, type[TollError]] = {
    "validation": ValidationError,
    "auth": AuthError,
    "business": BusinessError,
    "integration": IntegrationError,
    "internal": InternalError,
}


def of_answer(answer: Answer) -> TollError:
    """Returns the typed error of a response other than 2xx.

    If the body is not an error of the service, such as the page of a proxy, the code depends on the status.
    """
    try:
        body = loads(answer.body)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        body = {
            "code": _BARE.get(answer.status, "BCK.HTTP.500"),
            "message": f"The service responded with status {answer.status} but without an error object.",
            "category": "integration" if answer.status in (502, 503, 504) else "internal",
        }

    def said(name: str) -> str:
        value = body.get(name)
        return value if isinstance(value, str) else ""

    try:
        params = loads(said("params")) if said("params") else {}
    except ValueError:
        params = {}
    kind = _CATEGORIES.get(said("category"), InternalError)
    if said("code") == PENDING:
        kind = SettlementPendingError
    elif answer.status == 402:
        kind = PaymentRequiredError
    elif answer.status == 429:
        kind = RateLimitedError
    return kind(
        said("message"),
        code=said("code"),
        status=answer.status,
        category=said("category"),
        hint=said("hint"),
        details=said("details"),
        correlation_id=said("correlationId") or answer.request_id or "",
        retryable=body.get("retryable") is True,
        retry_after=retry_after(answer),
        docs_url=said("docsUrl"),
        params=params if isinstance(params, dict) else {},
        response=answer,
    )


def retry_after(answer: Answer) -> int:
    """Returns the seconds of Retry-After, at most a day; 0 if it is missing."""
    value = (answer.headers.get("retry-after") or "").strip()
    return min(int(value), 86400) if value.isascii() and value.isdigit() and len(value) < 9 else 0
