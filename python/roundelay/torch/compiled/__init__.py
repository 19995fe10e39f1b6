"""The backend of ``torch.distributed`` in C++, which is compiled on request against the torch that is installed.

``roundelay.torch.Options(compiled=True)`` or ``ROUNDELAY_TORCH_COMPILED=1`` asks for it. The first process that does
compiles it, which takes about a minute with g++ and ninja; the result is kept in torch's folder of extensions.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ... import errors
from ..._ending import exception
from .._errors import face, timed_out
from .._hints import ACTIVE, active
from .._join import check_process
from .._options import hints_of
from .._record import kept
from .._register import COMPILED as VARIABLE

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"
"""What this backend and that of torchcomms have in common."""

_KINDS = (
    "other", "timeout", "lost_rank", "mismatch", "aborted", "memory", "cuda", "unsupported", "usage", "settings",
    "refused", "start", "window",
)  # fmt: skip
"""The kinds of errors of the C interface, by number."""

_PATIENCE = 600.0
"""The seconds that a process waits for another one's compiler."""

_TOLD = 20.0
"""The seconds between two words of a compiler that is at work."""

_lock = threading.Lock()
_module: Any = None


def wanted(options: object) -> bool:
    """Return True if the options of a group, or the environment where they say nothing, ask for this face.

    Raises ``ValueError`` if the variable is neither 0 nor 1.
    """
    asked = getattr(options, "compiled", None)
    if asked is not None:
        return bool(asked)
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"roundelay: {VARIABLE} is {value!r}; set it to 1, or to 0 for the backend in Python")
    return value == "1"


def check_tools() -> None:
    """Raise an error with the remedy if what compiles the backend is not there."""
    compiler = os.environ.get("CXX", "c++")
    instead = f"or leave compiled=True and {VARIABLE} out, which takes the backend in Python"
    if shutil.which(compiler.split()[0]) is None:
        raise errors.UnsupportedError(
            f"roundelay: the compiled backend needs a C++ compiler, but there is no {compiler}: install g++ (such as "
            f"`apt install g++`), or name another in CXX, {instead}",
            code="RL0712",
        )
    from torch.utils.cpp_extension import is_ninja_available

    if not is_ninja_available():
        # `pip install ninja` puts the program beside the interpreter, where it may not be searched.
        beside = Path(sys.executable).parent
        if (beside / "ninja").is_file():
            os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), str(beside)])
    if not is_ninja_available():
        raise errors.UnsupportedError(
            f"roundelay: the compiled backend needs ninja: `pip install ninja`, {instead}", code="RL0712"
        )


def module() -> Any:
    """Return the compiled module; compile it if this has not been done for this torch and these sources.

    Raises ``UnsupportedError`` where tools are missing, and ``RuntimeError`` with the compiler's words if it fails.
    """
    global _module
    with _lock:
        if _module is None:
            _module = _build()
        return _module


def calls(stacks: bool) -> list[tuple[Any, ...]]:
    """Return the latest calls of this face, the oldest first; none if it was not used."""
    return [] if _module is None else _module.calls(stacks)


def _build() -> Any:
    import torch
    from torch.utils import cpp_extension

    from ... import _native

    check_tools()
    sources = [path for folder in (HERE, NATIVE) for path in sorted(folder.glob("*")) if path.suffix in (".cpp", ".h")]
    text = b"".join(path.read_bytes() for path in sources) + _native.HEADER.encode()
    mark = hashlib.sha256(text + torch.__version__.encode()).hexdigest()[:12]
    name = f"roundelay_torch_{mark}"
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"{sys.implementation.cache_tag}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        # A process that was killed while it compiled leaves torch's lock, for which others would wait for ever.
        (folder / "lock").unlink(missing_ok=True)
        header = folder / "roundelay.h"
        if not header.exists() or header.read_text() != _native.HEADER:  # Written again, all would be compiled again.
            header.write_text(_native.HEADER)
        is_built = (folder / f"{name}.so").exists()
        with nullcontext() if is_built else _progress(folder, torch.__version__):
            built: Any = cpp_extension.load(
                name=name,
                sources=[str(HERE / "backend.cpp")],
                extra_include_paths=[str(folder)],
                extra_cflags=["-O2", "-g0"],
                extra_ldflags=["-ldl"],
                build_directory=str(folder),
                with_cuda=False,
            )
    built.load(
        _native.__file__,
        {
            "error": _error,
            "timed_out": timed_out,
            "active": ACTIVE,
            "hints": lambda: _text(active() or []),
            "group_hints": lambda options: _text(hints_of(options)),
            "monitor": _monitor,
            "stream": _stream,
            "kept": kept(),
            "on_failure": _on_failure,
            # A table of functions for other libraries; one of them knows current streams.
            "exchange": getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
        },
    )
    atexit.register(_end, built)
    return built


@contextmanager
def _progress(folder: Path, version: str) -> Iterator[None]:
    """Say that the compiler is at work, what for, and now and then for how long."""
    begun, ended = time.monotonic(), threading.Event()
    sys.stderr.write(
        f"roundelay: compiles its backend in C++ for torch {version}, about a minute, once: it is kept in {folder}\n"
    )

    def tell() -> None:
        while not ended.wait(_TOLD):
            sys.stderr.write(f"roundelay: has compiled for {time.monotonic() - begun:.0f} s\n")

    thread = threading.Thread(target=tell, name="roundelay-compiles", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock of the machine's processes, which the kernel drops with the process that holds it."""
    until = time.monotonic() + _PATIENCE
    with open(folder / "roundelay.lock", "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise errors.OperationTimeoutError(
                        f"roundelay: another process has compiled the backend in {folder} for {_PATIENCE:.0f} s: end "
                        "it, or name another folder in TORCH_EXTENSIONS_DIR",
                        code="RL0703",
                    ) from None
                time.sleep(0.05)
        yield


def _end(built: Any) -> None:
    try:
        built.end(exception() or "")
    except Exception as error:  # The program ends anyway.
        sys.stderr.write(f"roundelay: at exit: {error}\n")


def _error(kind: int, code: int, rank: int, peer: int, step: int, text: str, source: str, limit: float) -> Any:
    from ... import _native

    interrupt = _native.interrupted()
    if interrupt is not None:
        return interrupt

    def known(value: int) -> int | None:
        return None if value < 0 else value

    name = _KINDS[kind] if 0 <= kind < len(_KINDS) else "other"
    return face(errors._make(name, f"RL{code:04}", text, known(rank), known(peer), known(step), source or None), limit)


def _text(hints: list[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in hints)


def _monitor(store: Any, rank: int, size: int) -> Any:
    from .._barrier import Monitor

    return Monitor(store, rank, size).wait


def _on_failure() -> None:
    from .._flight import on_failure

    on_failure()


def _stream(index: int) -> int:
    from .._work import raw_stream

    return raw_stream(index)


def create(opts: Any, group_options: Any, name: str) -> Any:
    """Make the backend of a group, as torch asks for it by a name."""
    check_process()
    waits = bool(getattr(opts, "enable_reconfigure", False))
    ranks = list(opts.global_ranks_in_group) or list(range(opts.group_size))
    hints = _text(hints_of(group_options))
    seconds = max(opts.timeout.total_seconds(), 0.001)
    return module().join(opts.store, opts.group_rank, opts.group_size, seconds, hints, opts.group_id, ranks, name, waits)
