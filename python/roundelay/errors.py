"""The exceptions of roundelay.

Every exception has a stable ``code`` (``RL0703``, a page in ``docs/errors``) and, as far as they are known, the
``rank`` that reports, the ``peer`` that is to blame, the ``step`` of the algorithm, and the ``source``: the line of
the algorithm that was running.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from roundelay._phrases import in_python

__all__ = [
    "AbortedError",
    "CudaError",
    "Error",
    "LostRankError",
    "MismatchError",
    "OperationTimeoutError",
    "OutOfMemoryError",
    "RefusedError",
    "SettingsError",
    "StartError",
    "UnsupportedError",
    "UsageError",
    "WindowError",
]


class Error(RuntimeError):
    """Something went wrong in roundelay."""

    code: str
    """The stable code, as ``RL0703``."""
    rank: int | None
    """The rank that reports."""
    peer: int | None
    """The rank that is to blame, or that was waited for."""
    step: int | None
    """The step of the algorithm."""
    source: str | None
    """The line of the algorithm, as ``file:line:column``."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "RL0712",
        rank: int | None = None,
        peer: int | None = None,
        step: int | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.rank = rank
        self.peer = peer
        self.step = step
        self.source = source


class OperationTimeoutError(Error, builtins.TimeoutError):
    """Another rank did not answer in time."""


class LostRankError(Error, ConnectionError):
    """Another rank is gone."""


class AbortedError(Error):
    """Another rank failed first, or a rank called ``abort``; everybody stopped."""


class MismatchError(Error):
    """The ranks do not make the same calls, or the ends of a message do not fit each other."""


class OutOfMemoryError(Error):
    """Shared memory or device memory could not be had."""


class CudaError(Error):
    """CUDA cannot be used, or failed."""


class UnsupportedError(Error, NotImplementedError):
    """A valid call that this algorithm, device or build does not support. Nothing has moved."""


class UsageError(Error, ValueError):
    """The arguments of a call are wrong. Nothing has moved, and the communicator can be used further."""


class SettingsError(Error, ValueError):
    """A hint, the tuned table or the topology file is wrong."""


class RefusedError(Error, ValueError):
    """An algorithm is wrong, or does not allow these ranks; the message has the diagnostics."""


class StartError(Error):
    """The ranks could not come together."""


class WindowError(Error):
    """A window does not allow an access, or is over. Nothing has moved, and the communicator can be used further."""


_KINDS: dict[str, type[Error]] = {
    "aborted": AbortedError,
    "cuda": CudaError,
    "lost_rank": LostRankError,
    "memory": OutOfMemoryError,
    "mismatch": MismatchError,
    "refused": RefusedError,
    "settings": SettingsError,
    "start": StartError,
    "timeout": OperationTimeoutError,
    "unsupported": UnsupportedError,
    "usage": UsageError,
    "window": WindowError,
}


_OLD_NAMES: dict[str, type[Error]] = {"MemoryError": OutOfMemoryError, "TimeoutError": OperationTimeoutError}

if TYPE_CHECKING:
    MemoryError = OutOfMemoryError
    TimeoutError = OperationTimeoutError
else:

    def __getattr__(name: str) -> type[Error]:
        return _old_name(__name__, name)


def _old_name(module: str, name: str) -> type[Error]:
    """Return the exception that had this name of a builtin before; ``import *`` does not shadow the builtin."""
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _make(
    kind: str,
    code: str,
    message: str,
    rank: int | None,
    peer: int | None,
    step: int | None,
    source: str | None,
) -> Error:
    """Return the exception of an error of the native part."""
    error = _KINDS.get(kind, Error)
    message = in_python(message)
    return error(message, code=code, rank=rank, peer=peer, step=step, source=source)
