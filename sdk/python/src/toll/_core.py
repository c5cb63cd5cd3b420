"""The core of both clients, without I/O.

A call is a generator. It yields Send, Sleep, and Sign effects, and a driver performs them. The
synchronous and the asynchronous client differ only in their driver.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field, replace
from typing import (
    Any,
    Callable,
    Generator,
    Generic,
    Mapping,
    Protocol,
    TypeVar,
    Union,
)

from . import errors
from ._namespace import DEFAULT, Namespace
from ._record import Record, Unreadable
from ._wire import Answer, Request, dumps

#: The release of this package.
RELEASE = "1.1.0"
#: The API version with which this release was tested.
API_VERSION = "1.1"
DEFAULT_URL = "http://127.0.0.1:8402"
#: Longer than the 30 s for which the service may wait for an order.
DEFAULT_TIMEOUT = 45.0
DEFAULT_RETRIES = 3
#: Longest wait before a retry, in seconds. If Retry-After is longer, the call is not retried.
MAX_WAIT = 5.0

log = logging.getLogger("toll")
T = TypeVar("T")
R = TypeVar("R", bound=Record)


class TransportError(Exception):
    """No response: the connection failed or timed out, or the response is too long."""


@dataclass(frozen=True)
class Send:
    """An effect: send the request and return the response."""

    request: Request


@dataclass(frozen=True)
class Sleep:
    """An effect: wait for a number of seconds."""

    seconds: float


@dataclass(frozen=True)
class Sign:
    """An effect: sign with a wallet, which may take a while. On an event loop, it runs in a thread,
    and an awaitable result is awaited."""

    call: Callable[[], Any] = field(repr=False)


Effect = Union[Send, Sleep, Sign]
Steps = Generator[Effect, Any, T]


class Transport(Protocol):
    """Sends one request, without retries. It raises TransportError if there is no response."""

    def send(self, request: Request) -> Answer:
        """Returns the complete response, whatever its status."""

    def close(self) -> None:
        """Closes idle connections."""


class AsyncTransport(Protocol):
    """Transport for asyncio."""

    async def send(self, request: Request) -> Answer:
        """Returns the complete response, whatever its status."""

    async def aclose(self) -> None:
        """Closes idle connections."""


@dataclass(frozen=True)
class Attempt:
    """One request and its outcome, for the log hook. It contains no secrets."""

    method: str
    path: str
    attempt: int
    #: HTTP status, 0 without a response.
    status: int
    seconds: float
    request_id: str | None


@dataclass(frozen=True)
class Call(Generic[R]):
    """One call of the API."""

    method: str
    path: str
    record: type[R]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    #: The call can be retried, because a repeat does nothing twice.
    again: bool = False
    #: ... but only after a response which means that nothing was done, not after a lost response.
    refused: bool = False
    #: The call creates a record and sends an Idempotency-Key.
    creates: bool = False
    #: The call requires an API key.
    key: bool = True
    if_match: int | None = None
    #: Further statuses whose body is the record.
    taken: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Config:
    """Settings of a client; with_options changes a copy."""

    url: str
    api_key: str = field(repr=False)
    version: str | None = API_VERSION
    timeout: float | None = DEFAULT_TIMEOUT
    max_retries: int = DEFAULT_RETRIES
    max_wait: float = MAX_WAIT
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    idempotency_key: str | None = None
    workspace: str | None = None
    namespace: Namespace = DEFAULT
    hook: Callable[[Attempt], None] | None = field(default=None, repr=False)

    def with_options(self, **changes: Any) -> Config:
        """Returns a copy with some settings changed."""
        return replace(self, **changes)


def new_config(
    api_key: str | None,
    url: str | None,
    api_version: str | None,
    timeout: float | None,
    max_retries: int,
    headers: Mapping[str, str] | None,
    workspace: str | None,
    namespace: Namespace,
    hook: Callable[[Attempt], None] | None,
) -> Config:
    """Reads the settings of a constructor. Raises ValueError for a malformed url."""
    _logging()
    address = url or os.environ.get("TOLL_URL") or DEFAULT_URL
    return Config(
        url=base_url(address),
        api_key=(api_key if api_key is not None else os.environ.get("TOLL_API_KEY", "")).strip(),
        version=api_version,
        timeout=timeout,
        max_retries=max(0, max_retries),
        headers=dict(headers or {}),
        workspace=workspace,
        namespace=namespace,
        hook=hook,
    )


def _logging() -> None:
    """Logs to stderr if TOLL_LOG is set, for example to info or debug."""
    level = os.environ.get("TOLL_LOG", "").upper()
    if level in ("DEBUG", "INFO", "WARNING", "ERROR") and not log.handlers:
        log.addHandler(logging.StreamHandler())
        log.setLevel(level)


def base_url(address: str) -> str:
    """Returns the address of a service without a trailing /api/v1.

    Raises ValueError unless it is an absolute http or https URL without user, query, or fragment.
    The message does not repeat the URL, which may contain a password.
    """
    try:
        u = urllib.parse.urlsplit(address.strip())
        good = u.scheme in ("http", "https") and u.hostname and u.port != 0
    except ValueError:
        good = False
    if not good or u.username is not None or u.query or u.fragment:
        raise ValueError(
            "url must be an absolute http or https URL without user, query, or fragment, "
            'for example "https://pay.example.com"'
        )
    path = u.path.rstrip("/")
    if path.endswith("/api/v1"):
        path = path[: -len("/api/v1")]
    return f"{u.scheme}://{u.netloc}{path}"


def segment(text: str) -> str:
    """Returns a text as an escaped path segment."""
    return urllib.parse.quote(text, safe="") if text not in (".", "..") else "%2E" * len(text)


#: Statuses of temporary failures.
PASSING = frozenset({429, 502, 503, 504})


def request_of(config: Config, call: Call[Any], key: str | None) -> Request:
    """Returns the HTTP request of a call. Raises MissingKeyError."""
    if call.key and not config.api_key:
        raise errors.MissingKeyError()
    headers = {"Accept": "application/json", "User-Agent": f"toll-python/{RELEASE}"}
    if config.api_key:
        headers["Authorization"] = "Bearer " + config.api_key
    if config.version:
        headers[config.namespace.version] = config.version
    if config.workspace:
        headers["X-Current-Org-Id"] = config.workspace
    body = None
    if call.body is not None:
        body = dumps(call.body)
        headers["Content-Type"] = "application/json"
    if key is not None:
        headers["Idempotency-Key"] = key
    if call.if_match is not None:
        headers["If-Match"] = str(call.if_match)
    headers.update(config.headers)
    for name, value in headers.items():
        if any(c in "\r\n\0" for c in name + value):
            raise ValueError(f"the header {name!r} must not contain line breaks")
    url = config.url + call.path
    query = {k: _query(v) for k, v in call.query.items() if v is not None}
    if query:
        url += "?" + urllib.parse.urlencode(query)
    return Request(call.method, url, headers, body, config.timeout)


def _query(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "isoformat"):
        if value.tzinfo is None:
            raise ValueError("a datetime must have a time zone, for example datetime.now(timezone.utc)")
        return str(value.isoformat())
    return str(value)


def send(config: Config, call: Call[Any]) -> Steps[Answer]:
    """Sends a call, retries it if that is safe, and returns the last response.

    Raises UnavailableError if there is no response.
    """
    key = None
    if call.creates:
        key = config.idempotency_key or str(uuid.uuid4())
    elif call.method not in ("GET", "HEAD"):
        key = config.idempotency_key
    request = request_of(config, call, key)
    attempt = 0
    while True:
        began = time.monotonic()
        answer: Answer | None = None
        fault: TransportError | None = None
        try:
            answer = yield Send(request)
        except TransportError as e:
            fault = e
        _tell(config, call, attempt, answer, time.monotonic() - began)
        wait = _again(config, call, attempt, answer, key)
        if wait is None:
            if answer is None:
                raise unreachable(config.url, fault)
            names = config.namespace
            return replace(
                answer,
                version=answer.headers.get(names.version),
                version_resolved_from=answer.headers.get(names.resolved_from),
                retries=attempt,
            )
        yield Sleep(wait)
        attempt += 1


def _tell(
    config: Config, call: Call[Any], attempt: int, answer: Answer | None, seconds: float
) -> None:
    status = answer.status if answer else 0
    request_id = answer.request_id if answer else None
    told = Attempt(call.method, call.path, attempt, status, seconds, request_id)
    log.debug("%s %s: %s after %.3f s, attempt %d", told.method, told.path, status, seconds, attempt)
    if config.hook is not None:
        config.hook(told)


def unreachable(url: str, fault: BaseException | None) -> errors.UnavailableError:
    """Returns the error of a call without a response."""
    e = errors.UnavailableError(
        f"The service at {url} did not respond.",
        code="BCK.HTTP.503",
        category="integration",
        details=f"{fault}." if fault else "",
        retryable=True,
    )
    e.__cause__ = fault
    return e


def backoff(attempt: int, longest: float) -> float:
    """Returns the wait in seconds after attempt 0, 1, ...: it grows fourfold, with jitter."""
    return min(0.1 * 4.0**attempt, longest) * random.uniform(0.5, 1.0)


def _again(
    config: Config, call: Call[Any], attempt: int, answer: Answer | None, key: str | None
) -> float | None:
    """Returns the wait in seconds before a retry, or None if the call is not retried."""
    if attempt >= config.max_retries:
        return None
    wait = backoff(attempt, config.max_wait)
    if answer is not None and answer.status == 408:
        return wait  # the request did not arrive in time, so nothing was done
    if not call.again:
        return None
    refused = call.refused or call.if_match is not None
    if answer is None:
        return None if refused else wait
    if refused and answer.status in (502, 504):
        return None
    if answer.status not in PASSING:
        running = answer.status == 409 and key is not None
        return wait if running and errors.of_answer(answer).code == errors.RUNNING else None
    asked = errors.retry_after(answer)
    if asked > config.max_wait:
        return None
    return max(wait, asked)


def perform(config: Config, call: Call[R]) -> Steps[R]:
    """Sends a call and returns its record. Raises TollError."""
    answer = yield from send(config, call)
    return read(call, answer)


def read(call: Call[R], answer: Answer) -> R:
    """Reads the record of a response. Raises TollError for a response other than 2xx."""
    if not 200 <= answer.status <= 299 and answer.status not in call.taken:
        raise errors.of_answer(answer)
    if answer.headers.get("deprecation") == "true":
        warn_deprecated(f"the request {call.method} {call.path} uses a deprecated form")
    try:
        return call.record.read(answer.json() if answer.body else {}, answer)
    except (ValueError, Unreadable) as e:
        raise errors.InternalError(
            "The service sent a response that cannot be read.",
            code="BCK.HTTP.500",
            status=502,
            details=f"{e}.",
            correlation_id=answer.request_id or "",
            response=answer,
        ) from None


_warned: set[str] = set()


def warn_deprecated(what: str) -> None:
    """Warns once per process."""
    if what not in _warned:
        _warned.add(what)
        import warnings

        warnings.warn(what, DeprecationWarning, stacklevel=4)
        log.warning("deprecated: %s", what)


def run(steps: Steps[T], transport: Transport, sleep: Callable[[float], None] = time.sleep) -> T:
    """Performs the effects of steps, in order."""
    try:
        effect = next(steps)
        while True:
            try:
                got: Any = None
                if isinstance(effect, Sleep):
                    sleep(effect.seconds)
                elif isinstance(effect, Sign):
                    got = effect.call()
                else:
                    got = transport.send(effect.request)
            except Exception as e:
                effect = steps.throw(e)
            else:
                effect = steps.send(got)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(steps: Steps[T], transport: AsyncTransport) -> T:
    """Performs the effects of steps on the running event loop."""
    try:
        effect = next(steps)
        while True:
            try:
                got: Any = None
                if isinstance(effect, Sleep):
                    await asyncio.sleep(effect.seconds)
                elif isinstance(effect, Sign):
                    got = await asyncio.to_thread(effect.call)
                    if inspect.isawaitable(got):
                        got = await got
                else:
                    got = await transport.send(effect.request)
            except Exception as e:
                effect = steps.throw(e)
            else:
                effect = steps.send(got)
    except StopIteration as end:
        result: T = end.value
        return result
