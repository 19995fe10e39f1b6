"""What is measured, and what comes of it, as it passes between processes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, replace

from roundelay.errors import UsageError

COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "exchange", "barrier", "start")
"""Cases with a size, but for ``barrier``, which moves nothing."""
STEPS = ("ddp", "fsdp2")
"""Training steps."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Job:
    """Everything that a rank needs to know."""

    backends: list[str]
    """The first is the one that the others are compared with."""
    ranks: int
    cases: list[str]
    sizes: list[int]
    """Bytes of the larger buffer of a rank."""
    seconds: float
    """The time for one case under one backend."""
    device: str
    """``cpu`` or ``cuda``."""
    parameters: int
    """Parameters of the model of the training steps."""
    batch: int
    """Samples of a rank in a training step."""
    timeout: float
    """Seconds without progress after which an operation fails."""
    alone: bool = False
    """Each case once, for its memory, in processes that have one backend only."""

    def only(self, backend: str) -> Job:
        """Return the job that measures the memory of a backend."""
        return replace(self, backends=[backend], alone=True)

    def points(self) -> list[tuple[str, int]]:
        """Return the cases with their sizes in bytes; 0 where there is none."""
        sized = [name for name in self.cases if name in COLLECTIVES and name != "barrier"]
        found = [(name, size) for name in sized for size in self.sizes]
        return found + [(name, 0) for name in self.cases if name == "barrier" or name in STEPS]

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Job:
        """Read what ``text`` wrote."""
        return Job(**json.loads(text))


@dataclass
class Row:
    """One case at one size under one backend."""

    case: str
    bytes: int
    backend: str
    wall_us: float | None = None
    """The median over rounds of the time of one call, that of the slowest rank."""
    wall_min_us: float | None = None
    cpu_us: float | None = None
    """Processor time of one call, user and system, of all threads: the median over rounds of the mean of the ranks."""
    memory_mib: float | None = None
    """The most memory that a process held in the case with this backend alone, the mean of the ranks."""
    rounds: int = 0
    calls: int = 0
    """Calls of one round."""
    loss: float | None = None
    """The loss of rank 0 in the third training step."""
    error: str | None = None
    """Why there is no figure."""

    @property
    def point(self) -> tuple[str, int]:
        """The case and its size."""
        return self.case, self.bytes


@dataclass
class Results:
    """All rows of a run, with what they were measured on."""

    job: Job
    rows: list[Row] = field(default_factory=list)
    busy: bool = False
    machine: dict[str, object] = field(default_factory=dict)

    def row(self, case: str, size: int, backend: str) -> Row | None:
        """Return the row of a case, or None if it was not measured."""
        return next((row for row in self.rows if row.point == (case, size) and row.backend == backend), None)

    def ratio(self, case: str, size: int, backend: str, figure: str = "wall_us") -> float | None:
        """Return a figure of a backend divided by that of the first one; below 1, the backend needs less."""
        ours, first = (self.row(case, size, name) for name in (backend, self.job.backends[0]))
        above, below = (getattr(row, figure) if row else None for row in (ours, first))
        return above / below if above is not None and below else None

    def mean(self, case: str, backend: str, figure: str = "wall_us") -> float | None:
        """Return the geometric mean of the ratios of a case over its sizes."""
        ratios = [self.ratio(name, size, backend, figure) for name, size in self.job.points() if name == case]
        known = [math.log(ratio) for ratio in ratios if ratio]
        return math.exp(sum(known) / len(known)) if known else None

    def text(self) -> str:
        """Return everything as JSON: ``job``, ``machine``, ``busy``, and ``rows`` with their ``ratio``."""
        rows = [
            asdict(row)
            | {
                "ratio": self.ratio(*row.point, row.backend),
                "cpu_ratio": self.ratio(*row.point, row.backend, "cpu_us"),
                "memory_ratio": self.ratio(*row.point, row.backend, "memory_mib"),
            }
            for row in self.rows
        ]
        return json.dumps({"job": asdict(self.job), "machine": self.machine, "busy": self.busy, "rows": rows}, indent=1)


def size_of(text: str) -> int:
    """Read a size in bytes: ``8``, ``64K``, ``1MiB``. Raises ``UsageError``."""
    found = re.fullmatch(r"(\d+)\s*([KMG]?)(I?B)?", text.strip().upper())
    if found is None or int(found[1]) == 0:
        raise UsageError(f"`{text}` is no size: bytes, or with K, M or G, such as 8, 64K, 16M")
    return int(found[1]) * _UNITS[found[2]]


def sizes_of(text: str) -> list[int]:
    """Read sizes: a list with commas, and ``8..64M`` or ``8..64M*2``, whose step is a factor (8 by default)."""
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        if not dots:
            sizes.append(size_of(part))
            continue
        last, _, factor = last.partition("*")
        if factor and (not factor.isdigit() or int(factor) < 2):
            raise UsageError(f"`{part}`: the factor between sizes is a whole number from 2 on")
        size, end, by = size_of(first), size_of(last), int(factor or 8)
        if size > end:
            raise UsageError(f"`{part}`: the first size is larger than the last")
        while size <= end:
            sizes.append(size)
            size *= by
    return sorted(set(sizes))


def bytes_text(size: int) -> str:
    """Write a size as people read it: ``64 KiB``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"


def time_text(us: float | None) -> str:
    """Write a time with its unit: ``12.3 us``, ``45.1 ms``."""
    if us is None:
        return "-"
    if us < 1000:
        return f"{us:.1f} us" if us < 100 else f"{us:.0f} us"
    return f"{us / 1000:.2f} ms" if us < 10_000 else f"{us / 1000:.1f} ms"
