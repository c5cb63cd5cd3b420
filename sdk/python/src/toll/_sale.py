"""The seller's side of a paid request, for every transport: verify with a hold, settle, release.

These are steps (see _core): toll.asgi performs them on the event loop, toll.wsgi in the thread of
the request, and toll.mcp sells calls with them. They follow the same rules as the Go package paid.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import unicodedata
import urllib.parse
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Literal, Mapping, Sequence, Union

from . import _core, _payments, _x402, errors
from ._core import AsyncTransport, Call, Config, Sleep, Steps, run_async
from ._models import Info, Plan, SettleResponse, VerifyResponse
from ._wire import Headers, dumps

log = logging.getLogger("toll.paid")

#: Default and longest duration of a hold, in seconds.
HOLD_SECS = 60
MAX_HOLD_SECS = 900
#: Longest time from the start of a hold for which it is renewed, and the shortest pause between two
#: attempts, in seconds.
MAX_HOLD_LIFE, RENEW_PAUSE = 86_400.0, 1.0
#: The last event of an event stream that is cut off.
END_OF_HOLD = b'event: error\ndata: {"message":"The hold for this stream has expired."}\n\n'
#: Most bytes of a response kept in memory until its settlement; a longer response is streamed on its hold.
MAX_BUFFER = 8 << 20
#: Most bytes of the body of a paid request.
MAX_BODY = 10 << 20
#: Timeout of one call to the facilitator, in seconds.
TIMEOUT = 30.0
#: Settlement attempts, with the same id, before the response reports an unknown outcome.
TRIES = 3
#: Limits of a request (wire contract, section 1).
MAX_URL, MAX_HEADERS, MAX_LINES = 8 << 10, 16 << 10, 200
#: Seconds for which terms of a plan are cached, and the size of the cache.
TERMS_LIFE, MAX_TERMS = 300.0, 1000
#: Most bytes of a payment-required value, and most characters of an untrusted text in a response.
MAX_REQUIRED, MAX_TEXT = 6 << 10, 300
#: Default of Retry-After, in seconds.
RETRY = 5
#: Most unsettled streams that wait, and the longest wait in seconds.
MAX_UNSETTLED, UNSETTLED_LIFE = 10_000, 86_400.0

PAYMENT_HEADERS = frozenset(
    {
        "payment-signature", "payment-required", "payment-response", "x-payment",
        "x-payment-response", "settlement-overrides", "extension-responses",
    }
)
#: Headers that override path or method, and conditions, because a 304 would be free.
OTHER_HEADERS = frozenset(
    {
        "x-http-method-override", "x-http-method", "x-method-override", "x-original-url",
        "x-rewrite-url", "x-original-uri", "upgrade", "http2-settings", "if-none-match",
        "if-modified-since",
    }
)
EXTENSIONS: Mapping[str, Any] = {
    _x402.IDENTIFIER: {
        "info": {"required": False},
        "schema": {
            "type": "object",
            "properties": {
                "required": {"type": "boolean"},
                "id": {
                    "type": "string", "minLength": 16, "maxLength": 128,
                    "pattern": "^[a-zA-Z0-9_-]+$",
                },
            },
            "required": ["required"],
        },
    }
}
#: Reasons that mean that the payer needs more credits or a higher limit.
LACKS = frozenset(
    {
        "insufficient_funds", "redemption_limit_reached", "order_limit_reached", "plan_expired",
        "delegation_exhausted", "delegation_insufficient", "delegation_expired",
        "delegation_revoked", "delegation_not_found",
    }
)
# What the payer can do about a limit of the access token, by error code.
BETTER_TOKEN = {
    "BCK.X402.0901": "Create an access token with a higher redemptionLimit",
    "BCK.X402.0902": "Create an access token with a higher orderLimit",
}

Lines = list[tuple[str, str]]
CallerGone = Literal["by_method", "settle", "release"]


@dataclass(frozen=True)
class Work:
    """A request and the response of its handler, for functions that price it.

    ``body`` is the complete response body, None if it was streamed. ``size`` is its size in bytes so far.
    """

    method: str
    path: str
    status: int
    headers: Headers
    body: bytes | None = field(repr=False)
    size: int
    streamed: bool
    payment: Payment


Credits = Union[int, Callable[[Work], int]]


@dataclass(frozen=True)
class Price:
    """The price of a route. Omitted members use the setting of the middleware.

    credits is a number, or a function of the Work. The result of a function is capped at the hold:
    max_credits, or else the maximum of the plan. stream streams every response on its hold; by
    default, only event streams and responses longer than max_buffer are streamed.
    """

    credits: Credits = 1
    max_credits: int | None = None
    plan: str | None = None
    agent: str | None = None
    description: str | None = None
    mime_type: str | None = None
    hold_secs: int | None = None
    stream: bool = False
    caller_gone: CallerGone | None = None


@dataclass(frozen=True)
class Payment:
    """The payment for a request, as its handler sees it, without the access token.

    ``held`` is the most that the request can cost, in credits.
    """

    payer: str
    plan_id: str
    agent_id: str | None
    agent_request_id: str
    held: int
    verdict: VerifyResponse = field(repr=False)


@dataclass(frozen=True)
class Unsettled:
    """A delivered but unsettled stream.

    ``final`` is true if it will not be settled: the service refused, the retries failed for 24
    hours, or the queue was full. ``reason`` is the errorReason of the last attempt.
    """

    agent_request_id: str
    plan_id: str
    payer: str
    credits: int
    size: int
    attempts: int
    reason: str
    final: bool


@dataclass(frozen=True)
class Reply:
    """A response in place of the handler's response, without any of its content."""

    status: int
    headers: Lines
    body: bytes


class Refused(Exception):
    """The request is not paid. Handlers must not catch this, because the middleware responds."""

    def __init__(self, reply: Reply | None) -> None:
        super().__init__("payment required" if reply else "the caller has disconnected")
        self.reply = reply


