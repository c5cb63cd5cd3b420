"""Paying HTTP requests, for urllib, requests, and httpx.

    import httpx
    from toll import Toll
    from toll.http import Budget, HTTPXPayer, Limits

    budget = Budget(Limits(hosts=["agent.example.com"], credits_per_call=5, credits=100))
    with httpx.Client(transport=HTTPXPayer(Toll(), budget)) as http:
        answer = http.post("https://agent.example.com/ask", json={"q": "?"})
        answer.raise_for_status()
        print(answer.json(), budget.spent)

A payer pays a 402 response of an x402 server within the limits, and repeats the request with the
payment. The credits of the client pay, or a wallet without a client: HTTPXPayer(None, budget,
wallet=account) pays entries of scheme exact in USDC and EURC, where account comes from eth_account or
has the two members of Wallet. A request is paid at most once, whatever the server responds. If no
response arrives, the outcome of the payment is unknown: PaymentError with sent. A redirect is a
separate request and does not get the payment. A server only gets payments for its resources, and for
agents that are registered at it. The payers of httpx also pay for calls to MCP servers, whose refusals
are in band. A 402 response without x402 version 2, or to a request that already has a payment, is
returned unchanged.
"""

from __future__ import annotations

import io
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterable, Iterator

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
    Unit,
    Wallet,
    host_of,
)
from ._mcp_buy import Answering, Call
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
    "Unit",
    "Wallet",
    "check",
    "host_of",
    "paying_opener",
]


def challenge_of(status: int, headers: Headers, body: bytes) -> Any:
    """Returns the payment requirements of a response, or None if it has no valid requirements."""
    return _x402.read_challenge(headers, body) if status == 402 else None


def check(client: Toll, budget: Budget) -> None:
    """Reads the outcome of sent and unknown payments from the service, and records it.

    It revokes their access tokens: call it while no request is running.
    """
    buyer = Buyer(client._config, budget)
    for p in budget.payments:
        _core.run(buyer.check(p), client._transport)


class _Sync:
    """Base of the synchronous adapters."""

    def __init__(self, client: Toll | None, budget: Budget, **settings: Any) -> None:
        if not isinstance(client, (Toll, type(None))):
            raise TypeError("this adapter requires a Toll client, or None to pay only with a wallet")
        # Without a client, the steps send nothing.
        self._transport: Any = client._transport if client else None
        self.buyer = Buyer(client._config if client else None, budget, **settings)

    def pay(self, method: str, url: str, challenge: Any) -> Made:
        return _core.run(self.buyer.pay(Asked(method, url, challenge)), self._transport)

    def finish(self, made: Made, status: int, headers: Headers) -> None:
        _core.run(self.buyer.finish(made, status, headers), self._transport)

    def pay_call(self, asked: Asked) -> Made:
        return _core.run(self.buyer.pay(asked), self._transport)

    def finish_call(self, made: Made, answer: Any) -> None:
        _core.run(self.buyer.ended(made, *Call.outcome(answer)), self._transport)


class _Handler(urllib.request.BaseHandler):
    """Handles 402 responses for urllib."""

    def __init__(self, payer: _Sync) -> None:
        self._payer = payer

    def http_error_402(self, req: Any, fp: Any, code: int, msg: str, hdrs: Any) -> Any:
        """Pays and repeats the request."""
        body = fp.read(MAX_REFUSAL + 1)
        challenge = challenge_of(402, Headers(list(hdrs.items())), body)
        if challenge is None or req.has_header("Payment-signature"):
            raise urllib.error.HTTPError(req.full_url, code, msg, hdrs, io.BytesIO(body))
        if req.data is not None and not isinstance(req.data, bytes):
            raise PaymentError(
                host_of(req.full_url), "the request body cannot be sent again with the payment: pass bytes"
            )
        made = self._payer.pay(req.get_method(), req.full_url, challenge)
        second = urllib.request.Request(
            req.full_url, req.data, dict(req.headers), req.origin_req_host, req.unverifiable,
            req.get_method(),
        )
        # urllib does not copy this header to a redirect.
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
    client: Toll | None,
    budget: Budget,
    *handlers: Any,
    wallet: Wallet | None = None,
    plans: Iterable[str] = (),
    hosts: Iterable[str] = (),
    agent: str | None = None,
    delegation_id: str | None = None,
) -> urllib.request.OpenerDirector:
    """Returns a urllib opener that pays. wallet pays entries of scheme exact. plans are the plans whose
    credits may be spent; without plans, credits of any plan may be spent. hosts may sell these plans
    although the records of their agents have no host. agent is the only agent to pay. delegation_id
    buys one more order when credits are short."""
    payer = _Sync(
        client, budget, wallet=wallet, plans=plans, hosts=hosts, agent=agent,
        delegation_id=delegation_id,
    )
    return urllib.request.build_opener(_Handler(payer), *handlers)


