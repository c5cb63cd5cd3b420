"""Prices on tools, resources, and prompts of MCP servers, at the ASGI level.

    from toll import AsyncToll
    from toll.mcp import Middleware, Price

    app = Middleware(
        mcp.streamable_http_app(), AsyncToll(), plan=PLAN, server_name="weather",
        tools={"forecast": Price(3)}, prompts={"report": Price(1)},
    )

The middleware wraps the Streamable HTTP application of any server, and imports no MCP library. The
payment is params._meta["x402/payment"], or the deprecated bearer token. It is verified with a hold,
the item runs, and its result is sent with the receipt in _meta after the settlement. A refusal is in
band: a tool result with isError and the PaymentRequired object, or JSON-RPC error -32003 for
resources and prompts. Errors of an item are free. Items without a price are passed through.

Disconnected callers: a tool finishes within the hold, and its result is settled. A resource or a
prompt is stopped, and the hold is released. caller_gone="settle" or "release" changes this for all
items, and Price(caller_gone=...) for an item.

A result is sent only as the response to its POST. On streams that a client opens with GET, results
are dropped and Last-Event-ID is removed, because results there would be unpaid.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any, Callable, Literal, Mapping

from . import _core, _x402, errors
from ._mcp_buy import METHODS, PAYMENT, RECEIPT
from ._models import SettleResponse
from ._paid import current, current_payment
from ._sale import Exchange, Fault, Incoming, Lines, Payment, Price, Reply, Seller, log, plain
from ._wire import dumps, loads
from .asgi import App, Message, Receive, Scope, Send
from .client import AsyncToll

__all__ = ["Middleware", "Payment", "Price", "current_payment"]

#: Most bytes of a message, of a response that is kept back, and of an in-band payment.
MAX_MESSAGE, MAX_ANSWER, MAX_PAYMENT = 4 << 20, 8 << 20, 64 << 10
#: Seconds after which a comment is sent on an idle stream.
COMMENT_SECS = 15.0
OnRedeemError = Literal["ignore", "propagate"]


class Middleware:
    """Sells items of an MCP server.

    tools, resources (by uri), and prompts map names to prices; "*" is the price of all other items of
    its type. A price of 0 needs no payment. max_amount is the minimum to verify, in credits.
    on_redeem_error is "ignore" for an in-band response or "propagate" for JSON-RPC error -32002.
    """

    def __init__(
        self,
        app: App,
        client: AsyncToll,
        *,
        plan: str,
        agent: str | None = None,
        server_name: str = "mcp-server",
        tools: Mapping[str, Price] | None = None,
        resources: Mapping[str, Price] | None = None,
        prompts: Mapping[str, Price] | None = None,
        max_amount: int = 1,
        on_redeem_error: OnRedeemError = "ignore",
        **settings: Any,
    ) -> None:
        if not isinstance(client, AsyncToll):
            raise TypeError("toll.mcp requires an AsyncToll client")
        if on_redeem_error not in ("ignore", "propagate"):
            raise ValueError(f"on_redeem_error must be ignore or propagate; got {on_redeem_error!r}")
        self.app, self.server_name = app, server_name
        self.prices: dict[str, Mapping[str, Price]] = {
            "tools": tools or {}, "resources": resources or {}, "prompts": prompts or {},
        }
        self.max_amount, self.on_redeem_error = max_amount, on_redeem_error
        self.transport = client._transport
        self.seller = Seller(client._config, plan=plan, agent=agent, **settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection of the server."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["method"] == "POST":
            await self._post(scope, receive, send)
        else:
            headers = [(n, v) for n, v in scope["headers"] if n.lower() != b"last-event-id"]
            stream = _Unanswered(send)
            try:
                await self.app({**scope, "headers": headers}, receive, stream.send)
            finally:
                stream.stop()

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_json(scope["headers"]):
            # The application might decode other formats in a different way.
            fault = _error(None, -32600, "The message must be application/json in UTF-8.")
            await _answer(send, 415, fault)
            return
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body") or b""
            if len(body) > MAX_MESSAGE:
                await _answer(send, 413, _error(None, -32600, "The message is longer than 4 MiB."))
                return
            if not message.get("more_body", False):
                break
        try:
            call = _x402.strict(bytes(body))
        except ValueError:
            # Two parsers could interpret an invalid message in two ways.
            await _answer(send, 400, _error(None, -32700, "Parse error"))
            return
        if isinstance(call, list):
            if any(self._price(c) is not None for c in call):
                await _answer(send, 400, _error(None, -32600, "Batch requests are not supported for paid items."))
                return
        price = self._price(call)
        replay = _Replay(bytes(body), receive)
        try:
            if price is None:
                await self.app(scope, replay.receive, _unbuffered(send))
            elif "id" not in call or not isinstance(call["id"], (str, int)):
                await _answer(send, 202, None)  # a notification of a paid item never runs
            else:
                await _Call(self, scope, call, price, replay, send).run()
        finally:
            replay.stop()

    def _price(self, call: Any) -> Price | None:
        """Returns the price of a message, or None if it is free."""
        method = call.get("method") if isinstance(call, dict) else None
        if not isinstance(method, str) or method not in METHODS:
            return None
        member, kind = METHODS[method]
        params = call.get("params")
        name = params.get(member) if isinstance(params, dict) else None
        prices = self.prices[kind]
        return prices.get(name if isinstance(name, str) else "*") or prices.get("*")


class _Replay:
    """Replays the request for the application. ``gone`` is true after a disconnect."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._next: asyncio.Task[Message] | None = None
        self.gone = False
        #: Called after a disconnect.
        self.on_gone: Callable[[], object] | None = None

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await asyncio.shield(self.watch())
        if not self.gone:
            self._next = None
        return message

    def watch(self) -> asyncio.Task[Message]:
        """Waits for the next message of the server, to detect a disconnect."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._take())
        return self._next

    async def _take(self) -> Message:
        message = await self._receive()
        self.gone = message["type"] == "http.disconnect"
        if self.gone and self.on_gone is not None:
            self.on_gone()
        return message

    def stop(self) -> None:
        """Stops waiting."""
        if self._next is not None:
            self._next.cancel()


class _Unanswered:
    """Passes on a stream without responses to calls, because they would be unpaid."""

    def __init__(self, send: Send) -> None:
        self._send = _unbuffered(send)
        self._events = False
        self._text = b""
        self._sent = 0
        self._lock = asyncio.Lock()
        self._comments: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stops the comments on an idle stream."""
        if self._comments is not None:
            self._comments.cancel()

    async def _comment(self) -> None:
        """Sends a comment every 15 seconds without an event, because proxies close idle streams."""
        while True:
            sent = self._sent
            await asyncio.sleep(COMMENT_SECS)
            async with self._lock:
                if sent == self._sent:
                    await self._send(
                        {"type": "http.response.body", "body": b":\n\n", "more_body": True}
                    )

    async def send(self, message: Message) -> None:
        async with self._lock:
            self._sent += 1
            if not message.get("more_body", True):
                self.stop()
            await self._put(message)

    async def _put(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._events = _is_event_stream(message.get("headers", []))
            names = {n.lower() for n, _ in message.get("headers", [])}
            if self._events and not names & {b"content-encoding", b"content-length"}:
                self._comments = asyncio.ensure_future(self._comment())
        elif message["type"] == "http.response.body" and self._events:
            self._text += (message.get("body") or b"").replace(b"\r\n", b"\n")
            *whole, self._text = self._text.split(b"\n\n")
            if len(self._text) > MAX_ANSWER:
                raise ValueError("an event is longer than 8 MiB")
            kept = b"".join(e + b"\n\n" for e in whole if not _is_answer(e))
            message = {**message, "body": kept}
        await self._send(message)


def _is_event_stream(headers: Any) -> bool:
    types = [v for n, v in headers if n.lower() == b"content-type"]
    return any(v.startswith(b"text/event-stream") for v in types)


def _unbuffered(send: Send) -> Send:
    """Tells proxies such as nginx not to buffer an event stream."""

    async def sent(message: Message) -> None:
        headers = message.get("headers", [])
        if message["type"] == "http.response.start" and _is_event_stream(headers):
            kept = [(n, v) for n, v in headers if n.lower() != b"x-accel-buffering"]
            message = {**message, "headers": [*kept, (b"x-accel-buffering", b"no")]}
        await send(message)

    return sent


def _data(event: bytes) -> Any:
    lines = [x[5:].strip() for x in event.split(b"\n") if x.startswith(b"data:")]
    try:
        return loads(b"\n".join(lines)) if lines else None
    except ValueError:
        return None


def _is_answer(event: bytes) -> bool:
    found = _data(event)
    return any(
        isinstance(m, dict) and ("result" in m or "error" in m)
        for m in (found if isinstance(found, list) else [found])
    )


def _error(id: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def _is_json(headers: Any) -> bool:
    """Reports whether the headers declare JSON in UTF-8. A missing type is accepted."""
    for name, value in headers:
        text = value.decode("latin-1").lower().replace(" ", "").replace('"', "")
        if name.lower() == b"content-encoding" and text not in ("", "identity"):
            return False
        kind, *more = text.split(";")
        if name.lower() == b"content-type" and (
            kind != "application/json"
            or any(p.startswith("charset=") and p != "charset=utf-8" for p in more)
        ):
            return False
    return True


async def _answer(send: Send, status: int, value: Any) -> None:
    body = b"" if value is None else dumps(value)
    headers = [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Call(Exchange):
    """One paid call."""

    def __init__(
        self, gate: Middleware, scope: Scope, call: dict[str, Any], price: Price, replay: _Replay,
        send: Send,
    ) -> None:
        self.gate, self.call, self.replay, self._send = gate, call, replay, _unbuffered(send)
        member, self.kind = METHODS[call["method"]]
        self.name = str(call["params"].get(member) or "")
        lines = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in scope["headers"]]
        self.wanted = price
        self.pr: dict[str, Any] = {}
        super().__init__(gate.seller, Incoming("POST", "/", "", lines))
        self.scope: Scope = {
            **scope,
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in self.request.headers],
            "extensions": {},
        }

    def _check(self) -> Fault | None:
        return None  # the server has its own limits, and the message was bounded

    def _take(self) -> Fault | None:
        """Reads the payment of the message, else the bearer token."""
        params = self.call["params"]
        meta = params.get("_meta")
        given = meta.get(PAYMENT) if isinstance(meta, dict) else None
        if isinstance(given, dict):
            text = dumps(given).decode()
            self.token = text if len(text) <= MAX_PAYMENT else ""
        elif isinstance(given, str) and len(given) <= _x402.MAX_TOKEN:
            self.token = given
        if isinstance(meta, dict) and PAYMENT in meta:
            # The item must not see the payment.
            rest = {k: v for k, v in meta.items() if k != PAYMENT}
            self.replay._body = dumps({**self.call, "params": {**params, "_meta": rest}})
            self.request.headers = [
                (n, v) if n != "content-length" else (n, str(len(self.replay._body)))
                for n, v in self.request.headers
            ]
        if not self.token:
            for v in self.request.get_all("authorization")[:1]:
                word, _, bearer = v.partition(" ")
                if word.lower() == "bearer" and _x402.is_access_token(bearer.strip()):
                    self.token = bearer.strip()
                    _core.warn_deprecated(
                        "an MCP call sends an access token as its bearer token, which is deprecated: "
                        "send the access token in _meta"
                    )
        return None

    def _resource(self) -> str:
        name = self.name if self.kind == "resources" else urllib.parse.quote(self.name, safe="")
        return f"mcp://{self.gate.server_name}/{self.kind}/{name}"

    def _is_for_us(self, token: _x402.Token) -> bool:
        return True  # the service compares the logical url, and OAuth tokens name this server

    def _most(self) -> int | None:
        most = super()._most()
        return None if most is None else max(most, self.gate.max_amount)

    def refuse(self, reason: str, fault: Fault, receipt: SettleResponse | None = None) -> Reply:
        """Refuses in band."""
        error = "payment required"
        if receipt is not None:
            error = "settlement failed"
        return self._in_band(f"{error}: {reason}" if reason else error, fault.message)

    def error(
        self, fault: Fault, more: Mapping[str, Any] | None = None, lines: Lines | None = None
    ) -> Reply:
        """Returns the response for a call that failed."""
        pending = fault.code == errors.PENDING
        error = "settlement pending" if pending else "plans unavailable"
        return self._in_band(error, fault.message)

    def _in_band(self, error: str, message: str) -> Reply:
        asks = self.required or {
            "x402Version": 2, "resource": {"url": self._resource()}, "accepts": [],
            "extensions": {},
        }
        pr = {**asks, "error": plain(error)}
        settling = error.startswith("settlement")
        if settling and self.gate.on_redeem_error == "propagate":
            text = f"Failed to redeem credits: {plain(message)}"
            out = _error(self.call["id"], -32002, text)
        elif self.kind == "tools":
            content = [{"type": "text", "text": dumps(pr).decode()}]
            result = {"isError": True, "structuredContent": pr, "content": content}
            out = {"jsonrpc": "2.0", "id": self.call["id"], "result": result}
        else:
            text = "Authorization required." if not self.token else "Payment required."
            out = _error(self.call["id"], -32003, text, pr)
        return Reply(200, [], dumps(out))

    def settles_gone(self) -> bool:
        """Reports whether a result is settled after a disconnect, by default only for tools."""
        rule = self.price.caller_gone or self.seller.caller_gone
        return self.kind == "tools" if rule == "by_method" else rule == "settle"

    async def _steps(self, steps: _core.Steps[Any]) -> Any:
        return await _core.run_async(steps, self.gate.transport)

    async def run(self) -> None:
        """Verifies the payment, runs the item, settles, and responds."""
        free = self.wanted.credits == 0
        if not free:
            self.replay.watch()
            reply = await self._steps(self.pay(self.wanted))
            if reply is not None:
                await self._reply(reply)
                return
            if self.replay.gone:
                await self._steps(self.release())
                return
        token = current.set(self)  # type: ignore[arg-type]
        work = asyncio.ensure_future(self._work())
        current.reset(token)
        keeper: asyncio.Task[None] | None = None
        if not free:
            def lapse() -> None:
                # Work for a disconnected caller ends with the hold. Other work is settled if possible.
                if self.replay.gone:
                    work.cancel()

            if not self.settles_gone():
                self.replay.on_gone = work.cancel
            keeping = self.keep(self.gate.transport, lambda: not self.replay.gone, lapse)
            keeper = asyncio.ensure_future(keeping)
        try:
            answer = await asyncio.shield(work)
        except asyncio.CancelledError:
            # The server gives up, or the hold has ended: release unsettled work.
            ended = work.cancelled()
            work.cancel()
            await asyncio.wait({work})
            await asyncio.shield(asyncio.ensure_future(self._steps(self.release())))
            if ended:
                return
            raise
        except Exception:
            await self._steps(self.release())
            raise
        finally:
            if keeper is not None:
                keeper.cancel()
        if answer is None:
            return
        status, headers, message, shown = answer
        result = message.get("result") if isinstance(message, dict) else None
        unpaid = not free and self.replay.gone and not self.settles_gone()
        if unpaid or not isinstance(result, dict) or result.get("isError") is True:
            await self._steps(self.release())
            await self._leave(status, headers, message, shown)
            return
        ending = asyncio.ensure_future(self._finish(free, result, status, headers, message, shown))
        await asyncio.shield(ending)

    async def _finish(
        self, free: bool, result: dict[str, Any], status: int, headers: Lines, message: Any,
        shown: list[bytes] | None,
    ) -> None:
        credits: dict[str, Any] = {"success": True, "creditsRedeemed": "0"}
        meta = {k: v for k, v in (result.get("_meta") or {}).items() if k != RECEIPT}
        word = f"{self.seller.names.word}/credits"
        amount = 0
        if not free:
            try:
                text = dumps(result)
                amount = self.amount(200, headers, text, len(text))
            except Exception:
                await self._steps(self.release())
                log.exception("computing the price of a result failed (%s)", self.about())
                await self._reply(Reply(200, [], dumps(
                    _error(self.call["id"], -32603, "An unexpected error occurred.")
                )))
                return
        if amount == 0:
            await self._steps(self.release())
        else:
            assert self.payment is not None
            receipt, known = await self._steps(self.settle(amount))
            if not receipt.success:
                if known:
                    await self._steps(self.release())
                await self._reply(self.not_settled(receipt, known))
                return
            meta[RECEIPT] = receipt.raw
            credits = {
                "success": True, "txHash": receipt.transaction,
                "creditsRedeemed": str(receipt.credits_redeemed or 0),
                "remainingBalance": str(receipt.remaining_balance or 0),
                "planId": self.payment.plan_id, "subscriberAddress": self.payment.payer,
            }
        result["_meta"] = {**meta, word: credits}
        await self._leave(status, headers, message, shown)

    async def _work(self) -> tuple[int, Lines, Any, list[bytes] | None] | None:
        """Runs the application and returns its response to the call.

        The last value contains the other events of a stream; it is None for a JSON response.
        """
        status, headers, text = 0, [], bytearray()  # type: ignore[var-annotated]

        async def keep(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message["headers"]]
            elif message["type"] == "http.response.body":
                text.extend(message.get("body") or b"")
                if len(text) > MAX_ANSWER:
                    raise ValueError("the response is longer than 8 MiB")

        await self.gate.app(self.scope, self.replay.receive, keep)
        body = bytes(text)
        if any(n.lower() == "content-type" and v.startswith("text/event-stream") for n, v in headers):
            events = [e for e in body.replace(b"\r\n", b"\n").split(b"\n\n") if e.strip()]
            answers = [e for e in events if self._is_mine(_data(e))]
            others = [e for e in events if not _is_answer(e)]
            return status, headers, _data(answers[-1]) if answers else None, others
        try:
            message = loads(body)
        except ValueError:
            message = None
        if not self._is_mine(message):
            await self._steps(self.release())
            if 200 <= status <= 299:
                log.error("the server sent no response to a paid call (%s)", self.about())
                body = dumps(_error(self.call["id"], -32603, "The server sent no response."))
            await self._raw(status, headers, body)
            return None
        return status, headers, message, None

    def _is_mine(self, message: Any) -> bool:
        return (
            isinstance(message, dict)
            and message.get("id") == self.call["id"]
            and ("result" in message or "error" in message)
        )

    async def _leave(
        self, status: int, headers: Lines, message: Any, shown: list[bytes] | None
    ) -> None:
        if shown is None:
            await self._raw(status, headers, dumps(message))
            return
        # Without ids, because a resumed stream would replay the results that were kept back.
        out = [b"\n".join(x for x in e.split(b"\n") if not x.startswith(b"id:")) for e in shown]
        if message is not None:
            out.append(b"event: message\ndata: " + dumps(message))
        await self._raw(status, headers, b"".join(e + b"\n\n" for e in out if e.strip()))

    async def _raw(self, status: int, headers: Lines, body: bytes) -> None:
        lines = [(n.lower(), v) for n, v in headers if n.lower() not in ("content-length", "cache-control")]
        lines += [("content-length", str(len(body))), ("cache-control", "no-store, private")]
        encoded = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in lines]
        await self._send({"type": "http.response.start", "status": status or 500, "headers": encoded})
        await self._send({"type": "http.response.body", "body": body})

    async def _reply(self, reply: Reply) -> None:
        await self._raw(200, [("content-type", "application/json")], reply.body)