class NotBehindMiddleware(RuntimeError):
    """A paid handler was called without its middleware, so no payment is possible."""

    def __init__(self) -> None:
        super().__init__(
            "a paid handler requires the middleware of toll.asgi or toll.wsgi around the application"
        )


class HoldEnded(RuntimeError):
    """The response was cut off because its hold has expired."""


@dataclass(frozen=True)
class Fault:
    """An error response of the middleware (wire contract, section 3)."""

    status: int
    code: str
    message: str
    category: str = "validation"
    hint: str = ""
    retryable: bool = False
    retry_after: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def members(self, correlation: str) -> dict[str, Any]:
        """Returns the members of the error body."""
        out: dict[str, Any] = {
            "code": self.code, "message": self.message, "httpStatus": self.status,
            "category": self.category, "retryable": self.retryable, "correlationId": correlation,
        }
        if self.hint:
            out["hint"] = self.hint
        if self.params:
            out["params"] = dumps(self.params).decode()
        return out


def bad_request(message: str, hint: str = "") -> Fault:
    """Returns a 400."""
    return Fault(400, "BCK.HTTP.400", message, hint=hint)


def internal() -> Fault:
    """Returns a 500 without internal details."""
    return Fault(500, "BCK.HTTP.500", "An unexpected error occurred.", "internal")


UNAVAILABLE = "The payment service cannot be reached. No credits were burned."


@dataclass(frozen=True)
class Terms:
    """Terms of a plan that a payment request needs."""

    plan_id: str
    scheme: str
    network: str
    pay_to: str
    least: int
    most: int
    is_time: bool
    service: str
    order_url: str

    @property
    def page(self) -> str:
        """The page of the service that sells the plan, or empty."""
        origin = self.service.removesuffix("/api/v1")
        return f"{origin}/p/{self.plan_id}" if origin != self.service else ""

    def in_bounds(self, credits: int) -> int:
        """Limits credits to the bounds of the plan for one request; 0 stays 0."""
        if credits == 0 or self.most == 0 or self.is_time:
            return credits
        return min(max(credits, self.least), self.most)


@dataclass
class Incoming:
    """A request as the server read it. Header names are in lower case."""

    method: str
    #: Path as sent, percent-encoded, and query without "?".
    path: str
    query: str
    headers: Lines

    def get_all(self, name: str) -> list[str]:
        """Returns the values of all lines with this name."""
        return [v for n, v in self.headers if n == name]


def clean_path(raw: str) -> list[str] | None:
    """Returns the segments of a path, or None if routers could interpret it in another way."""
    lower = raw.lower()
    if not raw.startswith("/") or "%2f" in lower or "%5c" in lower or "\\" in raw:
        return None
    try:
        path = urllib.parse.unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return None
    # unquote ignores malformed escapes.
    rest = raw.split("%")[1:]
    if any(len(r) < 2 or not all(c in "0123456789abcdefABCDEF" for c in r[:2]) for r in rest):
        return None
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in path):
        return None
    out: list[str] = []
    for s in path.split("/"):
        if s == "..":
            out = out[:-1]
        elif s not in ("", "."):
            out.append(s)
    return out


def plain(text: str, most: int = MAX_TEXT) -> str:
    """Returns an untrusted text as one line, without invisible characters."""
    text = "".join(
        " " if c.isspace() or unicodedata.category(c) in ("Cc", "Zl", "Zp") else c
        for c in text[: 16 * most]
        if unicodedata.category(c) not in ("Cf", "Cs", "Co", "Cn")
    )
    return " ".join(text.split())[:most]


# Headers that may carry credentials other than payments, and are kept.
SHARED = ("authorization", "x-api-key")


def challenge_error(begin: str, sentence: str) -> str:
    """Returns the error of a 402: begin, then the sentence if it contains an address.

    Some clients show nothing else of the response. It has at most 300 bytes: a sentence that does
    not fit is omitted, and begin is cut between characters.
    """
    whole = begin + (" " if begin.endswith(".") else ": ") + sentence
    if "://" in sentence and len(whole.encode()) <= 300:
        return whole
    return begin.encode()[:300].decode(errors="ignore")


def correlation_id(request: Incoming) -> str:
    """Returns the request id of the caller if it is harmless, otherwise a new id."""
    for name in ("x-correlation-id", "x-request-id"):
        for v in request.get_all(name)[:1]:
            if 0 < len(v) <= 128 and all("!" <= c <= "~" for c in v):
                return v
    return str(uuid.uuid4())


def dashed(name: str) -> str:
    """Returns a header name as CGI-like layers compare it."""
    return name.lower().replace("_", "-")


