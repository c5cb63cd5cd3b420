"""The two clients: Toll, and AsyncToll for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Mapping, TypeVar

from . import _core, _events, errors, _resources, _resources_async
from ._core import (
    API_VERSION,
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    AsyncTransport,
    Attempt,
    Call,
    Config,
    Transport,
)
from ._namespace import DEFAULT, Namespace
from ._pages import _Anything
from ._wire import Answer
from .transport import HTTPTransport, default_async

_C = TypeVar("_C", bound="_Client")
_UNSET: Any = object()


class _Client:
    """Settings shared by both clients."""

    _config: Config
    _transport: Any

    def _bind(self) -> None:
        raise NotImplementedError

    def with_options(
        self: _C,
        *,
        timeout: float | None = _UNSET,
        max_retries: int = _UNSET,
        headers: Mapping[str, str] = _UNSET,
        api_version: str | None = _UNSET,
        idempotency_key: str | None = _UNSET,
        workspace: str | None = _UNSET,
    ) -> _C:
        """Returns a client with other settings and the same transport.

        idempotency_key makes a creation repeatable from another process: for 24 hours, the same key
        and content returns the same response. Use it for only one call.

            toll.with_options(timeout=5, idempotency_key="order-17").plans.order(plan_id)
        """
        changes = {
            "timeout": timeout,
            "max_retries": max_retries,
            "headers": headers,
            "version": api_version,
            "idempotency_key": idempotency_key,
            "workspace": workspace,
        }
        new = type(self).__new__(type(self))
        new._config = self._config.with_options(
            **{k: v for k, v in changes.items() if v is not _UNSET}
        )
        new._transport = self._transport
        new._bind()
        return new

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._config.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self._config.url!r})"  # never the key

    @staticmethod
    def _call(
        method: str, path: str, query: Mapping[str, Any] | None, body: Any, key: bool
    ) -> Call[_Anything]:
        if not path.startswith("/"):
            raise ValueError(f"path must begin with '/'; got {path!r}")
        method = method.upper()
        return Call(
            method, path, _Anything, query=query or {}, body=body, again=method == "GET", key=key
        )


class Toll(_Client):
    """Calls one service with one API key. Safe for use from several threads.

    api_key defaults to TOLL_API_KEY, and url to TOLL_URL or http://127.0.0.1:8402. Nothing is sent
    before the first call. timeout is in seconds for one attempt, and max_retries limits the retries
    of calls that are safe to repeat. on_request is called after each attempt; TOLL_LOG=debug logs
    each attempt.
    """

    def __init__(
        self,
        api_key: str | None = None,
        url: str | None = None,
        *,
        api_version: str | None = API_VERSION,
        timeout: float | None = DEFAULT_TIMEOUT,
        max_retries: int = DEFAULT_RETRIES,
        headers: Mapping[str, str] | None = None,
        workspace: str | None = None,
        namespace: Namespace = DEFAULT,
        transport: Transport | None = None,
        on_request: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._config = _core.new_config(
            api_key, url, api_version, timeout, max_retries, headers, workspace, namespace,
            on_request,
        )
        self._transport: Transport = transport or HTTPTransport()
        self._bind()

    def _bind(self) -> None:
        at = self._config, self._transport
        self.agents = _resources.Agents(*at)
        self.plans = _resources.Plans(*at)
        self.orders = _resources.Orders(*at)
        self.credits = _resources.Credits(*at)
        self.tokens = _resources.Tokens(*at)
        self.delegations = _resources.Delegations(*at)
        self.payment_methods = _resources.PaymentMethods(*at)
        self.payments = _resources.Payments(*at)
        self.events = _events.Events(*at)
        self.webhooks = _resources.Webhooks(*at)
        self.keys = _resources.Keys(*at)
        self.wallet = _resources.Wallet(*at)
        self.sandbox = _resources.Sandbox(*at)
        self.meta = _resources.Meta(*at)
        self.usage = _resources.Usage(*at)
        self.session = _resources.Sessions(*at)
        self.members = _resources.Members(*at)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: bool = True,
    ) -> Answer:
        """Calls an operation that has no method in this client. Parse the response with .json().

        path begins with "/". Only GET is retried. Raises TollError for a response other than 2xx.
        """
        call = self._call(method, path, query, body, key)
        answer = _core.run(_core.send(self._config, call), self._transport)
        if not 200 <= answer.status <= 299:
            raise errors.of_answer(answer)
        return answer

    def close(self) -> None:
        """Closes idle connections."""
        self._transport.close()

    def __enter__(self) -> Toll:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


class AsyncToll(_Client):
    """Toll for asyncio: the same resources, with methods that are awaited.

    With httpx 0.23 or later, it is native. Without httpx, it runs http.client in at most 32 threads.
    Trio is not supported.
    """

    def __init__(
        self,
        api_key: str | None = None,
        url: str | None = None,
        *,
        api_version: str | None = API_VERSION,
        timeout: float | None = DEFAULT_TIMEOUT,
        max_retries: int = DEFAULT_RETRIES,
        headers: Mapping[str, str] | None = None,
        workspace: str | None = None,
        namespace: Namespace = DEFAULT,
        transport: AsyncTransport | None = None,
        on_request: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._config = _core.new_config(
            api_key, url, api_version, timeout, max_retries, headers, workspace, namespace,
            on_request,
        )
        self._transport: AsyncTransport = transport or default_async()
        self._bind()

    def _bind(self) -> None:
        at = self._config, self._transport
        self.agents = _resources_async.AsyncAgents(*at)
        self.plans = _resources_async.AsyncPlans(*at)
        self.orders = _resources_async.AsyncOrders(*at)
        self.credits = _resources_async.AsyncCredits(*at)
        self.tokens = _resources_async.AsyncTokens(*at)
        self.delegations = _resources_async.AsyncDelegations(*at)
        self.payment_methods = _resources_async.AsyncPaymentMethods(*at)
        self.payments = _resources_async.AsyncPayments(*at)
        self.events = _events.AsyncEvents(*at)
        self.webhooks = _resources_async.AsyncWebhooks(*at)
        self.keys = _resources_async.AsyncKeys(*at)
        self.wallet = _resources_async.AsyncWallet(*at)
        self.sandbox = _resources_async.AsyncSandbox(*at)
        self.meta = _resources_async.AsyncMeta(*at)
        self.usage = _resources_async.AsyncUsage(*at)
        self.session = _resources_async.AsyncSessions(*at)
        self.members = _resources_async.AsyncMembers(*at)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: bool = True,
    ) -> Answer:
        """Calls an operation that has no method in this client; see Toll.request."""
        call = self._call(method, path, query, body, key)
        answer = await _core.run_async(_core.send(self._config, call), self._transport)
        if not 200 <= answer.status <= 299:
            raise errors.of_answer(answer)
        return answer

    async def aclose(self) -> None:
        """Closes idle connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncToll:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()
