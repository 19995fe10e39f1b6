"""Every example of torchcomms' pages runs by ``roundelay.torchcomms``, and by torchcomms itself where it is built."""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path
from typing import Any

import jobs
import pytest

pytest.importorskip("torch", reason="roundelay.torchcomms works on tensors of torch")

SOURCE = (Path(__file__).parent / "pages.py").read_text()
NAMES = [f"{page}: {name}" for page, name in re.findall(r'^@case\("(.+)"\)\ndef (\w+)', SOURCE, re.MULTILINE)]


@functools.cache
def outcomes() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return jobs.forked("pages", "every", 2, 100, TEST_FOLDER=folder)


@pytest.mark.parametrize("name", NAMES)
def test_example(name: str) -> None:
    for rank, found in enumerate(outcomes()):
        assert found[name] == "", f"rank {rank}"


def test_no_example_is_left_out() -> None:
    assert len(NAMES) >= 18 and all(sorted(found) == sorted(NAMES) for found in outcomes())