class Seller:
    """State shared by all sales of one application. Safe for use from several threads."""

    def __init__(
        self,
        config: Config,
        *,
        plan: str | None,
        agent: str | None = None,
        public_url: str | None = None,
        price: Price | None = None,
        hold_secs: int = HOLD_SECS,
        max_buffer: int = MAX_BUFFER,
        max_body: int = MAX_BODY,
        timeout: float = TIMEOUT,
        expired_status: int = 402,
        token_headers: Sequence[str] = (_x402.SIGNATURE,),
        caller_gone: CallerGone = "by_method",
        on_settled: Callable[[SettleResponse], None] | None = None,
        on_unsettled: Callable[[Unsettled], None] | None = None,
        scheme: str | None = None,
        network: str | None = None,
    ) -> None:
        if not config.api_key:
            raise ValueError("TOLL_API_KEY is not set. Payments need an API key of the plan's owner.")
        if expired_status not in (402, 401):
            raise ValueError(f"expired_status must be 402 or 401; got {expired_status}")
        if caller_gone not in ("by_method", "settle", "release"):
            raise ValueError(f"caller_gone must be by_method, settle, or release; got {caller_gone!r}")
        if not 1 <= hold_secs <= MAX_HOLD_SECS:
            raise ValueError(f"hold_secs must be from 1 to {MAX_HOLD_SECS}; got {hold_secs}")
        if public_url is not None:
            public_url = _core.base_url(public_url)
        # Retries are decided here.
        self.config = config.with_options(timeout=timeout, max_retries=0, idempotency_key=None)
        self.plan, self.agent, self.public_url, self.price = plan, agent, public_url, price
        self.hold_secs, self.max_buffer, self.max_body = hold_secs, max_buffer, max_body
        self.expired_status, self.caller_gone = expired_status, caller_gone
        self.token_headers = [h.lower() for h in token_headers]
        self.on_settled, self.on_unsettled = on_settled, on_unsettled
        self.scheme, self.network = scheme, network
        self.names = config.namespace
        self._terms: dict[str, tuple[Terms, float]] = {}
        self._info: Info | None = None
        self._said: set[str] = set()

    def once(self, what: str, message: str, *args: Any) -> None:
        """Logs a warning once."""
        if what not in self._said and len(self._said) < 1000:
            self._said.add(what)
            log.warning(message, *args)

    def tell(self, call: Callable[[Any], None] | None, value: Any) -> None:
        """Calls a callback of the builder, and logs its errors."""
        if call is not None:
            try:
                call(value)
            except Exception:
                log.exception("a callback failed")

    def terms(self, plan_id: str) -> Steps[Terms]:
        """Reads the terms of a plan, or returns cached terms while the service is unavailable."""
        known = self._terms.get(plan_id)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        try:
            path = f"/api/v1/protocol/plans/{_core.segment(plan_id)}"
            plan = yield from _core.perform(self.config, Call("GET", path, Plan, key=False))
            if self._info is None:
                self._info = yield from _core.perform(self.config, Call("GET", "/", Info, key=False))
        except errors.TollError as e:
            if known is not None and e.status != 404:
                return known[0]
            raise
        if len(self._terms) >= MAX_TERMS:
            self._terms.clear()
        terms = terms_of(plan, self._info, self.config)
        self._terms[plan_id] = (terms, time.monotonic() + TERMS_LIFE)
        return terms


def terms_of(plan: Plan, info: Info, config: Config) -> Terms:
    """Returns the terms of a plan at a service."""
    price, credits, names = plan.registry.price, plan.registry.credits, config.namespace
    scheme, network = names.crypto, info.network
    if price.is_crypto is False:
        scheme, network = names.card, f"stripe:{info.environment}"
    elif info.network.startswith("stripe"):
        network = "eip155:8453" if info.environment == "live" else "eip155:84532"
    receivers = price.receivers or ()
    base = info.api_base.rstrip("/")
    sold = (
        price.is_crypto is not False
        and len(receivers) == 1
        and (price.currency or "") in ("USDC", "EURC")
        and plan.is_listed
        and not plan.metadata.plan.is_trial_plan
        and int(price.template_address or "0x0", 16) == 0
    )
    return Terms(
        plan_id=plan.plan_id,
        scheme=scheme,
        network=network,
        pay_to=receivers[0] if receivers else plan.owner,
        least=credits.min_amount or 0,
        most=credits.max_amount or 0,
        is_time=plan.access_limit == "time",
        service=base,
        order_url=f"{base}/x402/plans/{plan.plan_id}/order" if sold else "",
    )


