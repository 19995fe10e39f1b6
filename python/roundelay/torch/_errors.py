"""Errors as programs of the ecosystem look for them: by class and by words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch.distributed as dist

from .. import errors


class BackendError(errors.Error, dist.DistBackendError):
    """Something went wrong in an operation."""


class OperationTimeoutError(errors.OperationTimeoutError, dist.DistBackendError):
    """Another rank did not answer in time."""


class LostRankError(errors.LostRankError, dist.DistNetworkError):
    """Another rank is gone."""


class AbortedError(errors.AbortedError, dist.DistBackendError):
    """Another rank failed first, or a rank called ``abort``."""


class MismatchError(errors.MismatchError, dist.DistBackendError):
    """The ranks do not make the same calls."""


class StartError(errors.StartError, dist.DistBackendError):
    """The ranks could not come together."""


def missing(what: str, instead: str) -> NoReturn:
    """Raise ``NotImplementedError``, with what to do instead."""
    raise NotImplementedError(f"roundelay does not support {what}; {instead}")


_FACES: list[tuple[type[errors.Error], type[errors.Error], str]] = [
    (errors.OperationTimeoutError, OperationTimeoutError, "roundelay: Timed out waiting{time} for a peer: "),
    (errors.LostRankError, LostRankError, "roundelay: Connection closed by peer: "),
    (errors.AbortedError, AbortedError, "roundelay: The group was aborted: "),
    (errors.MismatchError, MismatchError, "roundelay: Collective mismatch across ranks: "),
    (errors.StartError, StartError, "roundelay: Could not form the group: "),
]


def described(calls: Sequence[tuple[Any, ...]]) -> str:
    """Return the first of several calls in words: what it is, and the elements of its first buffer."""
    if not calls:
        return ""
    collective, *sides = calls[0][:3]
    for side in sides:
        while side and not isinstance(side[0], int):
            side = side[0]
        if side:
            return f"{collective} of {side[1]} x {side[2]}"
    return str(collective)


def face(error: BaseException, timeout: float | None = None, own: str = "") -> BaseException:
    """Return an error of the native part as torch's class, with the words that programs look for first.

    That of a rank which stopped because another one failed has its ``own`` call too: if the ranks did not make the same
    call, the error has both then. Others begin with it unless they have the name of the operation, as where another
    rank was gone before. Errors of arguments (``UsageError``, ``UnsupportedError``, …) are returned as they are: nothing has moved.
    """
    if not isinstance(error, errors.Error) or isinstance(error, dist.DistError):
        return error
    time = "" if timeout is None else f" {round(timeout * 1000)}ms"
    for kind, made, words in _FACES:
        if isinstance(error, kind):
            if made is AbortedError and " stopped because rank " in str(error):
                # What a backend says whose connections break when another rank gives up.
                words += "Connection closed by peer: "
            if made is StartError and " waited " in str(error):
                # What a backend says whose connections were not made in time.
                words += "timeout after{time}: "
            return _copy(error, made, words.format(time=time), own)
    if isinstance(error, (errors.UsageError, errors.UnsupportedError, errors.SettingsError)):
        return error
    return _copy(error, BackendError, "", own)


def _copy(error: errors.Error, made: type[errors.Error], words: str, own: str) -> errors.Error:
    said = str(error)
    if own and made is AbortedError:
        said = f"{said}; this rank had called {own}"
    elif not any(name in said for name in own.partition(" ")[0].split("/")):
        said = f"{own}: {said}"
    copy = made(
        words + said,
        code=error.code,
        rank=error.rank,
        peer=error.peer,
        step=error.step,
        source=error.source,
    )
    copy.__cause__ = error
    return copy


def timed_out(what: str, seconds: float) -> OperationTimeoutError:
    """Return the error of a wait that has not ended in time."""
    return OperationTimeoutError(f"roundelay: Timed out waiting {round(seconds * 1000)}ms for {what}", code="RL0703")
