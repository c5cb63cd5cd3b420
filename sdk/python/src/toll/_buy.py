"""The buyer's side: pays for requests with credits or by a wallet, each once and within limits.

These are steps (see _core); toll.http performs them for urllib, requests, and httpx. They follow
the same rules as the Go package client.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import threading
import time
import urllib.parse
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, Literal, Mapping, Protocol, Sequence

from . import _core, _x402, errors
from ._core import Call, Config, Sign, Steps
from ._models import AccessToken, Agent, Info, Permission, PermissionRevoked, Plan
from ._pages import Listing
from ._sale import Terms, terms_of
from ._wire import Headers

#: Life of an access token for one request, in seconds.
TOKEN_LIFE = 300
#: Seconds for which the record of an agent is cached, and the size of the cache.
BELIEVED, MAX_BELIEVED = 60.0, 256
#: Most agents of a plan, and entries of a challenge, that are checked.
MAX_AGENTS, MAX_ENTRIES = 100, 16
#: Most bytes of a request body kept for the repeat with a payment, and of a refusal.
MAX_BODY, MAX_REFUSAL = 4 << 20, 64 << 10

State = Literal["sent", "paid", "refused", "unknown"]
#: Unit of a payment: credits of plans, or base units of a token with 6 decimals.
Unit = Literal["credits", "USDC", "EURC"]

#: Tokens that wallets pay with, by network and address in lower case.
TOKENS: Mapping[tuple[str, str], Unit] = {
    ("eip155:84532", "0x036cbd53842c5426634e7929541ec2318f3dcf7e"): "USDC",
    ("eip155:84532", "0x808456652fdb597867f38412077a9182bf77359f"): "EURC",
    ("eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"): "USDC",
    ("eip155:8453", "0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42"): "EURC",
}
TRANSFER = [
    {"name": name, "type": type}
    for name, type in [
        ("from", "address"), ("to", "address"), ("value", "uint256"), ("validAfter", "uint256"),
        ("validBefore", "uint256"), ("nonce", "bytes32"),
    ]
]


class Wallet(Protocol):
    """A wallet that signs and keeps its key, such as an account of eth_account."""

    @property
    def address(self) -> str:
        """The address of the account, 0x and 40 hex digits."""

    def sign_typed_data(
        self, domain: Mapping[str, Any], types: Mapping[str, Any], message: Mapping[str, Any]
    ) -> Any:
        """Signs EIP-712 typed data, whose primary type is the only entry of types.

        Returns the signature as bytes, as text that begins with 0x, or as an object with the member
        ``signature``. A coroutine is awaited by asynchronous payers.
        """


@dataclass(frozen=True)
class Payment:
    """The record of one payment, without the access token and without the query of the url.

    ``state``: sent is on its way; paid is settled; refused cost nothing, because the payment was
    refused or the request failed; unknown may have been settled. ``most`` is the most that the payment can cost, and ``spent`` the cost of a paid request,
    both in ``unit``. ``plan_id`` is empty for a payment from a wallet.
    """

    id: str
    at: datetime
    host: str
    method: str
    path: str
    plan_id: str
    most: int
    spent: int = 0
    state: State = "sent"
    transaction: str = ""
    #: The permission of the access token, with which the service reports the burned credits.
    permission_hash: str = ""
    unit: Unit = "credits"

    def counts(self) -> int:
        """Returns the amount used of the limits: the amount spent, or the most it could have spent."""
        return {"paid": self.spent, "refused": 0}.get(self.state, self.most)


@dataclass(frozen=True)
class Limits:
    """Limits on payments. The default allows no payment.

    hosts are names such as "agent.example.com" or "127.0.0.1:8403"; a name without a port allows
    only https. credits_per_call, credits_per_day, and credits limit the credits for one request, in
    24 hours, and in total. money_per_call, money_per_day, and money do the same for USDC and for
    EURC, counted separately in base units: 1_000_000 is 1.00.
    """

    hosts: Sequence[str] = ()
    credits_per_call: int = 0
    credits: int = 0
    credits_per_day: int | None = None
    money_per_call: int = 0
    money: int = 0
    money_per_day: int | None = None


class LimitReached(Exception):
    """A payment exceeds the limits. The message is safe to show."""


class Budget:
    """Approves payments and keeps their records in memory.

    Safe for use from several threads. on_payment receives each record whenever it changes.
    """

    def __init__(
        self, limits: Limits, *, on_payment: Callable[[Payment], None] | None = None
    ) -> None:
        self.limits = limits
        self._told = on_payment
        self._lock = threading.Lock()
        self._payments: dict[str, Payment] = {}

    @property
    def payments(self) -> tuple[Payment, ...]:
        """The records, oldest first."""
        with self._lock:
            return tuple(self._payments.values())

    @property
    def spent(self) -> int:
        """Credits spent, or possibly spent."""
        return self.spent_in("credits")

    def spent_in(self, unit: Unit) -> int:
        """Returns the amount spent, or possibly spent, in credits or base units of a token."""
        with self._lock:
            return self._sum(unit, 0)

    def _sum(self, unit: Unit, since: float) -> int:
        some = (p for p in self._payments.values() if p.unit == unit)
        return sum(p.counts() for p in some if p.at.timestamp() > since)

    def take(self, p: Payment) -> None:
        """Records a payment before it is sent. Raises LimitReached."""
        limits = self.limits
        per_call, total, per_day = (
            (limits.credits_per_call, limits.credits, limits.credits_per_day)
            if p.unit == "credits"
            else (limits.money_per_call, limits.money, limits.money_per_day)
        )
        asks = f"the request costs up to {p.most} {p.unit}"
        with self._lock:
            if p.host.lower() not in (h.lower() for h in limits.hosts):
                raise LimitReached(f"the host {p.host} is not in the list of allowed hosts")
            if p.most > per_call:
                raise LimitReached(f"{asks}, but the limit for one request is {per_call}")
            day = p.at.timestamp() - 86400
            for limit, since, when in ((total, 0.0, ""), (per_day, day, " (limit per 24 hours)")):
                if limit is None:
                    continue
                left = limit - self._sum(p.unit, since)
                if p.most > left:
                    raise LimitReached(f"{asks}, but only {max(left, 0)} of {limit} remain{when}")
            self._payments[p.id] = p
        self._tell(p)

    def close(self, p: Payment) -> None:
        """Updates the record of a payment."""
        with self._lock:
            if p.id not in self._payments:
                raise ValueError(f"the payment {p.id} is unknown")
            self._payments[p.id] = p
        self._tell(p)

    def _tell(self, p: Payment) -> None:
        if self._told is not None:
            self._told(p)


class PaymentError(Exception):
    """A request required payment and got no response.

    ``sent`` is true if a payment was sent: whether the server accepted it is unknown, and it counts
    in full. Such a request is not repeated automatically, because the server may have done the work.
    With no credits left, a payer raises no error: it returns the 402 response of the server.
    """

    def __init__(self, host: str, reason: str, payment: Payment | None = None) -> None:
        self.host, self.reason, self.payment = host, reason, payment
        self.sent = payment is not None
        text = f"{host} requires payment, but nothing was paid: {reason}"
        if self.sent:
            text = f"a payment to {host} was sent, but its outcome is unknown: {reason}"
        super().__init__(text)


def host_of(url: str) -> str:
    """Returns the host of a url as in Limits.hosts: without the port if it is the default of https."""
    u = urllib.parse.urlsplit(url)
    host, port = (u.hostname or "").lower(), u.port or {"http": 80, "https": 443}.get(u.scheme)
    host = f"[{host}]" if ":" in host else host
    return host if u.scheme == "https" and port == 443 else f"{host}:{port}"


def origin(url: str) -> str:
    """Returns scheme, host, and port for comparison. All loopback names count as the same host."""
    u = urllib.parse.urlsplit(url)
    host = (u.hostname or "").lower()
    try:
        if ipaddress.ip_address(host).is_loopback:
            host = "localhost"
    except ValueError:
        pass
    port = u.port or {"http": 80, "https": 443}.get(u.scheme.lower())
    return f"{u.scheme.lower()}://{host}:{port}"


@dataclass(frozen=True)
class Asked:
    """A request whose response requires payment, with the data that the payment needs.

    ``item`` is the item of a call over MCP: records contain it instead of the path, and the resource
    may have a logical url.
    """

    method: str
    url: str
    challenge: Mapping[str, Any] = field(repr=False)
    item: str = ""


@dataclass(frozen=True)
class Made:
    """A payment for a request, and its PaymentPayload."""

    payment: Payment
    payload: Mapping[str, Any] = field(repr=False)

    @property
    def header(self) -> str:
        """The value of payment-signature."""
        return _x402.encode(self.payload)


@dataclass(frozen=True)
class Quote:
    """The cost of an entry, and the steps that create the payload of its payment.

    The steps also return the hash of a permission, which is empty for a wallet.
    """

    unit: Unit
    plan_id: str
    most: int
    pay: Callable[[], Steps[tuple[dict[str, Any], str]]]


class Buyer:
    """Pays with credits of the workspace of a client, and by a wallet.

    config is the configuration of the client, or None. wallet pays entries of scheme exact in USDC
    and EURC: it signs one transfer for each request, and nothing else. plans are the plans whose
    credits may be spent; without plans, credits of any plan may be spent. Each request gets a
    separate access token, which can burn at most the cost of that request and is valid only for the
    agent that is called, so a server gains nothing by keeping it. The agent must be registered at
    the server; for agents whose records have no host, hosts lists trusted servers, and requires
    plans. delegation_id lets the token buy one more order when credits are short, and requires plans.
    """

    def __init__(
        self,
        config: Config | None,
        budget: Budget,
        *,
        wallet: Wallet | None = None,
        plans: Iterable[str] = (),
        hosts: Iterable[str] = (),
        agent: str | None = None,
        delegation_id: str | None = None,
    ) -> None:
        if config is None and wallet is None:
            raise ValueError("pass a client, a wallet, or both: a buyer needs a way to pay")
        self.budget, self.wallet = budget, wallet
        self._config = config
        self.plans, self.hosts = frozenset(plans), frozenset(h.lower() for h in hosts)
        self.agent, self.delegation_id = agent, delegation_id
        if delegation_id is not None and not self.plans:
            raise ValueError("delegation_id requires plans: list the plans that the delegation can buy")
        self._terms: dict[str, Terms] = {}
        self._agents: dict[tuple[str, str, str], tuple[bool, str, float]] = {}

    def pay(self, asked: Asked) -> Steps[Made]:
        """Chooses an entry, reserves its cost, and creates the payment.

        If it raises PaymentError, nothing was sent.
        """
        host = host_of(asked.url)
        resource = asked.challenge.get("resource")
        url = resource.get("url") if isinstance(resource, dict) else None
        reasons: list[str] = []
        logical = asked.item and isinstance(url, str) and url.startswith("mcp://")
        if isinstance(url, str) and not logical and not same_server(asked.url, url):
            raise PaymentError(
                host, f"the server requires payment for {url[:200]!r}, which is not at {host}: "
                "if you trust that URL, call it directly",
            )
        for entry in asked.challenge["accepts"][:MAX_ENTRIES]:
            try:
                if not isinstance(entry, dict):
                    raise Unpayable("a payment option is not a JSON object")
                quote = yield from self._quote(asked, entry)
            except Unpayable as e:
                reasons.append(str(e))
                continue
            except errors.TollError as e:
                reasons.append(e.message)
                continue
            path = asked.item or urllib.parse.urlsplit(asked.url).path
            payment = Payment(
                "pay_" + secrets.token_hex(16), datetime.now(timezone.utc), host, asked.method,
                path, quote.plan_id, quote.most, unit=quote.unit,
            )
            try:
                self.budget.take(payment)
            except LimitReached as e:
                reasons.append(str(e))
                continue
            try:
                payload, permission_hash = yield from quote.pay()
                payment = replace(payment, permission_hash=permission_hash)
                self.budget.close(payment)
                return Made(payment, answer(asked.challenge, entry, payload, payment.id))
            except BaseException as e:
                self.budget.close(replace(payment, state="refused"))
                if isinstance(e, errors.TollError):
                    reasons.append(e.message)
                elif isinstance(e, Unpayable):
                    reasons.append(str(e))
                else:
                    raise
        raise PaymentError(host, "; ".join(reasons) or "the response offers no way to pay")

    @property
    def config(self) -> Config:
        """The settings of the client. Raises Unpayable without one."""
        if self._config is None:
            raise Unpayable("no client is configured to pay with credits")
        return self._config

    def _quote(self, asked: Asked, entry: Mapping[str, Any]) -> Steps[Quote]:
        scheme = entry.get("scheme")
        if scheme == "exact":
            if self.wallet is None:
                raise Unpayable("the scheme exact requires a wallet, but no wallet is configured")
            if "sign-in-with-x" in (asked.challenge.get("extensions") or {}):
                raise Unpayable(
                    "the server requires a wallet sign-in (sign-in-with-x), "
                    "which this client does not support"
                )
            return quote_exact(entry, self.wallet)
        names = self.config.namespace
        if scheme not in (names.crypto, names.card):
            raise Unpayable(f"the scheme {str(scheme)[:40]!r} cannot be paid with credits")
        extra = entry.get("extra")
        named = (extra.get("planId") if isinstance(extra, dict) else None) or entry.get("planId")
        if not isinstance(named, str) or digits(named) is None:
            raise Unpayable("the payment option has no plan id")
        plan: str = named
        if self.plans and plan not in self.plans:
            raise Unpayable(
                f"the server requires credits of plan {plan}, which is not in the list of allowed plans"
            )
        terms = self._terms.get(plan)
        if terms is None:
            path = f"/api/v1/protocol/plans/{plan}"
            record = yield from _core.perform(
                self.config, Call("GET", path, Plan, again=True, key=False)
            )
            info = yield from _core.perform(
                self.config, Call("GET", "/", Info, again=True, key=False)
            )
            if len(self._terms) >= 1000:
                self._terms.clear()
            terms = self._terms[plan] = terms_of(record, info, self.config)
        network = entry.get("network")
        if scheme != terms.scheme or network not in (terms.network, terms.network.split(":")[0]):
            raise Unpayable(
                f"the payment option does not match plan {plan}, which uses scheme {terms.scheme} "
                f"on {terms.network}"
            )
        agent = extra.get("agentId") if isinstance(extra, dict) else None
        yield from self._check_agent(asked.url, plan, agent)
        amount = entry.get("amount")
        most = terms.most if amount in (None, "") else digits(amount, 19)
        if most is None:
            raise Unpayable(f"the amount {str(amount)[:40]!r} is not a whole number of credits")
        if most == 0 and not terms.is_time:
            # A token without a limit may burn all credits.
            raise Unpayable(f"the payment option costs 0 credits of plan {plan}")
        cost = 0 if terms.is_time else most
        return Quote("credits", plan, cost, lambda: self._pay_credits(plan, entry, cost))

    def _check_agent(self, called: str, plan: str, named: Any) -> Steps[None]:
        """Rejects an entry whose agent is not registered at the called server: that server could have
        copied the entry of another server, and would spend the payment there."""
        agent = named or self.agent or ""
        if agent and digits(agent) is None:
            raise Unpayable("the payment option has an invalid agent id")
        if self.agent and agent != self.agent:
            raise Unpayable(
                f"the server requires payment for agent {agent}, but this client may pay only agent "
                f"{self.agent}"
            )
        key = (origin(called), plan, agent)
        known = self._agents.get(key)
        if known is None or time.monotonic() > known[2]:
            here, elsewhere = yield from self._registered(*key)
            if len(self._agents) >= MAX_BELIEVED:
                self._agents.clear()
            known = self._agents[key] = (here, elsewhere, time.monotonic() + BELIEVED)
        here, elsewhere, _ = known
        whose = f"agent {agent}" if agent else f"an agent of plan {plan}"
        host = host_of(called)
        if here or (not elsewhere and self.plans and host in self.hosts):
            return
        if elsewhere:
            raise Unpayable(f"{whose} is registered at {elsewhere} and has no endpoint at {host}")
        raise Unpayable(
            f"cannot verify that {whose} is served at {host}: no registered endpoint has a host; "
            "if you trust this server, add its plan to plans and its host to hosts"
        )

    def _registered(self, called: str, plan: str, agent: str) -> Steps[tuple[bool, str]]:
        agents: Sequence[Agent]
        if agent:
            path = f"/api/v1/protocol/agents/{agent}"
            one = yield from _core.perform(
                self.config, Call("GET", path, Agent, again=True, key=False)
            )
            agents = [one]
        else:
            path = f"/api/v1/protocol/plans/{plan}/agents"
            listing = Listing(path, "agents", Agent, {"sortOrder": "asc"}, key=False)
            page = yield from listing.page(self.config, None)
            agents = page.items[:MAX_AGENTS]
        here, elsewhere = False, ""
        for a in agents:
            for endpoint in a.raw.get("endpoints") or []:
                for url in endpoint.values() if isinstance(endpoint, dict) else []:
                    server = endpoint_server(url)
                    if server:
                        here = here or origin(server) == called
                        elsewhere = elsewhere or host_of(server)
        return here, elsewhere

    def _pay_credits(
        self, plan: str, entry: Mapping[str, Any], most: int
    ) -> Steps[tuple[dict[str, Any], str]]:
        extra = entry.get("extra")
        agent = (extra.get("agentId") if isinstance(extra, dict) else None) or self.agent
        body: dict[str, Any] = {"planId": plan, "expiresInSecs": TOKEN_LIFE}
        if most > 0:
            body["redemptionLimit"] = str(most)
        if agent:
            body["agentId"] = agent
        if self.delegation_id is not None:
            body["delegationConfig"] = {"delegationId": self.delegation_id}
            body["orderLimit"] = 1
        call = Call(
            "POST", "/api/v1/x402/permissions", AccessToken, body=body, again=True, creates=True
        )
        token = yield from _core.perform(self.config, call)
        taken = _x402.decode_token(token.access_token)
        payload: dict[str, Any] = {"signature": taken.jws}
        if isinstance(taken.claims.get("authorization"), dict):
            payload["authorization"] = taken.claims["authorization"]
        # A fresh nonce keeps the server from taking the payment twice.
        payload["nonce"] = secrets.token_hex(16)
        return payload, token.permission_hash

    def finish(self, made: Made, status: int, headers: Headers) -> Steps[Payment]:
        """Reads the outcome of a payment from an HTTP response, and records it."""
        return self.ended(made, 200 <= status <= 299, _x402.read_receipt(headers))

    def ended(
        self, made: Made, good: bool, receipt: Mapping[str, Any] | None
    ) -> Steps[Payment]:
        """Reads the outcome of a payment from the receipt of a good or a failed response, and records it.

        Credits count as spent unless they are known to be unspent. Receipts are not signed, so a
        receipt for less than the whole amount is checked with the service, which revokes the token
        first. A transfer that a wallet signed can be executed until it expires, even after a refusal.
        """
        p = made.payment
        if receipt is None and good:
            # A stream is settled when it ends. Checking now would revoke its access token.
            p = replace(p, state="unknown")
        else:
            receipt = receipt or {}
            success = receipt.get("success") is True
            text = receipt.get("transaction")
            p = replace(p, transaction=text if isinstance(text, str) else "", state="unknown")
            if success and str(receipt.get("creditsRedeemed")) == str(p.most):
                p = replace(p, state="paid", spent=p.most)
            else:
                burned = (yield from self._burned(p)) if p.permission_hash else None
                if burned is not None and burned == 0 and not success:
                    p = replace(p, state="refused")
                elif burned is not None:
                    p = replace(p, state="paid", spent=burned)
                elif success:
                    p = replace(p, state="paid", spent=p.most)
        self.budget.close(p)
        return p

    def lost(self, made: Made, reason: str) -> PaymentError:
        """Records a paid request that got no response, and returns its error."""
        p = replace(made.payment, state="unknown")
        self.budget.close(p)
        return PaymentError(p.host, reason, p)

    def _burned(self, p: Payment) -> Steps[int | None]:
        """Revokes the token and returns the credits that it burned; None while it can burn more."""
        path = f"/api/v1/x402/permissions/{_core.segment(p.permission_hash)}"
        try:
            yield from _core.perform(
                self.config, Call("DELETE", path, PermissionRevoked, again=True, refused=True)
            )
        except errors.TollError:
            pass  # the record shows whether it is revoked
        try:
            record = yield from _core.perform(
                self.config, Call("GET", path, Permission, again=True)
            )
        except errors.TollError:
            return None
        return record.used_credits if record.raw.get("closed") is True else None

    def check(self, p: Payment) -> Steps[Payment]:
        """Reads the outcome of a sent or unknown payment from the service, and records it."""
        if p.state not in ("sent", "unknown") or not p.permission_hash:
            return p
        burned = yield from self._burned(p)
        if burned is not None:
            p = replace(p, state="paid" if burned else "refused", spent=burned)
            self.budget.close(p)
        return p


class Unpayable(Exception):
    """An entry cannot be paid. The message is safe to show."""


def same_server(called: str, resource: str) -> bool:
    """Reports whether a resource is at the server that was called."""
    try:
        full = urllib.parse.urljoin(called, resource)
        u = urllib.parse.urlsplit(full)
        if u.scheme == "http" and called.lower().startswith("https:"):
            # A server behind a proxy that terminates TLS often reports http.
            full = u._replace(scheme="https", netloc=u.netloc.removesuffix(":80")).geturl()
        return origin(full) == origin(called)
    except ValueError:
        return False


def endpoint_server(endpoint: Any) -> str:
    """Returns scheme and host of an endpoint, or "" for paths and malformed addresses."""
    if not isinstance(endpoint, str):
        return ""
    scheme, found, rest = endpoint.partition("://")
    if not found or scheme.lower() not in ("http", "https"):
        return ""
    for c in "/\\?#":
        rest = rest.split(c)[0]
    try:
        u = urllib.parse.urlsplit(f"{scheme}://{rest}")
        good = bool(u.hostname) and u.username is None and u.port != 0
    except ValueError:
        return ""
    return f"{scheme}://{rest}" if good else ""


def digits(text: Any, most: int = 78) -> int | None:
    """Returns the number of a text of decimal digits, or None for anything else."""
    if not isinstance(text, str) or not 0 < len(text) <= most:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def quote_exact(entry: Mapping[str, Any], wallet: Wallet) -> Quote:
    """Returns the quote of an entry of scheme exact, which the wallet pays by EIP-3009."""
    network, asset, to = (str(entry.get(n)) for n in ("network", "asset", "payTo"))
    unit = TOKENS.get((network, asset.lower()))
    if unit is None:
        raise Unpayable(f"the token {asset[:42]!r} on {network[:40]!r} is neither USDC nor EURC")
    value = digits(entry.get("amount"))
    if not value or value >= 1 << 256:
        raise Unpayable("the payment option has no amount")
    if not ADDRESS.fullmatch(to) or not int(to, 16):
        raise Unpayable(f"the receiver {to[:42]!r} is not a valid address")
    extra = entry.get("extra")
    about: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
    method = about.get("assetTransferMethod") or "eip3009"
    if method != "eip3009":
        raise Unpayable(
            f"the transfer method {str(method)[:40]!r} is not supported, only EIP-3009"
        )
    name, version = about.get("name"), about.get("version")
    if not (isinstance(name, str) and isinstance(version, str) and name and version):
        raise Unpayable("the payment option has no EIP-712 domain for its token")
    asked = entry.get("maxTimeoutSeconds")
    life = min(max(asked, 60), 3600) if isinstance(asked, int) else 60

    def pay() -> Steps[tuple[dict[str, Any], str]]:
        now = int(time.time())
        message: dict[str, Any] = {
            # validAfter is in the past, for chains whose clock is behind.
            "from": wallet.address, "to": to, "value": value, "validAfter": now - 600,
            "validBefore": now + life, "nonce": "0x" + secrets.token_hex(32),
        }
        domain = {
            "name": name, "version": version, "chainId": int(network.split(":")[1]),
            "verifyingContract": asset,
        }
        types = {"TransferWithAuthorization": TRANSFER}
        try:
            signed = yield Sign(lambda: wallet.sign_typed_data(domain, types, message))
        except Exception as e:
            raise Unpayable(f"the wallet did not sign: {str(e)[:200] or type(e).__name__}") from e
        authorization = {n: str(v) for n, v in message.items()}
        return {"signature": signature_text(signed), "authorization": authorization}, ""

    return Quote(unit, "", value, pay)


ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def signature_text(signed: Any) -> str:
    """Returns the signature of a wallet as 0x and hex. Raises Unpayable for anything else."""
    signed = getattr(signed, "signature", signed)
    text = "0x" + bytes(signed).hex() if isinstance(signed, (bytes, bytearray)) else signed
    if not isinstance(text, str) or not re.fullmatch(r"0x([0-9a-fA-F]{2}){65,4096}", text):
        raise Unpayable(
            "the wallet returned no valid signature: sign_typed_data must return the bytes of the "
            "signature"
        )
    return text


def answer(
    challenge: Mapping[str, Any], entry: Mapping[str, Any], payload: Mapping[str, Any], id: str
) -> dict[str, Any]:
    """Returns the PaymentPayload for an entry. Resource, entry, and extensions are echoed unchanged."""
    theirs = challenge.get("extensions")
    extensions = dict(theirs) if isinstance(theirs, dict) else {}
    ours = extensions.get(_x402.IDENTIFIER)
    if isinstance(ours, dict) and isinstance(ours.get("info"), dict):
        extensions[_x402.IDENTIFIER] = {**ours, "info": {**ours["info"], "id": id}}
    out = {
        "x402Version": 2, "resource": challenge.get("resource"), "accepted": entry,
        "payload": payload, "extensions": extensions,
    }
    return {k: v for k, v in out.items() if v is not None}
