"""Prices on items of an MCP server, which is an ASGI application of a few lines here."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from apps import CONTENT, AsyncFault
from toll import AsyncToll
from toll._wire import loads
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