class Exchange:
    """The sale of one request, independent of the transport."""

    def __init__(self, seller: Seller, request: Incoming) -> None:
        self.seller, self.request = seller, request
        self.correlation = correlation_id(request)
        self.path = request.path or "/"
        self.fault: Fault | None = self._check()
        self.token, self.v1 = "", False
        if self.fault is None:
            self.fault = self._take()
        request.headers = self._stripped(request.headers)
        self.price = Price()
        self.terms: Terms | None = None
        self.required: dict[str, Any] = {}
        self.payment: Payment | None = None
        self.ends = 0.0
        self.received = 0
        self.tries = 0
        self.renewing: asyncio.Future[float] | None = None

    # Requests that a paid handler must not receive.

    def _check(self) -> Fault | None:
        r = self.request
        if len(r.path) + len(r.query) + 1 > MAX_URL:
            return Fault(414, "BCK.HTTP.414", "The URL is too long.")
        size = sum(len(n) + len(v) + 4 for n, v in r.headers)
        if size > MAX_HEADERS or len(r.headers) > MAX_LINES:
            return Fault(431, "BCK.HTTP.431", "The headers are too large.")
        if clean_path(self.path) is None:
            return bad_request("The path is malformed.")
        if r.method.upper() in ("CONNECT", "TRACE"):
            return Fault(405, "BCK.HTTP.405", "This path does not support this method.")
        offers = ",".join(r.get_all("upgrade")).split(",")
        if any(o.strip() and o.strip().lower() != "h2c" for o in offers):
            return Fault(
                405, "BCK.HTTP.405", "Paid routes do not support protocol upgrades."
            )
        if r.get_all("transfer-encoding") and r.get_all("content-length"):
            return bad_request("Send Content-Length or Transfer-Encoding, not both.")
        length = r.get_all("content-length")[:1]
        if length and length[0].isdigit() and int(length[0][:19]) > self.seller.max_body:
            return self.too_large()
        return None

    def too_large(self) -> Fault:
        """Returns the 413 of a body beyond max_body."""
        return Fault(
            413, "BCK.HTTP.413", "The body is too large.",
            hint=f"Send at most {self.seller.max_body} bytes.",
        )

    def _take(self) -> Fault | None:
        """Reads the one access token of the request."""
        for name in self.seller.token_headers:
            values = self.request.get_all(name)
            if len(values) > 1:
                return bad_request(f"The header {name} must be sent only once.")
            if not values:
                continue
            v = values[0].strip()
            if name == "authorization":
                word, _, v = v.partition(" ")
                v = v.strip() if word.lower() == "bearer" else ""
            if dashed(name) in SHARED and not _x402.is_access_token(v):
                continue
            if not v:
                continue
            if len(v) > _x402.MAX_TOKEN:
                return Fault(431, "BCK.HTTP.431", "The access token is longer than 8 KiB.")
            if not self.token:
                self.token = v
                continue
            if v != self.token and not same_token(self.token, v):
                return bad_request("The request contains two different access tokens.")
        self.v1 = bool(self.request.get_all("x-payment"))
        if self.v1 and self.token:
            return bad_request("The request contains payments of two protocol versions.")
        if self.token and (carries(self.path, "/") or carries(self.request.query)):
            return bad_request(
                "The URL contains an access token. URLs are logged, so revoke the token.",
                f"Send the access token in the header {_x402.SIGNATURE}.",
            )
        return None

    def _stripped(self, headers: Lines) -> Lines:
        """Returns the headers without payments, access tokens, and overrides."""
        out: Lines = []
        for name, value in headers:
            n = dashed(name)
            if n in PAYMENT_HEADERS or n in OTHER_HEADERS:
                continue
            if n not in SHARED and n in map(dashed, self.seller.token_headers):
                continue
            if carries(value):
                if n != "cookie":
                    continue
                kept = [c.strip() for c in value.split(";") if not carries(c)]
                value = "; ".join(kept)
                if not value:
                    continue
            out.append((name, value))
        return out

    # The payment.

    def pay(self, price: Price) -> Steps[Reply | None]:
        """Verifies the payment with a hold. Returns the response for an unpaid request."""
        if self.payment is not None:
            raise RuntimeError("this request is already paid: a handler can have only one price")
        self.price = price
        seller = self.seller
        fault = self.fault
        if fault is None and self.received > seller.max_body:
            fault = self.too_large()
        if fault is not None:
            return self.error(fault)
        plan_id = price.plan or seller.plan
        if not plan_id:
            raise ValueError("a paid route requires a plan: set plan=... in the middleware or in paid()")
        try:
            terms = yield from seller.terms(plan_id)
        except errors.TollError as e:
            return self.unavailable("reading the terms of the plan", e)
        self.terms = terms
        most = self._most()
        asked = None if most is None else terms.in_bounds(most)
        if most is not None and asked != most:
            seller.once(
                f"bounds {plan_id} {most}",
                "the price of a route is %s credits, but the minimum is %s and the maximum is %s for plan "
                "%s: using the nearest allowed price", most, terms.least, terms.most, plan_id,
            )
        self.required = self._require(terms, asked)
        if self.v1:
            fault = Fault(402, "BCK.X402.0915", "x402Version must be 2.")
            return self.refuse("invalid_x402_version", fault)
        if not self.token:
            buy = terms.page and f"Buy the plan at {terms.page}. "
            hint = (
                f"{buy}Create an access token with POST {terms.service or '/api/v1'}/x402/permissions and send it in "
                f"{' or '.join(seller.token_headers)}."
            )
            return self.refuse("", Fault(402, "BCK.X402.0030", "A payment is required.", "business", hint))
        reply = self._read_token()
        if reply is not None:
            return reply
        return (yield from self._open(asked))

    def _most(self) -> int | None:
        if callable(self.price.credits):
            return self.price.max_credits
        return whole(self.price.credits)

    def _require(self, terms: Terms, asked: int | None) -> dict[str, Any]:
        names, price = self.seller.names, self.price
        agent = price.agent or self.seller.agent
        verb = "GET" if self.request.method.upper() == "HEAD" else self.request.method.upper()
        extra: dict[str, Any] = {"version": "1", "planId": terms.plan_id}
        if agent:
            extra["agentId"] = agent
        extra["httpVerb"] = verb
        if terms.service:
            extra["planUrl"] = f"{terms.service}/protocol/plans/{terms.plan_id}"
            extra["orderUrl"] = terms.order_url or extra["planUrl"] + "/order"
            if terms.service.endswith("/api/v1"):
                extra["signInUrl"] = terms.service[: -len("/api/v1")] + "/sign-in"
        amount = 0 if terms.is_time else (terms.most if asked is None else asked)
        resource: dict[str, Any] = {"url": self._resource()}
        if price.description:
            resource["description"] = price.description
        if price.mime_type:
            resource["mimeType"] = price.mime_type
        entry = {
            "scheme": self.seller.scheme or terms.scheme,
            "network": self.seller.network or terms.network,
            "amount": str(amount),
            "asset": names.asset,
            "payTo": terms.pay_to,
            "maxTimeoutSeconds": self.hold_secs,
            "planId": terms.plan_id,
            "extra": extra,
        }
        return {"x402Version": 2, "resource": resource, "accepts": [entry], "extensions": {}}

    @property
    def hold_secs(self) -> int:
        """Duration of the hold in seconds."""
        return min(max(self.price.hold_secs or self.seller.hold_secs, 1), MAX_HOLD_SECS)

    def _resource(self) -> str:
        # Host and forwarding headers are never used, because callers control them.
        if self.seller.public_url is None:
            self.seller.once(
                "public_url",
                "public_url is not set: 402 responses contain only a path, which clients cannot call, "
                "and access tokens for a single resource are rejected",
            )
            return self.path
        query = f"?{self.request.query}" if self.request.query else ""
        return self.seller.public_url + self.path + query

    def _read_token(self) -> Reply | None:
        try:
            token = _x402.decode_token(self.token)
        except _x402.Undecodable as e:
            version = e.code == "BCK.X402.0915"
            reason = "invalid_x402_version" if version else "invalid_payload"
            return self.refuse(reason, Fault(402, e.code, str(e)))
        for name, ours in EXTENSIONS.items():
            theirs = token.extensions.get(name)
            if theirs is None:
                continue
            info = theirs.get("info") if isinstance(theirs, dict) else None
            if not isinstance(info, dict) or any(info.get(k) != v for k, v in ours["info"].items()):
                message = f"The payment must repeat the extension {name} exactly as the server sent it."
                return self.refuse("extension_echo_mismatch", Fault(402, "BCK.X402.0012", message))
        if not self._is_for_us(token):
            return self.refuse(
                self.seller.names.reason("resource_mismatch"),
                Fault(
                    402, "BCK.PROTOCOL.0031", "The access token is for another resource.",
                    "business",
                    "Create an access token for this resource, or without a resource.",
                ),
            )
        return None

    def _is_for_us(self, token: _x402.Token) -> bool:
        """Reports whether the token is valid for this resource, or for any resource (RFC 8707)."""
        audience = token.audience()
        if not audience:
            return True  # the service refuses malformed claims
        issuer = str(token.claims.get("iss") or "")
        others = [a for a in audience if a != issuer + "/x402"]
        if len(others) == len(audience):
            return False
        if not others:
            return True
        base = self.seller.public_url
        segments = clean_path(self.path) or []
        here = "/".join([base or "", *(urllib.parse.quote(s, safe="") for s in segments)])
        return base is not None and any(above(base, a) and above(a, here) for a in others)

    def _open(self, asked: int | None) -> Steps[Reply | None]:
        body = {
            "paymentRequired": self.required, "x402AccessToken": self.token, "hold": True,
            "holdSecs": self.hold_secs,
        }
        if asked is not None:
            body["maxAmount"] = str(asked)
        # The service decides when the hold ends. Counting from before the call, our end is never later.
        self.ends = time.monotonic() + self.hold_secs
        try:
            verdict = yield from _payments.verify(self.seller.config, body)
        except errors.TollError as e:
            return self.unavailable("verify", e)
        if not verdict.is_valid:
            return self._refused(verdict)
        extra = verdict.extra
        held = extra.held_amount if extra is not None else None
        amount = held if held is not None else (verdict.amount or 0)
        self.payment = Payment(
            payer=verdict.payer or "",
            plan_id=self.required["accepts"][0]["planId"],
            agent_id=verdict.agent_id or self.price.agent or self.seller.agent,
            agent_request_id=verdict.agent_request_id or "",
            held=amount,
            verdict=verdict,
        )
        if not verdict.agent_request_id or (held is None and amount > 0):
            yield from self.release()
            self.payment = None
            lacking = errors.InternalError(
                "The facilitator verified a payment, but returned no request id or no hold."
            )
            return self.unavailable("verify", lacking)
        return None

    def _refused(self, v: VerifyResponse) -> Reply:
        reason, code = v.invalid_reason or "", v.code or "BCK.X402.0030"
        message = plain(v.invalid_message or "") or "A payment is required."
        if reason in ("settle_conflict", "payment_identifier_conflict"):
            return self.error(Fault(409, code, message, "business"))
        if reason in ("too_many_holds", "rate_limited"):
            return self.error(Fault(429, code, message, "business", retryable=True))
        if reason == _payments.PENDING:
            return self.error(Fault(503, code, message, "integration", retryable=True))
        if reason in ("unauthorized_server", "unexpected_verify_error") or code in (
            "BCK.X402.0001", "BCK.X402.0002",
        ):
            status = v.response.status if v.response else 0
            return self.unavailable(
                "verify", errors.InternalError(message, code=code, status=status)
            )
        page = v.extra.checkout_url if v.extra is not None else None
        params = {"checkoutUrl": page} if page and is_page(page) else {}
        category = "auth" if code == "BCK.X402.0005" else "business"
        return self.refuse(reason, Fault(402, code, message, category, params=params))

    # Responses in place of the handler's response.

    def error(self, fault: Fault, more: Mapping[str, Any] | None = None, lines: Lines | None = None) -> Reply:
        """Returns an error response."""
        body = dumps({**(more or {}), **fault.members(self.correlation)})
        headers: Lines = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("x-correlation-id", self.correlation),
            *(lines or []),
        ]
        if fault.status == 405:
            headers.append(("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"))
        wait = fault.retry_after or (RETRY if fault.status in (429, 503) else 0)
        if wait:
            headers.append(("retry-after", str(wait)))
        if self.request.get_all("transfer-encoding") and self.request.get_all("content-length"):
            headers.append(("connection", "close"))
        return Reply(fault.status, headers, b"" if self.request.method == "HEAD" else body)

    def refuse(self, reason: str, fault: Fault, receipt: SettleResponse | None = None) -> Reply:
        """Returns a 402 with the price, the reason of the refusal, and the receipt of a failed settlement."""
        terms = self.terms
        assert terms is not None
        challenge: dict[str, Any] = {
            "x402Version": 2,
            "error": "",
            **{k: v for k, v in self.required.items() if k != "x402Version"},
            "extensions": {**EXTENSIONS},
        }
        info: dict[str, Any] = dict(fault.params)
        if reason in LACKS and terms.order_url:
            info["orderUrl"] = terms.order_url
        if info:
            info["planId"] = terms.plan_id
            challenge["extensions"][self.seller.names.plan_extension] = {"info": info}
        if not fault.hint:
            hint = f"Order the plan {terms.plan_id}" if reason in LACKS else "Get another access token"
            where = terms.page and f" at {terms.page}"
            hint = f"{BETTER_TOKEN.get(fault.code, hint)}{where}, then repeat the request."
            if fault.code == "BCK.PROTOCOL.0031":
                hint = "Call an endpoint of the agent. Its seller can add this one."
            fault = replace(fault, hint=hint)
        begin = f"{reason}: {plain(fault.message)}" if reason else "Payment required"
        challenge["error"] = challenge_error(begin, fault.hint)
        lines: Lines = [(_x402.REQUIRED, required_header(challenge))]
        if receipt is not None:
            lines.append((_x402.RESPONSE, receipt_header(receipt)))
        if (
            self.seller.expired_status == 401
            and receipt is None
            and reason in map(self.seller.names.reason, EXPIRED)
        ):
            fault = replace(fault, status=401)
            lines.append(("www-authenticate", 'Bearer error="invalid_token"'))
        else:
            fault = replace(fault, status=402)
        return self.error(fault, challenge, lines)

    def unavailable(self, what: str, e: errors.TollError) -> Reply:
        """Returns the response after a failed call to the facilitator, which is not the caller's fault."""
        if e.status == 429:
            return self.error(
                Fault(
                    429, "BCK.HTTP.429", "Too many requests.", "business", retryable=True,
                    retry_after=e.retry_after,
                )
            )
        log.error(
            "a call to the facilitator failed: %s: %s (correlationId %s)", what, e, self.correlation
        )
        if e.code == errors.PENDING:
            return self.error(
                Fault(
                    503, e.code, "The outcome of the payment is not known yet. Repeat the request.",
                    "integration", retryable=True, retry_after=e.retry_after,
                )
            )
        return self.error(
            Fault(503, "BCK.HTTP.503", UNAVAILABLE, "internal", retryable=True, retry_after=e.retry_after)
        )

    # The end of the work.

    def settles_gone(self) -> bool:
        """Reports whether successful work is settled even if the caller has disconnected."""
        rule = self.price.caller_gone or self.seller.caller_gone
        if rule == "by_method":
            return self.request.method.upper() not in ("GET", "HEAD", "OPTIONS")
        return rule == "settle"

    def amount(self, status: int, headers: Lines, body: bytes | None, size: int) -> int:
        """Returns the price of a response, capped at the held credits. Raises errors of credits()."""
        assert self.terms is not None and self.payment is not None
        credits = self.price.credits
        if callable(credits):
            work = Work(
                self.request.method, self.path, status, Headers(headers), body, size, body is None,
                self.payment,
            )
            given = whole(credits(work))
            return min(self.terms.in_bounds(given), self.payment.held)
        return self.terms.in_bounds(whole(credits))

    def settle(self, amount: int, tries: int = TRIES) -> Steps[tuple[SettleResponse, bool]]:
        """Burns the amount under the id of the request, at most once. The second value reports whether
        the outcome is known; if not, the errorReason of the receipt is settlement_pending."""
        assert self.payment is not None
        body = {
            "paymentRequired": self.required, "x402AccessToken": self.token,
            "maxAmount": str(amount), "agentRequestId": self.payment.agent_request_id,
        }
        for attempt in range(tries):
            self.tries += 1
            wait = 0
            fault: errors.TollError | None = None
            try:
                receipt = yield from _payments.settle(self.seller.config, body)
                if self._believes(receipt, amount):
                    if receipt.success or receipt.error_reason != _payments.PENDING:
                        self._tell(receipt)
                        return receipt, True
                else:
                    fault = errors.InternalError("The response is for another settlement.", status=500)
            except errors.TollError as e:
                fault = e
            if fault is not None:
                log.error("the outcome of a settlement is not known yet: %s (%s)", fault, self.about())
                wait = fault.retry_after
                if 400 <= fault.status < 500 and fault.status not in (408, 429):
                    break
            if attempt + 1 < tries:
                yield Sleep(min(max(_core.backoff(attempt, 2.0), wait), 2.0))
        extra = {"agentRequestId": self.payment.agent_request_id}
        raw = {
            "success": False, "errorReason": _payments.PENDING, "code": errors.PENDING,
            "errorMessage": "The outcome of the settlement is not known yet.", "transaction": "",
            "network": self.required["accepts"][0]["network"], "payer": self.payment.payer,
            "extra": extra,
        }
        receipt = SettleResponse.read(raw)
        self._tell(receipt)
        return receipt, False

    def _believes(self, s: SettleResponse, amount: int) -> bool:
        assert self.payment is not None
        if s.success and not s.transaction and amount > 0:
            return False
        named = s.extra.agent_request_id if s.extra is not None else None
        return not named or named == self.payment.agent_request_id

    def _tell(self, receipt: SettleResponse) -> None:
        if not receipt.success:
            log.warning("a settlement failed: %s (%s)", receipt.error_reason, self.about())
        self.seller.tell(self.seller.on_settled, receipt)

    def release(self) -> Steps[None]:
        """Releases the hold. If that fails, the hold lapses at its end."""
        if self.payment is None or not self.payment.agent_request_id:
            return None
        config = self.seller.config
        config = config.with_options(timeout=min(config.timeout or 10.0, 10.0), max_retries=1)
        body = {"agentRequestId": self.payment.agent_request_id}
        try:
            yield from _payments.release(config, body)
        except errors.TollError as e:
            log.warning("a hold was not released and will expire: %s (%s)", e, self.about())
        return None

    def is_priced(self) -> bool:
        """Reports whether the price is known before the response, so that a stream is settled first."""
        return not callable(self.price.credits)

    def renew(self) -> Steps[float]:
        """Tries once to renew the hold. Returns the seconds until the next check."""
        assert self.payment is not None
        asked = time.monotonic()
        left = self.ends - asked
        config = self.seller.config
        config = config.with_options(timeout=max(0.001, min(config.timeout or left, left)))
        body = {"agentRequestId": self.payment.agent_request_id, "holdSecs": self.hold_secs}
        try:
            renewed = yield from _payments.renew(config, body)
            if renewed.agent_request_id != self.payment.agent_request_id:
                raise errors.InternalError("The response is for another request.", status=500)
        except errors.TollError as e:
            log.warning("a hold was not renewed: %s (%s)", e, self.about())
            left = max(0.0, self.ends - time.monotonic())
            if 400 <= e.status < 500 and e.status not in (408, 429):
                return left
            return min(left, max(left / 4, RENEW_PAUSE, e.retry_after))
        if self.ends != float("inf"):  # a stream that has been settled needs no hold
            self.ends = asked + self.hold_secs
        return max(0.0, self.ends - time.monotonic()) / 2

    async def keep(
        self, transport: AsyncTransport, is_here: Callable[[], bool], cut: Callable[[], None]
    ) -> None:
        """Renews the hold at half of its duration while is_here reports that the caller is connected,
        and calls cut when the hold has ended. It runs until it is canceled."""
        last = time.monotonic() + MAX_HOLD_LIFE - self.hold_secs
        wait = (self.ends - time.monotonic()) / 2
        while True:
            await asyncio.sleep(max(0.0, wait))
            wait = self.ends - time.monotonic()
            if wait == float("inf"):
                return
            if wait <= 0:
                cut()
                return
            if is_here() and time.monotonic() < last:
                self.renewing = asyncio.ensure_future(run_async(self.renew(), transport))
                wait = await self.renewing
                self.renewing = None

    def begin(self, status: int, headers: Lines) -> Steps[tuple[Lines, Reply | None]]:
        """Begins a stream. Returns its headers, and the response in place of an unpaid stream.

        A known price is settled first, and a response other than 2xx is free, so neither needs the
        hold any longer.
        """
        lines = headers
        if is_events(headers):
            # Proxies such as nginx buffer responses by default.
            lines = [(n, v) for n, v in headers if n.lower() != "x-accel-buffering"]
            lines.append(("x-accel-buffering", "no"))
        if not 200 <= status <= 299:
            self.ends = float("inf")
            yield from self.release()
            return keep_private(lines), None
        if not self.is_priced():
            return self.paid_headers(lines, None), None
        receipt, known = yield from self.settle(self.amount(status, headers, None, 0))
        if receipt.success:
            self.ends = float("inf")
            return self.paid_headers(lines, receipt), None
        if known:
            yield from self.release()
        return [], self.not_settled(receipt, known)

    def about(self) -> str:
        """Returns the ids of the request, for log lines."""
        id = self.payment.agent_request_id if self.payment else ""
        return f"agentRequestId {id}, correlationId {self.correlation}"

    def not_settled(self, receipt: SettleResponse, known: bool) -> Reply:
        """Returns the response for unsettled work, without any of its content."""
        lines = [(_x402.RESPONSE, receipt_header(receipt))]
        if not known:
            fault = Fault(
                503, errors.PENDING, "The outcome of the payment is not known yet. Repeat the request.",
                "integration", retryable=True,
            )
            return self.error(fault, None, lines)
        reason = receipt.error_reason or ""
        message = plain(receipt.error_message or "") or "The settlement was refused."
        code = receipt.code or "BCK.X402.0030"
        if reason == "unauthorized_server":
            return self.unavailable("settle", errors.InternalError(message, code=code))
        return self.refuse(reason, Fault(402, code, message, "business"), receipt)

    def paid_headers(self, headers: Lines, receipt: SettleResponse | None) -> Lines:
        """Returns the headers of a paid response: private to caches, with the receipt or request id."""
        out = keep_private(headers)
        assert self.payment is not None
        if receipt is not None:
            out.append((_x402.RESPONSE, receipt_header(receipt)))
        else:
            out.append((self.seller.names.request_id.lower(), self.payment.agent_request_id))
        if any(n == "access-control-allow-origin" for n, _ in out):
            out.append(
                ("access-control-expose-headers", f"{_x402.REQUIRED}, {_x402.RESPONSE}")
            )
        return out


