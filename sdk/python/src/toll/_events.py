"""Lists of events, and a stream that resumes after interruptions."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any, AsyncIterator, Iterator, Protocol

from . import _core, errors
from ._base import AsyncResource, Resource
from ._core import Call, Config, TransportError
from ._models import Event
from ._pages import AsyncPages, Listing, Pages
from ._record import Unreadable
from ._wire import Answer, Headers, Request, loads

#: Seconds without a byte after which a stream is broken; the service sends far more often.
SILENCE = 120.0
#: Largest event in bytes.
MAX_EVENT = 4 << 20
PATH = "/api/v1/events"


class Stream(Protocol):
    """A response whose body is read part by part."""

    status: int
    headers: Headers

    def read(self) -> bytes:
        """Returns the next bytes, b"" at the end. Raises TransportError."""

    def close(self) -> None:
        """Closes the stream."""


class AsyncStream(Protocol):
    """Stream for asyncio."""

    status: int
    headers: Headers

    async def read(self) -> bytes:
        """Returns the next bytes, b"" at the end. Raises TransportError."""

    async def aclose(self) -> None:
        """Closes the stream."""


class Parser:
    """Parses server-sent events from arbitrary chunks."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._id = ""

    def feed(self, part: bytes) -> Iterator[tuple[str, bytes]]:
        """Yields id and data of each complete event. Raises Unreadable."""
        self._line += part
        while True:
            line, found, rest = self._line.partition(b"\n")
            if not found:
                if len(self._line) > MAX_EVENT:
                    raise Unreadable("an event is longer than 4 MiB")
                return
            self._line = rest
            yield from self._take(bytes(line).rstrip(b"\r"))

    def _take(self, line: bytes) -> Iterator[tuple[str, bytes]]:
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if not line:
            if self._data:
                data, self._data, self._size = b"\n".join(self._data), [], 0
                yield self._id, data
        elif name == b"data":
            self._size += len(value)
            if self._size > MAX_EVENT:
                raise Unreadable("an event is longer than 4 MiB")
            self._data.append(value)
        elif name == b"id":
            self._id = value.decode("utf-8", "replace")


class _Following:
    """The position of a stream: the last event, and the number of failures since."""

    def __init__(self, config: Config, after: str | None) -> None:
        self._config = config
        self.after = after
        self.attempt = 0

    def request(self) -> Request:
        call: Call[Any] = Call("GET", PATH + "/stream", Event)
        made = _core.request_of(self._config, call, None)
        headers = {**made.headers, "Accept": "text/event-stream"}
        if self.after:
            headers["Last-Event-ID"] = self.after
        return Request("GET", made.url, headers, None, SILENCE)

    def events(self, parser: Parser, part: bytes) -> Iterator[Event]:
        for id, data in parser.feed(part):
            try:
                event = Event.read(loads(data))
            except (ValueError, Unreadable) as e:
                raise errors.InternalError(
                    "The service sent an event that cannot be read.", code="BCK.HTTP.500",
                    details=f"{e}.",
                ) from None
            self.after, self.attempt = id or self.after, 0
            yield event

    def pause(self, answer: Answer | None) -> float:
        """Returns the wait before the next connection. Raises if the service refused."""
        asked = 0
        if answer is not None and answer.status != 200:
            if answer.status not in _core.PASSING:
                raise errors.of_answer(answer)
            asked = errors.retry_after(answer)
        wait = asked or _core.backoff(min(self.attempt, 10), self._config.max_wait)
        self.attempt += 1
        return wait


class Events(Resource):
    """Events about the caller's records."""

    def list(
        self,
        *,
        type: str | None = None,
        since: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[Event]:
        """Lists events, newest first, or oldest first with ascending."""
        return self._list(_listing(type, since, page_size, ascending))

    def stream(self, *, after: str | None = None) -> Iterator[Event]:
        """Yields events as they happen, each once and in order, until the loop ends.

        It begins after the event with the id `after`, by default now. If the connection breaks, it
        reconnects and resumes. An error means that the service refused.
        """
        at = _Following(self._config, after)
        while True:
            refused: Answer | None = None
            try:
                answer = self._transport.stream(at.request())  # type: ignore[attr-defined]
                try:
                    if answer.status != 200:
                        refused = Answer(answer.status, answer.headers, answer.read())
                    parser = Parser()
                    while refused is None:
                        part = answer.read()
                        if not part:
                            break
                        yield from at.events(parser, part)
                finally:
                    answer.close()
            except (TransportError, Unreadable):
                pass
            time.sleep(at.pause(refused))


class AsyncEvents(AsyncResource):
    """Events for asyncio."""

    def list(
        self,
        *,
        type: str | None = None,
        since: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> AsyncPages[Event]:
        """Lists events, newest first, or oldest first with ascending."""
        return self._list(_listing(type, since, page_size, ascending))

    async def stream(self, *, after: str | None = None) -> AsyncIterator[Event]:
        """Yields events as they happen; see Events.stream."""
        at = _Following(self._config, after)
        while True:
            refused: Answer | None = None
            try:
                answer = await self._transport.stream(at.request())  # type: ignore[attr-defined]
                try:
                    if answer.status != 200:
                        refused = Answer(answer.status, answer.headers, await answer.read())
                    parser = Parser()
                    while refused is None:
                        part = await answer.read()
                        if not part:
                            break
                        for event in at.events(parser, part):
                            yield event
                finally:
                    await answer.aclose()
            except (TransportError, Unreadable):
                pass
            await asyncio.sleep(at.pause(refused))


def _listing(
    type: str | None, since: datetime | None, page_size: int | None, ascending: bool
) -> Listing[Event]:
    order = "asc" if ascending else None
    query = {"type": type, "since": since, "pageSize": page_size, "sortOrder": order}
    return Listing(PATH, "events", Event, query)
