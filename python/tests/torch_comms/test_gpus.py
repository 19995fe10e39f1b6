"""The program for machines with GPUs, tried where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

pytest.importorskip("torch", reason="roundelay.torchcomms works on tensors of torch")

PROGRAM = Path(__file__).parent / "gpus.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), "--modules", "roundelay.torchcomms", "--device", "cpu", *arguments]
    return subprocess.run(command, env=jobs.environment(), capture_output=True, text=True, timeout=200)


def test_all_operations_are_right(tmp_path: Path) -> None:
    done = run("--parts", "operations", "--json", str(tmp_path / "rows"))
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "rows").read_text())
    assert row["wrong"] == {} and "all_to_all_v" in row["right"] and len(row["right"]) >= 15


def test_what_fails_is_told() -> None:
    """Without a GPU nothing can be put into a stream."""
    done = run("--parts", "streams")
    assert done.returncode == 1 and "0 right, 1 wrong" in done.stdout and "Traceback" in done.stdout
