"""The operations of the service, by resource."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Mapping, Sequence, Union

from . import _models as m
from . import _payments
from ._base import Resource, exact, trim
from ._core import Call, Config, Steps, segment, warn_deprecated
from ._pages import Listing
from ._pages import Pages

Json = Mapping[str, Any]
#: A number that may have a fraction. It is never a float.
Number = Union[int, Decimal]
PLANS = "/api/v1/protocol/plans"
AGENTS = "/api/v1/protocol/agents"


def _agent_body(
    name: str | None,
    endpoints: Sequence[Json] | None,
    description: str | None,
    tags: Sequence[str] | None,
    agent_definition_url: str | None,
    metadata: Json | None,
    api: Json | None,
) -> dict[str, Any]:
    about = trim({"name": name, "description": description, "tags": tags, **(metadata or {})})
    how = trim(
        {"endpoints": endpoints, "agentDefinitionUrl": agent_definition_url, **(api or {})}
    )
    return trim({"metadataAttributes": about or None, "agentApiAttributes": how or None})


def _plan_body(
    name: str,
    price: Json,
    credits: Json,
    description: str | None,
    tags: Sequence[str] | None,
    metadata: Json | None,
    access_limit: str | None,
    max_orders: int | None,
    is_trial: bool | None,
    nonce: int | None,
) -> dict[str, Any]:
    about = trim({"name": name, "description": description, "tags": tags, **(metadata or {})})
    return trim(
        {
            "metadataAttributes": about,
            "priceConfig": price,
            "creditsConfig": credits,
            "accessLimit": access_limit,
            "maxOrders": max_orders,
            "isTrialPlan": is_trial,
            "nonce": exact("nonce", nonce),
        }
    )


def _paging(
    page_size: int | None, sort_by: str | None, ascending: bool, **more: Any
) -> dict[str, Any]:
    order = "asc" if ascending else None
    return {"pageSize": page_size, "sortBy": sort_by, "sortOrder": order, **more}


class Agents(Resource):
    """Paid services with their endpoints."""

    def list(
        self, *, page_size: int | None = None, sort_by: str | None = None, ascending: bool = False
    ) -> Pages[m.Agent]:
        """Lists the caller's agents, newest first. page_size is 1 to 100; sort_by is "created",
        "updated", or "name"."""
        query = _paging(page_size, sort_by, ascending)
        return self._list(Listing(AGENTS, "agents", m.Agent, query))

    def get(self, agent_id: str) -> m.Agent:
        """Returns an agent. Needs no key. Errors: BCK.PROTOCOL.0004 (404)."""
        path = f"{AGENTS}/{segment(agent_id)}"
        return self._send(Call("GET", path, m.Agent, again=True, key=False))

    def plans(
        self, agent_id: str, *, page_size: int | None = None, ascending: bool = False
    ) -> Pages[m.Plan]:
        """Lists the plans of an agent. Needs no key."""
        query = _paging(page_size, None, ascending)
        path = f"{AGENTS}/{segment(agent_id)}/plans"
        return self._list(Listing(path, "plans", m.Plan, query, key=False))

    def create(
        self,
        *,
        name: str,
        endpoints: Sequence[Json],
        plans: Sequence[str],
        description: str | None = None,
        tags: Sequence[str] | None = None,
        agent_definition_url: str | None = None,
        metadata: Json | None = None,
        api: Json | None = None,
    ) -> m.AgentRegistered:
        """Registers an agent for plans of the caller.

        endpoints are objects such as {"POST": "https://agent.example.com/ask"}, at most 256.
        metadata and api accept any other member of metadataAttributes and agentApiAttributes.
        """
        body = _agent_body(name, endpoints, description, tags, agent_definition_url, metadata, api)
        body["plans"] = [*plans]
        return self._send(Call("POST", AGENTS, m.AgentRegistered, body=body, again=True, creates=True))

    def create_with_plan(
        self,
        *,
        name: str,
        endpoints: Sequence[Json],
        plan_name: str,
        price: Json,
        credits: Json,
        description: str | None = None,
        tags: Sequence[str] | None = None,
        agent_definition_url: str | None = None,
        metadata: Json | None = None,
        api: Json | None = None,
        plan_metadata: Json | None = None,
        access_limit: str | None = None,
        max_orders: int | None = None,
        is_trial: bool | None = None,
        nonce: int | None = None,
    ) -> m.AgentAndPlanRegistered:
        """Registers an agent and a plan for it, atomically. Build price and credits with
        toll.builders. nonce is the same as for a plan: the same nonce and content is the same agent
        and plan."""
        agent = _agent_body(name, endpoints, description, tags, agent_definition_url, metadata, api)
        plan = _plan_body(
            plan_name, price, credits, None, None, plan_metadata, access_limit, max_orders,
            is_trial, nonce,
        )
        body = {"agent": agent, "plan": plan}
        path = f"{AGENTS}/plans"
        return self._send(
            Call("POST", path, m.AgentAndPlanRegistered, body=body, again=True, creates=True)
        )

    def update(
        self,
        agent_id: str,
        *,
        metadata: Json | None = None,
        api: Json | None = None,
        if_match: int | None = None,
    ) -> m.ActResult:
        """Changes the given members; a value of None clears a member. if_match is the version that
        the record must have, otherwise BCK.PROTOCOL.0910 (409)."""
        body = trim({"metadataAttributes": metadata, "agentApiAttributes": api})
        path = f"{AGENTS}/{segment(agent_id)}"
        return self._send(
            Call("PUT", path, m.ActResult, body=body, again=True, if_match=if_match)
        )

    def add_endpoints(self, agent_id: str, endpoints: Sequence[Json]) -> m.ActResult:
        """Adds endpoints to the agent."""
        body = {"endpoints": [*endpoints]}
        path = f"{AGENTS}/{segment(agent_id)}/endpoints"
        return self._send(Call("POST", path, m.ActResult, body=body, again=True, creates=True))

    def attach(self, plan_id: str, agent_id: str) -> m.ActResult:
        """Lets a plan pay for an agent. The caller owns both."""
        path = f"{AGENTS}/{segment(agent_id)}/plan/{segment(plan_id)}"
        return self._send(Call("POST", path, m.ActResult, again=True))

    def detach(self, plan_id: str, agent_id: str) -> m.ActResult:
        """Detaches a plan from an agent. Errors: BCK.PROTOCOL.0026 (403) if it is not attached."""
        path = f"{AGENTS}/{segment(agent_id)}/plan/{segment(plan_id)}"
        return self._send(Call("DELETE", path, m.ActResult, again=True, refused=True))

    def publish(self, agent_id: str) -> m.ActResult:
        """Lists the agent, so its requests are payable."""
        path = f"{AGENTS}/{segment(agent_id)}/list/true"
        return self._send(Call("PUT", path, m.ActResult, again=True))

    def unpublish(self, agent_id: str) -> m.ActResult:
        """Unlists the agent: verify is refused, and open holds can still be settled."""
        path = f"{AGENTS}/{segment(agent_id)}/list/false"
        return self._send(Call("PUT", path, m.ActResult, again=True))

    def start_simulation(
        self,
        *,
        agent_name: str | None = None,
        plan_name: str | None = None,
        price_per_credit: Number | None = None,
        batch: bool | None = None,
    ) -> m.Simulation:
        """Returns the response of verify for a simulated request. It stores nothing.
        price_per_credit is returned unchanged."""
        body = trim(
            {
                "agentName": agent_name,
                "planName": plan_name,
                "pricePerCredit": price_per_credit,
                "batch": batch,
            }
        )
        path = f"{AGENTS}/simulate/start"
        return self._send(Call("POST", path, m.Simulation, body=body))

    def finish_simulation(
        self,
        agent_request_id: str,
        *,
        margin_percent: Number | None = None,
        batch: bool | None = None,
    ) -> m.SimulationResult:
        """Returns the credits that the settlement of a simulated request would burn. margin_percent
        is from 0 to 10, default Decimal("0.2")."""
        body = trim(
            {"agentRequestId": agent_request_id, "marginPercent": margin_percent, "batch": batch}
        )
        path = f"{AGENTS}/simulate/finish"
        return self._send(Call("POST", path, m.SimulationResult, body=body))


class Plans(Resource):
    """Plans of credits or of time, which subscribers buy."""

    def list(
        self, *, page_size: int | None = None, sort_by: str | None = None, ascending: bool = False
    ) -> Pages[m.Plan]:
        """Lists the caller's plans, newest first."""
        query = _paging(page_size, sort_by, ascending)
        return self._list(Listing(PLANS, "plans", m.Plan, query))

    def get(self, plan_id: str) -> m.Plan:
        """Returns a plan. Needs no key. Errors: BCK.PROTOCOL.0003 (404)."""
        path = f"{PLANS}/{segment(plan_id)}"
        return self._send(Call("GET", path, m.Plan, again=True, key=False))

    def agents(
        self, plan_id: str, *, page_size: int | None = None, ascending: bool = False
    ) -> Pages[m.Agent]:
        """Lists the agents of a plan. Needs no key."""
        query = _paging(page_size, None, ascending)
        path = f"{PLANS}/{segment(plan_id)}/agents"
        return self._list(Listing(path, "agents", m.Agent, query, key=False))

    def balance(self, plan_id: str, account_address: str | None = None) -> m.Balance:
        """Returns the balance of the caller, or of an address, for a plan. Amounts are credits."""
        path = f"{PLANS}/{segment(plan_id)}/balance"
        if account_address is not None:
            path += f"/{segment(account_address)}"
        return self._send(
            Call("GET", path, m.Balance, again=True, key=account_address is None)
        )

    def create(
        self,
        *,
        name: str,
        price: Json,
        credits: Json,
        description: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Json | None = None,
        access_limit: str | None = None,
        max_orders: int | None = None,
        is_trial: bool | None = None,
        nonce: int | None = None,
    ) -> m.PlanRegistered:
        """Registers a plan. Price and credits, built with toll.builders, cannot change afterwards.

        access_limit is "credits" or "time"; the default depends on credits. nonce, a uint256, makes
        the registration repeatable beyond 24 hours: the same nonce and content is the same plan.
        Errors: BCK.PROTOCOL.0904, .0905 (400), BCK.PROTOCOL.0906 (409).
        """
        body = _plan_body(
            name, price, credits, description, tags, metadata, access_limit, max_orders, is_trial,
            nonce,
        )
        return self._send(Call("POST", PLANS, m.PlanRegistered, body=body, again=True, creates=True))

    def update(
        self,
        plan_id: str,
        *,
        metadata: Json | None = None,
        max_orders: int | None = None,
        if_match: int | None = None,
    ) -> m.ActResult:
        """Changes the given members. Errors: BCK.PROTOCOL.0909 (409) for price and credits."""
        body = trim({"metadataAttributes": metadata, "maxOrders": max_orders})
        path = f"{PLANS}/{segment(plan_id)}"
        return self._send(
            Call("PUT", path, m.ActResult, body=body, again=True, if_match=if_match)
        )

    def publish(self, plan_id: str) -> m.ActResult:
        """Lists the plan, so it can be ordered."""
        return self._send(Call("PUT", f"{PLANS}/{segment(plan_id)}/list/true", m.ActResult, again=True))

    def unpublish(self, plan_id: str) -> m.ActResult:
        """Unlists the plan: it cannot be ordered, and existing credits stay valid."""
        path = f"{PLANS}/{segment(plan_id)}/list/false"
        return self._send(Call("PUT", path, m.ActResult, again=True))

    def order(self, plan_id: str, *, delegation_id: str | None = None) -> m.Order:
        """Buys a plan for the caller, from the wallet or through a delegation.

        The service waits a while for the credits. If the status of the order is still open, it has
        no credits yet: see orders.wait. Errors: BCK.PROTOCOL.0050 (400) for a fiat plan,
        BCK.CHAIN.0003 (402), BCK.PROTOCOL.0056, .0901, .0902 (409).
        """
        body = {"delegationId": delegation_id} if delegation_id is not None else None
        path = f"{PLANS}/{segment(plan_id)}/order"
        return self._send(Call("POST", path, m.Order, body=body, again=True, creates=True))

    def checkout(
        self,
        plan_id: str,
        *,
        session_type: Literal["embedded", "hosted"] | None = None,
        success_url: str | None = None,
        cancel_url: str | None = None,
    ) -> m.Checkout:
        """Orders a fiat plan, and returns the page on which a person pays. The page needs no key.

        session_type is "embedded" (default) or "hosted".
        """
        body = trim(
            {"sessionType": session_type, "successUrl": success_url, "cancelUrl": cancel_url}
        )
        path = f"{PLANS}/{segment(plan_id)}/checkout"
        return self._send(Call("POST", path, m.Checkout, body=body, again=True, creates=True))

    def mint(
        self, plan_id: str, receiver: str, amount: int, *, duration_secs: int | None = None
    ) -> m.ActResult:
        """Grants credits of the caller's plan to an address. They expire after duration_secs."""
        given = exact("amount", amount)
        body: dict[str, Any] = {"planId": plan_id, "creditsReceiver": receiver, "amount": given}
        path = f"{PLANS}/mint"
        if duration_secs is not None:
            del body["amount"]
            body.update(creditsAmount=given, creditsDuration=duration_secs)
            path = f"{PLANS}/mintExpirable"
        return self._send(Call("POST", path, m.ActResult, body=body, again=True, creates=True))

    def take_back(self, plan_id: str, holder: str, amount: int) -> m.ActResult:
        """Takes back free credits of the caller's plan that were granted without a payment."""
        body = {"planId": plan_id, "holderAddress": holder, "amount": exact("amount", amount)}
        path = f"{PLANS}/takeBack"
        return self._send(Call("POST", path, m.ActResult, body=body, again=True, creates=True))


