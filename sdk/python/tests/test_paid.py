"""The middleware in each framework: I16 to I18, F07 to F09, and T85 to T103 as far as they touch one."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import io
import json
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import apps
from apps import CONTENT, NAMES, Front, ask, exchange, parse, request_text
from toll import AsyncToll, Toll, asgi, wsgi
from toll._sale import challenge_error
from toll.asgi import paid
from toll.testing import Service

FRONTS: dict[str, Front] = {}


@pytest.fixture(scope="module")
def tokens(svc: Service) -> dict[str, str]:
    """One subscriber for each front, with credits for all tests."""
    return {n: svc.token(2000, account=f"buyer {n}") for n in NAMES}


@pytest.fixture(params=NAMES)
def front(request: Any, svc: Service) -> Iterator[Front]:
    name = request.param
    if name not in FRONTS:
        FRONTS[name] = apps.start(name, svc)
    FRONTS[name].reset()
    yield FRONTS[name]


@pytest.fixture
def token(front: Front, tokens: dict[str, str]) -> str:
    return tokens[front.name]


def balance(svc: Service, front: Front) -> tuple[int, int]:
    account = f"buyer {front.name}"
    return svc.balance(account), svc.held(account)


def eventually(check: Callable[[], bool], what: str = "") -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end, what or "it did not happen"
        time.sleep(0.02)


def has(front: Front, text: str) -> None:
    eventually(lambda: text in front.state.events, f"no {text} in {front.state.events}")


def index(front: Front, text: str) -> int:
    return front.state.events.index(text)


def test_I16_settled_before_the_first_byte(svc: Service, front: Front, token: str) -> None:
    before, _ = balance(svc, front)
    got = ask(front, token)
    assert (got.status, got.body) == (200, CONTENT.encode()), got
    receipt = got.decoded("payment-response")
    assert receipt["success"] and receipt["creditsRedeemed"] == "2"
    assert index(front, "verify 200") < index(front, "run") < index(front, "settle 200")
    assert index(front, "settle 200") < index(front, "start 200") < index(front, "byte")
    with svc.client() as t:
        stored = t.payments.settlement(receipt["extra"]["agentRequestId"])
        assert stored.status == "settled" and stored.raw["receipt"] == receipt
    assert balance(svc, front) == (before - 2, 0)
    # The answer is private, has one receipt, and the handler never saw the token.
    assert got.headers["cache-control"] == "private, max-age=60"
    assert "payment-signature" in got.headers["vary"] and "," not in got.headers["payment-response"]
    assert "payment-signature" not in front.state.seen
    assert not any(token in v for v in front.state.seen.values())


def test_the_error_of_a_402_continues_with_an_address() -> None:
    """The table that the middlewares of all languages share."""
    table = Path(__file__).parents[3] / "testdata" / "conformance" / "tables" / "challenges.json"
    cases = json.loads(table.read_text())["cases"]
    assert len(cases) > 10
    for c in cases:
        assert challenge_error(c["begin"], c["sentence"]) == c["error"], c["name"]


def test_402_says_what_it_costs(
    svc: Service, front: Front, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    for bad in (None, "", "x", token[:-4] + "AAAA", "e30=", "a.b.c"):
        got = ask(front, bad)
        assert got.status == 402, (bad, got)
        asks = got.decoded("payment-required")
        entry = asks["accepts"][0]
        assert (entry["amount"], entry["planId"]) == ("2", svc.plan_id)
        assert asks["resource"]["url"] == f"http://127.0.0.1:{front.port}/ask"
        body = json.loads(got.body)
        assert body["accepts"] == asks["accepts"] and body["code"].startswith("BCK.")
        assert got.headers["cache-control"] == "no-store"
    assert front.state.runs == 0
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR and r.name != "toll.paid"]
    assert not errors, errors


def test_I17_errors_of_a_handler_are_free(svc: Service, front: Front, token: str) -> None:
    before = balance(svc, front)
    got = ask(front, token, target="/ask?do=404")
    assert got.status == 404 and "payment-response" not in got.headers
    has(front, "release 200")
    assert "settle 200" not in front.state.events and balance(svc, front) == before


def test_I17_a_handler_that_raises_is_free(svc: Service, front: Front, token: str) -> None:
    before = balance(svc, front)
    got = ask(front, token, target="/ask?do=raise")
    assert got.status in (500, 0) and CONTENT.encode() not in got.body
    has(front, "release 200")
    assert "settle 200" not in front.state.events and balance(svc, front) == before


DOWN = "the service is down"


@pytest.mark.parametrize(
    "name, before, after, status, burned, settles",
    [
        ("before verify", lambda o, n: DOWN if o == "verify" else None, None, 503, 0, 0),
        (
            "between", lambda o, n: DOWN if o in ("settle", "release") else None, None, 503, 0, 3,
        ),
        ("answers of settle lost", None, lambda o, n: DOWN if o == "settle" else None, 503, 2, 3),
        (
            "answer of settle lost once", None,
            lambda o, n: DOWN if o == "settle" and n == 1 else None, 200, 2, 2,
        ),
        ("back for the third try", lambda o, n: DOWN if o == "settle" and n < 3 else None, None, 200, 2, 3),
    ],
)
def test_F08_facilitator_down(
    svc: Service, front: Front, token: str, name: str, before: Any, after: Any, status: int,
    burned: int, settles: int,
) -> None:
    had, _ = balance(svc, front)
    ask(front, None)  # terms are known
    front.reset()
    front.fault.before = before or front.fault.before
    front.fault.after = after or front.fault.after
    got = ask(front, token)
    assert got.status == status, got
    assert front.fault.counts.get("settle", 0) == settles
    front.reset()
    now, held = balance(svc, front)
    assert now == had - burned
    if status == 200:
        assert got.body == CONTENT.encode() and got.decoded("payment-response")["success"]
        return
    assert CONTENT.encode() not in got.body and got.headers["retry-after"]
    if settles == 0:
        assert front.state.runs == 0 and held == 0
    else:
        receipt = got.decoded("payment-response")
        assert receipt["errorReason"] == "settlement_pending"
        id = receipt["extra"]["agentRequestId"]
        with svc.client() as t:
            assert t.payments.settlement(id).status == ("settled" if burned else "held")
            if not burned:
                t.payments.release(id)


def test_F08_terms_unknown(svc: Service, front: Front, token: str) -> None:
    front.gate.seller._terms.clear()
    front.fault.before = lambda o, n: DOWN
    got = ask(front, token)
    assert got.status == 503 and front.state.runs == 0 and json.loads(got.body)["retryable"]
    assert DOWN not in got.body.decode()


def test_settlement_refused(svc: Service, front: Front, token: str) -> None:
    """The hold was given back behind the gate, so that settle is refused."""

    front.fault.before = give_back(svc, front)
    got = ask(front, token)
    assert got.status == 402 and CONTENT.encode() not in got.body
    assert not got.decoded("payment-response")["success"]
    assert got.decoded("payment-required")["accepts"]


def give_back(svc: Service, front: Front) -> Callable[[str, int], None]:
    """Releases the hold before the gate settles, so that the settlement is refused."""

    def before(op: str, n: int) -> None:
        if op == "settle":
            with svc.client() as t:
                t.payments.release(front.fault.request_id)

    return before


def test_prices(svc: Service, front: Front, token: str) -> None:
    had, _ = balance(svc, front)
    got = ask(front, token, target="/priced?price=3", body=b"hello")
    assert got.status == 200 and got.body == b"hello"
    assert got.decoded("payment-response")["creditsRedeemed"] == "3"
    got = ask(front, token, target="/priced?price=9", body=b"hello")  # beyond what is held
    assert got.decoded("payment-response")["creditsRedeemed"] == "5"
    got = ask(front, token, target="/priced?price=0", body=b"hello")
    assert got.status == 200 and got.decoded("payment-response")["creditsRedeemed"] == "0"
    front.reset()
    got = ask(front, token, target="/priced", body=b"price fails")
    assert got.status == 500 and b"price fails" not in got.body
    has(front, "release 200")
    assert balance(svc, front) == (had - 8, 0)


def test_T103_stream_of_a_known_price_is_settled_first_and_outlasts_its_hold(
    svc: Service, front: Front, token: str
) -> None:
    had, _ = balance(svc, front)
    got = ask(front, token, target="/stream?n=60")
    assert got.status == 200 and got.body.count(CONTENT.encode()) == 60
    receipt = got.decoded("payment-response")
    assert receipt["success"] and receipt["creditsRedeemed"] == "2"
    assert got.headers["cache-control"].startswith("private") and got.headers["x-accel-buffering"] == "no"
    assert index(front, "settle 200") < index(front, "start 200") < index(front, "byte")
    assert "renew" not in front.fault.counts or front.fault.counts["renew"] <= 1
    assert balance(svc, front) == (had - 2, 0)


def test_T103_stream_whose_price_is_known_at_its_end_renews_its_hold(
    svc: Service, front: Front, token: str
) -> None:
    had, _ = balance(svc, front)
    got = ask(front, token, target="/metered?n=90")
    assert got.status == 200 and got.body.count(CONTENT.encode()) == 90
    id = got.headers["service-request-id"]
    assert "payment-response" not in got.headers and got.headers["x-accel-buffering"] == "no"
    has(front, "settle 200")
    assert index(front, "verify 200") < index(front, "byte") < index(front, "settle 200")
    assert front.fault.counts["renew"] >= 2
    with svc.client() as t:
        assert t.payments.settlement(id).status == "settled"
    assert balance(svc, front) == (had - 2, 0)


def test_an_answer_that_is_slow_renews_its_hold(svc: Service, front: Front, token: str) -> None:
    short = apps.start(front.name, svc, hold_secs=1)
    had, _ = balance(svc, front)
    got: list[Any] = []
    asking = threading.Thread(target=lambda: got.append(ask(short, token, target="/ask?do=hang")))
    asking.start()
    time.sleep(2.5)
    short.state.resume.set()
    asking.join(20)
    assert got[0].status == 200 and short.fault.counts["renew"] >= 2
    assert balance(svc, front) == (had - 2, 0)


def test_F09_a_stream_of_a_known_price_that_is_not_settled_does_not_begin(
    svc: Service, front: Front, token: str
) -> None:
    told: list[Any] = []
    front.gate.seller.on_unsettled = told.append
    front.fault.before = give_back(svc, front)
    got = ask(front, token, target="/stream")
    assert got.status == 402 and CONTENT.encode() not in got.body
    front.reset()
    front.fault.before = lambda o, n: DOWN if o == "settle" else None
    got = ask(front, token, target="/stream")
    assert got.status == 503 and CONTENT.encode() not in got.body and not told
    id = got.decoded("payment-response")["extra"]["agentRequestId"]
    with svc.client() as t:
        t.payments.release(id)


def cut(front: Front, token: str, target: str, after: bytes, method: str = "POST") -> None:
    """Hangs up once some bytes of the answer have come, or at once for none."""
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as s:
        s.sendall(request_text(method, target, [("payment-signature", token)], b""))
        seen = b""
        while after and after not in seen:
            part = s.recv(4096)
            assert part, seen
            seen += part
        if not after:
            assert front.state.entered.wait(20)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_T102_stream_cut_by_the_client_is_settled(svc: Service, front: Front, token: str) -> None:
    had, _ = balance(svc, front)
    cut(front, token, "/stream?n=30", b"data:")
    has(front, "settle 200")
    assert "release 200" not in front.state.events and balance(svc, front) == (had - 2, 0)


def test_T103_stream_whose_hold_cannot_be_renewed_is_cut(svc: Service, front: Front, token: str) -> None:
    had, _ = balance(svc, front)
    front.fault.before = lambda o, n: DOWN if o == "renew" else None
    began = time.monotonic()
    raw = exchange(front.port, request_text("POST", "/metered?n=100000", [("payment-signature", token)]))
    assert 1 < time.monotonic() - began < 10
    assert CONTENT.encode() in raw and not raw.endswith(b"0\r\n\r\n")
    assert b'event: error\ndata: {"message":"The hold for this stream has expired."}\n\n' in raw
    has(front, "settle 200")
    assert balance(svc, front) == (had - 2, 0)


def test_F09_stream_is_settled_late(svc: Service, front: Front, token: str) -> None:
    had, _ = balance(svc, front)
    told: list[Any] = []
    front.gate.seller.on_unsettled = told.append
    front.fault.before = lambda o, n: DOWN if o == "settle" and n < 2 else None
    got = ask(front, token, target="/metered")
    assert got.status == 200 and got.body.count(CONTENT.encode()) == 3
    eventually(lambda: len(told) == 1)
    assert told[0].credits == 2 and not told[0].final and told[0].size > 0
    has(front, "settle 200")
    eventually(lambda: len(front.gate.queue) == 0)
    assert balance(svc, front) == (had - 2, 0) and len(told) == 1


def test_F09_drain_settles_what_waits(svc: Service, front: Front, token: str) -> None:
    had, _ = balance(svc, front)
    queue, away = front.gate.queue, [True]
    front.fault.before = lambda o, n: DOWN if o == "settle" and away[0] else None
    assert ask(front, token, target="/metered").status == 200
    eventually(lambda: len(queue) == 1)
    assert not queue.drain(0.1)
    away[0] = False
    assert queue.drain(20) and len(queue) == 0
    queue._hurry = False
    assert balance(svc, front) == (had - 2, 0)


def test_F09_refused_stream_raises_the_alarm(svc: Service, front: Front, token: str) -> None:
    told: list[Any] = []
    front.gate.seller.on_unsettled = told.append
    front.fault.before = give_back(svc, front)
    got = ask(front, token, target="/metered")
    assert got.status == 200
    eventually(lambda: len(told) == 1)
    assert told[0].final and told[0].agent_request_id == got.headers["service-request-id"]
    assert len(front.gate.queue) == 0


def test_T102_caller_leaves_a_post_that_is_settled(svc: Service, front: Front, token: str) -> None:
    had, _ = balance(svc, front)
    cut(front, token, "/ask?do=hang", b"")
    time.sleep(0.1)
    front.state.resume.set()
    has(front, "settle 200")
    assert "release 200" not in front.state.events and balance(svc, front) == (had - 2, 0)


def test_T102_caller_leaves_a_get_that_is_free(svc: Service, front: Front, token: str) -> None:
    if not front.is_async:
        return  # WSGI does not tell of callers who leave: documented in toll.wsgi
    had, _ = balance(svc, front)
    cut(front, token, "/ask?do=hang", b"", "GET")
    if front.name == "starlette":
        assert front.state.finished.wait(20)  # its task was cancelled
    else:
        time.sleep(0.2)
        front.state.resume.set()  # threads cannot be
    has(front, "release 200")
    assert "settle 200" not in front.state.events and balance(svc, front) == (had, 0)


def test_work_for_callers_who_left_ends_with_the_hold(svc: Service, tokens: dict[str, str]) -> None:
    front = apps.start("starlette", svc, hold_secs=1)
    had = svc.balance("buyer starlette")
    cut(front, tokens["starlette"], "/ask?do=hang", b"")
    has(front, "release 200")
    assert front.state.finished.is_set() and svc.balance("buyer starlette") == had
    assert "settle 200" not in front.state.events


def test_T85_terms_changed_while_open(svc: Service, front: Front, token: str) -> None:
    """A request is settled at the terms of its hold, and the next one is refused before it runs."""
    had, _ = balance(svc, front)
    got: list[apps.Got] = []
    asking = threading.Thread(target=lambda: got.append(ask(front, token, target="/ask?do=hang")))
    asking.start()
    assert front.state.entered.wait(20)
    version = svc.client().plans.get(svc.plan_id).version
    try:
        with svc.client() as t:
            t.agents.unpublish(svc.agent_id)
            t.plans.unpublish(svc.plan_id)
            t.plans.update(svc.plan_id, metadata={"description": f"after version {version}"})
        front.state.resume.set()
        asking.join(20)
        assert got[0].status == 200 and got[0].decoded("payment-response")["creditsRedeemed"] == "2"
        front.reset()
        # Once the records of the service are a second old, what is not listed is not payable.
        eventually(lambda: ask(front, token).status == 402)
        front.reset()
        assert ask(front, token).status == 402 and front.state.runs == 0
    finally:
        with svc.client() as t:
            t.agents.publish(svc.agent_id)
            t.plans.publish(svc.plan_id)
        eventually(lambda: ask(front, token).status == 200)
    # What the payment says of older terms counts for nothing: the server's own do.
    jws = base64.b64encode(
        json.dumps(
            {
                "x402Version": 2, "payload": {"signature": token},
                "accepted": {"scheme": "svc:erc4337", "network": "eip155:84532", "amount": "1", "planId": svc.plan_id},
            }
        ).encode()
    ).decode()
    got[0] = ask(front, jws)
    if got[0].status == 200:
        assert got[0].decoded("payment-response")["creditsRedeemed"] == "2"
    else:
        assert got[0].status == 402 and CONTENT.encode() not in got[0].body
    assert svc.held(f"buyer {front.name}") == 0 and balance(svc, front)[0] < had


def test_T86_flood(svc: Service, front: Front, token: str) -> None:
    """What has no payment is refused without the service, and paid calls go on meanwhile."""
    ask(front, None)  # terms are known
    front.reset()
    refused: list[int] = []

    def flood() -> None:
        for bad in (None, "x", "e30=", "a.b", "{}", "eyJ4NDAyVmVyc2lvbiI6MX0=") * 5:
            refused.append(ask(front, bad).status)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for t in threads:
        t.start()
    paid_ = [ask(front, token).status for _ in range(3)]
    for t in threads:
        t.join()
    assert paid_ == [200] * 3 and set(refused) == {402} and len(refused) == 120
    assert front.fault.counts == {"verify": 3, "settle": 3} and front.state.runs == 3
    # A body of 2 MB, behind a payment and without one.
    for given in (None, token):
        got = ask(front, given, body=b"x" * (2 << 20))
        assert got.status in (413, 0) and CONTENT.encode() not in got.body
    assert front.fault.counts == {"verify": 3, "settle": 3} and front.state.runs == 3


def test_T87_deliveries_pass(front: Front) -> None:
    """A free route behind the middleware gets deliveries of webhooks byte by byte, with both signatures."""
    event = {
        "id": "evt_1", "type": "plan.created", "sequence": 3, "data": {"text": "\u00e9"},
        "createdAt": "2026-11-21T01:52:18.322Z", "object": {"kind": "plan", "id": "1", "sequence": 1},
    }
    body, now = json.dumps(event, indent=1).encode(), int(time.time())

    def sent(*secrets: str, at: int = now, of: bytes = body) -> str:
        text = f"d1.{at}.".encode() + of
        signatures = ["v1=" + hmac.new(s.encode(), text, hashlib.sha256).hexdigest() for s in secrets]
        headers = [("service-webhook-id", "d1"), ("service-webhook-timestamp", str(at))]
        headers.append(("service-webhook-signature", ", ".join(signatures)))
        got = ask(front, None, target="/hook", body=body, more=headers)
        assert got.status == 200, got
        return got.body.decode()

    before, present = apps.SECRETS
    assert [sent(before), sent(present), sent("other", present)] == ["evt_1"] * 3
    bad = [sent("other"), sent(), sent(present, at=now - 400), sent(present, of=body + b" ")]
    assert bad == ["refused"] * 4


def test_T88_one_reading_of_a_message(front: Front, token: str) -> None:
    """What two servers could read in two ways is refused, and the text behind it is not a request."""
    second = request_text("POST", "/ask", [("payment-signature", token)])
    chunked = "transfer-encoding: chunked"
    for lines, body in [
        (["content-length: 4", chunked], "0\r\n\r\n"),
        (["content-length: 4", "content-length: 5"], "0\r\n\r\n"),
        (["transfer-encoding: xchunked"], "0\r\n\r\n"),
        ([chunked, "transfer-encoding: identity"], "0\r\n\r\n"),
        ([chunked], "1\na\r\n0\r\n\r\n"),
        ([chunked], "1;" + "x" * (1 << 20) + "\r\na\r\n0\r\n\r\n"),
        (["content-length: +4"], "0\r\n\r\n"),
        (["content-length : 4"], "0\r\n\r\n"),
        (["x-a: b", " folded: c"], "0\r\n\r\n"),
    ]:
        head = "\r\n".join(["POST /ask HTTP/1.1", "host: agent.test", *lines, "", ""])
        raw = exchange(front.port, (head + body).encode() + second, 2.0)
        assert re.match(rb"HTTP/1\.[01] 4\d\d |\Z", raw), (lines, raw[:200])
        assert raw.count(b"HTTP/1.") <= 2 and CONTENT.encode() not in raw, (lines, raw[:200])
        assert front.state.runs == 0 and "verify" not in front.fault.counts, lines


def test_T89_two_credentials(svc: Service, front: Front, token: str) -> None:
    other = svc.token(account="other buyer")
    payload = base64.b64encode(
        json.dumps({"x402Version": 2, "payload": {"signature": token}}).encode()
    ).decode()
    sig = "payment-signature"
    cases: list[tuple[str, list[tuple[str, str]], tuple[int, ...], int]] = [
        ("twice", [(sig, token), (sig, other)], (400, 402), 0),
        ("twice, equal", [(sig, token), ("PAYMENT-SIGNATURE", token)], (400, 402), 0),
        ("comma", [(sig, f"{token}, {other}")], (402, 431), 0),
        ("with version 1", [(sig, token), ("x-payment", "e30=")], (400,), 0),
        ("version 1 alone", [("x-payment", "e30=")], (402,), 0),
        ("bearer not listed", [("authorization", f"Bearer {token}")], (402,), 0),
        ("bearer of others", [(sig, token), ("authorization", "Bearer b3RoZXI")], (200,), 1),
        ("other rendering", [(sig, payload)], (200,), 1),
        ("duplicate members", [(sig, base64.b64encode(b'{"x402Version":2,"x402Version":2}').decode())], (402,), 0),
    ]
    if front.is_async:  # WSGI and CGI read "_" as "-"
        cases.append(("underscore", [("payment_signature", token)], (402,), 0))
    for name, headers, wanted, runs in cases:
        front.reset()
        got = ask(front, None, more=headers)
        assert got.status in wanted and front.state.runs == runs, (name, got)
        if name == "bearer of others":
            assert front.state.seen["authorization"] == "Bearer b3RoZXI"


def test_T14_a_token_in_the_wrong_place(front: Front, token: str) -> None:
    for target, more in [
        (f"/ask?token={token}", []),
        ("/ask", [("cookie", f"payment-signature={token}; a=b")]),
        ("/ask", [("referer", f"http://a/?{token}")]),
    ]:
        assert ask(front, None, target=target, more=more).status == 402
    assert front.state.runs == 0
    # With a payment beside it, it does not get to the handler, and never through a URL.
    got = ask(front, token, more=[("cookie", f"x={token}; a=b"), ("x-other", f"Bearer {token}")])
    assert got.status == 200 and front.state.seen.get("cookie") == "a=b"
    assert "x-other" not in front.state.seen
    assert ask(front, token, target=f"/ask?t={token}").status == 400


def test_T90_internal_headers(front: Front, token: str) -> None:
    more = [
        ("settlement-overrides", '{"amount":"0"}'), ("payment-response", "e30="),
        ("x-http-method-override", "GET"), ("x-original-url", "/free"),
    ]
    got = ask(front, token, more=more)
    assert got.status == 200 and got.decoded("payment-response")["creditsRedeemed"] == "2"
    for name, _ in more:
        assert name not in front.state.seen
    free = ask(front, token, "GET", "/free", b"")
    assert free.status == 200 and free.body == b"free None"  # free routes do not see tokens


def test_T90_stripped_headers_name_by_name(front: Front, token: str) -> None:
    tables = Path(__file__).parents[3] / "testdata" / "conformance" / "tables"
    for name, value in json.loads((tables / "headers.json").read_text())["request"].items():
        for spelling in (name, name.upper(), name.replace("-", "_")):
            front.reset()
            got = ask(front, token, more=[(spelling, value), ("x-kept", "1")])
            assert got.status == 200, (spelling, got)
            assert front.state.seen["x-kept"] == "1", spelling
            assert name not in {n.lower().replace("_", "-") for n in front.state.seen}, spelling


def test_T91_sizes(front: Front, token: str) -> None:
    big = "x" * (17 << 10)
    for wanted, target, more, body in [
        ((431,), "/ask", [("x-big", big)], b""),
        ((431,), "/ask", [(f"x-{i}", "1") for i in range(201)], b""),
        ((414,), "/ask?" + "y" * (8 << 10), [], b""),
        ((413,), "/ask", [], b"z" * ((1 << 16) + 1)),
    ]:
        got = ask(front, token, target=target, more=more, body=body)
        assert got.status in (*wanted, 400, 431, 0), (wanted, got.status)
        assert CONTENT.encode() not in got.body
    got = ask(front, "x" * (8 << 10) + "y")
    assert got.status in (431, 400)
    assert front.state.runs == 0


def test_T91_endless_body(front: Front, token: str) -> None:
    if front.name not in ("starlette", "django asgi"):
        return  # the others read no body here, and wsgiref has no chunked ones
    head = request_text("POST", "/ask", [("payment-signature", token), ("transfer-encoding", "chunked")])
    head = head.replace(b"content-length: 0\r\n", b"")
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as s:
        s.settimeout(20)
        sent = 0
        try:
            s.sendall(head)
            while sent < 64 << 20:
                s.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
                sent += 0x4000
        except OSError:
            pass
        try:
            got = parse(s.recv(65536))
        except (OSError, ValueError):
            got = apps.Got(413, {}, b"")
    assert CONTENT.encode() not in got.body
    assert sent < 32 << 20 and got.status == 413, (sent, got.status)


def test_T92_paywall_by_path(front: Front) -> None:
    for path in (
        "//ask", "/./ask", "/ask/", "/ASK", "/%61sk", "/ask%2f", "/ask%00", "/ask;a", "/ask%0a",
        "/x/..%2fask", "/free/../ask", "/ask%3f", "/%EF%BD%81sk",
    ):
        got = ask(front, None, target=path)
        assert CONTENT.encode() not in got.body and got.status != 200, (path, got)
    assert front.state.runs == 0


def test_T93_verbs(front: Front, token: str) -> None:
    for verb in ("HEAD", "OPTIONS", "TRACE", "post", "PUT", "FOO"):
        got = ask(front, None, verb, "/ask", b"")
        assert CONTENT.encode() not in got.body, verb
        if verb == "HEAD":
            assert got.headers.get("content-length") != str(len(CONTENT))
    got = ask(front, token, more=[("upgrade", "websocket"), ("connection", "upgrade")])
    assert got.status in (400, 405) and front.state.runs == 0
    for verb in ("POST",):
        got = ask(front, None, verb, "/ask?_method=GET", b"", [("x-http-method-override", "GET")])
        assert got.status == 402
    assert front.state.runs == 0


def test_T94_forwarding_headers(front: Front) -> None:
    more = [
        ("x-forwarded-host", "evil.test"), ("x-forwarded-proto", "https"),
        ("forwarded", "host=evil.test"), ("x-forwarded-prefix", "/evil"),
    ]
    got = ask(front, None, more=more)
    assert got.status == 402 and b"evil" not in got.body
    assert got.decoded("payment-required")["resource"]["url"].startswith("http://127.0.0.1:")


def test_T95_response_splitting(front: Front) -> None:
    for id, kept in [("good-1", True), ("a b", False), ("x" * 129, False), ("\xe9", False)]:
        got = ask(front, None, more=[("x-correlation-id", id)])
        assert (got.headers["x-correlation-id"] == id) == kept
        assert json.loads(got.body)["correlationId"] == got.headers["x-correlation-id"]


@pytest.mark.parametrize("value", ["a\r\nset-cookie: b=c", "a\nb", "a\x00", "a\x7f"])
def test_T95_headers_of_a_handler(svc: Service, tokens: dict[str, str], value: str) -> None:
    """A header that would split the answer does not leave, and the work that made it is free."""
    token = tokens["starlette"]
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"x-said", value.encode("latin-1"))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": CONTENT.encode()})

    async def work() -> None:
        client = svc.async_client()
        gate = asgi.Middleware(app, client, plan=svc.plan_id, price=asgi.Price(2))

        async def send(m: Any) -> None:
            sent.append(m)

        async def receive() -> Any:
            await asyncio.sleep(60)

        headers = [(b"payment-signature", token.encode())]
        scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": headers}
        with pytest.raises(ValueError, match="x-said"):
            await gate(scope, receive, send)
        await client.aclose()

    def plain(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("x-said", value)])
        return [CONTENT.encode()]

    had = svc.balance("buyer starlette")
    asyncio.run(work())
    with svc.client() as client:
        gate = wsgi.Middleware(plain, client, plan=svc.plan_id, price=asgi.Price(2))
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/x", "HTTP_PAYMENT_SIGNATURE": token, "wsgi.input": io.BytesIO()}
        with pytest.raises(ValueError, match="x-said"):
            gate(environ, lambda *said: sent.append(said))
    assert sent == [] and (svc.balance("buyer starlette"), svc.held("buyer starlette")) == (had, 0)


def test_T96_json_differentials(front: Front, token: str) -> None:
    """A payment that two parsers could read in two ways is refused before the handler."""
    jws = json.dumps(token)
    good = f'{{"x402Version":2,"payload":{{"signature":{jws}}}}}'
    assert ask(front, base64.b64encode(good.encode()).decode()).status == 200
    front.reset()
    for what, text in {
        "duplicate": f'{{"x402Version":1,"x402Version":2,"payload":{{"signature":{jws}}}}}'.encode(),
        "duplicate inside": f'{{"x402Version":2,"payload":{{"signature":"a.b.c","signature":{jws}}}}}'.encode(),
        "duplicate by an escape": f'{{"x402Version":2,"payload":{{"signature":{jws},"s\\u0069gnature":{jws}}}}}'.encode(),
        "other case": f'{{"x402Version":2,"payload":{{"Signature":{jws}}}}}'.encode(),
        "long s": f'{{"x402Version":2,"payload":{{"\u017fignature":{jws}}}}}'.encode(),
        "zero behind a name": f'{{"x402Version":2,"payload":{{"signature\\u0000":{jws}}}}}'.encode(),
        "byte order mark": b"\xef\xbb\xbf" + good.encode(),
        "UTF-16": good.encode("utf-16-le"),
        "bad UTF-8": good.encode()[:-1] + b',"x":"\xff"}',
        "lone surrogate": f'{{"x402Version":2,"x":"\\ud800","payload":{{"signature":{jws}}}}}'.encode(),
        "NaN": good.encode()[:-1] + b',"x":NaN}',
        "trailing": good.encode() + b"{}",
        "depth 33": good.encode()[:-1] + b',"x":' + b"[" * 33 + b"]" * 33 + b"}",
        "digits": good.encode()[:-1] + b',"x":' + b"9" * 4400 + b"}",
        "version as text": good.encode().replace(b":2,", b':"2",'),
        "version with a fraction": good.encode().replace(b":2,", b":2.0,"),
    }.items():
        got = ask(front, base64.b64encode(text).decode())
        assert got.status in (402, 431) and front.state.runs == 0, (what, got)
        assert "verify" not in front.fault.counts, what  # not even the service is asked


def test_T97_media_types(front: Front, token: str) -> None:
    """A payment is read out of headers alone, whatever a body is said to be."""
    payment = f"payment-signature={token}".encode()
    for kind, more, body in [
        ("application/x-www-form-urlencoded", [], payment),
        ("text/plain", [], payment),
        ("application/json; charset=utf-16", [], json.dumps({"payment-signature": token}).encode("utf-16")),
        ("application/json", [("content-encoding", "gzip")], gzip.compress(payment)),
    ]:
        got = ask(front, None, body=body, more=[("content-type", kind), *more])
        assert got.status == 402 and got.headers["content-type"] == "application/json", (kind, got)
        assert got.headers["x-content-type-options"] == "nosniff"
    assert front.state.runs == 0


def test_T98_version_header(front: Front, token: str) -> None:
    for v in ("1.0", "9.9", "", "x" * 1000):
        got = ask(front, token, more=[("service-version", v)])
        assert got.status == 200 and got.decoded("payment-response")["creditsRedeemed"] == "2"


def test_T99_shared_cache(front: Front, token: str) -> None:
    """A conforming cache in front keeps nothing that was paid for."""
    stored: dict[str, apps.Got] = {}

    def through(target: str, given: str | None = None) -> apps.Got:
        if target not in stored:
            got = ask(front, given, "GET", target, b"")
            words = got.headers.get("cache-control", "")
            if "no-store" in words or "private" in words:
                return got
            stored[target] = got
        return stored[target]

    for target in ("/ask", "/ask?do=404", "/stream?n=2"):
        assert through(target, token).status in (200, 404)
        got = through(target)
        assert got.status == 402 and CONTENT.encode() not in got.body, (target, got)
    assert not stored
    for words in ("public", "s-maxage"):
        assert words not in ask(front, token).headers["cache-control"]


def test_T100_ranges_and_conditions(front: Front, token: str) -> None:
    more = [("range", "bytes=0-3"), ("if-none-match", "*"), ("if-modified-since", "Thu, 01 Jan 2032 00:00:00 GMT")]
    assert ask(front, None, more=more).status == 402
    got = ask(front, token, more=more)
    assert got.status in (200, 206) and got.decoded("payment-response")["creditsRedeemed"] == "2"
    assert "if-none-match" not in front.state.seen


def test_T101_http2(front: Front, token: str) -> None:
    """The preface of HTTP/2 and an upgrade to it change nothing: one request, one answer, one price."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 1000
    raw = exchange(front.port, preface, 2.0)
    assert CONTENT.encode() not in raw and b" 200 " not in raw and front.state.runs == 0
    upgrade = [("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")]
    assert ask(front, None, more=upgrade).status == 402
    got = ask(front, token, more=upgrade)
    assert got.status == 200 and got.decoded("payment-response")["creditsRedeemed"] == "2"
    assert not {"upgrade", "http2-settings"} & set(front.state.seen)


