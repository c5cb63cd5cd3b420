"""An agent that dies at a moment that a test names: python3 killed.py PORT MOMENT."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from toll import AsyncToll
from toll._wire import Answer, Request
from toll.asgi import Middleware, paid
from toll.transport import ThreadTransport

MOMENT = sys.argv[2]


def die(moment: str) -> None:
    """Ends the process as a crash does."""
    if moment == MOMENT:
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(ThreadTransport):
    """Dies around calls of the service."""

    async def send(self, request: Request) -> Answer:
        op = request.url.rsplit("/", 1)[-1]
        die(f"before {op}")
        answer = await super().send(request)
        die(f"after {op}")
        return answer


@paid(credits=2)
async def ask(request: Any) -> Any:
    """Works, and may not come to its end."""
    die("in the handler")
    return PlainTextResponse("the paid content")


app = Starlette(routes=[Route("/ask", ask, methods=["POST"])])
sold = Middleware(app, AsyncToll(transport=Dying()), plan=os.environ["TOLL_PLAN"])
uvicorn.run(sold, port=int(sys.argv[1]), log_level="warning")
