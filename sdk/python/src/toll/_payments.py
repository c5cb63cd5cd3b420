"""Steps for verify, settle, release, and renew, with their three outcomes.

A settlement is settled, refused, or unknown. An unknown outcome is never reported as refused: it is
an error, or a receipt whose error_reason is settlement_pending, and the same call may be repeated.
"""

from __future__ import annotations

from typing import Any, Mapping

from . import _core, errors
from ._core import Call, Config, Steps
from ._models import ReleaseResponse, RenewResponse, SettleResponse, VerifyResponse

#: Statuses of a verdict. Other statuses are failures of the call.
_VERDICTS = frozenset({200, 400, 402, 403, 404, 409, 429, 503})
PENDING = "settlement_pending"


def _judged(config: Config, call: Call[Any], reason: str) -> Steps[Any]:
    answer = yield from _core.send(config, call)
    if answer.status == 200:
        return _core.read(call, answer)
    fault = errors.of_answer(answer)
    if answer.status not in _VERDICTS:
        raise fault
    try:
        body = answer.json()
        said = body.get(reason) if isinstance(body, dict) else None
    except ValueError:
        said = None
    # These reasons are about the call, not about the payment.
    if said in (None, "", "rate_limited", "unauthorized_server"):
        raise fault
    if answer.status == 503 and said != PENDING:
        raise fault
    record = call.record
    body.setdefault("isValid", False)
    body.setdefault("success", False)
    body.setdefault("transaction", "")
    body.setdefault("network", "")
    body.setdefault("invalidMessage", fault.message)
    body.setdefault("errorMessage", fault.message)
    return record.read(body, answer)


def verify(config: Config, body: Mapping[str, Any]) -> Steps[VerifyResponse]:
    """Checks whether a request is payable. A refusal is a response, not an error.

    With a hold, it is retried only if the request has an id, and only after a response which means
    that nothing was done: after a lost response, the hold may already exist.
    """
    stock, hold = "paymentPayload" in body, bool(body.get("hold"))
    named = body.get("agentRequestId") is not None
    call = Call(
        "POST",
        "/api/v1/x402/verify",
        VerifyResponse,
        body=body,
        again=stock or not hold or named,
        refused=stock or hold,
    )
    verdict: VerifyResponse = yield from _judged(config, call, "invalidReason")
    if verdict.invalid_reason == PENDING:
        assert verdict.response is not None
        if verdict.response.status == 503:
            raise errors.of_answer(verdict.response)
    return verdict


def settle(config: Config, body: Mapping[str, Any]) -> Steps[SettleResponse]:
    """Burns credits. With an agentRequestId it is retried, because the service burns only once."""
    stock = "paymentPayload" in body
    call = Call(
        "POST",
        "/api/v1/x402/settle",
        SettleResponse,
        body=body,
        again=stock or body.get("agentRequestId") is not None,
        refused=stock,
    )
    receipt: SettleResponse = yield from _judged(config, call, "errorReason")
    return receipt


def release(config: Config, body: Mapping[str, Any]) -> Steps[ReleaseResponse]:
    """Releases a hold without burning credits."""
    call = Call("POST", "/api/v1/x402/release", ReleaseResponse, body=body, again=True)
    return (yield from _core.perform(config, call))


def renew(config: Config, body: Mapping[str, Any]) -> Steps[RenewResponse]:
    """Extends an open hold."""
    call = Call("POST", "/api/v1/x402/renew", RenewResponse, body=body, again=True)
    return (yield from _core.perform(config, call))