def test_T101_resets(svc: Service, tokens: dict[str, str]) -> None:
    """Streams of HTTP/2 that are reset leave no hold and no task, and lengths of a peer are not believed."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass

    async def work() -> None:
        client = svc.async_client()
        gate = asgi.Middleware(app, client, plan=svc.plan_id, price=asgi.Price(1), max_body=64)
        headers = [(b"payment-signature", tokens["starlette"].encode()), (b"content-length", b"1")]
        scope = {"type": "http", "http_version": "2", "path": "/x", "query_string": b"", "headers": headers}

        async def one(method: str, messages: list[Any]) -> list[Any]:
            sent: list[Any] = []

            async def receive() -> Any:
                if messages:
                    return messages.pop(0)
                await asyncio.sleep(60)

            async def send(m: Any) -> None:
                sent.append(m)

            await gate({**scope, "method": method}, receive, send)
            return sent

        whole = {"type": "http.request", "body": b"", "more_body": False}
        reset = [whole, {"type": "http.disconnect"}]
        had = svc.balance("buyer starlette")
        tasks = len(asyncio.all_tasks())
        for _ in range(4):
            for sent in await asyncio.gather(*[one("GET", [*reset]) for _ in range(25)]):
                assert not any(CONTENT.encode() in m.get("body", b"") for m in sent)
        assert (svc.balance("buyer starlette"), svc.held("buyer starlette")) == (had, 0)
        assert len(asyncio.all_tasks()) == tasks
        sent = await one("POST", [{"type": "http.request", "body": b"x" * 65, "more_body": True}])
        assert sent[0]["status"] == 413 and svc.held("buyer starlette") == 0
        await client.aclose()

    asyncio.run(work())


def test_T119_token_for_another_resource(svc: Service, front: Front) -> None:
    other = svc.token(10, account=f"buyer {front.name}", resource="https://other.example.com")
    assert ask(front, other).status == 402 and front.state.runs == 0
    mine = svc.token(account=f"buyer {front.name}", resource=f"http://127.0.0.1:{front.port}")
    assert ask(front, mine).status == 200


def test_I18_many_at_once(svc: Service, front: Front) -> None:
    """A token with 10 credits pays at most five answers of two, whatever happens at once."""
    account = f"few {front.name}"
    token = svc.token(10, account=account)
    got: list[apps.Got] = []
    threads = [threading.Thread(target=lambda: got.append(ask(front, token))) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    served = [g for g in got if g.status == 200]
    assert len(served) == 5 and front.state.runs == 5
    assert {g.status for g in got} <= {200, 402}
    assert svc.balance(account) == 0 and svc.held(account) == 0
    ids = {g.decoded("payment-response")["transaction"] for g in served}
    assert len(ids) == 5


def test_without_middleware_nothing_is_given_away() -> None:
    @paid(credits=2)
    async def handler() -> str:
        return CONTENT

    @paid(credits=2)
    def other() -> str:
        return CONTENT

    with pytest.raises(asgi.NotBehindMiddleware):
        asyncio.run(handler())
    with pytest.raises(asgi.NotBehindMiddleware):
        other()
    with pytest.raises(TypeError):
        paid(credits=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        paid(hold_secs=901)


def test_middleware_refuses_bad_settings() -> None:
    async def app(*_: Any) -> None: ...

    good: dict[str, Any] = dict(plan="1")
    for bad in (
        {"hold_secs": 0}, {"expired_status": 200}, {"caller_gone": "x"}, {"public_url": "agent.test"},
    ):
        with pytest.raises(ValueError):
            asgi.Middleware(app, AsyncToll("k"), **{**good, **bad})
    with pytest.raises(ValueError, match="TOLL_API_KEY is not set"):
        asgi.Middleware(app, AsyncToll(""), **good)
    with pytest.raises(ValueError, match="TOLL_API_KEY is not set"):
        wsgi.Middleware(lambda e, s: [], Toll(" "), **good)
    with pytest.raises(TypeError):
        asgi.Middleware(app, Toll("k"), **good)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        wsgi.Middleware(lambda e, s: [], AsyncToll("k"), **good)  # type: ignore[arg-type]


def test_price_of_a_whole_application(svc: Service, tokens: dict[str, str]) -> None:
    """Everything is paid, and what passes HTTP by is refused."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": CONTENT.encode()})

    async def work() -> None:
        client = svc.async_client()
        gate = asgi.Middleware(app, client, plan=svc.plan_id, price=asgi.Price(3))
        for headers, status in [([], 402), ([(b"payment-signature", tokens["starlette"].encode())], 200)]:
            sent: list[Any] = []

            async def send(m: Any) -> None:
                sent.append(m)

            async def receive() -> Any:
                if not received:
                    received.append(1)
                    return {"type": "http.request", "body": b"", "more_body": False}
                await asyncio.sleep(60)

            received: list[int] = []
            scope = {"type": "http", "method": "GET", "path": "/x", "raw_path": b"/x", "query_string": b"", "headers": headers}
            await gate(scope, receive, send)
            assert sent[0]["status"] == status
            assert (CONTENT.encode() in sent[1]["body"]) == (status == 200)
        closed: list[Any] = []

        async def close(m: Any) -> None:
            closed.append(m)

        async def connect() -> Any:
            return {"type": "websocket.connect"}

        await gate({"type": "websocket", "path": "/x", "headers": []}, connect, close)
        assert closed[0]["type"] == "websocket.close"
        await client.aclose()

    asyncio.run(work())


