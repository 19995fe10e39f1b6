"""The programs for machines with several GPUs, tried where there is none: beside Gloo, on CPU tensors."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from place import search_path

pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

HERE = Path(__file__).resolve().parent


def test_programs_run_and_give_what_gloo_gives(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "main.py"), str(tmp_path), "--device", "cpu", "--faces", "python"]
    command += ["--parts", "right,windows,steps", "--minutes", "1.7"]
    environment = dict(os.environ, PYTHONPATH=search_path())
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=115)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "rows.json").read_text())
    cases = [row for row in found["rows"]["right-python"] if "case" in row]
    assert len(cases) == 11 and all(row["error"] is None for row in cases)
    assert "ddp, small" in ended.stdout
    assert found["ends"]["windows"] == "done"
    played = [row["case"] for row in found["rows"]["windows"] if "case" in row]
    assert played == ["puts", "words", "refused", "graphs", "mixed", "late"]


def test_what_differs_is_seen() -> None:
    spec = importlib.util.spec_from_file_location("torch_gpu_report", HERE / "report.py")
    assert spec is not None and spec.loader is not None
    report: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    right = {"result": [1.0, 2.0], "error": None}
    assert report.compared(right, right) == "same"
    for wrong in ([1.0, 2.1], [1.0, float("nan")], [1.0]):
        assert report.compared({"result": wrong, "error": None}, right).startswith("WRONG")
    assert report.compared({"result": [], "error": "it broke"}, right) == "FAILED: it broke"
    assert report.compared(None, right) == "NOT RUN"
