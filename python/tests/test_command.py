"""`python -m roundelay`: the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roundelay import __version__


def run(*arguments: str, **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "roundelay", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_it_is_the_program(command: str) -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert __version__ in done.stdout
    done = run("check", "all_reduce.ring", "-n", "2..4", "--json")
    assert done.stdout.count('"proved"') == 3
    assert run("check", "all_reduce.no_such").returncode != 0


def test_it_says_where_it_looked(tmp_path: Path) -> None:
    missing = str(tmp_path / "roundelay")
    done = run("--version", ROUNDELAY_COMMAND=missing)
    assert done.returncode == 1
    assert "the program `roundelay` is not installed" in done.stderr and missing in done.stderr
    assert "cargo install --path cli" in done.stderr


def test_it_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    from roundelay import _command

    program = tmp_path / "roundelay"
    program.write_text("#!/bin/sh\necho found $*\n")
    program.chmod(0o755)
    monkeypatch.delenv("ROUNDELAY_COMMAND", raising=False)
    monkeypatch.setattr(_command, "__file__", str(tmp_path / "package" / "_command.py"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "scripts"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert _command.find() == str(program)
    # Beside the interpreter's scripts, and in the package, it goes before.
    for folder in ("scripts", "package/bin"):
        place = tmp_path / folder / "roundelay"
        place.parent.mkdir(parents=True)
        shutil.copy(program, place)
        assert _command.find() == str(place)
