"""Values of an HTTP exchange, and JSON without floats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Iterator, Mapping, Sequence

#: Largest response, in bytes.
MAX_ANSWER = 16 << 20


class Headers(Mapping[str, str]):
    """Header lines in order. Names are case-insensitive; get joins repeated lines with ", "."""

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
    """An HTTP request for a transport."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    #: Seconds for the whole exchange; None means no timeout.
    timeout: float | None = None


@dataclass(frozen=True)
class Answer:
    """A response, whatever its status.

    ``version`` is the API version that the service applied, and ``version_resolved_from`` its
    source: header, apiKey, or fallback.
    """

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    version: str | None = None
    version_resolved_from: str | None = None
    #: Number of earlier attempts.
    retries: int = 0

    @property
    def request_id(self) -> str | None:
        """The correlation id of the request in the logs of the service."""
        return self.headers.get("x-correlation-id")

    def json(self) -> Any:
        """Parses the body: whole numbers are int, fractions are Decimal. Raises ValueError."""
        return loads(self.body)


def loads(text: bytes | str) -> Any:
    """Parses JSON. Fractions are Decimal. Duplicate member names and NaN are rejected.

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
        raise ValueError("duplicate member name")
    return out


def dumps(value: Any) -> bytes:
    """Writes compact JSON. Floats are rejected, because amounts are exact; Decimal is allowed."""
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
        raise TypeError("amounts must be int or Decimal, not float")
    return json.dumps(value)
