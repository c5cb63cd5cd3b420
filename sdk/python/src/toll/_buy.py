"""The buyer's side: what a server asks for is paid, with credits or by a wallet, once, within limits.

These are steps (see _core); toll.http performs them for urllib, requests and httpx. The rules are
those of the Go package client.
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

#: Life of an access token that is made for one request, in seconds.
TOKEN_LIFE = 300
#: Seconds for which the record of an agent is believed, and how many are remembered.
BELIEVED, MAX_BELIEVED = 60.0, 256
#: Agents of a plan that are looked at, and entries of a challenge.
MAX_AGENTS, MAX_ENTRIES = 100, 16
#: Bytes of a request body that are kept for the repeat with a payment, and of a refusal.
MAX_BODY, MAX_REFUSAL = 4 << 20, 64 << 10

State = Literal["sent", "paid", "refused", "unknown"]
#: What a payment is counted in: credits of plans, or base units of a token with 6 decimals.
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
    """An account that signs. Its key stays with it. An account of eth_account is one."""

    @property
    def address(self) -> str:
        """The address of the account, 0x and 40 hex digits."""

    def sign_typed_data(
        self, domain: Mapping[str, Any], types: Mapping[str, Any], message: Mapping[str, Any]
    ) -> Any:
        """Signs typed data of EIP-712, whose primary type is the only one in types.

        Returns the signature as bytes, as text that begins with 0x, or as an object that has it as
        ``signature``. A coroutine is awaited by asynchronous payers.
        """


@dataclass(frozen=True)
class Payment:
    """The record of one payment. It has no access token and no query of the url.

    ``state``: sent is on its way; paid is settled; refused cost nothing; unknown may have been
    settled. ``most`` is what it can cost, ``spent`` what a paid one did, in ``unit``. ``plan_id`` is
    empty when a wallet paid.
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
    #: The permission of the access token, by which the service tells what was burned.
    permission_hash: str = ""
    unit: Unit = "credits"

    def counts(self) -> int:
        """Returns what the payment takes of the limits: what was, or could have been, spent."""
        return {"paid": self.spent, "refused": 0}.get(self.state, self.most)


@dataclass(frozen=True)
class Limits:
    """What may be paid. The default allows nothing.

    hosts are names such as "agent.example.com" or "127.0.0.1:8403"; one without a port is reached
    by https alone. credits_per_call, credits_per_day and credits bound what is spent on one
    request, in 24 hours, and in all; money_per_call, money_per_day and money are the same for USDC
    and for EURC, each counted by itself, in base units: 1_000_000 is 1.00.
    """

    hosts: Sequence[str] = ()
    credits_per_call: int = 0
    credits: int = 0
    credits_per_day: int | None = None
    money_per_call: int = 0
    money: int = 0
    money_per_day: int | None = None


class LimitReached(Exception):
    """A payment is not within the limits. The message is safe to show."""