EXPIRED = ("payload_expired", "payload_revoked", "payload_signature")


def whole(credits: Any) -> int:
    """Returns the credits of a price, at least 0. Raises TypeError for anything but int."""
    if isinstance(credits, bool) or not isinstance(credits, int):
        raise TypeError(f"credits must be an int; got {credits!r}")
    return max(credits, 0)


def is_page(text: str) -> bool:
    """Reports whether a text is the address of a page, in visible ASCII."""
    return (
        len(text) <= 2048
        and text.startswith(("https://", "http://"))
        and all("!" <= c <= "~" for c in text)
    )


def same_token(a: str, b: str) -> bool:
    """Reports whether two forms of an access token have the same signed content."""
    try:
        x, y = _x402.decode_token(a), _x402.decode_token(b)
    except _x402.Undecodable:
        return False
    return x.jws == y.jws and (x.nonce == y.nonce or not x.nonce or not y.nonce)


def carries(text: str, more: str = "") -> bool:
    """Reports whether a text contains an access token, between separators of lists and queries."""
    if len(text) < _x402.MIN_TOKEN:
        return False
    for c in " \t,;?&=\"'" + more:
        text = text.replace(c, "\n")
    for part in text.split("\n"):
        if len(part) >= _x402.MIN_TOKEN:
            unquoted = urllib.parse.unquote(part).rstrip("=")
            if _x402.is_access_token(unquoted):
                return True
    return False