class Orders(Resource):
    """Purchases of plans."""

    def list(
        self,
        *,
        as_seller: bool = False,
        plan_id: str | None = None,
        subscriber: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Order]:
        """Lists the caller's orders, or with as_seller the orders of the caller's plans."""
        query = _paging(
            page_size, None, ascending, role="seller" if as_seller else None, planId=plan_id,
            subscriber=subscriber, since=since, until=until,
        )
        return self._list(Listing("/api/v1/protocol/orders", "orders", m.Order, query))

    def get(self, order_id: str) -> m.Order:
        """Returns an order of the caller, or of a plan of the caller."""
        path = f"/api/v1/protocol/orders/{segment(order_id)}"
        return self._send(Call("GET", path, m.Order, again=True))

    def wait(self, order_id: str, *, timeout: float = 60.0) -> m.Order:
        """Polls the order until it is confirmed, final, or failed; success reports the outcome.

        Raises SettlementPendingError after timeout seconds if the order is still open.
        """
        return self._run(_wait(self._config, order_id, timeout))

    def refund(self, order_id: str, *, cents: int | None = None) -> m.Order:
        """Refunds a card payment: cents, or by default the whole remaining amount. Unused credits
        are taken back."""
        body = trim({"amountCents": exact("cents", cents)})
        path = f"/api/v1/protocol/orders/{segment(order_id)}/refund"
        return self._send(Call("POST", path, m.Order, body=body, again=True, creates=True))


