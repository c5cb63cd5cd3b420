"""The decorator for paid handlers, for all frameworks."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
from typing import Any, Callable, Protocol, TypeVar, cast

from ._sale import (
    CallerGone,
    Credits,
    NotBehindMiddleware,
    Payment,
    Price,
    Refused,
    Reply,
    whole,
)

F = TypeVar("F", bound=Callable[..., Any])


class Current(Protocol):
    """The exchange of the current request."""

    payment: Payment | None

    def pay_now(self, price: Price) -> Reply | None:
        """Pays in a thread. Returns the response for an unpaid request."""

    async def pay_soon(self, price: Price) -> Reply | None:
        """Pays on the event loop. Returns the response for an unpaid request."""


current: contextvars.ContextVar[Current | None] = contextvars.ContextVar("toll", default=None)


def current_payment() -> Payment:
    """Returns the payment of the current request.

    Raises NotBehindMiddleware if the request is not paid.
    """
    x = current.get()
    if x is None or x.payment is None:
        raise NotBehindMiddleware()
    return x.payment


class Paid:
    """The price of a handler, as a decorator or a FastAPI dependency."""

    def __init__(self, price: Price) -> None:
        self.price = price

    def __call__(self, handler: F) -> F:
        """Returns the handler with its price. Its signature does not change."""
        if inspect.iscoroutinefunction(handler):

            @functools.wraps(handler)
            async def paid_async(*args: Any, **kwargs: Any) -> Any:
                reply = await self._exchange().pay_soon(self.price)
                if reply is not None:
                    return refused(reply, args)
                return await handler(*args, **kwargs)

            return cast(F, _signed(paid_async, handler))

        if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
            raise TypeError("a paid handler must not be a generator: return a streaming response instead")

        @functools.wraps(handler)
        def paid_sync(*args: Any, **kwargs: Any) -> Any:
            reply = self._exchange().pay_now(self.price)
            if reply is not None:
                return refused(reply, args)
            return handler(*args, **kwargs)

        return cast(F, _signed(paid_sync, handler))

    async def dependency(self) -> Payment:
        """Pays as a dependency: payment: Payment = Depends(paid(credits=2).dependency)."""
        x = self._exchange()
        reply = await x.pay_soon(self.price)
        if reply is not None:
            raise Refused(reply)
        assert x.payment is not None
        return x.payment

    @staticmethod
    def _exchange() -> Current:
        x = current.get()
        if x is None:
            raise NotBehindMiddleware()
        return x


def _signed(wrapper: Any, handler: Any) -> Any:
    """Copies the signature of the handler with resolved annotations, which frameworks read."""
    try:
        wrapper.__signature__ = inspect.signature(handler, eval_str=True)
    except (NameError, TypeError, ValueError, SyntaxError):
        wrapper.__signature__ = inspect.signature(handler)
    return wrapper


def paid(
    credits: Credits = 1,
    *,
    max_credits: int | None = None,
    plan: str | None = None,
    agent: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    hold_secs: int | None = None,
    stream: bool = False,
    caller_gone: CallerGone | None = None,
) -> Paid:
    """Puts a price on a handler of FastAPI, Starlette, Flask, or Django.

        @app.post("/ask")
        @paid(credits=2)
        async def ask(question: Question) -> Answer: ...

    Put it below the decorator of the route. credits is a number, or a function of the Work that runs
    after the handler; its result is capped at max_credits, by default the maximum of the plan.
    Omitted parameters use the setting of the middleware, which is required.
    """
    if not callable(credits):
        whole(credits)
    if hold_secs is not None and not 1 <= hold_secs <= 900:
        raise ValueError(f"hold_secs must be from 1 to 900; got {hold_secs}")
    return Paid(
        Price(
            credits, max_credits, plan, agent, description, mime_type, hold_secs, stream,
            caller_gone,
        )
    )


def refused(reply: Reply, args: tuple[Any, ...]) -> Any:
    """Ends an unpaid handler in the way of its framework, so that the framework logs no error.

    The middleware sends its own response instead.
    """
    django = sys.modules.get("django.http")
    if django is not None and any(isinstance(a, django.HttpRequest) for a in args[:2]):
        return django.HttpResponse(status=reply.status)
    flask: Any = sys.modules.get("flask")
    if flask is not None and flask.has_request_context():
        flask.abort(flask.Response(status=reply.status))
    raise Refused(reply)
