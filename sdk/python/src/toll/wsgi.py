"""Middleware that sells responses of WSGI applications, such as Flask and Django.

    from toll import Toll
    from toll.wsgi import Middleware, current_payment, paid

    app = Flask(__name__)
    app.wsgi_app = Middleware(app.wsgi_app, Toll(), plan=PLAN, public_url="https://agent.example")

    @app.post("/ask")
    @paid(credits=2)
    def ask(): ...

toll.wsgi performs the same steps in the same order as toll.asgi. Two things differ because WSGI hides
the connection from an application until it writes. The middleware does not notice a disconnect before
the response begins, so a 2xx response is settled. Only the server can stop work that does not end, and
the hold is renewed while the work runs, for at most 24 hours. When the server closes a response, the
renewals stop.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from wsgiref.util import is_hop_by_hop

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
from .client import Toll
from .transport import ThreadTransport

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

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

REASONS = {
    400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 405: "Method Not Allowed",
    409: "Conflict", 413: "Payload Too Large", 414: "URI Too Long", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}


class Middleware:
    """Sells the responses of handlers with paid(), or with price all responses of the application.

    It has the same settings as toll.asgi.Middleware.
    """

    def __init__(
        self,
        app: App,
        client: Toll,
        *,
        plan: str | None = None,
        agent: str | None = None,
        public_url: str | None = None,
        price: Price | None = None,
        queue: Queue | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(client, Toll):
            raise TypeError("toll.wsgi requires a Toll client; use toll.asgi with an AsyncToll client")
        self.app = app
        self.queue = queue or Queue()
        self._transport = client._transport
        self._late = ThreadTransport(client._transport, 8)
        self.seller = Seller(
            client._config, plan=plan, agent=agent, public_url=public_url, price=price, **settings
        )

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handles one request of the server."""
        return _Exchange(self, environ, start_response).run()


class _Input:
    """The body of a request, with a count of its bytes."""

    def __init__(self, inner: Any, x: _Exchange) -> None:
        self._inner, self._x = inner, x

    def _count(self, part: bytes) -> bytes:
        self._x.received += len(part)
        if self._x.received > self._x.seller.max_body and not self._x.passing:
            if self._x.streaming:
                self._x.cut = ValueError(f"the body is longer than {self._x.seller.max_body} bytes")
                raise self._x.cut
            raise self._x.refuse_now(self._x.error(self._x.too_large()))
        return part

    def _most(self, size: int | None) -> int:
        """Returns the size of a read, at most one byte more than allowed."""
        left = self._x.seller.max_body - self._x.received + 1
        if self._x.passing:
            return -1 if size is None else size
        return max(left, 1) if size is None or size < 0 else min(size, max(left, 1))

    def read(self, size: int | None = -1) -> bytes:
        return self._count(self._inner.read(self._most(size)))

    def readline(self, size: int | None = -1) -> bytes:
        return self._count(self._inner.readline(self._most(size)))

    def readlines(self, hint: int = -1) -> list[bytes]:
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        while line := self.readline():
            yield line


