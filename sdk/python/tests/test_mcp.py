"""Prices on items of an MCP server, which is an ASGI application of a few lines here."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
from typing import Any

import httpx
import pytest
from apps import CONTENT, AsyncFault, serve_asgi
from toll import AsyncToll
from toll._wire import loads
from toll.http import AsyncHTTPXPayer, Budget, HTTPXPayer, Limits, PaymentError, check  # type: ignore[attr-defined]
from toll.mcp import Middleware, Price, current_payment
from toll.testing import Service
from toll.transport import HTTPXTransport

RECEIPT = "x402/payment-response"


class Server:
    """Answers calls as JSON or as events, and what a test says."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.events = False
        self.result: Any = None
        self.headers: Any = None

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.headers = dict(scope["headers"])
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
            for m in ({"method": "notifications/x"}, {"id": 1, "result": {"c": CONTENT}}):
                data = json.dumps(m).encode()
                await send({"type": "http.response.body", "body": b"id: 7\r\ndata: " + data[:9], "more_body": True})
                await send({"type": "http.response.body", "body": data[9:] + b"\r\n\r\n", "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        body = (await receive())["body"]
        assert int(self.headers.get(b"content-length", len(body))) == len(body)
        call = loads(body)
        self.runs.append(call)
        if isinstance(call, dict) and call.get("method") == "tools/call" and call["params"]["name"] == "paid":
            assert current_payment().held == 3
        out = self.result or {"content": [{"type": "text", "text": CONTENT}], "structuredContent": {"x": 0}}
        if isinstance(out, Exception):
            raise out
        message = json.dumps({"jsonrpc": "2.0", "id": call.get("id"), "result": out}).encode()
        kind, text = b"application/json", message
        if self.events:
            kind = b"text/event-stream"
            text = b'id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\nid: 2\ndata: ' + message + b"\n\n"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": text})


class Scene:
    def __init__(self, svc: Service, **more: Any) -> None:
        self.server = Server()
        self.port, self.url = 0, ""
        self.events: list[str] = []
        self.fault = AsyncFault(self.events, HTTPXTransport())
        client = AsyncToll(svc.key("builder").key, svc.url, transport=self.fault)
        self.gate = Middleware(
            self.server.app, client, plan=svc.plan_id, agent=svc.agent_id, server_name="weather",
            tools={"paid": Price(3), "free": Price(0), "any": Price(lambda w: 4, max_credits=5)},
            resources={"file:///a": Price(2)}, prompts={"*": Price(1)}, **more,
        )

    async def post(self, call: Any, headers: Any = (), raw: bytes | None = None) -> tuple[int, bytes]:
        body = json.dumps(call).encode() if raw is None else raw
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(m: Any) -> None:
            if m["type"] == "http.response.body" and m.get("body"):
                self.events.append("byte")
            sent.append(m)

        lines = [(b"content-length", str(len(body)).encode()), *headers]
        await self.gate({"type": "http", "method": "POST", "path": "/mcp", "headers": lines}, receive, send)
        return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:])

    async def call(self, method: str, name: str, token: Any = None, headers: Any = ()) -> Any:
        member = "uri" if method == "resources/read" else "name"
        params: dict[str, Any] = {member: name, "arguments": {}, "_meta": {"keep": 1}}
        if token is not None:
            params["_meta"]["x402/payment"] = token
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, text = await self.post(message, headers)
        if text.startswith(b"{"):
            return loads(text)
        return loads(text.strip().split(b"data: ")[-1])


def run(work: Any) -> Any:
    return asyncio.run(work)


@pytest.fixture(scope="module")
def token(svc: Service) -> str:
    return svc.token(500, account="caller", token_format="x402")


