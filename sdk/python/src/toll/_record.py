"""Records: what the service answers, as frozen objects with exact numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Callable, ClassVar, Mapping, NamedTuple, TypeVar

from ._wire import Answer

R = TypeVar("R", bound="Record")
Reader = Callable[[Any], Any]


class Unreadable(ValueError):
    """An answer is not what the wire contract says."""


class Member(NamedTuple):
    """One member of a record: its attribute, its name on the wire, and how it is read."""

    attribute: str
    wire: str
    read: Reader
    required: bool


member = Member


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the service answered.

    ``raw`` has every member as it came, also those that this release does not know.
    ``response`` is the answer of which this is the whole body, with status, headers, request id
    and API version; it is None on records inside others.
    """

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    response: Answer | None = field(default=None, repr=False, compare=False)

    _members: ClassVar[tuple[Member, ...]] = ()

    @classmethod
    def read(cls: type[R], value: Any, response: Answer | None = None) -> R:
        """Reads a JSON object. Raises Unreadable when a member is missing or of a wrong type."""
        if not isinstance(value, dict):
            raise Unreadable(f"{cls.__name__} must be an object")
        values: dict[str, Any] = {"raw": value, "response": response}
        for m in cls._members:
            got = value.get(m.wire)
            if got is None:
                if m.required:
                    raise Unreadable(f"{cls.__name__}.{m.wire} is missing")
                continue
            try:
                values[m.attribute] = m.read(got)
            except Unreadable:
                raise
            except (ValueError, TypeError, OverflowError) as e:
                raise Unreadable(f"{cls.__name__}.{m.wire}: {e}") from None
        return cls(**values)


def keep(value: Any) -> Any:
    """Keeps a value as JSON has it."""
    return value


def text(value: Any) -> str:
    """Reads a text."""
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value


def integer(value: Any) -> int:
    """Reads a whole number, which amounts are as decimal text. It is never a float."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 78:
        return int(value)
    raise ValueError("must be a whole number")


def boolean(value: Any) -> bool:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """Reads an object as it is."""
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


def moment(value: Any) -> datetime:
    """Reads an ISO 8601 time; without an offset it is UTC."""
    at = datetime.fromisoformat(text(value).replace("Z", "+00:00"))
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def one(of: Callable[[], type[R]]) -> Reader:
    """Reads a record inside another one."""
    return lambda value: of().read(value)


def many(read: Reader) -> Reader:
    """Reads an array."""

    def all_of(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError("must be an array")
        return tuple(read(v) for v in value)

    return all_of
