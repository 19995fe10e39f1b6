"""The notebooks of examples/python run from their first cell to the last, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.ipynb"))

# Cells as a kernel runs them: one namespace, their text known to `inspect`, the last expression shown.
CELLS = """
import ast, json, linecache, sys

space = sys.modules["__main__"].__dict__
notebook = json.load(open(sys.argv[1], encoding="utf-8"))
for index, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
    name, text = f"<cell {index}>", "".join(cell["source"])
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), name, "eval"), space)
        if shown is not None:
            page = shown._repr_html_() if hasattr(shown, "_repr_html_") else ""
            print(f"shown: {shown!r} {page[:7]} {len(page)}")
"""


def executed(path: Path, folder: Path) -> str:
    """Return what the cells print and show."""
    done = subprocess.run(
        [sys.executable, "-c", CELLS, str(path)], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_notebook_writes_proves_draws_and_installs(command: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the notebook's arrays are numpy's")
    said = executed(NOTEBOOKS[0], tmp_path)
    assert "<roundelay.Algorithm: all_reduce.ring of " in said
    for ranks in range(2, 6):
        assert f"{ranks} proved {2 * (ranks - 1)} rounds" in said
    assert "error[RL0501]: on 4 ranks" in said and "--> <cell 3>:6:" in said
    assert "shown: <roundelay.Drawing: " in said and "<iframe" in said
    assert said.splitlines()[-1] == "[10.0, 10.0, 10.0, 10.0]"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 3
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
