"""The build backend of `pip install`: maturin's, after the command line was built, which travels in the wheel.

`$ROUNDELAY_WHEEL_PROFILE` is cargo's profile, `wheel` by default, and `$ROUNDELAY_WHEEL_FEATURES` has features of this
package, as `rdma`, separated by commas; `rdma` and `experimental` are of the command line too. maturin takes what is in `roundelay.data`, which must
be there whatever it is asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import maturin
from maturin import (  # The hooks to which nothing is added.
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_HERE = Path(__file__).resolve().parent
_SCRIPTS = _HERE / "roundelay.data" / "scripts"
_SCRIPTS.mkdir(parents=True, exist_ok=True)


class _Terminal:
    """The terminal of the user, since pip shows nothing of a build before it has ended; nothing without one."""

    def __init__(self) -> None:
        try:
            self._file = open("/dev/tty", "w", encoding="utf-8")  # noqa: SIM115
        except OSError:
            self._file = None

    def say(self, text: str) -> None:
        sys.stderr.write(f"roundelay: {text}\n")
        if self._file is not None:
            self._file.write(f"\nroundelay: {text}")
            self._file.flush()

    def count(self, text: str) -> None:
        """Show how far the build is, on one line."""
        if self._file is not None:
            self._file.write(f"\r\x1b[Kroundelay: {text}")
            self._file.flush()


def _check_needs() -> None:
    """Raise ``SystemExit`` that names what is missing before the first minute is spent."""
    wanted = re.search(r'^rust-version = "(.*)"', (_HERE.parent / "Cargo.toml").read_text(), re.MULTILINE)
    least = wanted[1] if wanted else "1.88"
    compiler = shutil.which("rustc")
    if compiler is None or shutil.which("cargo") is None:
        raise SystemExit(
            f"roundelay is built with Rust {least} or later, and there is no `cargo` here: install it from "
            "https://rustup.rs, or install a wheel of roundelay, which needs no compiler"
        )
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is not None and (int(found[1]), int(found[2])) < tuple(map(int, least.split(".")[:2])):
        raise SystemExit(f"roundelay is built with Rust {least} or later, and this is {said.strip()}: `rustup update`")
    if shutil.which(os.environ.get("CC", "cc").split()[0]) is None:
        raise SystemExit("roundelay is linked by a C compiler, and there is no `cc` here: `apt install gcc`, or set CC")


def _run(cargo: list[str], terminal: _Terminal) -> None:
    """Run cargo, and show what it has compiled."""
    begun = time.monotonic()
    with subprocess.Popen(cargo, cwd=_HERE.parent, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        compiled = 0
        for line in process.stderr:
            sys.stderr.write(line)
            if line.lstrip().startswith("Compiling"):
                compiled += 1
                name = line.split()[1]
                terminal.count(f"{compiled} packages, {time.monotonic() - begun:.0f} s: {name}")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, cargo)


def _with_command(build: Any, *arguments: Any) -> str:
    _check_needs()
    terminal = _Terminal()
    profile = os.environ.get("ROUNDELAY_WHEEL_PROFILE", "wheel")
    features = [name for name in os.environ.get("ROUNDELAY_WHEEL_FEATURES", "").split(",") if name]
    cargo = ["cargo", "build", "--locked", "--profile", profile]
    if "shared" in features:
        # Of the workspace: by `--package` features would differ, and all that tests have built would be built once more.
        cargo += ["--workspace", "--bin", "roundelay"]
    else:
        # Both at once, with features by which maturin finds all of it built.
        features.append("command")
        cargo += ["--package", "roundelay-cli", "--package", "roundelay-python"]
    cargo += ["--features", ",".join(f"roundelay-python/{name}" for name in features)]
    for name in ("rdma", "experimental"):
        if name in features:
            cargo += ["--features", f"roundelay-cli/{name}"]
    terminal.say("compiles about 100 packages of Rust, which takes some three minutes on two cores")
    _run(cargo, terminal)
    terminal.count("packs the wheel")
    built = Path(os.environ.get("CARGO_TARGET_DIR") or _HERE.parent / "target")
    shutil.copy2(built / ("debug" if profile == "dev" else profile) / "roundelay", _SCRIPTS)
    if shutil.which("strip"):
        subprocess.run(["strip", _SCRIPTS / "roundelay"], check=True)
    os.environ["MATURIN_PEP517_ARGS"] = f"--locked --profile {profile} --features={','.join(features)}"
    return str(build(*arguments))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build the wheel; return its name."""
    return _with_command(maturin.build_wheel, wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build the wheel of an editable installation; return its name."""
    return _with_command(maturin.build_editable, wheel_directory, config_settings, metadata_directory)
