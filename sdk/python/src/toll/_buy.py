"""The buyer's side: what a server asks for is paid with credits, once, within limits.

These are steps (see _core); toll.http performs them for urllib, requests and httpx. The rules are
those of the Go package client.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
import time
import urllib.parse
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence

from . import _core, _x402, errors
from ._core import Call, Config, Steps
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


@dataclass(frozen=True)
class Payment:
    """The record of one payment. It has no access token and no query of the url.

    ``state``: sent is on its way; paid is settled; refused cost nothing; unknown may have been
    settled. ``most`` is what it can cost, ``spent`` what a paid one did, in credits.
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

    def counts(self) -> int:
        """Returns what the payment takes of the limits: what was, or could have been, spent."""
        return {"paid": self.spent, "refused": 0}.get(self.state, self.most)


@dataclass(frozen=True)
class Limits:
    """What may be paid. The default allows nothing.

    hosts are names such as "agent.example.com" or "127.0.0.1:8403"; one without a port is reached
    by https alone. credits_per_call, credits_per_day and credits bound what is spent on one
    request, in 24 hours, and in all.
    """

    hosts: Sequence[str] = ()
    credits_per_call: int = 0
    credits: int = 0
    credits_per_day: int | None = None


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
        with self._lock:
            return sum(p.counts() for p in self._payments.values())

    def take(self, p: Payment) -> None:
        """Records a payment that is about to be made. Raises LimitReached."""
        limits = self.limits
        with self._lock:
            if p.host.lower() not in (h.lower() for h in limits.hosts):
                raise LimitReached(f"the host {p.host} is not among those that may be paid")
            if p.most > limits.credits_per_call:
                raise LimitReached(
                    f"it asks for up to {p.most} credits, and one request may cost "
                    f"{limits.credits_per_call}"
                )
            total = sum(x.counts() for x in self._payments.values())
            if total + p.most > limits.credits:
                left = max(limits.credits - total, 0)
                raise LimitReached(
                    f"it asks for up to {p.most} credits, with {left} left of {limits.credits}"
                )
            if limits.credits_per_day is not None:
                since = p.at.timestamp() - 86400
                day = sum(
                    x.counts() for x in self._payments.values() if x.at.timestamp() > since
                )
                if day + p.most > limits.credits_per_day:
                    left = max(limits.credits_per_day - day, 0)
                    raise LimitReached(
                        f"it asks for up to {p.most} credits, with {left} left of "
                        f"{limits.credits_per_day} in 24 hours"
                    )
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
    """A request that was answered with 402, as far as its payment needs it."""

    method: str
    url: str
    challenge: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Made:
    """A payment that was made for a request: what payment-signature has to be."""

    payment: Payment
    header: str = field(repr=False)


