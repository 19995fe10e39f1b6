"""The examples of training with torchft: a replica is killed and comes back, and the losses are those without a fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from place import search_path

pytest.importorskip("torchft", reason="the examples train with torchft: pip install torchft")

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "torch" / "replicas"
CASES = {
    "hsdp": ["--ranks", "2", "--kill", "4"],
    "streaming_diloco": ["--steps", "80", "--kill", "10"],
}


@pytest.mark.parametrize("example", CASES)
@pytest.mark.timeout(420)
def test_losses_are_those_without_a_fault(example: str) -> None:
    command = [sys.executable, str(EXAMPLES / "launch.py"), example, *CASES[example]]
    environment = dict(os.environ, PYTHONPATH=search_path())
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # The one that is killed, the step that the survivor has failed for it, and the one that comes back.
    for event in ("replica 0 life 0  kill ", "replica 1 life 0  failed", "replica 0 life 1  step"):
        assert event in ended.stdout, ended.stdout


def _notes(loss: float = 0.5, end: float = 0.25, killed: bool = False) -> list[dict[str, Any]]:
    """Return what replicas note, of whom one was killed in step 1."""
    steps = [{"event": "step", "replica": each, "life": 0, "step": 0, "loss": 1.0} for each in range(2)]
    last = [{"event": "step", "replica": each, "life": 0, "step": 1, "loss": loss} for each in range(2)]
    ends: list[dict[str, Any]] = [{"event": "end", "replica": each, "life": 0, "loss": end} for each in range(2)]
    failed: list[dict[str, Any]] = []
    if killed:
        failed = [{"event": "failed", "replica": 1, "life": 0, "step": 1}]
        last[0]["life"] = ends[0]["life"] = 1
    return [*steps, *failed, *last, *ends]


def test_differences_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import launch

    without = _notes()
    assert launch.differences(without, _notes(killed=True), 0) == []
    assert "the loss of step 1 is 0.4, not 0.5" in launch.differences(without, _notes(0.4, killed=True), 0)
    assert launch.differences(without, _notes(0.4, killed=True), 1e-6) == []
    assert "final losses" in launch.differences(without, _notes(end=0.26, killed=True), 1e-6)[0]
    assert len(launch.differences(without, without, 0)) == 2
    lacking = [note for note in _notes(killed=True) if note.get("step") != 1]
    assert any("step 1 is None" in each for each in launch.differences(without, lacking, 0))
    apart = _notes(killed=True)
    apart[-1]["loss"] = 0.3
    assert "final losses" in launch.differences(without, apart, 0)[0]
