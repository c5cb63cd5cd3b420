"""Transports, which send a request and return its response.

HTTPTransport uses http.client of the standard library and keeps idle connections. ThreadTransport
runs any synchronous transport in at most 32 threads for asyncio; AsyncToll uses it without httpx.
HTTPXTransport is native, and requires httpx 0.23 or later.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import io
import select
import socket
import ssl
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ._core import AsyncTransport, Transport, TransportError
from ._wire import MAX_ANSWER, Answer, Headers, Request

if TYPE_CHECKING:
    import httpx

__all__ = [
    "AsyncTransport",
    "HTTPTransport",
    "HTTPXTransport",
    "ThreadTransport",
    "Transport",
    "TransportError",
    "default_async",
]

#: Most idle connections of a transport.
MAX_IDLE = 32
#: Most threads of ThreadTransport.
THREADS = 32


class _Clocked(io.RawIOBase):
    """A socket as a file whose reads have an overall deadline, however slowly bytes arrive."""

    def __init__(self, sock: socket.socket, deadline: float | None) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class _Response(http.client.HTTPResponse):
    """A response whose head and body are read with a deadline."""

    def __init__(self, deadline: float | None, sock: socket.socket, *args: Any, **kw: Any) -> None:
        super().__init__(sock, *args, **kw)
        self.fp.close()
        self.fp = io.BufferedReader(_Clocked(sock, deadline))


class _Connection:
    """One connection. The deadline of an exchange covers connecting, sending, and reading."""

    def __init__(self, url: urllib.parse.SplitResult, context: ssl.SSLContext | None) -> None:
        host = url.hostname or ""
        if url.scheme == "https":
            self.http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, url.port, context=context
            )
        else:
            self.http = http.client.HTTPConnection(host, url.port)

    def send(self, request: Request, target: str, limit: int) -> tuple[Answer, bool]:
        deadline = None if request.timeout is None else time.monotonic() + request.timeout
        conn = self.http
        if conn.sock is None:
            conn.timeout = request.timeout
            conn.connect()
        sock: socket.socket = conn.sock  # type: ignore[assignment]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(request.timeout)
        conn.request(request.method, target, body=request.body, headers=dict(request.headers))
        conn.response_class = functools.partial(_Response, deadline)  # type: ignore[assignment]
        res = conn.getresponse()
        body = res.read(limit + 1)
        if len(body) > limit:
            raise TransportError(f"the response is longer than {limit >> 20} MiB")
        if res.length:
            raise TransportError("the response is incomplete")
        answer = Answer(res.status, Headers(res.getheaders()), body)
        return answer, not res.will_close

    def usable(self) -> bool:
        """Reports whether an idle connection is still open, without unread data."""
        sock = self.http.sock
        return sock is not None and not select.select([sock], [], [], 0)[0]

    def close(self) -> None:
        self.http.close()


def _target(url: urllib.parse.SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


class HTTPStream:
    """A response of http.client whose body is read part by part."""

    def __init__(self, conn: http.client.HTTPConnection, res: http.client.HTTPResponse) -> None:
        self._conn, self._res = conn, res
        self.status = res.status
        self.headers = Headers(res.getheaders())

    def read(self) -> bytes:
        """Returns the next available bytes, b"" at the end. Raises TransportError."""
        try:
            return self._res.read1(64 << 10)
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise TransportError(f"{type(e).__name__}: {e}") from e

    def close(self) -> None:
        """Closes the stream, even while another thread reads from it."""
        if self._conn.sock is not None:
            try:
                self._conn.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._res.close()
        self._conn.close()


class HTTPTransport:
    """http.client with up to 32 idle connections. Safe for use from several threads.

    Redirects are not followed, because they would receive the API key. Proxies from the environment
    are not used: if you need a proxy, pass another transport, for example HTTPXTransport.
    """

    def __init__(
        self, *, context: ssl.SSLContext | None = None, max_answer: int = MAX_ANSWER
    ) -> None:
        self._context = context
        self._limit = max_answer
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Connection]] = {}

    def send(self, request: Request) -> Answer:
        """Sends one request, on an idle connection if there is one."""
        url = urllib.parse.urlsplit(request.url)
        origin = f"{url.scheme}://{url.netloc}"
        target = _target(url)
        conn = self._take(origin) or _Connection(url, self._context)
        try:
            answer, keep = conn.send(request, target, self._limit)
        except TransportError:
            conn.close()
            raise
        except (OSError, http.client.HTTPException, ValueError) as e:
            conn.close()
            raise TransportError(f"{type(e).__name__}: {e}" if str(e) else type(e).__name__) from e
        except BaseException:
            conn.close()
            raise
        if keep:
            self._put(origin, conn)
        else:
            conn.close()
        return answer

    def _take(self, origin: str) -> _Connection | None:
        while True:
            with self._lock:
                idle = self._idle.get(origin)
                if not idle:
                    return None
                conn = idle.pop()
            if conn.usable():
                return conn
            conn.close()

    def _put(self, origin: str, conn: _Connection) -> None:
        with self._lock:
            if sum(map(len, self._idle.values())) < MAX_IDLE:
                self._idle.setdefault(origin, []).append(conn)
                return
        conn.close()

    def stream(self, request: Request) -> HTTPStream:
        """Sends a request on a separate connection; its timeout applies to each read."""
        url = urllib.parse.urlsplit(request.url)
        conn = _Connection(url, self._context).http
        try:
            conn.timeout = request.timeout
            conn.request(request.method, _target(url), request.body, dict(request.headers))
            return HTTPStream(conn, conn.getresponse())
        except (OSError, http.client.HTTPException) as e:
            conn.close()
            raise TransportError(f"{type(e).__name__}: {e}") from e

    def close(self) -> None:
        """Closes idle connections. The transport can be used again."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for conns in idle.values():
            for conn in conns:
                conn.close()


