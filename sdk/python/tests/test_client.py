"""The client: retries, errors, records, lists, events, and what it must never show."""

from __future__ import annotations

import asyncio
import ast
import base64
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from http.client import HTTPMessage
from pathlib import Path
from typing import Any, Callable

import pytest
import toll
from toll import Toll, TransportError, builders, errors
from toll import _core
from toll._events import Parser
from toll._models import SettleResponse
from toll._record import Unreadable
from toll._wire import Answer, Headers, Request, dumps, loads
from toll.testing import Service
from toll.transport import HTTPTransport, HTTPXTransport, ThreadTransport

HERE = Path(__file__).resolve().parent.parent
PLAN = "44742763076047497640080230236781474129970992727896593861997347135613135571071"


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    lines = [(n.replace("_", "-"), v) for n, v in headers.items()]
    return Answer(status, Headers(lines), dumps(body) if body is not None else b"")


class Script:
    """A transport with prepared answers."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.sent = list(answers), []  # type: ignore[var-annotated]

    def send(self, request: Request) -> Answer:
        self.sent.append(request)
        a = self.answers.pop(0)
        if isinstance(a, Exception):
            raise a
        return a  # type: ignore[no-any-return]

    def close(self) -> None:
        pass


def client(*answers: Any, **settings: Any) -> tuple[Toll, Script]:
    script = Script(*answers)
    return Toll(api_key="sandbox:k", transport=script, **settings), script


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(_core.run, "__defaults__", (waits.append,))
    return waits


CLOCK = {"now": "2026-11-21T01:52:18.322Z", "offsetSecs": 0}
BUSY = answer(503, {"code": "BCK.HTTP.503", "message": "Busy.", "category": "internal"})
LOST = TransportError("reset")


def test_retries_only_what_is_safe() -> None:
    # A read is repeated after a lost answer, 429, 502, 503 and 504.
    t, s = client(LOST, BUSY, answer(502), answer(200, CLOCK))
    record = t.sandbox.clock()
    assert len(s.sent) == 4 and record.response and record.response.retries == 3
    # A creation carries one key through all its attempts.
    t, s = client(LOST, BUSY, answer(200, {"success": True, "planId": PLAN, "txHash": "0x1"}))
    t.plans.create(name="p", price=builders.free_price(), credits=builders.fixed_credits(1))
    keys = {r.headers["Idempotency-Key"] for r in s.sent}
    assert len(s.sent) == 3 and len(keys) == 1 and re.fullmatch(r"[0-9a-f-]{36}", keys.pop())
    # An act that can do something twice is not.
    t, s = client(LOST)
    with pytest.raises(errors.UnavailableError):
        t.sandbox.advance(5)
    t, s = client(BUSY)
    with pytest.raises(errors.TollError):
        t.wallet.export()
    # A removal is repeated after a refusal and not after a lost answer.
    gone = {"success": True, "permissionHash": "0x1", "status": "Revoked"}
    t, s = client(BUSY, answer(200, gone))
    assert t.tokens.revoke("0x1").status == "Revoked"
    t, s = client(LOST)
    with pytest.raises(errors.UnavailableError):
        t.tokens.revoke("0x1")
    # At most three repeats.
    t, s = client(*[BUSY] * 9)
    with pytest.raises(errors.InternalError):
        t.sandbox.clock()
    assert len(s.sent) == 4
    # 408 says that nothing was done, whatever the call.
    t, s = client(answer(408), answer(200, CLOCK))
    t.sandbox.advance(5)


def test_retry_after_and_jitter(no_sleep: list[float]) -> None:
    t, s = client(answer(429, None, retry_after="2"), answer(200, CLOCK))
    t.sandbox.clock()
    assert no_sleep[-1] == 2.0
    t, s = client(answer(429, None, retry_after="600"))
    with pytest.raises(errors.RateLimitedError) as e:
        t.sandbox.clock()
    assert e.value.retry_after == 600 and len(s.sent) == 1
    waits = {_core.backoff(1, 5) for _ in range(50)}
    assert len(waits) > 10 and all(0.2 <= w <= 0.4 for w in waits)


def test_running_idempotency_is_asked_again() -> None:
    running = answer(409, {"code": "BCK.COMMON.0902", "message": "Running."})
    t, s = client(running, answer(200, {"success": True, "planId": PLAN, "txHash": "0x1"}))
    t.plans.create(name="p", price=builders.free_price(), credits=builders.fixed_credits(1))
    other = answer(409, {"code": "BCK.COMMON.0901", "message": "Other body."})
    t, s = client(other)
    with pytest.raises(errors.TollError):
        t.with_options(idempotency_key="k").plans.create(name="p", price={}, credits={})
    assert s.sent[0].headers["Idempotency-Key"] == "k"


def verify_body(**more: Any) -> dict[str, Any]:
    return {"isValid": True, "agentRequestId": "req_1", **more}


def test_verify_with_hold_is_not_repeated_after_a_lost_answer() -> None:
    t, s = client(LOST)
    with pytest.raises(errors.UnavailableError):
        t.payments.verify({}, "t", hold=True, agent_request_id="req_1")
    assert len(s.sent) == 1
    t, s = client(BUSY, answer(200, verify_body()))
    assert t.payments.verify({}, "t", hold=True, agent_request_id="req_1").is_valid
    t, s = client(BUSY)  # without an id a repeat may hold twice
    with pytest.raises(errors.TollError):
        t.payments.verify({}, "t", hold=True)
    t, s = client(LOST, answer(200, verify_body()))
    assert t.payments.verify({}, "t").is_valid


def test_settle_has_three_outcomes() -> None:
    receipt = {"success": True, "transaction": "0x1", "network": "n", "creditsRedeemed": "2"}
    t, s = client(LOST, answer(200, receipt))
    got = t.payments.settle({}, "t", agent_request_id="r", max_amount=2)
    assert got.success and got.credits_redeemed == 2 and s.sent[0].body == s.sent[1].body
    refused = {"code": "BCK.CREDITS.0003", "message": "None left.", "errorReason": "insufficient_funds"}
    t, s = client(answer(402, refused))
    got = t.payments.settle({}, "t", agent_request_id="r")
    assert not got.success and got.error_reason == "insufficient_funds"
    pending = {"code": errors.PENDING, "message": "Pending.", "errorReason": "settlement_pending"}
    t, s = client(*[answer(503, pending)] * 4)
    got = t.payments.settle({}, "t", agent_request_id="r")
    assert not got.success and got.error_reason == "settlement_pending" and len(s.sent) == 4
    # An unknown outcome is an error, never a refusal.
    t, s = client(*[LOST] * 4)
    with pytest.raises(errors.UnavailableError):
        t.payments.settle({}, "t", agent_request_id="r")
    for status in (401, 500, 502):
        t, s = client(*[answer(status, {"code": "X", "message": "m"})] * 4)
        with pytest.raises(errors.TollError):
            t.payments.settle({}, "t", agent_request_id="r")


def test_errors() -> None:
    body = {
        "code": "BCK.PROTOCOL.0003", "message": "No plan has this id.", "httpStatus": 404,
        "category": "business", "hint": "Check the id.", "details": "planId 1", "retryable": False,
        "correlationId": "c-1", "params": '{"planId":"1"}',
    }
    t, _ = client(answer(404, body))
    with pytest.raises(errors.BusinessError) as e:
        t.plans.get("1")
    assert (e.value.code, e.value.status, e.value.correlation_id) == ("BCK.PROTOCOL.0003", 404, "c-1")
    assert e.value.params == {"planId": "1"} and "Check the id." in str(e.value)
    t, _ = client(answer(502, None), max_retries=0)  # the page of a proxy
    with pytest.raises(errors.TollError) as g:
        t.plans.get("1")
    assert g.value.status == 502 and "without an error object" in g.value.message
    t, _ = client(Answer(200, Headers(), b"<html>"))
    with pytest.raises(errors.InternalError) as h:
        t.plans.get("1")
    assert h.value.status == 502
    challenge = {"x402Version": 2, "accepts": [{"scheme": "svc:erc4337"}], "resource": {"url": "u"}}
    t, _ = client(answer(402, {**challenge, "code": "BCK.X402.0030", "message": "Pay."}))
    with pytest.raises(errors.PaymentRequiredError) as p:
        t.plans.get("1")
    assert p.value.payment_required and p.value.payment_required["accepts"]
    pending = {"code": errors.PENDING, "message": "m", "agentRequestId": "req_9"}
    t, _ = client(answer(503, pending), max_retries=0)
    with pytest.raises(errors.SettlementPendingError) as q:
        t.plans.order("1")
    assert q.value.agent_request_id == "req_9"


def test_missing_key_is_an_error_of_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOLL_API_KEY", raising=False)
    script = Script(answer(200, {"kinds": [], "extensions": [], "signers": {}}))
    t = Toll(transport=script)
    t.payments.supported()
    with pytest.raises(errors.MissingKeyError, match="page API keys"):
        t.plans.list().page()
    assert len(script.sent) == 1


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLL_API_KEY", "sandbox:env")
    monkeypatch.setenv("TOLL_URL", "https://pay.example.com/api/v1/")
    script = Script(*[answer(200, CLOCK, service_version="1.1", service_version_resolved_from="header")] * 3)
    t = Toll(transport=script)
    got = t.sandbox.clock()
    assert got.response and (got.response.version, got.response.version_resolved_from) == ("1.1", "header")
    t.with_options(api_version="1.0", headers={"x-extra": "1"}, timeout=3).sandbox.clock()
    t.with_options(api_version=None).sandbox.clock()
    first, second, third = script.sent
    assert first.url == "https://pay.example.com/api/v1/sandbox/clock"
    assert first.headers["Authorization"] == "Bearer sandbox:env" and first.headers["Service-Version"] == "1.1"
    assert second.headers["Service-Version"] == "1.0" and second.headers["x-extra"] == "1" and second.timeout == 3
    assert "Service-Version" not in third.headers
    for bad in ("ftp://x", "http://u:p@h", "http://h?q", "//h", "http://"):
        with pytest.raises(ValueError) as e:
            Toll(url=bad)
        assert "u:p" not in str(e.value)
    with pytest.raises(ValueError):
        Toll(api_key="k", headers={"x": "a\r\nb"}, transport=Script()).sandbox.clock()


def test_ids_stay_in_their_segment() -> None:
    for id in ("../keys", "a/b", "a?b", "..", ".", "a#b", "%2e%2e"):
        t, s = client(answer(404, {"code": "X", "message": "m"}))
        with pytest.raises(errors.TollError):
            t.plans.get(id)
        path = s.sent[0].url.split("/api/v1/protocol/plans/")[1]
        assert "/" not in path and "?" not in path and "#" not in path and path not in ("..", ".")


def test_secrets_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="toll")
    seen: list[toll.Attempt] = []
    made = {
        "accessToken": "SECRET1", "token": "SECRET1", "tokenFormat": "jwt", "permissionHash": "0x1",
        "planId": PLAN, "subscriberAddress": "0x1", "scheme": "s", "network": "n", "usedCredits": "0",
        "status": "Active", "createdAt": "2026-11-21T01:52:18.322Z", "expiresAt": "2026-11-21T01:52:18.322Z",
    }
    script = Script(answer(201, made))
    t = Toll(api_key="sandbox:SECRET2", transport=script, on_request=seen.append)
    got = t.tokens.create(PLAN)
    assert got.access_token == "SECRET1"
    shown = f"{got!r} {got.response!r} {t!r} {t._config!r} {script.sent[0]!r} {seen!r} {caplog.text}"
    assert "SECRET" not in shown and seen[0].status == 201
    page = {
        "orderId": "1",
        "result": {
            "checkoutLink": "https://pay/SECRET3", "checkoutUrl": "https://pay/SECRET3", "clientReferenceId": "1",
            "linkCreatedAt": 1, "linkExpiresAt": 2, "paymentStatus": "unpaid", "stripeCheckoutSessionId": "2",
        },
    }
    session = client(answer(201, page))[0].plans.checkout(PLAN)
    assert session.result.checkout_url == "https://pay/SECRET3" and "SECRET" not in repr(session)


def test_receipts() -> None:
    """A receipt is read from headers of any kind, whole or not at all."""
    good = {"success": True, "transaction": "0x1", "network": "eip155:1", "creditsRedeemed": "2"}

    def of(value: Any) -> str:
        return base64.b64encode(dumps(value)).decode()

    message = HTTPMessage()
    message["Payment-Response"] = of(good)
    kinds: list[Any] = [{"PAYMENT-RESPONSE": of(good)}, [("payment-response", of(good))], message]
    for headers in kinds:
        receipt = toll.read_receipt(headers)
        assert receipt and receipt.success and receipt.credits_redeemed == 2 and receipt.raw == good
    bad = [{**good, name: wrong} for name in ("success", "transaction", "network") for wrong in (5, None, [])]
    bad += [{**good, "creditsRedeemed": wrong} for wrong in ("-1", "", "9" * 79, [], True, Decimal("1.5"))]
    for text in [*map(of, bad), "", "!", of([]), of({**good, "more": "x" * (64 << 10)})]:
        assert toll.read_receipt({"payment-response": text}) is None, text
    assert toll.read_receipt({}) is None


def test_an_unreachable_service_is_named() -> None:
    with pytest.raises(errors.UnavailableError, match="The service at http://[^ ]+ did not respond"):
        client(TransportError("refused"), max_retries=0)[0].plans.get(PLAN)


def test_prices_without_a_receiver(svc: Service) -> None:
    """The service fills in the wallet of the workspace."""
    assert "receivers" not in builders.erc20_price(1, builders.USDC)
    with svc.client() as builder:
        plan = builder.plans.create(name="Own", price=builders.fiat_price(5_000_000), credits=builders.fixed_credits(10))
        assert builder.plans.get(plan.plan_id).price_config.receivers == (builder.wallet.get().address,)


def test_numbers_are_exact() -> None:
    big = 2**256 - 1
    assert loads(b'{"a":1000000000000000000001,"b":0.1}')["a"] == 10**21 + 1
    assert str(loads(b"0.1")) == "0.1" and not isinstance(loads(b"0.1"), float)
    assert dumps({"a": big}) == f'{{"a":{big}}}'.encode()
    for bad in (1.5, float("nan")):
        with pytest.raises(TypeError):
            dumps({"a": bad})
        with pytest.raises(TypeError):
            builders.native_price(bad, "0x" + "1" * 40)  # type: ignore[arg-type]
    t, _ = client()
    with pytest.raises(TypeError):
        t.plans.mint("1", "0x1", 1.0)  # type: ignore[arg-type]
    for text in (b'{"a":1,"a":2}', b"NaN", b"[" * 100000):
        with pytest.raises(ValueError):
            loads(text)
    with pytest.raises(Unreadable):
        SettleResponse.read({"success": True, "transaction": "", "network": "", "creditsRedeemed": "1.5"})


def test_deprecated_warns_once() -> None:
    made = answer(400, {"code": "X", "message": "m"})
    t, _ = client(made, made)
    _core._warned.clear()
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        for _ in range(2):
            with pytest.raises(errors.TollError):
                t.tokens.create(PLAN, spending_limit_cents=500)
    assert len(w) == 1 and "delegation_id" in str(w[0].message)


def test_lists_follow_cursors_and_stop() -> None:
    def page(ids: list[str], cursor: str | None) -> Answer:
        events = [
            {
                "id": i, "type": "plan.created", "sequence": 1, "data": {}, "createdAt": CLOCK["now"],
                "object": {"kind": "plan", "id": "1", "sequence": 1},
            }
            for i in ids
        ]
        return answer(200, {"events": events, "nextCursor": cursor, "total": 3})

    t, s = client(page(["a", "b"], "c1"), page(["c"], None))
    assert [e.id for e in t.events.list()] == ["a", "b", "c"]
    assert "cursor=c1" in s.sent[1].url and "cursor" not in s.sent[0].url
    t, s = client(page(["a"], "c1"), page(["b"], "c1"))
    with pytest.raises(errors.InternalError, match="same page of a list"):
        list(t.events.list())
    t, s = client(page(["a"], "c1"))
    first = t.events.list(page_size=1).page()
    assert first.next_cursor == "c1" and first.total == 3 and "pageSize=1" in s.sent[0].url


def test_builders_against_those_of_go() -> None:
    """interop/builders_test.go makes calls with random arguments and what they return in Go."""
    if "TOLL_BUILDERS" not in os.environ:
        pytest.skip("TOLL_BUILDERS is not set: run the suite through go test ./interop")
    b = builders
    make: dict[str, Callable[..., Any]] = {
        "free": b.free_price, "fiat": b.fiat_price, "crypto": b.crypto_price,
        "native": b.native_price, "erc20": b.erc20_price, "eurc": b.eurc_price,
        "payg": b.pay_as_you_go_price, "fixed": b.fixed_credits, "dynamic": b.dynamic_credits,
        "credits payg": b.pay_as_you_go_credits, "expirable": b.expirable_credits,
        "non-expirable": b.non_expirable_credits,
        "mirror": lambda *a: b.with_onchain_mirror(b.dynamic_credits(*a[:3]), a[3] == "true"),
        "redemption": lambda *a: b.with_redemption_type(b.dynamic_credits(*a[:3]), a[3]),
    }
    cases = json.loads(Path(os.environ["TOLL_BUILDERS"]).read_text())
    assert {c["make"] for c in cases} == set(make)
    for case in cases:
        args = [int(a) if a.isdigit() else a for a in case["args"] or ()]
        if case["want"] is None:
            with pytest.raises(ValueError):
                make[case["make"]](*args)
        else:
            assert make[case["make"]](*args) == case["want"], case
    for wrong in ("0x1", "", "0x" + "g" * 40, b.ZERO):
        with pytest.raises(ValueError):
            b.native_price(1, wrong)


DELIVERIES = json.loads((Path(__file__).parents[3] / "testdata" / "conformance" / "tables" / "deliveries.json").read_text())


@pytest.mark.parametrize("case", DELIVERIES["cases"], ids=lambda c: c["name"])
def test_deliveries_of_both_kinds(case: Any) -> None:
    """The cases that the verifiers of all languages share."""
    headers = {n.replace("{{Header}}", "Service"): v for n, v in case["headers"].items()}
    read = lambda: toll.read_delivery(  # noqa: E731
        headers, case["body"].encode(), *case["secrets"], now=lambda: DELIVERIES["now"]
    )
    if case["good"]:
        assert read().id == "evt_1"
    else:
        with pytest.raises(toll.WebhookError):
            read()


def signed(secret: str, id: str, at: int, body: bytes) -> str:
    import hashlib
    import hmac

    return "v1=" + hmac.new(secret.encode(), f"{id}.{at}.".encode() + body, hashlib.sha256).hexdigest()


def test_webhooks() -> None:
    event = {
        "id": "e", "type": "plan.created", "sequence": 3, "data": {}, "createdAt": CLOCK["now"],
        "object": {"kind": "plan", "id": "1", "sequence": 1},
    }
    body, now = dumps(event), 1_800_000_000
    def headers(at: int, sig: str) -> dict[str, str]:
        return {"service-webhook-id": "w", "Service-Webhook-Timestamp": str(at), "service-webhook-signature": sig}

    def read(h: Any, b: bytes = body, *secrets: str) -> Any:
        return toll.read_delivery(h, b, *(secrets or ("s1",)), now=lambda: now)

    assert read(headers(now, signed("s1", "w", now, body))).sequence == 3
    both = signed("s2", "w", now, body) + ", " + signed("s1", "w", now, body)
    assert read(headers(now, both), body, "s2").id == "e"
    pairs = [
        ("service-webhook-id", "w"), ("service-webhook-timestamp", str(now)),
        ("service-webhook-signature", signed("s2", "w", now, body)),
        ("service-webhook-signature", signed("s1", "w", now, body)),
    ]
    assert read(pairs).id == "e" and read(pairs, body, "s2").id == "e"
    message = HTTPMessage()  # as in http.server
    for name, value in pairs:
        message.add_header(name, value)
    assert read(message).id == "e" and read(message, body, "s2").id == "e"
    old = now - 301
    for h, b, s in [
        (headers(now, signed("s1", "w", now, body)), body + b" ", "s1"),
        (headers(now, signed("s1", "x", now, body)), body, "s1"),
        (headers(old, signed("s1", "w", old, body)), body, "s1"),
        (headers(now, ""), body, "s1"),
        (headers(now, signed("", "w", now, body)), body, ""),
        ({}, body, "s1"),
        (headers(now, signed("s1", "w", now, b"[]")), b"[]", "s1"),
        (headers(now, signed("s1", "w", now, b"x" * (1 << 20) + b"x")), b"x" * (1 << 20) + b"x", "s1"),
    ]:
        with pytest.raises(errors.WebhookError):
            toll.read_delivery(h, b, s, now=lambda: now)


def test_webhooks_of_the_shared_table() -> None:
    """Deliveries of the past, of the future and of earlier secrets, as in the clients of all languages."""
    tables = Path(__file__).parents[3] / "testdata" / "conformance" / "tables"
    table = json.loads((tables / "delivery-times.json").read_text())
    assert len(table["cases"]) > 20
    for c in table["cases"]:
        headers = [("Service-Webhook-Id", c["id"]), ("Service-Webhook-Timestamp", c["timestamp"])]
        headers += [("Service-Webhook-Signature", s) for s in c["signatures"]]
        args = headers, c["body"].encode(), *table["secrets"]
        if c["good"]:
            assert toll.read_delivery(*args, now=lambda: table["now"]).id == c["id"], c["name"]
        else:
            with pytest.raises(errors.WebhookError):
                toll.read_delivery(*args, now=lambda: table["now"])
                pytest.fail(c["name"])


def test_event_parser_takes_any_parts() -> None:
    text = b": hello\nid: 1\ndata: {\"a\":\ndata: 1}\n\nid: 2\r\ndata:x\r\n\r\nid: 3\n\n"
    for n in range(1, len(text)):
        p, got = Parser(), []
        for i in range(0, len(text), n):
            got += list(p.feed(text[i : i + n]))
        assert got == [("1", b'{"a":\n1}'), ("2", b"x")]
    with pytest.raises(Unreadable):
        list(Parser().feed(b"data: " + b"x" * (5 << 20)))


def test_resources(svc: Service) -> None:
    """What a builder and a subscriber do, on a real service."""
    with svc.client() as builder, svc.client("subscriber") as buyer:
        plan_id, agent_id = svc.plan_id, svc.agent_id
        plan = builder.plans.get(plan_id)
        assert plan.metadata.main.name == "Test plan" and plan.registry.price.amounts == (1_000_000,)
        assert plan.registry.credits.max_amount == 10 and "registry" in plan.raw
        assert agent_id in [a.agent_id for a in builder.agents.list()]
        assert plan_id in [p.plan_id for p in builder.agents.plans(agent_id)]
        assert agent_id in [a.agent_id for a in builder.plans.agents(plan_id)]
        before = buyer.plans.balance(plan_id).balance
        builder.plans.mint(plan_id, svc.key("subscriber").address, 20)
        assert buyer.plans.balance(plan_id).balance == before + 20
        assert builder.plans.balance(plan_id, svc.key("subscriber").address).balance == before + 20
        token = buyer.tokens.create(plan_id, agent_id=agent_id, redemption_limit=20, expiration=600)
        asks = required(plan_id, agent_id)
        verdict = builder.payments.verify(asks, token.access_token, max_amount=3, hold=True)
        assert verdict.is_valid and verdict.extra and verdict.extra.held_amount == 3
        id = verdict.agent_request_id
        assert id and builder.payments.settlement(id).status == "held"
        receipt = builder.payments.settle(asks, token.access_token, agent_request_id=id, max_amount=2)
        again = builder.payments.settle(asks, token.access_token, agent_request_id=id, max_amount=2)
        assert receipt.success and receipt.credits_redeemed == 2
        assert receipt.response and again.response and receipt.response.body == again.response.body
        assert builder.payments.settlement_by_transaction(receipt.transaction).status == "settled"
        held = builder.payments.verify(asks, token.access_token, hold=True)
        assert held.agent_request_id
        released = builder.payments.release(held.agent_request_id)
        assert released.status == "released"
        bad = builder.payments.verify(asks, token.access_token, max_amount=10, agent_request_id=id)
        assert not bad.is_valid and bad.invalid_reason
        assert buyer.tokens.get(token.permission_hash).used_credits == 2
        assert [p.permission_hash for p in buyer.tokens.list(plan_id=plan_id)]
        buyer.tokens.revoke(token.permission_hash)
        with pytest.raises(errors.TollError) as e:
            buyer.tokens.revoke(token.permission_hash)
        assert e.value.code == "BCK.X402.0016"
        made = buyer.delegations.create(
            provider="erc4337", spending_limit_cents=500, duration_secs=3600, currency="usdc"
        )
        assert buyer.delegations.get(made.delegation_id).spending_limit_cents == 500
        assert buyer.delegations.revoke(made.delegation_id).success
        assert [m.type for m in buyer.payment_methods.list()] == ["crypto_wallet"]
        assert buyer.credits.holdings().page().items[0].plan_id == plan_id
        assert builder.credits.subscribers(plan_id).page().items
        builder.plans.update(plan_id, metadata={"description": "Changed"})
        version = builder.plans.get(plan_id).version
        with pytest.raises(errors.TollError) as f:
            builder.plans.update(plan_id, metadata={"description": "x"}, if_match=version + 7)
        assert f.value.code == "BCK.PROTOCOL.0910"
        key = builder.keys.create(name="ci", rights=["read"])
        assert key.key and builder.keys.get(key.id).name == "ci"
        assert builder.keys.revoke(key.id).status == "Revoked"
        assert builder.meta.versions().your_effective_version == "1.1"
        assert builder.with_options(api_version="1.0").meta.versions().your_effective_version == "1.0"
        assert builder.meta.info().environment == "sandbox" and builder.meta.ready().status == "ready"
        assert builder.wallet.get().address == svc.key("builder").address
        same = builder.with_options(idempotency_key="once")
        one = same.plans.create(name="i", price=builders.free_price(), credits=builders.fixed_credits(1))
        two = same.plans.create(name="i", price=builders.free_price(), credits=builders.fixed_credits(1))
        assert one.plan_id == two.plan_id
        assert two.response and two.response.headers["idempotency-replayed"] == "true"
        free = buyer.plans.order(one.plan_id)
        assert buyer.orders.wait(free.order_id).success
        assert builder.request("GET", "/health", key=False).json()["status"] == "ok"


#: Operations without a method: documents, keys, payments by toll.http, calls of the card processor, retired paths, and the list that
#: repeats listOrganizations for deployed clients.
#: toll.request reaches them.
WITHOUT = re.compile(
    r"read(DID|JWKS|Docs|ErrorDocs|OpenAPI)|buyPlan|signInToPlan|openStripePayment|receiveStripeEvent|retired.*|listMyMemberships"
)


class Recorder:
    """A transport that notes operations and answers none."""

    def __init__(self) -> None:
        document = json.loads((HERE.parents[1] / "docs" / "openapi.json").read_text())
        self.operations = [
            (method.upper(), re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path)), "{" in path, one["operationId"])
            for path, methods in document["paths"].items()
            for method, one in methods.items()
        ]
        self.operations.sort(key=lambda o: o[2])  # plain paths first
        self.called: set[str] = set()

    def stream(self, request: Request) -> Any:
        with pytest.raises(TransportError):
            self.send(request)
        raise _core.unreachable("http://toll.test", None)

    def send(self, request: Request) -> Answer:
        path = request.url.partition("//")[2].partition("/")[2].partition("?")[0]
        for method, pattern, _, operation in self.operations:
            if method == request.method and pattern.fullmatch("/" + path):
                self.called.add(operation)
                raise TransportError("noted")
        raise AssertionError(f"the document has no {request.method} /{path}")

    def close(self) -> None:
        pass


def arguments(method: Any, optional: bool) -> dict[str, Any]:
    """Returns values for the parameters of a method, by what their annotations say."""
    values: dict[str, Any] = {}
    for p in inspect.signature(method).parameters.values():
        if p.default is not p.empty and not optional:
            continue
        kind = str(p.annotation)
        values[p.name] = (
            {} if "Json" in kind else True if "bool" in kind else 7 if re.search("int|Number|float", kind)
            else datetime.now(timezone.utc) if "datetime" in kind else "x"
        )
        if "Sequence" in kind:
            values[p.name] = [values[p.name]]
    return values


def test_every_operation_has_a_method() -> None:
    """Methods call what the document has, and all of it. Those of AsyncToll are made of these."""
    recorder = Recorder()
    toll_ = Toll(api_key="k", transport=recorder, max_retries=0)
    for name, resource in vars(toll_).items():
        if name.startswith("_"):
            continue
        methods = inspect.getmembers(resource, inspect.ismethod)
        for method in [m for n, m in methods if not n.startswith("_")]:
            for optional in (False, True):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    with pytest.raises(errors.UnavailableError):
                        got = method(**arguments(method, optional))
                        got.page() if isinstance(got, toll.Pages) else next(iter(got))
    all_ = {operation for *_, operation in recorder.operations}
    lacking = {o for o in all_ - recorder.called if not WITHOUT.fullmatch(o)}
    assert not lacking, f"no method calls {sorted(lacking)}"
    assert not {o for o in recorder.called if WITHOUT.fullmatch(o)}


def test_requests(svc: Service) -> None:
    """A request is listed as held and then as settled, for both sides, and its record has its life."""
    with svc.client() as builder, svc.client("requester") as buyer:
        token = svc.token(20, account="requester")
        asks = required(svc.plan_id, svc.agent_id)
        id = builder.payments.verify(asks, token, max_amount=3, hold=True).agent_request_id
        other = builder.payments.verify(asks, token, max_amount=2, hold=True).agent_request_id
        assert id and other
        filters: dict[str, Any] = {"plan_id": svc.plan_id, "subscriber": svc.key("requester").address}
        held = builder.payments.requests(status="held", **filters)
        assert {r.agent_request_id for r in held} == {id, other}
        assert [*builder.payments.requests(**filters)] == []
        builder.payments.settle(asks, token, agent_request_id=id, max_amount=2)
        builder.payments.release(other)
        # Both have ended: the list follows the ledger by a moment.
        ended: dict[str, Any] = {}
        for _ in range(200):
            ended = {r.agent_request_id: r for r in builder.payments.requests(page_size=1, **filters)}
            if len(ended) == 2:
                break
            time.sleep(0.05)
        assert {i: r.status for i, r in ended.items()} == {id: "settled", other: "released"}
        assert ended[id].credits_redeemed == 2 and ended[other].credits_redeemed is None
        mine = buyer.payments.requests(role="buyer", status="settled", agent_id=svc.agent_id)
        assert [r.agent_request_id for r in mine] == [id]
        now = datetime.now(timezone.utc)
        assert [*buyer.payments.requests(role="buyer", until=now - timedelta(days=1))] == []
        record = buyer.payments.request(id)
        assert [(s.status, s.credits) for s in record.steps] == [("held", 3), ("settled", 2)]
        assert record.steps[0].at <= record.steps[1].at and record.transaction == ended[id].transaction
        with svc.client("stranger") as stranger, pytest.raises(errors.BusinessError) as e:
            stranger.payments.request(id)
        assert e.value.status == 404


def test_registers_once(svc: Service) -> None:
    """The same nonce and content is the same agent and plan; other content is an error."""
    with svc.client() as builder:
        made = [
            builder.agents.create_with_plan(
                name="Again", endpoints=[{"POST": "https://again.example.com/ask"}], plan_name="Again",
                price=builders.free_price(), credits=builders.fixed_credits(10), nonce=nonce,
            )
            for nonce in (77, 77, 78)
        ]
        assert made[0].agent_id == made[1].agent_id != made[2].agent_id
        assert made[0].plan_id == made[1].plan_id != made[2].plan_id
        with pytest.raises(errors.BusinessError) as e:
            builder.agents.create_with_plan(
                name="Other", endpoints=[], plan_name="Again", price=builders.free_price(),
                credits=builders.fixed_credits(10), nonce=77,
            )
        assert e.value.code == "BCK.PROTOCOL.0906"


def test_more_of_a_builder(svc: Service) -> None:
    """The catalogue, signed offers, calls of a key and a pretended agent."""
    with svc.client() as builder:
        made = builder.agents.create_with_plan(
            name="Weather of tomorrow", endpoints=[{"POST": "https://weather.example.com/tomorrow"}],
            plan_name="Weather", price=builders.free_price(), credits=builders.fixed_credits(10),
        )
        found = builder.payments.search_resources("weather tomorrow").resources
        assert [r.resource for r in found] == ["https://weather.example.com/tomorrow"]
        assert found[0].resource in [r.resource for r in builder.payments.resources(type="http", limit=100).items]
        asks = required(made.plan_id, made.agent_id)
        owner = svc.key("builder").address
        asks["accepts"][0].update(amount="1", asset="svc:credits", payTo=owner, maxTimeoutSeconds=60)
        (offer,) = builder.payments.sign_offers(asks).offers
        assert offer.format == "jws" and offer.accept_index == 0
        key = svc.key("builder").id
        assert builder.keys.calls(key).calls[0].operation == "signOffers"
        builder.payments.requests().page()
        assert builder.keys.calls(key).calls[0].operation == "listRequests"
        pretended = builder.agents.start_simulation(agent_name="Ask")
        end = builder.agents.finish_simulation(pretended.agent_request_id, margin_percent=Decimal("2.5"))
        assert pretended.agent_name == "Ask" and end.success and end.credits_to_redeem == 2


def required(plan_id: str, agent_id: str) -> dict[str, Any]:
    extra = {"version": "1", "agentId": agent_id, "httpVerb": "POST"}
    entry = {"scheme": "svc:erc4337", "network": "eip155:84532", "planId": plan_id, "extra": extra}
    return {"x402Version": 2, "resource": {"url": "/ask"}, "accepts": [entry], "extensions": {}}


@pytest.mark.parametrize("make", [HTTPXTransport, ThreadTransport])
def test_async_client(svc: Service, make: Callable[[], Any]) -> None:
    async def work() -> None:
        async with svc.async_client(transport=make()) as t:
            plans = [p.plan_id async for p in t.plans.list()]
            assert svc.plan_id in plans
            page = await t.plans.list(page_size=1).page()
            assert len(page.items) == 1
            got = await asyncio.gather(*[t.plans.get(svc.plan_id) for _ in range(40)])
            assert {g.plan_id for g in got} == {svc.plan_id}
            with pytest.raises(errors.BusinessError):
                await t.plans.get("17")

    asyncio.run(work())


@pytest.mark.parametrize("make", [HTTPXTransport, ThreadTransport])
def test_events_stream_async(svc: Service, make: Callable[[], Any]) -> None:
    async def work() -> None:
        async with svc.async_client(transport=make()) as t:
            newest = (await t.events.list(page_size=1).page()).items
            after = newest[0].id if newest else None

            async def first() -> str:
                async for e in t.events.stream(after=after):
                    return e.type
                return ""

            waiting = asyncio.ensure_future(first())
            await asyncio.sleep(0.2)
            await t.plans.create(
                name="e", price=builders.free_price(), credits=builders.fixed_credits(1)
            )
            assert await asyncio.wait_for(waiting, 20) == "plan.created"

    asyncio.run(work())


def test_events_stream_resumes_after_a_crash() -> None:
    with Service() as svc, svc.client(max_retries=0) as t:
        assert svc.plan_id
        got: list[toll.Record] = []
        seen = threading.Event()

        def follow() -> None:
            with svc.client() as own:
                for e in own.events.stream(after=before):
                    got.append(e)
                    if len(got) == 1:
                        seen.set()
                    if len(got) == 3:
                        return

        before = t.events.list(page_size=1).page().items[0].id
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        make = dict(price=builders.free_price(), credits=builders.fixed_credits(1))
        ids = [t.plans.create(name="1", **make).plan_id]
        assert seen.wait(30)
        svc.kill()
        svc.start()
        for n in ("2", "3"):
            ids.append(t.plans.create(name=n, **make).plan_id)
        thread.join(60)
        assert [e.object.id for e in got] == ids  # type: ignore[attr-defined]


def test_time_out_bounds_a_dripping_answer() -> None:
    import socket

    def serve(server: socket.socket) -> None:
        conn, _ = server.accept()
        with conn:
            conn.recv(4096)
            try:
                for c in "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n" + "x" * 99:
                    conn.sendall(c.encode())
                    time.sleep(0.05)
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        began = time.monotonic()
        with pytest.raises(TransportError):
            HTTPTransport().send(Request("GET", url, {}, None, 0.5))
        assert time.monotonic() - began < 2


def test_answers_are_bounded() -> None:
    import socket

    def serve(server: socket.socket, head: bytes) -> None:
        conn, _ = server.accept()
        with conn:
            conn.recv(4096)
            try:
                conn.sendall(head)
                while True:
                    conn.sendall(b"x" * 65536)
            except OSError:
                pass

    for head in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: "):
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=serve, args=(server, head), daemon=True).start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}/"
            with pytest.raises(TransportError):
                HTTPTransport(max_answer=1 << 20).send(Request("GET", url, {}, None, 10))


def test_sources_fit_the_floor() -> None:
    """Every file parses as Python 3.10, and the package imports the standard library only."""
    allowed = set(sys.stdlib_module_names) | {"toll", "__future__"}
    lazy = {"httpx", "requests"}
    found = [*(HERE / "src").rglob("*.py")]
    assert len(found) > 15
    for path in [*found, *(HERE / "tests").rglob("*.py"), *(HERE / "scripts").rglob("*.py")]:
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 10))
    for path in found:
        tree = ast.parse(path.read_text())
        top = {n for n in tree.body}
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name.split(".")[0] for a in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [(node.module or "").split(".")[0]]
            for name in names:
                assert name in allowed or (name in lazy and node not in top), (path, name)


def test_generated_files_are_current() -> None:
    subprocess.run([sys.executable, str(HERE / "scripts" / "generate.py"), "--check"], check=True)


def test_mypy() -> None:
    done = subprocess.run(["mypy"], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_docstrings() -> None:
    """Every public name says what it does."""
    for path in (HERE / "src").rglob("*.py"):
        if path.name in ("_models.py", "_resources_async.py"):
            continue
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        for node in tree.body:
            public = getattr(node, "name", "_")
            if public.startswith("_"):
                continue
            assert ast.get_docstring(node), f"{path.name}: {public}"  # type: ignore[arg-type]
            for inner in getattr(node, "body", []):
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    if not inner.name.startswith("_") and path.name in ("_resources.py", "client.py"):
                        assert ast.get_docstring(inner), f"{path.name}: {public}.{inner.name}"


