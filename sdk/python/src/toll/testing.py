"""A service for tests, which is the real program with a separate data directory.

    from toll.testing import Service

    def test_agent():
        with Service() as svc:
            token = svc.token(credits=10)
            ...
            svc.advance(60)

The program is TOLL_BIN, or `toll` on PATH. It listens only on the loopback interface.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Sequence

from . import builders
from ._models import AgentAndPlanRegistered
from .client import AsyncToll, Toll
from .errors import TollError

#: Longest time for a start, in seconds.
START = 60.0
#: Longest text of a page, in bytes.
PAGE = 256 << 10


@dataclass(frozen=True)
class Key:
    """An API key of a separate workspace."""

    address: str
    id: str
    key: str = field(repr=False)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirects."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _open(url: str, form: dict[str, str] | None = None) -> tuple[str, str | None]:
    """Opens a page, or submits its form. Returns its text and where it redirects to."""
    at = urllib.parse.urlsplit(url)
    if at.scheme not in ("http", "https"):
        raise ValueError(f"{url} is not the URL of a page")
    data = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, data, {"origin": f"{at.scheme}://{at.netloc}"})
    answer: Any
    try:
        answer = urllib.request.build_opener(_Stay).open(request, timeout=20)
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        to = answer.headers.get("location")
        return answer.read(PAGE).decode(errors="replace"), to and urllib.parse.urljoin(url, to)


def pay_page(checkout_url: str, card: str) -> None:
    """Pays the page of an order of any sandbox with a test card, like a person in a browser who agrees
    to 3-D Secure. Then wait for the order with orders.wait.

    Raises ValueError if the page does not lead to a test page of Toll, such as the page of a paid
    order or a page of Stripe, and RuntimeError if the test page declines the card.
    """
    for submit in (False, True, False):  # the form asks for a link in place of an embedded form
        text, _ = _open(checkout_url, {} if submit else None)
        if link := re.search(r'href="([^"]*/c/pay/[^"]*)"', text):
            break
    else:
        raise ValueError("the page has no link to a payment: it is paid or expired, or not an order page")
    page = html.unescape(link[1])
    if "TEST PAGE: NO MONEY MOVES" not in _open(page)[0]:
        raise ValueError(f"{page} is not a test page of Toll, so nothing was paid")
    form = {"number": card, "expiry": "12/39", "cvc": "123", "name": "Ada", "email": "ada@example.com"}
    for _ in range(5):
        text, to = _open(page, form)
        if to is None:
            said = re.search(r'role="alert">(.*?)</p>', text, re.S)
            raise RuntimeError(html.unescape(said[1]) if said else "the test page did not accept the card")
        page, form = to, {"result": "approve"}  # 3-D Secure
        if "/c/" not in urllib.parse.urlsplit(page).path:
            break
    _open(page)  # the service reads the payment


def program() -> str:
    """Returns the path of the program. Raises FileNotFoundError."""
    found = os.environ.get("TOLL_BIN") or shutil.which("toll")
    if not found:
        raise FileNotFoundError("toll is not on PATH: install it, or set TOLL_BIN to its path")
    return found


class Service:
    """A running service with a builder, who has a plan and an agent, and a subscriber.

    The plan has a price, 100 credits per order, and 1 to 10 credits per request. args are further
    arguments of `toll serve`. The service stops at the end of the with block, or with stop().
    """

    def __init__(self, args: Sequence[str] = ("--chain", "off", "--card", "off")) -> None:
        self._args = list(args)
        self._program = program()
        self._dir = tempfile.mkdtemp(prefix="toll-py-")
        self._process: subprocess.Popen[bytes] | None = None
        self._keys: dict[str, Key] = {}
        self._registered: AgentAndPlanRegistered | None = None
        with socket.create_server(("127.0.0.1", 0)) as s:
            self._port: int = s.getsockname()[1]
        self.log = Path(self._dir) / "log"
        try:
            self._make("builder", False, init=True)
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The public address of the service."""
        return f"http://localhost:{self._port}"

    def start(self) -> None:
        """Starts the process. After kill(), it restarts with the same data."""
        command = [self._program, "serve", "--listen", f"127.0.0.1:{self._port}"]
        # No load balancer needs time to redirect requests, so the process does not drain.
        command += ["--data", self._data, "--drain", "0s", *self._args]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment()
            )
        end = time.monotonic() + START
        with Toll(api_key="", url=self.url, max_retries=0, timeout=5) as toll:
            while True:
                try:
                    toll.meta.health()
                    return
                except TollError as e:
                    if self._process.poll() is not None or time.monotonic() > end:
                        said = self.log.read_text(errors="replace")[-2000:]
                        raise RuntimeError(f"toll serve did not start: {e}\n{said}") from None
                time.sleep(0.05)

    def kill(self) -> None:
        """Kills the process, like a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stops the process gracefully and removes its data."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self._dir, ignore_errors=True)

    @property
    def _data(self) -> str:
        return os.path.join(self._dir, "data")

    @staticmethod
    def _environment() -> dict[str, str]:
        """Returns the environment without the TOLL_ variables of the developer."""
        return {k: v for k, v in os.environ.items() if not k.startswith("TOLL_")}

    def _make(self, account: str, operator: bool, init: bool = False) -> Key:
        command = [self._program, "keys", "create", "--local", "--data", self._data]
        command += ["--account", account, "-o", "json"]
        command += ["--operator"] if operator else []
        command += ["--init"] if init else []
        done = subprocess.run(command, capture_output=True, env=self._environment(), timeout=START)
        if done.returncode != 0:
            raise RuntimeError(f"toll keys create: {done.stderr.decode(errors='replace')}")
        made: dict[str, Any] = json.loads(done.stdout)
        key = Key(made["address"], made["id"], made["key"])
        self._keys[account] = key
        return key

    def key(self, account: str, *, operator: bool = False) -> Key:
        """Returns the API key of a workspace, which is created on first use."""
        return self._keys.get(account) or self._make(account, operator)

    def client(self, account: str = "builder", **settings: Any) -> Toll:
        """Returns a client with the API key of a workspace."""
        return Toll(api_key=self.key(account).key, url=self.url, **settings)

    def async_client(self, account: str = "builder", **settings: Any) -> AsyncToll:
        """Returns a client for asyncio with the API key of a workspace."""
        return AsyncToll(api_key=self.key(account).key, url=self.url, **settings)

    @property
    def registered(self) -> AgentAndPlanRegistered:
        """The builder's agent and plan, registered on first use."""
        if self._registered is None:
            receiver = self.key("builder").address
            with self.client() as toll:
                self._registered = toll.agents.create_with_plan(
                    name="Test agent",
                    endpoints=[],
                    plan_name="Test plan",
                    price=builders.erc20_price(1_000_000, builders.USDC_SANDBOX, receiver),
                    credits=builders.dynamic_credits(100, 1, 10),
                )
        return self._registered

    @property
    def plan_id(self) -> str:
        """The id of the builder's plan."""
        return self.registered.plan_id

    @property
    def agent_id(self) -> str:
        """The id of the builder's agent, which has no endpoints and can be paid for any request."""
        return self.registered.agent_id

    def mint(self, credits: int, account: str = "subscriber") -> None:
        """Grants credits of the plan to a workspace."""
        with self.client() as toll:
            toll.plans.mint(self.plan_id, self.key(account).address, credits)

    def token(self, credits: int = 0, account: str = "subscriber", **limits: Any) -> str:
        """Grants credits to a workspace and returns an access token."""
        if credits:
            self.mint(credits, account)
        with self.client(account) as toll:
            return toll.tokens.create(self.plan_id, **limits).access_token

    def balance(self, account: str = "subscriber") -> int:
        """Returns the credits of a workspace, including held credits."""
        with self.client(account) as toll:
            return toll.plans.balance(self.plan_id).balance

    def held(self, account: str = "subscriber") -> int:
        """Returns the credits of a workspace that are held for requests."""
        with self.client(account) as toll:
            return toll.plans.balance(self.plan_id).held

    def advance(self, seconds: int) -> None:
        """Moves the clock of the service forward."""
        key = self.key("operator", operator=True)
        with Toll(api_key=key.key, url=self.url) as toll:
            toll.sandbox.advance(seconds)

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()
