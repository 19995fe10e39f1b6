"""Every operation of torch.distributed gives what Gloo gives, with 2 and 3 ranks in processes of their own."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks
from place import search_path

pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

SOURCE = (Path(__file__).parent / "operations.py").read_text()
NAMES = re.findall(r"^@(?:case|alone)\ndef (\w+)", SOURCE, re.MULTILINE)
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32"]
NAMES += [f"all_reduce_{dtype}" for dtype in TYPES]


@functools.cache
def outcomes(count: int) -> list[Any]:
    return ranks.run("operations", "every", count)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_operation(name: str, count: int) -> None:
    for rank, outcome in enumerate(outcomes(count)):
        assert outcome[name] == "", f"rank {rank}"


def test_no_case_is_left_out() -> None:
    assert sorted(outcomes(2)[0]) == sorted(NAMES)


@pytest.mark.parametrize(("value", "says"), [("gloo", ""), ("glo", "ROUNDELAY_REPLACE is 'glo', which is no backend")])
def test_only_known_backends_are_replaced(value: str, says: str) -> None:
    environment = dict(os.environ, ROUNDELAY_REPLACE=value, PYTHONPATH=search_path())
    done = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == bool(says) and says in done.stderr, done.stderr


IN_PLACE = """
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import roundelay.torch

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
group = dist.new_group([0])
roundelay.torch.set_timeout(timedelta(seconds=20))
roundelay.torch.set_timeout(timedelta(seconds=20), group)
tensor = torch.ones(3)
for of in (None, group):
    assert dist.get_backend(of) == "gloo"
    dist.all_reduce(tensor, group=of)
    (of or dist.group.WORLD).allreduce([tensor], dist.ReduceOp.SUM).wait()
    (of or dist.group.WORLD).broadcast(tensor, 0).wait()
assert tensor.tolist() == [1.0] * 3
dist.destroy_process_group()
print(any(f"roundelay.torch.{face}" in sys.modules for face in ("_backend", "_group", "compiled")))
"""


@pytest.mark.parametrize("replaced", ["", "gloo"])
def test_a_group_is_made_in_the_place_of_anothers(replaced: str) -> None:
    environment = dict(os.environ, ROUNDELAY_REPLACE=replaced, ROUNDELAY_TORCH_COMPILED="0", PYTHONPATH=search_path())
    command = [sys.executable, "-c", IN_PLACE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(bool(replaced))], done.stdout + done.stderr
    assert "hooks" not in done.stderr, done.stderr


def test_a_torch_without_distributed_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    from roundelay.torch import _register

    # As torch.distributed is where torch was built without it.
    monkeypatch.setattr(dist, "is_available", lambda: False)
    monkeypatch.delattr(dist, "Backend")
    _register.autoload()
