"""The wheel as users get it: built, installed into an empty environment, and used as the README says."""

from __future__ import annotations

import http.server
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import httpx
import pytest
from toll import Toll, builders
from toll.testing import Service, pay_page, program

HERE = Path(__file__).resolve().parent.parent
DOCS = HERE.parents[1] / "docs" / "PYTHON.md"


def blocks(path: Path) -> list[str]:
    """The Python blocks of a page that stand for themselves."""
    found = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
    return [b for b in found if "# FastAPI, Starlette  " not in b]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment in which the wheel is installed."""
    work = tmp_path_factory.mktemp("release")
    source = work / "source"
    skip = shutil.ignore_patterns("__pycache__", ".*_cache", "tests", "dist")
    shutil.copytree(HERE, source, ignore=skip)
    # Debian's hatchling asks for editables, which Debian lacks and only editable installs need.
    build = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    done = subprocess.run(
        [*build, "--outdir", str(work / "dist"), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (work / "dist").glob("*.whl")
    assert wheel.name == "toll-1.1.0-py3-none-any.whl" and list((work / "dist").glob("*.tar.gz"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "toll/py.typed" in names and all(n.startswith(("toll/", "toll-1.1.0.dist-info/")) for n in names)
    metadata = zipfile.ZipFile(wheel).read("toll-1.1.0.dist-info/METADATA").decode()
    assert "Requires-Dist" not in metadata and "Requires-Python: >=3.10" in metadata
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(work / "venv")], check=True)
    program = work / "venv" / "bin" / "python3"
    pip = [sys.executable, "-m", "pip", "--python", str(program), "install", "--no-index", "--no-deps"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return program


def environment(svc: Service, account: str) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TOLL_BIN", "TMPDIR")}
    return {**keep, "TOLL_API_KEY": svc.key(account).key, "TOLL_URL": svc.url}


def test_readme(svc: Service, python: Path) -> None:
    first = blocks(HERE / "README.md")[0]
    done = subprocess.run(
        [str(python), "-I", "-c", first + "\nprint(token)"], capture_output=True, text=True,
        env=environment(svc, "reader"), timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Basic 0" in done.stdout and done.stdout.count(".") >= 2


def test_modules_import_alone(python: Path) -> None:
    """Every module imports where nothing else is installed."""
    code = "import toll, toll.asgi, toll.wsgi, toll.http, toll.mcp, toll.testing, toll.transport, sys\n"
    code += "assert not {'httpx', 'requests', 'flask', 'django', 'starlette'} & set(sys.modules)\n"
    code += "t = toll.AsyncToll('k'); print(type(t._transport).__name__)"
    done = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "ThreadTransport", done.stderr


def test_pages_compile() -> None:
    for path in (HERE / "README.md", DOCS):
        for block in blocks(path):
            compile(block, str(path), "exec", flags=0x2000)  # await at the top level
    assert len(blocks(DOCS)) >= 5


def test_pages_name_what_there_is() -> None:
    """Every method and every import of the pages exists."""
    client, found = Toll("k"), 0
    for path in (HERE / "README.md", DOCS):
        text = path.read_text(encoding="utf-8")
        for resource, method in re.findall(r"\btoll\.(\w+)\.(\w+)\b", text):
            holder = getattr(client, resource, None) or importlib.import_module(f"toll.{resource}")
            assert hasattr(holder, method), f"{path.name}: toll.{resource}.{method}"
            found += 1
        for module, names in re.findall(r"^from (toll[\w.]*) import (.+)$", text, re.M):
            for name in names.split(", "):
                assert hasattr(importlib.import_module(module), name), f"{path.name}: {module} {name}"
                found += 1
    assert found > 40


def test_quick_start(python: Path, tmp_path: Path) -> None:
    """The blocks of the page with a name, in an empty folder, sell and buy against toll dev, and the same over MCP."""
    found = re.findall(r"```python (\w+\.py)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    assert [name for name, _ in found] == ["sell.py", "buy.py", "mcp_sell.py", "mcp_buy.py"]
    at, web, mcp = (free_port() for _ in range(3))
    for name, text in found:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("import ", "from "))]
        assert len(lines) <= 13, name
        (tmp_path / name).write_text(text.replace("8403", str(web)).replace("8404", str(mcp)))
    # Debian's uvicorn and httpx for MCP; the package itself is the installed one.
    frameworks = Path(httpx.__file__).parents[1]
    assert not (frameworks / "toll").exists()
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR")}
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **env: str) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"log{len(running)}").open("wb")
        p = subprocess.Popen(command, cwd=tmp_path, env={**keep, **env}, stdout=log, stderr=log)
        running.append(p)
        return p

    def account(who: str) -> dict[str, str]:
        key = (tmp_path / "dev" / f"{who}.key").read_text().strip()
        return {"TOLL_URL": f"http://localhost:{at}", "TOLL_API_KEY": key}

    try:
        dev = start(program(), "dev", "--data", "dev", "--listen", f"127.0.0.1:{at}", "--history=false")
        end = time.monotonic() + 120
        while b"Paste these commands" not in (tmp_path / "log0").read_bytes():
            assert dev.poll() is None and time.monotonic() < end, (tmp_path / "log0").read_text()
            time.sleep(0.1)
        for sell, buy, port, path in [
            ("sell.py", "buy.py", web, ""), ("mcp_sell.py", "mcp_buy.py", mcp, str(frameworks)),
        ]:
            answers(port, start(str(python), sell, PYTHONPATH=path, **account("builder")))
            bought = subprocess.run(
                [str(python), buy], cwd=tmp_path, env={**keep, "PYTHONPATH": path, **account("subscriber")},
                capture_output=True, text=True, timeout=60,
            )
            assert bought.stdout == "42 2\n", bought.stderr
    finally:
        for p in running:
            p.terminate()
            p.wait(20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return int(s.getsockname()[1])


def answers(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until something listens."""
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < end, "nothing listens"
            time.sleep(0.05)


