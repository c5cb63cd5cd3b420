"""Builders of prices and credits of plans (wire contract, section 8).

Amounts are int, in base units of the token: 6 decimals for USDC, EURC, and fiat (2_000_000 is 2.00),
18 for the native token. The receiver defaults to the wallet of the workspace that registers the plan.
The service checks the limits of amounts when a plan is registered.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

Config = dict[str, Any]

ZERO = "0x" + "0" * 40
#: EURC on Base mainnet; the service accepts the EURC token of either network.
EURC = "0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42"
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
USDC_SANDBOX = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
EURC_SANDBOX = "0x808456652fdb597867f38412077A9182bf77359F"
#: The marker of a pay-as-you-go price, in deployment.contracts of the service info.
PAY_AS_YOU_GO = "0x1FCcaBF8D461cCc8259CB09aE54b4Ff9a90718B3"

DAY = 86_400
WEEK = 604_800
MONTH = 2_629_746
YEAR = 31_557_600

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}\Z")


def _address(name: str, value: str) -> str:
    if not _ADDRESS.match(value):
        raise ValueError(f"{name} must be 0x and 40 hexadecimal digits; got {value!r}")
    return value


def _number(name: str, value: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int; got {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative; got {value}")
    return str(value)


def _price(amount: int, receiver: str | None, token: str = ZERO, **more: Any) -> Config:
    if receiver is not None and _address("receiver", receiver) == ZERO:
        raise ValueError("receiver must not be the zero address")
    return {
        "tokenAddress": _address("token", token),
        "amounts": [_number("amount", amount)],
        **({} if receiver is None else {"receivers": [receiver]}),
        "contractAddress": ZERO,
        "feeController": ZERO,
        "externalPriceAddress": ZERO,
        "templateAddress": ZERO,
        "isCrypto": True,
        **more,
    }


def free_price() -> Config:
    """Returns the price of a free plan."""
    out = _price(0, None)
    out["amounts"], out["receivers"] = [], []
    return out


def fiat_price(amount: int, receiver: str | None = None, currency: str = "USD") -> Config:
    """Returns a card price in USD or EUR, with 6 decimals (2_000_000 is 2.00)."""
    if currency.upper() not in ("USD", "EUR"):
        raise ValueError(f"currency must be USD or EUR; got {currency!r}")
    return _price(amount, receiver, isCrypto=False, currency=currency.upper())


def crypto_price(amount: int, receiver: str | None = None, token: str = ZERO) -> Config:
    """Returns a price in base units of a token; the zero address is the native token."""
    return _price(amount, receiver, token)


def native_price(amount: int, receiver: str | None = None) -> Config:
    """Returns a price in base units of the native token, which has 18 decimals."""
    return _price(amount, receiver)


def erc20_price(amount: int, token: str, receiver: str | None = None) -> Config:
    """Returns a price in base units of a token. The token comes before the receiver."""
    if _address("token", token) == ZERO:
        raise ValueError("token must not be the zero address; use native_price for the native token")
    return _price(amount, receiver, token)


def eurc_price(
    amount: int, receiver: str | None = None, eurc: str | None = None, *, sandbox: bool = False
) -> Config:
    """Returns a price in base units of EURC, which has 6 decimals.

    The token is eurc, or by default the EURC token of Base; with sandbox, of the Base test network.
    The service accepts both tokens, and is paid in the EURC token of its network.
    """
    own = EURC_SANDBOX if sandbox else EURC
    return _price(amount, receiver, own if eurc is None or eurc == ZERO else eurc, currency="EURC")


def pay_as_you_go_price(amount: int, receiver: str | None = None, token: str = ZERO) -> Config:
    """Returns the price of one credit, for a plan whose credits are bought per call."""
    return _price(amount, receiver, token, templateAddress=PAY_AS_YOU_GO)


def _credits(fixed: bool, secs: int, amount: int, least: int, most: int) -> Config:
    return {
        "isRedemptionAmountFixed": fixed,
        "redemptionType": 4,
        "onchainMirror": False,
        "durationSecs": _number("duration", secs),
        "amount": _number("granted", amount),
        "minAmount": _number("min_per_request", least),
        "maxAmount": _number("max_per_request", most),
    }


def fixed_credits(granted: int, per_request: int = 1) -> Config:
    """Returns granted credits; each request burns per_request. Both are at least 1."""
    return _credits(True, 0, granted, per_request, per_request)


def dynamic_credits(granted: int, min_per_request: int = 1, max_per_request: int = 1) -> Config:
    """Returns granted credits; each request burns an amount that the seller chooses within the bounds."""
    return _credits(False, 0, granted, min_per_request, max_per_request)


def pay_as_you_go_credits() -> Config:
    """Returns the credits for pay_as_you_go_price, which are bought one at a time."""
    return _credits(False, 0, 1, 1, 1)


def expirable_credits(duration_secs: int) -> Config:
    """Returns the credits of a plan that sells a period of time, in seconds; see DAY."""
    return _credits(False, duration_secs, 1, 1, 1)


def non_expirable_credits() -> Config:
    """Returns one credit that never expires."""
    return _credits(False, 0, 1, 1, 1)


def with_redemption_type(credits: Mapping[str, Any], kind: int | str) -> Config:
    """Returns the configuration with another redemption type: 0, 1, 2, 4, "fixed", or "dynamic".

    The words set the type 4 and the flag isRedemptionAmountFixed.
    """
    out = dict(credits)
    word = str(kind).lower()
    if word in ("fixed", "dynamic"):
        out["redemptionType"], out["isRedemptionAmountFixed"] = 4, word == "fixed"
    elif word in ("0", "1", "2", "4"):
        out["redemptionType"] = int(word)
    else:
        raise ValueError(f"the redemption type must be 0, 1, 2, 4, fixed, or dynamic; got {kind!r}")
    return out


def with_onchain_mirror(credits: Mapping[str, Any], on: bool = True) -> Config:
    """Returns the configuration with the on-chain mirror of burns turned on or off."""
    return {**credits, "onchainMirror": on}