class Budget:
    """Decides about payments and keeps their records, as long as the process lives.

    Safe for use from several threads. on_payment hears each record as it changes.
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
        """The records, the oldest first."""
        with self._lock:
            return tuple(self._payments.values())

    @property
    def spent(self) -> int:
        """Credits that were, or could have been, spent."""
        return self.spent_in("credits")

    def spent_in(self, unit: Unit) -> int:
        """Returns what was, or could have been, spent: credits, or base units of a token."""
        with self._lock:
            return self._sum(unit, 0)

    def _sum(self, unit: Unit, since: float) -> int:
        some = (p for p in self._payments.values() if p.unit == unit)
        return sum(p.counts() for p in some if p.at.timestamp() > since)

    def take(self, p: Payment) -> None:
        """Records a payment that is about to be made. Raises LimitReached."""
        limits = self.limits
        per_call, total, per_day = (
            (limits.credits_per_call, limits.credits, limits.credits_per_day)
            if p.unit == "credits"
            else (limits.money_per_call, limits.money, limits.money_per_day)
        )
        asks = f"it asks for up to {p.most} {p.unit}"
        with self._lock:
            if p.host.lower() not in (h.lower() for h in limits.hosts):
                raise LimitReached(f"the host {p.host} is not among those that may be paid")
            if p.most > per_call:
                raise LimitReached(f"{asks}, and one request may cost {per_call}")
            day = p.at.timestamp() - 86400
            for limit, since, when in ((total, 0.0, ""), (per_day, day, " in 24 hours")):
                if limit is None:
                    continue
                left = limit - self._sum(p.unit, since)
                if p.most > left:
                    raise LimitReached(f"{asks}, with {max(left, 0)} left of {limit}{when}")
            self._payments[p.id] = p
        self._tell(p)

    def close(self, p: Payment) -> None:
        """Records how a payment stands."""
        with self._lock:
            if p.id not in self._payments:
                raise ValueError(f"no payment {p.id} was taken")
            self._payments[p.id] = p
        self._tell(p)

    def _tell(self, p: Payment) -> None:
        if self._told is not None:
            self._told(p)


class PaymentError(Exception):
    """A request asked for payment and did not get its answer.

    ``sent`` says that a payment has left: whether the server took it is unknown, and it counts in
    full. Such a request is not repeated by itself, as the server may have done the work.
    """

    def __init__(self, host: str, reason: str, payment: Payment | None = None) -> None:
        self.host, self.reason, self.payment = host, reason, payment
        self.sent = payment is not None
        text = f"{host} asks for payment, and nothing was paid: {reason}"
        if self.sent:
            text = f"a payment to {host} was sent, and its outcome is not known: {reason}"
        super().__init__(text)


def host_of(url: str) -> str:
    """Names the other side as Limits do: the port is left out where it is that of https."""
    u = urllib.parse.urlsplit(url)
    host, port = (u.hostname or "").lower(), u.port or {"http": 80, "https": 443}.get(u.scheme)
    host = f"[{host}]" if ":" in host else host
    return host if u.scheme == "https" and port == 443 else f"{host}:{port}"


def origin(url: str) -> str:
    """Returns scheme, host and port as they are compared. Names of the loopback are one host."""
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
    """A request that was answered with what it costs, as far as its payment needs it.

    ``item`` is what a call over MCP asks for: it stands in records in place of the path, and the
    resource may have a logical url.
    """

    method: str
    url: str
    challenge: Mapping[str, Any] = field(repr=False)
    item: str = ""


@dataclass(frozen=True)
class Made:
    """A payment that was made for a request, and its PaymentPayload."""

    payment: Payment
    payload: Mapping[str, Any] = field(repr=False)

    @property
    def header(self) -> str:
        """What payment-signature has to be."""
        return _x402.encode(self.payload)


@dataclass(frozen=True)
class Quote:
    """What an entry costs, and the steps that make the payload of its payment.

    They return the hash of a permission beside it, empty for a wallet.
    """

    unit: Unit
    plan_id: str
    most: int
    pay: Callable[[], Steps[tuple[dict[str, Any], str]]]


class Buyer:
    """Pays with the credits that the account of a client has, and by a wallet.

    config is that of the client, None without one. wallet pays entries of scheme exact in USDC and
    EURC: it signs one transfer for one request, and nothing else. plans are those whose credits may
    be spent, any for none. Each request gets an access token of its own, which can burn what that
    request may cost and is good at the agent that asks: a server that keeps it has nothing. The agent must be registered at the server that asks; for agents
    whose record names no host, hosts takes the caller's word for it, and needs plans.
    delegation_id lets the token buy one more order when credits are short, and needs plans.
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
            raise ValueError("a payer needs a client, a wallet, or both")
        self.budget, self.wallet = budget, wallet
        self._config = config
        self.plans, self.hosts = frozenset(plans), frozenset(h.lower() for h in hosts)
        self.agent, self.delegation_id = agent, delegation_id
        if delegation_id is not None and not self.plans:
            raise ValueError("a delegation buys credits of plans that are named: pass plans=[...]")
        self._terms: dict[str, Terms] = {}
        self._agents: dict[tuple[str, str, str], tuple[bool, str, float]] = {}

    def pay(self, asked: Asked) -> Steps[Made]:
        """Chooses an entry, reserves what it costs and makes the access token.

        Raises PaymentError: then nothing has left.
        """
        host = host_of(asked.url)
        resource = asked.challenge.get("resource")
        url = resource.get("url") if isinstance(resource, dict) else None
        reasons: list[str] = []
        logical = asked.item and isinstance(url, str) and url.startswith("mcp://")
        if isinstance(url, str) and not logical and not same_server(asked.url, url):
            raise PaymentError(
                host, f"it asks payment for {url[:200]!r}, which is not at {host}: call that url "
                "itself if you trust it",
            )
        for entry in asked.challenge["accepts"][:MAX_ENTRIES]:
            try:
                if not isinstance(entry, dict):
                    raise Unpayable("an entry is not an object")
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
        raise PaymentError(host, "; ".join(reasons) or "it names no way to pay")

    @property
    def config(self) -> Config:
        """The settings of the client. Raises Unpayable without one."""
        if self._config is None:
            raise Unpayable("it asks for credits, and there is no client to pay them")
        return self._config

    def _quote(self, asked: Asked, entry: Mapping[str, Any]) -> Steps[Quote]:
        scheme = entry.get("scheme")
        if scheme == "exact":
            if self.wallet is None:
                raise Unpayable("the scheme exact is paid by a wallet, and there is none")
            if "sign-in-with-x" in (asked.challenge.get("extensions") or {}):
                raise Unpayable("the server takes a sign-in of the wallet in place of a payment")
            return quote_exact(entry, self.wallet)
        names = self.config.namespace
        if scheme not in (names.crypto, names.card):
            raise Unpayable(f"the scheme {str(scheme)[:40]!r} is not paid with credits")
        extra = entry.get("extra")
        named = (extra.get("planId") if isinstance(extra, dict) else None) or entry.get("planId")
        if not isinstance(named, str) or digits(named) is None:
            raise Unpayable("the entry names no plan")
        plan: str = named
        if self.plans and plan not in self.plans:
            raise Unpayable(f"it asks for credits of plan {plan}, which is not to be spent")
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
            raise Unpayable(f"plan {plan} is of scheme {terms.scheme} on {terms.network}")
        agent = extra.get("agentId") if isinstance(extra, dict) else None
        yield from self._check_agent(asked.url, plan, agent)
        amount = entry.get("amount")
        most = terms.most if amount in (None, "") else digits(amount, 19)
        if most is None:
            raise Unpayable(f"the amount {str(amount)[:40]!r} is no number of credits")
        if most == 0 and not terms.is_time:
            # A token without a limit may burn all there is.
            raise Unpayable(f"it asks for 0 credits of plan {plan}")
        cost = 0 if terms.is_time else most
        return Quote("credits", plan, cost, lambda: self._pay_credits(plan, entry, cost))

    def _check_agent(self, called: str, plan: str, named: Any) -> Steps[None]:
        """Refuses an entry whose agent is not registered at the server that asks: that could have
        copied what another server asks for, and would spend the payment there."""
        agent = named or self.agent or ""
        if agent and digits(agent) is None:
            raise Unpayable("the entry names an agent that is none")
        if self.agent and agent != self.agent:
            raise Unpayable(f"it asks payment for agent {agent}, and only {self.agent} is to be paid")
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
            raise Unpayable(f"{whose} is registered at {elsewhere}, and has no endpoint at {host}")
        raise Unpayable(
            f"nothing says that {whose} is served at {host}: no endpoint on record has a host; "
            "name the plan and the host if you know that it is"
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
        """Reads out of an answer over HTTP how a payment ended, and records it."""
        return self.ended(made, 200 <= status <= 299, _x402.read_receipt(headers))

    def ended(
        self, made: Made, good: bool, receipt: Mapping[str, Any] | None
    ) -> Steps[Payment]:
        """Reads out of a receipt how the payment of a good or a failed answer ended, and records it.

        What is not sure to be unspent counts as spent: receipts are not signed, so that one which
        says less than the whole is checked with the service, whose token is revoked for that. What
        a wallet signed may be carried out until it expires, whatever the server says.
        """
        p = made.payment
        if receipt is None and good:
            # A stream is settled when it ends. To ask now would end its access token.
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
        """Records a paid request without an answer."""
        p = replace(made.payment, state="unknown")
        self.budget.close(p)
        return PaymentError(p.host, reason, p)

    def _burned(self, p: Payment) -> Steps[int | None]:
        """Revokes the token and asks what it has burned; None while more can be."""
        path = f"/api/v1/x402/permissions/{_core.segment(p.permission_hash)}"
        try:
            yield from _core.perform(
                self.config, Call("DELETE", path, PermissionRevoked, again=True, refused=True)
            )
        except errors.TollError:
            pass  # whether it is revoked now, the record tells
        try:
            record = yield from _core.perform(
                self.config, Call("GET", path, Permission, again=True)
            )
        except errors.TollError:
            return None
        return record.used_credits if record.raw.get("closed") is True else None

    def check(self, p: Payment) -> Steps[Payment]:
        """Asks what became of a payment that is sent or unknown, and records that."""
        if p.state not in ("sent", "unknown") or not p.permission_hash:
            return p
        burned = yield from self._burned(p)
        if burned is not None:
            p = replace(p, state="paid" if burned else "refused", spent=burned)
            self.budget.close(p)
        return p


class Unpayable(Exception):
    """An entry is not paid. The message is safe to show."""


def same_server(called: str, resource: str) -> bool:
    """Reports whether a resource is at the server that was called."""
    try:
        full = urllib.parse.urljoin(called, resource)
        u = urllib.parse.urlsplit(full)
        if u.scheme == "http" and called.lower().startswith("https:"):
            # Behind a proxy that ends TLS many servers do not know better.
            full = u._replace(scheme="https", netloc=u.netloc.removesuffix(":80")).geturl()
        return origin(full) == origin(called)
    except ValueError:
        return False


def endpoint_server(endpoint: Any) -> str:
    """Returns scheme and host of an endpoint, "" for paths and what no HTTP client can call."""
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
    """Returns the number that a text of decimal digits is, None for anything else."""
    if not isinstance(text, str) or not 0 < len(text) <= most:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def quote_exact(entry: Mapping[str, Any], wallet: Wallet) -> Quote:
    """Reads an entry of scheme exact: a transfer that the wallet authorizes (EIP-3009)."""
    network, asset, to = (str(entry.get(n)) for n in ("network", "asset", "payTo"))
    unit = TOKENS.get((network, asset.lower()))
    if unit is None:
        raise Unpayable(f"the token {asset[:42]!r} on {network[:40]!r} is neither USDC nor EURC")
    value = digits(entry.get("amount"))
    if not value or value >= 1 << 256:
        raise Unpayable("the entry names no amount")
    if not ADDRESS.fullmatch(to) or not int(to, 16):
        raise Unpayable(f"the receiver {to[:42]!r} is not an address")
    extra = entry.get("extra")
    about: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
    method = about.get("assetTransferMethod") or "eip3009"
    if method != "eip3009":
        raise Unpayable(f"it asks for a transfer by {str(method)[:40]!r}, and wallets sign EIP-3009")
    name, version = about.get("name"), about.get("version")
    if not (isinstance(name, str) and isinstance(version, str) and name and version):
        raise Unpayable("the entry does not name the EIP-712 domain of its token")
    asked = entry.get("maxTimeoutSeconds")
    life = min(max(asked, 60), 3600) if isinstance(asked, int) else 60

    def pay() -> Steps[tuple[dict[str, Any], str]]:
        now = int(time.time())
        message: dict[str, Any] = {
            # validAfter lies back for chains whose clock is behind.
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
    """Returns what a wallet signed as 0x and hex. Raises Unpayable for anything else."""
    signed = getattr(signed, "signature", signed)
    text = "0x" + bytes(signed).hex() if isinstance(signed, (bytes, bytearray)) else signed
    if not isinstance(text, str) or not re.fullmatch(r"0x([0-9a-fA-F]{2}){65,4096}", text):
        raise Unpayable("the wallet returned no signature: sign_typed_data has to return its bytes")
    return text


def answer(
    challenge: Mapping[str, Any], entry: Mapping[str, Any], payload: Mapping[str, Any], id: str
) -> dict[str, Any]:
    """Returns the PaymentPayload that pays an entry: the server's words come back as they came."""
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
