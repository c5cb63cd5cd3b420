"""Requests that pay: for urllib, requests and httpx.

    import httpx
    from toll import Toll
    from toll.http import Budget, HTTPXPayer, Limits

    budget = Budget(Limits(hosts=["agent.example.com"], credits_per_call=5, credits=100))
    with httpx.Client(transport=HTTPXPayer(Toll(), budget)) as http:
        print(http.post("https://agent.example.com/ask", json={"q": "?"}).json(), budget.spent)

An answer 402 of a server that speaks x402 is paid with credits, within the limits, and the request
is made once more. A request is paid at most once, whatever the server answers, and an answer that
does not come leaves the payment open: PaymentError with sent. Redirects are requests of their own:
a payment does not go along. A server gets a payment for a resource of its own and for an agent that
is registered at it alone. An answer 402 that is not x402 version 2, and one to a request that
brings a payment of its own, is returned as it is.
"""

from __future__ import annotations

import io
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Iterable

from . import _core, _x402
from ._buy import (
    MAX_BODY,
    MAX_REFUSAL,
    Asked,
    Budget,
    Buyer,
    LimitReached,
    Limits,
    Made,
    Payment,
    PaymentError,
    host_of,
)
from ._wire import Headers
from .client import AsyncToll, Toll

if TYPE_CHECKING:
    import httpx
    import requests

__all__ = [
    "Budget",
    "LimitReached",
    "Limits",
    "Payment",
    "PaymentError",
    "check",
    "host_of",
    "paying_opener",
]


def challenge_of(status: int, headers: Headers, body: bytes) -> Any:
    """Returns what an answer asks for, None when it asks for nothing that could be paid."""
    return _x402.read_challenge(headers, body) if status == 402 else None


def check(client: Toll, budget: Budget) -> None:
    """Asks the service what became of payments that are sent or unknown, and records that.

    It ends their access tokens: call it when no request is under way.
    """
    buyer = Buyer(client._config, budget)
    for p in budget.payments:
        _core.run(buyer.check(p), client._transport)


class _Sync:
    """What synchronous adapters share."""

    def __init__(self, client: Toll, budget: Budget, **settings: Any) -> None:
        if not isinstance(client, Toll):
            raise TypeError("this adapter needs a Toll")
        self._client = client
        self.buyer = Buyer(client._config, budget, **settings)

    def pay(self, method: str, url: str, challenge: Any) -> Made:
        return _core.run(self.buyer.pay(Asked(method, url, challenge)), self._client._transport)

    def finish(self, made: Made, status: int, headers: Headers) -> None:
        _core.run(self.buyer.finish(made, status, headers), self._client._transport)


class _Handler(urllib.request.BaseHandler):
    """Answers 402 for urllib."""

    def __init__(self, payer: _Sync) -> None:
        self._payer = payer

    def http_error_402(self, req: Any, fp: Any, code: int, msg: str, hdrs: Any) -> Any:
        """Pays and opens the request once more."""
        body = fp.read(MAX_REFUSAL + 1)
        challenge = challenge_of(402, Headers(list(hdrs.items())), body)
        if challenge is None or req.has_header("Payment-signature"):
            raise urllib.error.HTTPError(req.full_url, code, msg, hdrs, io.BytesIO(body))
        if req.data is not None and not isinstance(req.data, bytes):
            raise PaymentError(host_of(req.full_url), "the body cannot be sent twice: give bytes")
        made = self._payer.pay(req.get_method(), req.full_url, challenge)
        second = urllib.request.Request(
            req.full_url, req.data, dict(req.headers), req.origin_req_host, req.unverifiable,
            req.get_method(),
        )
        # Not a header that a redirect would take along.
        second.add_unredirected_header("Payment-signature", made.header)
        try:
            res = self.parent.open(second, timeout=req.timeout)
        except urllib.error.HTTPError as e:
            self._payer.finish(made, e.code, Headers(list(e.headers.items())))
            raise
        except Exception as e:
            raise self._payer.buyer.lost(made, str(e)) from e
        self._payer.finish(made, res.status, Headers(list(res.headers.items())))
        return res


def paying_opener(
    client: Toll,
    budget: Budget,
    *handlers: Any,
    plans: Iterable[str] = (),
    hosts: Iterable[str] = (),
    agent: str | None = None,
    delegation_id: str | None = None,
) -> urllib.request.OpenerDirector:
    """Returns an opener of urllib that pays. The settings are those of a payer: plans whose credits
    may be spent (any for none), hosts at which they are sold where the records of agents name none,
    the one agent to pay, and a delegation that buys one more order when credits are short."""
    payer = _Sync(
        client, budget, plans=plans, hosts=hosts, agent=agent, delegation_id=delegation_id
    )
    return urllib.request.build_opener(_Handler(payer), *handlers)


