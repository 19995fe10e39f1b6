"""The page docs/python.md and the examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from ranks import LIMIT


def run(program: Path, folder: Path) -> str:
    done = subprocess.run([sys.executable, str(program)], cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_its_blocks() -> None:
    assert len(BLOCKS) == 9


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_each_block_of_the_page_runs_as_a_file(command: str, tmp_path: Path, block: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(BLOCKS[block], encoding="utf-8")
    promised = re.findall(r"print\(.*\)  # (.*)$", BLOCKS[block], re.MULTILINE)
    assert run(program, tmp_path).splitlines() == promised
    if "ring.html" in BLOCKS[block]:
        assert (tmp_path / "ring.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("01_all_reduce.py", "[12.0, 12.0, 12.0, 12.0]\n"),
        ("02_own_algorithm.py", "['proved', 'proved', 'proved', 'proved', 'proved', 'proved', 'proved']\n[10, 10, 10, 10]\n"),
    ],
)
def test_an_example_runs(command: str, tmp_path: Path, name: str, printed: str) -> None:
    assert run(ROOT / "examples" / "python" / name, tmp_path) == printed


def test_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="it is what checks types")
    package = ROOT / "python" / "roundelay"
    files = [str(path) for path in (*package.glob("*.py"), package / "_native.pyi") if "torch" not in path.name]
    examples = [str(path) for path in sorted((ROOT / "examples" / "python").glob("0*.py"))]
    for group in (files, examples[:1], examples[1:]):
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "--no-error-summary", *group]
        done = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True, timeout=LIMIT)
        # What needs torch is looked at beside torch, by tests/python.sh.
        beside_torch = ("roundelay/torch", "roundelay/bench/")
        ours = [line for line in done.stdout.splitlines() if not line.startswith(beside_torch)]
        assert not ours, "\n".join(ours)