class Buyer:
    """Pays with the credits that the account of a client has.

    plans are those whose credits may be spent, any for none. Each request gets an access token of
    its own, which can burn what that request may cost and is good at the agent that asks: a server
    that keeps it has nothing. The agent must be registered at the server that asks; for agents
    whose record names no host, hosts takes the caller's word for it, and needs plans.
    delegation_id lets the token buy one more order when credits are short, and needs plans.
    """

    def __init__(
        self,
        config: Config,
        budget: Budget,
        *,
        plans: Iterable[str] = (),
        hosts: Iterable[str] = (),
        agent: str | None = None,
        delegation_id: str | None = None,
    ) -> None:
        self.config, self.budget = config, budget
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
        if isinstance(url, str) and not same_server(asked.url, url):
            raise PaymentError(
                host, f"it asks payment for {url[:200]!r}, which is not at {host}: call that url "
                "itself if you trust it",
            )
        for entry in asked.challenge["accepts"][:MAX_ENTRIES]:
            try:
                if not isinstance(entry, dict):
                    raise Unpayable("an entry is not an object")
                terms, most = yield from self._quote(asked.url, entry)
            except Unpayable as e:
                reasons.append(str(e))
                continue
            except errors.TollError as e:
                reasons.append(e.message)
                continue
            path = urllib.parse.urlsplit(asked.url).path
            payment = Payment(
                "pay_" + secrets.token_hex(16), datetime.now(timezone.utc), host, asked.method,
                path, terms.plan_id, most,
            )
            try:
                self.budget.take(payment)
            except LimitReached as e:
                reasons.append(str(e))
                continue
            try:
                token = yield from self._token(terms.plan_id, entry, most)
                payment = replace(payment, permission_hash=token.permission_hash)
                self.budget.close(payment)
                return Made(payment, answer(asked.challenge, entry, token.access_token, payment.id))
            except BaseException as e:
                self.budget.close(replace(payment, state="refused"))
                if not isinstance(e, errors.TollError):
                    raise
                reasons.append(e.message)
        raise PaymentError(host, "; ".join(reasons) or "it names no way to pay")

    def _quote(self, called: str, entry: Mapping[str, Any]) -> Steps[tuple[Terms, int]]:
        names = self.config.namespace
        scheme = entry.get("scheme")
        if scheme not in (names.crypto, names.card):
            raise Unpayable(f"the scheme {str(scheme)[:40]!r} is not paid with credits")
        extra = entry.get("extra")
        plan = (extra.get("planId") if isinstance(extra, dict) else None) or entry.get("planId")
        if not isinstance(plan, str) or not plan.isdigit() or len(plan) > 78:
            raise Unpayable("the entry names no plan")
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
        yield from self._check_agent(called, plan, agent)
        amount = entry.get("amount")
        most = terms.most
        if amount not in (None, ""):
            if not isinstance(amount, str) or not amount.isdigit() or len(amount) > 19:
                raise Unpayable(f"the amount {str(amount)[:40]!r} is no number of credits")
            most = int(amount)
        if terms.is_time:
            return terms, 0
        if most == 0:
            # A token without a limit may burn all there is.
            raise Unpayable(f"it asks for 0 credits of plan {plan}")
        return terms, most

    def _check_agent(self, called: str, plan: str, named: Any) -> Steps[None]:
        """Refuses an entry whose agent is not registered at the server that asks: that could have
        copied what another server asks for, and would spend the payment there."""
        agent = named or self.agent or ""
        if not isinstance(agent, str) or (agent and not agent.isdigit()):
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

    def _token(self, plan: str, entry: Mapping[str, Any], most: int) -> Steps[AccessToken]:
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
        return (yield from _core.perform(self.config, call))

    def finish(self, made: Made, status: int, headers: Headers) -> Steps[Payment]:
        """Reads out of the answer how a payment ended, and records it.

        What is not sure to be unspent counts as spent: receipts are not signed, so that one which
        says less than the whole is checked with the service, whose token is revoked for that.
        """
        p = made.payment
        receipt = _x402.read_receipt(headers)
        if receipt is None and 200 <= status <= 299:
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
                burned = yield from self._burned(p)
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


def answer(challenge: Mapping[str, Any], entry: Mapping[str, Any], token: str, id: str) -> str:
    """Returns the value of payment-signature that pays an entry: the server's words come back as
    they came, with a fresh nonce that keeps it from taking the payment twice."""
    taken = _x402.decode_token(token)
    payload: dict[str, Any] = {"signature": taken.jws}
    if isinstance(taken.claims.get("authorization"), dict):
        payload["authorization"] = taken.claims["authorization"]
    payload["nonce"] = secrets.token_hex(16)
    extensions = dict(challenge.get("extensions") or {})
    ours = extensions.get(_x402.IDENTIFIER)
    if isinstance(ours, dict) and isinstance(ours.get("info"), dict):
        extensions[_x402.IDENTIFIER] = {**ours, "info": {**ours["info"], "id": id}}
    out = {
        "x402Version": 2, "resource": challenge.get("resource"), "accepted": entry,
        "payload": payload, "extensions": extensions,
    }
    return _x402.encode({k: v for k, v in out.items() if v is not None})


