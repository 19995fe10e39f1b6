"""The types of elements, under the names that arrays and tensors give them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FORMATS", "NAMES", "DType", "unknown"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """How elements of one type are passed on: as ``scale`` elements of the type ``native``."""

    name: str
    """The name that messages give, as ``float32``."""
    native: str
    """The name of the type that moves, as ``f32``."""
    size: int
    """Bytes of an element."""
    scale: int = 1
    """Elements of ``native`` in one of this type."""
    ops: frozenset[str] | None = None
    """The operators that are the same on elements of ``native``; None: all."""


_SUMS = frozenset({"sum", "avg", "premul_sum"})
_COPIES: frozenset[str] = frozenset()

_ALL = [
    DType("float16", "f16", 2),
    DType("bfloat16", "bf16", 2),
    DType("float32", "f32", 4),
    DType("float64", "f64", 8),
    DType("int8", "i8", 1),
    DType("uint8", "u8", 1),
    DType("int32", "i32", 4),
    DType("uint32", "u32", 4),
    DType("int64", "i64", 8),
    DType("uint64", "u64", 8),
    DType("bool", "bool", 1),
    DType("complex32", "f16", 4, 2, _SUMS),
    DType("complex64", "f32", 8, 2, _SUMS),
    DType("complex128", "f64", 16, 2, _SUMS),
    DType("int16", "u8", 2, 2, _COPIES),
    DType("uint16", "u8", 2, 2, _COPIES),
    *(
        DType(name, "u8", 1, 1, _COPIES)
        for name in (
            "float8_e4m3",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e4m3b11fnuz",
            "float8_e3m4",
            "float8_e5m2",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
        )
    ),
]

NAMES: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}
"""The types by their names."""

FORMATS: dict[tuple[str, int], DType] = {
    (character, size): NAMES[name]
    for characters, size, name in (
        ("e", 2, "float16"),
        ("f", 4, "float32"),
        ("d", 8, "float64"),
        ("b", 1, "int8"),
        ("Bc", 1, "uint8"),
        ("h", 2, "int16"),
        ("H", 2, "uint16"),
        ("il", 4, "int32"),
        ("IL", 4, "uint32"),
        ("lqn", 8, "int64"),
        ("LQN", 8, "uint64"),
        ("?", 1, "bool"),
    )
    for character in characters
} | {("Zf", 8): NAMES["complex64"], ("Zd", 16): NAMES["complex128"]}
"""The types by the characters of the buffer protocol, and the bytes of an element."""


def unknown(name: str) -> str:
    """Return what is said of a type that cannot be passed on."""
    return (
        f"its type is {name}, which no call takes: convert it, for example to float32; "
        "the types are float16, bfloat16, float32, float64, int8, uint8, int32, uint32, int64, uint64, bool, "
        "complex32, complex64 and complex128, and for copies also int16, uint16 and the float8 types"
    )
