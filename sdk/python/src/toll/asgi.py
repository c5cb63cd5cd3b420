"""Middleware that sells answers of ASGI applications: FastAPI, Starlette, Django, and others.

    from toll import AsyncToll
    from toll.asgi import Middleware, current_payment, paid

    app = FastAPI()
    app.add_middleware(Middleware, client=AsyncToll(), plan=PLAN, public_url="https://agent.example")

    @app.post("/ask")
    @paid(credits=2)
    async def ask(question: Question) -> Answer:
        print(current_payment().payer)

1. When the framework reaches a paid handler, the payment is verified with a hold: the credits are
   set aside, or the request gets 402 and says what it costs. When the service cannot be asked, that
   is not the subscriber's fault: 503, and nothing runs.
2. The handler runs. It never sees the access token. What it sends is kept.
3. A 2xx answer is settled, once, under the id of the request. Only then it leaves, with its receipt
   in payment-response. Anything else gives the hold back and leaves as it is: errors are free.
4. A settlement that is refused is a 402 and one whose outcome stays unknown after three tries a 503,
   both without a byte of what the handler sent.

Streams: event streams, answers beyond max_buffer and routes with stream=True leave as they come. A
price that is known is settled before the first byte. A stream whose price is known at its end begins
with the id of the request in place of the receipt and renews its hold, for at most 24 hours. It is
settled at its end, or when it is cut after a byte was delivered, which happens when its hold cannot be
renewed: an event stream then ends with an error event.

Callers who leave: with caller_gone="settle", by default for POST and other methods that are not
safe, the handler works on, at most until its hold ends, and a 2xx is settled. With "release", by
default for GET, HEAD and OPTIONS, its task is cancelled and the hold is given back. A handler that
read an incomplete body to its error works for free; a handler that did not read it saw no error.
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

#: Extensions of ASGI past which bytes of an answer could leave unpaid are not offered.
SAFE_EXTENSIONS = ("tls",)


class Middleware:
    """Sells what handlers with paid() answer, and with price everything that the application does.

    plan is the plan whose credits pay, agent the agent that serves. public_url is the absolute base
    under which the world reaches this server, never read from a request. hold_secs is 1 to 900,
    max_buffer and max_body are bytes, timeout is seconds for one call of the service. max_body
    bounds the body of every request, of free routes too, as frameworks read it before they reach a
    handler: 10 MiB by default. on_unsettled is the alarm for streams that were delivered and not settled; queue settles them later.
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
            raise TypeError("toll.asgi needs an AsyncToll; toll.wsgi takes a Toll")
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
    """One request of the server on its way through the gate."""

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
        self.taken = 0  # with what a reader who stalls keeps waiting
        self.passing = self.streaming = self.whole = False
        self.deciding = self.decided = self.cut = self.half = self.lost = False

    async def run(self) -> None:
        """Runs the application and decides what becomes of its answer."""
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
            # The server gives up: what is under way is decided, the rest is given back.
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
                log.error("the application ended without a whole answer (%s)", self.about())
                await self._reply(Refused(self.error(internal())))

    # What a paid handler does.

    async def pay_soon(self, price: Price) -> Reply | None:
        """Pays on the event loop. Returns the answer of a request that is not paid."""
        if self.passing:
            raise RuntimeError("the answer has begun before its payment")
        paying = asyncio.ensure_future(self._steps(self.pay(price)))
        try:
            # A caller who leaves does not stop it, so that every hold is known.
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
        raise RuntimeError("a paid handler that is not async must run in a thread")

    async def _steps(self, steps: _core.Steps[Any]) -> Any:
        return await _core.run_async(steps, self.gate._transport)

    # The request.

    async def _take_in(self) -> Message:
        """What the application receives."""
        while self.watch is not None and not (self.ahead or self.body_ended or self.gone.is_set()):
            self.news.clear()
            await self.news.wait()
        if self.ahead:
            message = self.ahead.pop(0)
        elif self.gone.is_set() and self.status and self.payment is not None:
            await self._wait_gone()  # it has answered, and listens for a caller who leaves
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
            # Also before a payment: frameworks read a body before they reach the handler.
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
        """Waits until the application may hear that its caller has gone."""
        await self.gone.wait()
        if self.settles_gone() and not self.streaming:
            await asyncio.Event().wait()  # it works on; its task ends with the answer or the hold

    def _watch(self) -> None:
        """Watches for a caller who leaves, once the application needs no more of the body."""
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
                self.watch = None  # the application reads on
                return
        if self.task is None or self.deciding:
            return
        if self.streaming or not self.settles_gone():
            self.task.cancel()
            return
        # What callers who left keep running is bounded by the hold.
        self._cut_at_the_end()

    def _cut_at_the_end(self) -> None:
        if self.timer is None:
            self.timer = self.loop.call_later(max(0.0, self.ends - self.loop_time()), self._cut)

    @staticmethod
    def loop_time() -> float:
        """Seconds on the clock of holds."""
        import time

        return time.monotonic()

    def _lose(self) -> None:
        """Ends a stream whose hold has ended; work without an answer is settled if it still can be."""
        if self.streaming:
            self.lost = True
            self._cut()

    def _cut(self) -> None:
        if not self.deciding and self.task is not None:
            self.cut = True
            self.task.cancel()

    # The answer.

    async def _put_out(self, message: Message) -> None:
        """What the application sends."""
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
                # What cannot leave must not be paid for.
                self.headers = strip_answer(unsplit(_text(message.get("headers", []))))
        elif message["type"] == "http.response.body" and not self.decided and not self.whole:
            await self._put_body(message.get("body") or b"", message.get("more_body", False))

    async def _put_body(self, part: bytes, more: bool) -> None:
        if not self.status:
            raise RuntimeError("the application sent a body before its status")
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
        # Headers alone are not an answer to pay for.
        return (self.price.stream or is_events(self.headers)) and (self.size > 0 or not self.is_priced())

    async def _decide(self) -> None:
        """Settles an answer of which nothing has left, and lets it leave."""
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
                "the handler declared %d bytes and sent %d (%s)", length, len(body), self.about()
            )
            await self._reply(Refused(self.error(internal())))
            return
        try:
            amount = self.amount(self.status, self.headers, body, len(body))
        except Exception:
            await self._steps(self.release())
            log.exception("the price of an answer failed (%s)", self.about())
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
            raise HoldEnded("the hold has ended before the answer began")
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
        # An application that works on the event loop lets neither timer nor watch run by itself.
        await asyncio.sleep(0)
        late, left = self.renewing, self.ends - self.loop_time()
        if late is not None and left < self.hold_secs / 4:
            await asyncio.wait({late}, timeout=max(0.0, left))
        if self.loop_time() >= self.ends:
            self.cut = self.lost = True
        if self.cut or self.gone.is_set():
            raise HoldEnded("the answer was cut, as its hold has ended or its caller has gone")
        self.taken += len(part)
        await self._send({"type": "http.response.body", "body": part, "more_body": more})
        self.delivered += len(part)
        self.whole = not more
        if self.tail is not None:
            self.tail.add(part)

    async def _end_stream(self, fault: BaseException | None) -> None:
        """Settles a stream: at its end, and at an abort when some of it was delivered."""
        whole = self.whole and not self.cut
        left = self.gone.is_set() and self.settles_gone() and fault is None
        stalled = self.cut and self.taken > 0
        if self.settled_first or not 200 <= self.status <= 299:
            pass  # it is paid, or free
        elif not (whole or self.delivered or left or stalled):
            await self._steps(self.release())
        else:
            await asyncio.shield(asyncio.ensure_future(self._settle_stream()))
        if whole or self.gone.is_set():
            if fault is not None:
                raise fault
            return
        # The end of the answer is missing: only a broken connection tells the client so, and an event.
        last = self.tail.end() if self.tail is not None and self.lost else b""
        if last and self.taken == self.delivered:
            message = {"type": "http.response.body", "body": last, "more_body": True}
            await asyncio.wait({asyncio.ensure_future(self._send(message))}, timeout=1)
        raise fault or HoldEnded("the answer was cut, as the hold that pays for it has ended")

    async def _settle_stream(self) -> None:
        assert self.payment is not None
        try:
            amount = self.amount(self.status, self.headers, None, self.delivered)
        except Exception:
            # What was delivered costs something, and what was held is what was agreed to.
            log.exception("the price of a stream failed; the hold is charged (%s)", self.about())
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
    """Headers as ASGI has them."""
    return [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in unsplit(headers)]
