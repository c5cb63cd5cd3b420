"""Requests that pay: each adapter against a paid server, its limits, and servers that lie."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Iterator

import httpx
import pytest
import requests
import apps
from apps import CONTENT, Front
from toll import http as tollhttp
from toll.http import AsyncHTTPXPayer, Budget, HTTPXPayer, Limits, PaymentError  # type: ignore[attr-defined]
from toll.http import RequestsPayer, check, paying_opener  # type: ignore[attr-defined]
from toll.testing import Service


@pytest.fixture(scope="module")
def seller(svc: Service) -> Front:
    svc.mint(500)
    return apps.start("starlette", svc)


def budget(front_port: int, **limits: Any) -> Budget:
    given = {"credits_per_call": 5, "credits": 100, **limits}
    return Budget(Limits(hosts=[f"127.0.0.1:{front_port}"], **given))


def fetch_urllib(svc: Service, b: Budget, url: str, data: bytes, **more: Any) -> tuple[int, bytes]:
    opener = paying_opener(svc.client("subscriber"), b, **more)
    try:
        with opener.open(urllib.request.Request(url, data, method="POST"), timeout=20) as res:
            return res.status, res.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def fetch_requests(svc: Service, b: Budget, url: str, data: bytes, **more: Any) -> tuple[int, bytes]:
    with requests.Session() as s:
        s.mount("http://", RequestsPayer(svc.client("subscriber"), b, **more))
        res = s.post(url, data=data, timeout=20)
        return res.status_code, res.content


def fetch_httpx(svc: Service, b: Budget, url: str, data: bytes, **more: Any) -> tuple[int, bytes]:
    with httpx.Client(transport=HTTPXPayer(svc.client("subscriber"), b, **more), timeout=20) as c:
        res = c.post(url, content=data)
        return res.status_code, res.content


def fetch_async(svc: Service, b: Budget, url: str, data: bytes, **more: Any) -> tuple[int, bytes]:
    async def work() -> tuple[int, bytes]:
        async with svc.async_client("subscriber") as toll:
            transport = AsyncHTTPXPayer(toll, b, **more)
            async with httpx.AsyncClient(transport=transport, timeout=20) as c:
                res = await c.post(url, content=data)
                return res.status_code, res.content

    return asyncio.run(work())


@pytest.fixture(params=[fetch_urllib, fetch_requests, fetch_httpx, fetch_async])
def fetch(request: Any) -> Any:
    return request.param


def settings(svc: Service, front: Front) -> dict[str, Any]:
    return {"plans": [svc.plan_id], "hosts": [f"127.0.0.1:{front.port}"]}


def test_pays_once(svc: Service, seller: Front, fetch: Any) -> None:
    seller.reset()
    had = svc.balance()
    b = budget(seller.port)
    url = f"http://127.0.0.1:{seller.port}/ask"
    assert fetch(svc, b, url, b"{}", **settings(svc, seller)) == (200, CONTENT.encode())
    assert svc.balance() == had - 2 and b.spent == 2 and seller.state.runs == 1
    (p,) = b.payments
    assert (p.state, p.spent, p.most, p.path, p.plan_id) == ("paid", 2, 2, "/ask", svc.plan_id)
    assert p.transaction.startswith("0x") and "eyJ" not in repr(p)


def test_a_price_that_turns_out_less(svc: Service, seller: Front, fetch: Any) -> None:
    b = budget(seller.port)
    url = f"http://127.0.0.1:{seller.port}/priced?price=3"
    assert fetch(svc, b, url, b"x", **settings(svc, seller)) == (200, b"x")
    assert b.payments[0].most == 5 and b.payments[0].spent == 3 and b.spent == 3


def test_refused_work_costs_nothing(svc: Service, seller: Front, fetch: Any) -> None:
    had = svc.balance()
    b = budget(seller.port)
    url = f"http://127.0.0.1:{seller.port}/ask?do=404"
    status, _ = fetch(svc, b, url, b"x", **settings(svc, seller))
    assert status == 404 and b.payments[0].state == "refused" and b.spent == 0
    assert svc.balance() == had and svc.held() == 0


def test_limits(svc: Service, seller: Front, fetch: Any) -> None:
    url = f"http://127.0.0.1:{seller.port}/ask"
    seller.reset()
    for limits, more, why in [
        (Limits(), {}, "not in the list of allowed hosts"),
        (Limits(hosts=["127.0.0.1"], credits_per_call=5, credits=9), {}, "not in the list of allowed hosts"),
        (Limits(hosts=[f"127.0.0.1:{seller.port}"], credits_per_call=1, credits=9), {}, "limit for one request is 1"),
        (Limits(hosts=[f"127.0.0.1:{seller.port}"], credits_per_call=5, credits=1), {}, "only 1 of 1 remain"),
        (Limits(hosts=[f"127.0.0.1:{seller.port}"], credits_per_call=5, credits=9, credits_per_day=1), {}, "24 hours"),
        (Limits(hosts=[f"127.0.0.1:{seller.port}"], credits_per_call=5, credits=9), {"plans": ["17"]}, "not in the list of allowed plans"),
        (Limits(hosts=[f"127.0.0.1:{seller.port}"], credits_per_call=5, credits=9), {"hosts": []}, "cannot verify"),
        (Limits(hosts=[f"127.0.0.1:{seller.port}"], credits_per_call=5, credits=9), {"agent": "17"}, "only agent 17"),
    ]:
        b = Budget(limits)
        with pytest.raises(PaymentError, match=why) as e:
            fetch(svc, b, url, b"x", **{**settings(svc, seller), **more})
        assert not e.value.sent and b.spent == 0
    assert seller.state.runs == 0


class Liar(BaseHTTPRequestHandler):
    """A server that asks for what it likes, and takes payments without an answer."""

    challenge: dict[str, Any] = {}
    paid: str = "close"
    seen: list[str] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        token = self.headers.get("payment-signature")
        if token and self.paid == "close":
            self.seen.append(token)
            self.connection.close()
            return
        if token and self.paid == "redirect":
            self.seen.append(token)
            self.send_response(302)
            self.send_header("location", f"http://127.0.0.1:{self.server.server_address[1]}/next")
            self.end_headers()
            return
        body = json.dumps(self.challenge).encode()
        self.send_response(402)
        self.send_header("payment-required", base64.b64encode(body).decode())
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.seen.append("GET " + str(self.headers.get("payment-signature")))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def liar() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    Liar.seen = []
    Liar.paid = "close"
    yield server.server_address[1]
    server.shutdown()


def challenge(svc: Service, url: str, **more: Any) -> dict[str, Any]:
    entry = {
        "scheme": "svc:erc4337", "network": "eip155:84532", "planId": svc.plan_id, "amount": "2",
        "extra": {"version": "1", "planId": svc.plan_id, "agentId": svc.agent_id}, **more,
    }
    return {"x402Version": 2, "resource": {"url": url}, "accepts": [entry], "extensions": {}}


def test_a_lost_answer_is_not_repeated(svc: Service, liar: int, fetch: Any) -> None:
    url = f"http://127.0.0.1:{liar}/ask"
    Liar.challenge = challenge(svc, url)
    b = budget(liar)
    with pytest.raises(PaymentError) as e:
        fetch(svc, b, url, b"x", plans=[svc.plan_id], hosts=[f"127.0.0.1:{liar}"])
    assert e.value.sent and len(Liar.seen) == 1
    assert b.payments[0].state == "unknown" and b.spent == 2  # it counts until it is known
    check(svc.client("subscriber"), b)
    assert b.payments[0].state == "refused" and b.spent == 0


def test_liars_get_nothing(svc: Service, liar: int, fetch: Any, seller: Front) -> None:
    url = f"http://127.0.0.1:{liar}/ask"
    with svc.client() as t:
        there = t.agents.create(
            name="elsewhere", endpoints=[{"POST": "https://agent.example.com/ask"}], plans=[svc.plan_id]
        ).agent_id
    for asks, why in [
        (challenge(svc, f"http://127.0.0.1:{seller.port}/ask"), "not at"),
        (challenge(svc, "https://agent.example.com/ask"), "not at"),
        (challenge(svc, url, extra={"planId": svc.plan_id, "agentId": there}), "registered at agent.example.com"),
        (challenge(svc, url, amount="0"), "0 credits"),
        (challenge(svc, url, amount="-1"), "not a whole number"),
        (challenge(svc, url, amount=2), "not a whole number"),
        (challenge(svc, url, scheme="exact"), "requires a wallet"),
        (challenge(svc, url, scheme="other"), "cannot be paid with credits"),
        (challenge(svc, url, network="eip155:1"), "uses scheme"),
        (challenge(svc, url, planId="1", extra={}), ""),
        ({**challenge(svc, url), "accepts": []}, "no way to pay"),
        ({**challenge(svc, url), "accepts": ["x", 1, None]}, "not a JSON object"),
    ]:
        Liar.challenge = asks
        b = budget(liar)
        with pytest.raises(PaymentError, match=why) as e:
            fetch(svc, b, url, b"x", plans=[svc.plan_id, "1"], hosts=[f"127.0.0.1:{liar}"])
        assert not e.value.sent and Liar.seen == [] and b.spent == 0, asks
    # What is not x402 version 2 is an answer like any other.
    for other in ({"x402Version": 1, "accepts": []}, {}, {"x402Version": 2}):
        Liar.challenge = other
        assert fetch(svc, budget(liar), url, b"x")[0] == 402


def test_a_redirect_gets_no_payment(svc: Service, liar: int) -> None:
    url = f"http://127.0.0.1:{liar}/ask"
    Liar.challenge, Liar.paid = challenge(svc, url), "redirect"
    for fetch in (fetch_urllib, fetch_requests):
        Liar.seen = []
        fetch(svc, budget(liar), url, b"x", plans=[svc.plan_id], hosts=[f"127.0.0.1:{liar}"])
        assert len(Liar.seen) == 2 and Liar.seen[1] == "GET None"


def test_registered_agents_need_no_word(svc: Service) -> None:
    """The agent of a challenge has an endpoint at the server that asks."""
    front = apps.start("starlette", svc)
    with svc.client() as t:
        agent = t.agents.create(
            name="here", endpoints=[{"POST": f"http://127.0.0.1:{front.port}/ask"}], plans=[svc.plan_id]
        ).agent_id
    front.gate.seller.agent = agent
    b = budget(front.port)
    url = f"http://127.0.0.1:{front.port}/ask"
    assert fetch_httpx(svc, b, url, b"x") == (200, CONTENT.encode())


def test_budget_is_exact_under_threads() -> None:
    import datetime
    from concurrent.futures import ThreadPoolExecutor

    b = Budget(Limits(hosts=["h"], credits_per_call=3, credits=10))

    def take(i: int) -> bool:
        now = datetime.datetime.now(datetime.timezone.utc)
        try:
            b.take(tollhttp.Payment(str(i), now, "h", "GET", "/", "1", 3))
        except tollhttp.LimitReached:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(100))) == 3
    assert b.spent == 9