def _httpx_classes() -> tuple[Any, Any]:
    import httpx

    def lines(res: httpx.Response) -> Headers:
        return Headers([(n.decode("latin-1"), v.decode("latin-1")) for n, v in res.headers.raw])

    def again(request: httpx.Request, content: bytes, made: Made) -> httpx.Request:
        second = httpx.Request(
            request.method, request.url, headers=request.headers, content=content,
            extensions=request.extensions,
        )
        second.headers[_x402.SIGNATURE] = made.header
        return second

    def behind(res: httpx.Response, body: bytes) -> httpx.Response:
        """The refusal with the body that was read of it."""
        headers = [(n, v) for n, v in res.headers.raw if n.lower() != b"content-encoding"]
        headers = [(n, v) for n, v in headers if n.lower() != b"content-length"]
        return httpx.Response(402, headers=headers, content=body, extensions=res.extensions)

    class HTTPXPayer(httpx.BaseTransport):
        """A transport of httpx.Client that pays, over another one."""

        def __init__(
            self, client: Toll, budget: Budget, inner: httpx.BaseTransport | None = None,
            **settings: Any,
        ) -> None:
            self._payer = _Sync(client, budget, **settings)
            self._inner = inner or httpx.HTTPTransport()

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            """Makes the request, and pays for it when it has to."""
            if _x402.SIGNATURE in request.headers:
                return self._inner.handle_request(request)
            content = request.read()
            res = self._inner.handle_request(request)
            if res.status_code != 402:
                return res
            body = bytearray()
            for part in res.iter_bytes():
                body += part
                if len(body) > MAX_REFUSAL:
                    break
            res.close()
            challenge = challenge_of(402, lines(res), bytes(body))
            if challenge is None:
                return behind(res, bytes(body))
            url = str(request.url)
            if len(content) > MAX_BODY:
                raise PaymentError(host_of(url), "the body is longer than 4 MiB")
            made = self._payer.pay(request.method, url, challenge)
            try:
                res = self._inner.handle_request(again(request, content, made))
            except Exception as e:
                raise self._payer.buyer.lost(made, str(e)) from e
            self._payer.finish(made, res.status_code, lines(res))
            return res

        def close(self) -> None:
            """Closes the transport below."""
            self._inner.close()

    class AsyncHTTPXPayer(httpx.AsyncBaseTransport):
        """A transport of httpx.AsyncClient that pays, over another one."""

        def __init__(
            self, client: AsyncToll, budget: Budget, inner: httpx.AsyncBaseTransport | None = None,
            **settings: Any,
        ) -> None:
            if not isinstance(client, AsyncToll):
                raise TypeError("this adapter needs an AsyncToll")
            self._client = client
            self._buyer = Buyer(client._config, budget, **settings)
            self._inner = inner or httpx.AsyncHTTPTransport()

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            """Makes the request, and pays for it when it has to."""
            if _x402.SIGNATURE in request.headers:
                return await self._inner.handle_async_request(request)
            content = await request.aread()
            res = await self._inner.handle_async_request(request)
            if res.status_code != 402:
                return res
            body = bytearray()
            async for part in res.aiter_bytes():
                body += part
                if len(body) > MAX_REFUSAL:
                    break
            await res.aclose()
            challenge = challenge_of(402, lines(res), bytes(body))
            if challenge is None:
                return behind(res, bytes(body))
            url = str(request.url)
            if len(content) > MAX_BODY:
                raise PaymentError(host_of(url), "the body is longer than 4 MiB")
            asked = Asked(request.method, url, challenge)
            made = await _core.run_async(self._buyer.pay(asked), self._client._transport)
            try:
                res = await self._inner.handle_async_request(again(request, content, made))
            except BaseException as e:
                lost = self._buyer.lost(made, str(e) or type(e).__name__)
                if not isinstance(e, Exception):
                    raise  # a cancelled request: its payment counts in full
                raise lost from e
            finish = self._buyer.finish(made, res.status_code, lines(res))
            await _core.run_async(finish, self._client._transport)
            return res

        async def aclose(self) -> None:
            """Closes the transport below."""
            await self._inner.aclose()

    return HTTPXPayer, AsyncHTTPXPayer


def _requests_class() -> Any:
    import requests
    from requests.adapters import HTTPAdapter

    def lines(res: requests.Response) -> Headers:
        return Headers(list(res.headers.items()))

    class RequestsPayer(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        """An adapter of requests that pays: session.mount("https://", RequestsPayer(...))."""

        def __init__(self, client: Toll, budget: Budget, **settings: Any) -> None:
            self._payer = _Sync(client, budget, **settings)
            super().__init__()

        def send(self, request: requests.PreparedRequest, *args: Any, **kw: Any) -> Any:
            """Makes the request, and pays for it when it has to."""
            res = super().send(request, *args, **kw)
            if res.status_code != 402 or _x402.SIGNATURE in request.headers:
                return res
            body = res.raw.read(MAX_REFUSAL + 1, decode_content=True)
            res.close()
            res._content, res._content_consumed = body, True
            challenge = challenge_of(402, lines(res), body)
            if challenge is None:
                return res
            url, data = request.url or "", request.body
            if data is not None and not isinstance(data, (bytes, str)):
                raise PaymentError(host_of(url), "the body cannot be sent twice: give bytes")
            if data is not None and len(data) > MAX_BODY:
                raise PaymentError(host_of(url), "the body is longer than 4 MiB")
            made = self._payer.pay(request.method or "GET", url, challenge)
            second = request.copy()
            second.headers[_x402.SIGNATURE] = made.header
            try:
                res = super().send(second, *args, **kw)
            except Exception as e:
                raise self._payer.buyer.lost(made, str(e)) from e
            # A redirect is a request of its own, to which no payment goes along.
            res.request = request
            self._payer.finish(made, res.status_code, lines(res))
            return res

    return RequestsPayer


def __getattr__(name: str) -> Any:
    """Makes the classes of httpx and requests when they are asked for, as neither is needed."""
    if name in ("HTTPXPayer", "AsyncHTTPXPayer"):
        made = dict(zip(("HTTPXPayer", "AsyncHTTPXPayer"), _httpx_classes()))
        globals().update(made)
        return made[name]
    if name == "RequestsPayer":
        globals()[name] = _requests_class()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
