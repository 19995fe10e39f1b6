"""Operators, options and statuses, by the names that torchcomms has."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Any, ClassVar

from ..errors import SettingsError, UsageError

DEFAULT_TIMEOUT = timedelta(seconds=600)
"""The longest time without progress, unless ``new_comm`` or a call says another."""

_UNSET = timedelta(0)


class RedOpType(Enum):
    """The kinds of reductions."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    BAND = 4
    BOR = 5
    BXOR = 6
    PREMUL_SUM = 7
    AVG = 8


class ReduceOp:
    """The operator of a reduction: ``ReduceOp.SUM`` to ``ReduceOp.AVG``, or ``ReduceOp.PREMUL_SUM(factor)``."""

    SUM: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]

    __slots__ = ("_factor", "_type")

    def __init__(self, opType: RedOpType, factor: float | None = None) -> None:
        if (opType is RedOpType.PREMUL_SUM) != (factor is not None):
            raise UsageError("PREMUL_SUM needs a factor, and no other operator takes one: ReduceOp.PREMUL_SUM(0.5)")
        self._type = opType
        self._factor = factor

    @staticmethod
    def PREMUL_SUM(factor: Any) -> ReduceOp:
        """Return the sum of operands that are each multiplied by a number, or by a tensor of one element."""
        count = factor.numel() if hasattr(factor, "numel") else 1
        if count != 1:
            raise UsageError(f"the factor of PREMUL_SUM is a tensor of {count} elements: give a number, or one element")
        return ReduceOp(RedOpType.PREMUL_SUM, float(factor))

    @property
    def type(self) -> RedOpType:
        """The kind of the reduction."""
        return self._type

    @property
    def factor(self) -> float | None:
        """The factor of ``PREMUL_SUM``, else None."""
        return self._factor

    def __copy__(self) -> ReduceOp:
        return self

    def __deepcopy__(self, memo: object) -> ReduceOp:
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReduceOp):
            return NotImplemented
        return (self._type, self._factor) == (other._type, other._factor)

    def __hash__(self) -> int:
        return hash((self._type, self._factor))

    def __repr__(self) -> str:
        return f"ReduceOp.{self._type.name}" + ("" if self._factor is None else f"({self._factor:g})")


for _kind in RedOpType:
    if _kind is not RedOpType.PREMUL_SUM:
        setattr(ReduceOp, _kind.name, ReduceOp(_kind))


class WorkStatus(Enum):
    """The states of an operation."""

    NOT_STARTED = auto()
    INPROGRESS = auto()
    COMPLETED = auto()
    TIMEDOUT = auto()
    ERROR = auto()


class P2POpType(Enum):
    """The two kinds of messages."""

    SEND = auto()
    RECV = auto()


@dataclass
class P2POp:
    """A message of a batch: a tensor, and the rank at the other end."""

    type: P2POpType
    tensor: Any
    peer: int


@dataclass
class CommOptions:
    """What a communicator was made with."""

    abort_process_on_timeout_or_error: bool = True
    timeout: timedelta = DEFAULT_TIMEOUT
    is_high_priority_stream: bool = False
    store: Any = None
    enable_reconfigure: bool = False
    hints: dict[str, str] = field(default_factory=dict)
    name: str = ""


@dataclass
class CallOptions:
    """Hints of one call, and its longest time without progress: 0 stands for that of the communicator."""

    hints: dict[str, str] = field(default_factory=dict)
    timeout: timedelta = _UNSET


class SendOptions(CallOptions):
    """Options of ``send``."""


class RecvOptions(CallOptions):
    """Options of ``recv``."""


class BatchP2POptions(CallOptions):
    """Options of a batch."""


class BroadcastOptions(CallOptions):
    """Options of ``broadcast``."""


class AllReduceOptions(CallOptions):
    """Options of ``all_reduce``."""


class ReduceOptions(CallOptions):
    """Options of ``reduce``."""


class AllGatherOptions(CallOptions):
    """Options of ``all_gather`` and ``all_gather_v``."""


class AllGatherSingleOptions(CallOptions):
    """Options of ``all_gather_single``."""


class ReduceScatterOptions(CallOptions):
    """Options of ``reduce_scatter`` and ``reduce_scatter_v``."""


class ReduceScatterSingleOptions(CallOptions):
    """Options of ``reduce_scatter_single``."""


class AllToAllOptions(CallOptions):
    """Options of ``all_to_all``."""


class AllToAllSingleOptions(CallOptions):
    """Options of ``all_to_all_single``."""


class AllToAllvSingleOptions(CallOptions):
    """Options of ``all_to_all_v_single``."""


class BarrierOptions(CallOptions):
    """Options of ``barrier``."""


class ScatterOptions(CallOptions):
    """Options of ``scatter``."""


class GatherOptions(CallOptions):
    """Options of ``gather``."""


class GatherSingleOptions(CallOptions):
    """Options of ``gather_single``."""


def default_timeout() -> timedelta:
    """Return the timeout of a communicator without one: that of ``TORCHCOMM_TIMEOUT_SECONDS``, or 600 s.

    Raises ``SettingsError`` if the variable is no positive number.
    """
    said = os.environ.get("TORCHCOMM_TIMEOUT_SECONDS")
    if not said:
        return DEFAULT_TIMEOUT
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise SettingsError(
            f"TORCHCOMM_TIMEOUT_SECONDS is {said!r}: give the seconds without progress after which an operation fails, "
            "such as 600",
            code="RL0713",
        )
    return timedelta(seconds=seconds)


def checked_timeout(timeout: timedelta | None) -> timedelta:
    """Return a timeout; None is 0, "as the communicator has it". Raises ``UsageError`` if it is negative."""
    if timeout is None:
        return _UNSET
    if timeout < _UNSET:
        raise UsageError(f"the timeout is negative, {timeout.total_seconds():g} s: give a positive one, or none")
    return timeout