@pytest.mark.parametrize("events", [False, True])
def test_a_paid_call(svc: Service, token: str, events: bool) -> None:
    async def work() -> None:
        s = Scene(svc)
        s.server.events = events
        had = svc.balance("caller")
        for offered in (json.loads(base64.b64decode(token)), token):
            s.events.clear()
            got = await s.call("tools/call", "paid", offered)
            result = got["result"]
            assert result["content"][0]["text"] == CONTENT
            meta = result["_meta"]
            assert meta[RECEIPT]["success"] and meta["service/credits"]["creditsRedeemed"] == "3"
            assert meta["service/credits"]["planId"] == svc.plan_id
            assert s.events.index("settle 200") < s.events.index("byte")
            seen = s.server.runs[-1]["params"]["_meta"]
            assert seen == {"keep": 1}  # the item does not see the payment
        assert svc.balance("caller") == had - 6 and svc.held("caller") == 0
        with svc.client() as t:
            id = meta[RECEIPT]["extra"]["agentRequestId"]
            assert t.payments.settlement(id).resource == "mcp://weather/tools/paid"

    run(work())


def test_refusals_are_in_band(svc: Service, token: str) -> None:
    async def work() -> None:
        s = Scene(svc)
        for bad in (None, "x", {"x402Version": 2}, {"x402Version": 1}, 7, "x" * 70000):
            got = await s.call("tools/call", "paid", bad)
            result = got["result"]
            assert result["isError"] and result["structuredContent"]["accepts"][0]["amount"] == "3"
            assert json.loads(result["content"][0]["text"])["accepts"]
            got = await s.call("resources/read", "file:///a", bad)
            assert got["error"]["code"] == -32003 and got["error"]["data"]["accepts"]
            got = await s.call("prompts/get", "whatever", bad)
            assert got["error"]["code"] == -32003
        assert s.server.runs == []

    run(work())


def test_free_and_other_items(svc: Service) -> None:
    async def work() -> None:
        s = Scene(svc)
        got = await s.call("tools/call", "free")
        assert got["result"]["_meta"] == {"service/credits": {"success": True, "creditsRedeemed": "0"}}
        got = await s.call("tools/call", "without a price")
        assert "_meta" not in got["result"]
        assert "verify 200" not in s.events

    run(work())


def test_errors_are_free_and_prices_follow_the_result(svc: Service, token: str) -> None:
    async def work() -> None:
        s = Scene(svc)
        had = svc.balance("caller")
        s.server.result = {"isError": True, "content": []}
        got = await s.call("tools/call", "paid", token)
        assert got["result"]["isError"] and "_meta" not in got["result"]
        s.server.result = RuntimeError("failed")
        with pytest.raises(RuntimeError):
            await s.call("tools/call", "paid", token)
        assert (svc.balance("caller"), svc.held("caller")) == (had, 0)
        s.server.result = None
        got = await s.call("tools/call", "any", token)
        assert got["result"]["_meta"]["service/credits"]["creditsRedeemed"] == "4"

    run(work())


def test_F08_nothing_leaves_unsettled(svc: Service, token: str) -> None:
    async def work() -> None:
        for policy in ("ignore", "propagate"):
            s = Scene(svc, on_redeem_error=policy)
            await s.call("tools/call", "paid")  # terms are known
            s.fault.before = lambda o, n: "down" if o == "settle" else None
            got = await s.call("tools/call", "paid", token)
            assert CONTENT not in json.dumps(got, default=str) and s.fault.counts["settle"] == 3
            if policy == "ignore":
                assert got["result"]["isError"]
                assert got["result"]["structuredContent"]["error"].startswith("settlement pending")
            else:
                assert got["error"]["code"] == -32002
            s = Scene(svc)
            s.fault.before = lambda o, n: "down"
            got = await s.call("tools/call", "paid", token)
            assert got["result"]["structuredContent"]["error"] == "plans unavailable"
            assert s.server.runs == []

    run(work())


