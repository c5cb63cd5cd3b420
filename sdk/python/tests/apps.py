"""One paid application in each framework, behind a recorder, on a real server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import uvicorn
from django.conf import settings
from fastapi import Request as R
from toll import AsyncToll, Toll, TransportError, WebhookError, read_delivery
from toll import asgi, wsgi
from toll._wire import Answer, Request, loads
from toll.asgi import current_payment, paid
from toll.testing import Service
from toll.transport import HTTPTransport, HTTPXTransport

CONTENT = "the paid content"


class Fault:
    """A transport whose calls fail as a test says, and which notes what it did."""

    def __init__(self, events: list[str], inner: Any) -> None:
        self.events, self.inner = events, inner
        self.before: Callable[[str, int], Any] = lambda op, n: None
        self.after: Callable[[str, int], Any] = lambda op, n: None
        self.counts: dict[str, int] = {}
        self.request_id = ""

    def _begin(self, request: Request) -> tuple[str, int]:
        op = request.url.rsplit("/", 1)[-1].split("?")[0]
        n = self.counts[op] = self.counts.get(op, 0) + 1
        return op, n

    @staticmethod
    def _fail(fault: Any) -> None:
        if fault is not None:
            raise TransportError(str(fault))

    def _end(self, op: str, n: int, answer: Answer) -> Answer:
        self._fail(self.after(op, n))
        if op == "verify":
            self.request_id = answer.json().get("agentRequestId", "")
        self.events.append(f"{op} {answer.status}")
        return answer


class SyncFault(Fault):
    def send(self, request: Request) -> Answer:
        op, n = self._begin(request)
        self._fail(self.before(op, n))
        return self._end(op, n, self.inner.send(request))

    def close(self) -> None:
        self.inner.close()


class AsyncFault(Fault):
    async def send(self, request: Request) -> Answer:
        op, n = self._begin(request)
        self._fail(self.before(op, n))
        return self._end(op, n, await self.inner.send(request))

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class State:
    """What handlers did."""

    events: list[str]
    runs: int = 0
    seen: dict[str, str] = field(default_factory=dict)
    entered: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)

    def run(self, headers: Any) -> None:
        self.runs += 1
        self.events.append("run")
        self.seen = {k.lower(): v for k, v in headers}
        assert current_payment().held >= 0
        self.entered.set()


@dataclass
class Front:
    """A running server."""

    name: str
    port: int
    state: State
    fault: Any
    gate: Any
    is_async: bool

    def reset(self) -> None:
        self.state.events.clear()
        self.fault.counts.clear()
        self.fault.before = self.fault.after = lambda op, n: None
        s = self.state
        s.runs = 0
        for e in (s.entered, s.resume, s.finished):
            e.clear()


def parts_of(n: int) -> Iterator[bytes]:
    for i in range(n):
        yield f"data: {CONTENT} {i}\n\n".encode()


#: Secrets of a webhook whose deliveries come to the free route /hook: the one before, and the present one.
SECRETS = ("whsec_before", "whsec_present")


def delivered(headers: Any, body: bytes) -> str:
    try:
        return read_delivery(headers, body, *SECRETS).id
    except WebhookError:
        return "refused"


def by_size(work: Any) -> int:
    if work.body == b"price fails":
        raise RuntimeError("no price")
    return int(work.headers.get("x-price") or 1)


def two(work: Any) -> int:
    return 2


def starlette_app(state: State) -> Any:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Route

    @paid(credits=2)
    async def ask(request: R) -> Any:
        state.run(request.headers.items())
        await request.body()
        do = request.query_params.get("do", "")
        if do == "raise":
            raise RuntimeError("the handler failed")
        if do == "404":
            raise HTTPException(404, "nothing here")
        if do == "hang":
            try:
                while not state.resume.is_set():
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                state.finished.set()
                raise
        headers = {"cache-control": "public, max-age=60", "payment-response": "e30="}
        state.finished.set()
        return PlainTextResponse(CONTENT, headers=headers)

    @paid(credits=2, hold_secs=2)
    async def stream(request: R) -> Any:
        state.run(request.headers.items())
        n = int(request.query_params.get("n", "3"))

        async def parts() -> Any:
            for i, part in enumerate(parts_of(n)):
                if i:
                    await asyncio.sleep(0.05)
                yield part

        return StreamingResponse(parts(), media_type="text/event-stream")

    @paid(credits=two, max_credits=2, hold_secs=2)
    async def metered(request: R) -> Any:
        return await stream.__wrapped__(request)

    @paid(credits=by_size, max_credits=5)
    async def priced(request: R) -> Any:
        state.run(request.headers.items())
        body = (await request.body()).decode()
        return PlainTextResponse(body, headers={"x-price": request.query_params.get("price", "1")})

    async def free(request: R) -> Any:
        return PlainTextResponse("free " + str(request.headers.get("payment-signature")))

    async def hook(request: R) -> Any:
        return PlainTextResponse(delivered(request.headers.items(), await request.body()))

    return Starlette(
        routes=[
            Route("/ask", ask, methods=["GET", "POST"]),
            Route("/stream", stream, methods=["GET", "POST"]),
            Route("/metered", metered, methods=["GET", "POST"]),
            Route("/priced", priced, methods=["POST"]),
            Route("/free", free),
            Route("/hook", hook, methods=["POST"]),
        ]
    )


def fastapi_app(state: State) -> Any:
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import PlainTextResponse, StreamingResponse

    app = FastAPI()

    @app.api_route("/ask", methods=["GET", "POST"], response_class=PlainTextResponse)
    @paid(credits=2)
    def ask(request: R, do: str = "") -> Any:  # in a thread of the pool
        state.run(request.headers.items())
        if do == "raise":
            raise RuntimeError("the handler failed")
        if do == "404":
            raise HTTPException(404, "nothing here")
        if do == "hang":
            state.resume.wait(20)
        headers = {"cache-control": "public, max-age=60", "payment-response": "e30="}
        state.finished.set()
        return PlainTextResponse(CONTENT, headers=headers)

    @app.api_route("/stream", methods=["GET", "POST"])
    async def stream(
        request: R, n: int = 3, payment: Any = Depends(paid(credits=2, hold_secs=2).dependency)
    ) -> Any:
        state.run(request.headers.items())
        assert payment.held == 2

        async def parts() -> Any:
            for i, part in enumerate(parts_of(n)):
                if i:
                    await asyncio.sleep(0.05)
                yield part

        return StreamingResponse(parts(), media_type="text/event-stream")

    @app.api_route("/metered", methods=["GET", "POST"])
    @paid(credits=two, max_credits=2, hold_secs=2)
    async def metered(request: R, n: int = 3) -> Any:
        return await stream(request, n, current_payment())

    @app.post("/priced")
    @paid(credits=by_size, max_credits=5)
    async def priced(request: R, price: int = 1) -> Any:
        state.run(request.headers.items())
        body = (await request.body()).decode()
        return PlainTextResponse(body, headers={"x-price": str(price)})

    @app.get("/free")
    async def free(request: R) -> Any:
        return PlainTextResponse("free " + str(request.headers.get("payment-signature")))

    @app.post("/hook")
    async def hook(request: R) -> Any:
        return PlainTextResponse(delivered(request.headers.items(), await request.body()))

    return app


def flask_app(state: State) -> Any:
    import flask

    app = flask.Flask("paid")

    @app.route("/ask", methods=["GET", "POST"])
    @paid(credits=2)
    def ask() -> Any:
        state.run(flask.request.headers.items())
        flask.request.get_data()
        do = flask.request.args.get("do", "")
        if do == "raise":
            raise RuntimeError("the handler failed")
        if do == "404":
            flask.abort(404)
        if do == "hang":
            state.resume.wait(20)
        headers = {"cache-control": "public, max-age=60", "payment-response": "e30="}
        state.finished.set()
        return flask.Response(CONTENT, headers=headers)

    @app.route("/stream", methods=["GET", "POST"])
    @paid(credits=2, hold_secs=2)
    def stream() -> Any:
        state.run(flask.request.headers.items())
        return flask.Response(slow(int(flask.request.args.get("n", 3))), mimetype="text/event-stream")

    @app.route("/metered", methods=["GET", "POST"])
    @paid(credits=two, max_credits=2, hold_secs=2)
    def metered() -> Any:
        return stream.__wrapped__()

    @app.post("/priced")
    @paid(credits=by_size, max_credits=5)
    def priced() -> Any:
        state.run(flask.request.headers.items())
        price = flask.request.args.get("price", "1")
        return flask.Response(flask.request.get_data(), headers={"x-price": price})

    @app.get("/free")
    def free() -> Any:
        return "free " + str(flask.request.headers.get("payment-signature"))

    @app.post("/hook")
    def hook() -> Any:
        return delivered(flask.request.headers.items(), flask.request.get_data())

    return app


def slow(n: int) -> Iterator[bytes]:
    for i, part in enumerate(parts_of(n)):
        if i:
            time.sleep(0.05)
        yield part


DJANGO: dict[str, State] = {}
urlpatterns: list[Any] = []


def django_views() -> None:
    """Views that serve both interfaces; the state is that of the server."""
    from django.http import Http404, HttpResponse, StreamingHttpResponse
    from django.urls import path
    from django.views.decorators.csrf import csrf_exempt

    @csrf_exempt
    @paid(credits=2)
    def ask(request: Any) -> Any:
        state = DJANGO[request.META["SERVER_PORT"]]
        state.run(request.headers.items())
        do = request.GET.get("do", "")
        if do == "raise":
            raise RuntimeError("the handler failed")
        if do == "404":
            raise Http404
        if do == "hang":
            state.resume.wait(20)
        out = HttpResponse(CONTENT)
        out["cache-control"], out["payment-response"] = "public, max-age=60", "e30="
        state.finished.set()
        return out

    @csrf_exempt
    @paid(credits=2, hold_secs=2)
    def stream(request: Any) -> Any:
        DJANGO[request.META["SERVER_PORT"]].run(request.headers.items())
        parts = slow(int(request.GET.get("n", "3")))
        return StreamingHttpResponse(parts, content_type="text/event-stream")

    @csrf_exempt
    @paid(credits=two, max_credits=2, hold_secs=2)
    def metered(request: Any) -> Any:
        return stream.__wrapped__.__wrapped__(request)

    @csrf_exempt
    @paid(credits=by_size, max_credits=5)
    def priced(request: Any) -> Any:
        DJANGO[request.META["SERVER_PORT"]].run(request.headers.items())
        out = HttpResponse(request.body)
        out["x-price"] = request.GET.get("price", "1")
        return out

    def free(request: Any) -> Any:
        return HttpResponse("free " + str(request.headers.get("payment-signature")))

    @csrf_exempt
    def hook(request: Any) -> Any:
        return HttpResponse(delivered(request.headers.items(), request.body))

    urlpatterns[:] = [
        path("ask", ask), path("stream", stream), path("metered", metered), path("priced", priced), path("free", free),
        path("hook", hook),
    ]


def django_app(asynchronous: bool) -> Any:
    if not settings.configured:
        settings.configure(
            ROOT_URLCONF="apps", ALLOWED_HOSTS=["*"], SECRET_KEY="test", MIDDLEWARE=[],
            LOGGING_CONFIG=None,
        )
        import django

        django.setup()
        django_views()
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    return get_asgi_application() if asynchronous else get_wsgi_application()


def record_asgi(app: Any, events: list[str]) -> Any:
    """Notes when the first byte of an answer leaves, outside of the gate."""

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                events.append(f"start {message['status']}")
            elif message["type"] == "http.response.body" and message.get("body"):
                events.append("byte")
            await send(message)

        await app(scope, receive, noted)

    return recorded


def record_wsgi(app: Any, events: list[str]) -> Any:
    def recorded(environ: Any, start_response: Any) -> Iterator[bytes]:
        def noted(status: str, headers: Any, exc_info: Any = None) -> Any:
            events.append(f"start {status[:3]}")
            return start_response(status, headers, exc_info)

        result = app(environ, noted)
        try:
            for part in result:
                if part:
                    events.append("byte")
                yield part
        finally:
            if hasattr(result, "close"):
                result.close()

    return recorded


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


class Threads(WSGIServer):
    """wsgiref with a thread for each request."""

    def process_request(self, request: Any, address: Any) -> None:
        threading.Thread(
            target=self._one, args=(request, address), daemon=True
        ).start()

    def _one(self, request: Any, address: Any) -> None:
        try:
            self.finish_request(request, address)
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                self.shutdown_request(request)

    def handle_error(self, *args: Any) -> None:
        pass


NAMES = ["starlette", "fastapi", "django asgi", "flask", "django wsgi"]


def serve_asgi(app: Any, sock: socket.socket) -> Any:
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_keep_alive=30)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[assignment]
    threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return server


def start(name: str, svc: Service, **more: Any) -> Front:
    """Starts a server of a framework that sells with the keys of the builder."""
    state = State([])
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    shared = dict(plan=svc.plan_id, agent=svc.agent_id, public_url=f"http://127.0.0.1:{port}", **more)
    key = svc.key("builder").key
    DJANGO[str(port)] = state
    is_async = name in NAMES[:3]
    if is_async:
        make: Any = {"starlette": starlette_app, "fastapi": fastapi_app}.get(name)
        app = make(state) if make else django_app(True)
        fault: Any = AsyncFault(state.events, HTTPXTransport())
        client = AsyncToll(key, svc.url, transport=fault)
        gate: Any = asgi.Middleware(app, client, max_buffer=1 << 20, max_body=1 << 16, **shared)
        serve_asgi(record_asgi(gate, state.events), sock)
    else:
        app = flask_app(state) if name == "flask" else django_app(False)
        fault = SyncFault(state.events, HTTPTransport())
        wrapped = app.wsgi_app if name == "flask" else app
        sync = Toll(key, svc.url, transport=fault)
        gate = wsgi.Middleware(wrapped, sync, max_buffer=1 << 20, max_body=1 << 16, **shared)
        if name == "flask":
            app.wsgi_app = gate
            outer: Any = app
        else:
            outer = gate
        sock.close()
        server = Threads(("127.0.0.1", port), Quiet)
        server.set_app(record_wsgi(outer, state.events))
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return Front(name, port, state, fault, gate, is_async)


@dataclass
class Got:
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    def decoded(self, name: str) -> Any:
        return loads(base64.b64decode(self.headers[name]))


def exchange(port: int, text: bytes, timeout: float = 20.0) -> bytes:
    """Sends raw bytes and returns everything that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        with contextlib.suppress(OSError):
            s.sendall(text)
        out = b""
        with contextlib.suppress(OSError):
            while part := s.recv(65536):
                out += part
        return out


def request_text(method: str, target: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: agent.test", "connection: close"]
    if body or method in ("POST", "PUT"):
        lines.append(f"content-length: {len(body)}")
    lines += [f"{n}: {v}" for n, v in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def parse(raw: bytes) -> Got:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in rest:
        n, _, v = line.partition(":")
        n = n.strip().lower()
        headers[n] = f"{headers[n]}, {v.strip()}" if n in headers else v.strip()
    status = int(first.split()[1]) if first else 0
    if headers.get("transfer-encoding") == "chunked":
        out = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            n_bytes = int(size or b"0", 16)
            if n_bytes == 0:
                break
            out, body = out + body[:n_bytes], body[n_bytes + 2 :]
        body = out
    return Got(status, headers, body)


def ask(
    front: Front, token: str | None, method: str = "POST", target: str = "/ask",
    body: bytes = b"{}", more: list[tuple[str, str]] | None = None,
) -> Got:
    headers = list(more or [])
    if token is not None:
        headers.append(("payment-signature", token))
    return parse(exchange(front.port, request_text(method, target, headers, body)))


logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