def _httpx_classes() -> tuple[Any, Any]:
    import httpx

    def lines(res: httpx.Response) -> Headers:
        return Headers([(n.decode("latin-1"), v.decode("latin-1")) for n, v in res.headers.raw])

    def again(request: httpx.Request, content: bytes, made: Made | None) -> httpx.Request:
        headers = httpx.Headers(request.headers)
        headers.pop("content-length", None)
        if made is not None:
            headers[_x402.SIGNATURE] = made.header
        return httpx.Request(
            request.method, request.url, headers=headers, content=content,
            extensions=request.extensions,
        )

    def behind(res: httpx.Response, body: bytes) -> httpx.Response:
        """Returns the refusal with the body read so far."""
        headers = [(n, v) for n, v in res.headers.raw if n.lower() != b"content-encoding"]
        headers = [(n, v) for n, v in headers if n.lower() != b"content-length"]
        return httpx.Response(402, headers=headers, content=body, extensions=res.extensions)

    def call_of(request: httpx.Request, content: bytes) -> Call | None:
        """Returns the MCP call in a request, and requests an uncompressed response."""
        kind = request.headers.get("content-type", "")
        call = Call.read(request.method, kind, content) if len(content) <= MAX_BODY else None
        if call is not None:
            request.headers["accept-encoding"] = "identity"
        return call

    def kind_of(res: httpx.Response) -> str:
        return str(res.headers.get("content-type", ""))

    class Ahead(httpx.SyncByteStream, httpx.AsyncByteStream):
        """A body whose first parts have been read."""

        def __init__(self, parts: list[bytes], rest: Any, res: httpx.Response) -> None:
            self._parts, self._rest, self._res = parts, rest, res

        def __iter__(self) -> Iterator[bytes]:
            yield from self._parts
            yield from self._rest

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for part in self._parts:
                yield part
            async for part in self._rest:
                yield part

        def close(self) -> None:
            self._res.close()

        async def aclose(self) -> None:
            await self._res.aclose()

    def ahead(res: httpx.Response, found: Answering, rest: Any) -> httpx.Response:
        return httpx.Response(
            res.status_code, headers=res.headers.raw, stream=Ahead(found.parts, rest, res),
            extensions=res.extensions,
        )

    def look(
        res: httpx.Response, call: Call, patient: bool = False
    ) -> tuple[Any, httpx.Response]:
        """Returns the answer to a call, or None if it is not found, and the unread response."""
        found, rest = Answering(call, kind_of(res), patient), iter(res.stream)  # type: ignore[arg-type]
        for part in rest:
            if not found.feed(part):
                break
        else:
            found.end()
        return found.answer, ahead(res, found, rest)

    async def look_async(
        res: httpx.Response, call: Call, patient: bool = False
    ) -> tuple[Any, httpx.Response]:
        found = Answering(call, kind_of(res), patient)
        rest = res.stream.__aiter__()  # type: ignore[union-attr]
        async for part in rest:
            if not found.feed(part):
                break
        else:
            found.end()
        return found.answer, ahead(res, found, rest)

    class HTTPXPayer(httpx.BaseTransport):
        """A transport of httpx.Client that pays, on top of another transport."""

        def __init__(
            self, client: Toll | None, budget: Budget, inner: httpx.BaseTransport | None = None,
            **settings: Any,
        ) -> None:
            self._payer = _Sync(client, budget, **settings)
            self._inner = inner or httpx.HTTPTransport()

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            """Sends the request, and pays for it if required."""
            if _x402.SIGNATURE in request.headers:
                return self._inner.handle_request(request)
            content = request.read()
            call = call_of(request, content)
            res = self._inner.handle_request(request)
            if call is not None and res.status_code == 200:
                return self._pay_call(call, request, res)
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
                raise PaymentError(host_of(url), "the request body is longer than 4 MiB")
            made = self._payer.pay(request.method, url, challenge)
            try:
                res = self._inner.handle_request(again(request, content, made))
            except Exception as e:
                raise self._payer.buyer.lost(made, str(e)) from e
            self._payer.finish(made, res.status_code, lines(res))
            return res

        def _pay_call(self, call: Call, request: httpx.Request, res: httpx.Response) -> httpx.Response:
            answer, res = look(res, call)
            asked = call.asked(str(request.url), answer)
            if asked is None:
                return res
            res.close()
            made = self._payer.pay_call(asked)
            try:
                second = again(request, call.paid(made), None)
                answer, res = look(self._inner.handle_request(second), call, True)
            except Exception as e:
                raise self._payer.buyer.lost(made, str(e)) from e
            self._payer.finish_call(made, answer)
            return res

        def close(self) -> None:
            """Closes the inner transport."""
            self._inner.close()

    class AsyncHTTPXPayer(httpx.AsyncBaseTransport):
        """A transport of httpx.AsyncClient that pays, on top of another transport."""

        def __init__(
            self, client: AsyncToll | None, budget: Budget,
            inner: httpx.AsyncBaseTransport | None = None, **settings: Any,
        ) -> None:
            if not isinstance(client, (AsyncToll, type(None))):
                raise TypeError(
                    "this adapter requires an AsyncToll client, or None to pay only with a wallet"
                )
            self._transport: Any = client._transport if client else None
            self._buyer = Buyer(client._config if client else None, budget, **settings)
            self._inner = inner or httpx.AsyncHTTPTransport()

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            """Sends the request, and pays for it if required."""
            if _x402.SIGNATURE in request.headers:
                return await self._inner.handle_async_request(request)
            content = await request.aread()
            call = call_of(request, content)
            res = await self._inner.handle_async_request(request)
            if call is not None and res.status_code == 200:
                return await self._pay_call(call, request, res)
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
                raise PaymentError(host_of(url), "the request body is longer than 4 MiB")
            asked = Asked(request.method, url, challenge)
            made = await _core.run_async(self._buyer.pay(asked), self._transport)
            try:
                res = await self._inner.handle_async_request(again(request, content, made))
            except BaseException as e:
                lost = self._lost(made, e)
                if not isinstance(e, Exception):
                    raise  # a canceled request: its payment counts in full
                raise lost from e
            finish = self._buyer.finish(made, res.status_code, lines(res))
            await _core.run_async(finish, self._transport)
            return res

        async def _pay_call(
            self, call: Call, request: httpx.Request, res: httpx.Response
        ) -> httpx.Response:
            answer, res = await look_async(res, call)
            asked = call.asked(str(request.url), answer)
            if asked is None:
                return res
            await res.aclose()
            made = await _core.run_async(self._buyer.pay(asked), self._transport)
            try:
                second = again(request, call.paid(made), None)
                res = await self._inner.handle_async_request(second)
                answer, res = await look_async(res, call, True)
            except BaseException as e:
                lost = self._lost(made, e)
                if not isinstance(e, Exception):
                    raise  # a canceled request: its payment counts in full
                raise lost from e
            ended = self._buyer.ended(made, *Call.outcome(answer))
            await _core.run_async(ended, self._transport)
            return res

        def _lost(self, made: Made, e: BaseException) -> PaymentError:
            return self._buyer.lost(made, str(e) or type(e).__name__)

        async def aclose(self) -> None:
            """Closes the inner transport."""
            await self._inner.aclose()

    return HTTPXPayer, AsyncHTTPXPayer


