"""Handlers and callers that do what frameworks do not: nothing leaves unpaid, and nothing is charged that cannot leave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import Any, Callable, Iterator

import pytest
import apps
from apps import AsyncFault, Quiet, SyncFault, Threads, exchange, parse, request_text
from toll import AsyncToll, Toll, asgi, builders, wsgi
from toll._sale import Exchange, Incoming, Payment
from toll._wire import Headers
from toll.testing import Service
from toll.transport import Answer, HTTPTransport, HTTPXTransport

CONTENT = b"the paid content"


class Own:
    """A server that sells one application."""

    def __init__(self, svc: Service, kind: str, app: Any, price: asgi.Price, **more: Any) -> None:
        self.svc, self.kind, self.events, self.told = svc, kind, [], []  # type: ignore[var-annotated]
        self.account = "edge"
        self.token = svc.token(100, account=self.account)
        sock = socket.create_server(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        settings: dict[str, Any] = dict(
            plan=svc.plan_id, agent=svc.agent_id, public_url="http://agent.test", price=price,
            max_body=1 << 16, max_buffer=1 << 20, on_unsettled=self.told.append,
        )
        settings.update(more)
        key = svc.key("builder").key
        self.fault: Any
        if kind == "asgi":
            self.fault = AsyncFault(self.events, HTTPXTransport())
            gate: Any = asgi.Middleware(app, AsyncToll(key, svc.url, transport=self.fault), **settings)
            self.server = apps.serve_asgi(gate, sock)
            return
        self.fault = SyncFault(self.events, HTTPTransport())
        gate = wsgi.Middleware(app, Toll(key, svc.url, transport=self.fault), **settings)
        sock.close()
        self.server = Threads(("127.0.0.1", self.port), Quiet)
        self.server.set_app(gate)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self.kind == "asgi":
            self.server.should_exit = True
        else:
            self.server.shutdown()
            self.server.server_close()

    def ask(self, body: bytes = b"{}", more: list[tuple[str, str]] | None = None) -> apps.Got:
        headers = [*(more or []), ("payment-signature", self.token)]
        return parse(exchange(self.port, request_text("POST", "/ask", headers, body), 10))

    def spent(self, work: Callable[[], Any]) -> int:
        """Returns the credits that work costs, once its hold has ended."""
        had = self.svc.balance(self.account)
        work()
        end = time.monotonic() + 10
        while not any(e.startswith(("settle", "release")) for e in self.events) or self.svc.held(self.account):
            assert time.monotonic() < end, self.events
            time.sleep(0.02)
        return had - self.svc.balance(self.account)


@contextlib.contextmanager
def selling(svc: Service, kind: str, app: Any, price: asgi.Price = asgi.Price(2), **more: Any) -> Iterator[Own]:
    own = Own(svc, kind, app, price, **more)
    try:
        yield own
    finally:
        own.stop()


EVENTS = [(b"content-type", b"text/event-stream")]


async def asgi_echo(scope: Any, receive: Any, send: Any) -> None:
    """Streams while it reads the body."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
    await send({"type": "http.response.body", "body": b"data: " + CONTENT + b"\n\n", "more_body": True})
    while (await receive()).get("more_body"):
        await send({"type": "http.response.body", "body": b": more\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b"data: end\n\n"})


def wsgi_echo(environ: Any, start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [("content-type", "text/event-stream")])
    yield b"data: " + CONTENT + b"\n\n"
    while environ["wsgi.input"].read(1 << 14):
        yield b": more\n\n"
    yield b"data: end\n\n"


@pytest.mark.parametrize("kind, app", [("asgi", asgi_echo), ("wsgi", wsgi_echo)])
def test_a_body_that_grows_too_long_cuts_a_stream_that_is_settled(svc: Service, kind: str, app: Any) -> None:
    with selling(svc, kind, app) as own:
        seen = b""

        def send() -> None:
            nonlocal seen
            with socket.create_connection(("127.0.0.1", own.port), timeout=10) as s:
                s.sendall(
                    b"POST /ask HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\npayment-signature: "
                    + own.token.encode() + b"\r\n\r\n1\r\nx\r\n"
                )
                while CONTENT not in seen:
                    part = s.recv(4096)
                    assert part, seen
                    seen += part
                with contextlib.suppress(OSError):
                    for _ in range(8):
                        s.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
                    while part := s.recv(4096):
                        seen += part

        assert own.spent(send) == 2
        assert "settle 200" in own.events and "release 200" not in own.events
        assert b"data: end" not in seen


def test_a_body_that_grows_too_long_is_refused_before_an_answer(svc: Service) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": CONTENT})

    with selling(svc, "asgi", app) as own:
        head = f"POST /ask HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\npayment-signature: {own.token}\r\n\r\n"
        got: list[apps.Got] = []
        text = head.encode() + b"11000\r\n" + b"x" * 0x11000 + b"\r\n0\r\n\r\n"
        assert own.spent(lambda: got.append(parse(exchange(own.port, text, 5)))) == 0
        assert got[0].status == 413


def half(own: Own, entered: threading.Event) -> None:
    """Hangs up on a handler with half of a body sent."""
    with socket.create_connection(("127.0.0.1", own.port), timeout=10) as s:
        head = f"POST /ask HTTP/1.1\r\nhost: a\r\ncontent-length: 400\r\npayment-signature: {own.token}\r\n\r\n"
        s.sendall(head.encode())
        assert entered.wait(10)


@pytest.mark.parametrize("reads, cost", [("nothing", 2), ("before", 0), ("later", 0)])
def test_work_for_half_a_body(svc: Service, reads: str, cost: int) -> None:
    """A handler that does not read the body is paid; one that passes over the error is not."""
    entered = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        if reads == "before":
            while (await receive()).get("more_body"):
                pass
        await asyncio.sleep(0.2)
        if reads == "later":
            while (await receive()).get("more_body"):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": CONTENT})

    with selling(svc, "asgi", app) as own:
        assert own.spent(lambda: half(own, entered)) == cost


HEADERS = {
    "outside Latin-1": ("200 OK", [("x-name", "\u4f60\u597d")], 500, 0),
    "a status outside Latin-1": ("200 \u4f60", [], 500, 0),
    "hop by hop": ("200 OK", [("connection", "close"), ("x-name", "\xe9")], 200, 2),
    "a status without a reason": ("200", [("x-name", "a")], 200, 2),
}


@pytest.mark.parametrize("what", HEADERS)
def test_headers_that_cannot_leave_are_not_charged(svc: Service, what: str) -> None:
    status, headers, want, cost = HEADERS[what]

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response(status, headers)
        return [CONTENT]

    with selling(svc, "wsgi", app) as own:
        got: list[apps.Got] = []
        assert own.spent(lambda: got.append(own.ask())) == cost
        assert got[0].status == want and (CONTENT in got[0].body) == (cost > 0)


def test_the_euro_token_of_a_sandbox() -> None:
    receiver = "0x" + "1" * 40
    assert builders.eurc_price(5, receiver)["tokenAddress"] == builders.EURC
    assert builders.eurc_price(5, receiver, builders.ZERO)["tokenAddress"] == builders.EURC
    sandbox = builders.eurc_price(5, receiver, sandbox=True)
    assert (sandbox["tokenAddress"], sandbox["currency"]) == (builders.EURC_SANDBOX, "EURC")
    own = builders.eurc_price(5, receiver, builders.USDC, sandbox=True)
    assert own["tokenAddress"] == builders.USDC


@pytest.mark.parametrize("settled_in", ["renewal", "wait"])
def test_a_stream_that_was_settled_first_needs_no_renewal(settled_in: str) -> None:
    """The answer to a renewal can come after that of the settlement: it must not give the stream an end."""
    calls: list[str] = []

    class Renews:
        async def send(self, request: Any) -> Answer:
            calls.append(request.url)
            x.ends = float("inf")
            body = b'{"success":true,"agentRequestId":"a","heldAmount":"2","holdExpiresAt":"2030-01-01T00:00:00.000Z"}'
            return Answer(200, Headers([("content-type", "application/json")]), body)

        async def aclose(self) -> None: ...

    gate = asgi.Middleware(
        lambda *a: None, AsyncToll("sandbox:a.b.c", "http://127.0.0.1:1", transport=Renews()),  # type: ignore[arg-type]
        plan="1", price=asgi.Price(2), hold_secs=1,
    )
    x = Exchange(gate.seller, Incoming("POST", "/ask", "", []))
    x.payment = Payment("", "1", None, "a", 2, None)  # type: ignore[arg-type]
    lost: list[bool] = []

    async def keep() -> None:
        x.ends = time.monotonic() + 0.1
        keeping = asyncio.ensure_future(x.keep(gate._transport, lambda: True, lambda: lost.append(True)))
        if settled_in == "wait":
            await asyncio.sleep(0)
            x.ends = float("inf")
        await asyncio.wait({keeping}, timeout=0.3)
        keeping.cancel()

    asyncio.run(keep())
    assert x.ends == float("inf") and not lost
    assert len(calls) == (settled_in == "renewal")
