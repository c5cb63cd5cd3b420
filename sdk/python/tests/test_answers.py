"""The middleware with a stand-in for the service: answers that name another request, headers, and callers who leave."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable

import pytest
from toll import AsyncToll, Toll, _core, _sale, asgi, mcp, wsgi
from toll._sale import Terms
from toll._wire import Answer, Headers, loads
from toll._x402 import decode_base64
from toll.asgi import HoldEnded, Price
from toll.http import Budget, LimitReached, Limits, Payment

TABLES = Path(__file__).parents[3] / "testdata" / "conformance" / "tables"
ANSWERS = json.loads((TABLES / "answers.json").read_text())
HEADERS = json.loads((TABLES / "headers.json").read_text())
CONTENT = "the paid content"
TOKEN = "e30.e30.sig"
PAID = {"success": True, "transaction": "0xabc", "network": "eip155:84532"}


class StandIn:
    """A service that holds 5 credits for request req_1, as a transport of both kinds."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.told: list[Any] = []
        self.alarms: list[Any] = []
        self.settle: Any = PAID
        self.renew: Any = ANSWERS["renew"][0]["body"]

    def answer(self, request: Any) -> Answer:
        op = request.url.split("?")[0].rsplit("/", 1)[-1]
        self.calls.append(op)
        answers = {
            "verify": {
                "isValid": True, "payer": "0x2", "agentRequestId": "req_1", "amount": "5",
                "extra": {"heldAmount": "5", "agentRequestId": "req_1", "holdExpiresAt": "2036-01-01T00:00:00.000Z"},
            },
            "settle": self.settle,
            "renew": self.renew,
            "release": {"success": True, "agentRequestId": "req_1", "status": "released", "released": "5"},
        }
        return Answer(200, Headers([("content-type", "application/json")]), json.dumps(answers[op]).encode())

    def count(self, op: str) -> int:
        return self.calls.count(op)

    @property
    def settings(self) -> dict[str, Any]:
        return {"plan": "7", "on_settled": self.told.append, "on_unsettled": self.alarms.append}


class Sync(StandIn):
    def send(self, request: Any) -> Answer:
        return self.answer(request)

    def close(self) -> None: ...


class Async(StandIn):
    async def send(self, request: Any) -> Answer:
        await asyncio.sleep(0)
        return self.answer(request)

    async def aclose(self) -> None: ...


class Got:
    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, [], b""  # type: ignore[var-annotated]

    def start(self, status: str, headers: Any, exc_info: Any = None) -> Any:
        self.status, self.headers = int(status[:3]), [(n.lower(), v) for n, v in headers]

    def get(self, name: str) -> str | None:
        return dict(self.headers).get(name)


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop of a server."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, daemon=True).start()
    return made


def on_loop(work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop()).result(20)


def known(gate: Any) -> Any:
    """Gives a middleware the terms of plan 7, which no test reads."""
    terms = Terms("7", "svc:erc4337", "eip155:84532", "0x1", 1, 10, False, "http://toll.test/api/v1", "")
    gate.seller._terms["7"] = terms, time.monotonic() + 1000
    return gate


def eventually(check: Callable[[], Any], what: str = "") -> None:
    end = time.monotonic() + 10
    while not check():
        assert time.monotonic() < end, what or "it did not happen"
        time.sleep(0.01)


Said = tuple[int, list[tuple[str, str]], Any]  # status, headers, and an iterable of parts


