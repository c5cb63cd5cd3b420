"""Payments of wallets: on the chain of a real service through each adapter, and against servers that lie."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Iterator

import httpx
import pytest
from test_http import Liar, challenge, fetch_async, fetch_httpx, fetch_requests, fetch_urllib, liar
from toll import Toll, builders
from toll.http import AsyncHTTPXPayer, Budget, HTTPXPayer, Limits, PaymentError, host_of  # type: ignore[attr-defined]
from toll.testing import Service
from wallet import Wallet

__all__ = ["liar"]
USDC = builders.USDC_SANDBOX
FETCHES = [fetch_urllib, fetch_requests, fetch_httpx, fetch_async]


@pytest.fixture(scope="module")
def chain() -> Iterator[Service]:
    """A service with its chain, that waits for it on a slow machine, too."""
    with Service(("--card", "off", "--order-wait", "40s")) as svc:
        yield svc


def rich(svc: Service) -> Wallet:
    """Returns a new wallet with $20."""
    wallet = Wallet()
    with svc.client() as t:
        t.sandbox.faucet(address=wallet.address, usdc="20")
    return wallet


@pytest.mark.parametrize("fetch", FETCHES)
def test_a_wallet_buys_a_plan(chain: Service, fetch: Any) -> None:
    """It signs once for a dollar, and the credits of the plan are its own."""
    wallet, url = rich(chain), f"{chain.url}/api/v1/x402/plans/{chain.plan_id}/order"
    budget = Budget(Limits(hosts=[host_of(url)], money_per_call=1_000_000, money=1_500_000))
    status, body = fetch(chain, budget, url, b"", wallet=wallet)
    bought = json.loads(body)
    assert status == 200 and bought["success"], body
    assert bought["subscriberAddress"].lower() == wallet.address
    (p,) = budget.payments
    assert (p.unit, p.state, p.spent, p.most, p.plan_id) == ("USDC", "paid", 1_000_000, 1_000_000, "")
    assert p.transaction.startswith("0x") and budget.spent == 0 and budget.spent_in("EURC") == 0
    with Toll(api_key="", url=chain.url) as anybody:
        assert anybody.plans.balance(chain.plan_id, wallet.address).balance == 100
        # The next one is beyond the limit, and is not signed.
        with pytest.raises(PaymentError, match="only 500000 of 1500000 remain"):
            fetch(chain, budget, url, b"", wallet=wallet)
        assert len(wallet.signed) == 1 and budget.spent_in("USDC") == 1_000_000
        assert anybody.plans.balance(chain.plan_id, wallet.address).balance == 100


def test_a_wallet_without_money(chain: Service) -> None:
    """What was signed counts until it expires, whatever the server says."""
    url = f"{chain.url}/api/v1/x402/plans/{chain.plan_id}/order"
    budget = Budget(Limits(hosts=[host_of(url)], money_per_call=1_000_000, money=1_000_000))
    with httpx.Client(transport=HTTPXPayer(None, budget, wallet=Wallet())) as c:
        res = c.post(url)
    assert res.status_code == 402 and "insufficient" in res.text
    assert budget.payments[0].state == "unknown" and budget.spent_in("USDC") == 1_000_000


def entry(**more: Any) -> dict[str, Any]:
    """Returns an entry of scheme exact for a cent."""
    return {
        "scheme": "exact", "network": "eip155:84532", "amount": "10000", "asset": USDC,
        "payTo": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "maxTimeoutSeconds": 90,
        "extra": {"name": "USDC", "version": "2"}, **more,
    }


def asks(url: str, *entries: Any, **extensions: Any) -> dict[str, Any]:
    return {"x402Version": 2, "resource": {"url": url}, "accepts": [*entries], "extensions": extensions}


class Broken(Wallet):
    """Fails, or returns what is no signature."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def sign_typed_data(self, *typed: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_wallets_sign_what_is_asked_or_nothing(liar: int) -> None:
    url = f"http://127.0.0.1:{liar}/ask"
    limits = Limits(hosts=[f"127.0.0.1:{liar}"], money_per_call=20_000, money=1_000_000)
    wallet = Wallet()

    def refused(why: str, by: Any = wallet, limits: Limits = limits) -> None:
        budget = Budget(limits)
        with httpx.Client(transport=HTTPXPayer(None, budget, wallet=by)) as c:
            with pytest.raises(PaymentError, match=why) as e:
                c.post(url, content=b"x")
        assert not e.value.sent and budget.spent_in("USDC") == 0
        assert all(p.state == "refused" for p in budget.payments)

    for more, why in [
        ({"asset": wallet.address}, "neither USDC nor EURC"),
        ({"network": "eip155:1"}, "neither USDC nor EURC"),
        ({"network": ["eip155:84532"]}, "neither USDC nor EURC"),
        ({"amount": "30000"}, "limit for one request is 20000"),
        ({"amount": None}, "no amount"),
        ({"amount": "0"}, "no amount"),
        ({"amount": 10000}, "no amount"),
        ({"amount": "\u0661\u0660"}, "no amount"),
        ({"amount": "\u00b2"}, "no amount"),
        ({"amount": str(1 << 256)}, "no amount"),
        ({"payTo": "0x0"}, "not a valid address"),
        ({"payTo": builders.ZERO}, "not a valid address"),
        ({"extra": {}}, "domain"),
        ({"extra": None}, "domain"),
        ({"extra": {"name": "USDC", "version": "2", "assetTransferMethod": "permit2"}}, "permit2"),
    ]:
        Liar.challenge = asks(url, entry(**more))
        refused(why)
    Liar.challenge = asks(url, entry(), **{"sign-in-with-x": {}})
    refused("requires a wallet sign-in")
    Liar.challenge = asks("https://agent.example.com/ask", entry())
    refused("is not at")
    Liar.challenge = asks(url, {"scheme": "svc:erc4337"})
    refused("no client is configured")
    Liar.challenge = asks(url, entry())
    refused("is not in the list of allowed hosts", limits=Limits(money_per_call=20_000, money=20_000))
    refused("limit for one request is 0", limits=Limits(hosts=limits.hosts, credits_per_call=10**6, credits=10**6))
    refused("24 hours", limits=Limits(hosts=limits.hosts, money_per_call=20_000, money=10**6, money_per_day=1))
    refused("the device is locked", Broken(RuntimeError("the device is locked")))
    for answer in (None, "", "0x12", b"12", 7, "0x" + "g" * 130):
        refused("no valid signature", Broken(answer))
    assert Liar.seen == [] and wallet.signed == []