def test_side_doors(svc: Service, token: str) -> None:
    async def work() -> None:
        s = Scene(svc)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "paid"}}
        status, _ = await s.post([call])
        assert status == 400
        status, _ = await s.post({k: v for k, v in call.items() if k != "id"})
        assert status == 202
        for raw in (
            b'{"method":"ping","method":"tools/call","id":1,"params":{"name":"paid"}}',
            b'{"id":1,"method":"tools/call","params":{"name":"free","name":"paid"}}',
            b"\xef\xbb\xbf{}", b"{" * 50, b'{"a":' * 40 + b"1" + b"}" * 40,
        ):
            status, _ = await s.post(None, raw=raw)
            assert status == 400
        status, _ = await s.post(None, raw=b" " * (4 << 20) + b"{}")
        assert status == 413
        assert s.server.runs == []
        # Answers do not leave on a stream of a GET, and it cannot be resumed.
        sent: list[Any] = []

        async def send(m: Any) -> None:
            sent.append(m)

        headers = [(b"last-event-id", b"7"), (b"accept", b"text/event-stream")]
        await s.gate({"type": "http", "method": "GET", "path": "/mcp", "headers": headers}, None, send)
        text = b"".join(m.get("body", b"") for m in sent[1:])
        assert b"notifications/x" in text and CONTENT.encode() not in text
        assert b"last-event-id" not in s.server.headers

    run(work())


