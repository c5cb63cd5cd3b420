"""The brand names on the wire. Only this module contains them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Namespace:
    """The three brand names of a service."""

    scheme: str = "svc"
    header: str = "Service"
    word: str = "service"

    @property
    def version(self) -> str:
        """The header of the API version."""
        return f"{self.header}-Version"

    @property
    def resolved_from(self) -> str:
        """The header with the source of the API version."""
        return f"{self.header}-Version-Resolved-From"

    @property
    def request_id(self) -> str:
        """The header with the id of a streamed paid response."""
        return f"{self.header}-Request-Id"

    @property
    def crypto(self) -> str:
        """The scheme of plans bought on a chain."""
        return f"{self.scheme}:erc4337"

    @property
    def card(self) -> str:
        """The scheme of plans bought by card."""
        return f"{self.scheme}:card-delegation"

    @property
    def asset(self) -> str:
        """The asset of payment requirements: credits."""
        return f"{self.scheme}:credits"

    @property
    def plan_extension(self) -> str:
        """The extension with the address where a plan can be bought."""
        return f"{self.scheme}-plan"

    def reason(self, what: str) -> str:
        """The reason of a refused token: expired, revoked, payload_signature, ..."""
        return f"invalid_{self.scheme}_{what}"

    def webhook(self, what: str) -> str:
        """A header of a delivery: Id, Timestamp, or Signature."""
        return f"{self.header}-Webhook-{what}"


DEFAULT = Namespace()
