"""Values of one exchange over HTTP, and JSON without floats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Iterator, Mapping, Sequence

#: Largest answer that is read, in bytes.
MAX_ANSWER = 16 << 20


class Headers(Mapping[str, str]):
    """Header lines in their order. Names are compared without case; a get joins lines by ", "."""

    def __init__(self, lines: Sequence[tuple[str, str]] = ()) -> None:
        self.lines = tuple(lines)

    def get_all(self, name: str) -> list[str]:
        """Returns the values of all lines with this name."""
        name = name.lower()
        return [v for n, v in self.lines if n.lower() == name]

    def __getitem__(self, name: str) -> str:
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        return ", ".join(values)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(n.lower() for n, _ in self.lines))

    def __len__(self) -> int:
        return len({n.lower() for n, _ in self.lines})

    def __repr__(self) -> str:
        return f"Headers({list(self)})"


@dataclass(frozen=True)
class Request:
    """One HTTP request as a transport sends it."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    #: Seconds for the whole exchange; None is no bound.
    timeout: float | None = None


@dataclass(frozen=True)
class Answer:
    """What came back, whatever its status.

    ``version`` is the API version that the service applied, and ``version_resolved_from`` says
    where it came from: header, apiKey or fallback.
    """

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    version: str | None = None
    version_resolved_from: str | None = None
    #: Attempts before this one.
    retries: int = 0

    @property
    def request_id(self) -> str | None:
        """The correlation id of the request, as the logs of the service have it."""
        return self.headers.get("x-correlation-id")

    def json(self) -> Any:
        """Reads the body: whole numbers are int, others Decimal. Raises ValueError."""
        return loads(self.body)


def loads(text: bytes | str) -> Any:
    """Reads JSON. Fractions are Decimal, member names are unique, NaN is refused.

    Raises ValueError, also for text that is nested too deeply.
    """
    try:
        return json.loads(
            text, parse_float=Decimal, parse_constant=_constant, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a member is there twice")
    return out


def dumps(value: Any) -> bytes:
    """Writes compact JSON. Floats are refused, as no amount is one; Decimal is written exactly."""
    return _write(value).encode()


def _write(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(k))}:{_write(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_write(v) for v in value) + "]"
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("a number must be finite")
        return str(value)
    if isinstance(value, float):
        raise TypeError("amounts are int or Decimal, never float")
    return json.dumps(value)