def test_an_idle_stream_gets_comments_between_its_events(
    svc: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies keep streams back and cut those that are idle."""
    monkeypatch.setattr("toll.mcp.COMMENT_SECS", 0.05)

    async def work() -> None:
        s = Scene(svc)
        sent: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            start = {"type": "http.response.start", "status": 200}
            await send({**start, "headers": [(b"content-type", b"text/event-stream"), *coding]})
            for part in (b"data: {}\n\ndata: {", b'"method":"notifications/x"}\n\n'):
                await asyncio.sleep(0.2)
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        async def send(m: Any) -> None:
            sent.append(m)

        s.gate.app = app
        for coding in ([], [(b"content-encoding", b"br")]):
            sent.clear()
            await s.gate({"type": "http", "method": "GET", "path": "/mcp", "headers": []}, None, send)
            assert dict(sent[0]["headers"])[b"x-accel-buffering"] == b"no"
            events = b"".join(m.get("body", b"") for m in sent[1:]).split(b"\n\n")
            assert events[-1] == b"" and {b"data: {}", b'data: {"method":"notifications/x"}'} < {*events, b""}
            assert (events.count(b":") >= 2) == (not coding), events
            seen = len(sent)
            await asyncio.sleep(0.15)
            assert len(sent) == seen

    run(work())


LEAVES = [
    ("tools/call", "paid", {}, 3), ("tools/call", "paid", {"caller_gone": "release"}, 0),
    ("resources/read", "file:///a", {}, 0), ("resources/read", "file:///a", {"caller_gone": "settle"}, 2),
    ("prompts/get", "report", {}, 0),
]


@pytest.mark.parametrize("method, name, settings, cost", LEAVES)
@pytest.mark.parametrize("when", ["during the work", "as the work ends"])
def test_a_caller_who_leaves(
    svc: Service, token: str, method: str, name: str, settings: Any, cost: int, when: str
) -> None:
    async def check() -> None:
        scene = Scene(svc, **settings)
        had, held = svc.balance("caller"), svc.held("caller")
        begun, left, ended = asyncio.Event(), asyncio.Event(), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            begun.set()
            try:
                await (left.wait() if when == "as the work ends" else asyncio.sleep(0.3))
            except asyncio.CancelledError:
                ended.append("stopped")
                raise
            ended.append("done")
            text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": text})

        scene.gate.app = app
        member = "uri" if method == "resources/read" else "name"
        params = {member: name, "_meta": {"x402/payment": token}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if requests:
                return requests.pop()
            await begun.wait()
            left.set()
            return {"type": "http.disconnect"}

        async def send(m: Any) -> None: ...

        lines = [(b"content-length", str(len(body)).encode())]
        await scene.gate({"type": "http", "method": "POST", "path": "/mcp", "headers": lines}, receive, send)
        assert had - svc.balance("caller") == cost and svc.held("caller") == held
        if when == "during the work":
            assert ended == ["done" if cost else "stopped"]

    run(check())


def test_T96_json_differentials(svc: Service, token: str) -> None:
    """A message that two parsers could read in two ways runs in neither."""

    async def work() -> None:
        s = Scene(svc)
        good = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"free"}}'
        for what, raw in {
            "duplicate": good[:-1] + b',"method":"ping"}',
            "duplicate by an escape": good[:-1] + b',"m\\u0065thod":"ping"}',
            "byte order mark": b"\xef\xbb\xbf" + good,
            "UTF-16": good.decode().encode("utf-16-le"),
            "bad UTF-8": good[:-1] + b',"x":"\xff"}',
            "lone surrogate": good[:-1] + b',"x":"\\ud800"}',
            "NaN": good[:-1] + b',"x":NaN}',
            "Infinity": good[:-1] + b',"x":-Infinity}',
            "trailing": good + b"{}",
            "depth 33": good[:-1] + b',"x":' + b"[" * 33 + b"]" * 33 + b"}",
            "digits": good[:-1] + b',"x":' + b"9" * 10**6 + b"}",
        }.items():
            status, text = await s.post(None, raw=raw)
            assert status == 400 and json.loads(text)["error"]["code"] == -32700, what
        assert s.server.runs == []
        # Names are exact: others are members that nobody knows, here and in the application.
        for name in ("Method", "METHOD", "method\\u0000", "\u017fethod"):
            raw = good.replace(b"method", name.encode()).replace(b"free", b"paid")
            status, _ = await s.post(None, raw=raw)
            assert status == 200 and "method" not in s.server.runs[-1]

    run(work())


def test_T97_media_types(svc: Service) -> None:
    """A message is JSON in UTF-8, said or not, and not compressed."""

    async def work() -> None:
        s = Scene(svc)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "free", "arguments": {}}}
        for kind in (
            b"text/plain", b"application/x-www-form-urlencoded", b"application/json; charset=utf-16",
            b"application/json;charset=latin-1", b"application/jsonx", b"multipart/form-data; boundary=x",
        ):
            status, _ = await s.post(call, [(b"content-type", kind)])
            assert status == 415, kind
        status, _ = await s.post(call, [(b"content-encoding", b"gzip")], raw=gzip.compress(b"{}"))
        assert status == 415 and s.server.runs == []
        for kind in (b"application/json", b'Application/JSON; Charset="UTF-8"', b"application/json; charset=utf-8"):
            status, text = await s.post(call, [(b"content-type", kind)])
            assert status == 200 and CONTENT.encode() in text
        status, _ = await s.post(call)
        assert status == 200 and len(s.server.runs) == 4

    run(work())


def test_bearer_is_the_fallback(svc: Service, token: str) -> None:
    async def work() -> None:
        s = Scene(svc)
        bearer = [(b"authorization", b"Bearer " + token.encode())]
        got = await s.call("tools/call", "paid", headers=bearer)
        assert got["result"]["_meta"][RECEIPT]["success"]
        assert b"authorization" not in s.server.headers
        got = await s.call("tools/call", "paid", "broken", headers=bearer)  # in band wins
        assert got["result"]["isError"]

    run(work())


# Buying: the payers of httpx pay for calls whose refusal is in band.


@pytest.fixture(scope="module")
def shop(svc: Service) -> Any:
    """A running server, whose agent is registered at it, and its scene."""
    scene = Scene(svc)
    sock = socket.create_server(("127.0.0.1", 0))
    scene.port = sock.getsockname()[1]
    scene.url = f"http://127.0.0.1:{scene.port}/mcp"
    endpoints = [{"POST": scene.url}, {"POST": "mcp://weather/tools/*"}, {"POST": "mcp://weather/resources/*"}]
    with svc.client() as t:
        scene.gate.seller.agent = t.agents.create(
            name="weather", endpoints=[*endpoints, {"POST": "mcp://weather/prompts/*"}], plans=[svc.plan_id]
        ).agent_id
    svc.mint(500, "mcp buyer")
    serve_asgi(scene.gate, sock)
    return scene


def buy(svc: Service, scene: Any, way: str, budget: Budget, call: Any, inner: Any = None) -> Any:
    """Makes a call with a paying client of httpx and returns the answer."""
    headers = {"accept": "application/json, text/event-stream"}
    if way == "sync":
        payer = HTTPXPayer(svc.client("mcp buyer"), budget, inner)
        with httpx.Client(transport=payer, timeout=20) as c:
            return c.post(scene.url, json=call, headers=headers)

    async def work() -> Any:
        async with svc.async_client("mcp buyer") as toll:
            async with httpx.AsyncClient(transport=AsyncHTTPXPayer(toll, budget, inner), timeout=20) as c:
                return await c.post(scene.url, json=call, headers=headers)

    return run(work())


def message(method: str, name: str, **meta: Any) -> dict[str, Any]:
    member = "uri" if method == "resources/read" else "name"
    params = {member: name, "_meta": {"keep": 1, **meta}}
    return {"jsonrpc": "2.0", "id": "call 7", "method": method, "params": params}


def answer_of(res: Any) -> Any:
    assert res.status_code == 200, res.text
    return json.loads(res.text if res.text.startswith("{") else res.text.strip().split("data: ")[-1])


def allow(scene: Any, **limits: Any) -> Budget:
    return Budget(Limits(hosts=[f"127.0.0.1:{scene.port}"], **{"credits_per_call": 5, "credits": 50, **limits}))


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("events", [False, True])
def test_a_call_is_bought(svc: Service, shop: Any, way: str, events: bool) -> None:
    shop.server.events, shop.server.result = events, None
    budget, had = allow(shop), svc.balance("mcp buyer")
    for method, name, cost in [("tools/call", "paid", 3), ("resources/read", "file:///a", 2), ("prompts/get", "x", 1)]:
        shop.server.runs.clear()
        got = answer_of(buy(svc, shop, way, budget, message(method, name)))
        assert got["id"] == "call 7" and got["result"]["content"][0]["text"] == CONTENT
        assert got["result"]["_meta"][RECEIPT]["success"] and len(shop.server.runs) == 1
        assert shop.server.runs[0]["params"]["_meta"] == {"keep": 1}
        p = budget.payments[-1]
        assert (p.state, p.spent, p.path, p.plan_id) == ("paid", cost, f"{method} {name}", svc.plan_id)
    assert budget.spent == 6 and (svc.balance("mcp buyer"), svc.held("mcp buyer")) == (had - 6, 0)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_calls_that_are_not_bought(svc: Service, shop: Any, way: str) -> None:
    shop.server.events = False
    budget = allow(shop)
    for call in (message("tools/call", "free"), message("tools/call", "without a price"), message("tools/list", "")):
        shop.server.runs.clear()
        assert answer_of(buy(svc, shop, way, budget, call))["result"]["content"] and len(shop.server.runs) == 1
    # One that brings a payment of its own, and what no limit allows.
    shop.server.runs.clear()
    got = answer_of(buy(svc, shop, way, budget, message("tools/call", "paid", **{"x402/payment": "x"})))
    assert got["result"]["isError"] and budget.payments == ()
    for limits, why in (({"credits_per_call": 2}, "limit for one request is 2"), ({"credits": 2}, "only 2 of 2 remain"), ({"hosts": []}, "not in the list of allowed hosts")):
        with pytest.raises(PaymentError, match=why):
            buy(svc, shop, way, Budget(Limits(**{"hosts": [f"127.0.0.1:{shop.port}"], "credits_per_call": 5, "credits": 50, **limits})), message("tools/call", "paid"))
    assert shop.server.runs == []
    # Work that failed is free.
    shop.server.result = {"isError": True, "content": []}
    had = svc.balance("mcp buyer")
    assert answer_of(buy(svc, shop, way, budget, message("tools/call", "paid")))["result"]["isError"]
    shop.server.result = None
    (p,) = budget.payments
    assert p.state == "refused" and budget.spent == 0 and svc.balance("mcp buyer") == had


class Second(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers the first request as a test says, and loses what comes then."""

    def __init__(self, first: Any, more: dict[str, str]) -> None:
        self.first, self.more, self.seen = first, more, []  # type: ignore[var-annotated]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(json.loads(request.content))
        if len(self.seen) > 1:
            raise httpx.ReadError("lost")
        headers = {"content-type": "application/json", **self.more}
        text = self.first if isinstance(self.first, bytes) else json.dumps(self.first).encode()
        return httpx.Response(200, headers=headers, stream=Both([text[:7], text[7:]]))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


class Both(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def __iter__(self) -> Any:
        return iter(self.parts)

    async def __aiter__(self) -> Any:
        for part in self.parts:
            yield part


@pytest.mark.parametrize("way", ["sync", "async"])
def test_servers_that_lie_and_lose(svc: Service, shop: Any, way: str) -> None:
    entry = {
        "scheme": "svc:erc4337", "network": "eip155:84532", "planId": svc.plan_id, "amount": "3",
        "extra": {"planId": svc.plan_id, "agentId": shop.gate.seller.agent},
    }
    asks = {"x402Version": 2, "resource": {"url": "mcp://weather/tools/paid"}, "accepts": [entry], "extensions": {}}
    call = message("tools/call", "paid")

    def refusal(of: Any, **more: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": json.dumps(of)}]
        return {"jsonrpc": "2.0", "id": "call 7", "result": {"isError": True, "content": content, **more}}

    # A lost answer counts until it is known, and is not sent again. The challenge may stand in the text alone.
    for first in (refusal(asks, structuredContent=asks), refusal(asks)):
        inner, budget = Second(first, {}), allow(shop)
        with pytest.raises(PaymentError) as e:
            buy(svc, shop, way, budget, call, inner)
        assert e.value.sent and len(inner.seen) == 2 and budget.spent == 3
        assert inner.seen[1]["params"]["_meta"]["x402/payment"]["accepted"] == entry
        check(svc.client("mcp buyer"), budget)
        assert budget.payments[0].state == "refused" and budget.spent == 0
    with svc.client() as t:
        there = t.agents.create(
            name="there", endpoints=[{"POST": "https://agent.example.com/mcp"}], plans=[svc.plan_id]
        ).agent_id
    for of, why in [
        ({**asks, "resource": {"url": "https://agent.example.com/mcp"}}, "not at"),
        ({**asks, "accepts": [{**entry, "extra": {"planId": svc.plan_id, "agentId": there}}]}, "registered at"),
        ({**asks, "accepts": []}, "no way to pay"),
    ]:
        inner, budget = Second(refusal(of, structuredContent=of), {}), allow(shop)
        with pytest.raises(PaymentError, match=why):
            buy(svc, shop, way, budget, call, inner)
        assert len(inner.seen) == 1 and budget.spent == 0
    # What is no refusal of this call comes as it is.
    long = json.dumps(refusal(asks, structuredContent={**asks, "error": "x" * (1 << 17)})).encode()
    for first, more in [
        (refusal({**asks, "x402Version": 1}), {}), ({**refusal(asks), "id": "other"}, {}), (b"plain", {}),
        ([refusal(asks)], {}), (long, {}), (b"data: x" * 9000, {"content-type": "text/event-stream"}),
        (b"data: " + json.dumps({"method": "notifications/progress"}).encode() + b"\n\ndata: " + json.dumps(refusal(asks)).encode() + b"\n\n", {"content-type": "text/event-stream"}),
    ]:
        inner = Second(first, more)
        res = buy(svc, shop, way, allow(shop), call, inner)
        assert res.content == (first if isinstance(first, bytes) else json.dumps(first).encode())
        assert len(inner.seen) == 1
