"""Toll: a client for a payment gate for AI agents, to manage it, to sell, and to buy.

    from toll import Toll, builders

    toll = Toll()  # TOLL_API_KEY, TOLL_URL
    plan = toll.plans.create(
        name="Basic", price=builders.free_price(), credits=builders.fixed_credits(100)
    )
    for agent in toll.agents.list():
        print(agent.name)

toll.records has the types of responses, toll.asgi and toll.wsgi put prices on web applications, toll.mcp puts prices on MCP servers, toll.http
pays for requests, and toll.testing starts a service for tests.
"""

from . import builders
from ._core import API_VERSION, RELEASE, Attempt, AsyncTransport, Transport, TransportError
from ._namespace import Namespace
from ._pages import AsyncPages, Page, Pages
from ._receipts import read_receipt
from ._record import Record
from ._wire import Answer, Headers, Request
from .client import AsyncToll, Toll
from .errors import (
    AuthError,
    BusinessError,
    IntegrationError,
    InternalError,
    MissingKeyError,
    PaymentRequiredError,
    RateLimitedError,
    SettlementPendingError,
    TollError,
    UnavailableError,
    ValidationError,
    WebhookError,
)
from .webhooks import read_delivery

__version__ = RELEASE

__all__ = [
    "API_VERSION",
    "Answer",
    "AsyncPages",
    "AsyncToll",
    "AsyncTransport",
    "Attempt",
    "AuthError",
    "BusinessError",
    "Headers",
    "IntegrationError",
    "InternalError",
    "MissingKeyError",
    "Namespace",
    "Page",
    "Pages",
    "PaymentRequiredError",
    "RateLimitedError",
    "Record",
    "Request",
    "SettlementPendingError",
    "Toll",
    "TollError",
    "Transport",
    "TransportError",
    "UnavailableError",
    "ValidationError",
    "WebhookError",
    "builders",
    "read_delivery",
    "read_receipt",
]
