"""What a call may be given beside its buffers."""

from __future__ import annotations

import datetime
import math
import operator
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from roundelay._dtypes import DType
from roundelay.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from roundelay._native import Pairs

__all__ = [
    "CallOptions",
    "Hints",
    "Op",
    "Options",
    "PremulSum",
    "RedOp",
    "pairs",
    "premul_sum",
    "reduction",
    "seconds",
    "stream_of",
    "whole",
]

RedOp: TypeAlias = Literal["sum", "prod", "min", "max", "avg", "and", "or", "xor"]
"""The operators by their names."""


@dataclass(frozen=True, slots=True)
class PremulSum:
    """The sum of elements that every rank multiplies by ``factor`` before."""

    factor: float


def premul_sum(factor: float) -> PremulSum:
    """Return the operator that sums elements multiplied by ``factor``, which may differ between ranks."""
    return PremulSum(float(factor))


Op: TypeAlias = "RedOp | PremulSum"
"""An operator: a name, or ``premul_sum(factor)``."""

Hints: TypeAlias = "Mapping[str, object] | str"
"""Hints: ``{"algorithm": "ring"}``, or ``"algorithm=ring,timeout=5s"``."""


class CallOptions(TypedDict, total=False):
    """Keywords that operations take wherever they run."""

    hints: Hints
    """Hints for this operation, which go before those of the communicator (docs/hints.md)."""
    timeout: float | datetime.timedelta
    """The longest time without progress, in seconds."""
    stream: Any
    """For memory of a GPU: the CUDA stream, as an address, or as torch or cupy has it; the current one by default."""


class Options(CallOptions, total=False):
    """Keywords that every operation takes."""

    async_op: bool
    """True: start the operation in the background and return a ``Work``."""


OPERATORS = frozenset({"sum", "prod", "min", "max", "avg", "and", "or", "xor"})


def reduction(op: Op, dtype: DType) -> tuple[str, float]:
    """Return the name of an operator and its factor."""
    factor = 1.0
    if isinstance(op, PremulSum):
        name, factor = "premul_sum", op.factor
    elif isinstance(op, str) and op in OPERATORS:
        name = op
    else:
        names = ", ".join(sorted(OPERATORS))
        raise UsageError(f"`op` is {op!r}: it is one of {names}, or roundelay.premul_sum(factor)")
    if dtype.ops is not None and name not in dtype.ops:
        known = f"{dtype.name} has {', '.join(sorted(dtype.ops))}" if dtype.ops else f"{dtype.name} can only be copied"
        raise UnsupportedError(f"{name} of {dtype.name}: {known}; convert it first", code="RL0706")
    return name, factor


def pairs(hints: Hints) -> Pairs:
    """Return hints as keys and values."""
    if isinstance(hints, str):
        found: list[tuple[str, str]] = []
        for part in hints.split(","):
            key, equals, value = part.partition("=")
            if equals:
                found.append((key.strip(), value.strip()))
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]},{part.strip()}")
            elif part.strip():
                raise UsageError(f"the hint `{part}` has no value: write key=value")
        return found
    return [(str(key), _text(value)) for key, value in hints.items()]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, datetime.timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    return str(value)


def seconds(timeout: float | datetime.timedelta, name: str = "timeout") -> float:
    """Return a time in seconds. Raises ``UsageError`` that names the argument if it is none."""
    if isinstance(timeout, datetime.timedelta):
        found = timeout.total_seconds()
    else:
        try:
            found = math.nan if isinstance(timeout, str) else float(timeout)
        except (TypeError, ValueError):
            found = math.nan
    if not found >= 0:
        raise UsageError(f"`{name}` is {timeout!r}: give seconds, or a timedelta, that are not negative")
    return found


def whole(value: object, name: str, wanted: str, least: int = 0, most: int | None = None) -> int:
    """Return a whole number. Raises ``UsageError`` that names the argument, and says what is ``wanted``, if it is none."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        raise UsageError(f"`{name}` is {value!r}: {wanted}")
    return number


# The stream that CUDA calls 0 under the name by which it can be passed on.
_LEGACY_STREAM = 1


def stream_of(stream: Any, data: object) -> int:
    """Return the address of a stream, or of the one in which the owner of ``data`` works now."""
    if stream is None:
        package = type(data).__module__.split(".")[0]
        if package == "torch":
            stream = sys.modules["torch"].cuda.current_stream(data.device)  # type: ignore[attr-defined]
        elif package == "cupy":
            stream = sys.modules["cupy"].cuda.get_current_stream()
        else:
            raise UsageError(
                f"`stream` is not given, and a {type(data).__name__} does not say in which CUDA stream it is used: "
                "pass stream=…",
            )
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            stream = getattr(stream, attribute)
            break
    return int(stream) or _LEGACY_STREAM
