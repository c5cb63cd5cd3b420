"""One service for the tests that only need one, and the sources on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Iterator

import pytest

HERE = Path(__file__).resolve().parent
if "TOLL_TEST_INSTALLED" not in os.environ:
    sys.path.insert(0, str(HERE.parent / "src"))

from toll.testing import Service  # noqa: E402


@pytest.fixture(scope="session")
def svc() -> Iterator[Service]:
    with Service() as s:
        yield s
