"""Middleware that sells responses of ASGI applications, such as FastAPI, Starlette, and Django.

    from toll import AsyncToll
    from toll.asgi import Middleware, current_payment, paid

    app = FastAPI()
    app.add_middleware(Middleware, client=AsyncToll(), plan=PLAN, public_url="https://agent.example")

    @app.post("/ask")
    @paid(credits=2)
    async def ask(question: Question) -> Answer:
        print(current_payment().payer)

1. When the framework calls a paid handler, the payment is verified with a hold, which reserves the
   credits. Otherwise the request gets a 402 with the price. If the service is unavailable, which is
   not the subscriber's fault, the request gets a 503 and the handler does not run.
2. The handler runs. It never sees the access token. Its response is kept back.
3. A 2xx response is settled once, under the id of the request, and then sent with its receipt in
   payment-response. For any other response, the hold is released: errors are free.
4. A refused settlement becomes a 402. A settlement whose outcome is unknown after three attempts
   becomes a 503. Neither contains any part of the handler's response.

Streams: event streams, responses longer than max_buffer, and routes with stream=True are sent part
by part. A known price is settled before the first byte. A stream whose price is known only at its end
begins with the id of the request instead of the receipt, and its hold is renewed for at most 24 hours.
It is settled when it ends, or when it is cut off after a byte was delivered. A stream is cut off if
its hold cannot be renewed; an event stream then ends with an error event.

Disconnected callers: with caller_gone="settle", the default for POST and other unsafe methods, the
handler continues, at most until its hold ends, and a 2xx response is settled. With "release", the
default for GET, HEAD, and OPTIONS, its task is canceled and the hold is released. A handler that
failed to read an incomplete body is free; a handler that did not read the body saw no error.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any, Awaitable, Callable, MutableMapping

from . import _core
from ._paid import Paid, current, current_payment, paid
from ._sale import (
    CallerGone,
    Exchange,
    HoldEnded,
    Incoming,
    Lines,
    NotBehindMiddleware,
    Payment,
    Price,
    Queue,
    Refused,
    Reply,
    Seller,
    Tail,
    Unsettled,
    Work,
    declared,
    internal,
    is_events,
    keep_private,
    log,
    strip_answer,
    unsplit,
)
from .client import AsyncToll

__all__ = [
    "CallerGone",
    "HoldEnded",
    "Middleware",
    "NotBehindMiddleware",
    "Paid",
    "Payment",
    "Price",
    "Queue",
    "Unsettled",
    "Work",
    "current_payment",
    "paid",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The ASGI extensions that cannot send unpaid parts of a response. The middleware offers only these.
SAFE_EXTENSIONS = ("tls",)


class Middleware:
    """Sells the responses of handlers with paid(), or with price all responses of the application.

    plan is the plan whose credits pay, and agent the agent that serves the requests. public_url is
    the absolute public address of this server; it is never taken from a request. hold_secs is 1 to
    900, max_buffer and max_body are in bytes, and timeout is the seconds for one call to the service.
    max_body, by default 10 MiB, limits the body of every request, even on free routes, because
    frameworks read it before they call a handler. on_unsettled is called for delivered but unsettled
    streams; queue settles them later.
    """

    def __init__(
        self,
        app: App,
        client: AsyncToll,
        *,
        plan: str | None = None,
        agent: str | None = None,
        public_url: str | None = None,
        price: Price | None = None,
        queue: Queue | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(client, AsyncToll):
            raise TypeError("toll.asgi requires an AsyncToll client; use toll.wsgi with a Toll client")
        self.app = app
        self.queue = queue or Queue()
        self._transport = client._transport
        self.seller = Seller(
            client._config, plan=plan, agent=agent, public_url=public_url, price=price, **settings
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection of the server."""
        if scope["type"] == "websocket" and self.seller.price is not None:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()


