"""What the tests have in common."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def command() -> str:
    """Return the program `roundelay`; skip where there is none."""
    from roundelay import Error
    from roundelay._command import find

    try:
        return find()
    except Error as error:
        for built in ("release", "debug"):
            program = ROOT / "target" / built / "roundelay"
            if program.is_file():
                os.environ["ROUNDELAY_COMMAND"] = str(program)
                return str(program)
        pytest.skip(f"the program is not built: {error}")


@pytest.fixture
def restored() -> Iterator[None]:
    """Put the environment back as it was."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def pytest_report_header() -> str:
    """Say which program is tested."""
    found = os.environ.get("ROUNDELAY_COMMAND") or shutil.which("roundelay") or "none"
    return f"roundelay program: {found}"