def test_F07_the_server_is_cancelled(svc: Service, tokens: dict[str, str]) -> None:
    """A server that gives up while the handler works has the hold given back."""
    reached = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        await asyncio.sleep(60)

    async def work() -> None:
        client = svc.async_client()
        gate = asgi.Middleware(app, client, plan=svc.plan_id, price=asgi.Price(2))

        async def send(m: Any) -> None: ...

        async def receive() -> Any:
            await asyncio.sleep(60)

        headers = [(b"payment-signature", tokens["fastapi"].encode())]
        scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": headers}
        had, held = svc.balance("buyer fastapi"), svc.held("buyer fastapi")
        task = asyncio.ensure_future(gate(scope, receive, send))
        await reached.wait()
        assert svc.held("buyer fastapi") == held + 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (svc.balance("buyer fastapi"), svc.held("buyer fastapi")) == (had, held)
        await client.aclose()

    asyncio.run(work())


@pytest.mark.parametrize(
    "moment, status",
    [
        ("after verify", "held"), ("in the handler", "held"), ("before settle", "held"),
        ("after settle", "settled"), ("never", "settled"),
    ],
)
def test_F07_agent_dies(svc: Service, moment: str, status: str) -> None:
    """Paid content comes with its settlement only, and the look-up by id tells the outcome."""
    account = f"widow {moment}"
    token = svc.token(10, account=account)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    env = {**os.environ, "TOLL_API_KEY": svc.key("builder").key, "TOLL_URL": svc.url}
    env.update(TOLL_PLAN=svc.plan_id, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "killed.py")
    agent = subprocess.Popen([sys.executable, script, str(port), moment], env=env)
    try:
        def listens() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return True
            except OSError:
                return False

        eventually(listens)
        raw = exchange(port, request_text("POST", "/ask", [("payment-signature", token)], b"{}"))
        with svc.client(account) as t:
            (permission,) = t.tokens.list()
            used = t.tokens.get(permission.permission_hash).used_credits
        assert used == (2 if status == "settled" else 0)
        assert svc.held(account) == (0 if status == "settled" else 2)
        assert (CONTENT.encode() in raw) == (moment == "never")
        if moment != "never":
            assert raw == b"" and agent.wait(20) == -9
    finally:
        agent.kill()
        agent.wait()
