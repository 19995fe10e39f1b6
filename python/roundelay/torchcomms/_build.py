"""``python -m roundelay torchcomms build``: compiles the backend of torchcomms against what the user has installed."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .. import _native
from ..errors import StartError, UsageError

_HERE = Path(__file__).resolve().parent
_HEADER = "comms/torchcomms/TorchCommBackend.hpp"
_USAGE = """usage: python -m roundelay torchcomms build [--check]

Compiles the backend `roundelay` of torchcomms, and puts it where torchcomms.new_comm("roundelay", ...) finds it.
--check only compiles, and needs no installed torchcomms.

TORCHCOMMS_INCLUDE  a checkout of torchcomms, of the version that is installed (required)
CXX                 the compiler (g++)
CXXFLAGS            more flags, as the folders of glog and fmt where they are not the system's: -I...
"""


def native() -> str:
    """Return the path of the native module."""
    spec = importlib.util.find_spec("roundelay._native")
    assert spec is not None and spec.origin is not None
    return spec.origin


def target() -> Path:
    """Return the path of the backend for the installed torch and this version of the package."""
    import torch

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = re.sub(r"[^\w.+-]", "_", torch.__version__)
    return cache / "roundelay" / "torchcomms" / f"roundelay{_native.__version__}-torch{version}-{platform.machine()}.so"


def headers() -> Path:
    """Return the checkout with torchcomms' headers. Raises ``StartError`` if there is none."""
    given = os.environ.get("TORCHCOMMS_INCLUDE")
    if not given:
        raise StartError(
            "TORCHCOMMS_INCLUDE is not set: torchcomms is installed without its headers, so set it to a checkout of the "
            "same version (git clone --branch v… https://github.com/meta-pytorch/torchcomms)",
            code="RL0709",
        )
    if not (Path(given) / _HEADER).is_file():
        raise StartError(f"TORCHCOMMS_INCLUDE is {given}, where there is no {_HEADER}", code="RL0709")
    return Path(given).resolve()


def library() -> Path:
    """Return the installed torchcomms' library. Raises ``StartError`` if there is none."""
    spec = importlib.util.find_spec("torchcomms")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        found = Path(folder) / "libtorchcomms.so"
        if found.is_file():
            return found.resolve()
    where = "torchcomms is not installed here" if spec is None else f"{spec.origin} has no libtorchcomms.so"
    raise StartError(f"{where}: the backend is linked against it; `build --check` only compiles", code="RL0709")


def compiler() -> list[str]:
    """Return the compiler's command. Raises ``StartError`` if it is not there."""
    command = shlex.split(os.environ.get("CXX") or "g++")
    if not command or shutil.which(command[0]) is None:
        raise StartError(
            f"the compiler {' '.join(command)!r} is not there: install g++ (C++20, version 11 or newer), or set CXX",
            code="RL0709",
        )
    return command


def build(check: bool = False) -> Path | None:
    """Compile the backend; return its path, or None where it was only checked.

    Raises ``StartError`` with what is missing, or with what the compiler says.
    """
    include, command = headers(), compiler()
    linked = None if check else library()
    try:
        import torch
        from torch.utils.cpp_extension import include_paths
    except ImportError as error:
        raise StartError(f"torch cannot be imported: {error}", code="RL0709") from error
    libraries = Path(torch.__file__).parent / "lib"
    output = target()
    made = output.with_suffix(f".{os.getpid()}.tmp")
    command += ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-DFMT_HEADER_ONLY"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    command += [f"-I{include}"]
    for folder in include_paths():
        command += ["-isystem", folder]
    command += shlex.split(os.environ.get("CXXFLAGS", ""))
    command += [str(_HERE / "shim.cpp")]
    if linked is None:
        command += ["-fsyntax-only"]
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        command += ["-shared", "-o", str(made), str(linked), f"-Wl,-rpath,{linked.parent}", f"-L{libraries}"]
        command += ["-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}", "-ldl"]
    try:
        with tempfile.TemporaryDirectory() as own:
            (Path(own) / "roundelay.h").write_text(_native.HEADER)
            done = subprocess.run([*command, f"-I{own}"], capture_output=True, text=True)
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line]
            raise StartError(
                f"the backend does not compile against torchcomms of {include} and torch {torch.__version__}:\n"
                + "\n".join(said[:10] or done.stderr.splitlines()[-10:])
                + "\nIs the checkout of the installed version? Headers of glog and fmt are needed too (CXXFLAGS=-I…).",
                code="RL0709",
            )
        if linked is None:
            return None
        os.replace(made, output)
        return output
    finally:
        made.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    if list(arguments) not in (["build"], ["build", "--check"]):
        print(_USAGE, end="", file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        path = build(check="--check" in arguments)
    except (StartError, UsageError) as error:
        print(f"error[{error.code}]: {error}", file=sys.stderr)
        return 1
    print("compiles" if path is None else f"built {path}")
    return 0