def above(upper: str, lower: str) -> bool:
    """Reports whether upper is the same url as lower, or an ancestor of it on the same server."""
    try:
        a, b = urllib.parse.urlsplit(upper), urllib.parse.urlsplit(lower)
        ports = [u.port or {"http": 80, "https": 443}.get(u.scheme) for u in (a, b)]
    except ValueError:
        return False
    if a.scheme not in ("http", "https") or a.scheme != b.scheme or ports[0] != ports[1]:
        return False
    if (a.hostname or "").lower() != (b.hostname or "").lower() or "#" in upper + lower:
        return False
    if any(s in ("", ".", "..") for s in a.path.rstrip("/").split("/")[1:]):
        return False
    path = a.path.rstrip("/")
    return b.path.rstrip("/") == path or b.path.startswith(path + "/")


def required_header(challenge: Mapping[str, Any]) -> str:
    """Encodes payment-required. Proxies reject long headers, so parts are removed until it fits."""
    value = _x402.encode(challenge)
    if len(value) <= MAX_REQUIRED:
        return value
    short: dict[str, Any] = {**challenge, "resource": dict(challenge["resource"])}
    short["resource"]["url"] = short["resource"]["url"].split("?")[0]
    value = _x402.encode(short)
    for cut in ("url", "description"):
        if len(value) > MAX_REQUIRED:
            short["resource"][cut] = ""
            short["error"] = "Payment required"
            value = _x402.encode(short)
    if len(value) > MAX_REQUIRED:
        short["extensions"] = {}
        value = _x402.encode(short)
    return value


