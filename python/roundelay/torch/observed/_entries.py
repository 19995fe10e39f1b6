"""The entry of a call: what a rank keeps of it while it runs, and what is computed from that later.

An entry is a list, since a list is made in a fifth of the time of an object. It keeps sizes and types, and no tensor.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import Any

import torch

from ..._dtypes import NAMES
from .._memory import _OPS

Entry = list[Any]

NUMBER, NAME, SAMPLE, DTYPE, OPTIONS, BEGAN, ENDED, WORK, ERROR, TRACK, STACK = range(11)
"""Places in an entry: number in its track; name; sample of its tensors; type; options, or a description once it was
made; nanoseconds of the monotonic clock at its begin; whether it has ended; work; error; track; stack and thread."""

WORKS: dict[int, Entry] = {}
"""The calls that have not ended and that no thread waits for, by the ``id`` of their works, which the entries keep."""

LOCAL_SECONDS = 0.2
"""The time within which a call raises that has not begun."""

SAMPLED = 8
"""Tensors of a list whose sizes are kept."""

TensorSize = tuple[int, torch.dtype]
"""Elements and type of a tensor."""

TensorSizes = tuple[list[TensorSize], int]
"""Sizes of the first tensors of a list, and the number of all."""

NO_TENSORS: TensorSizes = ([], 0)

_ROOTED = {"broadcast": "from", "reduce": "to", "gather": "to", "gather_single": "to", "scatter": "from"}
"""Operations with a root, and the word before it."""

_UNEVEN = {"all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v"}
"""Operations on a list with a tensor for each rank, whose sizes may differ."""

_TYPES = {getattr(torch, name): known for name, known in NAMES.items() if hasattr(torch, name)}


def type_name(dtype: Any) -> str:
    """Return the name of a type in messages: that of the runtime where it is one of its types, else torch's."""
    known = _TYPES.get(dtype)
    return known.native if known is not None and known.ops is None else str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class CallDescription:
    """A call in words, and what of it has to be equal on all ranks."""

    text: str
    """The call in words, as ``all_reduce of 4 x f32 with sum``."""
    digest: int
    """A digest of what has to be equal on all ranks: 32 bits."""
    elements: int
    """Elements of a rank's part."""
    dtype: str
    op: str
    """The operator; empty if there is none."""
    root: int
    """The root; -1 if there is none."""
    inputs: list[tuple[int, str]]
    """Elements and torch's type of each input that was kept."""
    outputs: list[tuple[int, str]]
    splits: tuple[list[int], list[int]] | None = None
    """Of an exchange of unequal parts: the elements for each rank, and from each rank."""


def sizes(tensors: Any) -> TensorSizes:
    """Return the sizes of an argument, a tensor or lists of some."""
    if isinstance(tensors, torch.Tensor):
        return [(tensors.numel(), tensors.dtype)], 1
    found: list[TensorSize] = []
    count = 0
    for each in tensors or ():
        if each is not None:
            inner, several = sizes(each)
            found += inner[: SAMPLED - len(found)]
            count += several
    return found, count


def _whole(name: str, taken: Any, dtype: Any, size: int) -> tuple[TensorSizes, TensorSizes, Any]:
    """Return the inputs, the outputs and the splits of a sample.

    One of a single tensor is its elements beside the type, one of two the size of the input and that of the output.
    """
    if isinstance(taken, int):
        one: TensorSizes = ([(taken, dtype)], 1)
        whole: TensorSizes = ([(taken * size, dtype)], 1)
        if name == "all_gather_single":
            return one, whole, None
        return (whole, one, None) if name == "reduce_scatter_single" else (one, NO_TENSORS, None)
    if len(taken) == 4:
        return ([taken[:2]], 1), ([taken[2:]], 1), None
    inputs, outputs, splits = taken
    return inputs, outputs, splits