class Credits(Resource):
    """Credits of subscribers."""

    def holdings(self, *, page_size: int | None = None, ascending: bool = False) -> Pages[m.Balance]:
        """Lists the balances of the caller."""
        query = _paging(page_size, None, ascending)
        return self._list(Listing("/api/v1/protocol/holdings", "holdings", m.Balance, query))

    def subscribers(
        self, plan_id: str, *, page_size: int | None = None, ascending: bool = False
    ) -> Pages[m.Balance]:
        """Lists the balance of each subscriber of a plan of the caller."""
        query = _paging(page_size, None, ascending)
        path = f"{PLANS}/{segment(plan_id)}/subscribers"
        return self._list(Listing(path, "subscribers", m.Balance, query))

    def proof(self, transaction: str) -> m.BurnProof:
        """Returns the proof that a burn is in the on-chain mirror. Its status is "open" until the
        burn is published. Needs no key."""
        path = f"/api/v1/credits/proofs/{segment(transaction)}"
        return self._send(Call("GET", path, m.BurnProof, again=True, key=False))

    def track(
        self,
        agent_request_id: str,
        *,
        credits: int = 0,
        tag: str | None = None,
        description: str | None = None,
        status: str | None = None,
        metadata: Json | None = None,
    ) -> m.ActResult:
        """Records a part of the work for a request. It burns no credits; a settlement with a margin
        uses its credits. status is SUCCESS, FAILED, or PENDING (default)."""
        body = trim(
            {
                "agentRequestId": agent_request_id,
                "creditsToRedeem": exact("credits", credits),
                "tag": tag,
                "description": description,
                "status": status,
                "metadata": metadata,
            }
        )
        path = "/api/v1/protocol/agent-sub-tasks"
        return self._send(Call("POST", path, m.ActResult, body=body, again=True, creates=True))

    def tracked(self, agent_request_id: str) -> Pages[m.SubTask]:
        """Lists the recorded parts of a request."""
        query = {"agentRequestId": agent_request_id}
        return self._list(
            Listing("/api/v1/protocol/agent-sub-tasks", "subTasks", m.SubTask, query)
        )


