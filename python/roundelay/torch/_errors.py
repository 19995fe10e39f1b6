"""Errors as programs of the ecosystem look for them: by class and by words."""

from __future__ import annotations

import torch.distributed as dist

from .. import errors


class BackendError(errors.Error, dist.DistBackendError):
    """Something went wrong in an operation."""


class TimeoutError(errors.TimeoutError, dist.DistBackendError):
    """Another rank did not answer in time."""


class LostRankError(errors.LostRankError, dist.DistNetworkError):
    """Another rank is gone."""


class AbortedError(errors.AbortedError, dist.DistBackendError):
    """Another rank failed first, or a rank called ``abort``."""


class MismatchError(errors.MismatchError, dist.DistBackendError):
    """The ranks do not make the same calls."""


class StartError(errors.StartError, dist.DistBackendError):
    """The ranks could not come together."""


_FACES: list[tuple[type[errors.Error], type[errors.Error], str]] = [
    (errors.TimeoutError, TimeoutError, "roundelay: Timed out waiting{time} for a peer: "),
    (errors.LostRankError, LostRankError, "roundelay: Connection closed by peer: "),
    (errors.AbortedError, AbortedError, "roundelay: The group was aborted: "),
    (errors.MismatchError, MismatchError, "roundelay: Collective mismatch across ranks: "),
    (errors.StartError, StartError, "roundelay: Could not form the group: "),
]


def face(error: BaseException, timeout: float | None = None, operation: str = "") -> BaseException:
    """Return an error of the native part as torch's class, with the words that programs look for first.

    The name of the operation follows where the error does not have it, as when another rank was gone before. Errors of arguments (``UsageError``, ``UnsupportedError``, …) are returned as they are: nothing has moved.
    """
    if not isinstance(error, errors.Error) or isinstance(error, dist.DistError):
        return error
    time = "" if timeout is None else f" {round(timeout * 1000)}ms"
    for kind, made, words in _FACES:
        if isinstance(error, kind):
            return _copy(error, made, words.format(time=time), operation)
    if isinstance(error, (errors.UsageError, errors.UnsupportedError, errors.SettingsError)):
        return error
    return _copy(error, BackendError, "", operation)


def _copy(error: errors.Error, made: type[errors.Error], words: str, operation: str) -> errors.Error:
    said = str(error)
    copy = made(
        words + (said if operation in said else f"{operation}: {said}"),
        code=error.code,
        rank=error.rank,
        peer=error.peer,
        step=error.step,
        source=error.source,
    )
    copy.__cause__ = error
    return copy


def timed_out(what: str, seconds: float) -> TimeoutError:
    """Return the error of a wait that has not ended in time."""
    return TimeoutError(f"roundelay: Timed out waiting {round(seconds * 1000)}ms for {what}", code="RL0703")
