"""Process groups that are communicators: hooks, ends, refusals, and parts."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jobs
import pytest

pytest.importorskip("torch", reason="process groups are those of torch.distributed")

SOURCE = (Path(__file__).parent / "groups.py").read_text()
NAMES = re.findall(r"^    (\w+),$", SOURCE.partition("CASES = [")[2].partition("]")[0], re.MULTILINE)


@functools.cache
def outcomes() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return jobs.forked("groups", "every", 4, 100, TEST_FOLDER=folder)


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    for rank, found in enumerate(outcomes()):
        assert found[name] == "", f"rank {rank}"


def test_a_mesh_that_is_left_ends_with_the_program() -> None:
    program = """
import torch, torch.distributed as dist, roundelay.torchcomms as torchcomms
comm = torchcomms.new_comm("roundelay", "cpu", "left", store=dist.HashStore(), rank=0, size=1)
mesh = torchcomms.device_mesh.init_device_mesh((comm,), ("left",))
tensor = torch.ones(2)
dist.all_reduce(tensor, group=mesh.get_group())
print(tensor.tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=jobs.environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 1.0]\n", "")


def test_no_case_is_left_out() -> None:
    assert len(NAMES) == 10 and sorted(outcomes()[0]) == sorted(NAMES)