def _requests_class() -> Any:
    import requests
    from requests.adapters import HTTPAdapter

    def lines(res: requests.Response) -> Headers:
        return Headers(list(res.headers.items()))

    class RequestsPayer(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        """An adapter of requests that pays: session.mount("https://", RequestsPayer(...))."""

        def __init__(self, client: Toll | None, budget: Budget, **settings: Any) -> None:
            self._payer = _Sync(client, budget, **settings)
            super().__init__()

        def send(self, request: requests.PreparedRequest, *args: Any, **kw: Any) -> Any:
            """Sends the request, and pays for it if required."""
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
                raise PaymentError(
                    host_of(url), "the request body cannot be sent again with the payment: pass bytes"
                )
            if data is not None and len(data) > MAX_BODY:
                raise PaymentError(host_of(url), "the request body is longer than 4 MiB")
            made = self._payer.pay(request.method or "GET", url, challenge)
            second = request.copy()
            second.headers[_x402.SIGNATURE] = made.header
            try:
                res = super().send(second, *args, **kw)
            except Exception as e:
                raise self._payer.buyer.lost(made, str(e)) from e
            # A redirect is a separate request and does not get the payment.
            res.request = request
            self._payer.finish(made, res.status_code, lines(res))
            return res

    return RequestsPayer


def __getattr__(name: str) -> Any:
    """Creates the classes for httpx and requests on first use, because both are optional."""
    if name in ("HTTPXPayer", "AsyncHTTPXPayer"):
        made = dict(zip(("HTTPXPayer", "AsyncHTTPXPayer"), _httpx_classes()))
        globals().update(made)
        return made[name]
    if name == "RequestsPayer":
        globals()[name] = _requests_class()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
