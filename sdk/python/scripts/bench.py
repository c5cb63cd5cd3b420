"""What the middleware costs beside the bare framework.

    TOLL_BIN=toll python3 scripts/bench.py [ROUNDS]

Applications are called in this process without a server, one request after the other: bare, on a
route without a price behind the middleware, and paid, which asks a service on this machine to
verify and to settle. The rows take turns in each round, and a figure is the median of the rounds.
Other work of the machine slows all of them, so that only ratios mean anything.
"""

from __future__ import annotations

import asyncio
import io
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Awaitable, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import fastapi  # noqa: E402
import flask  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.responses import JSONResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402
from toll import asgi, wsgi  # noqa: E402
from toll.asgi import paid  # noqa: E402
from toll.testing import Service  # noqa: E402
from toll.transport import HTTPXTransport, ThreadTransport  # noqa: E402

#: Requests of one row in one round: paid ones wait for the disk of the service.
COUNT, PAID = 400, 100
BODY = b'{"question":"what is the answer"}'
Ask = Callable[[str], Awaitable[int]]


def starlette_app() -> Any:
    async def free(request: Any) -> Any:
        return JSONResponse({"answer": (await request.json())["question"]})

    routes = [Route("/free", free, methods=["POST"]), Route("/ask", paid(credits=1)(free), methods=["POST"])]
    return Starlette(routes=routes)


def fastapi_app() -> Any:
    app = fastapi.FastAPI()

    @app.post("/free")
    async def free(request: fastapi.Request) -> dict[str, str]:
        return {"answer": (await request.json())["question"]}

    @app.post("/ask")
    @paid(credits=1)
    async def ask(request: fastapi.Request) -> dict[str, str]:
        return {"answer": (await request.json())["question"]}

    return app


def flask_app() -> Any:
    app = flask.Flask("bench")

    @app.post("/free")
    def free() -> Any:
        return {"answer": flask.request.get_json()["question"]}

    @app.post("/ask")
    @paid(credits=1)
    def ask() -> Any:
        return {"answer": flask.request.get_json()["question"]}

    return app.wsgi_app


def call_asgi(app: Any, token: str) -> Ask:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
    headers.append((b"payment-signature", token.encode()))

    async def ask(path: str) -> int:
        status = 0

        async def receive() -> Any:
            if not received:
                received.append(1)
                return {"type": "http.request", "body": BODY, "more_body": False}
            await asyncio.sleep(3600)

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        received: list[int] = []
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "headers": [*headers], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }
        await app(scope, receive, send)
        return status

    return ask


def call_wsgi(app: Any, token: str) -> Ask:
    async def ask(path: str) -> int:
        said: list[str] = []
        environ = {
            "REQUEST_METHOD": "POST", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "2", "SERVER_PROTOCOL": "HTTP/1.1", "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(BODY)), "HTTP_PAYMENT_SIGNATURE": token, "wsgi.input": io.BytesIO(BODY),
            "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http", "wsgi.version": (1, 0),
            "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
        }
        result = app(environ, lambda status, headers, info=None: said.append(status))
        for _ in result:
            pass
        if hasattr(result, "close"):
            result.close()
        return int(said[0][:3])

    return ask


async def measure(ask: Ask, path: str, count: int) -> tuple[float, float]:
    """Returns wall and processor time of one request, in microseconds."""
    began, used = time.perf_counter(), time.process_time()
    for _ in range(count):
        status = await ask(path)
        assert status == 200, (path, status)
    return (time.perf_counter() - began) / count * 1e6, (time.process_time() - used) / count * 1e6


async def main(rounds: int) -> None:
    """Prints the table."""
    with Service() as svc:
        token = svc.token(9_000_000)
        rows: dict[tuple[str, str], tuple[Ask, str, int]] = {}
        shared = {"plan": svc.plan_id, "agent": svc.agent_id, "public_url": "http://127.0.0.1:2"}
        clients: list[Any] = []
        for name, make in [("starlette", starlette_app), ("fastapi", fastapi_app), ("flask", flask_app)]:
            app = make()
            if name == "flask":
                gate: Any = wsgi.Middleware(app, svc.client(), **shared)
                ask = call_wsgi
            else:
                transport = HTTPXTransport() if name == "starlette" else ThreadTransport()
                clients.append(svc.async_client(transport=transport))
                gate, ask = asgi.Middleware(app, clients[-1], **shared), call_asgi
            rows[name, "bare"] = ask(app, token), "/free", COUNT
            rows[name, "behind"] = ask(gate, token), "/free", COUNT
            rows[name, "paid"] = ask(gate, token), "/ask", PAID
        times: dict[tuple[str, str], list[tuple[float, float]]] = {row: [] for row in rows}
        loads = [os.getloadavg()[0]]
        for at in range(rounds + 1):
            for row, (one, path, count) in rows.items():
                took = await measure(one, path, count)
                if at:  # the first round warms up
                    times[row].append(took)
        loads.append(os.getloadavg()[0])
        for client in clients:
            await client.aclose()
    print(f"{rounds} rounds; load {loads[0]:.1f} before and {loads[1]:.1f} after, {os.cpu_count()} cores")
    print("| | us | processor us | against bare | processor time against bare |\n|---|---|---|---|---|")
    for (name, what), all_ in times.items():
        wall, used = (statistics.median(t[i] for t in all_) for i in (0, 1))
        base = [statistics.median(t[i] for t in times[name, "bare"]) for i in (0, 1)]
        print(f"| {name}, {what} | {wall:.0f} | {used:.0f} | {wall / base[0]:.2f} | {used / base[1]:.2f} |")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