def test_examples(svc: Service) -> None:
    """The agent sells to the buyer."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with svc.client("example seller") as t:
        made = t.agents.create_with_plan(
            name="Example", endpoints=[{"POST": f"{url}/ask"}, {"POST": f"{url}/essay"}],
            plan_name="Example", price=builders.free_price(), credits=builders.dynamic_credits(100, 1, 10),
        )
    env = {**environment(svc, "example seller"), "TOLL_PLAN": made.plan_id, "TOLL_AGENT": made.agent_id}
    env.update(AGENT_URL=url, PYTHONPATH=str(HERE / "src"))
    command = [sys.executable, "-m", "uvicorn", "agent:app", "--port", str(port), "--log-level", "warning"]
    agent = subprocess.Popen(command, cwd=HERE / "examples", env=env)
    try:
        answers(port, agent)
        bought = subprocess.run(
            [sys.executable, str(HERE / "examples" / "buyer.py"), url, "how are you"],
            capture_output=True, text=True, timeout=60,
            env={**environment(svc, "example buyer"), "PYTHONPATH": str(HERE / "src")},
        )
        assert bought.stdout == "HOW ARE YOU\n", bought.stderr
        assert "2 credits spent" in bought.stderr
        with svc.client("example buyer") as t:
            assert t.plans.balance(made.plan_id).balance == 98  # the free plan was ordered on demand
    finally:
        agent.terminate()
        agent.wait(20)


def test_pay_page() -> None:
    """Test cards pay hosted and embedded pages of a sandbox, and nothing else is paid."""
    with Service(("--chain", "off")) as svc, svc.client() as seller, svc.client("buyer") as buyer:
        made = seller.agents.create_with_plan(
            name="Cards", endpoints=[], plan_name="Five", credits=builders.dynamic_credits(100, 1, 10),
            price=builders.fiat_price(5_000_000, seller.wallet.get().address),
        )
        hosted = buyer.plans.checkout(made.plan_id, session_type="hosted")
        with pytest.raises(RuntimeError, match="card was declined"):
            pay_page(hosted.result.checkout_url, "4000000000009995")
        pay_page(hosted.result.checkout_url, "4000002760003184")  # 3-D Secure
        assert buyer.orders.get(hosted.order_id).status == "confirmed"
        with pytest.raises(ValueError, match="no link to a payment"):
            pay_page(hosted.result.checkout_url, "4242424242424242")
        with pytest.raises(ValueError, match="no link to a payment"):
            pay_page(svc.url + "/docs", "4242424242424242")
        embedded = buyer.plans.checkout(made.plan_id)
        pay_page(embedded.result.checkout_url, "4242 4242 4242 4242")
        assert buyer.orders.get(embedded.order_id).status == "confirmed"
        assert buyer.plans.balance(made.plan_id).available == 200


def test_pay_page_of_stripe() -> None:
    """A page that is not a test page gets no card."""
    sent: list[str] = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.requestline)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'<a href="http://{at}/c/pay/cs_live_1">Pay</a>'.encode())

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        at = f"127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ValueError, match="nothing was paid"):
            pay_page(f"http://{at}/pay", "4242424242424242")
        server.shutdown()
    assert sent == ["GET /pay HTTP/1.1", "GET /c/pay/cs_live_1 HTTP/1.1"]