def test_what_a_wallet_sends(liar: int) -> None:
    """Text, bytes, objects with a signature and coroutines are taken, and a lost answer counts in full."""
    url = f"http://127.0.0.1:{liar}/ask"
    Liar.challenge = asks(url, entry(), **{"payment-identifier": {"info": {"required": False}}})

    class Signed:
        signature = b"\x1b" * 65

    async def later() -> str:
        return "0x" + "1b" * 65

    for answer in (b"\x1b" * 65, "0x" + "1b" * 65, Signed(), later):
        Liar.seen = []
        budget = Budget(Limits(hosts=[f"127.0.0.1:{liar}"], money_per_call=20_000, money=15_000))
        wallet: Any = Broken(answer)
        typed: list[Any] = []
        sign = wallet.sign_typed_data
        wallet.sign_typed_data = lambda *data: (typed.append(data), later() if answer is later else sign(*data))[1]

        async def work() -> None:
            async with httpx.AsyncClient(transport=AsyncHTTPXPayer(None, budget, wallet=wallet)) as c:
                await c.post(url, content=b"x")

        with pytest.raises(PaymentError) as e:
            if answer is later:
                asyncio.run(work())
            else:
                with httpx.Client(transport=HTTPXPayer(None, budget, wallet=wallet)) as c:
                    c.post(url, content=b"x")
        assert e.value.sent and e.value.payment and e.value.payment.unit == "USDC"
        assert budget.spent_in("USDC") == 10_000 and budget.payments[0].state == "unknown"
        payload = json.loads(base64.b64decode(Liar.seen[0]))
        assert payload["accepted"] == entry() and payload["resource"] == {"url": url}
        assert payload["extensions"]["payment-identifier"]["info"]["id"] == budget.payments[0].id
        a = payload["payload"]["authorization"]
        assert (a["from"], a["to"], a["value"]) == (wallet.address, entry()["payTo"], "10000")
        assert int(a["validBefore"]) - int(a["validAfter"]) == 690 and len(a["nonce"]) == 66
        assert payload["payload"]["signature"] == "0x" + "1b" * 65
        ((domain, types, message),) = typed
        assert domain == {"name": "USDC", "version": "2", "chainId": 84532, "verifyingContract": USDC}
        assert [m["name"] for m in types["TransferWithAuthorization"]] == [*message]
        assert {n: str(v) for n, v in message.items()} == a
        if answer is not later:
            with pytest.raises(PaymentError, match="only 5000 of 15000 remain"):
                with httpx.Client(transport=HTTPXPayer(None, budget, wallet=wallet)) as c:
                    c.post(url, content=b"x")


def test_credits_come_first_or_the_wallet(svc: Service, liar: int) -> None:
    """Entries are tried in their order: what cannot be paid with credits is paid by the wallet."""
    url = f"http://127.0.0.1:{liar}/ask"
    credits = challenge(svc, url)["accepts"][0]
    Liar.challenge = asks(url, credits, entry())
    host = [f"127.0.0.1:{liar}"]
    for allowed, unit in ((5, "credits"), (1, "USDC")):
        limits = Limits(hosts=host, credits_per_call=allowed, credits=5, money_per_call=20_000, money=20_000)
        budget = Budget(limits)
        with pytest.raises(PaymentError):
            fetch_httpx(svc, budget, url, b"x", plans=[svc.plan_id], hosts=host, wallet=Wallet())
        assert [p.unit for p in budget.payments] == [unit]


def test_a_payer_needs_something_to_pay_with() -> None:
    budget = Budget(Limits())
    with pytest.raises(ValueError):
        HTTPXPayer(None, budget)
    with pytest.raises(ValueError):
        AsyncHTTPXPayer(None, budget)
    with pytest.raises(TypeError):
        HTTPXPayer("key", budget, wallet=Wallet())
