"""Serves the agent of the benchmark in a framework: python3 scripts/agent.py starlette.

It gets its role and orders as lines of JSON, and answers each with the processor time that it has
used, in ns.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from toll import AsyncToll, Toll, asgi, wsgi  # noqa: E402

Shop = dict[str, Any]


def starlette(key: str, url: str, shop: Shop) -> tuple[Any, str]:
    """Returns the application and its interface."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def work(request: Any) -> Any:
        return JSONResponse({"characters": len(await request.body())})

    routes = [Route(path, work, methods=["POST"]) for path in ("/bare", "/behind")]
    app = Starlette(routes=[*routes, Route("/paid", asgi.paid(credits=1)(work), methods=["POST"])])
    gate = asgi.Middleware(app, AsyncToll(key, url), **shop)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope["path"] == "/bare" else gate)(scope, receive, send)

    return served, "asgi3"


def flask(key: str, url: str, shop: Shop) -> tuple[Any, str]:
    """Returns the application and its interface."""
    from flask import Flask, request

    app = Flask("bench")

    def work() -> Any:
        return {"characters": len(request.get_data())}

    app.post("/bare", endpoint="bare")(work)
    app.post("/behind", endpoint="behind")(work)
    app.post("/paid", endpoint="paid")(wsgi.paid(credits=1)(work))
    bare = app.wsgi_app
    gate = wsgi.Middleware(bare, Toll(key, url), **shop)
    return lambda environ, start: (bare if environ["PATH_INFO"] == "/bare" else gate)(environ, start), "wsgi"


def say(**more: str) -> None:
    print(json.dumps({**more, "CPU": time.process_time_ns()}), flush=True)


agent = json.loads(sys.stdin.readline())["Agent"]
shop: Shop = {"plan": agent["Plan"], "agent": agent["Agent"], "public_url": "http://127.0.0.1:1"}
app, interface = {"starlette": starlette, "flask": flask}[sys.argv[1]](agent["Key"], agent["URL"], shop)
# With the protocol named: otherwise asyncio leaves Nagle's algorithm on, which costs 40 ms.
listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
listening.listen(128)
config = uvicorn.Config(app, interface=interface, log_level="warning", lifespan="off")
run = uvicorn.Server(config).run
threading.Thread(target=run, kwargs={"sockets": [listening]}, daemon=True).start()
say(Addr=f"127.0.0.1:{listening.getsockname()[1]}")
for line in sys.stdin:
    say()
    if json.loads(line).get("Quit"):
        break
