"""The build backend of `pip install`: maturin's, after the command line was built, which travels in the wheel.

`$ROUNDELAY_WHEEL_PROFILE` is cargo's profile, `release` by default, and `$ROUNDELAY_WHEEL_FEATURES` has features of this
package, as `rdma`, separated by commas; `rdma` is of the command line too. maturin takes what is in `roundelay.data`, which must
be there whatever it is asked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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


def _with_command(build: Any, *arguments: Any) -> str:
    profile = os.environ.get("ROUNDELAY_WHEEL_PROFILE", "release")
    features = os.environ.get("ROUNDELAY_WHEEL_FEATURES", "")
    # Of the workspace: by `--package` features would differ, and all that tests have built would be built once more.
    cargo = ["cargo", "build", "--locked", "--workspace", "--bin", "roundelay", "--profile", profile]
    cargo += ["--features", ",".join(f"roundelay-python/{name}" for name in features.split(",") if name)]
    if "rdma" in features.split(","):
        cargo += ["--features", "roundelay-cli/rdma"]
    subprocess.run(cargo, cwd=_HERE.parent, check=True)
    built = Path(os.environ.get("CARGO_TARGET_DIR") or _HERE.parent / "target")
    shutil.copy2(built / ("debug" if profile == "dev" else profile) / "roundelay", _SCRIPTS)
    if shutil.which("strip"):
        subprocess.run(["strip", _SCRIPTS / "roundelay"], check=True)
    os.environ["MATURIN_PEP517_ARGS"] = f"--locked --profile {profile} --features={features}"
    return str(build(*arguments))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build the wheel; return its name."""
    return _with_command(maturin.build_wheel, wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build the wheel of an editable installation; return its name."""
    return _with_command(maturin.build_editable, wheel_directory, config_settings, metadata_directory)
