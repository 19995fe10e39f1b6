"""The types of elements, under the names that arrays and tensors give them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DLPACK", "FORMATS", "NAMES", "DType", "unknown"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """How elements of one type are passed on: as ``scale`` elements of the type ``native``."""

    name: str
    """The name that messages give, as ``float32``; numpy's and torch's."""
    native: str
    """The name of the type that moves, as ``f32``."""
    size: int
    """Bytes of an element."""
    scale: int = 1
    """Elements of ``native`` in one of this type."""
    ops: frozenset[str] | None = None
    """The operators that are the same on elements of ``native``; None: all."""
    dlpack: int | None = None
    """DLPack's code of the type; None if it has none."""
    formats: tuple[str, ...] = ()
    """The characters of the buffer protocol."""
    wider: str | None = None
    """The name of the type in which PyTorch's tensors of this one are reduced; None: as they are, or not at all."""


_SUMS = frozenset({"sum", "avg", "premul_sum"})
_COPIES: frozenset[str] = frozenset()

_ALL = [
    DType("float16", "f16", 2, dlpack=2, formats=("e",)),
    DType("bfloat16", "bf16", 2, dlpack=4),
    DType("float32", "f32", 4, dlpack=2, formats=("f",)),
    DType("float64", "f64", 8, dlpack=2, formats=("d",)),
    DType("int8", "i8", 1, dlpack=0, formats=("b",)),
    DType("uint8", "u8", 1, dlpack=1, formats=("B", "c")),
    DType("int32", "i32", 4, dlpack=0, formats=("i", "l")),
    DType("uint32", "u32", 4, dlpack=1, formats=("I", "L")),
    DType("int64", "i64", 8, dlpack=0, formats=("l", "q", "n")),
    DType("uint64", "u64", 8, dlpack=1, formats=("L", "Q", "N")),
    DType("bool", "bool", 1, dlpack=6, formats=("?",)),
    DType("complex32", "f16", 4, 2, _SUMS, dlpack=5),
    DType("complex64", "f32", 8, 2, _SUMS, dlpack=5, formats=("Zf",)),
    DType("complex128", "f64", 16, 2, _SUMS, dlpack=5, formats=("Zd",)),
    DType("int16", "u8", 2, 2, _COPIES, dlpack=0, formats=("h",), wider="int32"),
    DType("uint16", "u8", 2, 2, _COPIES, dlpack=1, formats=("H",), wider="int32"),
    DType("float8_e4m3", "u8", 1, 1, _COPIES, dlpack=8),
    DType("float8_e4m3fn", "u8", 1, 1, _COPIES, dlpack=10),
    DType("float8_e4m3fnuz", "u8", 1, 1, _COPIES, dlpack=11),
    DType("float8_e4m3b11fnuz", "u8", 1, 1, _COPIES, dlpack=9),
    DType("float8_e3m4", "u8", 1, 1, _COPIES, dlpack=7),
    DType("float8_e5m2", "u8", 1, 1, _COPIES, dlpack=12),
    DType("float8_e5m2fnuz", "u8", 1, 1, _COPIES, dlpack=13),
    DType("float8_e8m0fnu", "u8", 1, 1, _COPIES, dlpack=14),
]

NAMES: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}
"""The types by their names."""

DLPACK: dict[tuple[int, int], DType] = {
    (dtype.dlpack, 8 * dtype.size): dtype for dtype in _ALL if dtype.dlpack is not None
}
"""The types by DLPack's code, and the bits of an element."""

FORMATS: dict[tuple[str, int], DType] = {
    (character, dtype.size): dtype for dtype in _ALL for character in dtype.formats
}
"""The types by the characters of the buffer protocol, and the bytes of an element."""


def unknown(name: str) -> str:
    """Return what is said of a type that cannot be passed on."""
    return (
        f"its type is {name}, which no call takes: convert it, for example to float32; "
        "the types are float16, bfloat16, float32, float64, int8, uint8, int32, uint32, int64, uint64, bool, "
        "complex32, complex64 and complex128, and for copies also int16, uint16 and the float8 types"
    )
