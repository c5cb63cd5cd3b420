"""Lists, as iterators that follow cursors, and as single pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import (
    Any,
    AsyncIterator,
    ClassVar,
    Generic,
    Iterator,
    Mapping,
    TypeVar,
)

from . import _core, errors
from ._core import AsyncTransport, Call, Config, Steps, Transport
from ._record import Record, Unreadable
from ._wire import Answer

T = TypeVar("T", bound=Record)
#: Most pages of an iterator, in case a faulty service never ends a list.
MAX_PAGES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list. ``next_cursor`` is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None
    total: int | None
    raw: Mapping[str, Any] = field(repr=False)
    response: Answer | None = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class _Anything(Record):
    """A body that the caller parses."""

    value: Any = None
    _members: ClassVar = ()

    @classmethod
    def read(cls, value: Any, response: Answer | None = None) -> _Anything:
        return cls(value=value, response=response)


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A list: its path, the member of the response that contains the items, and their record."""

    path: str
    member: str
    record: type[T]
    query: Mapping[str, Any]
    key: bool = True

    def page(self, config: Config, cursor: str | None) -> Steps[Page[T]]:
        """Fetches one page."""
        query: dict[str, Any] = {"pageSize": 100, **{k: v for k, v in self.query.items() if v is not None}}
        if cursor is not None:
            query["cursor"] = cursor
        call = Call("GET", self.path, _Anything, query=query, again=True, key=self.key)
        got = yield from _core.perform(config, call)
        try:
            if isinstance(got.value, list):  # payment methods are a bare array
                body: dict[str, Any] = {self.member: got.value}
            elif isinstance(got.value, dict):
                body = got.value
            else:
                raise Unreadable("a list must be an object")
            items = tuple(self.record.read(v) for v in body.get(self.member) or [])
            following = body.get("nextCursor")
            if following is not None and not isinstance(following, str):
                raise Unreadable("nextCursor must be a string")
        except (Unreadable, TypeError) as e:
            raise errors.InternalError(
                "The service sent a list that cannot be read.", code="BCK.HTTP.500", status=502,
                details=f"{e}.", response=got.response,
            ) from None
        total = body.get("total")
        return Page(
            items=items, next_cursor=following or None,
            total=total if isinstance(total, int) else None, raw=body, response=got.response,
        )


def _next(seen: set[str], page: Page[Any]) -> str | None:
    cursor = page.next_cursor
    if cursor is not None and (cursor in seen or len(seen) >= MAX_PAGES):
        raise errors.InternalError("The service returned the same page of a list again.", code="BCK.HTTP.500")
    if cursor is not None:
        seen.add(cursor)
    return cursor


class Pages(Generic[T]):
    """Iterates over the items of a list; page() returns one page.

    for plan in toll.plans.list(): ...
    """

    def __init__(self, config: Config, transport: Transport, listing: Listing[T]) -> None:
        self._config, self._transport, self._listing = config, transport, listing

    def page(self, cursor: str | None = None) -> Page[T]:
        """Returns the page at a cursor, or the first page without a cursor."""
        return _core.run(self._listing.page(self._config, cursor), self._transport)

    def __iter__(self) -> Iterator[T]:
        seen: set[str] = set()
        cursor: str | None = None
        while True:
            page = self.page(cursor)
            yield from page.items
            cursor = _next(seen, page)
            if cursor is None:
                return


class AsyncPages(Generic[T]):
    """Pages for asyncio: async for plan in toll.plans.list(): ..."""

    def __init__(self, config: Config, transport: AsyncTransport, listing: Listing[T]) -> None:
        self._config, self._transport, self._listing = config, transport, listing

    async def page(self, cursor: str | None = None) -> Page[T]:
        """Returns the page at a cursor, or the first page without a cursor."""
        return await _core.run_async(self._listing.page(self._config, cursor), self._transport)

    async def __aiter__(self) -> AsyncIterator[T]:
        seen: set[str] = set()
        cursor: str | None = None
        while True:
            page = await self.page(cursor)
            for item in page.items:
                yield item
            cursor = _next(seen, page)
            if cursor is None:
                return