def operator(options: Any) -> str:
    """Return the name of the operator in options, or of one that was passed in their place; empty if there is none."""
    op = getattr(options, "reduceOp", options)
    if op is None or isinstance(op, int):
        return ""
    kind = getattr(op, "op", getattr(op, "type", op))
    name = _OPS.get(getattr(kind, "value", -1)) if not hasattr(op, "type") else None
    if name is None:
        said = str(getattr(kind, "name", "")).lower()
        name = {"product": "prod", "band": "and", "bor": "or", "bxor": "xor"}.get(said, said)
    factor = getattr(op, "factor", None) if name == "premul_sum" else None
    return f"{name}({factor})" if isinstance(factor, float) else name


def _root(name: str, options: Any) -> int:
    if name not in _ROOTED:
        return -1
    root = getattr(options, "rootRank", options)
    return root if isinstance(root, int) else 0


_described: dict[Any, CallDescription] = {}
"""Descriptions by what they are made of: calls are alike."""


def describe(entry: Entry) -> CallDescription:
    """Return the description of a call, which is kept in the place of its options."""
    given = entry[OPTIONS]
    if type(given) is CallDescription:
        return given
    name, size = entry[NAME], entry[TRACK].size
    inputs, outputs, splits = _whole(name, entry[SAMPLE], entry[DTYPE], size)
    op, root = operator(given) if "reduce" in name else "", _root(name, given)
    if name in ("send", "recv"):
        root = given if isinstance(given, int) else -1
    key = (name, _frozen(inputs), _frozen(outputs), str(splits), op, root)
    found = _described.get(key)
    if found is None:
        if len(_described) > 4096:
            _described.clear()
        found = _described[key] = _make(name, inputs, outputs, splits, op, root)
    entry[OPTIONS] = found
    return found


def _frozen(side: TensorSizes) -> Any:
    return tuple(side[0]), side[1]


def _counts(side: TensorSizes) -> list[int]:
    return [count for count, _ in side[0]]


def _parts(rows: list[int], shape: Any) -> list[int]:
    """Return the elements of parts of a tensor of a shape, which are given in rows."""
    row = shape.numel() // shape[0] if len(shape) and shape[0] else 0
    return [number * row for number in rows]


def _make(name: str, inputs: Any, outputs: Any, splits: Any, op: str, root: int) -> CallDescription:
    into, out = _counts(inputs), _counts(outputs)
    dtypes = [dtype for _, dtype in (*inputs[0], *outputs[0])]
    dtype = type_name(dtypes[0]) if dtypes else ""
    parts = splits
    # Own: what has the same size on all ranks. Listed: a list of sizes that all ranks have.
    own, listed = (out, into) if name.startswith("reduce_scatter") or name == "scatter" else (into or out, out)
    equal: Any = own
    if name in _UNEVEN and len(set(listed)) > 1:
        equal = own = listed
    if name == "all_to_all":
        parts = (into, out)
    elif parts is not None:
        parts = (_parts(parts[0], parts[2]), _parts(parts[1], parts[3]))
    if parts is not None:
        equal = "parts"
    elements = sum(own)
    has_root = name in _ROOTED
    signature = (name, equal, str(dtypes[0]) if dtypes else "", op, root if has_root else -1)
    text = f"{name} of {elements} x {dtype}" if dtype else name
    if op:
        text += f" with {op}"
    if has_root:
        text += f" {_ROOTED[name]} rank {root}"
    if name in ("send", "recv"):
        text += f" {'to' if name == 'send' else 'from'} {'any rank' if root < 0 else f'rank {root}'}"

    def side(given: Any) -> list[tuple[int, str]]:
        return [(count, str(dtype).removeprefix("torch.")) for count, dtype in given[0]]

    digest = zlib.crc32(repr(signature).encode())
    return CallDescription(text, digest, elements, dtype, op, root, side(inputs), side(outputs), parts)


def age(entry: Entry, now: int | None = None) -> float:
    """Return the seconds since the begin of a call."""
    begun: int = entry[BEGAN]
    return max(0, (time.monotonic_ns() if now is None else now) - begun) / 1e9
