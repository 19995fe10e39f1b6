"""The programs for machines with several GPUs, tried where there is none: beside Gloo, on CPU tensors."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
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
    cases = [row["case"] for row in found["rows"]["windows"] if "case" in row]
    assert cases == ["puts", "words", "refused", "graphs", "mixed", "late"]


def module(name: str) -> Any:
    """Return a module of the programs."""
    spec = importlib.util.spec_from_file_location(f"torch_gpu_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made: Any = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(HERE))
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(HERE))
    return made


def test_what_differs_is_seen() -> None:
    report = module("report")
    right = {"result": [1.0, 2.0], "error": None}
    assert report.compared(right, right) == "same"
    for wrong in ([1.0, 2.1], [1.0, float("nan")], [1.0]):
        assert report.compared({"result": wrong, "error": None}, right).startswith("WRONG")
    assert report.compared({"result": [], "error": "it broke"}, right) == "FAILED: it broke"
    assert report.compared(None, right) == "NOT RUN"


class Rows:
    """What a run of `main.py` has found, as its report reads it."""

    reference = "gloo"

    def __init__(self, folder: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
        self.folder, self._rows = folder, rows

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self._rows.get(name, [])


def test_lack_of_time_is_not_counted_as_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = module("report")
    cases = [{"case": name, "result": [1.0], "error": None} for name in ("sums", "copies")]
    # The face had time for the first case only, and a face after it for none.
    run = Rows(tmp_path, {"right-gloo": cases, "right-python": cases[:1]})
    ends = {"right-gloo": "done", "right-python": "no time left: it had 12 s of 110", "right-compiled": "no time left"}
    assert report.write(run, ["python", "compiled"], ends) == 3
    said = capsys.readouterr().out
    assert "0 results differ, 0 jobs failed\nno time left for right-python, right-compiled\n" in said
    assert "python same; compiled no time left" in said and "python no time left; compiled no time left" in said
    # A case that is missing from a job that ended is a fault.
    ends = dict.fromkeys(ends, "done")
    assert report.write(run, ["python"], ends) == 3
    assert "python NOT RUN" in (said := capsys.readouterr().out) and "1 results differ, 0 jobs failed\n" in said


def test_a_job_that_its_time_ends_has_no_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forever.py").write_text("import time\n\n\ndef main(rank):\n    time.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", search_path(str(tmp_path)))
    monkeypatch.setenv("ROUNDELAY_GPU_FACES", "")
    program = module("main")
    run = program.Run(argparse.Namespace(folder=str(tmp_path / "results"), ranks=2, minutes=1.0, device="cpu"))
    # The job may take 11 s in both cases. In the first that is all that it ever has, and it hangs.
    for whole, begins in ((11.0, "rank "), (110.0, "no time left: it had 1")):
        run.until = time.monotonic() + (60.0 if whole == 11.0 else 11.0)
        assert run.job("forever", "forever", whole, "gloo").startswith(begins)
    run.until = time.monotonic() + 9.0
    assert run.job("forever", "forever", 110.0, "gloo") == "no time left"


@pytest.mark.skipif(os.environ.get("ROUNDELAY_CI") != "full", reason="two trainings of torchtitan: ROUNDELAY_CI=full")
@pytest.mark.skipif(importlib.util.find_spec("torchtitan") is None, reason="pip install --no-deps torchtitan==0.2.2")
@pytest.mark.timeout(320)
def test_torchtitan_trains_as_with_gloo() -> None:
    command = [sys.executable, str(HERE / "titan.py"), "--device", "cpu", "--layouts", "fsdp,tp", "--steps", "3"]
    environment = dict(os.environ, PYTHONPATH=search_path())
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("same  last losses") == 2


def test_other_losses_of_torchtitan_are_seen() -> None:
    compare = module("titan").compare
    one = {"losses": [8.0, 7.5], "norms": [1.0, 2.0]}
    assert compare(one, {"losses": [8.0, 7.500001], "norms": [1.0, 2.0]}, 1e-5) == ""
    assert compare(one, {"losses": [8.0, 7.501], "norms": [1.0, 2.0]}, 1e-5) == "losses of step 2: 7.5 and 7.501"
    assert compare(one, {"losses": [8.0, 7.5], "norms": [1.0, 2.1]}, 1e-5).startswith("norms of step 2")
    assert compare(one, {"losses": [8.0], "norms": [1.0]}, 1e-5) == "2 and 1 losses"
    assert compare(one, {"error": "it broke"}, 1e-5) == "it broke"
    still = {"losses": [8.0, 8.0], "norms": [1.0, 1.0]}
    assert compare(still, still, 1e-5).startswith("nothing was learned")


def test_a_triton_kernel_over_mapped_memory_passes_every_check() -> None:
    pytest.importorskip("triton", reason="the override is a kernel of Triton")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "symmetric.py"), "--device", "cpu"]
    environment = dict(os.environ, PYTHONPATH=search_path(), OMP_NUM_THREADS="1")
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("102 results checked, 4 sums by the kernel") == 2, ended.stdout
    assert ended.stdout.count("all_reduce in Triton: right") == 2, ended.stdout


def test_triton_compiles_a_call_of_a_schedule(command: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the caller is a kernel of Triton")
    if not (os.environ.get("CLANG") or shutil.which("clang")):
        pytest.skip("there is no clang, which makes bitcode of the header")
    program = [sys.executable, str(HERE / "triton_function.py"), "--keep", str(tmp_path)]
    environment = dict(os.environ, ROUNDELAY_COMMAND=command, TRITON_CACHE_DIR=str(tmp_path / "cache"))
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0 and ended.stdout.startswith("a cubin of"), ended.stdout + ended.stderr