class _Exchange(Exchange):
    """The sale of one request of the server."""

    def __init__(self, gate: Middleware, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        path = raw.decode("latin-1") if raw else urllib.parse.quote(scope["path"])
        lines = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in scope["headers"]]
        query = scope.get("query_string", b"").decode("latin-1")
        super().__init__(
            gate.seller, Incoming(scope["method"], path.split("?")[0], query, lines)
        )
        self.gate, self._receive, self._send = gate, receive, send
        self.scope: Scope = {
            **scope,
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in self.request.headers],
            "extensions": {
                k: v
                for k, v in (scope.get("extensions") or {}).items()
                if k in SAFE_EXTENSIONS
            },
        }
        self.loop = asyncio.get_running_loop()
        self.task: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.keeper: asyncio.Task[None] | None = None
        self.tail: Tail | None = None
        self.settled_first = False
        self.ahead: list[Message] = []
        self.body_ended = False
        self.news = asyncio.Event()
        self.gone = asyncio.Event()
        self.refusal: Refused | None = None
        self.status = 0
        self.headers: Lines = []
        self.buffer: list[bytes] = []
        self.size = 0
        self.delivered = 0
        self.taken = 0  # including parts that a stalled reader has not received
        self.passing = self.streaming = self.whole = False
        self.deciding = self.decided = self.cut = self.half = self.lost = False

    async def run(self) -> None:
        """Runs the application, and settles or releases its response."""
        if self.gate.seller.price is not None:
            reply = await self.pay_soon(self.gate.seller.price)
            if reply is not None:
                await self._reply(self.refusal or Refused(reply))
                return
        token = current.set(self)
        try:
            self.task = asyncio.ensure_future(
                self.gate.app(self.scope, self._take_in, self._put_out)
            )
        finally:
            current.reset(token)
        try:
            await asyncio.wait({self.task})
        except asyncio.CancelledError:
            # The server gives up: a settlement in progress is completed, otherwise the hold is released.
            if not self.deciding:
                self.task.cancel()
            await asyncio.shield(asyncio.ensure_future(self._end()))
            raise
        await self._end()

    async def _end(self) -> None:
        assert self.task is not None
        await asyncio.wait({self.task})
        for waiting in (self.watch, self.timer, self.keeper):
            if waiting is not None:
                waiting.cancel()
        cancelled = self.task.cancelled()
        fault = None if cancelled else self.task.exception()
        if self.refusal is not None:
            await self._reply(self.refusal)
        elif self.payment is None:
            if fault is not None:
                raise fault
        elif self.streaming:
            await self._end_stream(fault)
        elif self.decided:
            if fault is not None:
                raise fault
        else:
            await self._steps(self.release())
            if fault is not None and not self.gone.is_set():
                raise fault
            if fault is None and not cancelled:
                log.error("the application ended without a complete response (%s)", self.about())
                await self._reply(Refused(self.error(internal())))

    # Calls of paid handlers.

    async def pay_soon(self, price: Price) -> Reply | None:
        """Pays on the event loop. Returns the response for an unpaid request."""
        if self.passing:
            raise RuntimeError("the response began before the payment was verified")
        paying = asyncio.ensure_future(self._steps(self.pay(price)))
        try:
            # A disconnect does not stop the verification, so that no hold is lost.
            reply: Reply | None = await asyncio.shield(paying)
        except asyncio.CancelledError:
            await asyncio.wait({paying})
            if not paying.cancelled() and paying.exception() is None and self.payment is not None:
                await asyncio.shield(asyncio.ensure_future(self._steps(self.release())))
            raise
        if reply is not None:
            self.refusal = Refused(reply)
            return reply
        self._watch()
        await asyncio.sleep(0)
        if not self.gone.is_set():
            self.keeper = asyncio.ensure_future(
                self.keep(self.gate._transport, lambda: not self.gone.is_set(), self._lose)
            )
            return None
        await self._steps(self.release())
        self.refusal = Refused(None)
        return Reply(499, [], b"")

    def pay_now(self, price: Price) -> Reply | None:
        """Pays for a handler that runs in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(self.pay_soon(price), self.loop).result()
        raise RuntimeError("a paid handler must be async, or run in a thread")

    async def _steps(self, steps: _core.Steps[Any]) -> Any:
        return await _core.run_async(steps, self.gate._transport)

    # The request.

    async def _take_in(self) -> Message:
        """Returns the next message for the application."""
        while self.watch is not None and not (self.ahead or self.body_ended or self.gone.is_set()):
            self.news.clear()
            await self.news.wait()
        if self.ahead:
            message = self.ahead.pop(0)
        elif self.gone.is_set() and self.status and self.payment is not None:
            await self._wait_gone()  # it has responded, and waits for a disconnect
            return {"type": "http.disconnect"}
        elif self.gone.is_set() and not self.body_ended:
            message = {"type": "http.disconnect"}
        elif self.body_ended and self.payment is not None:
            await self._wait_gone()
            return {"type": "http.disconnect"}
        else:
            message = await self._receive()
        self._see(message)
        self.half = self.gone.is_set() and not self.body_ended
        if self.received > self.seller.max_body and not self.passing:
            if self.deciding:
                return {"type": "http.disconnect"}
            if self.streaming:
                self.cut = True
                raise ValueError(f"the body is longer than {self.seller.max_body} bytes")
            # Also before a payment, because frameworks read the body before they call the handler.
            self.refusal = Refused(self.error(self.too_large()))
            await self._steps(self.release())
            raise self.refusal
        return message

    def _see(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self.gone.set()
            return
        self.received += len(message.get("body") or b"")
        if not message.get("more_body", False):
            self.body_ended = True
            if self.payment is not None:
                self._watch()

    async def _wait_gone(self) -> None:
        """Waits until the application may be notified of a disconnect."""
        await self.gone.wait()
        if self.settles_gone() and not self.streaming:
            await asyncio.Event().wait()  # it continues; its task ends with the response or the hold

    def _watch(self) -> None:
        """Watches for a disconnect once the application has read the body."""
        if self.watch is None and not self.ahead:
            self.watch = asyncio.ensure_future(self._watching())

    async def _watching(self) -> None:
        while not self.gone.is_set():
            message = await self._receive()
            self.news.set()
            if message["type"] == "http.disconnect":
                self.gone.set()
                break
            self.ahead.append(message)
            if message.get("more_body", False):
                self.watch = None  # the application continues to read
                return
        if self.task is None or self.deciding:
            return
        if self.streaming or not self.settles_gone():
            self.task.cancel()
            return
        # Work for disconnected callers may run until the hold ends.
        self._cut_at_the_end()

    def _cut_at_the_end(self) -> None:
        if self.timer is None:
            self.timer = self.loop.call_later(max(0.0, self.ends - self.loop_time()), self._cut)

    @staticmethod
    def loop_time() -> float:
        """Returns the current time in seconds, on the clock of holds."""
        import time

        return time.monotonic()

    def _lose(self) -> None:
        """Cuts off a stream whose hold has ended. Other work continues, and is settled if possible."""
        if self.streaming:
            self.lost = True
            self._cut()

    def _cut(self) -> None:
        if not self.deciding and self.task is not None:
            self.cut = True
            self.task.cancel()

    # The response.

    async def _put_out(self, message: Message) -> None:
        """Handles a message from the application."""
        if self.refusal is not None:
            return
        if self.payment is None:
            self.passing = True
            if message["type"] == "http.response.start":
                lines = strip_answer(_text(message.get("headers", [])))
                message = {**message, "headers": _bytes(lines)}
            await self._send(message)
            return
        if message["type"] == "http.response.start":
            if not self.status and message["status"] >= 200:
                self.status = message["status"]
                # A response that cannot be sent must not be charged.
                self.headers = strip_answer(unsplit(_text(message.get("headers", []))))
        elif message["type"] == "http.response.body" and not self.decided and not self.whole:
            await self._put_body(message.get("body") or b"", message.get("more_body", False))

    async def _put_body(self, part: bytes, more: bool) -> None:
        if not self.status:
            raise RuntimeError("the application sent a body before the status")
        self.size += len(part)
        if self.streaming:
            await self._pass(part, more)
            return
        self.buffer.append(part)
        if not more:
            await self._decide()
        elif self._is_stream():
            await self._begin_stream()

    def _is_stream(self) -> bool:
        if self.size > self.seller.max_buffer:
            return True
        # Headers alone are not a response to pay for.
        return (self.price.stream or is_events(self.headers)) and (self.size > 0 or not self.is_priced())

    async def _decide(self) -> None:
        """Settles a complete response, and then sends it."""
        self.deciding = True
        await asyncio.shield(asyncio.ensure_future(self._deciding()))

    async def _deciding(self) -> None:
        body = b"".join(self.buffer)
        self.buffer.clear()
        self.decided = True
        gone = self.gone.is_set()
        length = declared(self.headers)
        head = self.request.method.upper() == "HEAD"
        if not 200 <= self.status <= 299:
            await self._steps(self.release())
            await self._leave(keep_private(self.headers), body)
            return
        if self.half or gone and not self.settles_gone():
            await self._steps(self.release())
            return
        if length is not None and length != len(body) and not head and self.status != 204:
            await self._steps(self.release())
            log.error(
                "the handler declared %d bytes but sent %d (%s)", length, len(body), self.about()
            )
            await self._reply(Refused(self.error(internal())))
            return
        try:
            amount = self.amount(self.status, self.headers, body, len(body))
        except Exception:
            await self._steps(self.release())
            log.exception("computing the price of a response failed (%s)", self.about())
            await self._reply(Refused(self.error(internal())))
            return
        receipt, known = await self._steps(self.settle(amount))
        if receipt.success:
            await self._leave(self.paid_headers(self.headers, receipt), body)
            return
        if known:
            await self._steps(self.release())
        await self._reply(Refused(self.not_settled(receipt, known)))

    async def _leave(self, headers: Lines, body: bytes) -> None:
        if self.gone.is_set():
            return
        if self.status not in (204, 304):
            length = declared(headers) if self.request.method.upper() == "HEAD" else None
            headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
            headers.append(("content-length", str(len(body) if length is None else length)))
        start = {"type": "http.response.start", "status": self.status, "headers": _bytes(headers)}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    async def _begin_stream(self) -> None:
        if self.gone.is_set():
            raise asyncio.CancelledError()
        if self.ends - self.loop_time() <= 0:
            raise HoldEnded("the hold expired before the response began")
        self._watch()
        self.deciding = True
        beginning = asyncio.ensure_future(self._steps(self.begin(self.status, self.headers)))
        headers, refusal = await asyncio.shield(beginning)
        self.deciding = False
        if refusal is not None:
            self.refusal = Refused(refusal)
            raise self.refusal
        self.settled_first = self.is_priced()
        self.streaming = True
        self.tail = Tail(headers)
        if self.gone.is_set():
            raise asyncio.CancelledError()
        await self._send(
            {"type": "http.response.start", "status": self.status, "headers": _bytes(headers)}
        )
        parts, self.buffer = self.buffer, []
        for part in parts:
            await self._pass(part, True)

    async def _pass(self, part: bytes, more: bool) -> None:
        # Give timers and the watch a chance to run, in case the application blocks the event loop.
        await asyncio.sleep(0)
        late, left = self.renewing, self.ends - self.loop_time()
        if late is not None and left < self.hold_secs / 4:
            await asyncio.wait({late}, timeout=max(0.0, left))
        if self.loop_time() >= self.ends:
            self.cut = self.lost = True
        if self.cut or self.gone.is_set():
            raise HoldEnded("the response was cut off because its hold has expired or its caller has disconnected")
        self.taken += len(part)
        await self._send({"type": "http.response.body", "body": part, "more_body": more})
        self.delivered += len(part)
        self.whole = not more
        if self.tail is not None:
            self.tail.add(part)

    async def _end_stream(self, fault: BaseException | None) -> None:
        """Settles a stream at its end, or after an abort if a part was delivered."""
        whole = self.whole and not self.cut
        left = self.gone.is_set() and self.settles_gone() and fault is None
        stalled = self.cut and self.taken > 0
        if self.settled_first or not 200 <= self.status <= 299:
            pass  # it is already paid, or free
        elif not (whole or self.delivered or left or stalled):
            await self._steps(self.release())
        else:
            await asyncio.shield(asyncio.ensure_future(self._settle_stream()))
        if whole or self.gone.is_set():
            if fault is not None:
                raise fault
            return
        # The response is incomplete: send an error event if possible, and break the connection.
        last = self.tail.end() if self.tail is not None and self.lost else b""
        if last and self.taken == self.delivered:
            message = {"type": "http.response.body", "body": last, "more_body": True}
            await asyncio.wait({asyncio.ensure_future(self._send(message))}, timeout=1)
        raise fault or HoldEnded("the response was cut off because its hold has expired")

    async def _settle_stream(self) -> None:
        assert self.payment is not None
        try:
            amount = self.amount(self.status, self.headers, None, self.delivered)
        except Exception:
            # Delivered content must be paid for, and the payer agreed to the held credits.
            log.exception(
                "computing the price of a stream failed, so the held credits are charged (%s)",
                self.about(),
            )
            amount = self.payment.held
        receipt, known = await self._steps(self.settle(amount, 1))
        if not receipt.success:
            queue, transport = self.gate.queue, self.gate._transport
            queue.add(self, amount, self.delivered, receipt, known, transport, self.loop)

    async def _reply(self, refused: Refused) -> None:
        reply = refused.reply
        if reply is None or self.gone.is_set():
            return
        start = {"type": "http.response.start", "status": reply.status}
        await self._send({**start, "headers": _bytes(reply.headers)})
        await self._send({"type": "http.response.body", "body": reply.body})


def _text(headers: Any) -> Lines:
    return [(n.decode("latin-1"), v.decode("latin-1")) for n, v in headers]


def _bytes(headers: Lines) -> list[tuple[bytes, bytes]]:
    """Returns headers in the form of ASGI."""
    return [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in unsplit(headers)]
