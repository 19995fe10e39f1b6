"""The table on the terminal, and the plot."""

from __future__ import annotations

import importlib
from typing import Any

from roundelay.errors import UsageError

from ._job import STEPS, Results, Row, bytes_text, time_text

NAME = 16


def ratio_text(ratio: float | None) -> str:
    """Write a ratio with two digits that count."""
    if ratio is None:
        return "-"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def heading(results: Results) -> str:
    """Return the head of the table: the time of each backend, then ratios to the first."""
    first, *others = results.job.backends
    names = [f"{name:>11}" for name in (first, *others)]
    ratios = [f"{'/ ' + first:>8} {'cpu /':>6}" for _ in others]
    memory = [f"{'mem /':>6}" for _ in others] if results.job.alone is False else []
    cpu = [f"{'cpu ' + name:>15}" for name in (first, *others)]
    return "  ".join([f"{'case':<{NAME}}{'size':>9}", *names, *cpu, *ratios, *memory]).rstrip()


def line(results: Results, case: str, size: int) -> str:
    """Return the row of a case at a size."""
    backends = results.job.backends
    rows = [results.row(case, size, backend) for backend in backends]

    def known(figure: str) -> list[float | None]:
        return [getattr(row, figure) if row else None for row in rows]

    parts = [f"{case:<{NAME}}{bytes_text(size) if size else '':>9}"]
    parts += [f"{time_text(us):>11}" for us in known("wall_us")]
    parts += [f"{time_text(us):>15}" for us in known("cpu_us")]
    for backend in backends[1:]:
        wall, cpu = (results.ratio(case, size, backend, figure) for figure in ("wall_us", "cpu_us"))
        parts.append(f"{ratio_text(wall):>8} {ratio_text(cpu):>6}")
    for backend in backends[1:]:
        parts.append(f"{ratio_text(results.ratio(case, size, backend, 'memory_mib')):>6}")
    errors = [f"  {row.backend}: {row.error}" for row in rows if row and row.error]
    return "\n".join(["  ".join(parts).rstrip(), *errors])


def summary(results: Results) -> list[str]:
    """Return the geometric means over sizes, the memory, and what the figures mean."""
    job = results.job
    first, *others = job.backends
    lines = []
    for backend in others:
        for case in dict.fromkeys(name for name, _ in job.points()):
            mean, cpu = results.mean(case, backend), results.mean(case, backend, "cpu_us")
            if mean is None:
                continue
            of = "" if case in (*STEPS, "barrier") else " over the sizes, in the geometric mean"
            parts = f"wall {ratio_text(mean)}, processor {ratio_text(cpu)}"
            memory = results.mean(case, backend, "memory_mib")
            if memory is not None:
                parts += f", memory {ratio_text(memory)}"
            lines.append(f"{backend} / {first}, {case}: {parts}{of}")
    for backend in job.backends:
        peaks = [row.memory_mib for row in results.rows if row.backend == backend and row.memory_mib is not None]
        if peaks:
            lines.append(f"peak memory of a process with {backend} alone: {max(peaks):.0f} MiB")
    if others:
        lines.append(f"ratios below 1: less than {first} needs")
    return lines


def problems(results: Results) -> list[str]:
    """Return what makes the run a failure: wrong results, and losses that differ."""
    found = [
        f"{row.case} {bytes_text(row.bytes)}, {row.backend}: {row.error}"
        for row in results.rows
        if row.error and "wrong" in row.error
    ]
    for case in STEPS:
        losses: list[Row] = [row for row in results.rows if row.case == case and row.loss is not None]
        for row in losses[1:]:
            expected, got = losses[0].loss, row.loss
            assert expected is not None and got is not None
            if not abs(got - expected) <= 1e-3 * abs(expected):
                found.append(f"{case}: the loss is {got} by {row.backend}, and {expected} by {losses[0].backend}")
    return found


def plotter() -> Any:
    """Return matplotlib. Raises ``UsageError`` that says what to install."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise UsageError(f"--plot needs matplotlib ({error}): pip install matplotlib") from error


def plot(results: Results, path: str) -> None:
    """Draw times by size, a panel for each collective, and bars for steps; the suffix of the path says the format."""
    plt = plotter()
    job = results.job
    sized = list(dict.fromkeys(name for name, size in job.points() if size))
    single = [name for name, size in job.points() if not size]
    panels = sized + ([""] if single else [])
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(5 * columns, 3.6 * lines), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, case in zip(axes.flat, panels, strict=False):
        for index, backend in enumerate(job.backends):
            rows = [results.row(name, size, backend) for name, size in job.points() if name == case]
            points = [(row.bytes, row.wall_us) for row in rows if row and row.wall_us is not None]
            if case:
                axis.plot([size for size, _ in points], [us for _, us in points], "o-", label=backend)
                continue
            for place, name in enumerate(single):
                row = results.row(name, 0, backend)
                if row is not None and row.wall_us is not None:
                    label = backend if place == 0 else None
                    axis.bar(place + 0.8 * index / len(job.backends), row.wall_us, 0.3, color=f"C{index}", label=label)
        if case:
            axis.set_xscale("log", base=2)
            axis.set_xlabel("bytes")
        else:
            axis.set_xticks(range(len(single)), single)
        axis.set_yscale("log")
        axis.set_ylabel("us")
        axis.set_title(case or "without a size")
        axis.legend()
    busy = ", a busy loop on every core" if results.busy else ""
    figure.suptitle(f"{job.ranks} ranks, {job.device}{busy}")
    figure.tight_layout()
    figure.savefig(path)