class Tokens(Resource):
    """Access tokens and their permissions."""

    def create(
        self,
        plan_id: str,
        *,
        agent_id: str | None = None,
        allowed_agents: Sequence[str] | None = None,
        redemption_limit: int | None = None,
        order_limit: int | None = None,
        expiration: int | None = None,
        delegation_id: str | None = None,
        token_format: str | None = None,
        resource: str | None = None,
        metadata: Json | None = None,
        scheme: str | None = None,
        spending_limit_cents: int | None = None,
        duration_secs: int | None = None,
        payment_method_id: str | None = None,
    ) -> m.AccessToken:
        """Creates an access token for the caller. Only this response contains access_token.

        redemption_limit limits the credits that it can burn in total, and order_limit the orders
        that it can cause (0: no orders). expiration is 1 s to 365 days, default one day. Without a
        delegation it spends only existing credits and free plans. token_format is "jwt" or "x402".

        Deprecated: spending_limit_cents, duration_secs, and payment_method_id create a delegation
        implicitly. Use delegations.create and pass its id instead.
        """
        config = trim(
            {
                "delegationId": delegation_id,
                "spendingLimitCents": exact("spending_limit_cents", spending_limit_cents),
                "durationSecs": duration_secs,
                "providerPaymentMethodId": payment_method_id,
            }
        )
        if set(config) - {"delegationId"}:
            warn_deprecated(
                "tokens.create: spending_limit_cents, duration_secs, and payment_method_id are "
                "deprecated; use delegations.create and pass delegation_id"
            )
        body = trim(
            {
                "planId": plan_id,
                "agentId": agent_id,
                "allowedAgents": allowed_agents,
                "redemptionLimit": exact("redemption_limit", redemption_limit),
                "orderLimit": order_limit,
                "expiresInSecs": expiration,
                "delegationConfig": config or None,
                "tokenFormat": token_format,
                "resource": resource,
                "metadata": metadata,
                "scheme": scheme,
            }
        )
        path = "/api/v1/x402/permissions"
        return self._send(Call("POST", path, m.AccessToken, body=body, again=True, creates=True))

    def list(
        self,
        *,
        plan_id: str | None = None,
        status: str | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Permission]:
        """Lists permissions. status is Active, Revoked, Expired, or Exhausted."""
        query = _paging(page_size, None, ascending, planId=plan_id, status=status)
        return self._list(Listing("/api/v1/x402/permissions", "permissions", m.Permission, query))

    def get(self, permission_hash: str) -> m.Permission:
        """Returns a permission with its last 100 settlements."""
        path = f"/api/v1/x402/permissions/{segment(permission_hash)}"
        return self._send(Call("GET", path, m.Permission, again=True))

    def revoke(self, permission_hash: str) -> m.PermissionRevoked:
        """Revokes a permission immediately. Its open holds can still be settled, up to the held credits."""
        path = f"/api/v1/x402/permissions/{segment(permission_hash)}"
        return self._send(Call("DELETE", path, m.PermissionRevoked, again=True, refused=True))


class Delegations(Resource):
    """Limits on the money that access tokens may spend."""

    def create(
        self,
        *,
        provider: str,
        spending_limit_cents: int,
        duration_secs: int,
        currency: str,
        payment_method_id: str | None = None,
        plan_id: str | None = None,
        max_transactions: int | None = None,
        api_key_id: str | None = None,
        allowed_recipients: Sequence[str] | None = None,
        merchant_account_id: str | None = None,
        owner_account: str | None = None,
    ) -> m.DelegationCreated:
        """Creates a delegation: provider "erc4337" with currency "usdc" or "eurc", or "stripe" with
        "usd" or "eur" and a payment_method_id. duration_secs is 60 s to 365 days.

        owner_account is an external account of the caller. The delegation is pending until the
        account has signed typed_data: see sign.
        """
        body = trim(
            {
                "provider": provider,
                "spendingLimitCents": exact("spending_limit_cents", spending_limit_cents),
                "durationSecs": duration_secs,
                "currency": currency,
                "providerPaymentMethodId": payment_method_id,
                "planId": plan_id,
                "maxTransactions": max_transactions,
                "apiKeyId": api_key_id,
                "allowedRecipients": allowed_recipients,
                "merchantAccountId": merchant_account_id,
                "ownerAccount": owner_account,
            }
        )
        path = "/api/v1/delegation/create"
        return self._send(
            Call("POST", path, m.DelegationCreated, body=body, again=True, creates=True)
        )

    def sign(
        self, delegation_id: str, signature: str, *, authorization: Json | None = None
    ) -> m.Delegation:
        """Submits the signature of the account over typed_data, as 0x and hex."""
        body = trim({"signature": signature, "authorization": authorization})
        path = f"/api/v1/delegation/{segment(delegation_id)}/signature"
        return self._send(Call("POST", path, m.Delegation, body=body, again=True))

    def list(
        self, *, accessible: bool = False, page_size: int | None = None, ascending: bool = False
    ) -> Pages[m.Delegation]:
        """Lists delegations; accessible returns only delegations that this key can use now."""
        query = _paging(page_size, None, ascending, accessible=accessible or None)
        return self._list(Listing("/api/v1/delegation", "delegations", m.Delegation, query))

    def get(self, delegation_id: str) -> m.Delegation:
        """Returns a delegation of the caller."""
        path = f"/api/v1/delegation/{segment(delegation_id)}"
        return self._send(Call("GET", path, m.Delegation, again=True))

    def revoke(self, delegation_id: str) -> m.ActResult:
        """Revokes a delegation and the permissions that use it."""
        path = f"/api/v1/delegation/{segment(delegation_id)}"
        return self._send(Call("DELETE", path, m.ActResult, again=True))

    def unfreeze(self, delegation_id: str) -> m.Delegation:
        """Unfreezes a delegation that was frozen after declined charges or a dispute."""
        path = f"/api/v1/delegation/{segment(delegation_id)}/unfreeze"
        return self._send(Call("POST", path, m.Delegation, again=True))

    def transactions(
        self, delegation_id: str, *, page_size: int | None = None
    ) -> Pages[m.DelegationTransaction]:
        """Lists the payments and attempted payments of a delegation."""
        path = f"/api/v1/delegation/{segment(delegation_id)}/transactions"
        query = _paging(page_size, None, False)
        return self._list(Listing(path, "transactions", m.DelegationTransaction, query))


