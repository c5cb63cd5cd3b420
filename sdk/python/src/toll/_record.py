"""Records of the service, as frozen objects with exact numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Callable, ClassVar, Mapping, NamedTuple, TypeVar

from ._wire import Answer

R = TypeVar("R", bound="Record")
Reader = Callable[[Any], Any]


class Unreadable(ValueError):
    """A response does not match the wire contract."""


class Member(NamedTuple):
    """One member of a record: its attribute, its name on the wire, and its reader."""

    attribute: str
    wire: str
    read: Reader
    required: bool


member = Member


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of the service.

    ``raw`` has every member as sent, including members unknown to this release. ``response`` is the
    response whose body is this record, with status, headers, request id, and API version; it is None
    on nested records.
    """

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    response: Answer | None = field(default=None, repr=False, compare=False)

    _members: ClassVar[tuple[Member, ...]] = ()

    @classmethod
    def read(cls: type[R], value: Any, response: Answer | None = None) -> R:
        """Reads a JSON object. Raises Unreadable if a member is missing or has a wrong type."""
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
    """Returns a JSON value unchanged."""
    return value


def text(value: Any) -> str:
    """Reads a string."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def integer(value: Any) -> int:
    """Reads a whole number; amounts are decimal strings. It never returns a float."""
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
    """Reads an object unchanged."""
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


def moment(value: Any) -> datetime:
    """Reads an ISO 8601 time; without an offset it is UTC."""
    at = datetime.fromisoformat(text(value).replace("Z", "+00:00"))
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def one(of: Callable[[], type[R]]) -> Reader:
    """Reads a nested record."""
    return lambda value: of().read(value)


def many(read: Reader) -> Reader:
    """Reads an array."""

    def all_of(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError("must be an array")
        return tuple(read(v) for v in value)

    return all_of