class _Exchange(Exchange):
    """The sale of one request of the server."""

    def __init__(self, gate: Middleware, environ: Environ, start_response: StartResponse) -> None:
        lines: Lines = []
        for name, value in environ.items():
            if name.startswith("HTTP_") and isinstance(value, str):
                lines.append((name[5:].lower().replace("_", "-"), value))
            elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
                lines.append((name.lower().replace("_", "-"), str(value)))
        raw = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
        path = raw.split("?")[0] if raw.startswith("/") else ""
        if not path:
            import urllib.parse

            served = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
            path = urllib.parse.quote(served.encode("latin-1"))
        super().__init__(
            gate.seller,
            Incoming(environ["REQUEST_METHOD"], path, environ.get("QUERY_STRING", ""), lines),
        )
        self.gate, self._start = gate, start_response
        kept = {n for n, _ in self.request.headers}
        self.environ: Environ = {
            k: v
            for k, v in environ.items()
            if not k.startswith("HTTP_") or k[5:].lower().replace("_", "-") in kept
        }
        for n, v in self.request.headers:
            if n == "cookie":
                self.environ["HTTP_COOKIE"] = v
        # wsgi.file_wrapper would bypass the middleware.
        self.environ.pop("wsgi.file_wrapper", None)
        self.environ["wsgi.input"] = _Input(environ["wsgi.input"], self)
        self.refusal: Refused | None = None
        self.status_line = ""
        self.headers: Lines = []
        self.written: list[bytes] = []
        self.delivered = 0
        self.passing = self.streaming = False
        self.cut: ValueError | None = None
        self.keeper: Future[None] | None = None

    def run(self) -> Iterable[bytes]:
        """Runs the application until its response can be passed on or sold."""
        if self.seller.price is not None:
            reply = self.pay_now(self.seller.price)
            if reply is not None:
                return self._answer(reply)
        parts: Iterator[bytes] = iter(())
        result: Any = None
        try:
            result = self._within(lambda: self.gate.app(self.environ, self._start_response))
            parts = iter(result)
            first: list[bytes] = []
            # Some frameworks call the handler only for the first part.
            while not self.status_line or self.payment is None and not any(first):
                part = self._within(lambda: next(parts, None))
                if part is None:
                    break
                first.append(part)
        except BaseException as e:
            return self._failed(e, result)
        if self.refusal is not None:
            return self._end_refused(result)
        if self.payment is None:
            self.passing = True
            self._begin(self.headers)
            return _Stream(self._passing([*self.written, *first], parts), result, None)
        return self._sell(first, parts, result)

    def _within(self, work: Callable[[], Any]) -> Any:
        """Runs a part of the application with this exchange as the current exchange."""
        token = current.set(self)
        try:
            return work()
        finally:
            current.reset(token)

    def _failed(self, e: BaseException, result: Any) -> Iterable[bytes]:
        """Releases the hold of work that raised."""
        self._rest()
        if self.refusal is not None:
            return self._end_refused(result)
        if self.payment is not None:
            self._steps(self.release())
        _close(result)
        raise e

    def _end_refused(self, result: Any) -> Iterable[bytes]:
        self._rest()
        _close(result)
        assert self.refusal is not None and self.refusal.reply is not None
        return self._answer(self.refusal.reply)

    def refuse_now(self, reply: Reply) -> Refused:
        """Releases the hold, and sets the response of the request."""
        self.refusal = Refused(reply)
        self._steps(self.release())
        return self.refusal

    # Calls of paid handlers.

    def pay_now(self, price: Price) -> Reply | None:
        """Pays in the thread of the request. Returns the response for an unpaid request."""
        if self.passing:
            raise RuntimeError("the response began before the payment was verified")
        reply: Reply | None = self._steps(self.pay(price))
        if reply is not None:
            self.refusal = Refused(reply)
        else:
            keeping = self.keep(self.gate._late, lambda: True, lambda: None)
            self.keeper = asyncio.run_coroutine_threadsafe(keeping, self.gate.queue.loop())
        return reply

    def _rest(self) -> None:
        """Stops the renewals of the hold."""
        if self.keeper is not None:
            self.keeper.cancel()

    async def pay_soon(self, price: Price) -> Reply | None:
        """Pays for an asyncio handler in a WSGI application, which blocks for it anyway."""
        return self.pay_now(price)

    def _steps(self, steps: _core.Steps[Any]) -> Any:
        return _core.run(steps, self.gate._transport)

    # The response.

    def _start_response(
        self, status: str, headers: Lines, exc_info: Any = None
    ) -> Callable[[bytes], object]:
        # A response that cannot be sent must not be charged.
        unsplit([("status", status)])
        self.status_line = status if len(status) > 3 else f"{status} "
        # Servers own hop-by-hop headers, and may reject responses that contain them (PEP 3333).
        kept = strip_answer(unsplit(list(headers)))
        self.headers = [(n, v) for n, v in kept if not is_hop_by_hop(n)]
        return self.written.append

    @property
    def status(self) -> int:
        """The status of the handler's response."""
        return int(self.status_line[:3]) if self.status_line[:3].isdigit() else 500

    def _begin(self, headers: Lines, status: str = "") -> None:
        self._start(status or self.status_line or "500 Internal Server Error", unsplit(headers))

    def _passing(
        self, first: list[bytes], parts: Iterator[bytes]
    ) -> Generator[bytes, None, None]:
        yield from first
        while (part := self._within(lambda: next(parts, None))) is not None:
            yield part

    def _sell(self, first: list[bytes], parts: Iterator[bytes], result: Any) -> Iterable[bytes]:
        kept = [*self.written, *first]
        self.written.clear()
        size = sum(map(len, kept))
        try:
            while True:
                streams = self.price.stream or is_events(self.headers)
                # Headers alone are not a response to pay for.
                begins = streams and (size > 0 or not self.is_priced())
                if begins or size > self.seller.max_buffer:
                    return self._flow(kept, parts, result)
                part = self._within(lambda: next(parts, None))
                if part is None:
                    break
                kept += [*self.written, part]
                size += sum(map(len, self.written)) + len(part)
                self.written.clear()
            _close(result)
        except BaseException as e:
            return self._failed(e, result)
        if self.refusal is not None:
            return self._end_refused(None)
        return self._decide(b"".join(kept))

    def _decide(self, body: bytes) -> Iterable[bytes]:
        """Settles a complete response, and then sends it."""
        self._rest()
        if not 200 <= self.status <= 299:
            self._steps(self.release())
            return self._leave(keep_private(self.headers), body)
        length = declared(self.headers)
        head = self.request.method.upper() == "HEAD"
        if length is not None and length != len(body) and not head and self.status != 204:
            self._steps(self.release())
            log.error(
                "the handler declared %d bytes but sent %d (%s)", length, len(body), self.about()
            )
            return self._answer(self.error(internal()))
        try:
            amount = self.amount(self.status, self.headers, body, len(body))
        except Exception:
            self._steps(self.release())
            log.exception("computing the price of a response failed (%s)", self.about())
            return self._answer(self.error(internal()))
        receipt, known = self._steps(self.settle(amount))
        if receipt.success:
            return self._leave(self.paid_headers(self.headers, receipt), body)
        if known:
            self._steps(self.release())
        return self._answer(self.not_settled(receipt, known))

    def _leave(self, headers: Lines, body: bytes) -> Iterable[bytes]:
        if self.status not in (204, 304):
            length = declared(headers) if self.request.method.upper() == "HEAD" else None
            headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
            headers.append(("content-length", str(len(body) if length is None else length)))
        self._begin(headers)
        return [body]

    def _answer(self, reply: Reply) -> Iterable[bytes]:
        # Only the server controls the connection: an application must not set this header (PEP 3333).
        headers = [(n, v) for n, v in reply.headers if n != "connection"]
        self._begin(headers, f"{reply.status} {REASONS.get(reply.status, 'Refused')}")
        return [reply.body]

    def _flow(self, kept: list[bytes], parts: Iterator[bytes], result: Any) -> Iterable[bytes]:
        """Begins a stream."""
        headers, refusal = self._steps(self.begin(self.status, self.headers))
        if refusal is not None:
            self.refusal = Refused(refusal)
            return self._end_refused(result)
        settles = 200 <= self.status <= 299 and not self.is_priced()
        self.streaming = True

        def unbegun() -> None:
            self._rest()
            if settles:
                self._steps(self.release())

        return _Stream(self._stream(kept, parts, headers, settles), result, unbegun)

    def _stream(
        self, kept: list[bytes], parts: Iterator[bytes], headers: Lines, settles: bool
    ) -> Generator[bytes, None, None]:
        """Streams a response, and settles it at its end if its price is not known before."""
        whole, tail = False, Tail(headers)
        try:
            self._in_time()
            self._begin(headers)
            for part in kept:
                yield part
                tail.add(part)
                self.delivered += len(part)
            kept.clear()
            while (part := self._within(lambda: next(parts, None))) is not None:
                if time.monotonic() >= self.ends and (last := tail.end()):
                    yield last
                self._in_time()
                yield part
                tail.add(part)
                self.delivered += len(part)
            whole = True
        finally:
            self._rest()
            if settles and (whole or self.delivered):
                self._settle_stream()
            elif settles:
                self._steps(self.release())

    def _in_time(self) -> None:
        if self.cut is not None:
            raise self.cut
        if time.monotonic() >= self.ends:
            raise HoldEnded("the response was cut off because its hold has expired")

    def _settle_stream(self) -> None:
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
        receipt, known = self._steps(self.settle(amount, 1))
        if not receipt.success:
            self.gate.queue.add(self, amount, self.delivered, receipt, known, self.gate._late)


class _Stream:
    """A streamed response. The server closes it at its end, or after a disconnect."""

    def __init__(
        self, parts: Generator[bytes, None, None], result: Any, unbegun: Callable[[], Any] | None
    ) -> None:
        self._parts, self._result, self._unbegun = parts, result, unbegun

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        try:
            begun = inspect.getgeneratorstate(self._parts) != inspect.GEN_CREATED
            self._parts.close()
            if not begun and self._unbegun is not None:
                self._unbegun()
        finally:
            _close(self._result)


def _close(result: Any) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()