class PaymentMethods(Resource):
    """Cards, which are added on the web pages of the service, and the wallet."""

    def list(
        self, *, accessible: bool = False, provider: str | None = None
    ) -> Pages[m.PaymentMethod]:
        """Lists the cards, followed by the wallet. provider is "stripe" or "erc4337"."""
        query = {"accessible": accessible or None, "provider": provider, "pageSize": None}
        return self._list(Listing("/api/v1/payment-methods", "", m.PaymentMethod, query))

    def update(self, payment_method_id: str, changes: Json) -> m.PaymentMethod:
        """Changes alias (at most 100 characters) and allowedApiKeyIds; None clears a member."""
        path = f"/api/v1/payment-methods/{segment(payment_method_id)}"
        return self._send(Call("PATCH", path, m.PaymentMethod, body=changes, again=True))

    def revoke(self, payment_method_id: str) -> m.PaymentMethodRemoved:
        """Revokes a card and its delegations. The wallet is not affected."""
        path = f"/api/v1/payment-methods/{segment(payment_method_id)}"
        return self._send(Call("DELETE", path, m.PaymentMethodRemoved, again=True, refused=True))


class Payments(Resource):
    """Payments of requests: sellers verify, settle, release, and renew them; buyers find resources
    and read outcomes with their receipts."""

    def verify(
        self,
        payment_required: Json,
        access_token: Union[str, Json],
        *,
        max_amount: int | None = None,
        hold: bool = False,
        hold_secs: int | None = None,
        agent_request_id: str | None = None,
    ) -> m.VerifyResponse:
        """Checks whether a request is payable. A refusal is a response with is_valid False.

        hold reserves the credits for hold_secs (1 to 900, default 60), and is_valid then means that
        they can be burned. max_amount is in credits, by default the plan's maximum.
        """
        body = trim(
            {
                "paymentRequired": payment_required,
                "x402AccessToken": access_token,
                "maxAmount": exact("max_amount", max_amount),
                "hold": hold or None,
                "holdSecs": hold_secs,
                "agentRequestId": agent_request_id,
            }
        )
        return self._run(_payments.verify(self._config, body))

    def settle(
        self,
        payment_required: Json,
        access_token: Union[str, Json],
        *,
        agent_request_id: str | None = None,
        max_amount: int | None = None,
        margin_percent: Number | None = None,
        batch: bool | None = None,
    ) -> m.SettleResponse:
        """Burns credits, once per agent_request_id: a repeat returns the same receipt.

        A refusal is a response with success False. An error, or error_reason settlement_pending,
        means that the outcome is unknown: repeat the call with the same id, or call settlement().
        margin_percent, 0 to 10, replaces max_amount: it burns the credits that credits.track
        recorded, plus this margin.
        """
        body = trim(
            {
                "paymentRequired": payment_required,
                "x402AccessToken": access_token,
                "maxAmount": exact("max_amount", max_amount),
                "agentRequestId": agent_request_id,
                "marginPercent": margin_percent,
                "batch": batch,
            }
        )
        return self._run(_payments.settle(self._config, body))

    def release(self, agent_request_id: str) -> m.ReleaseResponse:
        """Releases a hold without burning credits. Errors: BCK.X402.0903 (409) if it is settled."""
        return self._run(_payments.release(self._config, {"agentRequestId": agent_request_id}))

    def renew(self, agent_request_id: str, *, hold_secs: int = 60) -> m.RenewResponse:
        """Extends an open hold until hold_secs (1 to 900) from now, at most until 24 hours after it
        began. A repeat is harmless."""
        body = {"agentRequestId": agent_request_id, "holdSecs": hold_secs}
        return self._run(_payments.renew(self._config, body))

    def settlement(self, agent_request_id: str) -> m.Settlement:
        """Returns the outcome of a request. Errors: BCK.X402.0909 (404)."""
        path = f"/api/v1/x402/settlements/{segment(agent_request_id)}"
        return self._send(Call("GET", path, m.Settlement, again=True))

    def settlement_by_transaction(self, transaction: str) -> m.Settlement:
        """Returns the outcome of the request whose receipt has this transaction."""
        query = {"transaction": transaction}
        path = "/api/v1/x402/settlements"
        return self._send(Call("GET", path, m.Settlement, query=query, again=True))

    def supported(self) -> m.Supported:
        """Returns the kinds of payments that the service accepts. Needs no key."""
        return self._send(
            Call("GET", "/api/v1/x402/supported", m.Supported, again=True, key=False)
        )

    def requests(
        self,
        *,
        role: str | None = None,
        plan_id: str | None = None,
        agent_id: str | None = None,
        subscriber: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Settlement]:
        """Lists requests for the caller's plans or, with role "buyer", requests that the caller paid.

        status is "settled", "released", or "lapsed", by default all three, between since and until,
        at most 90 days apart; "held" lists open requests. subscriber requires plan_id.
        """
        query = _paging(
            page_size, None, ascending, role=role, planId=plan_id, agentId=agent_id,
            subscriber=subscriber, status=status, since=since, until=until,
        )
        return self._list(Listing("/api/v1/protocol/requests", "requests", m.Settlement, query))

    def request(self, agent_request_id: str) -> m.RequestRecord:
        """Returns one request; steps is the history of its states. Errors: BCK.X402.0909 (404)."""
        path = f"/api/v1/protocol/requests/{segment(agent_request_id)}"
        return self._send(Call("GET", path, m.RequestRecord, again=True))

    def resources(
        self,
        *,
        type: str | None = None,
        pay_to: str | None = None,
        scheme: str | None = None,
        network: str | None = None,
        extensions: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> m.Catalogue:
        """Returns resources that can be paid for through the service: limit (1 to 100, default 20)
        resources from offset on. type is "http" or "mcp". Needs no key."""
        query = {
            "type": type, "payTo": pay_to, "scheme": scheme, "network": network,
            "extensions": extensions, "limit": limit, "offset": offset,
        }
        path = "/api/v1/x402/discovery/resources"
        return self._send(Call("GET", path, m.Catalogue, query=query, again=True, key=False))

    def search_resources(
        self,
        words: str,
        *,
        type: str | None = None,
        pay_to: str | None = None,
        scheme: str | None = None,
        network: str | None = None,
        extensions: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> m.FoundResources:
        """Returns the resources whose names or url contain all words, at most 16. cursor is the
        cursor of an earlier response. Needs no key."""
        query = {
            "query": words, "type": type, "payTo": pay_to, "scheme": scheme, "network": network,
            "extensions": extensions, "limit": limit, "cursor": cursor,
        }
        path = "/api/v1/x402/discovery/search"
        return self._send(Call("GET", path, m.FoundResources, query=query, again=True, key=False))

    def sign_offers(self, payment_required: Json) -> m.OffersResponse:
        """Signs the payment requirements of a server of the caller, so that clients can prove them."""
        body = {"paymentRequired": payment_required}
        path = "/api/v1/x402/offers"
        return self._send(Call("POST", path, m.OffersResponse, body=body, again=True))


class Webhooks(Resource):
    """Addresses to which the service sends events. toll.read_delivery verifies deliveries."""

    def create(
        self, url: str, *, types: Sequence[str] | None = None, description: str | None = None
    ) -> m.WebhookSecret:
        """Creates a webhook. Only this response contains secret. Without types it gets all events."""
        body = trim({"url": url, "types": types, "description": description})
        path = "/api/v1/webhooks"
        return self._send(Call("POST", path, m.WebhookSecret, body=body, again=True, creates=True))

    def list(self, *, page_size: int | None = None) -> Pages[m.Webhook]:
        """Lists the caller's webhooks."""
        query = _paging(page_size, None, False)
        return self._list(Listing("/api/v1/webhooks", "webhooks", m.Webhook, query))

    def get(self, webhook_id: str) -> m.Webhook:
        """Returns a webhook."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}"
        return self._send(Call("GET", path, m.Webhook, again=True))

    def update(self, webhook_id: str, changes: Json) -> m.Webhook:
        """Changes url, types, description, or status: "paused" or "active"."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}"
        return self._send(Call("PATCH", path, m.Webhook, body=changes, again=True))

    def delete(self, webhook_id: str) -> m.WebhookDeleted:
        """Deletes a webhook. Its pending deliveries are not sent."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}"
        return self._send(Call("DELETE", path, m.WebhookDeleted, again=True, refused=True))

    def rotate(self, webhook_id: str) -> m.WebhookSecret:
        """Rotates the secret of a webhook. For 24 hours, deliveries are signed with both secrets."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}/rotate"
        return self._send(Call("POST", path, m.WebhookSecret))

    def test(self, webhook_id: str) -> m.WebhookDelivery:
        """Sends a test event."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}/test"
        return self._send(Call("POST", path, m.WebhookDelivery))

    def deliveries(
        self, webhook_id: str, *, status: str | None = None, page_size: int | None = None
    ) -> Pages[m.WebhookDelivery]:
        """Lists the sent and pending deliveries of a webhook."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}/deliveries"
        query = _paging(page_size, None, False, status=status)
        return self._list(Listing(path, "deliveries", m.WebhookDelivery, query))

    def resend(self, webhook_id: str, delivery_id: str) -> m.WebhookDelivery:
        """Resends a delivery."""
        path = f"/api/v1/webhooks/{segment(webhook_id)}/deliveries/{segment(delivery_id)}/resend"
        return self._send(Call("POST", path, m.WebhookDelivery))


class Keys(Resource):
    """API keys of the caller."""

    def create(
        self,
        *,
        name: str | None = None,
        expires_in: int | None = None,
        api_version: str | None = None,
        form: str | None = None,
        prefix: str | None = None,
        rights: Sequence[str] | None = None,
    ) -> m.CreatedKey:
        """Creates an API key. Only this response contains key. It has at most the rights of the
        caller's key and does not expire after it. expires_in is in seconds, at least 60. form is
        short or long; prefix belongs to the long form."""
        body = trim(
            {
                "name": name,
                "expiresInSecs": expires_in,
                "version": api_version,
                "form": form,
                "prefix": prefix,
                "rights": rights,
            }
        )
        path = "/api/v1/api-keys"
        return self._send(Call("POST", path, m.CreatedKey, body=body, again=True, creates=True))

    def list(self, *, page_size: int | None = None) -> Pages[m.APIKey]:
        """Lists the caller's API keys, without the keys themselves."""
        query = _paging(page_size, None, False)
        return self._list(Listing("/api/v1/api-keys", "apiKeys", m.APIKey, query))

    def get(self, key_id: str) -> m.APIKey:
        """Returns the record of an API key."""
        path = f"/api/v1/api-keys/{segment(key_id)}"
        return self._send(Call("GET", path, m.APIKey, again=True))

    def calls(self, key_id: str) -> m.RecentCalls:
        """Returns the last 200 calls of a key, as recorded by the process that serves this call."""
        path = f"/api/v1/api-keys/{segment(key_id)}/calls"
        return self._send(Call("GET", path, m.RecentCalls, again=True))

    def update(
        self, key_id: str, *, name: str | None = None, api_version: str | None = None
    ) -> m.APIKey:
        """Changes the name or the pinned API version of a key."""
        body = trim({"name": name, "version": api_version})
        path = f"/api/v1/api-keys/{segment(key_id)}"
        return self._send(Call("PATCH", path, m.APIKey, body=body, again=True))

    def rotate(self, key_id: str, *, overlap_secs: int = 0) -> m.KeyRotated:
        """Creates a key that replaces another key, which stays valid for the overlap, 0 to 30 days."""
        body = {"overlapSecs": overlap_secs}
        path = f"/api/v1/api-keys/{segment(key_id)}/rotate"
        return self._send(Call("POST", path, m.KeyRotated, body=body, again=True, creates=True))

    def revoke(self, key_id: str, *, keep: bool = False) -> m.KeyRevoked:
        """Revokes an API key and everything it created; keep moves its creations to the caller's key."""
        path = f"/api/v1/api-keys/{segment(key_id)}"
        query = {"keep": True} if keep else {}
        return self._send(
            Call("DELETE", path, m.KeyRevoked, query=query, again=True, refused=True)
        )


class Wallet(Resource):
    """The wallet that the service keeps for the caller."""

    def get(self) -> m.Wallet:
        """Returns address and balances. The balances are empty while the chain cannot be read."""
        return self._send(Call("GET", "/api/v1/wallet", m.Wallet, again=True))

    def export(self) -> m.WalletKey:
        """Returns the private key, once. The call is not retried."""
        return self._send(Call("POST", "/api/v1/wallet/export", m.WalletKey))


class Sandbox(Resource):
    """Test helpers of a sandbox. A live service does not have them."""

    def clock(self) -> m.Clock:
        """Returns the time of the sandbox."""
        return self._send(Call("GET", "/api/v1/sandbox/clock", m.Clock, again=True))

    def advance(self, seconds: int) -> m.Clock:
        """Moves the time of the whole sandbox forward. Needs the key of an operator."""
        body = {"advanceSecs": seconds}
        return self._send(Call("POST", "/api/v1/sandbox/clock", m.Clock, body=body))

    def faucet(
        self,
        *,
        address: str | None = None,
        usdc: str | None = None,
        eurc: str | None = None,
        eth: str | None = None,
    ) -> m.ActResult:
        """Adds money of the embedded chain, in whole units as text, such as "12.50"."""
        body = trim({"address": address, "usdc": usdc, "eurc": eurc, "eth": eth})
        return self._send(Call("POST", "/api/v1/sandbox/faucet", m.ActResult, body=body))


class Meta(Resource):
    """Information about the service."""

    def info(self) -> m.Info:
        """Returns release, environment, network, and addresses. Needs no key."""
        return self._send(Call("GET", "/", m.Info, again=True, key=False))

    def health(self) -> m.Health:
        """Reports that the process is running. Needs no key."""
        return self._send(Call("GET", "/health", m.Health, again=True, key=False))

    def ready(self) -> m.Readiness:
        """Returns the health checks. The status not_ready is not an error. Needs no key."""
        taken = frozenset({503})
        return self._send(Call("GET", "/ready", m.Readiness, key=False, taken=taken))

    def versions(self) -> m.Versions:
        """Returns the API versions, including the version used for this client."""
        return self._send(Call("GET", "/api/v1/meta/versions", m.Versions, again=True))

    def search(self, text: str, *, type: str | None = None) -> m.SearchResults:
        """Finds records of the caller whose id or name begins with text, up to 20 of each type."""
        query = {"q": text, "type": type}
        path = "/api/v1/protocol/search"
        return self._send(Call("GET", path, m.SearchResults, query=query, again=True))

    def organizations(self, *, page_size: int | None = None) -> Pages[m.Organization]:
        """Lists the workspaces of a person, or the workspace of an API key."""
        query = _paging(page_size, None, False)
        path = "/api/v1/organizations"
        return self._list(Listing(path, "organizations", m.Organization, query))


class Usage(Resource):
    """Sums of settlements, revenue, and refusals, by hour, day, plan, and more. Times are in UTC."""

    def settled(
        self,
        *,
        by: Literal["hour", "day", "plan", "agent", "subscriber"] | None = None,
        role: Literal["seller", "buyer"] | None = None,
        plan_id: str | None = None,
        agent_id: str | None = None,
        subscriber: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Usage]:
        """Lists sums of settlements for the caller's plans or, with role "buyer", by the caller. by is
        "hour", "day", "plan", "agent", or "subscriber"."""
        query = _paging(
            page_size, None, ascending, by=by, role=role, planId=plan_id, agentId=agent_id,
            subscriber=subscriber, since=since, until=until,
        )
        return self._list(Listing("/api/v1/protocol/usage", "usage", m.Usage, query))

    def revenue(
        self,
        *,
        by: Literal["hour", "day", "plan"] | None = None,
        plan_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Revenue]:
        """Lists the revenue from orders of the caller's plans, by currency. by is "hour", "day", or
        "plan"; amounts are in base units."""
        query = _paging(
            page_size, None, ascending, by=by, planId=plan_id, since=since, until=until
        )
        return self._list(Listing("/api/v1/protocol/revenue", "revenue", m.Revenue, query))

    def refusals(
        self,
        *,
        by: Literal["reason", "hour", "day", "plan", "agent"] | None = None,
        plan_id: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Refusals]:
        """Lists counts of refused verify and settle calls for the caller's plans. by is "reason",
        "hour", "day", "plan", or "agent"."""
        query = _paging(
            page_size, None, ascending, by=by, planId=plan_id, reason=reason, since=since,
            until=until,
        )
        return self._list(Listing("/api/v1/protocol/refusals", "refusals", m.Refusals, query))


class Sessions(Resource):
    """The session of a person who signs in with a password.

    A client with the session token as api_key, and a workspace, acts as this person.
    """

    def sign_up(
        self,
        login: str,
        password: str,
        *,
        name: str | None = None,
        workspace: str | None = None,
        link: str | None = None,
    ) -> m.NewSession:
        """Creates a person and a workspace with the name in workspace. With an invitation link,
        the person also joins that workspace. Only this response contains token."""
        body = trim(
            {
                "login": login,
                "password": password,
                "name": name,
                "workspace": workspace,
                "link": link,
            }
        )
        return self._send(Call("POST", "/api/v1/people", m.NewSession, body=body, key=False))

    def sign_in(self, login: str, password: str) -> m.NewSession:
        """Signs in. Only this response contains token. Errors: BCK.AUTH.0001 (401)."""
        body = {"login": login, "password": password}
        return self._send(Call("POST", "/api/v1/session", m.NewSession, body=body, key=False))

    def get(self) -> m.SignedIn:
        """Returns the session of the client, with its person and their workspaces."""
        return self._send(Call("GET", "/api/v1/session", m.SignedIn, again=True))

    def prove(self, password: str) -> m.Session:
        """Confirms the password again. For ten minutes, the session may change access and credentials."""
        body = {"password": password}
        return self._send(Call("POST", "/api/v1/session/proof", m.Session, body=body))

    def sign_out(self) -> m.Done:
        """Ends the session of the client."""
        return self._send(Call("DELETE", "/api/v1/session", m.Done, again=True, refused=True))

    def list(self, *, page_size: int | None = None) -> Pages[m.Session]:
        """Lists the sessions of the person."""
        query = _paging(page_size, None, False)
        return self._list(Listing("/api/v1/sessions", "sessions", m.Session, query))

    def end(self, session_id: str) -> m.Done:
        """Ends one session of the person."""
        path = f"/api/v1/sessions/{segment(session_id)}"
        return self._send(Call("DELETE", path, m.Done, again=True, refused=True))

    def credentials(self, *, page_size: int | None = None) -> Pages[m.Credential]:
        """Lists the credentials of the person."""
        query = _paging(page_size, None, False)
        return self._list(Listing("/api/v1/credentials", "credentials", m.Credential, query))

    def remove_credential(self, credential_id: str) -> m.Done:
        """Removes a credential, except the last credential. All other sessions of the person end."""
        path = f"/api/v1/credentials/{segment(credential_id)}"
        return self._send(Call("DELETE", path, m.Done, again=True, refused=True))

    def renew_recovery_codes(self) -> m.RecoveryCodes:
        """Creates ten recovery codes that replace the earlier codes. Only this response contains them."""
        return self._send(Call("POST", "/api/v1/credentials/recovery-codes", m.RecoveryCodes))


class Members(Resource):
    """Members of the workspace. The calls need the session of a person, not an API key."""

    def list(self, *, page_size: int | None = None) -> Pages[m.Member]:
        """Lists the members."""
        query = _paging(page_size, None, False)
        return self._list(Listing("/api/v1/members", "members", m.Member, query))

    def set_role(self, user_id: str, role: str) -> m.Member:
        """Gives a member a role: "owner", "admin", "developer", "billing", or "viewer"."""
        path = f"/api/v1/members/{segment(user_id)}"
        return self._send(Call("PATCH", path, m.Member, body={"role": role}, again=True))

    def set_spend_limit(self, user_id: str, cents: int | None) -> m.Member:
        """Limits the amount that a developer can spend from the workspace in a calendar month (UTC).

        Cents of dollars and euros count alike. None removes the limit.
        """
        path = f"/api/v1/members/{segment(user_id)}"
        body = {"spendLimitCents": exact("cents", cents)}
        return self._send(Call("PATCH", path, m.Member, body=body, again=True))

    def remove(self, user_id: str, *, keep: bool = False) -> m.Removed:
        """Removes a member; "me" leaves the workspace. keep moves keys and consents to the caller."""
        path = f"/api/v1/members/{segment(user_id)}"
        query = {"keep": True} if keep else {}
        return self._send(
            Call("DELETE", path, m.Removed, query=query, again=True, refused=True)
        )

    def workspace(self, workspace: str) -> m.WorkspaceRecord:
        """Returns the workspace of the call, with its address and creation time."""
        return self._send(Call("GET", f"/api/v1/workspaces/{segment(workspace)}", m.WorkspaceRecord))

    def rename_workspace(self, workspace: str, name: str) -> m.Organization:
        """Renames the workspace of the call; an empty name removes the name."""
        path = f"/api/v1/workspaces/{segment(workspace)}"
        return self._send(Call("PATCH", path, m.Organization, body={"name": name}, again=True))

    def delete_workspace(self, workspace: str) -> m.WorkspaceDeleted:
        """Deletes the workspace of the call with its members, keys, and consents. Records are kept."""
        path = f"/api/v1/workspaces/{segment(workspace)}"
        return self._send(Call("DELETE", path, m.WorkspaceDeleted, again=True, refused=True))

    def sessions(self, user_id: str, *, page_size: int | None = None) -> Pages[m.Session]:
        """Lists the sessions of a member."""
        path = f"/api/v1/members/{segment(user_id)}/sessions"
        return self._list(Listing(path, "sessions", m.Session, _paging(page_size, None, False)))

    def end_sessions(self, user_id: str) -> m.EndedSessions:
        """Ends all sessions of a member, who can sign in again."""
        path = f"/api/v1/members/{segment(user_id)}/sessions"
        return self._send(Call("DELETE", path, m.EndedSessions, again=True, refused=True))

    def invite(self, role: str, *, note: str | None = None) -> m.Invitation:
        """Creates a link with which one person can join. Only this response contains the link."""
        body = trim({"role": role, "note": note})
        path = "/api/v1/invitations"
        return self._send(Call("POST", path, m.Invitation, body=body, again=True, creates=True))

    def invitations(self, *, page_size: int | None = None) -> Pages[m.Invitation]:
        """Lists the open invitations, without their links."""
        query = _paging(page_size, None, False)
        return self._list(Listing("/api/v1/invitations", "invitations", m.Invitation, query))

    def revoke_invitation(self, invitation_id: str) -> m.Done:
        """Revokes an open invitation."""
        path = f"/api/v1/invitations/{segment(invitation_id)}"
        return self._send(Call("DELETE", path, m.Done, again=True, refused=True))

    def accept(self, link: str) -> m.Organization:
        """Joins the workspace of an invitation link."""
        path = "/api/v1/invitations/accept"
        return self._send(Call("POST", path, m.Organization, body={"link": link}))

    def audit_log(
        self,
        *,
        act: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
        ascending: bool = False,
    ) -> Pages[m.Act]:
        """Lists the audit log of the workspace: each action with its author and source."""
        query = _paging(page_size, None, ascending, act=act, since=since, until=until)
        return self._list(Listing("/api/v1/audit-log", "acts", m.Act, query))


def _wait(config: Config, order_id: str, timeout: float) -> Steps[m.Order]:
    """Polls an order until it has ended."""
    import time

    from . import _core, errors

    end, pause = time.monotonic() + timeout, 0.1
    while True:
        path = f"/api/v1/protocol/orders/{segment(order_id)}"
        order = yield from _core.perform(config, Call("GET", path, m.Order, again=True))
        if order.status in ("confirmed", "final", "failed"):
            return order
        if time.monotonic() + pause > end:
            raise errors.SettlementPendingError(
                "The order is still being processed.", code=errors.PENDING, category="integration",
                details=f"orderId {order_id}.", retryable=True, response=order.response,
            )
        yield _core.Sleep(pause)
        pause = min(2 * pause, 2.0)