class ThreadTransport:
    """Runs a synchronous transport in at most 32 threads, for asyncio without httpx.

    A canceled call returns immediately; its thread waits for the response until the timeout of the
    request.
    """

    def __init__(self, inner: Transport | None = None, threads: int = THREADS) -> None:
        self._inner = inner or HTTPTransport()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="toll")

    async def send(self, request: Request) -> Answer:
        """Sends one request in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._inner.send, request)

    async def stream(self, request: Request) -> ThreadStream:
        """Opens a stream in a separate thread, which does not count toward the limit of 32."""
        if not isinstance(self._inner, HTTPTransport):
            raise TransportError("this transport does not support streams")
        pool = ThreadPoolExecutor(1, thread_name_prefix="toll-stream")
        loop = asyncio.get_running_loop()
        try:
            return ThreadStream(
                await loop.run_in_executor(pool, self._inner.stream, request), pool
            )
        except BaseException:
            pool.shutdown(wait=False)
            raise

    async def aclose(self) -> None:
        """Closes idle connections and ends the threads."""
        self._inner.close()
        self._pool.shutdown(wait=False)


class ThreadStream:
    """A synchronous stream that is read in a thread."""

    def __init__(self, inner: HTTPStream, pool: ThreadPoolExecutor) -> None:
        self._inner, self._pool = inner, pool
        self.status, self.headers = inner.status, inner.headers

    async def read(self) -> bytes:
        """Returns the next bytes, b"" at the end. Raises TransportError."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._inner.read)

    async def aclose(self) -> None:
        """Closes the stream and ends its thread."""
        self._inner.close()
        self._pool.shutdown(wait=False)


class HTTPXStream:
    """A response of httpx whose body is read part by part."""

    def __init__(self, res: httpx.Response, errors: Any, timeout: float | None) -> None:
        self._res, self._errors, self._timeout = res, errors, timeout
        self._parts = res.aiter_bytes()
        self.status = res.status_code
        lines = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in res.headers.raw]
        self.headers = Headers(lines)

    async def read(self) -> bytes:
        """Returns the next bytes, b"" at the end. Raises TransportError."""
        try:
            return await asyncio.wait_for(self._parts.__anext__(), self._timeout)
        except StopAsyncIteration:
            return b""
        except self._errors as e:
            raise TransportError(f"{type(e).__name__}: {e}") from e
        except asyncio.TimeoutError:
            raise TransportError("timed out") from None

    async def aclose(self) -> None:
        """Closes the stream."""
        await self._res.aclose()


class HTTPXTransport:
    """Uses httpx 0.23 or later, for asyncio. Pass a client to configure proxies or TLS."""

    def __init__(self, client: httpx.AsyncClient | None = None) -> None:
        import httpx

        self._errors = (httpx.HTTPError, httpx.InvalidURL)
        self._own = client is None
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=MAX_IDLE)
        self._client = client or httpx.AsyncClient(limits=limits, trust_env=False)

    async def send(self, request: Request) -> Answer:
        """Sends one request."""
        try:
            return await asyncio.wait_for(self._send(request), request.timeout)
        except self._errors as e:
            raise TransportError(f"{type(e).__name__}: {e}") from e
        except asyncio.TimeoutError:
            raise TransportError("timed out") from None

    def _request(self, request: Request) -> httpx.Request:
        # Timeouts of httpx apply to single steps; ours applies to the whole exchange.
        none = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"))}
        return self._client.build_request(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.body,
            extensions=none,
        )

    async def _send(self, request: Request) -> Answer:
        made = self._request(request)
        res = await self._client.send(made, stream=True, follow_redirects=False, auth=None)
        try:
            body = bytearray()
            async for part in res.aiter_bytes():
                body += part
                if len(body) > MAX_ANSWER:
                    raise TransportError("the response is longer than 16 MiB")
        finally:
            await res.aclose()
        lines = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in res.headers.raw]
        return Answer(res.status_code, Headers(lines), bytes(body))

    async def stream(self, request: Request) -> HTTPXStream:
        """Opens a stream; the timeout of the request applies to each read."""
        made = self._request(request)
        try:
            sent = self._client.send(made, stream=True, follow_redirects=False, auth=None)
            res = await asyncio.wait_for(sent, request.timeout)
        except self._errors as e:
            raise TransportError(f"{type(e).__name__}: {e}") from e
        except asyncio.TimeoutError:
            raise TransportError("timed out") from None
        return HTTPXStream(res, self._errors, request.timeout)

    async def aclose(self) -> None:
        """Closes the client, unless it was passed by the caller."""
        if self._own:
            await self._client.aclose()


def default_async() -> AsyncTransport:
    """Returns HTTPXTransport if httpx 0.23 or later is installed, otherwise ThreadTransport."""
    try:
        import httpx

        major, minor = (int(p) for p in httpx.__version__.split(".")[:2])
    except (ImportError, ValueError):
        return ThreadTransport()
    if (major, minor) < (0, 23):
        return ThreadTransport()
    return HTTPXTransport()