def receipt_header(receipt: SettleResponse) -> str:
    """Encodes a receipt, as the original bytes of the service if they are known."""
    import base64

    if receipt.success and receipt.response and len(receipt.response.body) <= MAX_REQUIRED:
        return base64.b64encode(receipt.response.body).decode()
    return _x402.encode({k: v for k, v in receipt.raw.items() if k in RECEIPT})


RECEIPT = (
    "success", "errorReason", "errorMessage", "code", "transaction", "network", "payer",
    "creditsRedeemed", "remainingBalance", "amount", "extra",
)


CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def unsplit(headers: Lines) -> Lines:
    """Returns the headers of a response. Raises ValueError for control characters, which would split
    it, and for characters outside Latin-1, which servers cannot send."""
    for n, v in headers:
        if CONTROL.search(n) or CONTROL.search(v):
            raise ValueError(f"the header {n!r} must not contain control characters")
        if any(c > "\xff" for c in n + v):
            raise ValueError(f"the header {n!r} must contain only Latin-1 characters")
    return headers


def strip_answer(headers: Lines) -> Lines:
    """Returns the headers of a handler without the headers that only the middleware may set."""
    return [(n, v) for n, v in headers if dashed(n) not in PAYMENT_HEADERS]


def keep_private(headers: Lines) -> Lines:
    """Keeps a paid response out of shared caches, whatever the handler allowed."""
    directives, vary, out = ["private"], [], []  # type: ignore[var-annotated]
    for name, value in headers:
        n = name.lower()
        if n == "cache-control":
            for d in value.split(","):
                word = d.split("=")[0].strip().lower()
                if word not in ("", "public", "s-maxage", "proxy-revalidate", "private"):
                    directives.append(d.strip())
        elif n == "vary":
            vary += [v.strip() for v in value.split(",") if v.strip()]
        elif not n.endswith("cdn-cache-control") and n not in (
            "surrogate-control", "edge-control", "x-accel-expires",
        ):
            out.append((n, value))
    known = {v.lower() for v in vary}
    if "*" not in known:
        vary += [n for n in (_x402.SIGNATURE, "authorization") if n not in known]
    return [*out, ("cache-control", ", ".join(directives)), ("vary", ", ".join(vary))]


