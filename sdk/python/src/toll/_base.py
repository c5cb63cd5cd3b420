"""Base classes of the resources of both clients."""

from __future__ import annotations

from typing import Any, Mapping, TypeVar

from . import _core
from ._core import AsyncTransport, Call, Config, Steps, Transport
from ._pages import AsyncPages, Listing, Pages
from ._record import Record

R = TypeVar("R", bound=Record)
T = TypeVar("T")


def trim(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members whose values are present, which means not None."""
    return {k: v for k, v in values.items() if v is not None}


def exact(name: str, value: int | None) -> str | None:
    """Returns an amount as decimal text. Raises TypeError for a float."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int; got {value!r}")
    return str(value)


class Resource:
    """A group of operations of Toll."""

    def __init__(self, config: Config, transport: Transport) -> None:
        self._config, self._transport = config, transport

    def _run(self, steps: Steps[T]) -> T:
        return _core.run(steps, self._transport)

    def _send(self, call: Call[R]) -> R:
        return self._run(_core.perform(self._config, call))

    def _list(self, listing: Listing[R]) -> Pages[R]:
        return Pages(self._config, self._transport, listing)


class AsyncResource:
    """A group of operations of AsyncToll."""

    def __init__(self, config: Config, transport: AsyncTransport) -> None:
        self._config, self._transport = config, transport

    async def _run(self, steps: Steps[T]) -> T:
        return await _core.run_async(steps, self._transport)

    async def _send(self, call: Call[R]) -> R:
        return await self._run(_core.perform(self._config, call))

    def _list(self, listing: Listing[R]) -> AsyncPages[R]:
        return AsyncPages(self._config, self._transport, listing)
