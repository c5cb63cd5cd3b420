"""Every file of testdata/conformance against a service (testdata/conformance/README.md).

Requests go through the transports of the package, and each 2xx answer of an operation is read by
its record. Services run as `toll serve`; the one with stand-ins for chain and cards is given by
the Go test that runs this suite, in TOLL_TEST_RAIL as JSON: {"url", "keys"}.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from toll import TransportError
from toll._models import OPERATIONS
from toll._record import Record, Unreadable
from toll._wire import Answer, Headers, Request, dumps, loads
from toll.testing import Key, Service
from toll.transport import HTTPTransport, HTTPXTransport, ThreadTransport

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "testdata" / "conformance"
ROLES = ("builder", "otherBuilder", "subscriber", "stranger", "operator")
RAIL = json.loads(os.environ.get("TOLL_TEST_RAIL", "null"))
#: Seconds for what happens in the background of a service on a slow machine.
PATIENCE = 60.0
TYPES = {
    "hash": r"^0x[0-9a-f]{64}$",
    "address": r"^0x[0-9a-fA-F]{40}$",
    "uuid": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "id256": r"^[1-9][0-9]{0,77}$",
    "credits": r"^(0|[1-9][0-9]{0,18})$",
    "units": r"^(0|[1-9][0-9]{0,77})$",
    "cents": r"^(0|[1-9][0-9]{0,12})$",
    "reqid": r"^req_[0-9a-z]{1,124}$",
    "time": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
    "jwt": r"^[\w-]+\.[\w-]+\.[\w-]+$",
    "url": r"^https?://[^\s]+$",
    "text": r"(?s)^.+$",
}
MISSING = object()


class Receiver(ThreadingHTTPServer):
    """The runner's own web server."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {n.lower(): ", ".join(self.headers.get_all(n) or ()) for n in self.headers}
        self.server.got.append({"path": self.path, "headers": headers, "body": json.loads(body)})
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        path = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("path", [""])[0]
        body = json.dumps([c for c in self.server.got if c["path"] == path]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class Rail:
    """A service that was started for us."""

    url = RAIL["url"] if RAIL else ""

    def key(self, account: str, *, operator: bool = False) -> Key:
        query = urllib.parse.urlencode({"account": account, "operator": int(operator)})
        answer = HTTPTransport().send(Request("POST", f"{RAIL['keys']}?{query}", {}, b""))
        made = answer.json()
        return Key(made["address"], made["id"], made["key"])

    def stop(self) -> None:
        pass


class Async:
    """An asynchronous transport behind the synchronous interface, on a loop of its own."""

    def __init__(self, make: Any) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

        async def made() -> Any:
            return make()

        self.inner = asyncio.run_coroutine_threadsafe(made(), self.loop).result()

    def send(self, request: Request) -> Answer:
        return asyncio.run_coroutine_threadsafe(self.inner.send(request), self.loop).result()


def shown(v: Any) -> str:
    return "nothing" if v is MISSING else dumps(v).decode()


class Matcher:
    """Compares an answer with what a file wants."""

    def __init__(self, captured: dict[str, Any] | None = None) -> None:
        self.captured: dict[str, Any] = {} if captured is None else captured
        self.faults: list[str] = []

    def fault(self, path: str, what: str) -> None:
        self.faults.append(f"{path or 'the body'}: {what}")

    def fits(self, want: Any, got: Any) -> bool:
        inner = Matcher(self.captured)
        inner.value("", want, got)
        return not inner.faults

    def value(self, path: str, want: Any, got: Any) -> None:
        if isinstance(want, dict) and any(k.startswith("$") for k in want):
            self.operator(path, want, got)
        elif isinstance(want, dict):
            if not isinstance(got, dict):
                self.fault(path, f"wanted an object, got {shown(got)}")
                return
            for name, inner in want.items():
                self.value(f"{path}.{name}" if path else name, inner, got.get(name, MISSING))
        elif isinstance(want, list):
            if not isinstance(got, list) or len(got) != len(want):
                self.fault(path, f"wanted an array of {len(want)}, got {shown(got)}")
                return
            for i, inner in enumerate(want):
                self.value(f"{path}[{i}]", inner, got[i])
        elif got is MISSING or type(want) is not type(got) or want != got:
            self.fault(path, f"wanted {shown(want)}, got {shown(got)}")

    def operator(self, path: str, want: dict[str, Any], got: Any) -> None:
        if want.get("$absent") is True:
            if got is not MISSING:
                self.fault(path, f"wanted nothing there, got {shown(got)}")
            return
        if got is MISSING:
            self.fault(path, "is not there")
            return
        before = len(self.faults)
        for name in sorted(want):
            self.apply(path, name, want[name], got)
        if "$capture" in want and len(self.faults) == before:
            if got is None:
                self.fault(path, "is null and cannot be captured")
            else:
                self.captured[want["$capture"]] = got

    def apply(self, path: str, name: str, want: Any, got: Any) -> None:
        if name in ("$any", "$capture"):
            return
        if name == "$type":
            if not typed(want, got):
                self.fault(path, f"wanted {want}, got {shown(got)}")
        elif name == "$match":
            if not isinstance(got, str) or not re.search(want, got):
                self.fault(path, f"wanted a text like {want}, got {shown(got)}")
        elif name == "$is":
            self.value(path, want, got)
        elif name == "$not":
            if self.fits(want, got):
                self.fault(path, f"wanted anything but {shown(want)}")
        elif name == "$oneOf":
            if not any(self.fits(w, got) for w in want):
                self.fault(path, f"wanted one of {shown(want)}, got {shown(got)}")
        elif name in ("$length", "$each", "$contains"):
            if not isinstance(got, list):
                self.fault(path, f"wanted an array, got {shown(got)}")
            elif name == "$length":
                if len(got) != want:
                    self.fault(path, f"wanted {want} items, got {len(got)}: {shown(got)[:400]}")
            elif name == "$each":
                for i, item in enumerate(got):
                    self.value(f"{path}[{i}]", want, item)
            elif not any(self.fits(want, item) for item in got):
                self.fault(path, f"no item is like {shown(want)}: {shown(got)[:400]}")
        elif name == "$only":
            self.value(path, want, got)
            more = set(got) - set(want) if isinstance(got, dict) else set()
            if more:
                self.fault(path, f"has {sorted(more)} beside")
        elif name in ("$json", "$base64", "$jwt"):
            try:
                text = got
                if name == "$base64":
                    text = base64.b64decode(got, validate=True)
                if name == "$jwt":
                    part = got.split(".")[1]
                    text = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
                inner = loads(text)
            except (ValueError, TypeError, AttributeError, IndexError):
                self.fault(path, f"has no JSON inside: {shown(got)}")
                return
            self.value(f"{path}({name})", want, inner)
        else:
            self.fault(path, f"the file has an operator that does not exist: {name}")


def typed(word: str, got: Any) -> bool:
    whole = isinstance(got, int) and not isinstance(got, bool)
    if word in TYPES:
        return isinstance(got, str) and bool(re.match(TYPES[word], got))
    return {
        "string": isinstance(got, str),
        "number": whole or isinstance(got, Decimal),
        "int": whole,
        "bool": isinstance(got, bool),
        "object": isinstance(got, dict),
        "array": isinstance(got, list),
    }.get(word, False)


CODES = json.loads((FILES / "tables" / "codes.json").read_text())
PASSING = re.compile(rb'"code":"(BCK\.COMMON\.0029|BCK\.CHAIN\.0001|BCK\.HTTP\.503)"')


class Run:
    """One pass through one file on one service, in one API version."""

    def __init__(self, service: Any, file: dict[str, Any], version: str, transport: Any) -> None:
        self.service, self.file, self.version, self.transport = service, file, version, transport
        unique = secrets.token_hex(8)
        self.vars: dict[str, Any] = {
            "scheme": "svc", "Header": "Service", "header": "service", "word": "service",
            "keyPrefix": "sandbox", "publicURL": service.url, "version": version, "run": unique,
            "runNumber": str(int(unique, 16) | 1), "receiver": service.receiver,
            "long": "0123456789" * 26,
        }
        self.actors: dict[str, Key] = {}
        self.bodies: dict[str, bytes] = {}
        self.serial = 0
        self.read = 0

    def actor(self, role: str) -> Key:
        if role not in self.actors:
            name = f"{role} of {self.file['name']} {self.version} {self.vars['run']}"
            key = self.service.key(name, operator=role == "operator")
            self.actors[role] = key
            self.vars[f"{role}.address"], self.vars[f"{role}.keyId"] = key.address, key.id
            self.vars[f"{role}.key"], self.vars[f"{role}.jwt"] = key.key, key.key.split(":", 1)[1]
        return self.actors[role]

    def variable(self, name: str) -> Any:
        role = name.split(".")[0]
        if "." in name and role in ROLES:
            self.actor(role)
        return self.vars[name]

    def fill(self, v: Any) -> Any:
        if isinstance(v, str):
            whole = re.fullmatch(r"\{\{([A-Za-z][\w.]*)\}\}", v)
            return self.variable(whole[1]) if whole else self.text(v)
        if isinstance(v, dict):
            return {
                k if k == "$capture" else self.text(k): x if k == "$capture" else self.fill(x)
                for k, x in v.items()
            }
        return [self.fill(x) for x in v] if isinstance(v, list) else v

    def text(self, s: str) -> str:
        def value(m: re.Match[str]) -> str:
            v = self.variable(m[1])
            return v if isinstance(v, str) else shown(v)

        return re.sub(r"\{\{([A-Za-z][\w.]*)\}\}", value, s)

    def encoded(self, v: Any) -> Any:
        if isinstance(v, dict):
            if len(v) == 1:
                (name, inner), = v.items()
                if name in ("$json", "$base64", "$base64url"):
                    text = dumps(self.encoded(inner))
                    if name == "$json":
                        return text.decode()
                    if name == "$base64":
                        return base64.b64encode(text).decode()
                    return base64.urlsafe_b64encode(text).decode().rstrip("=")
            return {k: self.encoded(x) for k, x in v.items()}
        return [self.encoded(x) for x in v] if isinstance(v, list) else v

    def request(self, case: dict[str, Any], correlation: str) -> Request:
        asked = case["request"]
        body = None
        if "rawBody" in asked:
            body = self.text(asked["rawBody"]).encode("utf-8", "surrogatepass")
        elif "body" in asked:
            body = dumps(self.encoded(self.fill(asked["body"])))
        url = self.text(asked["path"])
        if not asked["path"].startswith("{{receiver}}"):
            url = self.service.url + url
        headers: dict[str, Any] = {}
        if body:
            headers["content-type"] = "application/json"
        if case["as"] != "nobody":
            headers["authorization"] = "Bearer " + self.actor(case["as"]).key
        headers["service-version"] = self.version
        headers["x-correlation-id"] = correlation
        for name, value in asked.get("headers", {}).items():
            name = self.text(name).lower()
            headers.pop(name, None)
            value = self.fill(value)
            if value is not None:
                headers[name] = value
        return Request(asked["method"], url, headers, body, PATIENCE)

    def send(self, request: Request, stream: bool) -> Answer:
        lines = any(isinstance(v, list) for v in request.headers.values())
        if stream or lines or any(ord(c) > 126 for v in request.headers.values() for c in str(v)):
            return raw(request, stream)
        texts = {k: str(v) for k, v in request.headers.items()}
        made = Request(request.method, request.url, texts, request.body, request.timeout)
        return self.transport.send(made)

    def once(self, case: dict[str, Any]) -> tuple[Answer, list[str]]:
        retry = case.get("retrySecs", 0)
        end = time.monotonic() + (max(retry, PATIENCE) if retry else 0)
        while True:
            self.serial += 1
            correlation = f"case-{self.vars['run']}-{self.serial}"
            answer = self.send(
                self.request(case, correlation), case["request"].get("stream", False)
            )
            m = Matcher()
            self.check(m, case, answer, correlation)
            if not m.faults or time.monotonic() > end:
                self.vars.update(m.captured)
                return answer, m.faults
            time.sleep(0.1)

    def check(self, m: Matcher, case: dict[str, Any], a: Answer, correlation: str) -> None:
        expect = case["expect"]
        statuses = expect["status"]
        if a.status not in (statuses if isinstance(statuses, list) else [statuses]):
            m.fault("", f"status {a.status}, wanted {statuses}: {a.body[:900]!r}")
            return
        receiver = case["request"]["path"].startswith("{{receiver}}")
        own = "x-correlation-id" in case["request"].get("headers", {})
        json_body = a.headers.get("content-type") == "application/json"
        if not receiver:
            self.every(m, a, correlation, own, json_body)
        for name, want in expect.get("headers", {}).items():
            values = a.headers.get_all(self.text(name))
            m.value(f"header {name}", self.fill(want), ", ".join(values) if values else MISSING)
        if expect.get("text") is not None:
            m.value("the text", self.fill(expect["text"]), a.body.decode("utf-8", "replace"))
        if expect.get("sameAs") and a.body != self.bodies[expect["sameAs"]]:
            m.fault("", f"differs from that of {expect['sameAs']}: {a.body!r}")
        if "code" not in expect and "body" not in expect:
            return
        try:
            got = loads(a.body)
        except ValueError:
            got = MISSING
        if got is MISSING or not json_body:
            m.fault("", f"is not JSON: {a.body!r}")
            return
        if expect.get("code"):
            m.value("", {"code": expect["code"]}, got)
        if "body" in expect:
            m.value("", self.fill(expect["body"]), got)

    def every(self, m: Matcher, a: Answer, correlation: str, own: bool, json_body: bool) -> None:
        for name in (
            "service-version", "service-version-resolved-from", "x-correlation-id",
            "cache-control", "access-control-allow-origin",
        ):
            if len(a.headers.get_all(name)) != 1:
                m.fault(f"header {name}", f"wanted one line, got {a.headers.get_all(name)}")
        if not own and a.headers.get("x-correlation-id") != correlation:
            m.fault("header x-correlation-id", f"wanted {correlation}")
        if a.status in (429, 503) and not a.headers.get("retry-after"):
            m.fault("header retry-after", "is not there")
        if a.status < 400 or not json_body or not a.body:
            return
        v = loads(a.body)
        if "checks" in v and a.status == 503:
            return
        row = CODES.get(v.get("code"))
        if row is None or a.status not in row["status"]:
            m.fault("code", f"{v.get('code')} with {a.status}, wanted {row}")
            return
        m.value(
            "",
            {
                "message": {"$type": "text"}, "httpStatus": a.status, "category": row["category"],
                "correlationId": a.headers.get("x-correlation-id"),
            },
            v,
        )

    def all(self, last: bool) -> bool:
        """Runs the file; True asks for another run, as the service was busy."""
        for case in self.file["cases"]:
            if case.get("only") not in (None, self.version):
                continue
            faults: list[str] = []
            for _ in range(max(case.get("times", 1), 1)):
                a, faults = self.once(case)
                if faults:
                    break
            if faults and not last and a.status == 503 and PASSING.search(a.body):
                return True
            assert not faults, f"{self.file['name']}/{case['name']}: " + "; ".join(faults)
            self.bodies[case["name"]] = a.body
            record = OPERATIONS.get(case.get("operation", ""))
            if record is not None and 200 <= a.status <= 299 and a.body and self.reads(case, a):
                try:
                    got: Record = record.read(loads(a.body), a)
                except Unreadable as e:
                    pytest.fail(f"{self.file['name']}/{case['name']}: {e}")
                assert got.raw == loads(a.body)
                self.read += 1
        return False

    @staticmethod
    def reads(case: dict[str, Any], a: Answer) -> bool:
        return a.headers.get("content-type") == "application/json"


def raw(request: Request, stream: bool) -> Answer:
    """Sends what a client would refuse to send: lines that are there twice, bytes beyond ASCII."""
    import http.client

    url = urllib.parse.urlsplit(request.url)
    conn = http.client.HTTPConnection(url.netloc, timeout=1.0 if stream else PATIENCE)
    conn.putrequest(request.method, url.path + (f"?{url.query}" if url.query else ""))
    for name, value in request.headers.items():
        for line in value if isinstance(value, list) else [value]:
            conn.putheader(name, str(line).encode("utf-8"))
    if request.body is not None:
        conn.putheader("content-length", str(len(request.body)))
    conn.endheaders(request.body)
    try:
        res = conn.getresponse()
        body = b""
        try:
            while part := res.read1(65536):
                body += part
        except TimeoutError:
            if not stream:
                raise
        return Answer(res.status, Headers(res.getheaders()), body)
    except (OSError, http.client.HTTPException) as e:
        raise TransportError(str(e)) from e
    finally:
        conn.close()


KINDS = {
    "": ["--chain", "off", "--card", "off"],
    "embedded-chain": ["--card", "off", "--chain", "embedded", "--chain-mirror"],
    "rate-limit": ["--chain", "off", "--card", "off", "--rate-limit-key", "1"]
    + ["--rate-limit-ip", "1"],
    "rail": [],
}


def files() -> list[dict[str, Any]]:
    out = []
    for path in sorted(FILES.glob("*.json")):
        out.append({**loads(path.read_bytes()), "name": path.stem})
    assert len(out) > 30
    return out


def kind_of(file: dict[str, Any]) -> str:
    return next((n for n in file.get("needs", []) if n in KINDS), "")


TRANSPORTS = {
    "http.client": HTTPTransport,
    "threads": lambda: Async(ThreadTransport),
    "httpx": lambda: Async(HTTPXTransport),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_conformance(kind: str) -> None:
    if kind == "rail" and not RAIL:
        pytest.skip("not run: stand-ins of chain and cards are in the Go test that runs this suite")
    receiver = Receiver()
    service: Any = Rail() if kind == "rail" else Service([*KINDS[kind], "--loopback-webhooks"])
    service.receiver = f"http://127.0.0.1:{receiver.server_address[1]}"
    lock = threading.Lock()
    made = service.key

    def key(account: str, *, operator: bool = False) -> Key:
        with lock:
            return made(account, operator=operator)

    service.key = key
    transports = [make() for make in TRANSPORTS.values()]
    read = 0

    def job(at: int, file: dict[str, Any], version: str) -> int:
        for attempt in range(3):
            run = Run(service, file, version, transports[at % len(transports)])
            if not run.all(attempt == 2):
                break
        return run.read

    mine = [f for f in files() if kind_of(f) == kind]
    assert mine
    try:
        for clock in (False, True):
            group = [f for f in mine if ("clock" in f.get("needs", [])) == clock]
            jobs = [(f, v) for f in group for v in ("1.0", "1.1")]
            if clock:
                read += sum(job(i, f, v) for i, (f, v) in enumerate(jobs))
                continue
            with ThreadPoolExecutor(6) as pool:
                done = [pool.submit(job, i, f, v) for i, (f, v) in enumerate(jobs)]
                faults = []
                for d in done:
                    try:
                        read += d.result()
                    except (AssertionError, KeyError, pytest.fail.Exception) as e:
                        faults.append(str(e))
                assert not faults, "\n".join(faults)
    finally:
        service.stop()
        receiver.shutdown()
    print(f"{kind or 'plain'}: {len(mine)} files, {read} answers read as records")
    assert read > 3 or kind == "rate-limit"


def test_matcher_can_fail() -> None:
    for want, got in [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": {"$absent": True}}, {"a": None}),
        ({"a": {"$type": "credits"}}, {"a": 5}),
        ({"$only": {"a": 1}}, {"a": 1, "b": 2}),
        ({"a": {"$contains": 2}}, {"a": [1]}),
        ({"a": {"$typo": 1}}, {"a": 1}),
    ]:
        m = Matcher()
        m.value("", want, got)
        assert m.faults, (want, got)


