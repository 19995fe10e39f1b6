"""The vocabulary of algorithms that are Python functions: ``from roundelay.lang import *``.

A function under ``@roundelay.algorithm("all_reduce")`` is read, never run; what stands here lets editors and type
checkers follow it. docs/python.md has the counterparts in the language of files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

__all__ = [
    "Axis",
    "Buffer",
    "Ranks",
    "Region",
    "at",
    "bandwidth",
    "bit_reverse",
    "ceil_div",
    "ceil_log",
    "ceil_log2",
    "chunks",
    "commutative",
    "cyclic",
    "data",
    "each",
    "even",
    "gcd",
    "input",
    "is_power",
    "log",
    "log2",
    "lowbit",
    "odd",
    "op",
    "output",
    "paths",
    "popcount",
    "pow2",
    "requires",
    "root",
    "run",
    "schedule",
    "scratch",
    "span",
    "split",
    "tolerates",
    "trailing_zeros",
]


def _run(*_: object) -> NoReturn:
    raise RuntimeError("this is a word of algorithms: use it in a function under @roundelay.algorithm(collective)")


Ranks = int
"""The number of ranks."""


class Axis(int):
    """An axis of a grid of ranks; as a number, its length. ``axis.size`` is that too."""

    size: int


class Region:
    """Chunks of a buffer."""


class Buffer(Region):
    """A buffer: ``data``, ``data[i]``, ``data[a:b]``, ``data[a:b:s]``, ``data[cyclic(a, m)]``."""

    def __getitem__(self, chunks: int | slice | Chunks) -> Region:
        """Return some chunks."""
        _run()


class Chunks:
    """Numbers of chunks, as ``cyclic`` and ``span`` give them."""

    def by(self, step: int) -> Chunks:
        """Take chunks ``step`` apart."""
        _run()

    def take(self, count: int) -> Chunks:
        """Step by that number."""
        _run()


class Transfer:
    """What moves from one rank to another."""

    def copy(self, region: Region) -> Transfer:
        """Copy chunks over those of the target."""
        _run()

    def reduce(self, region: Region) -> Transfer:
        """Reduce chunks into those of the target."""
        _run()

    def into(self, region: Region) -> Transfer:
        """Name the chunks of the target, if they are others."""
        _run()

    def wire(self, dtype: str) -> Transfer:
        """Round what is sent to ``"bf16"``, ``"f16"`` or ``"f32"``."""
        _run()


class Rank(int):
    """A rank."""

    def to(self, *rank: int) -> Transfer:
        """Begin a transfer to a rank, or to coordinates."""
        _run()


class Part:
    """Another algorithm as a part."""

    def over(self, axis: Axis) -> Part:
        """Run it in every group along an axis."""
        _run()

    def on(self, region: Region) -> Part:
        """Give it a region."""
        _run()

    def into(self, region: Region) -> Part:
        """Give it a region for its output."""
        _run()

    def root(self, rank: int) -> Part:
        """Give it a root."""
        _run()

    def via(self, path: int) -> Part:
        """Have it ride a path."""
        _run()


class Schedule:
    """How the algorithm runs."""

    def pipeline(self, pieces: int) -> Schedule:
        """Divide the data into at least that number of pieces."""
        _run()

    def channels(self, count: int) -> Schedule:
        """Run that number of copies side by side."""
        _run()

    def slots(self, count: int) -> Schedule:
        """Bound the messages in transit between two ranks."""
        _run()

    def protocol(self, name: str) -> Schedule:
        """Send through buffers (``"staged"``), into the peers' memory (``"direct"``), or by size (``"auto"``)."""
        _run()


class Paths:
    """The paths between hosts."""

    def by(self, weight: object) -> Paths:
        """Make each part as long as its path can carry."""
        _run()


each: Iterable[Any] = ()
"""All ranks at once: ``for r in each``, or on a grid ``for node, gpu in each``."""
data, input, output = Buffer(), Buffer(), Buffer()  # noqa: A001
paths = Paths()
op: Any = None
root: int = Rank()


def chunks(count: int) -> None:
    """Cut the vector into that number of chunks."""
    _run()


def requires(condition: bool) -> None:
    """Say for which ranks the algorithm is meant."""
    _run()


def tolerates(failures: int) -> None:
    """Declare that the algorithm goes on when that number of ranks fail."""
    _run()


def scratch(count: int) -> Buffer:
    """Give every rank a buffer of that number of chunks."""
    _run()


def at(*coordinates: int) -> Rank:
    """Return the rank at some coordinates."""
    _run()


def cyclic(start: int, count: int) -> Chunks:
    """Return a number of chunks from one on, which go on at 0 behind the end."""
    _run()


def span(start: int, end: int) -> Chunks:
    """Return the chunks from one to before another, for ``by`` and ``take``."""
    _run()


def run(algorithm: str, **arguments: int | bool) -> Part:
    """Run another algorithm as a part: ``run("reduce_scatter.ring").over(gpu)``, ``run("broadcast.k_nomial", k=4)``."""
    _run()


play = run  # The former name.


def split(buffer: Buffer, parts: object) -> Iterable[int]:
    """Run the body once for each part of a buffer: ``for side in split(data, range(2))``."""
    _run()


def schedule() -> Schedule:
    """Say how the algorithm runs, at its end."""
    _run()


def bandwidth(path: int) -> int:
    """Return what a path can carry."""
    _run()


def commutative(op: object) -> bool:
    """Return true if the operator of the call commutes."""
    _run()


def log2(x: int) -> int:
    """Return the logarithm, rounded down."""
    _run()


def log(base: int, x: int) -> int:
    """Return the logarithm to a base of 2 or more, rounded down."""
    _run()


def ceil_log(base: int, x: int) -> int:
    """Return the logarithm to a base of 2 or more, rounded up."""
    _run()


def is_power(base: int, x: int) -> bool:
    """Return whether x is a power of a base of 2 or more."""
    _run()


def ceil_log2(x: int) -> int:
    """Return the logarithm, rounded up."""
    _run()


def pow2(x: int) -> bool:
    """Return true for a power of two."""
    _run()


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    _run()


def gcd(a: int, b: int) -> int:
    """Return the greatest common divisor."""
    _run()


def even(x: int) -> bool:
    """Return true for an even number."""
    _run()


def odd(x: int) -> bool:
    """Return true for an odd number."""
    _run()


def lowbit(x: int) -> int:
    """Return the lowest bit that is set, as a number."""
    _run()


def trailing_zeros(x: int) -> int:
    """Return the position of the lowest bit that is set."""
    _run()


def popcount(x: int) -> int:
    """Return the number of bits that are set."""
    _run()


def bit_reverse(x: int, bits: int) -> int:
    """Return bits in opposite order."""
    _run()