class Front:
    """A paid application, called as a server calls it."""

    def __init__(self, name: str, price: Price, handle: Callable[[dict[str, str]], Said], **more: Any) -> None:
        self.name, self.handle = name, handle
        self.svc: Any = Sync() if name == "wsgi" else Async()
        settings = {**self.svc.settings, "price": price, "public_url": "http://agent.test", **more}
        if name == "wsgi":
            self.gate: Any = wsgi.Middleware(self.wsgi, Toll("sandbox:a.b.c", "http://toll.test", transport=self.svc), **settings)
        else:
            self.gate = asgi.Middleware(self.asgi, AsyncToll("sandbox:a.b.c", "http://toll.test", transport=self.svc), **settings)
        known(self.gate)

    def wsgi(self, environ: Any, start_response: Any) -> Any:
        names = {n[5:].lower().replace("_", "-"): v for n, v in environ.items() if n.startswith("HTTP_")}
        status, headers, parts = self.handle(names)
        start_response(f"{status} Said", headers)
        return (p.encode() for p in parts)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        status, headers, parts = self.handle({n.decode(): v.decode() for n, v in scope["headers"]})
        lines = [(n.encode(), v.encode()) for n, v in headers]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        rest = iter(parts)
        while (p := await asyncio.to_thread(next, rest, None)) is not None:
            await send({"type": "http.response.body", "body": p.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def ask(self, headers: dict[str, str] | None = None) -> Got:
        sent = {"payment-signature": TOKEN, **(headers or {})}
        return self._ask_wsgi(sent) if self.name == "wsgi" else on_loop(self._ask_asgi(sent))

    def _ask_wsgi(self, sent: dict[str, str]) -> Got:
        got = Got()
        result = self.gate(environ(sent), got.start)
        try:
            for part in result:
                got.body += part
        except HoldEnded:
            got.body += b" cut"
        finally:
            getattr(result, "close", lambda: None)()
        return got

    async def _ask_asgi(self, sent: dict[str, str]) -> Got:
        got, messages = Got(), [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            return messages.pop() if messages else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                got.start(str(message["status"]), [(n.decode(), v.decode()) for n, v in message["headers"]])
            got.body += message.get("body", b"")

        lines = [(n.encode(), v.encode()) for n, v in sent.items()]
        scope = {"type": "http", "method": "GET", "path": "/ask", "headers": lines, "query_string": b""}
        try:
            await self.gate(scope, receive, send)
        except HoldEnded:
            got.body += b" cut"
        return got


def environ(sent: dict[str, str]) -> dict[str, Any]:
    names = {"HTTP_" + n.upper().replace("-", "_"): v for n, v in sent.items()}
    return {"REQUEST_METHOD": "GET", "PATH_INFO": "/ask", "wsgi.input": io.BytesIO(), **names}


EVENTS = [("content-type", "text/event-stream")]
PLAIN: list[tuple[str, str]] = [("content-type", "text/plain")]
METERED = Price(lambda work: 5, max_credits=5)
#: The ways in which an answer leaves: its price, its status and its headers.
KINDS: dict[str, tuple[Price, int, list[tuple[str, str]]]] = {
    "whole": (Price(5), 200, PLAIN), "stream": (Price(5), 200, EVENTS), "metered stream": (METERED, 200, EVENTS),
    "error": (Price(5), 404, PLAIN), "stream of an error": (Price(5), 404, EVENTS),
}
BOTH = pytest.mark.parametrize("name", ["asgi", "wsgi"])


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "backoff", lambda *a: 0.0)


def priced(credits: int, metered: bool) -> Price:
    return Price(lambda work: credits, max_credits=5) if metered else Price(credits)


@BOTH
def test_an_answer_to_something_else_settles_nothing(name: str) -> None:
    assert len(ANSWERS["settle"]) >= 11
    for c in ANSWERS["settle"]:
        front = Front(name, Price(int(c["amount"])), lambda _: (200, PLAIN, [CONTENT]))
        svc, front.svc.settle = front.svc, c["body"]
        got = front.ask()
        want = {"paid": (200, 1, 0), "refused": (402, 1, 1), "unknown": (503, 3, 0)}[c["outcome"]]
        assert (got.status, svc.count("settle"), svc.count("release")) == want, c["name"]
        assert (CONTENT.encode() in got.body) == (c["outcome"] == "paid"), c["name"]
        assert len(svc.told) == 1, c["name"]
        if c["outcome"] == "unknown":
            receipt = loads(decode_base64(got.get("payment-response") or "") or b"")
            assert (receipt["success"], receipt["transaction"], receipt["extra"]["agentRequestId"]) == (False, "", "req_1")
            assert json.loads(got.body)["code"] == "BCK.X402.0914"
            assert svc.told[0].error_reason == "settlement_pending", c["name"]


@BOTH
def test_a_stream_that_was_settled_by_an_answer_to_something_else_is_settled_later(name: str) -> None:
    for c in ANSWERS["settle"]:
        front = Front(name, priced(int(c["amount"]), metered=True), lambda _: (200, EVENTS, [CONTENT]), queue=wsgi.Queue())
        svc, front.svc.settle, unknown = front.svc, c["body"], c["outcome"] == "unknown"
        got = front.ask()
        assert (got.status, got.body) == (200, CONTENT.encode()), c["name"]
        assert [u.final for u in svc.alarms] == {"paid": [], "refused": [True], "unknown": [False]}[c["outcome"]], c["name"]
        assert len(front.gate.queue) == unknown, c["name"]
        svc.settle = PAID
        assert front.gate.queue.drain(10) and len(front.gate.queue) == 0
        assert svc.count("settle") == 1 + unknown, c["name"]
        assert svc.told[-1].success == (c["outcome"] != "refused"), c["name"]


@BOTH
def test_the_renewal_of_another_request_renews_nothing(name: str) -> None:
    """The event stream lasts longer than its hold of a second."""
    assert len(ANSWERS["renew"]) >= 2

    for c in ANSWERS["renew"]:
        def parts() -> Any:
            for i in range(14):
                yield f"data: {i}\n\n"
                time.sleep(0.1)
            yield "data: last\n\n"

        front = Front(name, METERED, lambda _: (200, EVENTS, parts()), hold_secs=1)
        front.svc.renew = c["body"]
        got = front.ask()
        assert front.svc.count("renew") > 0, c["name"]
        assert (b"data: last" in got.body) == c["good"], (c["name"], got.body)
        assert (b"The hold for this stream" in got.body) != c["good"], (c["name"], got.body)
        assert front.svc.count("settle") == 1 and front.svc.told[0].success, c["name"]


def stripped(kind: str) -> dict[str, str]:
    """Returns the names that the middlewares of all languages strip, with a value each."""
    names: dict[str, str] = HEADERS[kind]
    assert len(names) >= {"request": 15, "answer": 7, "caches": 5}[kind]
    return names


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_T90_each_header_of_an_answer_is_stripped(name: str, kind: str) -> None:
    price, status, headers = KINDS[kind]
    said: list[tuple[str, str]] = []
    front = Front(name, price, lambda _: (status, [*headers, ("x-kept", "1"), *said], [CONTENT]))
    for n, value in stripped("answer").items():
        for spelling in (n, n.upper(), n.replace("-", "_"), n.upper().replace("-", "_")):
            said[:] = [(spelling, value)]
            got = front.ask()
            assert (got.status, got.get("x-kept"), got.body) == (status, "1", CONTENT.encode()), spelling
            assert value not in [v for _, v in got.headers], f"{spelling} of a {kind}"


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_T99_each_header_that_speaks_to_shared_caches_is_stripped(name: str, kind: str) -> None:
    price, status, headers = KINDS[kind]
    said: list[tuple[str, str]] = []
    front = Front(name, price, lambda _: (status, [*headers, ("x-kept", "1"), *said], [CONTENT]))
    for n, value in stripped("caches").items():
        said[:] = [(n, value)]
        got = front.ask()
        assert (got.status, got.get("x-kept"), got.get(n)) == (status, "1", None), n
    for word in ("public", "s-maxage=9", "proxy-revalidate", "private"):
        said[:] = [("cache-control", f"{word}, max-age=9")]
        assert front.ask().get("cache-control") == "private, max-age=9", word


@BOTH
def test_T90_each_header_of_a_request_is_stripped(name: str) -> None:
    seen: dict[str, str] = {}

    def handle(headers: dict[str, str]) -> Said:
        seen.update(headers)
        return 200, PLAIN, [CONTENT]

    front = Front(name, Price(5), handle)
    other = Front(name, Price(5), handle, token_headers=["x-token"])
    for n, value in stripped("request").items():
        for asked, more in ((front, {}), (other, {"x-token": TOKEN, "payment-signature": "x"})):
            for spelling in (n, n.replace("-", "_")):
                seen.clear()
                assert asked.ask({**more, spelling: value, "x-kept": "1"}).status == 200, spelling
                names = {h.lower().replace("_", "-") for h in seen}
                assert "x-kept" in names and not names & {n, "payment-signature", "x-token"}, (spelling, names)
    seen.clear()
    assert front.ask({"payment-signature": "", "x-payment": "e30="}).status == 402
    assert front.ask({"x-payment": "e30="}).status == 400
    assert not seen


@BOTH
def test_T90_a_free_route_sees_no_payment(name: str) -> None:
    seen: dict[str, str] = {}
    front = Front(name, None, lambda headers: seen.update(headers) or (200, PLAIN, ["free"]))  # type: ignore[arg-type,func-returns-value]
    for n in (*stripped("request"), "payment-signature", "x-payment"):
        seen.clear()
        sent = {"payment-signature": "", n: HEADERS["request"].get(n, "e30="), "x-kept": "1"}
        assert front.ask(sent).body == b"free", n
        assert "x-kept" in seen and n not in seen, n


@BOTH
def test_callbacks_that_fail_change_nothing(name: str) -> None:
    """A settlement that was reported to such a callback is delivered, and a stream that waits gives its place back."""
    def fail(_: Any) -> None:
        raise RuntimeError("the callback failed")

    failing: dict[str, Any] = {"on_settled": fail, "on_unsettled": fail}
    assert Front(name, Price(5), lambda _: (200, PLAIN, [CONTENT]), **failing).ask().body == CONTENT.encode()
    front = Front(name, METERED, lambda _: (200, EVENTS, [CONTENT]), queue=wsgi.Queue(), **failing)
    front.svc.settle = ANSWERS["settle"][2]["body"]
    assert front.ask().body == CONTENT.encode() and len(front.gate.queue) == 1
    front.svc.settle = PAID
    assert front.gate.queue.drain(10) and len(front.gate.queue) == 0


@BOTH
def test_a_queue_gives_places_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue takes a stream again once another one was settled, and a second drain works like the first."""
    monkeypatch.setattr(_sale, "MAX_UNSETTLED", 1)
    front = Front(name, METERED, lambda _: (200, EVENTS, [CONTENT]), queue=wsgi.Queue())
    queue, svc, lost = front.gate.queue, front.svc, ANSWERS["settle"][2]["body"]
    for turn in range(2):
        svc.settle, svc.alarms[:] = lost, []
        for _ in range(2):
            front.ask()
        assert [(u.final, "full" in u.reason) for u in svc.alarms] == [(False, False), (True, True)], turn
        assert not queue.drain(0.01) and not queue._hurry and len(queue) == 1
        svc.settle = PAID
        assert queue.drain(10) and len(queue) == 0, turn


def closes(result: Any) -> None:
    next(result)
    result.close()


def raises(*_: Any) -> Any:
    raise RuntimeError("the application failed")


class Fails:
    """An answer whose end fails."""

    def __iter__(self) -> Any:
        yield b"x"

    close = raises


def begins(start: Any, parts: Any, headers: Any = EVENTS) -> Any:
    start("200 Said", headers)
    return parts


#: Ways in which an answer ends, with the application and the server.
ENDS: dict[str, tuple[Any, Any]] = {
    "closed in the middle": (lambda e, start: begins(start, iter([b"a", b"b"])), closes),
    "closed before its beginning": (lambda e, start: begins(start, iter([b"a", b"b"])), lambda r: r.close()),
    "whole": (lambda e, start: begins(start, iter([b"a"]), PLAIN), list),
    "a whole stream": (lambda e, start: begins(start, iter([b"a"])), list),
    "fails": (raises, list),
    "fails in the middle": (lambda e, start: begins(start, map(raises, [1])), list),
    "fails at its end": (lambda e, start: begins(start, Fails(), PLAIN), list),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_an_answer_ends_the_renewals_of_its_hold(end: str) -> None:
    """The server has closed the answer: the caller has its end, or has gone."""
    app, serve = ENDS[end]
    front = Front("wsgi", METERED, lambda _: (200, PLAIN, []))
    queue = front.gate.queue

    def keeping() -> Any:
        return asyncio.all_tasks(queue.loop())

    def late(environ: Any, start_response: Any) -> Any:
        eventually(keeping, "nothing renews the hold")
        return app(environ, start_response)

    front.gate.app = late
    try:
        serve(front.gate(environ({"payment-signature": TOKEN}), Got().start))
    except RuntimeError as e:
        assert end.startswith("fails") and "application failed" in str(e)
    eventually(lambda: not keeping(), "the hold is renewed")
    assert front.svc.count("settle") + front.svc.count("release") == 1, front.svc.calls


class Call:
    """A paid call of an MCP server whose caller leaves or stays."""

    def __init__(self, app: Any, **more: Any) -> None:
        self.svc, self.sent, self.gone = Async(), b"", asyncio.Event()

        async def noted(*given: Any) -> None:
            self.svc.calls.append("run")
            await app(*given)

        client = AsyncToll("sandbox:a.b.c", "http://toll.test", transport=self.svc)
        self.gate = known(mcp.Middleware(noted, client, tools={"t": Price(5)}, **self.svc.settings, **more))

    async def run(self) -> None:
        params = {"name": "t", "_meta": {"x402/payment": TOKEN}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            if not messages:
                await asyncio.Event().wait()  # it was said once
            message = messages.pop(0)
            if message["type"] == "http.disconnect":
                await self.gone.wait()
            return message

        async def send(message: Any) -> None:
            self.sent += message.get("body", b"")

        await self.gate({"type": "http", "method": "POST", "path": "/mcp", "headers": []}, receive, send)


def result_of(seconds: float) -> Any:
    """Returns a server whose tool takes so long."""
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(seconds)
        message = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": CONTENT}]}}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(message).encode()})

    return app


def test_an_answer_to_something_else_settles_no_call() -> None:
    for c in ANSWERS["settle"]:
        call = Call(result_of(0))
        call.svc.settle = c["body"]
        if c["amount"] == "0":
            continue  # a call that costs nothing is not settled
        asyncio.run(call.run())
        unknown = c["outcome"] == "unknown"
        assert (CONTENT.encode() in call.sent) == (c["outcome"] == "paid"), c["name"]
        assert (b"settlement pending" in call.sent) == unknown, c["name"]
        assert (call.svc.count("settle"), call.svc.count("release")) == (3 if unknown else 1, c["outcome"] == "refused"), c["name"]


@pytest.mark.parametrize("leaves, seconds", [("never", 1.6), ("at once", 30), ("at once", 0.3), ("before", 30)])
def test_a_call_is_renewed_until_its_caller_leaves(leaves: str, seconds: float) -> None:
    """From then on it has the rest of its hold."""
    call = Call(result_of(seconds), hold_secs=1)

    async def run() -> None:
        if leaves == "before":
            call.gone.set()
        work = asyncio.ensure_future(call.run())
        await asyncio.sleep(0.1)
        if leaves == "at once":
            call.gone.set()
        await asyncio.wait_for(work, 10)

    asyncio.run(run())
    svc = call.svc
    if leaves == "never":
        assert svc.count("renew") >= 2 and (svc.count("settle"), svc.count("release")) == (1, 0), svc.calls
        assert CONTENT.encode() in call.sent
    elif seconds < 1:
        assert (svc.count("renew"), svc.count("settle"), svc.count("release")) == (0, 1, 0), svc.calls
    else:
        assert (svc.count("renew"), svc.count("settle"), svc.count("release")) == (0, 0, 1), svc.calls
        assert not call.sent and svc.count("run") == (leaves != "before")


def test_a_server_hears_of_a_caller_who_leaves() -> None:
    """The middleware listens too, and passes the message on."""
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.extend([(await receive())["type"] for _ in range(2)])

    call = Call(app)

    async def run() -> None:
        work = asyncio.ensure_future(call.run())
        await asyncio.sleep(0.05)
        call.gone.set()
        await asyncio.wait_for(work, 10)

    asyncio.run(run())
    assert heard == ["http.request", "http.disconnect"] and call.svc.count("release") >= 1


def test_a_budget_gives_limits_back() -> None:
    """What a payment turns out not to cost can be spent again, after the second payment as after the first."""
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    b = Budget(Limits(hosts=["h"], credits_per_call=5, credits=12, credits_per_day=6))

    def take(id: str, most: int, at: datetime = noon, **ends: Any) -> bool:
        p = Payment(id, at, "h", "GET", "/", "1", most)
        try:
            b.take(p)
        except LimitReached:
            return False
        if ends:
            b.close(replace(p, **ends))
        return True

    for i in range(2):
        assert take(f"refused {i}", 5, state="refused") and b.spent == i
        assert take(f"less {i}", 5, state="paid", spent=1) and b.spent == i + 1
    assert take("unknown", 4, state="unknown") and b.spent == 6
    assert not take("too much for the day", 1)
    assert not take("still the same day", 1, noon + timedelta(hours=23))
    assert take("a day later", 5, noon + timedelta(hours=25)) and b.spent == 11
    assert not take("too much in all", 2, noon + timedelta(hours=50))
    assert take("the rest", 1, noon + timedelta(hours=50)) and b.spent == 12