def is_events(headers: Lines) -> bool:
    """Reports whether a response is an event stream."""
    return any(
        n.lower() == "content-type" and v.split(";")[0].strip().lower() == "text/event-stream"
        for n, v in headers
    )


class Tail:
    """Tracks the bytes of an event stream, to append an event if it is cut off."""

    def __init__(self, headers: Lines) -> None:
        names = {n.lower() for n, _ in headers}
        self._is_open = is_events(headers) and not names & {"content-encoding", "content-length"}
        self._tail = b""

    def add(self, part: bytes) -> None:
        """Records sent bytes."""
        if self._is_open:
            self._tail = (self._tail + part[-3:])[-3:]

    def end(self) -> bytes:
        """Returns the last event if the stream is between two events, otherwise nothing."""
        return END_OF_HOLD if self._tail.endswith((b"\n\n", b"\n\r\n")) else b""


def declared(headers: Lines) -> int | None:
    """Returns the content-length of a handler, or None if it is missing or malformed."""
    for n, v in headers:
        if n.lower() == "content-length" and v.isascii() and v.isdigit() and len(v) < 19:
            return int(v)
    return None


class Queue:
    """Settles streams that were delivered while the service was unavailable, each under its id.

    It is in memory, retries for up to 24 hours, and holds at most 10,000 streams. Call drain before
    the program exits, because unsettled streams are lost then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0
        self._hurry = False
        self._empty = threading.Event()
        self._empty.set()

    def __len__(self) -> int:
        return self._waiting

    def drain(self, timeout: float) -> bool:
        """Settles waiting streams without the usual pauses. Returns False if some remain after timeout.

        It blocks, so call it in a thread on an event loop: asyncio.to_thread(queue.drain, 10).
        """
        self._hurry = True
        try:
            return self._empty.wait(timeout)
        finally:
            self._hurry = False

    def add(
        self, x: Exchange, amount: int, size: int, receipt: SettleResponse, known: bool,
        transport: AsyncTransport, loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Retries the settlement of a stream. A known refusal is only reported.

        Without a loop, it uses the event loop of a background thread.
        """
        assert x.payment is not None
        u = Unsettled(
            x.payment.agent_request_id, x.payment.plan_id, x.payment.payer, amount, size, x.tries,
            receipt.error_reason or "", known,
        )
        with self._lock:
            if not u.final and self._waiting >= MAX_UNSETTLED:
                u = replace(u, final=True, reason="the queue of unsettled streams is full")
            if not u.final:
                self._waiting += 1
                self._empty.clear()
        self._alarm(x, u)
        if not u.final:
            on = loop or self.loop()
            asyncio.run_coroutine_threadsafe(self._work(x, u, transport), on)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Returns an event loop in a background thread, for servers without an event loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="toll", daemon=True).start()
            return self._loop

    def _alarm(self, x: Exchange, u: Unsettled) -> None:
        log.error("a delivered stream is not settled: %s", u)
        x.seller.tell(x.seller.on_unsettled, u)

    async def _work(self, x: Exchange, u: Unsettled, transport: AsyncTransport) -> None:
        try:
            began, delay = time.monotonic(), 1.0
            while time.monotonic() - began < UNSETTLED_LIFE:
                end = time.monotonic() + delay
                while time.monotonic() < end:
                    await asyncio.sleep(min(0.2, delay))
                    if self._hurry:
                        break
                receipt, known = await run_async(x.settle(u.credits, 1), transport)
                u = replace(u, attempts=x.tries, reason=receipt.error_reason or "")
                if receipt.success:
                    log.info("a stream was settled late (%s)", x.about())
                    return
                if known:
                    break
                delay = min(2 * delay, 60.0)
            self._alarm(x, replace(u, final=True))
        finally:
            with self._lock:
                self._waiting -= 1
                if self._waiting == 0:
                    self._empty.set()

