"""Models trained on meshes of communicators have the losses that they have on meshes of process groups."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="meshes are those of torch.distributed")

HERE = Path(__file__).parent
SECONDS = 150.0
KINDS = ("gloo", "roundelay", "comms")
COUNTS = [2, 4, 8] if os.environ.get("ROUNDELAY_CI") == "full" else [2, 4]
PROGRAMS = {
    2: ["FSDP", "tensor parallel", "pipeline"],
    4: ["HSDP", "FSDP and tensor parallel"],
    8: ["pipeline of FSDP and tensor parallel"],
}


@functools.cache
def results() -> dict[int, list[dict[str, Any]]]:
    """Return what each rank has, by the number of ranks: losses by program, and by the kind of the mesh."""
    found: dict[int, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "meshes.py"), folder, str(SECONDS), *map(str, COUNTS)]
        done = subprocess.run(command, env=jobs.environment(), capture_output=True, text=True, timeout=SECONDS + 60)
        logs = "\n----\n".join(path.read_text()[-4000:] for path in sorted(Path(folder).glob("log*")))
        assert done.returncode == 0, done.stderr + logs
        for count in COUNTS:
            found[count] = []
            for rank in range(count):
                by_kind = {kind: json.loads(Path(f"{folder}/result{count}-{rank}-{kind}").read_text()) for kind in KINDS}
                found[count].append({name: {kind: by_kind[kind][name] for kind in KINDS} for name in PROGRAMS[count]})
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("count", "name"), [(count, name) for count in COUNTS for name in PROGRAMS[count]])
def test_losses(count: int, name: str) -> None:
    every = results()[count]
    for rank, found in enumerate(every):
        for mesh, outcome in found[name].items():
            assert isinstance(outcome, list), f"rank {rank}, {mesh}: {outcome}"
        gloo, groups, comms = (found[name][mesh] for mesh in ("gloo", "roundelay", "comms"))
        assert len(set(comms)) == 4 and all(loss > 0 for loss in comms)
        assert comms == groups, f"rank {rank}: the same connections, another order of sums"
        assert comms == pytest.approx(gloo, rel=1e-5), f"rank {rank}"
    if name in ("FSDP", "HSDP"):
        assert every[0][name] != every[1][name], "ranks train on the same data"


@pytest.mark.skipif(os.environ.get("ROUNDELAY_CI") != "full", reason="four processes that import torch: with full only")
def test_the_example_trains() -> None:
    said = jobs.launched("../../../examples/torchcomms/mesh.py", 4)
    losses = [float(line.rpartition(" ")[2]) for line in said[0].splitlines() if line.startswith("step ")]
    assert len(losses) == 10 and losses[-1] < losses[0], said


def test_programs_are_all_there() -> None:
    source = (HERE / "meshes.py").read_text()
    for names in PROGRAMS.values():
        for name in names:
            assert re.search(f'"{name}": \\(', source)
